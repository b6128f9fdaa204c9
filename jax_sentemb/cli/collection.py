"""Read the input of search, mine, cluster and dedup: text, which is encoded first, or vectors on disk, with or without text."""

import argparse
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Int

from jax_sentemb.cli.encode import add_chunks_option, add_model_options, load_encoder, note, split_texts
from jax_sentemb.cli.program import EXIT_CODES, Parser, leave_out
from jax_sentemb.data.chunks import CHUNKS, ChunkRecords, ChunkTexts
from jax_sentemb.data.corpus_files import TEXT_COLUMN, corpus_name, open_text
from jax_sentemb.data.records import Record, Records
from jax_sentemb.data.tokenizer import Lines
from jax_sentemb.data.unpacking import has_columns
from jax_sentemb.errors import ConfigError, DataError, plain
from jax_sentemb.files import print_warning, user_path
from jax_sentemb.provenance import VECTORS, Source, check
from jax_sentemb.public_text import model_name
from jax_sentemb.retrieval.vector_manifest import manifest_path
from jax_sentemb.retrieval.vector_records import encode_texts
from jax_sentemb.retrieval.vector_store import Vectors
from jax_sentemb.system.streams import reader_is_gone
from jax_sentemb.system.terminal import json_text
from jax_sentemb.types import EncodedSentences

if TYPE_CHECKING:
    from jax_sentemb.inference.encoder import SentenceEncoder


POOLED = ("mean", "max")  # the values of --chunks that give one vector for a text
CheckSources = Callable[[dict[str, Any]], object]
CheckCount = Callable[[int], object]


class Collection(NamedTuple):
    """Vectors [N, E] and, if they are known, their texts and records. `sources` returns what the vectors were made from."""

    vectors: Any
    texts: Lines | None = None
    sources: Callable[[], dict[str, Any]] = dict
    records: Records | ChunkRecords | Vectors | None = None
    empty: str = ""  # a text about empty texts, if there are any
    documents: Int[np.ndarray, " n"] | None = None  # the number of the text of each vector, if each chunk has a vector

    @property
    def filled(self) -> int:
        """Return the number of vectors of texts that are not empty."""
        return len(self.vectors) - len(self.vectors.empty_rows)

    def text(self, number: int) -> str | None:
        """Return the text of a vector."""
        return None if self.texts is None else self.texts[number]

    def record(self, number: int) -> Record:
        """Return the record of a vector."""
        return Record(number) if self.records is None else self.records.record(number)

    def texts_as(self, **numbers: int) -> dict[str, str]:
        """Return the texts of vectors by name; {} if texts are not known."""
        return {} if self.texts is None else {name: self.texts[number] for name, number in numbers.items()}

    def names(self, record: Record, prefix: str = "") -> dict[str, Any]:
        """Return the column of a record, if records have several texts, and its id, if some records have ids."""
        column = {} if record.column is None else {f"{prefix}column": record.column}
        has_ids = self.records is not None and self.records.has_ids
        return {**column, f"{prefix or '_'}id": record.id} if has_ids else column

    @staticmethod
    def span(record: Record) -> dict[str, int]:
        """Return the first character of a chunk and the number after its last one; {} for the record of a whole text."""
        return {} if record.start is None or record.end is None else {"start": record.start, "end": record.end}


def parser_of(command: str, description: str, epilog: str) -> Parser:
    """Return a parser with the options that the three commands share."""
    parser = Parser(
        prog=f"jax-sentemb {command}",
        description=description,
        epilog=f"{epilog}\n{EXIT_CODES}",
    )
    add_corpus_options(parser)
    if command == "search":
        add_chunks_option(parser, CHUNKS, "compare the mean or the maximum of their vectors, or return the best chunk of each text")
    else:
        add_chunks_option(parser, POOLED, "compare the mean or the maximum of their vectors")
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of columns separated by tabs")
    return parser


def add_corpus_options(parser: Parser, default_model: str = "") -> None:
    """Add the options about the corpus and about the model that encodes it; `default_model` is named in the help."""
    parser.add_argument(
        "--corpus", required=True, help="a text file, which is encoded, or the output of `encode`: a directory or .npy file"
    )
    parser.add_argument("--no-verify", action="store_true", help="do not compare the vectors with their SHA-256 first")
    parser.add_argument("--corpus-text", help="the text file that the vectors were made from, to print its lines")
    add_model_options(parser, required=False, default=default_model)


def check_no_text_of_text(options: argparse.Namespace) -> None:
    """Raise ConfigError for --corpus-text next to a --corpus that is text."""
    if options.corpus_text:
        raise ConfigError(
            f"--corpus-text goes with a directory of vectors, and --corpus {options.corpus} is text already; remove --corpus-text"
        )


class Opener:
    """Opens the collections of a command line. The model is loaded when it is needed."""

    def __init__(self, options: argparse.Namespace, reads_chunks: bool = False) -> None:
        """Prepare for a command line. `reads_chunks`: whether the command can compare chunks of texts."""
        self.options, self._reads_chunks = options, reads_chunks
        self._chunks: str | None = getattr(options, "chunks", None)  # dedup has no such option

    @functools.cached_property
    def encoder(self) -> "SentenceEncoder":
        """Return the model of the command line; raise ConfigError without --model."""
        if not self.options.model:
            of_vectors = "name the model that made the vectors"
            remedy = of_vectors if is_vectors(self.options.corpus) else "give --model, such as mini-distilled, or vectors"
            raise ConfigError(f"--model is missing: text is encoded before it is compared; {remedy}")
        return load_encoder(self.options)

    def corpus(self, check_sources: CheckSources | None = None, check_count: CheckCount | None = None) -> Collection:
        """Return --corpus with --corpus-text. Before text is encoded, its sources and the number of its texts are checked."""
        options = self.options
        if not is_vectors(options.corpus):
            check_no_text_of_text(options)
            return self.text("--corpus", options.corpus, check_sources=check_sources, check_count=check_count)
        self._check_vector_options()
        vectors = Vectors(user_path(options.corpus), not options.no_verify)
        self._check_chunks(vectors)
        if options.model:
            self._check_model(vectors)
        if not vectors.is_marked and (options.model or options.corpus_text):
            print_warning(
                f"--corpus {options.corpus} has no {manifest_path(user_path(options.corpus)).name}: "
                "cannot tell whether it was made from this text with this model"
            )
        from jax_sentemb.retrieval.sources import WithEmptyRows

        records = self._texts_of(vectors) if options.corpus_text else None
        known = vectors if vectors.is_marked or records is None else WithEmptyRows(vectors, records.empty_texts)
        blank = len(known.empty_rows)
        empty = f"--corpus {options.corpus}: {blank:,} of {len(known):,} vectors are of empty texts" if blank else ""
        if check_sources:
            check_sources(vectors.sources)
        if check_count:
            check_count(len(known) - blank)
        has_ids = records is not None and (records.ids is not None or not vectors.is_marked)
        collection = Collection(known, records and records.texts, lambda: vectors.sources, records if has_ids else vectors, empty)
        return self._with_chunks(collection, vectors, records, has_ids) if vectors.has_chunks else collection

    def _check_vector_options(self) -> None:
        """Raise ConfigError for options that neither the vectors of --corpus nor queries need."""
        options = self.options
        if getattr(options, "queries", None):
            return
        if not options.corpus_text:
            leave_out(options, ("column", "join", "id"), f"--corpus {options.corpus} has vectors; give their text by --corpus-text")
        if not hasattr(options, "queries"):  # which would be encoded
            problem = f"--corpus {options.corpus} has vectors, so nothing is encoded"
            leave_out(options, ("dtype", "batch_size", *(() if options.model else ("max_seq_length",))), problem)

    @staticmethod
    def _with_chunks(collection: Collection, vectors: Vectors, records: Records | None, has_ids: bool) -> Collection:
        """Return the collection of vectors of chunks, with the texts and the records of the chunks."""
        spans = vectors.chunk_spans()
        documents = spans[:, 0].copy()
        if records is None:
            return collection._replace(documents=documents)
        chunks = ChunkTexts(records.texts, documents, spans[:, 1], spans[:, 2])
        return collection._replace(texts=chunks, documents=documents, records=ChunkRecords(records, chunks) if has_ids else vectors)

    def _check_chunks(self, vectors: Vectors) -> None:
        """Use the --chunks of the vectors; raise an error if that of the command line differs or the command cannot read them."""
        where, chunks = f"--corpus {self.options.corpus}", self._chunks
        if vectors.has_chunks and not self._reads_chunks:
            raise DataError(f"{where} has a vector for each chunk of a text (--chunks each); encode it with --chunks mean or max")
        if vectors.is_marked:
            expected = {"chunks": chunks} if chunks else {}
            self._chunks = check(where, vectors.manifest, VECTORS, expected, remedy=("leave --chunks out, or encode again",))[
                "chunks"
            ]
        elif chunks == "each":
            name = manifest_path(user_path(self.options.corpus)).name
            raise DataError(f"{where} has no {name}: the places of its chunks are not known; leave --chunks out")

    def _texts_of(self, vectors: Vectors) -> Records:
        """Return the text of --corpus-text; raise DataError if the vectors were made from another text."""
        options = self.options
        records = open_text("--corpus-text", options.corpus_text, options.column, options.join, options.id)
        texts = records.texts
        if vectors.is_marked:
            corpus = Source(corpus_name(options.corpus_text), records.sentences.fingerprint)
            check(f"--corpus {options.corpus}", vectors.manifest, VECTORS, {"corpus": corpus}, remedy=("give its text",))
        if not vectors.has_chunks and len(texts) != len(vectors):
            raise DataError(
                f"--corpus-text {options.corpus_text} has {len(texts)} texts (with empty texts), but --corpus {options.corpus} "
                f"has {len(vectors)} vectors; give the text that they were made from"
            )
        return records

    def _sources_of(self, corpus: Source) -> dict[str, Any]:
        """Return what vectors of a corpus are made from."""
        from jax_sentemb.inference.encoded_texts import encoded_sources

        return {**encoded_sources(self.encoder, model_name(self.options.model), corpus), "chunks": self._chunks}

    def _check_model(self, vectors: Vectors) -> None:
        """Raise DataError unless the vectors were made with the model, prompt, width and length of the command line."""
        options = self.options
        if not vectors.is_marked:
            return
        where = f"--corpus {options.corpus}"
        sources = self._sources_of(Source("", ""))
        names = ("model", "prompt") if vectors.sources["truncate_dim"] else ("model", "prompt", "truncate_dim")
        check(where, vectors.manifest, VECTORS, {name: sources[name] for name in names}, remedy=("give its model",))
        length = vectors.sources["max_seq_length"]
        if options.max_seq_length:
            check(
                where, vectors.manifest, VECTORS, {"max_seq_length": options.max_seq_length}, remedy=("leave --max-seq-length out",)
            )
        elif length:
            self.encoder.max_seq_length = length

    def text(
        self,
        option: str,
        files: str,
        like: Any = None,
        check_sources: CheckSources | None = None,
        check_count: CheckCount | None = None,
    ) -> Collection:
        """Encode the texts of a file. With vectors `like`, the texts are queries and are encoded in the same way."""
        from jax_sentemb.retrieval.sources import WithEmptyRows

        options = self.options
        if like is None:
            records = open_text(option, files, options.column, options.join, options.id)
        else:
            records = self._queries(option, files)
        if check_count:
            check_count(len(records.sentences))
        corpus, texts = Source(corpus_name(files), records.sentences.fingerprint), records.texts
        empty_rows, documents, row_records = records.empty_texts, None, records
        if like is None and self._chunks == "each":
            texts = split_texts(texts, self.encoder)
            documents, row_records = texts.documents, ChunkRecords(records, texts)
            empty_rows = np.flatnonzero(np.isin(documents, empty_rows))
        encoded = self.sentences(list(texts), like, corpus, check_sources)
        blank, vectors = records.describe_blank(), WithEmptyRows(encoded.vectors, empty_rows)
        empty = blank and f"{option} {files}: {blank}"
        return encoded._replace(vectors=vectors, records=row_records, empty=empty, documents=documents)

    def _queries(self, option: str, files: str) -> Records:
        """Open the texts of queries, whose column is that of the corpus if they have columns and none is named."""
        options = self.options
        column = options.query_column or (options.column if has_columns(files) else TEXT_COLUMN)
        try:
            return open_text(option, files, column, options.join if "," in column else "", options.query_id)
        except (ConfigError, DataError) as error:
            raise error.rename({"--column": "--query-column", "--id": "--query-id"}) from None

    def sentences(
        self,
        texts: list[str],
        like: Any = None,
        corpus: Source | None = None,
        check_sources: CheckSources | None = None,
    ) -> Collection:
        """Encode texts in memory as `text` does. The row of an empty text is zero.

        A model may have a prompt for queries and one for documents. If each chunk of the corpus has a vector, a query that is too
        long has the mean of those of its chunks.
        """
        chunks = self._chunks
        if chunks == "each":
            chunks = None if like is None else "mean"  # the texts of the corpus are chunks already
        width = like.sources.get("truncate_dim") if isinstance(like, Vectors) and like.is_marked else None
        prompt = self.encoder.prompt_for("document" if like is None else "query")
        sources = functools.cache(lambda: self._sources_of(corpus or Source("queries", "")))
        if check_sources:
            check_sources(sources())

        def encode(texts: list[str]) -> EncodedSentences:
            keywords = {"truncate_dim": width, "prompt": prompt, "chunks": chunks}
            vectors = self.encoder.encode(texts, self.options.batch_size, True, **keywords)
            return EncodedSentences(np.asarray(vectors), self.encoder.truncated)

        return Collection(encode_texts(texts, encode).vectors, texts, sources)


def is_vectors(source: str) -> bool:
    """Return whether a corpus is vectors on disk and not text."""
    path = user_path(source)
    return path.is_dir() or path.suffix == ".npy"


def print_empty(*collections: Collection) -> None:
    """Print on stderr how many texts of the collections are empty."""
    for collection in collections:
        note(collection.empty and f"{collection.empty}: they are left out")


def print_noise(collection: Collection) -> float:
    """Print on stderr, and return, the cosine that one of 1,000 random pairs of the collection reaches."""
    from jax_sentemb.retrieval.noise import noise_level

    level = noise_level(collection.vectors)
    if level.pairs:
        text = f"1 of 1,000 random pairs of the corpus has a cosine of {level.cosine:.3f} or more; lower cosines may be chance"
        note(text)
    return level.cosine


def _cell(value: Any) -> str:
    if value is None:  # a record without an id
        return ""
    return value if isinstance(value, str) else json_text(value)  # the number of a row, or an id


def print_rows(rows: Iterator[dict[str, Any]], as_json: bool) -> None:
    """Print a line for each row: JSON without values that are None, or the values separated by tabs without control sequences.

    On a terminal, a line with the names of the values comes first. Stop early if the reader of standard output has gone.
    """
    write: Callable[[str], object] = sys.stdout.write
    has_header = as_json or not sys.stdout.isatty()
    for row in itertools.takewhile(lambda row: not reader_is_gone(), rows):
        if as_json:
            write(json_text({name: value for name, value in row.items() if value is not None}) + "\n")
        else:
            if not has_header:
                write("\t".join(row) + "\n")
                has_header = True
            cells = (f"{value:.6f}" if name == "score" else _cell(value) for name, value in row.items())
            write("\t".join(plain(cell).replace("\n", " ") for cell in cells) + "\n")
    sys.stdout.flush()
