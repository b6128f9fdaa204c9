"""Input of search, mine and cluster: a text file that is encoded first, or vectors on disk, with or without their text."""

import argparse
import functools
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from jax_sentemb.cli.encode import add_model_options, load_encoder
from jax_sentemb.cli.program import EXIT_CODES, Parser
from jax_sentemb.data.corpus_files import open_text
from jax_sentemb.errors import ConfigError, DataError, plain
from jax_sentemb.files import user_path
from jax_sentemb.retrieval.vector_store import Vectors
from jax_sentemb.streams import reader_is_gone

if TYPE_CHECKING:
    from jax_sentemb.inference.encoder import SentenceEncoder


_C1 = re.compile("[\x7f-\x9f]")  # what a terminal obeys and JSON leaves as it is


class Collection(NamedTuple):
    """Vectors [N, E] and, where it is known, the text of each row."""

    vectors: Any
    texts: Any = None

    def text(self, row: int) -> str | None:
        return None if self.texts is None else self.texts[row]


def parser_of(command: str, description: str, epilog: str) -> Parser:
    """Options that the three commands share."""
    parser = Parser(
        prog=f"jax-sentemb {command}",
        description=description,
        epilog=f"{epilog}\n{EXIT_CODES}",
    )
    parser.add_argument(
        "--corpus", required=True, help="a text file, which is encoded, or what `encode` wrote: a directory or .npy file"
    )
    parser.add_argument("--no-verify", action="store_true", help="do not read the vectors to compare them with their SHA-256 first")
    parser.add_argument("--corpus-text", help="the text file that a directory of vectors was made from, to show its lines")
    add_model_options(parser, required=False)
    parser.add_argument("--json", action="store_true", help="JSON lines in place of columns separated by tabs")
    return parser


class Opener:
    """Opens the collections of a command line; the model is loaded when it is needed."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    @functools.cached_property
    def encoder(self) -> "SentenceEncoder":
        if not self.options.model:
            raise ConfigError("no --model: text is encoded before it is compared; name a model, or give vectors")
        return load_encoder(self.options)

    def corpus(self) -> Collection:
        """--corpus with --corpus-text."""
        options = self.options
        if not _is_vectors(options.corpus):
            if options.corpus_text:
                raise ConfigError(f"--corpus-text {options.corpus_text}: --corpus {options.corpus} is text itself")
            return self.text("--corpus", options.corpus)
        vectors = Vectors(user_path(options.corpus), not options.no_verify)
        if not options.corpus_text:
            return Collection(vectors)
        texts = open_text("--corpus-text", options.corpus_text, options.column)
        made_from = vectors.manifest["corpus_sha256"]
        if (made_from and made_from != texts.fingerprint) or len(texts) != len(vectors):
            raise DataError(
                f"--corpus-text {options.corpus_text} is not what {options.corpus} was made from: "
                f"{len(texts)} sentences, SHA-256 {texts.fingerprint[:12]}, there {len(vectors)}, {(made_from or 'unknown')[:12]}"
            )
        return Collection(vectors, texts)

    def text(self, option: str, files: str, like: Any = None) -> Collection:
        """The sentences of a file, encoded; as the vectors `like` were, DataError if that was another model."""
        texts = open_text(option, files, self.options.column)
        return self.sentences([texts[row] for row in range(len(texts))], like)

    def sentences(self, texts: list[str], like: Any = None) -> Collection:
        """As `text`, for sentences in memory; queries if there is `like`, else documents: a model may have a prompt for each."""
        stated = like.manifest if isinstance(like, Vectors) else {}
        made_with = stated.get("model_sha256")
        if made_with is not None and made_with != self.encoder.fingerprint:
            raise DataError(
                f"--corpus {self.options.corpus} was encoded with {stated.get('model')} ({made_with[:12]}), "
                f"--model {self.options.model} is another model ({self.encoder.fingerprint[:12]})"
            )
        show = sys.stderr.isatty()
        width = stated.get("truncate_dim")
        prompt = self.encoder.prompt_for("document" if like is None else "query")
        return Collection(self.encoder.encode(texts, self.options.batch_size, show, truncate_dim=width, prompt_name=prompt), texts)


def _is_vectors(source: str) -> bool:
    path = user_path(source)
    return path.is_dir() or path.suffix == ".npy"


def say_noise(collection: Collection) -> float:
    """Says on stderr, and returns, the cosine that one of 1,000 random pairs of the collection reaches: where chance begins."""
    from jax_sentemb.retrieval.noise import noise_level

    level = noise_level(collection.vectors)
    if level.pairs:
        said = f"note: 1 of 1,000 random pairs of the corpus has a cosine of {level.cosine:.3f} or more: below it, expect chance"
        print(said, file=sys.stderr)
    return level.cosine


def show(rows: Iterator[dict[str, Any]], as_json: bool) -> None:
    """One line each: JSON, or the values separated by tabs, without control sequences; text that is not known is left out.

    Ends early if nobody reads on.
    """
    write: Callable[[str], object] = sys.stdout.write
    for row in itertools.takewhile(lambda row: not reader_is_gone(), rows):
        row = {name: value for name, value in row.items() if value is not None}
        if as_json:
            write(_C1.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(row, ensure_ascii=False)) + "\n")
        else:
            cells = (f"{value:.6f}" if isinstance(value, float) else str(value) for value in row.values())
            write("\t".join(plain(cell).replace("\n", " ") for cell in cells) + "\n")
    sys.stdout.flush()
