"""Which estimate that needs no labels orders different models as labels do?

    python experiments/choosing_models/run.py --data DIR --workdir runs/models --models MiniLM:MiniLM=all-MiniLM-L6-v2 ...
    python experiments/choosing_models/run.py --table      writes the tables of README.md and docs/choosing.md

A model is FAMILY:NAME=PATH, with a path as `jax-sentemb evaluate` takes it. The first model of a family represents it. Vectors and
the rows of a set are kept, so the same command continues. Writes results.csv here.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

sys.path.insert(0, str(Path(__file__).parents[1]))

import estimates
from encoding import Model, encode_all, parse_models, vector_file
from labelled_sets import LabelledSet, load
from study_data import read_rows, require, rounded, write_rows

HERE = Path(__file__).parent
RESULTS = HERE / "results.csv"
PAGES = {HERE / "README.md": True, HERE.parents[1] / "docs" / "choosing.md": False}  # True: all tables; False: the first one
START, END = "<!-- models -->", "<!-- end of models -->"
DATA = ("senteval", "afs/UKP_ASPECT.tsv", "domains/debian_packages.tsv", "domains/cranfield")
TEXTS = 735  # of a set, which the estimates see at most: as many as the smallest set has, so all have the same shapes
FAMILIES, ALL = "families", "all"  # pools: the representatives, and every model
GROUPS = ("similarity", "nearest texts", "classification")
REFERENCE = "STSBenchmark-test"
DRAWS, FEWEST = 1000, 4  # of the bootstrap; distinct models of a draw
LINEAR = {"information, linear": estimates.gaussian}
TRAINED = {"information, mixture (KNIFE)": estimates.mixture, "information, flow (FLARE)": estimates.flow}  # cost too much for ALL
AGREEMENT = ("agreement of pairs", "agreement of neighbours")
POOLED = {FAMILIES: (*AGREEMENT, *LINEAR, *TRAINED), ALL: (*AGREEMENT, *LINEAR)}
SINGLE = (
    "split-half retrieval", "alignment of halves", "uniformity", "isotropy (mean cosine)", "effective rank (RankMe)", "dimension",
)  # fmt: skip
Rows = list[dict[str, Any]]


def measure(each: LabelledSet, models: Sequence[Model], workdir: Path) -> Rows:
    """Return a row for each model: its score, and all estimates."""
    vectors = [dict(np.load(vector_file(workdir, each.name, model.name))) for model in models]
    lines = each.texts[each.unlabelled]
    filled = [row for row, line in enumerate(lines) if line.strip()]
    chosen = np.sort(np.random.default_rng(0).permutation(filled)[:TEXTS])
    texts = [arrays[each.unlabelled][chosen] for arrays in vectors]
    rows: Rows = [
        {"set": each.name, "group": each.group, "family": model.family, "model": model.name, "score": each.score(arrays)}
        | estimates.single(seen, arrays["first"], arrays["second"])
        for model, arrays, seen in zip(models, vectors, texts, strict=True)
    ]
    ranks = [estimates.similarities(seen) for seen in texts]
    sources, targets = (
        np.stack([estimates.components(seen, width, is_white) for seen in texts])
        for width, is_white in ((estimates.SOURCE, False), (estimates.TARGET, True))
    )
    families = representatives([model.family for model in models])
    for pool, members in ((ALL, list(range(len(models)))), (FAMILIES, families)):
        values = dict(estimates.agreement([ranks[member] for member in members]))
        parts = estimates.split(sources[members], targets[members])
        for name, information in (LINEAR | TRAINED if pool == FAMILIES else LINEAR).items():
            summary = estimates.normalised_sufficiency if "FLARE" in name else estimates.sufficiency
            values[name] = summary(information(parts))
        for name, column in values.items():
            for member, value in zip(members, column, strict=True):
                rows[member][f"{pool}: {name}"] = float(value)
    return rows


def representatives(families: Sequence[str]) -> list[int]:
    """Return the index of the first model of each family."""
    return [families.index(family) for family in dict.fromkeys(families)]


def pools(rows: Rows) -> dict[str, Rows]:
    """Return the rows of each pool."""
    first: dict[str, str] = {}
    for row in rows:
        first.setdefault(row["family"], row["model"])
    return {FAMILIES: [row for row in rows if row["model"] in first.values()], ALL: rows}


def by_set(rows: Rows) -> dict[str, Rows]:
    """Return the rows of each set, with the models in the same order."""
    names = list(dict.fromkeys(row["set"] for row in rows))
    return {name: [row for row in rows if row["set"] == name] for name in names}


def candidates(rows: Rows, pool: str) -> dict[str, Callable[[dict[str, Any]], float]]:
    """Return the estimates of a pool by name, and the order by the labels of another set."""
    reference = {row["model"]: float(row["score"]) for row in rows if row["set"] == REFERENCE}
    pooled = {name: (lambda row, column=f"{pool}: {name}": float(row[column])) for name in POOLED[pool]}
    single = {name: (lambda row, column=name: float(row[column])) for name in SINGLE}
    return pooled | single | {"labels of STS-B": lambda row: reference[row["model"]]}


def correlations(values: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the rank correlation of each row of values with that of scores; 0 for values that order nothing."""
    first, second = (rankdata(rows, axis=1) for rows in (values, scores))
    first, second = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (first, second))
    scale = np.sqrt(np.square(first).sum(axis=1) * np.square(second).sum(axis=1))
    return (first * second).sum(axis=1) / np.where(scale, scale, 1)


def interval(values: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of the mean correlation of values [sets, models] over draws of sets and of models."""
    draw = np.random.default_rng(0)
    sets, models = values.shape
    means = []
    while len(means) < DRAWS:
        members = np.unique(draw.integers(models, size=models))
        if len(members) >= FEWEST:
            cells = correlations(values[:, members], scores[:, members])
            means.append(cells[draw.integers(sets, size=sets)].mean())
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)


def summary(rows: Rows, pool: str) -> Iterator[list[str]]:
    """Yield a line for each estimate: mean correlation, its interval, by group, sets with the best model first, points lost."""
    for name, estimate in candidates(rows, pool).items():
        sets = {key: each for key, each in by_set(rows).items() if name != "labels of STS-B" or key != REFERENCE}
        values = np.array([[estimate(row) for row in each] for each in sets.values()])
        scores = np.array([[float(row["score"]) for row in each] for each in sets.values()])
        cells = correlations(values, scores)
        groups = np.array([each[0]["group"] for each in sets.values()])
        low, high = interval(values, scores)
        lost = scores.max(axis=1) - scores[np.arange(len(scores)), values.argmax(axis=1)]
        yield [
            name, f"{cells.mean():.2f}", f"{low:.2f} to {high:.2f}", *(f"{cells[groups == group].mean():.2f}" for group in GROUPS),
            f"{(lost == 0).sum()} of {len(lost)}", f"{lost.mean():.1f}",
        ]  # fmt: skip


def tables(rows: Rows, is_complete: bool) -> str:
    """Return the table of the representatives; if `is_complete`, also those of all models and of their scores."""
    parts = []
    chosen = pools(rows) if is_complete else {FAMILIES: pools(rows)[FAMILIES]}
    for pool, members in chosen.items():
        count = len({row["model"] for row in members})
        head = f"{count} models, one of each family" if pool == FAMILIES else f"all {count} models"
        lines = [f"| {head} | mean | 95 % interval | {' | '.join(GROUPS)} | best model first | points lost |", "|---|" + "--:|" * 7]
        parts.append("\n".join([*lines, *(f"| {' | '.join(line)} |" for line in summary(members, pool))]))
    if is_complete:
        names = list(dict.fromkeys(row["model"] for row in rows))
        lines = [f"| set, score | {' | '.join(names)} |", "|---|" + "--:|" * len(names)]
        for name, each in by_set(rows).items():
            scores = " | ".join(f"{float(row['score']):.1f}" for row in each)
            lines.append(f"| {name} | {scores} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def with_tables(page: Path) -> str:
    """Return the text of a page with the tables of results.csv."""
    before, _, rest = page.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{tables(read_rows(RESULTS), PAGES[page])}\n{END}{after}"


def main() -> None:
    """Encode, measure and write results.csv; with --table, write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with the data of experiments/data.md")
    parser.add_argument("--workdir", type=Path, default=Path("runs/models"))
    parser.add_argument("--models", nargs="+", metavar="FAMILY:NAME=PATH", help="PATH elsewhere: other programs encode")
    parser.add_argument("--sets", nargs="*", metavar="SET", help="only these sets")
    parser.add_argument("--table", action="store_true", help="write the tables of the pages")
    options = parser.parse_args()
    if options.table:
        for page in PAGES:
            page.write_text(with_tables(page), encoding="utf-8")
        return
    if not options.data or not options.models:
        parser.error("give --data DIR and --models, or --table")
    require([options.data / path for path in DATA])
    models = parse_models(options.models)
    sets = [each for each in load(options.data, options.workdir / "sets") if not options.sets or each.name in options.sets]
    encode_all(sets, models, options.workdir)
    rows: Rows = []
    for each in sets:
        file = options.workdir / "measured" / f"{each.name}.json"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(measure(each, models, options.workdir)), encoding="utf-8")
            print(f"measured: {each.name}", flush=True)
        rows += json.loads(file.read_text(encoding="utf-8"))
    if options.sets:
        return
    write_rows(RESULTS, rounded(rows))


if __name__ == "__main__":
    main()
