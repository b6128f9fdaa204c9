"""Pack consecutive sentences into rows of full length, for masked-language-model training with `data.pack`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from jax_sentemb.data.cache import cache_folder, cached, map_array, read_about
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.tokens import COLUMNS, Tokens, length_report
from jax_sentemb.provenance import PACKED_ROWS, Source, fingerprint

SENTENCES = 1 << 15  # sentences that are packed at once
LONGEST = 512  # tokens to which a sentence is cut before it is packed


class Stream(NamedTuple):
    """Tokens of consecutive sentences, without [CLS], with a [SEP] at the end of each sentence."""

    ids: Int[np.ndarray, " tokens"]
    line: Int[np.ndarray, " tokens"]  # int64, the sentence of each token
    document: Int[np.ndarray, " tokens"]  # int64, the document of each token

    def part(self, start: int, end: int) -> "Stream":
        """Return the tokens start .. end - 1."""
        return Stream(*(values[start:end] for values in self))


def pack(tokens: Tokens, sentences: Sentences, max_seq_length: int, cache: Path | None = None) -> Tokens:
    """Pack sentences into rows [CLS] a [SEP] b [SEP], or read the rows from the cache.

    A sentence that does not fit continues in the next row, so only the last row of a document is shorter than the others. A blank
    line or the end of a file ends a document, and rows do not cross documents. Text without blank lines is one document. (RoBERTa's
    FULL-SENTENCES does not cut sentences and crosses documents.) `line` of a row is the line of its first token. Memory does not
    grow with the corpus.

    Args:
        tokens: The rows of the single sentences, in order.
        sentences: The corpus.
        max_seq_length: The largest number of tokens of a row.
        cache: The folder of the cache, by default that of the user.
    """
    sources = {"tokens": Source("tokens", tokens.fingerprint), "max_seq_length": max_seq_length}
    folder = cached(
        cache or cache_folder(), PACKED_ROWS, sources, lambda partial: _write(partial, tokens, sentences, max_seq_length)
    )
    columns = {name: map_array(folder / f"{name}.bin", dtype) for name, dtype in {"ids": tokens.id_type, **COLUMNS}.items()}
    return Tokens(columns, read_about(folder)["report"], fingerprint(PACKED_ROWS, sources), tokens.pad_id, max_seq_length)


def _write(folder: Path, tokens: Tokens, sentences: Sentences, max_seq_length: int) -> dict[str, Any]:
    """Write ids.bin and a file for each of COLUMNS, and return the report."""
    histogram, offset, last_document = np.zeros(max_seq_length + 1, np.int64), 0, -1
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.bin").open("wb")) for name in ("ids", *COLUMNS)}
        for stream in _whole_rows(_streams(tokens, sentences), max_seq_length - 2):
            ids, lengths, line = cut(stream, max_seq_length - 2, *tokens.ids(0)[[0, -1]].tolist())
            ends = offset + np.cumsum(lengths, dtype=np.int64)
            files["ids"].write(ids.astype(tokens.id_type).tobytes())
            for name, values in (("starts", ends - lengths), ("lengths", lengths), ("line", line)):
                files[name].write(values.astype(COLUMNS[name]).tobytes())
            histogram += np.bincount(lengths, minlength=len(histogram))
            offset, last_document = offset + int(lengths.sum()), int(stream.document[-1])
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
    """Yield the corpus, SENTENCES at a time. Documents are numbered from 0. A document without tokens has no number."""
    open_document = -1
    is_new = True
    for first in range(0, len(sentences), SENTENCES):
        last = min(first + SENTENCES, len(sentences))
        borders = np.cumsum(sentences.starts_document(first, last))
        start, end = np.searchsorted(tokens.line, [first, last]).tolist()
        if start == end:
            is_new = is_new or bool(borders[-1])
            continue
        lines, counts = tokens.line[start:end], tokens.lengths[start:end] - 1
        numbers = borders[lines - first]  # numbers of documents; a document without a sentence in the subset leaves a gap
        changes = np.diff(numbers, prepend=0) > 0
        changes[0] |= is_new
        documents = open_document + np.cumsum(changes)
        open_document, is_new = int(documents[-1]), bool(borders[-1] > numbers[-1])
        ids = np.concatenate([tokens.ids(row)[1:] for row in range(start, end)])
        yield Stream(ids, np.repeat(lines, counts), np.repeat(documents, counts))


def _whole_rows(streams: Iterator[Stream], size: int) -> Iterator[Stream]:
    """Yield the same tokens in parts that end where a row of `size` tokens ends."""
    rest = None
    for stream in streams:
        if rest is not None:
            stream = Stream(*(np.concatenate(pair) for pair in zip(rest, stream, strict=True)))
        opened = int(np.searchsorted(stream.document, stream.document[-1]))  # the last document may continue in the next stream
        end = opened + (len(stream.ids) - opened) // size * size
        if end:
            yield stream.part(0, end)
        rest = stream.part(end, len(stream.ids))
    if rest is not None and len(rest.ids):
        yield rest


def cut(
    stream: Stream, size: int, start_id: int, end_id: int
) -> tuple[Int[np.ndarray, " ids"], Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
    """Cut a stream into rows of up to `size` tokens of one document, and put [CLS] and [SEP] around each row.

    No row has two [SEP] at its end or a [SEP] after [CLS]. A row that ends with a [SEP] gets no second one, and a [SEP] that would
    be the first token of a row is removed.

    Returns:
        The concatenated ids, and the length and the line of each row.
    """
    ids, line, document = stream
    positions = np.arange(len(ids))
    starts_document = np.diff(document, prepend=document[0] - 1) > 0
    in_document = positions - np.maximum.accumulate(np.where(starts_document, positions, 0))
    starts_row = in_document % size == 0
    remains = ~(starts_row & (ids == end_id))
    row = np.cumsum(starts_row)[remains]
    ids, line = ids[remains], line[remains]
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    counts = np.diff(starts, append=len(ids))
    lengths = counts + 1 + (ids[starts + counts - 1] != end_id)
    row_starts = np.cumsum(lengths) - lengths
    packed = np.full(int(lengths.sum()), end_id, ids.dtype)
    packed[row_starts] = start_id
    packed[np.arange(len(ids)) + np.repeat(row_starts + 1 - starts, counts)] = ids
    return packed, lengths, line[starts]
