"""Measures the baselines of the studies and writes them into their pages: `python experiments/baselines.py --data DIR ...`.

The similarity sets have the untrained encoders by each readout and averages of word vectors (baselines.csv). The transfer tasks
have the same encoders, the average of word vectors and random projections of them (transfer_baselines.csv). Without options the
pages are written from these files. A test fails if a page has a table of such scores and not the block of its baselines.
"""

import argparse
import csv
import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent
CORPUS = "corpora/wiki_sentences.txt.xz"
SENTENCES = 100_000  # of CORPUS, on which SIF is fitted
CLASSIFIERS = ("senteval", "senteval_prototyping")
TRANSFER = ("CR", "TREC", "MRPC", "SICKEntailment", "SICKRelatedness", "STSBenchmark")
PROJECTIONS = (512, 4096)
COMMAND = r"""python experiments/baselines.py --data DIR --vectors glove.6B.50d.txt \
    --weights bert-mini=bert-mini mini-2=experiments/pretraining/mini-2"""
HEADINGS = {"STSBenchmark-test": "STS-B", "SICKRelatedness-test": "SICK-R"}


class Block(NamedTuple):
    """The baselines of one group of evaluation sets."""

    results: Path
    begin: str  # the markers of the block in a page
    end: str
    head: re.Pattern[str]  # of the heads of tables that need it
    average: str  # heading of the last column
    note: str

    @property
    def folded(self) -> re.Pattern[str]:
        """Return the pattern of the block in a page."""
        return re.compile(rf"{re.escape(self.begin)}\n.*?{re.escape(self.end)}", re.DOTALL)


SIMILARITY_BLOCK = Block(
    HERE / "baselines.csv",
    "<!-- baselines -->",
    "<!-- end of baselines -->",
    re.compile(r"STS12|STS14|five sets|five similarity sets", re.IGNORECASE),
    "five sets",
    """\
These are the baselines of all tables with similarity sets (Spearman × 100). The word vectors are
GloVe with 50 numbers. SIF as published is fitted on the scored sentences. The last SIF is fitted on
100,000 Wikipedia sentences.""",
)
TRANSFER_BLOCK = Block(
    HERE / "transfer_baselines.csv",
    "<!-- transfer baselines -->",
    "<!-- end of transfer baselines -->",
    re.compile(r"\b(MR|CR|TREC|MRPC)\b|transfer tasks"),
    "six tasks",
    """\
These are the baselines of all tables with transfer tasks (accuracy; Pearson × 100 for SICK-R and
STS-B). The word vectors are GloVe with 50 numbers. Random projections take the largest value over
the words of a sentence (Wieting and Kiela 2019). Nothing here is trained except the classifier.""",
)
BLOCKS = (SIMILARITY_BLOCK, TRANSFER_BLOCK)

# Pages whose tables need other baselines, which they have.
OTHER = {
    ("experiments/multiview/README.md", SIMILARITY_BLOCK): "Pearson with the first component removed, next to the word average",
    ("experiments/senteval_parity/README.md", SIMILARITY_BLOCK): "two programs score the same vectors",
    ("experiments/senteval_parity/README.md", TRANSFER_BLOCK): "two programs score the same vectors",
}


def encoders(weights: list[str]) -> Iterator[str]:
    """Yield the models that --weights names, by each readout."""
    from jax_sentemb.models.pooling import POOLINGS

    for entry in weights:
        name, _, path = entry.partition("=")
        yield from (f"{name} untrained, {readout}={path}@{readout}" for readout in POOLINGS)


def similarity(data: Path, vectors: Path, weights: list[str]) -> list[dict[str, str]]:
    """Return a row for each baseline: its name and its score on each similarity set and on average."""
    from jax_sentemb.data.corpus_files import open_corpus
    from jax_sentemb.evaluation import suite, transfer
    from jax_sentemb.evaluation.catalog import SEVEN
    from jax_sentemb.evaluation.model_spec import load_eval_model, word_vector_baselines
    from jax_sentemb.evaluation.sts import PROTOCOLS

    items = suite.load_all([(name, False) for name in SEVEN], data / "senteval").items
    corpus = open_corpus(str(data / CORPUS))
    sentences = [corpus[row] for row in range(min(SENTENCES, len(corpus)))]
    models = word_vector_baselines(vectors, [text for item in items for text in item.sentences], sentences)
    models += [load_eval_model(spec, set) for spec in encoders(weights)]
    protocols = suite.Protocols(PROTOCOLS["simcse"], transfer.check_protocol("senteval"), resamples=0)
    return [row_of(model, items, protocols, {}) for model in models]


def transfer_tasks(data: Path, vectors: Path, weights: list[str]) -> list[dict[str, str]]:
    """Return a row for each baseline and classifier: its score on each transfer task and on average."""
    from jax_sentemb.evaluation import suite, transfer
    from jax_sentemb.evaluation.model_spec import RANDOM, load_eval_model
    from jax_sentemb.evaluation.sts import PROTOCOLS

    items = suite.load_all([(name, True) for name in TRANSFER], data / "senteval").items
    words = functools.cache(lambda: {word for item in items for text in item.sentences for word in text.split()})
    specs = [f"word vectors, mean={vectors}"]
    specs += [f"{count:,} random projections={vectors}@{RANDOM}+{count}" for count in PROJECTIONS]
    models = [load_eval_model(spec, words) for spec in (*specs, *encoders(weights))]
    rows = []
    for classifier in CLASSIFIERS:
        protocols = suite.Protocols(PROTOCOLS["simcse"], transfer.check_protocol(classifier), resamples=0)
        rows += [row_of(model, items, protocols, {"classifier": classifier}) for model in models]
    return rows


def row_of(model, items, protocols, labels: dict[str, str]) -> dict[str, str]:
    """Return the row of a model: its first number on each set, and the average."""
    from jax_sentemb.evaluation import suite

    scores = {}
    for item, outcome in suite.score(model, items, protocols, lambda count: None):
        if not isinstance(outcome, suite.Outcome):
            raise outcome
        scores[item.name] = next(iter(outcome.headline.values()))
    average = sum(scores.values()) / len(scores)
    print(f"{average:6.2f} {model.name} {' '.join(labels.values())}", flush=True)
    return {"baseline": model.name, **labels} | {name: f"{score:.2f}" for name, score in (scores | {"average": average}).items()}


def block(page: Path, group: Block) -> str:
    """Return the baselines for a page; a page of docs/ has their averages only."""
    with group.results.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    headings = HEADINGS | {"average": group.average}
    is_short = page.is_relative_to(ROOT / "docs")
    labels = [name for name in rows[0] if name in ("baseline", "classifier")]
    columns = ["average"] if is_short else [name for name in rows[0] if name not in labels]
    lines = [
        f"| {' | '.join(labels + [headings.get(name, name) for name in columns])} |",
        "|---" * len(labels) + "|" + "--:|" * len(columns),
    ]
    lines += [f"| {' | '.join(row[name] for name in labels + columns)} |" for row in rows]
    command = "[Command](../experiments/simcse_family/README.md#baselines)" if is_short else f"```\n{COMMAND}\n```"
    command = command.replace("(../", f"({'../' * (len(page.relative_to(ROOT).parts) - 1)}") if is_short else command
    return f"{group.begin}\n{group.note}\n\n" + "\n".join(lines) + f"\n\n{command}\n{group.end}"


def needs_baselines(text: str, group: Block) -> bool:
    """Return whether a page has a table of scores on sets of the group."""
    for each in BLOCKS:
        text = each.folded.sub("", text)
    heads = [
        line for line, below in itertools.pairwise(text.splitlines()) if line.startswith("|") and re.match(r"\|[-:| ]+\|$", below)
    ]
    return any(group.head.search(head) for head in heads)


def pages() -> list[Path]:
    """Return the pages with results."""
    return [*sorted(HERE.glob("*/README.md")), ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def with_baselines(page: Path) -> str:
    """Return the text of a page with the baselines that its tables need."""
    text = page.read_text(encoding="utf-8")
    for group in BLOCKS:
        if group.begin in text:
            text = group.folded.sub(lambda match, group=group: block(page, group), text)
        elif (page.relative_to(ROOT).as_posix(), group) not in OTHER and needs_baselines(text, group):
            heading = "" if "\n## Baselines\n" in text else "\n## Baselines\n"
            text = f"{text.rstrip()}\n{heading}\n{block(page, group)}\n"
    return text


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
        for group, measure in ((SIMILARITY_BLOCK, similarity), (TRANSFER_BLOCK, transfer_tasks)):
            rows = measure(options.data, options.vectors, options.weights)
            with group.results.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
    for page in pages():
        page.write_text(with_baselines(page), encoding="utf-8")


if __name__ == "__main__":
    main()
