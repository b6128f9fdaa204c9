"""jax-sentemb encode: the vectors of a text file of any size, in files. JAX is imported when the arguments are understood."""

import argparse
import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jax_sentemb import __version__
from jax_sentemb.cli.program import EXIT_CODES, Parser, positive, start
from jax_sentemb.data.corpus_files import corpus_name, open_text
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.errors import ConfigError, DataError, plain
from jax_sentemb.files import say, user_path
from jax_sentemb.provenance import Source
from jax_sentemb.retrieval.quantize import DTYPES, PRECISIONS
from jax_sentemb.retrieval.vector_manifest import Part, marked, missing_parts
from jax_sentemb.retrieval.vector_store import EncodedSentences, write_file, write_shards

if TYPE_CHECKING:
    from jax_sentemb.inference.encoder import SentenceEncoder

logger = logging.getLogger("jax_sentemb")


def main(argv: list[str]) -> int:
    """Exit code of the command line `argv` (program name first)."""
    options = parser().parse_args(argv[1:])
    output = options.output
    single = output.suffix in (".npy", ".parquet")
    if single and options.part.total > 1:
        raise ConfigError(f"--part writes shards: give a directory as --output, not {output}")
    sentences = open_text("--input", options.input, options.column).sentences
    encoder = load_encoder(options)
    if options.truncate_dim and options.truncate_dim > encoder.get_sentence_embedding_dimension():
        width = encoder.get_sentence_embedding_dimension()
        raise ConfigError(f"--truncate-dim {options.truncate_dim} is more than the model's {width} dimensions")

    prompt = encoder.prompt_for("document")
    keywords = {"normalize_embeddings": options.normalize, "truncate_dim": options.truncate_dim, "prompt_name": prompt}

    def encode(texts: list[str]) -> EncodedSentences:
        vectors = encoder.encode(texts, options.batch_size, False, **keywords)
        sentences.check_unchanged()
        return EncodedSentences(np.asarray(vectors), encoder.truncated)

    from tqdm import tqdm

    shards = options.part.shards(-(-len(sentences) // options.rows_per_shard))
    if options.part.total > (count := -(-len(sentences) // options.rows_per_shard)):
        share = max(len(sentences) // options.part.total, 1)
        advice = f"--rows-per-shard {share} gives each its share"
        say(f"--part {options.part}: some parts are empty, the text has {count} shards; {advice}")
    logger.setLevel(logging.ERROR)  # what is cut is said once, at the end
    rows = sum(min(options.rows_per_shard, len(sentences) - shard * options.rows_per_shard) for shard in shards)
    with tqdm(total=len(sentences) if single else rows, desc=plain(output.name), unit=" rows", disable=None) as bar:
        metadata = {
            "jax_sentemb": __version__,
            **sentences.report,
            **marked(
                {
                    **vector_sources(encoder, options, Source(corpus_name(options.input), sentences.fingerprint)),
                    "normalize": options.normalize,
                    "truncate_dim": options.truncate_dim or encoder.truncate_dim,
                    "precision": options.precision,
                    "rows_per_shard": options.rows_per_shard,
                    "format": options.format,
                }
            ),
        }
        options_of = () if single else (options.part,)
        manifest = (write_file if single else write_shards)(output, metadata, sentences, encode, bar.update, *options_of)
        truncated = manifest["truncated"]
    notes = [f"{output}: {len(sentences)} vectors"]
    if not single and "part" in manifest:
        notes = [f"{output}: {manifest['rows']} vectors of part {options.part}; missing: {missing_parts(output)}"]
    if prompt:
        notes.append(f"the model's prompt {encoder.prompts[prompt]!r} stands before each text")
    if truncated:
        notes.append(f"{truncated} sentences longer than {encoder.max_seq_length} tokens were cut")
    if blank := sentences.report["blank"]:
        notes.append(f"{blank} blank lines have no vector")
    print(plain("; ".join(notes)), file=sys.stderr)
    return 0


def vector_sources(encoder: "SentenceEncoder", options: argparse.Namespace, corpus: Source) -> dict[str, Any]:
    """Return what the vectors of a corpus are made from, where nothing is normalised or quantised."""
    return {
        "corpus": corpus,
        "model": model_source(encoder, options),
        "prompt": encoder.encode_settings.text_before("document"),
        "dtype": options.dtype,
        "normalize": False,
        "truncate_dim": encoder.truncate_dim,
        "max_seq_length": encoder.max_seq_length,
        "precision": "float32",
    }


def model_source(encoder: "SentenceEncoder", options: argparse.Namespace) -> Source:
    """Return the name and the fingerprint of the model of a command line."""
    return Source(Path(options.model).name, encoder.fingerprint)


def load_encoder(options: argparse.Namespace) -> "SentenceEncoder":
    """The model of a command line."""
    from jax_sentemb.inference.encoder import SentenceEncoder
    from jax_sentemb.parallel import use_compilation_cache

    use_compilation_cache()
    with naming_model():
        encoder = SentenceEncoder.load(options.model, dtype=options.dtype)
    if options.max_seq_length:
        encoder.max_seq_length = options.max_seq_length
    return encoder


@contextlib.contextmanager
def naming_model() -> Iterator[None]:
    """Errors of a model that is opened inside name the option that it was given with."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"--model {error}") from None


def corpus_sentences(options: argparse.Namespace) -> Sentences:
    """The text of --corpus, with at least one sentence; DataError without."""
    sentences = open_text("--corpus", options.corpus, options.column).sentences
    if not len(sentences):
        raise DataError(f"--corpus {options.corpus}: no sentence, all lines are blank")
    return sentences


def add_model_options(parser: argparse.ArgumentParser, required: bool) -> None:
    """Adds the options about the model that encodes, which all commands share."""
    parser.add_argument(
        "--model", required=required, help="a work directory, an export, any sentence-transformers or BERT directory"
    )
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of the matrix products")
    parser.add_argument("--max-seq-length", type=positive, help="tokens that a sentence is cut to (default: what the model says)")
    parser.add_argument("--batch-size", type=positive, default=64, help="sentences that are encoded at once")
    parser.add_argument("--column", default="text", help="the field of .jsonl, .csv, .tsv and .parquet files (default: text)")


def _part(text: str) -> Part:
    try:
        return Part.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parser() -> Parser:
    """The options."""
    found = Parser(
        prog="jax-sentemb encode",
        description="Encode the sentences of a text file, one vector for each line that is not blank.",
        epilog=f"""\
--output vectors/      shards of --rows-per-shard rows and vectors.json; the same command again continues after a kill
--output x.npy         one file, for what fits into memory, and x.npy.json with its SHA-256, model and corpus;
                       x.parquet has columns text and embedding (needs [parquet])

examples:
  jax-sentemb encode --model runs/micse --input corpus.txt --output vectors
  jax-sentemb encode --model runs/micse --input corpus.txt --output /shared/vectors --part 3/64   # and 1/64, 2/64, ... elsewhere
  zcat corpus.txt.gz | jax-sentemb encode --model all-MiniLM-L6-v2 --input - --output corpus.npy --normalize

{EXIT_CODES}""",
    )
    found.add_argument(
        "--input", required=True, help=".txt, .jsonl, .csv or .tsv, also .gz and .xz; .parquet; globs, several; - reads lines"
    )
    found.add_argument("--output", type=user_path, required=True, help="a directory, or a name that ends in .npy or .parquet")
    add_model_options(found, required=True)
    found.add_argument("--normalize", action="store_true", help="vectors of length 1")
    found.add_argument("--truncate-dim", type=positive, help="only the first so many numbers of each vector")
    found.add_argument("--precision", choices=PRECISIONS, default="float32", help="how numbers are stored")
    found.add_argument("--rows-per-shard", type=positive, default=50_000, help="rows of a file in the directory")
    found.add_argument(
        "--part", type=_part, default=Part(), help="encode part K of N only, K/N: on any machines, in any order, into one directory"
    )
    found.add_argument("--format", choices=("npy", "parquet"), default="npy", help="kind of the files in the directory")
    return found


if __name__ == "__main__":
    start(main)
