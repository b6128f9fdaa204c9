"""Run `jax-sentemb map --model A B --corpus FILE --output map.html`: draw a map of a corpus under one model or two."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_sentemb.cli.encode import add_encoding_options, add_text_options, load_encoder, note
from jax_sentemb.cli.program import EXIT_CODES, Parser, count, start
from jax_sentemb.data.corpus_files import corpus_name, open_text
from jax_sentemb.data.records import Records
from jax_sentemb.errors import ConfigError, DataError, plain
from jax_sentemb.files import split_name, user_path, write_text
from jax_sentemb.reporting.corpus_map import MAX_SENTENCES, OTHER, make_map

PAGE = b"<!DOCTYPE html"
EPILOG = f"""\
Writes one HTML page without scripts: a panel for each model with a mark for each sentence, whose text appears under the pointer,
and a table of the groups. The groups are the labels in --label-column, or clusters. The layout is t-SNE (needs [map]) or PCA.
Of a larger corpus, --sentences random ones are drawn; a map shows {MAX_SENTENCES:,} at most.

examples:
  jax-sentemb map --model all-MiniLM-L6-v2 runs/adapt --corpus corpus.txt --output map.html
  jax-sentemb map --model runs/micse --corpus packages.tsv --label-column section --output map.html

{EXIT_CODES}"""


def parser() -> Parser:
    """Return the parser of the options."""
    parser = Parser(prog="jax-sentemb map", description="Draw a map of a corpus under one model or two.", epilog=EPILOG)
    parser.add_argument(
        "--model",
        required=True,
        nargs="+",
        help="one model or two: a work directory, an export, or a sentence-transformers or BERT directory; NAME=PATH gives a name",
    )
    parser.add_argument("--corpus", required=True, help="your text: .txt, .jsonl, .csv, .tsv, also .gz and .xz; .parquet; globs")
    add_text_options(parser)
    parser.add_argument(
        "--label-column", default="", help="the field whose values are the groups (default: the groups are clusters)"
    )
    parser.add_argument(
        "--sentences", type=count, default=MAX_SENTENCES, help=f"number of random sentences in the map (default: {MAX_SENTENCES:,})"
    )
    parser.add_argument("--seed", type=count, default=0, help="seed of the sentences, the clusters and the layout (default: 0)")
    parser.add_argument("--output", type=user_path, required=True, help="the HTML file to write")
    add_encoding_options(parser)
    return parser


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return its exit code."""
    options = parser().parse_args(argv[1:])
    names = _model_names(options.model)
    models = [split_name(model)[1] for model in options.model]
    if not 2 <= options.sentences <= MAX_SENTENCES:
        raise ConfigError(
            f"--sentences {options.sentences}: a map shows 2 to {MAX_SENTENCES} sentences; give a number in this range"
        )
    _check_output(options.output)
    texts, labels = _sample(options)

    from jax_sentemb.reporting.map_page import map_page

    encoders = [load_encoder(argparse.Namespace(**{**vars(options), "model": model})) for model in models]
    vectors = {name: _encode(encoder, texts, options) for name, encoder in zip(names, encoders, strict=True)}
    corpus_map = make_map(texts, vectors, labels, options.seed)
    write_text(options.output, map_page(f"Map of {corpus_name(options.corpus)}", corpus_map))
    rare = next((group["count"] for group in corpus_map["groups"] if group["name"] == OTHER), 0)
    if 2 * rare > len(texts):
        note(f"{rare:,} of {len(texts):,} sentences have rare labels, which share a group; leave out --label-column for clusters")
    if corpus_map["reason"]:
        note(f"laid out by PCA: {corpus_map['reason']}")
    print(plain(f"written: {options.output}: {len(texts):,} sentences, {len(corpus_map['groups'])} groups, {corpus_map['layout']}"))
    return 0


def _check_output(output: Path) -> None:
    """Raise ConfigError if the page cannot be written, before anything takes time."""
    if output.exists() and not (output.is_file() and _is_page(output)):
        raise ConfigError(f"--output {output} exists and is not a page: give another name or move it away")
    if not output.parent.is_dir():
        raise ConfigError(f"--output {output}: there is no folder {output.parent}; create it")


def _is_page(file: Path) -> bool:
    """Return whether a file begins as an HTML page, which another map may replace."""
    with file.open("rb") as opened:
        return opened.read(len(PAGE)) == PAGE


def _model_names(models: Sequence[str]) -> list[str]:
    """Return the names of the panels: those given, or those of the directories, with their parents if they are equal."""
    if len(models) > 2:
        raise ConfigError(f"--model {' '.join(models)}: a map shows one model or two; leave some out")
    given = [split_name(model) for model in models]
    paths = [user_path(path).absolute() for _, path in given]
    if len(set(paths)) < len(paths):
        raise ConfigError(f"--model {models[0]} is given twice; give two different models")
    names = [name or path.name for (name, _), path in zip(given, paths, strict=True)]
    if len(set(names)) == len(names):
        return names
    if any(name for name, _ in given):
        raise ConfigError(f"--model {' '.join(models)}: two models have the same name; choose two different names")
    shared = _shared_end(*paths)
    return [str(Path(*path.parts[-shared - 1 :])) for path in paths]


def _shared_end(first: Path, second: Path) -> int:
    """Return how many of the last parts of two paths are equal."""
    pairs = list(zip(reversed(first.parts), reversed(second.parts), strict=False))
    return next((number for number, (left, right) in enumerate(pairs) if left != right), len(pairs))


def _sample(options: argparse.Namespace) -> tuple[list[str], list[Any] | None]:
    """Return random sentences of the corpus in its order, and their labels; None without --label-column."""
    records = _records(options)
    if blank := records.describe_blank():
        note(f"--corpus {options.corpus}: {blank}: they are left out")
    sentences = records.sentences
    if len(sentences) < 2:
        raise DataError(f"--corpus {options.corpus} has {len(sentences)} sentence; a map needs at least 2")
    size = min(options.sentences, len(sentences))
    rows = np.sort(np.random.default_rng(options.seed).choice(len(sentences), size, replace=False)).tolist()
    texts = [sentences[row] for row in rows]
    sentences.check_unchanged()
    return texts, [records.record(int(sentences.lines[row])).id for row in rows] if options.label_column else None


def _records(options: argparse.Namespace) -> Records:
    """Open the corpus; labels are read as the ids of the records."""
    try:
        return open_text("--corpus", options.corpus, options.column, options.join, options.label_column)
    except (ConfigError, DataError) as error:
        raise error.rename({"--id": "--label-column"}) from None


def _encode(encoder: Any, texts: list[str], options: argparse.Namespace) -> np.ndarray:
    """Return the embeddings of the texts."""
    return np.asarray(encoder.encode(texts, options.batch_size, True, prompt=encoder.prompt_for("document")))


if __name__ == "__main__":
    start(main)
