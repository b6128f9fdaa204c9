"""Check that tokenizer files are safe: sizes, rules, expansion and speed, before and after `tokenizers` builds them."""

import contextlib
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tokenizers

from jax_sentemb.errors import OTHER_MODEL, REPLACE_MODEL, ModelFileError, first_line
from jax_sentemb.files import check_untrusted

TOKEN_LIMIT = 1 << 22  # the library writes a vocabulary by counting to its highest id; 2**31 takes seconds and gigabytes
FILE_LIMIT = 1 << 26  # bytes of a tokenizer file
ADDED_LIMIT, RULES_LIMIT = 1 << 16, 1 << 10  # added tokens and rules; each is searched for in every text
GROWTH_LIMIT = 1000  # the largest number of characters that replacements may produce from one
SLOW = 0.2  # processor seconds for a text of PROBE_LENGTHS[-1] characters; common tokenizers need a thousandth of that
PROBE_LENGTHS = (16, 32, 64, 128, 256)  # lengths in characters of the texts for the speed test


@contextlib.contextmanager
def damage(source: str | Path) -> Iterator[None]:
    """Turn any error that the library raises for a damaged file into a ModelFileError of one line.

    PanicException of the Rust binding is not an Exception, so BaseException is caught.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, ModelFileError):
        raise
    except BaseException as error:
        raise ModelFileError(f"{source} is damaged: {first_line(error)}; {REPLACE_MODEL}") from None


def check_size(file: Path, content: str) -> None:
    """Raise ModelFileError for a file beyond FILE_LIMIT. The message calls its content `content`."""
    if file.stat().st_size > FILE_LIMIT:
        raise ModelFileError(f"{file} has {file.stat().st_size:,} bytes, too many for a {content}; {REPLACE_MODEL}")


def check_rules(file: Path) -> dict[str, Any]:
    """Read a tokenizer.json and check, before anything is built from it, the number of its rules and their effect on text.

    A chain of 40 rules that each double a letter turns one letter into a terabyte.

    Raises:
        ModelFileError: A limit is exceeded, or the file is damaged.
    """
    check_untrusted(file)
    check_size(file, "tokenizer")
    with damage(file):
        state = json.loads(file.read_bytes())
        added, rules = state.get("added_tokens") or [], list(_rules([state.get("normalizer"), state.get("pre_tokenizer")]))
        if len(added) > ADDED_LIMIT or len(rules) > RULES_LIMIT:
            raise ModelFileError(
                f"{file} has {len(added):,} added tokens and {len(rules):,} rules, more than a tokenizer needs; {OTHER_MODEL}"
            )
        growth = math.prod(_growth(rule) for rule in rules)
    if growth > GROWTH_LIMIT:
        raise ModelFileError(f"{file}: its replacements can turn one character into {growth:,.0f} characters; remove some of them")
    return state


def check_speed(inner: tokenizers.Tokenizer, file: Path) -> None:
    """Raise ModelFileError for regular expressions that backtrack so much that short texts take seconds.

    The texts grow, and the first one that is too slow ends the test. The library itself stops a single match after 10**7 steps
    (0.1 s) with an error, which `damage` turns into one line. This test detects many matches of fewer steps.
    """
    for length in PROBE_LENGTHS:
        for text in ("a" * length, " " * length, ("the quick brown fox, 42 of them; " * length)[:length]):
            started = time.thread_time()
            inner.encode(text)
            if time.thread_time() - started > SLOW:
                raise ModelFileError(
                    f"{file} takes more than {SLOW} s for {length} characters: its regular expressions backtrack; {OTHER_MODEL}"
                )


def count_tokens(inner: tokenizers.Tokenizer, where: str) -> int:
    """Return the highest token id + 1; raise ModelFileError beyond TOKEN_LIMIT."""
    count = max(inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    if count > TOKEN_LIMIT:
        raise ModelFileError(f"{where} has a token with id {count - 1}, too large for any encoder; {REPLACE_MODEL}")
    return count


def check_rows(tokens: int, rows: int, where: str | Path) -> None:
    """Raise ModelFileError if a tokenizer has more `tokens` than the embedding table has `rows`."""
    if tokens > rows:
        raise ModelFileError(
            f"{where}: the tokenizer has {tokens} tokens, the encoder's vocab_size is {rows}; use the tokenizer of the encoder"
        )


def _rules(parts: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield every normalizer and pre-tokenizer, also those inside sequences."""
    remaining = parts[::-1]
    while remaining:
        if isinstance(part := remaining.pop(), dict):
            yield part
            remaining += [step for name in ("normalizers", "pretokenizers") for step in part.get(name) or []][::-1]


def _growth(rule: dict[str, Any]) -> float:
    """Return the largest number of characters that a Replace rule produces from one; 1 for other rules."""
    if rule.get("type") != "Replace":
        return 1
    pattern, content = rule["pattern"], len(rule["content"])
    return max(1, content / max(len(pattern["String"]), 1) if "String" in pattern else content + 1)
