"""Measures the baselines of the studies and writes them into their pages: `python experiments/baselines.py --data DIR ...`.

The baselines of the similarity sets are tf-idf, averages of word vectors, and the untrained encoders by each readout. They are in
baselines.csv. Without options the pages are written from that file. A test fails if a page has a table of such scores and not the
block of its baselines.
"""

import argparse
import csv
import itertools
import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT, RESULTS = HERE.parent, HERE / "baselines.csv"
CORPUS = "corpora/wiki_sentences.txt.xz"
SENTENCES = 100_000  # of CORPUS, on which SIF is fitted
COMMAND = r"""python experiments/baselines.py --data DIR --vectors glove.6B.50d.txt \
    --weights bert-mini=bert-mini mini-2=experiments/pretraining/mini-2"""
NOTE = """\
These are the baselines of all tables with similarity sets (Spearman × 100). The word vectors are
GloVe with 50 numbers. tf-idf and SIF as published are fitted on the scored sentences. The last SIF
is fitted on 100,000 Wikipedia sentences."""
BEGIN, END = "<!-- baselines -->", "<!-- end of baselines -->"
FOLDED = re.compile(rf"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.DOTALL)
SIMILARITY = re.compile(r"STS12|STS14|five sets|five similarity sets", re.IGNORECASE)

# Pages whose tables need other baselines, which they have.
OTHER = {
    "experiments/multiview/README.md": "Pearson with the first component removed, next to the word average",
    "experiments/senteval_parity/README.md": "two programs score the same vectors",
}


def measure(data: Path, vectors: Path, weights: list[str]) -> list[dict[str, str]]:
    """Return a row for each baseline: its name and its score on each similarity set and on average."""
    from jax_sentemb.data.corpus_files import open_corpus
    from jax_sentemb.evaluation import suite, transfer
    from jax_sentemb.evaluation.catalog import SEVEN
    from jax_sentemb.evaluation.model_spec import load_eval_model, word_vector_baselines
    from jax_sentemb.evaluation.sts import PROTOCOLS
    from jax_sentemb.models.pooling import POOLINGS

    items = suite.load_all([(name, False) for name in SEVEN], data / "senteval").items
    corpus = open_corpus(str(data / CORPUS))
    sentences = [corpus[row] for row in range(SENTENCES)]
    models = [load_eval_model("tf-idf", set)]
    models += word_vector_baselines(vectors, [text for item in items for text in item.sentences], sentences)
    for entry in weights:
        name, _, path = entry.partition("=")
        models += [load_eval_model(f"{name} untrained, {readout}={path}@{readout}", set) for readout in POOLINGS]
    protocols = suite.Protocols(PROTOCOLS["simcse"], transfer.check_protocol("senteval"), resamples=0)
    rows = []
    for model in models:
        scores = {}
        for item, outcome in suite.score(model, items, protocols, lambda count: None):
            if not isinstance(outcome, suite.Outcome):
                raise outcome
            scores[item.name] = outcome.headline[item.name]
        average = sum(scores.values()) / len(scores)
        rows.append({"baseline": model.name} | {name: f"{score:.2f}" for name, score in (scores | {"average": average}).items()})
        print(f"{average:6.2f} {model.name}", flush=True)
    return rows


def block(page: Path) -> str:
    """Return the baselines of the similarity sets for a page; a page of docs/ has their averages only."""
    with RESULTS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    sets = {"STSBenchmark-test": "STS-B", "SICKRelatedness-test": "SICK-R", "average": "five sets"}
    is_short = page.is_relative_to(ROOT / "docs")
    columns = ["average"] if is_short else [name for name in rows[0] if name != "baseline"]
    lines = [f"| baseline | {' | '.join(sets.get(name, name) for name in columns)} |", "|---|" + "--:|" * len(columns)]
    lines += [f"| {row['baseline']} | {' | '.join(row[name] for name in columns)} |" for row in rows]
    root = "../" * (len(page.relative_to(ROOT).parts) - 1)
    command = f"[Command]({root}experiments/simcse_family/README.md#baselines)" if is_short else f"```\n{COMMAND}\n```"
    return f"{BEGIN}\n{NOTE}\n\n" + "\n".join(lines) + f"\n\n{command}\n{END}"


def needs_baselines(text: str) -> bool:
    """Return whether a page has a table of scores on the similarity sets."""
    pairs = itertools.pairwise(FOLDED.sub("", text).splitlines())
    heads = [line for line, below in pairs if line.startswith("|") and re.match(r"\|[-:| ]+\|$", below)]
    return any(SIMILARITY.search(head) for head in heads)


def pages() -> list[Path]:
    """Return the pages with results."""
    return [*sorted(HERE.glob("*/README.md")), ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def with_baselines(page: Path) -> str:
    """Return the text of a page with the baselines that its tables need."""
    text = page.read_text(encoding="utf-8")
    if BEGIN in text:
        return FOLDED.sub(lambda match: block(page), text)
    if page.relative_to(ROOT).as_posix() in OTHER or not needs_baselines(text):
        return text
    return f"{text.rstrip()}\n\n## Baselines\n\n{block(page)}\n"


def main() -> None:
    """Measure, if the data is given, and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of experiments/data.md")
    parser.add_argument("--vectors", type=Path, help="GloVe vectors")
    parser.add_argument("--weights", nargs="*", default=[], metavar="NAME=DIR", help="untrained encoders")
    options = parser.parse_args()
    if bool(options.data) != bool(options.vectors):
        parser.error("--data and --vectors are given together")
    if options.data:
        rows = measure(options.data, options.vectors, options.weights)
        with RESULTS.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    for page in pages():
        page.write_text(with_baselines(page), encoding="utf-8")


if __name__ == "__main__":
    main()
