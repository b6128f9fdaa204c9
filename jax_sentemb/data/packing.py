"""Rows packed from consecutive sentences: what masked-language-model training reads with `data.pack`."""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_sentemb.data.cache import cache_folder, cached, mapped, read_about
from jax_sentemb.data.corpus_files import Sentences
from jax_sentemb.data.tokens import COLUMNS, Tokens, length_report

FORMAT = 1  # of packed rows: part of the fingerprint
SENTENCES = 1 << 15  # packed at once
LONGEST = 512  # tokens of a sentence before it is packed; what is longer is cut


class Stream(NamedTuple):
    """Tokens of consecutive sentences, without [CLS] and with a [SEP] at the end of each."""

    ids: np.ndarray  # [N]
    line: np.ndarray  # int64 [N]: the sentence of a token
    document: np.ndarray  # int64 [N]

    def part(self, start: int, end: int) -> "Stream":
        """Tokens start .. end - 1."""
        return Stream(*(values[start:end] for values in self))


def pack(tokens: Tokens, sentences: Sentences, max_seq_length: int, cache: Path | None = None) -> Tokens:
    """Rows [CLS] a [SEP] b [SEP] of up to `max_seq_length` tokens, from `tokens`: the rows of single `sentences`, in their order.

    Every sentence keeps the [SEP] that it has alone. One that does not fit goes on in the next row, so that only the last row of a
    document is shorter than others. A blank line or the end of a file ends a document, and no row goes beyond it; text without
    blank lines is one document. (RoBERTa's FULL-SENTENCES cuts no sentence and crosses documents.) `line` is that of a row's first
    token. Memory does not grow with the corpus. Rows that are in `cache` are not made again.
    """
    fingerprint = hashlib.sha256(f"{FORMAT}|{tokens.fingerprint}|packed {max_seq_length}".encode()).hexdigest()
    folder = cached(
        (cache or cache_folder()) / f"{fingerprint[:24]}.packed",
        lambda partial: _write(partial, tokens, sentences, max_seq_length),
    )
    columns = {name: mapped(folder / f"{name}.bin", kind) for name, kind in COLUMNS.items()}
    report = read_about(folder)["report"]
    return Tokens(mapped(folder / "ids.bin", tokens.id_type), columns, report, fingerprint, tokens.pad_id, max_seq_length)


def _write(folder: Path, tokens: Tokens, sentences: Sentences, max_seq_length: int) -> dict[str, Any]:
    """Write the files of a cached corpus of tokens: ids.bin, one for each of COLUMNS; their description."""
    histogram, at, last_document = np.zeros(max_seq_length + 1, np.int64), 0, -1
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.bin").open("wb")) for name in ("ids", *COLUMNS)}
        for stream in _whole_rows(_streams(tokens, sentences), max_seq_length - 2):
            ids, lengths, line = cut(stream, max_seq_length - 2, *tokens.ids(0)[[0, -1]].tolist())
            ends = at + np.cumsum(lengths, dtype=np.int64)
            files["ids"].write(ids.astype(tokens.id_type).tobytes())
            for name, values in (("starts", ends - lengths), ("lengths", lengths), ("line", line)):
                files[name].write(values.astype(COLUMNS[name]).tobytes())
            histogram += np.bincount(lengths, minlength=len(histogram))
            at, last_document = at + int(lengths.sum()), int(stream.document[-1])
    report = {
        **tokens.report,
        "usable": int(histogram.sum()),
        "documents": last_document + 1,
        **length_report(histogram),
        "max_seq_length": max_seq_length,
    }
    sentences.check_unchanged()
    return {"report": report}


def _streams(tokens: Tokens, sentences: Sentences) -> Iterator[Stream]:
    """The corpus, SENTENCES at a time. Documents are numbered from 0; those without a token take no number."""
    open_document = -1
    new = True
    for first in range(0, len(sentences), SENTENCES):
        last = min(first + SENTENCES, len(sentences))
        borders = np.cumsum(sentences.begin_document(first, last))
        start, end = np.searchsorted(tokens.line, [first, last]).tolist()
        if start == end:
            new = new or bool(borders[-1])
            continue
        lines, counts = tokens.line[start:end], tokens.lengths[start:end] - 1
        numbers = borders[lines - first]  # of documents, with gaps where a subset left all their sentences out
        changes = np.diff(numbers, prepend=0) > 0
        changes[0] |= new
        documents = open_document + np.cumsum(changes)
        open_document, new = int(documents[-1]), bool(borders[-1] > numbers[-1])
        ids = np.concatenate([tokens.ids(row)[1:] for row in range(start, end)])
        yield Stream(ids, np.repeat(lines, counts), np.repeat(documents, counts))


def _whole_rows(streams: Iterator[Stream], size: int) -> Iterator[Stream]:
    """The same tokens, each part of which ends where a row of `size` tokens ends."""
    rest = None
    for stream in streams:
        if rest is not None:
            stream = Stream(*(np.concatenate(pair) for pair in zip(rest, stream, strict=True)))
        opened = int(np.searchsorted(stream.document, stream.document[-1]))  # the last document may go on
        end = opened + (len(stream.ids) - opened) // size * size
        if end:
            yield stream.part(0, end)
        rest = stream.part(end, len(stream.ids))
    if rest is not None and len(rest.ids):
        yield rest


def cut(stream: Stream, size: int, start_id: int, end_id: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of up to `size` tokens of one document, between [CLS] and [SEP]: ids one after the other, lengths and lines [R].

    A [SEP] is not written twice: a row whose last token is one gets no other, one that would come first in a row is left out.
    """
    ids, line, document = stream
    places = np.arange(len(ids))
    begins = np.diff(document, prepend=document[0] - 1) > 0
    within = places - np.maximum.accumulate(np.where(begins, places, 0))
    row_begins = within % size == 0
    kept = ~(row_begins & (ids == end_id))
    row = np.cumsum(row_begins)[kept]
    ids, line = ids[kept], line[kept]
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    counts = np.diff(starts, append=len(ids))
    lengths = counts + 1 + (ids[starts + counts - 1] != end_id)
    row_starts = np.cumsum(lengths) - lengths
    packed = np.full(int(lengths.sum()), end_id, ids.dtype)
    packed[row_starts] = start_id
    packed[np.arange(len(ids)) + np.repeat(row_starts + 1 - starts, counts)] = ids
    return packed, lengths, line[starts]
