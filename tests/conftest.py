"""Quick compilation, a compilation cache between runs, and which process runs which tests."""

import gc
import os
import signal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("NPROC", "16")  # XLA's thread pool: fewer threads than devices deadlock
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of PyTorch: its threads wait by spinning, which starves other processes
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Compiling is most of the suite's time, and what tests promise does not depend on the compiler's optimisations: they are left out,
# here and in processes that tests start (`optimized_compilation` for tests that need them). XLA ends a process at a flag that
# it does not know, so this one is for the series of jaxlib that has it.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path("~/.cache/jax_sentemb/tests").expanduser()))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
if version("jaxlib").startswith("0.10."):
    # Programs as small as these are compiled as one piece: dividing them costs more than a second thread gains. The passes that are
    # left out only make programs quicker, and took longer than they save here. The pass call-inliner stays: without it XLA does not
    # know of collectives inside a called function, runs them beside others, and two devices wait for each other.
    quick = (
        "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 "
        "--xla_disable_hlo_passes=simplification,post_scatter_expansion_simplification"
    )
    os.environ["XLA_FLAGS"] = f"{quick} {os.environ.get('XLA_FLAGS', '')}".strip()

# A shell's & and nohup let these be ignored, here and in what tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Files that take longest. They begin first, so that no process works alone at the end.
LONGEST = (
    "end_to_end", "faults", "contract", "parallel", "freezing", "compare", "checkpoint_selection", "step", "run", "study_runs",
    "host", "docs", "matryoshka", "plan", "trainer", "sweep", "api", "published_files", "plots", "bad_input", "bert", "collection",
    "cons_sent", "hostile_files", "encoder", "notebooks",
)  # fmt: skip


def scope(nodeid: str) -> str:
    """What one process works on: the tests of a file, which share fixtures and compiled programs, or those of a config."""
    file, _, test = nodeid.partition("::")
    return file + test[test.find("[") :] if file.endswith("test_contract.py") and "[" in test else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distributes tests by `scope`: pytest-xdist's own groups (--dist loadgroup) have no effect with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class ByScope(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    config.option.loadscopereorder = False  # which counts tests
    return ByScope(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    names = [f"test_{name}" for name in LONGEST]
    items.sort(key=lambda item: names.index(item.path.stem) if item.path.stem in names else len(names))


def pytest_configure(config: pytest.Config) -> None:
    """Loads the fixtures, and with them JAX and the package, where tests run; not where they are handed out to other processes."""
    if "PYTEST_XDIST_WORKER" in os.environ or not config.getoption("numprocesses", None):
        config.pluginmanager.import_plugin("environment")


def pytest_sessionfinish() -> None:
    """pytest collects garbage five times at the end: looking at all that is loaded once is enough."""
    gc.collect()
    gc.freeze()
