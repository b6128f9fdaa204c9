"""Writes the numbers that `jax-sentemb check` cites, from the results of the experiments and of a run of the quick start.

make quickstart
python experiments/recommendations.py --quickstart runs/quickstart

Without --quickstart the numbers of the quick start stay as they are.
"""

import argparse
import json
import statistics
from collections import Counter
from pathlib import Path

from study_data import read_rows

HERE = Path(__file__).parent
TABLE = HERE.parent / "jax_sentemb" / "cli" / "recommendations.json"


def results(name: str, file_name: str = "results.csv") -> list[dict[str, str]]:
    """The rows of an experiment."""
    return read_rows(HERE / name / file_name)


def untrained(encoder: str) -> float:
    """Score of an encoder without training by its best readout (experiments/baselines.py)."""
    rows = results(".", "baselines.csv")
    return max(float(row["average"]) for row in rows if row["baseline"].startswith(f"{encoder} untrained"))


def many() -> dict[str, float]:
    """Mean score of AMI on the upper half of the layers over the seeds, at the last step."""
    rows = [row for row in results("simcse_family", "cls.csv") if (row["variant"], row["checkpoint"]) == ("AMI-upper-3", "last")]
    words = {row["baseline"]: float(row["average"]) for row in results(".", "baselines.csv")}
    score = statistics.mean(float(row["average"]) for row in rows)
    steps = {int(row["step"]) for row in rows}
    baselines = {
        "untrained": untrained("mini-2"),
        "sif": words["SIF as published"],
        "tfidf": max(words[name] for name in words if name.startswith("tf-idf")),
    }
    return {"steps": min(steps), "seeds": len(rows), "simcse_ami": score, **baselines}


def family() -> dict[str, float]:
    """Mean score of SimCSE at temperature 0.5 over the seeds, at the checkpoint that STS-B dev selects."""
    scores = [
        float(row["average"])
        for row in results("simcse_family", "methods.csv")
        if (row["variant"], row["checkpoint"]) == ("SimCSE", "dev")
    ]
    return {"seeds": len(scores), "simcse": statistics.mean(scores), "untrained": untrained("mini-2")}


def checkpoint() -> dict[str, float]:
    """Mean test score over the runs, of the checkpoint that each criterion selects."""
    runs: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in results("choosing"):
        runs.setdefault((row["run"], row["seed"]), []).append(row)

    def reached(criterion: str) -> float:
        return statistics.mean(float(max(run, key=lambda row: float(row[criterion]))["test"]) for run in runs.values())

    first = statistics.mean(float(min(run, key=lambda row: float(row["step"]))["test"]) for run in runs.values())
    selected = {"retrieval": reached("halves retrieval"), "last": reached("step"), "dev": reached("STSBenchmark-dev")}
    return selected | {"first": first}


SEARCHED = ("packages", "abstracts")  # domains with other measures, on which fewer seeds were run


def starts(encoder: str) -> dict[str, dict[str, str]]:
    """The row of an encoder without training for each domain."""
    return {row["domain"]: row for row in results("adapting") if (row["encoder"], row["recipe"]) == (encoder, "start")}


def changes(encoder: str, recipe: str, rate: float) -> list[tuple[str, float, float]]:
    """(domain, change of its score, change elsewhere) of every run of a recipe, against the start."""
    rows = [row for row in results("adapting") if row["encoder"] == encoder]
    start = starts(encoder)

    def change(row: dict[str, str], field: str) -> float:
        return float(row[field]) - float(start[row["domain"]][field])

    return [
        (row["domain"], change(row, "in_domain"), change(row, "out_of_domain"))
        for row in rows
        if (row["recipe"], float(row["rate"]), row["share_of_start"]) == (recipe, rate, "0")
    ]


def adapting(encoder: str, rate: float) -> dict[str, float]:
    """Changes of an encoder by Mirror-BERT: lowest and highest mean over seeds of a domain, and elsewhere the lowest."""
    every = changes(encoder, "Mirror-BERT", rate)
    found = [each for each in every if each[0] not in SEARCHED]
    seeds = Counter(domain for domain, _, _ in found)
    gains = means(every)
    searched = {name: gains.pop(name) for name in (*SEARCHED, "novels", "questions") if name in gains}  # other measures
    pairs = {"domains": len(gains), "lowest": min(gains.values()), "highest": max(gains.values())}
    elsewhere = min(change for _, _, change in every)
    return {"seeds": min(seeds.values()), **pairs, **searched, "elsewhere": elsewhere}


def words_without_training(encoder: str, rate: float) -> dict[str, float]:
    """In how many domains the untrained encoder next to tf-idf is better than Mirror-BERT, and its lowest and highest change."""
    trained = means([each for each in changes(encoder, "Mirror-BERT", rate) if each[0] not in SEARCHED])
    words = means(changes(encoder, "start next to tf-idf, 2:1", 0))
    better = sum(words[domain] > gain for domain, gain in trained.items())
    lowest, highest = min(words[domain] for domain in trained), max(words[domain] for domain in trained)
    return {"all_domains": len(trained), "better_words": better, "lowest_words": lowest, "highest_words": highest}


def neighbours(encoder: str, rate: float) -> dict[str, float]:
    """The same for neighbouring sentences on novels: mean change of the paragraphs that are found, and elsewhere the lowest."""
    found = changes(encoder, "neighbours", rate)
    paragraphs = statistics.mean(change for _, change, _ in found)
    return {"seeds": len(found), "paragraphs": paragraphs, "elsewhere": min(change for _, _, change in found)}


def means(found: list[tuple[str, float, float]]) -> dict[str, float]:
    """Mean change of the score of each domain."""
    return {domain: statistics.mean(change for name, change, _ in found if name == domain) for domain in {row[0] for row in found}}


def with_words(encoder: str) -> dict[str, float]:
    """Changes of an encoder by words and itself: mean of the domains that are searched, lowest of those of pairs, and elsewhere."""
    found = changes(encoder, "words and start, 1:2, 200 steps", 3e-5)
    gains = means(found)
    searched = {name: gains.pop(name) for name in ("packages", "abstracts", "novels", "questions")}
    elsewhere = min(change for _, _, change in found)
    seeds = min(Counter(domain for domain, _, _ in found).values())
    next_to = means(changes(encoder, "start next to tf-idf, 2:1", 0))
    searched |= {f"{name}_next": next_to[name] for name in ("abstracts", "novels")}
    return {"seeds": seeds, **searched, "lowest": min(gains.values()), "highest": max(gains.values()), "elsewhere": elsewhere}


def distilled() -> dict[str, float]:
    """Scores of the students, mini-2 and layers of the teacher (means over seeds), of mini-2 untrained, and of the teacher."""
    scores: dict[str, list[float]] = {}
    for row in results("stronger"):
        scores.setdefault(row["setting"], []).append(float(row["mean"]))
    return {
        "seeds": len(scores["mini-2"]),
        "start": untrained("mini-2"),
        "student": statistics.mean(scores["mini-2"]),
        "layers": statistics.mean(scores["three layers of MiniLM"]),
        "teacher": statistics.mean(scores["the teacher"]),
        **few_sentences(),
    }


def few_sentences() -> dict[str, float]:
    """nDCG@10 on Cranfield and STS-B of three layers of MiniLM that saw its sentences only, and of MiniLM."""
    rows = [row for row in results("stronger", "cranfield.csv") if (row["trained on"], row["words"]) == ("Cranfield", "")]
    teacher = starts("MiniLM")["abstracts"]
    return {
        "abstracts": statistics.mean(float(row["nDCG@10"]) for row in rows),
        "other": statistics.mean(float(row["STS-B"]) for row in rows),
        "abstracts_teacher": float(teacher["in_domain"]),
        "other_teacher": float(teacher["out_of_domain"]),
    }


def tables() -> dict[str, float]:
    """Mean scores of static tables with 1,024 dimensions for words of mini-2, without training and with AMI; and of tf-idf."""
    scores: dict[tuple[str, str], list[float]] = {}
    for row in results("stronger", "tables.csv"):
        if row["text"] == "mix":
            scores.setdefault((row["encoder"], row["words"]), []).append(float(row["mean"]))
    trained = scores["mini-2, AMI", "1024"]
    means = {"untrained": scores["mini-2", "1024"], "trained": trained, "tfidf": scores["tf-idf", ""]}
    return {"seeds": len(trained), **{name: statistics.mean(values) for name, values in means.items()}}


def scratch(workdir: Path) -> dict[str, float]:
    """Scores of the quick start on the generated test pairs."""
    found = json.loads((workdir / "scores.json").read_text(encoding="utf-8"))
    name = "grammar-test"
    return {
        "steps": found["step"],
        "untrained": found["baselines"]["untrained"][name],
        "trained": found["scores"][name]["spearman"]["all"],
        "tfidf": found["baselines"]["tf-idf"][name],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quickstart", type=Path, help="the work directory of a run of the quick start")
    parser.add_argument("--output", type=Path, default=TABLE)
    options = parser.parse_args()
    known = json.loads(TABLE.read_text(encoding="utf-8"))
    quickstart = scratch(options.quickstart) if options.quickstart else known["scratch"]
    table = {
        "many": many(),
        "scratch": quickstart,
        "checkpoint": checkpoint(),
        "adapting": adapting("MiniLM", 3e-6),
        "adapting_faster": adapting("MiniLM", 1e-5),
        "neighbours": neighbours("MiniLM", 1e-5),
        "adapting_words": with_words("MiniLM"),
        "weak": adapting("mini-2", 1e-4) | words_without_training("mini-2", 1e-4),
        "family": family(),
        "distilled": distilled(),
        "tables": tables(),
    }
    rounded = {part: {name: round(value, 1) for name, value in numbers.items()} for part, numbers in table.items()}
    options.output.write_text(json.dumps(rounded, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
