"""Eight simulated CPU devices, a compilation cache between runs, every warning an error."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("NPROC", "16")  # XLA's thread pool: fewer threads than devices deadlock
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of PyTorch: its threads wait by spinning, which starves other processes
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import jax
import jaxtyping
import pytest

# Annotated shapes and dtypes are checked at each call, from the first import of these modules on.
CHECKED = {
    "": ("losses",),
    "data": ("batches", "examples", "packing", "pairs", "perturb", "piece_cache", "quality", "shuffle", "tokens", "workers"),
    "evaluation": ("arguments", "classifier", "diagnostics", "logistic", "postprocess", "sts", "transfer", "word_baselines"),
    "models": ("heads", "layers", "pooling", "rnn", "token_loss"),
    "retrieval": ("index", "kmeans", "quantize", "search"),
}
HOOKED = [".".join(filter(None, ("jax_sentemb", folder, module))) for folder, modules in CHECKED.items() for module in modules]
jaxtyping.install_import_hook(HOOKED, "beartype.beartype")

from jax_sentemb.training import evaluator  # noqa: E402

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & lets it be ignored, here and in what tests start

jax.config.update("jax_num_cpu_devices", 8)
if not jax.config.jax_compilation_cache_dir:
    jax.config.update("jax_compilation_cache_dir", str(Path("~/.cache/jax_sentemb/tests").expanduser()))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What shares compiled steps goes to one process: the tests of a file, and of the contract those of a config."""
    for item in items:
        config = getattr(item, "callspec", None) and item.callspec.params.get("tiny")
        item.add_marker(pytest.mark.xdist_group(config.stem if config else item.path.stem))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data (environment variable JAX_SENTEMB_SHARED); tests that need it skip without it."""
    folder = Path(os.environ.get("JAX_SENTEMB_SHARED", Path(__file__).parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no real data: JAX_SENTEMB_SHARED={folder}")
    return folder


@pytest.fixture(scope="module")
def quick_compilation() -> Iterator[None]:
    """For tests that are compile-bound, where what they promise does not depend on the compiler's optimisations."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def few_scored_pairs() -> Iterator[None]:
    """Runs on generated sentences are scored on 60 pairs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluator, "GRAMMAR_PAIRS", 60)
        yield
