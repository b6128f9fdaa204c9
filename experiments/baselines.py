"""Measures the baselines of the studies and writes them into their pages: `python experiments/baselines.py --data DIR ...`.

The similarity sets have tf-idf, averages of word vectors, and the untrained encoders by each readout (baselines.csv). The transfer
tasks have the same and random projections of word vectors, by both classifiers of the studies (transfer_baselines.csv). A baseline
that these files have is not measured again: remove its rows to do so. Without options the pages are written from these files. A
test fails if a page has a table of such scores but not the block of its baselines.
"""

import argparse
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from study_data import add_rows, read_rows, write_rows

if TYPE_CHECKING:
    from jax_sentemb.evaluation.model_spec import EvalModel
    from jax_sentemb.evaluation.suite import Item, Protocols

HERE = Path(__file__).parent
ROOT = HERE.parent
CORPUS = "corpora/wiki_sentences.txt.xz"
SENTENCES = 100_000  # of CORPUS, on which tf-idf and SIF are fitted
CORPUS_NAME = "Wikipedia"
CLASSIFIERS = ("senteval", "senteval_prototyping")
TRANSFER = ("MR", "CR", "TREC", "MRPC", "SICKEntailment", "SICKRelatedness", "STSBenchmark")
PROJECTIONS = (512, 4096)
TF_IDF_WIDTH = 1024  # of the transfer tasks, whose classifiers take time in proportion to it
LABELS = ("baseline", "classifier")  # columns of the CSV files that are no scores
COMMAND = r"""python experiments/baselines.py --data DIR --vectors glove.6B.50d.txt \
    --weights bert-mini=bert-mini mini-2=experiments/pretraining/mini-2"""
HEADINGS = {
    "STSBenchmark-test": "STS-B",
    "SICKRelatedness-test": "SICK-R",
    "SICKEntailment": "SICK-E",
    "SICKRelatedness": "SICK-R",
    "STSBenchmark": "STS-B",
}


class Block(NamedTuple):
    """The baselines of one group of evaluation sets."""

    results: Path
    marker: str  # text of the comments around the block in a page
    head: re.Pattern[str]  # matches the heads of tables that need the block
    average: str  # heading of the last column
    left_out: tuple[str, ...]  # columns that the average does not have
    note: str

    @property
    def begin(self) -> str:
        """Return the line before the block."""
        return f"<!-- {self.marker} -->"

    @property
    def end(self) -> str:
        """Return the line after the block."""
        return f"<!-- end of {self.marker} -->"

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return the pattern of the block in a page."""
        return re.compile(rf"{re.escape(self.begin)}.*?{re.escape(self.end)}", re.DOTALL)


SIMILARITY_BLOCK = Block(
    HERE / "baselines.csv",
    "baselines",
    re.compile(r"STS12|STS14|STS-?B\b|five sets|five similarity sets|checkpoint of a run", re.IGNORECASE),
    "five sets",
    (),
    """\
These are the baselines of all tables with similarity sets (Spearman × 100). The word vectors are
50-dimensional GloVe. The first tf-idf and SIF as published are fitted on the scored sentences, the
others on 100,000 Wikipedia sentences. tf-idf uses the whole vocabulary. A vocabulary of more than
4,096 words is projected to 4,096 dimensions.""",
)
TRANSFER_BLOCK = Block(
    HERE / "transfer_baselines.csv",
    "transfer baselines",
    re.compile(r"\b(MR|CR|TREC|MRPC|SST2?)\b|transfer tasks"),
    "six tasks",
    ("MR",),
    """\
These are the baselines of all tables with transfer tasks (accuracy; Pearson × 100 for SICK-R and
STS-B). Only the classifier is trained. Its settings change the scores, so compare rows of one
classifier. Random projections are those of Wieting and Kiela (2019): the largest value over the
words of a sentence. The words of tf-idf are projected to 1,024 dimensions. Its frequencies are
those of all sentences of a task, or of 100,000 Wikipedia sentences. The average has no MR.""",
)
BLOCKS = (SIMILARITY_BLOCK, TRANSFER_BLOCK)

# Pages whose tables need other baselines, which they have (OWN), or none.
OTHER = {
    ("docs/deploying.md", "baselines"): "one model on several backends",
    ("experiments/adapting/README.md", "baselines"): "sets of several domains, with a row of tf-idf",
    ("experiments/choosing/README.md", "baselines"): "a sample of the pairs, with its own table of baselines",
    (
        "experiments/multiview/README.md",
        "baselines",
    ): "Pearson with the first component removed, next to averages and tf-idf by the same protocol",
    ("experiments/senteval_parity/README.md", "baselines"): "two programs score the same vectors",
    ("experiments/senteval_parity/README.md", "transfer baselines"): "two programs score the same vectors",
}

# The rows that the pages of OTHER have instead.
OWN = {
    "experiments/adapting/README.md": ("start", "tf-idf"),
    "experiments/choosing/README.md": (
        "untrained, cls", "untrained, mean", "untrained, first_last", "word vectors, mean", "SIF as published",
        "tf-idf of the scored sentences", "tf-idf of Wikipedia",
    ),
    "experiments/multiview/README.md": ("word average", "word average with SIF weights", "tf-idf, without vectors"),
}  # fmt: skip


def similarity(data: Path, vectors: Path, weights: Sequence[str]) -> list[dict[str, str]]:
    """Return a row for each baseline: its name and its score on each similarity set and on average."""
    from jax_sentemb.evaluation import suite, transfer
    from jax_sentemb.evaluation.catalog import SEVEN
    from jax_sentemb.evaluation.model_spec import tf_idf_baselines
    from jax_sentemb.evaluation.sts import PROTOCOLS

    items = suite.load_all([(name, False) for name in SEVEN], data / "senteval").items
    protocols = suite.Protocols(PROTOCOLS["simcse"], transfer.check_protocol("senteval"), resamples=0)
    tf_idf = tf_idf_baselines(sentences_of(data / CORPUS), CORPUS_NAME)
    return measured([*tf_idf, *models(items, data, vectors, weights)], items, protocols, SIMILARITY_BLOCK, {})


def transfer_tasks(data: Path, vectors: Path, weights: Sequence[str]) -> list[dict[str, str]]:
    """Return a row for each classifier and baseline: its score on each transfer task and on average."""
    from jax_sentemb.evaluation import suite, transfer
    from jax_sentemb.evaluation.model_spec import RANDOM, load_eval_model, tf_idf_baselines
    from jax_sentemb.evaluation.sts import PROTOCOLS

    items = suite.load_all([(name, True) for name in TRANSFER], data / "senteval").items
    words = {word for item in items for text in item.sentences for word in text.split()}
    specs = [f"{count:,} random projections={vectors}@{RANDOM}+{count}" for count in PROJECTIONS]
    projections = [load_eval_model(spec, lambda: words) for spec in specs]
    tf_idf = tf_idf_baselines(sentences_of(data / CORPUS), CORPUS_NAME, TF_IDF_WIDTH)
    baselines = [*projections, *tf_idf, *models(items, data, vectors, weights)]
    rows = []
    for name in CLASSIFIERS:
        protocols = suite.Protocols(PROTOCOLS["simcse"], transfer.check_protocol(name), resamples=0)
        rows += measured(baselines, items, protocols, TRANSFER_BLOCK, {"classifier": name})
    return rows


def models(items: "Sequence[Item]", data: Path, vectors: Path, weights: Sequence[str]) -> "list[EvalModel]":
    """Return the baselines of both groups: averages of word vectors, untrained encoders by each readout."""
    from jax_sentemb.evaluation.model_spec import load_eval_model, word_vector_baselines
    from jax_sentemb.models.pooling import POOLINGS

    scored = [text for item in items for text in item.sentences]
    names = [entry.partition("=") for entry in weights]
    encoders = [f"{name} untrained, {readout}={path}@{readout}" for name, _, path in names for readout in POOLINGS]
    return [
        *word_vector_baselines(vectors, scored, sentences_of(data / CORPUS), CORPUS_NAME),
        *(load_eval_model(spec, set) for spec in encoders),
    ]


def sentences_of(corpus_file: Path) -> list[str]:
    """Return the sentences of CORPUS on which tf-idf and SIF are fitted."""
    from jax_sentemb.data.corpus_files import open_corpus

    corpus = open_corpus(str(corpus_file))
    return [corpus[row] for row in range(min(SENTENCES, len(corpus)))]


def measured(
    baselines: "Sequence[EvalModel]", items: "Sequence[Item]", protocols: "Protocols", block: Block, labels: dict[str, str]
) -> list[dict[str, str]]:
    """Return the rows of the baselines: those of the results file, and new ones for the others, which it gets at once."""
    rows = {tuple(row[name] for name in LABELS if name in row): row for row in read_rows(block.results)}
    for model in baselines:
        if (key := (model.name, *labels.values())) not in rows:
            rows[key] = scores(model, items, protocols, block, labels)
            add_rows(block.results, [rows[key]])
    return [rows[model.name, *labels.values()] for model in baselines]


def scores(
    model: "EvalModel", items: "Sequence[Item]", protocols: "Protocols", block: Block, labels: dict[str, str]
) -> dict[str, str]:
    """Return the row of a model: its first number on each set, and the average."""
    from jax_sentemb.evaluation import suite

    numbers = {}
    for item, outcome in suite.score(model, items, protocols):
        if not isinstance(outcome, suite.Outcome):
            raise outcome
        numbers[item.name] = next(iter(outcome.headline.values()))
    averaged = [number for name, number in numbers.items() if name not in block.left_out]
    numbers["average"] = sum(averaged) / len(averaged)
    print(f"{numbers['average']:6.2f} {model.name} {' '.join(labels.values())}", flush=True)
    return {"baseline": model.name, **labels} | {name: f"{number:.2f}" for name, number in numbers.items()}


def text_of(block: Block, page: Path) -> str:
    """Return the baselines for a page; a page of docs/ has their averages only."""
    rows = read_rows(block.results)
    headings = HEADINGS | {"average": block.average}
    is_short = page.is_relative_to(ROOT / "docs")
    labels = [name for name in LABELS if name in rows[0]]
    columns = ["average"] if is_short else [name for name in rows[0] if name not in labels]
    lines = [
        f"| {' | '.join([*labels, *(headings.get(name, name) for name in columns)])} |",
        "|---" * len(labels) + "|" + "--:|" * len(columns),
        *(f"| {' | '.join(row[name] for name in (*labels, *columns))} |" for row in rows),
    ]
    root = "../" * (len(page.relative_to(ROOT).parts) - 1)
    command = f"[Command]({root}experiments/simcse_family/README.md#baselines)" if is_short else f"```\n{COMMAND}\n```"
    return f"{block.begin}\n{block.note}\n\n" + "\n".join(lines) + f"\n\n{command}\n{block.end}"


def needs_block(text: str, block: Block) -> bool:
    """Return whether a page has a table of scores on sets of the block's group."""
    for each in BLOCKS:
        text = each.pattern.sub("", text)
    pairs = itertools.pairwise(text.splitlines())
    heads = [line for line, below in pairs if line.startswith("|") and re.match(r"\|[-:| ]+\|$", below)]
    return any(block.head.search(head) for head in heads)


def pages() -> list[Path]:
    """Return the pages with results."""
    return [*sorted(HERE.glob("*/README.md")), ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def with_baselines(page: Path) -> str:
    """Return the text of a page with the baselines that its tables need."""
    text = page.read_text(encoding="utf-8")
    for block in BLOCKS:
        if (block.begin in text) != (block.end in text):
            raise ValueError(f"{page}: {block.begin} and {block.end} belong together")
        if block.pattern.search(text):
            text = block.pattern.sub(lambda match, block=block: text_of(block, page), text)
        elif (page.relative_to(ROOT).as_posix(), block.marker) not in OTHER and needs_block(text, block):
            heading = "" if "## Baselines\n" in text else "## Baselines\n\n"
            text = f"{text.rstrip()}\n\n{heading}{text_of(block, page)}\n"
    return text


MEASURES: tuple[tuple[Block, Callable[[Path, Path, Sequence[str]], list[dict[str, str]]]], ...] = (
    (SIMILARITY_BLOCK, similarity),
    (TRANSFER_BLOCK, transfer_tasks),
)


def main() -> None:
    """Measure, if the data is given, and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of experiments/data.md")
    parser.add_argument("--vectors", type=Path, help="GloVe vectors")
    parser.add_argument("--weights", nargs="*", default=[], metavar="NAME=DIR", help="untrained encoders")
    options = parser.parse_args()
    if bool(options.data) != bool(options.vectors):
        parser.error("--data and --vectors are given together")
    for block, measure in MEASURES if options.data else ():
        write_rows(block.results, measure(options.data, options.vectors, options.weights))
    for page in pages():
        page.write_text(with_baselines(page), encoding="utf-8")


if __name__ == "__main__":
    main()
