"""Give unusual containers and values to every public function: python benchmarks/attack/odd_values.py PART MODEL CORPUS.

Texts must be embedded like those of a list, vectors must give the result of an array, and all else must be refused in one line.
"""

import array
import collections
import sys
import types
from collections.abc import Callable
from typing import Any

import datasets
import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pyarrow
import scipy.sparse
import torch

import jax_sentemb
from jax_sentemb.errors import UserError

FOREIGN = ("torch", "pandas", "pyarrow", "jax.", "jaxlib")
problems: list[str] = []
tried = 0


def attack(name: str, call: Callable[[Any], Any], value: Any, expected: Any) -> None:
    """Call a function with a value. `expected` is the right result, or None if the value must be refused."""
    global tried
    tried += 1
    try:
        result = call(value() if isinstance(value, types.FunctionType) else value)
    except (UserError, TypeError, ValueError) as error:
        if expected is not None:
            problems.append(f"{name}: refused: {str(error)[:80]}")
        elif not str(error).isprintable() or type(error).__module__.startswith(FOREIGN):
            problems.append(f"{name}: {type(error).__name__} {str(error)[:80]!r}")
    except BaseException as error:
        problems.append(f"{name}: {type(error).__name__}: {str(error)[:80]}")
    else:
        if expected is None:
            problems.append(f"{name}: was accepted")
        elif not same(result, expected):
            problems.append(f"{name}: another result")


def same(result: Any, expected: Any) -> bool:
    """Return whether two results are equal. Doubles may be rounded differently from floats."""

    def equal(actual: Any, expected: Any) -> bool:
        actual, expected = np.asarray(actual), np.asarray(expected)
        if expected.dtype.kind == "f":
            return actual.shape == expected.shape and bool(np.allclose(actual, expected, atol=1e-6))
        return bool(np.array_equal(actual, expected))

    return jax.tree.all(jax.tree.map(equal, result, expected))


def attack_texts(encoder: jax_sentemb.SentenceEncoder, texts: list[str], paths: list[str]) -> None:
    frame = pandas.DataFrame({"id": range(6), "text": texts})
    record = np.rec.fromarrays([np.arange(6), np.array(texts)], names="id,text")
    good = {
        "list": texts,
        "tuple": tuple(texts),
        "generator": lambda: (text for text in texts),
        "map": lambda: map(str, texts),
        "deque": collections.deque(texts),
        "Series": frame["text"],
        "string Series": frame["text"].astype("string"),
        "category": frame["text"].astype("category"),
        "Index": pandas.Index(texts),
        "values of a dict": dict(enumerate(texts)).values(),
        "array of str": np.array(texts),
        "array of objects": np.array(texts, object),
        "Arrow array": pyarrow.array(texts),
        "chunked array": pyarrow.chunked_array([texts[:2], texts[2:]]),
        "column of a data set": datasets.Dataset.from_dict({"text": texts})["text"],
        "list of numpy.str_": [np.str_(text) for text in texts],
        "reversed twice": lambda: reversed(texts[::-1]),
    }
    bad = {
        "DataFrame": frame,
        "one column": frame[["text"]],
        "dict": {"id": 1, "text": texts},
        "dict of texts": dict(zip(texts, texts, strict=True)),
        "OrderedDict": collections.OrderedDict(zip(texts, texts, strict=True)),
        "keys": dict(zip(texts, texts, strict=True)).keys(),
        "set": set(texts),
        "frozenset": frozenset(texts),
        "Counter": collections.Counter(texts),
        "bytes": b"a man",
        "bytearray": bytearray(b"a man"),
        "memoryview": memoryview(b"a man"),
        "array.array": array.array("u", "a man"),
        "list of bytes": [text.encode() for text in texts],
        "list of None": [*texts, None],
        "Series with NaN": pandas.Series([*texts, float("nan")]),
        "list of lists": [texts, texts],
        "list of dicts": [{"text": text} for text in texts],
        "Table": pyarrow.table({"text": texts}),
        "record batch": pyarrow.record_batch({"text": texts}),
        "data set": datasets.Dataset.from_dict({"id": range(6), "text": texts}),
        "DatasetDict": datasets.DatasetDict(train=datasets.Dataset.from_dict({"text": texts})),
        "groupby": frame.groupby("id"),
        "structured array": record,
        "matrix of str": np.array([texts, texts]),
        "array of bytes": np.array(texts).astype("S"),
        "array of numbers": np.arange(6),
        "tensor": torch.arange(6),
        "JAX array": jnp.arange(6),
        "complex": np.ones(6, complex),
        "number": 3,
        "None": None,
        "True": True,
        "object": object(),
        "function": texts.append,
        "class": list,
        "range": range(6),
        "surrogate": ["a \ud800 b"],
        "Arrow null": pyarrow.array([*texts, None]),
        "dates": pandas.date_range("2020", periods=3),
        "a Mapping proxy": types.MappingProxyType({"text": texts}),
    }
    vectors = encoder.encode(texts)
    tokens = encoder.encode(texts, output_value="token_embeddings")
    plain = {
        "encode": (encoder.encode, vectors),
        "encode_query": (encoder.encode_query, encoder.encode_query(texts)),
        "encode_document": (encoder.encode_document, encoder.encode_document(texts)),
        "token_embeddings": (lambda value: encoder.encode(value, output_value="token_embeddings"), tokens),
    }
    for function, (call, expected) in plain.items():
        for name, value in good.items():
            attack(f"{function} of {name}", call, value, expected)
        for name, value in bad.items():
            attack(f"{function} of {name}", call, value, None)

    def train(value):
        return jax_sentemb.train(value, recipe="simcse:tiny", max_steps=1, eval__data="", report_sentences=0)

    for name, value in bad.items():
        attack(f"train of {name}", train, value, None)
    del bad["function"]  # an evaluator is a function
    for name, value in {
        **bad,
        "texts": texts,
        "pairs of numbers": [(1, 2, 3.0)] * 4,
        "pairs of bytes": [(b"a", b"b", 3.0)] * 4,
    }.items():
        attack(f"score of {name}", lambda value: jax_sentemb.score(encoder, value), value, None)


class Sliced:
    """An object with the interface of vectors on disk."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self.shape = rows, rows.shape

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.rows[rows]


def attack_vectors(encoder: jax_sentemb.SentenceEncoder, texts: list[str], paths: list[str]) -> None:
    rows = np.random.default_rng(0).normal(size=(12, 8)).astype(np.float32)
    good = {
        "array": rows,
        "tensor": torch.tensor(rows),
        "tensor with a gradient": torch.tensor(rows, requires_grad=True),
        "JAX array": jnp.asarray(rows),
        "nested lists": rows.tolist(),
        "list of arrays": list(rows),
        "list of tensors": list(torch.tensor(rows)),
        "tuple of tuples": tuple(map(tuple, rows.tolist())),
        "frame": pandas.DataFrame(rows),
        "Fortran": np.asfortranarray(rows),
        "strided": np.repeat(rows, 2, axis=0)[::2],
        "read-only": np.frombuffer(rows.tobytes(), np.float32).reshape(rows.shape),
        "big-endian": rows.astype(">f4"),
        "an object with slices": Sliced(rows),
        "not masked": np.ma.array(rows),
    }
    bad = {
        "complex": rows.astype(complex),
        "complex tensor": torch.tensor(rows.astype(complex)),
        "objects": rows.astype(object),
        "text": rows.astype(str),
        "bytes": rows.astype("S"),
        "dates": np.zeros((12, 8), "M8[s]"),
        "masked": np.ma.array(rows, mask=rows > 0),
        "sparse": scipy.sparse.csr_matrix(rows),
        "sparse array": scipy.sparse.csr_array(rows),
        "sparse tensor": torch.tensor(rows).to_sparse(),
        "three dimensions": rows[None],
        "one number": np.float32(3),
        "ragged lists": [[1.0], [1.0, 2.0]],
        "set": {1.0, 2.0},
        "dict": {"a": rows},
        "None": None,
        "str": "vectors",
        "raw bytes": b"abc",
        "list of None": [None, None],
        "no width": rows[:, :0],
        "nested text": [["a", "b"]],
        "structured": np.zeros(3, [("a", "f4")]),
        "range": range(3),
        "generator": lambda: (row for row in rows),
        "frame with text": pandas.DataFrame({"a": ["x", "y"], "b": [1.0, 2.0]}),
        "NaN": np.full_like(rows, np.nan),
        "infinite": np.full_like(rows, np.inf),
    }
    calls = {
        "search": lambda value: tuple(jax_sentemb.search(value, rows)),
        "corpus of search": lambda value: tuple(jax_sentemb.search(rows, value)),
        "mine_pairs": lambda value: tuple(jax_sentemb.mine_pairs(value)),
        "kmeans": lambda value: tuple(jax_sentemb.kmeans(value, 3)),
        "community_detection": lambda value: jax_sentemb.community_detection(value, 0.1, 2),
    }
    if hasattr(encoder, "similarity"):
        calls["similarity"] = lambda value: encoder.similarity(value, rows)
    for function, call in calls.items():
        expected = call(rows)
        for name, value in good.items():
            if function == "similarity" and name == "an object with slices":
                continue
            attack(f"{function} of {name}", call, value, expected)
        for name, value in bad.items():
            attack(f"{function} of {name}", call, value, None)


def attack_arguments(encoder: jax_sentemb.SentenceEncoder, texts: list[str], paths: list[str]) -> None:
    rows = np.random.default_rng(0).normal(size=(12, 8)).astype(np.float32)
    numbers = [None, "8", 2.5, float("nan"), -1, True, [3], object(), -(10**30), np.array([1, 2]), 1j, b"1"]
    flags = ["yes", 1, None, 0.0, [], np.array([True, False])]
    calls = {
        "encode batch_size": lambda value: encoder.encode(texts, batch_size=value),
        "top_k": lambda value: jax_sentemb.search(rows, rows, value),
        "rescore": lambda value: jax_sentemb.search(rows, rows, rescore=value),
        "k": lambda value: jax_sentemb.kmeans(rows, value),
        "rounds": lambda value: jax_sentemb.kmeans(rows, 2, rounds=value),
        "min_community_size": lambda value: jax_sentemb.community_detection(rows, 0.5, value),
        "max_seq_length": lambda value: jax_sentemb.SentenceEncoder(paths[0], max_seq_length=value),
        "attribute max_seq_length": lambda value: setattr(encoder, "max_seq_length", value),
    }
    for name, call in calls.items():
        for value in numbers:
            attack(f"{name}={str(value)[:30]}", call, value, None)
    for value in flags:
        attack(f"normalize_embeddings={value}", lambda value: encoder.encode(texts, normalize_embeddings=value), value, None)
        if value is not None:  # the default of sentence-transformers
            attack(f"show_progress_bar={value}", lambda value: encoder.encode(texts, show_progress_bar=value), value, None)
        attack(f"verify={value}", lambda value: jax_sentemb.Vectors(paths[1], verify=value), value, None)
    for value in ["float", "", None, 3, np.float16, ["int8"], b"int8"]:
        attack(f"precision={value}", lambda value: encoder.encode(texts, precision=value), value, None)
        attack(f"dtype={value}", lambda value: jax_sentemb.SentenceEncoder(paths[0], dtype=value), value, None)
        attack(f"similarity={value}", lambda value: jax_sentemb.search(rows, rows, similarity=value), value, None)
    for value in ["x", None, float("nan"), [0.5], 1j, True]:
        attack(f"threshold={value}", lambda value: jax_sentemb.community_detection(rows, value), value, None)
        attack(f"tolerance={value}", lambda value: jax_sentemb.kmeans(rows, 2, tolerance=value), value, None)
    for value in [3, 2.5, b"x", [], {}, object(), ["a"], "nowhere"]:
        attack(f"model={value}", jax_sentemb.SentenceEncoder, value, None)
        attack(f"vectors={value}", jax_sentemb.Vectors, value, None)


def main(part: str, *paths: str) -> int:
    with open(paths[1], encoding="utf-8") as file:
        texts = file.read().splitlines()[:6]
    parts = {"texts": attack_texts, "vectors": attack_vectors, "arguments": attack_arguments}
    parts[part](jax_sentemb.SentenceEncoder(paths[0]), texts, list(paths))
    print(f"{len(problems)} of {tried}" + "".join(f"; {problem}" for problem in problems), file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
