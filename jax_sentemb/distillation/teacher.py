"""Compute the vectors of a teacher for a text once, keep them next to the token cache, and read them by line number.

A teacher is a model that `load` opens, a directory or .npy file with vectors of the same text, as `jax-sentemb encode` writes them,
or "words:WIDTH", tf-idf vectors of the text itself. Vectors of a model are stored in float16 shards, so an interrupted computation
continues with the first shard that is missing.
"""

import contextlib
import functools
import hashlib
import logging
import math
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from jaxtyping import Float, Int

from jax_sentemb.cosines import unit_length
from jax_sentemb.data.cache import cache_folder
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.targets import ConcatenatedVectors, LineVectors
from jax_sentemb.data.text_words import words_of
from jax_sentemb.data.tokenizer import read_lines
from jax_sentemb.data.tokens import Subsample, draw
from jax_sentemb.errors import ConfigError, DataError, ResourceError, Setting, note_text
from jax_sentemb.files import print_warning, sha256, user_path
from jax_sentemb.formats.huggingface import resolve
from jax_sentemb.formats.model_dir import sentence_pooling
from jax_sentemb.formats.static_embedding import is_static
from jax_sentemb.inference.encoder import SentenceEncoder
from jax_sentemb.inference.load import split_options
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.provenance import VECTORS, Source, check, fingerprint, is_marked
from jax_sentemb.public_text import model_name
from jax_sentemb.retrieval.sources import RowSubset
from jax_sentemb.retrieval.vector_manifest import manifest_path, marked, read_manifest, sources_of
from jax_sentemb.retrieval.vector_store import Vectors, write_shards
from jax_sentemb.system.terminal import Progress
from jax_sentemb.types import EncodedSentences

logger = logging.getLogger("jax_sentemb")

ROWS = 1 << 13  # sentences of a shard: an interruption loses at most the work on one shard
WORDS = "words:"  # begins the name of a teacher without a model
COUNTED, SIGNS = 1 << 20, 1 << 14  # lines in which words are counted; words whose signs are kept
LEAST_WIDTH = 16  # of WORDS; the signs of two words may cancel each other in fewer dimensions


def teacher_names(teacher: str) -> list[str]:
    """Return the teachers that method.teacher names, separated by commas; the path of one may contain commas."""
    parts, names = teacher.split(","), []
    while parts:
        joined = [",".join(parts[:count]).strip() for count in range(len(parts), 0, -1)]
        name = next((name for name in joined[:-1] if _is_path(name)), joined[-1])
        names += [name] if name else []
        parts = parts[len(joined) - joined.index(name) :]
    return names


def _is_path(name: str) -> bool:
    source, at, options = name.rpartition("@")
    return user_path(name).exists() or bool(at and "," not in options and user_path(source).exists())


def open_teacher(setting: str, name: str, dtype: str) -> SentenceEncoder:
    """Return the model that a setting names, with a warning if it is not a sentence encoder. An error begins with the setting."""
    try:
        encoder = SentenceEncoder(name, dtype=dtype)
    except ConfigError as error:
        others = f"; other teachers are start and {WORDS}4096" if setting == "method.teacher" and "/" not in name else ""
        raise ConfigError(Setting(setting, name), f": {str(error).removeprefix(f'{name}: ')}{others}") from None
    _warn_without_pooling(Setting(setting, name))
    return encoder


@functools.cache  # a run opens its teacher several times
def _warn_without_pooling(teacher: Setting) -> None:
    """Warn of a BERT for which neither its directory nor the name chooses a pooling."""
    source, options = split_options(teacher.value, POOLINGS)
    folder = resolve(source)
    if options or (folder / "model.json").is_file() or is_static(folder) or sentence_pooling(folder):
        return
    problem = " is not a sentence encoder: its vectors are means of the last layer, which teach little"
    print_warning(note_text(teacher, f"{problem}; name a sentence encoder, or a pooling, as in {source}@first_last"))


def teacher_vectors(teacher: str, dtype: str, sentences: Sentences, subset: Subsample) -> LineVectors:
    """Return the vectors of `teacher` for lines of `sentences`; those of several teachers are concatenated.

    Args:
        teacher: Names as in method.teacher.
        dtype: Precision of the matrix products of a model, float32 or bfloat16.
        sentences: The text.
        subset: The lines of the text that are used. A model encodes only these.

    Raises:
        ConfigError: A teacher is missing or does not embed sentences.
        DataError: A directory of vectors was made from another text.
        ResourceError: The cache cannot be written.
    """
    names = teacher_names(teacher)
    opened = {name: _opened(name, dtype, sentences) for name in names}  # before one encodes, so that a mistake is reported at once
    lines = draw(len(sentences), subset) if subset.size else None
    vectors: dict[str, LineVectors] = {}
    for name, source in opened.items():
        if isinstance(source, SentenceEncoder):
            source = EncodedLines(encode_once(source, dtype, sentences, lines), lines)
        vectors[name] = source
    parts = [vectors[name] for name in names]
    return parts[0] if len(parts) == 1 else ConcatenatedVectors(parts)


def has_vectors(name: str) -> bool:
    """Return whether a teacher is a directory or file of vectors and not a model."""
    path = user_path(name)
    return path.suffix == ".npy" or manifest_path(path).is_file()


def published_name(name: str) -> str:
    """Return the name of a teacher without its folders; for vectors of `jax-sentemb encode` that of their model."""
    path = user_path(name)
    manifest = read_manifest(path) if has_vectors(name) and manifest_path(path).is_file() else {}
    return str(sources_of(manifest)["model"]["name"]) if is_marked(manifest, VECTORS) else model_name(name)


def _opened(name: str, dtype: str, sentences: Sentences) -> LineVectors | SentenceEncoder:
    """Return the vectors that a teacher names, or the model that is to compute them."""
    if name.startswith(WORDS):
        return WordVectors(name, sentences)
    if has_vectors(name):
        if not user_path(name).exists():
            raise ConfigError(Setting("method.teacher", name), ": no such file")
        return EncodedLines.of_vectors(name, sentences)
    return open_teacher("method.teacher", name, dtype)


class EncodedLines:
    """Vectors on disk of all lines of a text, or of some."""

    def __init__(
        self,
        vectors: Vectors,
        lines: Int[np.ndarray, " lines"] | None = None,
        rows: Int[np.ndarray, " lines"] | None = None,
        content: str = "",
    ) -> None:
        """Read `vectors`, whose rows belong to `lines` (rising), or to all lines of the text.

        `rows` are the rows of these lines, if `vectors` has others. `content` is the SHA-256 of a file without a manifest.
        """
        self._vectors, self._lines, self.width = vectors if rows is None else RowSubset(vectors, rows), lines, vectors.shape[1]
        sources = sources_of(vectors.manifest) if vectors.is_marked else {"file": content}
        self.fingerprint = fingerprint(VECTORS, {name: value for name, value in sources.items() if name != "rows_per_shard"})

    @classmethod
    def of_vectors(cls, name: str, sentences: Sentences) -> "EncodedLines":
        """Return the vectors in a directory or a .npy file.

        Raises:
            DataError: The vectors are not finite, or not those of this text.
        """
        vectors = Vectors(name)
        remedy = "encode this text with jax-sentemb encode, or name the model"
        if vectors.has_chunks:
            raise DataError(Setting("method.teacher", name), f" has a vector for each chunk of a text (--chunks each); {remedy}")
        if vectors.is_marked:
            corpus = Source("of data.files", sentences.fingerprint)
            check(Setting("method.teacher", name), vectors.manifest, VECTORS, {"corpus": corpus}, remedy=(remedy,))
        if len(vectors) != (texts := sentences.report["lines"]):
            raise DataError(
                Setting("method.teacher", name),
                f": has {len(vectors)} vectors, ",
                Setting("data.files"),
                f" has {texts} texts (with empty texts); {remedy}",
            )
        if not vectors.is_marked:
            teacher = note_text(Setting("method.teacher", name))
            print_warning(f"{teacher} does not record its sources: its rows are assumed to be vectors of the corpus")
            _check_finite(vectors, Setting("method.teacher", name))
        return cls(vectors, rows=sentences.lines, content="" if vectors.is_marked else sha256(user_path(name)))

    def take(self, lines: Int[np.ndarray, " rows"]) -> Float[np.ndarray, "rows width"]:
        """Return float32 vectors of length 1 of the lines with these numbers, in this order."""
        return unit_length(self._vectors.take(lines if self._lines is None else np.searchsorted(self._lines, lines)))


def _check_finite(vectors: Vectors, teacher: Setting) -> None:
    """Raise DataError for a row of a file with NaN or Inf; directories of `jax-sentemb encode` have none."""
    for first in range(0, len(vectors), ROWS):
        block = vectors.take(np.arange(first, min(first + ROWS, len(vectors))))
        if not (is_finite := np.isfinite(block).all(axis=1)).all():
            row = first + int(np.argmin(is_finite))
            raise DataError(teacher, f": row {row} is not finite (NaN or Inf); compute the vectors again")


class WordVectors:
    """Read tf-idf vectors of the text itself, projected to WIDTH dimensions by random signs (Johnson and Lindenstrauss 1984).

    The weight of a word is ln((1 + n) / (1 + d)) + 1, as in scikit-learn; d of n lines have it. A cosine differs from that of the
    tf-idf vectors by about 1 / sqrt(WIDTH). In scripts without spaces, such as Chinese and Thai, each pair of neighbouring
    characters is a word.
    """

    def __init__(self, name: str, sentences: Sentences) -> None:
        width = name.removeprefix(WORDS)
        if not re.fullmatch("[0-9]{2,4}", width) or int(width) < LEAST_WIDTH:
            problem = f": write words:WIDTH with a WIDTH from {LEAST_WIDTH} to 9999, for instance words:4096"
            raise ConfigError(Setting("method.teacher", name), problem)
        self.width, self._sentences = int(width), sentences
        self.fingerprint = fingerprint(VECTORS, {"teacher": name, "corpus": sentences.fingerprint})
        self._signs = functools.lru_cache(SIGNS)(self._signs_of)

    def take(self, lines: Int[np.ndarray, " rows"]) -> Float[np.ndarray, "rows width"]:
        """Return float32 vectors of length 1 of the lines with these numbers, in this order."""
        return unit_length(np.stack([self._sum(text) for text in read_lines(self._sentences, lines.tolist())]))

    @functools.cached_property
    def _counts(self) -> tuple[Counter[str], int]:
        """Return in how many lines each word is, among all lines or evenly spread ones of many, and their number."""
        lines = range(0, len(self._sentences), -(-len(self._sentences) // COUNTED))
        counts = self._sentences.read_unchanged(
            lambda: Counter(word for line in lines for word in {*_terms(self._sentences[line])})
        )
        return counts, len(lines)

    def _sum(self, sentence: str) -> Float[np.ndarray, " width"]:
        (counts, total), words = self._counts, _terms(sentence)
        rarity = {word: math.log((1 + total) / (1 + counts[word])) + 1 for word in {*words}}
        return np.stack([np.float32(rarity[word]) * self._signs(word) for word in words]).sum(axis=0, dtype=np.float32)

    def _signs_of(self, word: str) -> Int[np.ndarray, " width"]:
        """Return the random signs of a word, which depend on nothing but the word."""
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8])
        return 2 * np.random.default_rng(seed).integers(0, 2, self.width, np.int8) - 1


def _terms(text: str) -> list[str]:
    """Return the words of a text, which itself is the only one of a text without words."""
    return words_of(text) or [text]


class _Lines:
    """A text that consists of some lines of another text."""

    def __init__(self, sentences: Sentences, lines: Int[np.ndarray, " lines"]) -> None:
        self._sentences, self._lines = sentences, lines

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[str]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, row: int) -> str:
        return self._sentences[int(self._lines[row])]


def encode_once(encoder: SentenceEncoder, dtype: str, sentences: Sentences, lines: Int[np.ndarray, " lines"] | None) -> Vectors:
    """Return the vectors of a model for documents, all lines of a text or some, which are computed unless the cache has them.

    The call waits while another process computes the same vectors. A damaged entry is computed again.

    Args:
        encoder: The model.
        dtype: Precision of its matrix products.
        sentences: The text.
        lines: The lines to encode; None encodes all.
    """
    prompt = encoder.prompt_for("document")
    sources = {
        "model": Source("teacher", encoder.fingerprint),
        "corpus": Source("corpus", sentences.fingerprint),
        "lines": None if lines is None else hashlib.sha256(lines.tobytes()).hexdigest(),
        "prompt": prompt or None,
        "precision": "float16",
        "dtype": dtype,
        "normalize": True,
        "truncate_dim": encoder.truncate_dim,
        "max_seq_length": encoder.max_seq_length,
        "rows_per_shard": ROWS,
        "format": "npy",
    }
    folder = cache_folder() / f"{fingerprint(VECTORS, sources)[:24]}.{VECTORS.name}"
    rows: Any = sentences if lines is None else _Lines(sentences, lines)

    def encode(texts: list[str]) -> EncodedSentences:
        vectors = encoder.encode(texts, show_progress_bar=False, normalize_embeddings=True, prompt=prompt, progress=progress.update)
        sentences.check_unchanged()
        return EncodedSentences(np.asarray(vectors), encoder.truncated)

    with _writing(folder), encoder.counting_cuts(), Progress("teacher", len(rows), "sentences") as progress:
        write: Callable[[], Any] = lambda: write_shards(folder, marked(sources), rows, encode, progress.finish)  # noqa: E731
        try:
            write()
        except (ConfigError, DataError):  # ConfigError: shards without the file that describes them
            sentences.check_unchanged()  # raises if a changed text is the reason
            shutil.rmtree(folder, ignore_errors=True)
            progress.restart()
            write()
    vectors = Vectors(folder, verify=False)
    if cut := vectors.manifest["truncated"]:
        logger.warning("the teacher cut %d of %d sentences at its %d tokens", cut, len(rows), encoder.max_seq_length)
    return vectors


@contextlib.contextmanager
def _writing(folder: Path) -> Any:
    """Lock an entry of the cache; an OSError that names a file of the cache, as those of writers do, is a ResourceError."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            yield
    except OSError as error:
        if not _is_in_cache(error.filename, folder.parent):
            raise
        problem = error.strerror or error
        raise ResourceError(f"cache {folder.parent}: {problem}; set JAX_SENTEMB_CACHE to another folder") from error


def _is_in_cache(name: Any, cache: Path) -> bool:
    """Return whether the file that an OSError names is in the folder of the cache, or is a folder on the way to it."""
    return isinstance(name, str) and (Path(name).is_relative_to(cache) or cache.is_relative_to(name))
