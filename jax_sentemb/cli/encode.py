"""Run `jax-sentemb encode`: write the vectors of a text file of any size. JAX is imported after the arguments are parsed."""

import argparse
import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jax_sentemb import __version__
from jax_sentemb.cli.program import EXIT_CODES, Parser, leave_out, positive, start
from jax_sentemb.data.chunks import CHUNKS, Chunker, ChunkRecords, ChunkTexts
from jax_sentemb.data.corpus_files import corpus_name, open_text
from jax_sentemb.data.records import Records
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.tokenizer import Lines
from jax_sentemb.errors import ConfigError, plain
from jax_sentemb.files import print_warning, user_path
from jax_sentemb.provenance import Source
from jax_sentemb.public_text import model_name
from jax_sentemb.retrieval.quantize import DTYPES, PRECISIONS
from jax_sentemb.retrieval.vector_manifest import Part, marked, missing_parts
from jax_sentemb.retrieval.vector_store import EncodedSentences, write_file, write_shards

if TYPE_CHECKING:
    from jax_sentemb.inference.encoder import SentenceEncoder


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return the exit code."""
    options = parser().parse_args(argv[1:])
    output = options.output
    is_single = output.suffix in (".npy", ".parquet")
    if is_single:
        leave_out(options, ["format"], f"--output {output} is one file, whose name says its format")
    if is_single and options.part.total > 1:
        raise ConfigError(f"--part writes shards: give a directory as --output, not {output}")
    records = open_text("--input", options.input, options.column, options.join, options.id)
    sentences, texts = records.sentences, records.texts
    encoder = load_encoder(options)
    if options.truncate_dim and options.truncate_dim > (width := encoder.full_width):
        raise ConfigError(f"--truncate-dim {options.truncate_dim}: the model has only {width} dimensions; give at most {width}")

    keywords: dict[str, Any] = {"normalize_embeddings": options.normalize, "truncate_dim": options.truncate_dim}
    keywords["prompt"] = encoder.prompt_for("document")
    record_of = None if records.are_plain else records.record
    if options.chunks == "each":
        texts = split_texts(texts, encoder)
        record_of = ChunkRecords(records, texts).record
    else:
        keywords["chunks"] = options.chunks

    def encode(texts: list[str]) -> EncodedSentences:
        vectors = encoder.encode(texts, options.batch_size, False, progress=progress.update, **keywords)
        sentences.check_unchanged()
        return EncodedSentences(np.asarray(vectors), encoder.truncated)

    from jax_sentemb.system.terminal import Progress

    shards = options.part.shards(count := -(-len(texts) // options.rows_per_shard))
    if options.part.total > count:
        advice = f"--rows-per-shard {max(len(texts) // options.part.total, 1)} gives each part a shard"
        print_warning(f"--part {options.part}: the text has only {count} shards, so some parts are empty; {advice}")
    rows = sum(min(options.rows_per_shard, len(texts) - shard * options.rows_per_shard) for shard in shards)
    with encoder.counting_cuts(), Progress(output.name, len(texts) if is_single else rows, "rows") as progress:
        write = write_file if is_single else functools.partial(write_shards, part=options.part)
        manifest = write(output, _metadata(encoder, options, records), texts, encode, progress.finish, record_of=record_of)
        truncated = manifest["truncated"]
    notes = [f"{output}: {len(texts)} vectors{f' of {len(records.texts)} texts' if options.chunks == 'each' else ''}"]
    if not is_single and "part" in manifest:
        notes = [f"{output}: {manifest['rows']} vectors of part {options.part}; missing: {missing_parts(output)}"]
    if text := encoder.prompt_for("document"):
        notes.append(f"the model's prompt {text!r} was put before each text")
    if truncated:
        notes.append(f"{truncated} sentences longer than {encoder.max_seq_length} tokens were cut")
    elif options.chunks:
        notes.append(_describe_chunks(encoder))
    if blank := records.describe_blank():
        notes.append(f"{blank}: their vectors are zero")
    print(plain("; ".join(notes)), file=sys.stderr)
    return 0


def _metadata(encoder: "SentenceEncoder", options: argparse.Namespace, records: Records) -> dict[str, Any]:
    """Return the content of the manifest about the vectors and their corpus."""
    from jax_sentemb.inference.encoded_texts import encoded_sources

    sentences = records.sentences
    sources = {
        **encoded_sources(encoder, model_name(options.model), Source(corpus_name(options.input), sentences.fingerprint)),
        "records": records.source,
        "normalize": options.normalize,
        "truncate_dim": options.truncate_dim or encoder.truncate_dim,
        "chunks": options.chunks,
        "precision": options.precision,
        "rows_per_shard": options.rows_per_shard,
        "format": options.format,
    }
    return {"jax_sentemb": __version__, **sentences.report, **marked(sources)}


def _describe_chunks(encoder: "SentenceEncoder") -> str:
    """Return what --chunks did, for a run that cut nothing."""
    from jax_sentemb.inference.static import LONGEST

    if encoder.max_seq_length >= LONGEST:
        return "nothing was cut; this model reads whole texts, and --max-seq-length N would split those of more than N tokens"
    return f"texts longer than {encoder.max_seq_length} tokens were split into chunks, so nothing was cut"


def split_texts(texts: Lines, encoder: "SentenceEncoder") -> ChunkTexts:
    """Return the chunks of texts, each of which has a vector."""
    from jax_sentemb.system.terminal import Progress

    chunker = Chunker(encoder.tokenizer, encoder.max_seq_length, encoder.prompt_for("document"))
    with Progress("split", len(texts), "texts") as progress:
        return ChunkTexts.split(texts, chunker, progress.update)


def load_encoder(options: argparse.Namespace) -> "SentenceEncoder":
    """Load the model of a command line."""
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
    """Let ConfigErrors of a block that opens a model name the option --model."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"--model {error}") from None


def corpus_sentences(options: argparse.Namespace) -> Sentences:
    """Open the text of --corpus; raise DataError if it has no sentence."""
    records = open_text("--corpus", options.corpus, options.column, options.join)
    if blank := records.describe_blank():
        note(f"--corpus {options.corpus}: {blank}: they are left out")
    return records.sentences


def note(text: str) -> None:
    """Print a note on standard error, unless it is empty."""
    if text:
        print(plain(f"note: {text}"), file=sys.stderr)


def add_text_options(parser: argparse.ArgumentParser, has_ids: bool = False) -> None:
    """Add the options about the columns of tables, which several commands share. With `has_ids`, the command prints ids."""
    parser.add_argument(
        "--column",
        default="text",
        help="field with the text in .jsonl, .csv, .tsv and .parquet files; several: A,B (default: text)",
    )
    parser.add_argument("--join", default="", help="join several fields to one text, with this between them")
    if has_ids:
        parser.add_argument("--id", default="", help="the field with the ids of records (default: _id, if it exists)")


def add_chunks_option(parser: argparse.ArgumentParser, choices: Sequence[str], text: str) -> None:
    """Add the option about texts that are too long for the model; `text` explains what becomes of them."""
    parser.add_argument("--chunks", choices=choices, help=f"split texts that are too long instead of cutting them: {text}")


def add_model_options(parser: argparse.ArgumentParser, required: bool, default: str = "") -> None:
    """Add the options that choose the encoder; several commands share them. The command applies `default`, which the help names."""
    kinds = "a work directory, an export, or a sentence-transformers or BERT directory"
    parser.add_argument("--model", required=required, help=f"{kinds} (default: {default})" if default else kinds)
    add_encoding_options(parser)
    add_text_options(parser, has_ids=True)


def add_encoding_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about how a model encodes."""
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="precision of the matrix products (default: float32)")
    parser.add_argument("--max-seq-length", type=positive, help="tokens after which a sentence is cut (default: that of the model)")
    parser.add_argument("--batch-size", type=positive, default=64, help="sentences that are encoded at once")


def _part(text: str) -> Part:
    try:
        return Part.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parser() -> Parser:
    """Return the parser of the options."""
    parser = Parser(
        prog="jax-sentemb encode",
        description="Encode the texts of a file. Row i of the vectors belongs to record i: a line, or a row of a table.",
        epilog=f"""\
--output vectors/      shards of --rows-per-shard rows and vectors.json; after an interruption, the same command continues
--output x.npy         one file, if the vectors fit into memory, and x.npy.json with its SHA-256, model and corpus;
                       x.parquet has the columns row, text, embedding and, if records have ids, _id (needs [parquet])

The vector of an empty text is zero, and search, mine and cluster skip it. With empty texts or ids, NAME.records.jsonl next to each
file NAME has a line for each row: its record, its id (column _id, or --id), and whether the text is empty. Ids may repeat.
With --chunks each, every chunk of a text has a row, and NAME.records.jsonl also has its first character (start) and the
number after its last character (end).
--column title,text reads two texts of a record, which have two rows. --join " " joins them to one text with one row.

examples:
  jax-sentemb encode --model runs/micse --input corpus.txt --output vectors
  jax-sentemb encode --model runs/micse --input corpus.txt --output /shared/vectors --part 3/64   # and 1/64, 2/64, ... elsewhere
  zcat corpus.txt.gz | jax-sentemb encode --model all-MiniLM-L6-v2 --input - --output corpus.npy --normalize

{EXIT_CODES}""",
    )
    parser.add_argument(
        "--input",
        "--corpus",
        required=True,
        help="text files: .txt, .jsonl, .csv, .tsv (also .gz, .xz), .parquet; globs; - reads standard input",
    )
    parser.add_argument("--output", type=user_path, required=True, help="a directory, or a name that ends in .npy or .parquet")
    add_model_options(parser, required=True)
    add_chunks_option(parser, CHUNKS, "write the mean or the maximum of their vectors, or a vector for each chunk")
    parser.add_argument("--normalize", action="store_true", help="scale vectors to length 1")
    parser.add_argument("--truncate-dim", type=positive, help="write only the first N numbers of each vector")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="float32", help="precision of the stored numbers (default: float32)"
    )
    parser.add_argument("--rows-per-shard", type=positive, default=50_000, help="rows in a file of the directory (default: 50000)")
    parser.add_argument(
        "--part",
        type=_part,
        default=Part(),
        help="encode only part K of N, written K/N; parts may run on any machine, in any order",
    )
    parser.add_argument("--format", choices=("npy", "parquet"), default="npy", help="format of the files in the directory")
    return parser


if __name__ == "__main__":
    start(main)
