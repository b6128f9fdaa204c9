"""Dependency trees of parsed sentences, and pairs with the same and with different trees.

Files are CoNLL-U (universaldependencies.org/format.html).
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jax_sentemb.errors import DataError
from jax_sentemb.files import DATA_LIMIT, read_limited, user_path

COLUMNS = 10
ID, FORM, HEAD, RELATION, MISC = 0, 1, 6, 7, 9


class Parse(NamedTuple):
    """A sentence and its tree: for each word the number of its head (0: root) and the relation to it (miCSE, appendix B)."""

    text: str
    tree: tuple[tuple[int, str], ...]


def read_conllu(path: str | Path) -> list[Parse]:
    """The sentences of a file, in order; DataError names a malformed line, or the file if it has no sentence.

    The text is that of the comment "# text = ", or else the words, with a space after each word unless it has SpaceAfter=No. Lines
    of multiword tokens (1-2) and empty nodes (1.1) are not words of the tree.
    """
    file = user_path(path)
    try:
        lines = read_limited(file, DATA_LIMIT).decode("utf-8-sig").splitlines()
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: byte {error.start} is not UTF-8") from None
    found: list[Parse] = []
    text, words, last = "", [], 0
    for number, line in enumerate([*lines, ""], 1):
        if line.startswith("#"):
            key, _, value = line[1:].partition("=")
            text = value.strip() if key.strip() == "text" else text
        elif line.strip():
            words.append(_word(line.split("\t"), f"{file}:{number}"))
            last = number
        elif words:
            found.append(_parse(text, words, f"{file}:{last}"))
            text, words = "", []
    if not found:
        raise DataError(f"{file} has no parsed sentence")
    return found


def _word(fields: list[str], where: str) -> list[str]:
    if len(fields) != COLUMNS:
        raise DataError(f"{where}: {len(fields)} tab-separated fields instead of {COLUMNS}: not CoNLL-U")
    if fields[ID].isdecimal() and not fields[HEAD].isdecimal():
        raise DataError(f"{where}: the head {fields[HEAD]!r} of word {fields[ID]} is not a number")
    return fields


def _parse(text: str, lines: list[list[str]], where: str) -> Parse:
    """The sentence that ends at `where`; DataError if its heads do not form a tree."""
    words = [fields for fields in lines if fields[ID].isdecimal()]
    if [fields[ID] for fields in words] != [str(number) for number in range(1, len(words) + 1)]:
        raise DataError(f"{where}: the words of this sentence are not numbered 1, 2, ...")
    heads = [int(fields[HEAD]) for fields in words]
    if heads.count(0) != 1:
        raise DataError(f"{where}: this sentence has {heads.count(0)} roots (words with head 0) instead of one")
    connected = {0}
    for start in range(1, len(heads) + 1):
        word, path = start, set[int]()
        while word not in connected:
            if word > len(heads):
                raise DataError(f"{where}: head {word} is beyond the {len(heads)} words of this sentence")
            if word in path:
                raise DataError(f"{where}: word {start} of this sentence is not connected to the root")
            path.add(word)
            word = heads[word - 1]
        connected |= path
    joined = "".join(fields[FORM] + " " * ("SpaceAfter=No" not in fields[MISC].split("|")) for fields in words).strip()
    return Parse(text or joined, tuple(zip(heads, (fields[RELATION] for fields in words), strict=True)))


def syntax_pairs(parses: Sequence[Parse], count: int, seed: int = 0) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Up to `count` pairs (rows of `parses`) of different sentences with the same tree, and as many with different trees.

    A pair of the second kind has the same first sentence as a pair of the first kind, so that only the partners differ.
    Sentences with the same tree have the same number of words; others mostly do not. DataError if there are no such pairs.
    Source: miCSE Fig. 6.
    """
    random = np.random.default_rng(seed)
    rows: dict[tuple, list[int]] = {}
    seen: set[str] = set()
    for row in random.permutation(len(parses)).tolist():
        if parses[row].text not in seen:
            seen.add(parses[row].text)
            rows.setdefault(parses[row].tree, []).append(row)
    similar = [pair for group in rows.values() for pair in itertools.pairwise(group)]
    similar = [similar[place] for place in random.permutation(len(similar))[:count]]
    if not similar or len(rows) < 2:
        raise DataError(
            f"{len(seen)} distinct parsed sentences have {len(rows)} trees: pairs with the same tree and with different ones are "
            "needed; give more, and short, sentences"
        )
    everything = [row for group in rows.values() for row in group]
    dissimilar = []
    for first, _ in similar:
        partner = first
        while parses[partner].tree == parses[first].tree:
            partner = everything[int(random.integers(len(everything)))]
        dissimilar.append((first, partner))
    return similar, dissimilar
