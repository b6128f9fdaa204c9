"""One of eight simulated CPU devices, checked shapes and dtypes, and what the tests of all files share."""

import functools
import gc
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jaxtyping
import pytest

# Annotated shapes and dtypes are checked at each call, from the first import of these modules on. Left out are
# data.tokenizer and retrieval.vector_manifest, whose tests give them values of wrong types on purpose.
DATA = (
    "batches", "cache", "examples", "packing", "pairs", "perturb", "piece_cache", "quality", "shuffle", "text_file", "tokens",
    "workers",
)  # fmt: skip
EVALUATION = (
    "arguments", "classifier", "diagnostics", "logistic", "model_spec", "postprocess", "senteval_toolkit", "sts", "suite",
    "transfer", "word_baselines",
)  # fmt: skip
FORMATS = ("modules", "tensors", "weight_table", "word_model")
INFERENCE = ("build", "embedder", "load", "postprocess", "static", "token_embeddings", "verify", "views")
REPORTING = ("plots", "samples")
RETRIEVAL = ("index", "int8_search", "kmeans", "noise", "quantize", "search", "sources", "vector_store")
TRAINING = ("evaluator", "loop", "step")
ROOMS = {
    "data": DATA, "evaluation": EVALUATION, "formats": FORMATS, "inference": INFERENCE, "reporting": REPORTING,
    "retrieval": RETRIEVAL, "training": TRAINING,
}  # fmt: skip
PARTS = [f"{room}.{module}" for room, modules in ROOMS.items() for module in modules]
CHECKED = ("losses", "methods", "models", "distillation", *PARTS)
jaxtyping.install_import_hook([f"jax_sentemb.{module}" for module in CHECKED], "beartype.beartype")

import jax_sentemb  # noqa: E402
from jax_sentemb.data import batches, synthetic  # noqa: E402
from jax_sentemb.errors import ConfigError  # noqa: E402
from jax_sentemb.inference import embedder  # noqa: E402
from jax_sentemb.training import corpus_source, evaluator, measures, step, trainer, validation  # noqa: E402

SHAPES = [(batches, "BUCKETS", batches.BUCKETS), (embedder, "BUCKETS", embedder.BUCKETS), (embedder, "FEW", embedder.FEW)]
SHAPES += [(measures, "COARSE_BUCKETS", measures.COARSE_BUCKETS)]

LEVELS = {name: logging.getLogger(name).level for name in ("absl", "asyncio", "jax_sentemb")}

# Collecting what nobody refers to goes through everything that is loaded, and tracing would start it often.
gc.set_threshold(100_000, 50, 100)

jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture(scope="module", autouse=True)
def one_process(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Fails where two processes run tests of one file: each would build its fixtures and compile its programs."""
    worker, run = (os.environ.get(f"PYTEST_XDIST_{name}") for name in ("WORKER", "TESTRUNUID"))
    if worker and request.path.stem != "test_contract":
        note = tmp_path_factory.getbasetemp().parent / f"{request.path.stem}.{run}"
        note.touch()
        assert note.read_text() in ("", worker), "pytest_xdist_make_scheduler has no effect"
        note.write_text(worker)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data (environment variable JAX_SENTEMB_SHARED); tests that need it skip without it."""
    folder = Path(os.environ.get("JAX_SENTEMB_SHARED", Path(__file__).parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no real data: JAX_SENTEMB_SHARED={folder}")
    return folder


@pytest.fixture(autouse=True)
def levels_of_loggers() -> None:
    """Begin with the levels of loggers that commands change for their process, in other tests and in fixtures of a module."""
    for name, level in LEVELS.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def few_scored_pairs() -> Iterator[None]:
    """Runs on generated sentences are scored on 60 pairs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluator, "GRAMMAR_PAIRS", 60)
        yield


@pytest.fixture(scope="session", autouse=True)
def generated_once() -> Iterator[None]:
    """Runs share the sentences and pairs that are generated for them."""
    names = ("sentences", "graded_pairs")
    remembered = SimpleNamespace(**{name: functools.cache(getattr(synthetic, name)) for name in names})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluator, "synthetic", remembered)
        patch.setattr(corpus_source, "synthetic", remembered)
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_steps() -> Iterator[None]:
    """Runs of the same method, encoder and optimizer share their compiled programs, as the steps of one run do."""
    made: dict[tuple[str, ...], tuple[Any, Any]] = {}

    def shared(make: Callable[..., Any]) -> Callable[..., Any]:
        def find(*arguments: Any) -> Any:
            key = (make.__name__, type(arguments[0]).__qualname__, *map(repr, arguments))
            if key not in made:
                made[key] = make(*arguments), arguments  # the arguments stay: some are known by their address
            return made[key][0]

        return find

    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((trainer, "make_optimizer"), (trainer, "make_step")):
            patch.setattr(module, name, shared(getattr(module, name)))
        patch.setattr(step, "make_creator", shared(step.make_creator))
        patch.setattr(validation, "make_measure", shared(validation.make_measure))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_shape() -> Iterator[None]:
    """Batches have one width, and the embedder one shape up to 32 tokens: each shape costs a compilation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "BUCKETS", (24,))  # the limit of tiny configs; examples of ConsSent may be longer
        patch.setattr(embedder, "BUCKETS", (32, 128, 512))
        patch.setattr(measures, "COARSE_BUCKETS", (32, 128, 512))
        patch.setattr(embedder, "FEW", ())
        yield


@pytest.fixture(scope="module")
def every_shape() -> Iterator[None]:
    """The shapes of users, from here to the end of the file."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in SHAPES:
            patch.setattr(module, name, value)
        yield


@pytest.fixture(scope="module")
def optimized_compilation() -> Iterator[None]:
    """For tests of what the compiler makes of a program, and for those that compute longer than they compile."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


DEVICES = jax.devices, jax.local_devices
# Runs and encoders take all devices that JAX has: one, except in tests that ask for `eight_devices`.
jax.devices, jax.local_devices = (lambda *which, _all=found, **named: _all(*which, **named)[:1] for found in DEVICES)


@pytest.fixture
def eight_devices(monkeypatch: pytest.MonkeyPatch) -> list[jax.Device]:
    """All devices, for the length of a test."""
    for name, found in zip(("devices", "local_devices"), DEVICES, strict=True):
        monkeypatch.setattr(jax, name, found)
    return jax.devices()


@pytest.fixture
def mount_tmpfs() -> Iterator[Callable[..., Path]]:
    """Return a function that mounts a file system in memory and returns its folder; the test is skipped if it cannot be mounted."""
    mounted: list[Path] = []

    def mount(folder: Path, *options: str) -> Path:
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)]
        if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("no file system can be mounted here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def config_of_train(monkeypatch):
    """A function that calls jax_sentemb.train with its arguments and returns the Config of the run, which does not begin."""

    def config_of(*arguments, **settings):
        configs = []

        def record(config, workdir, begin, temporary):
            configs.append(config)
            raise ConfigError("enough")

        monkeypatch.setattr("jax_sentemb.training.api.training_run.run", record)
        with pytest.raises(ConfigError, match="enough"):
            jax_sentemb.train(*arguments, **settings)
        (config,) = configs
        return config

    return config_of
