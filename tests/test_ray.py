"""Encoding as a job of Ray Data: the same vectors, also when a worker dies in the middle."""

import importlib
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from jax_sentemb.cli.program import program
from jax_sentemb.inference.encoder import SentenceEncoder
from jax_sentemb.main import main

ROOT = Path(__file__).parents[1]

SENTENCES = [f"a {animal} number {number} is near the river" for number in range(40) for animal in ("dog", "cat", "red fox")]


class DiesOnce(SentenceEncoder):
    """Kills its own process at its third batch, unless `marker` says that this was done."""

    def __init__(self, path, marker):
        super().__init__(path)
        self.marker, self.batches = marker, 0

    def __call__(self, batch):
        self.batches += 1
        if self.batches == 3 and not os.path.exists(self.marker):
            with open(self.marker, "w") as file:
                file.write(f"{os.getpid()}")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_a_worker_dies_and_nothing_is_lost(tmp_path):
    line = [f"--config={ROOT}/configs/simcse.py:tiny", "--config.train.max_steps=1", f"--workdir={tmp_path / 'run'}"]
    assert program(main, ["main", *line]) == 0
    export = tmp_path / "run" / "export"
    ray = pytest.importorskip("ray", reason="ray is not installed")
    importlib.import_module("ray.data")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        lines = ray.data.from_items([{"text": text, "line": line} for line, text in enumerate(SENTENCES)], override_num_blocks=6)
        marker = tmp_path / "died"
        job = lines.map_batches(DiesOnce, fn_constructor_args=(str(export), str(marker)), batch_size=10, concurrency=1)
        rows = job.take_all()
    finally:
        ray.shutdown()
    assert marker.exists()  # a worker was killed
    assert sorted(row["line"] for row in rows) == list(range(len(SENTENCES)))
    wanted = SentenceEncoder.load(export).encode(SENTENCES)
    for row in rows:
        np.testing.assert_allclose(row["embedding"], wanted[row["line"]], atol=1e-6)
