"""Run the original SentEval toolkit, from a checkout of it, on a machine without a GPU and with a current Python.

The checkout is not changed; its requirements of an old environment are met at run time. The arithmetic and the random draws are
its own.
"""

import functools
import importlib
import inspect
import logging
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

SETTINGS = {
    "senteval": (10, {"nhid": 0, "optim": "adam", "batch_size": 64, "tenacity": 5, "epoch_size": 4}),
    "senteval_prototyping": (5, {"nhid": 0, "optim": "rmsprop", "batch_size": 128, "tenacity": 3, "epoch_size": 2}),
}


class _Cuda:
    """Replace torch.cuda: the toolkit moves everything to a GPU, and here it stays on the CPU."""

    FloatTensor = torch.FloatTensor

    def is_available(self) -> bool:
        return True

    def manual_seed(self, seed: int) -> None:
        pass


class _Torch:
    """Replace torch, with other names of devices."""

    cuda = _Cuda()

    def device(self, name: str) -> torch.device:
        return torch.device("cpu")

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class _Numpy:
    """Replace numpy, and accept arrays of lists of unequal length, which it rejects since 1.24."""

    def array(self, values: Any, *rest: Any, **options: Any) -> np.ndarray:
        try:
            return np.array(values, *rest, **options)
        except ValueError:
            ragged = np.empty(len(values), object)
            ragged[:] = values
            return ragged

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def load(checkout: Path) -> Any:
    """Return the `senteval` module of a checkout (github.com/facebookresearch/SentEval).

    Its logistic regressions run to the optimum.
    """
    if not hasattr(inspect, "getargspec"):  # removed in Python 3.11

        def getargspec(function: Callable) -> tuple:
            # `signature` sees through the wrappers that torch puts around its optimisers
            parameters = inspect.signature(function).parameters
            return list(parameters), None, None, None

        inspect.getargspec = getargspec  # type: ignore[attr-defined]
    for tensor_type in (torch.Tensor, torch.nn.Module):
        tensor_type.cuda = lambda self, *rest, **options: self  # type: ignore[method-assign]
    sys.path.insert(0, str(checkout))
    senteval = importlib.import_module("senteval")
    for name in ("classifier", "relatedness"):
        importlib.import_module(f"senteval.tools.{name}").torch = _Torch()  # type: ignore[attr-defined]
    importlib.import_module("senteval.sts").np = _Numpy()  # type: ignore[attr-defined]
    # The toolkit keeps scikit-learn's limit of 100 iterations, which ends far from the optimum (with a warning for each fit).
    importlib.import_module("senteval.tools.validation").LogisticRegression = functools.partial(  # type: ignore[attr-defined]
        LogisticRegression, solver="newton-cholesky", tol=1e-8, max_iter=1000
    )
    return senteval


def score(
    senteval: Any,
    data: Path,
    task: str,
    encode: Callable[[Sequence[str]], np.ndarray],
    protocol: str = "senteval",
    pytorch: bool = True,
) -> tuple[dict[str, Any], float]:
    """Return the toolkit's result on one task and the seconds that it took, without those of `encode`."""
    folds, classifier = SETTINGS[protocol]
    encoding = 0.0

    def batcher(_: Any, batch: list[list[str]]) -> np.ndarray:
        nonlocal encoding
        started = time.perf_counter()
        vectors = encode([" ".join(tokens) for tokens in batch])
        encoding += time.perf_counter() - started
        return vectors

    parameters = {"task_path": str(data), "usepytorch": pytorch, "kfold": folds, "classifier": dict(classifier), "seed": 1111}
    engine = senteval.engine.SE(parameters, batcher, None)
    logging.getLogger().setLevel(logging.WARNING)
    started = time.perf_counter()
    result = engine.eval(task)
    return result, time.perf_counter() - started - encoding
