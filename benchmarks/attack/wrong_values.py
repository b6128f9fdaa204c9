"""Give every key of a file next to the weights wrong values, and compare embeddings with those of sentence-transformers.

Run `python benchmarks/attack/wrong_values.py FILE SEED`, where FILE is a name in side_files.KEYS. A directory must give the
embeddings of sentence-transformers, to 1e-5, or be refused in one line. If sentence-transformers refuses it, embeddings must be
unchanged.
"""

import contextlib
import json
import logging
import random
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from reference_models import TEXTS, build_originals, edited, theirs
from test_side_files import place

from jax_sentemb.errors import UserError
from jax_sentemb.files import write_json
from jax_sentemb.inference.load import LoadedModel, load
from jax_sentemb.side_files.keys import KEYS

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 2.5, 1e30, 10**30, float("nan"), "", "x", "true", "1", [], [1], ["x"], [[]], {}, {"x": 1},
    {"content": 3}, "a" * 10**6,
]  # fmt: skip
VALUES_PER_KEY = 4  # drawn from VALUES
MEMORY = 12 << 30  # bytes of address space
UNKNOWN = ["brand_new", "pooling_mode_new_tokens", "use_something", "", "a.b", "__class__", "\u0000", "x" * 1000]


class Folders:
    """A replacement for pytest's tmp_path_factory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def mktemp(self, name: str) -> Path:
        (self.root / name).mkdir()
        return self.root / name


def describe(model: LoadedModel) -> tuple[str, Any, int | None]:
    """Return everything that embeddings depend on."""
    return model.fingerprint(), model.settings, getattr(model.embedder, "max_seq_length", None)


def key_names(name: str) -> list[str]:
    keys = KEYS[name]
    return sorted(key.replace("*", "some") for key in (*keys.used, *keys.harmless, *keys.refused)) + UNKNOWN


def write_changed(original: Path, folder: Path, file: str, key: str, value: Any) -> None:
    """Copy a model directory and give a key of one of its files a value."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    if key in UNKNOWN:
        content = json.loads((folder / file).read_text(encoding="utf-8")) if (folder / file).is_file() else {}
        for entry in content if isinstance(content, list) else [content]:
            entry[key] = value
        write_json(folder / file, content)
    else:
        edited(folder, file, {key: value})


DAMAGED = [
    b"", b"null", b"[]", b"{}", b'"x"', b"3", b"{", b"\xff\xfe", b"[" * 10**5, b'{"a":' * 10**5, b"nan", b'{"x": 1, "x": 2}',
]  # fmt: skip


def find_problem(folder: Path, original: LoadedModel, vectors: np.ndarray) -> str:
    """Return the fault of the embeddings of a directory, "" if they have none."""
    try:
        model = load(folder)
    except UserError as error:
        return "" if str(error).isprintable() else f"several lines: {str(error)[:80]!r}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]}"
    try:
        expected = theirs(folder).encode(TEXTS)
    except Exception:
        expected = None
    actual = vectors if describe(model) == describe(original) else model(TEXTS)
    if expected is None:
        return ""  # embeddings may differ only if sentence-transformers has none
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, expected {expected.shape}"
    difference = float(np.abs(actual - expected).max())
    return "" if difference < 1e-5 else f"embeddings differ by {difference:.2g}"


def main(name: str, seed: int) -> int:
    logging.disable(logging.WARNING)
    # With a width of 10^30, sentence-transformers requests memory until the system ends the process.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    draw, root = random.Random(seed), Path(tempfile.mkdtemp())
    family, file = place(name)
    folder = build_originals(Folders(root))[family]
    original = load(folder)
    vectors, tried, problems = original(TEXTS), 0, []
    for key in key_names(name):
        for value in draw.sample(VALUES, VALUES_PER_KEY):
            with contextlib.suppress(TypeError, AttributeError):  # a key inside a value that has none
                write_changed(folder, root / "model", file, key, value)
                tried += 1
                if fault := find_problem(root / "model", original, vectors):
                    problems.append(f"{file}: {key[:40]}={str(value)[:40]!r}: {fault}")
    for content in DAMAGED:
        shutil.rmtree(root / "model", ignore_errors=True)
        shutil.copytree(folder, root / "model")
        (root / "model" / file).write_bytes(content)
        tried += 1
        if fault := find_problem(root / "model", original, vectors):
            problems.append(f"{file} = {content[:20]!r}: {fault}")
    shutil.rmtree(root)
    print(json.dumps({"tried": tried, "problems": problems}))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
