"""Stand-ins for packages that snippets of the documentation import but that tests cannot use: too heavy, or they download.

They accept what the real ones accept of the documented calls and no more: an argument with another name is a TypeError, a result of
another type an AssertionError. The real Ray is tested in test_ray.py, the real mteb in test_mteb.py; the snippet for Chroma was run
with chromadb 1.5.9.
"""

import contextlib
import sys
from types import ModuleType
from typing import Any, Generic, TypeVar

import numpy as np
import pytest

Input = TypeVar("Input")


def _module(name: str, **content: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(content)
    return module


class EmbeddingFunction(Generic[Input]):
    """The protocol of Chroma: called with `input`, and stored by name and configuration."""

    def embed_query(self, input: Any) -> Any:
        return self(input)  # pyright: ignore[reportCallIssue]


class _Collection:
    def __init__(self, name: str, *, embedding_function: Any) -> None:
        stored = embedding_function.name(), embedding_function.get_config()
        assert isinstance(stored[0], str)
        self.embed = embedding_function.build_from_config(stored[1])
        self.documents: list[str] = []
        self.vectors: list[np.ndarray] = []

    def add(self, *, ids: list[str], documents: list[str]) -> None:
        assert len(ids) == len(documents)
        self.vectors += self._checked(self.embed(input=documents))
        self.documents += documents

    def query(self, *, query_texts: list[str], n_results: int) -> dict[str, list[list[str]]]:
        queries = self._checked(self.embed.embed_query(input=query_texts))
        distances = [[float(((query - vector) ** 2).sum()) for vector in self.vectors] for query in queries]
        return {"documents": [[self.documents[row] for row in np.argsort(each)[:n_results]] for each in distances]}

    def _checked(self, vectors: Any) -> list[np.ndarray]:
        """Chroma takes a list of vectors of float32 or int32."""
        assert isinstance(vectors, list)
        assert all(isinstance(vector, np.ndarray) and vector.dtype == np.float32 and vector.ndim == 1 for vector in vectors)
        return vectors


class _Client:
    def create_collection(self, name: str, *, embedding_function: Any) -> _Collection:
        return _Collection(name, embedding_function=embedding_function)


class _Dataset:
    """Rows of Ray Data in one batch."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns = columns

    def map_batches(self, fn: type, *, fn_constructor_args: tuple[Any, ...], batch_size: int, concurrency: int) -> "_Dataset":
        assert batch_size > 0
        assert concurrency > 0
        return _Dataset(fn(*fn_constructor_args)(self.columns))

    def write_parquet(self, path: str) -> None:
        assert path
        assert set(self.columns) == {"text", "embedding"}
        assert len(self.columns["text"]) == len(self.columns["embedding"])


def _read_text(path: str) -> _Dataset:
    with open(path, encoding="utf-8") as file:
        return _Dataset({"text": np.array([next(file).rstrip("\n") for _ in range(8)], object)})


def _evaluate(model: Any, tasks: str) -> str:
    assert tasks == "tasks of MTEB(eng, v2)"
    assert model.encode(["A man is playing a guitar."]).ndim == 2
    return "scores"


STAND_INS = {
    "chromadb": _module(
        "chromadb", Client=_Client, Documents=list[str], Embeddings=list[np.ndarray], EmbeddingFunction=EmbeddingFunction
    ),
    "ray": _module("ray", data=_module("ray.data", read_text=_read_text)),
    "mteb": _module("mteb", evaluate=_evaluate, get_benchmark=lambda name: f"tasks of {name}"),
}


@contextlib.contextmanager
def installed(text: str) -> Any:
    """Within the block, the packages of STAND_INS that `text` imports are stand-ins."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in STAND_INS.items():
            if f"import {name}" in text:
                patch.setitem(sys.modules, name, module)
        yield
