"""Entries of the cache: complete or absent, checked for damage, used without a lock."""

import os

import numpy as np
import pytest

from jax_sentemb.data import cache as cache_module
from jax_sentemb.data.cache import cached, check_mapped, mapped
from jax_sentemb.errors import DataError


def entry_of(content):
    def write(folder):
        (folder / "file").write_text(content)
        return {"known": 1}

    return write


def fail(folder):
    (folder / "file").write_text("half")
    raise DataError("stopped")


def test_a_cache_entry_is_complete_or_absent(tmp_path):
    target = tmp_path / "entry"
    with pytest.raises(DataError):
        cached(target, fail)
    assert sorted(path.name for path in tmp_path.iterdir()) in (["entry.lock"], [])
    cached(target, entry_of("whole"))
    cached(target, fail)  # it is there
    assert (target / "file").read_text() == "whole"
    assert cache_module.read_about(target)["known"] == 1


def test_an_entry_that_is_there_is_used_without_a_lock(tmp_path):
    target = tmp_path / "folder" / "entry"
    cached(target, entry_of("whole"))
    target.with_name("entry.lock").unlink(missing_ok=True)
    cached(target, fail)
    assert [path.name for path in target.parent.iterdir()] == ["entry"]


def test_of_a_large_entry_a_part_is_checked_and_sizes_always(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "BLOCK", 10)

    def write(folder):
        (folder / "a.bin").write_bytes(bytes(range(95)))
        (folder / "b.bin").write_bytes(b"")
        return {}

    folder = cached(tmp_path / "entry", write)
    assert cache_module.undamaged(folder)
    (folder / "a.bin").write_bytes(bytes([*range(50), 0, *range(51, 95)]))
    assert not cache_module.undamaged(folder)
    monkeypatch.setattr(cache_module, "CHECKED", 4)
    found = sum(not cache_module.undamaged(folder) for _ in range(200))
    assert 40 < found < 120  # 4 of 10 blocks: 80 are expected
    (folder / "b.bin").write_bytes(b"1")
    assert not any(cache_module.undamaged(folder) for _ in range(20))


def test_a_mapped_file_that_shrinks_is_named_as_long_as_an_array_needs_it(tmp_path):
    file, other = tmp_path / "numbers", tmp_path / "empty"
    file.write_bytes(np.arange(1000, dtype=np.int32).tobytes())
    other.touch()
    part = mapped(file, np.int32)[10:20]
    assert part.tolist() == list(range(10, 20))
    assert mapped(other, np.int32).shape == (0,)
    check_mapped()
    os.truncate(file, 2000)
    with pytest.raises(DataError, match="numbers was truncated while it was read"):
        check_mapped()
    del part
    check_mapped()
    left = mapped(file, np.int32)
    file.unlink()
    check_mapped()
    assert len(left) == 500
