"""Entries of the cache: complete or absent, checked for damage, used without a lock."""

import os

import numpy as np
import pytest

from jax_sentemb.data import cache as cache_module
from jax_sentemb.data.cache import cached, check_maps, map_array
from jax_sentemb.errors import DataError
from jax_sentemb.provenance import TOKENS, Source, fingerprint

SOURCES = {"corpus": Source("a.txt", "0" * 64)}


def entry_path(folder, sources=SOURCES):
    return folder / f"{fingerprint(TOKENS, sources)[:24]}.tokens"


def entry_of(content):
    def write(folder):
        (folder / "file").write_text(content)
        return {"known": 1}

    return write


def fail(folder):
    (folder / "file").write_text("half")
    raise DataError("stopped")


def test_a_cache_entry_is_complete_or_absent(tmp_path):
    target = entry_path(tmp_path)
    with pytest.raises(DataError):
        cached(tmp_path, TOKENS, SOURCES, fail)
    assert sorted(path.name for path in tmp_path.iterdir()) in ([f"{target.name}.lock"], [])
    assert cached(tmp_path, TOKENS, SOURCES, entry_of("whole")) == target
    cached(tmp_path, TOKENS, SOURCES, fail)  # it is there
    assert (target / "file").read_text() == "whole"
    assert cache_module.read_about(target)["known"] == 1


def test_an_entry_that_is_there_is_used_without_a_lock(tmp_path):
    target = cached(tmp_path / "folder", TOKENS, SOURCES, entry_of("whole"))
    target.with_name(f"{target.name}.lock").unlink(missing_ok=True)
    cached(tmp_path / "folder", TOKENS, SOURCES, fail)
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_an_entry_that_was_made_from_something_else_is_made_again(tmp_path):
    """The name of an entry is a part of a hash: an entry that was copied, or has the same name by chance, is not used."""
    target, others = entry_path(tmp_path), {"corpus": Source("b.txt", "1" * 64)}
    cached(tmp_path, TOKENS, others, entry_of("of b.txt")).rename(target)
    cached(tmp_path, TOKENS, SOURCES, entry_of("of a.txt"))
    assert (target / "file").read_text() == "of a.txt"


def test_a_new_format_does_not_read_entries_of_the_old_one(tmp_path):
    newer = TOKENS._replace(format=TOKENS.format + 1)
    cached(tmp_path, TOKENS, SOURCES, entry_of("old"))
    assert (cached(tmp_path, newer, SOURCES, entry_of("new")) / "file").read_text() == "new"


def test_a_copy_under_another_name_is_the_same_source(tmp_path):
    cached(tmp_path, TOKENS, SOURCES, entry_of("whole"))
    cached(tmp_path, TOKENS, {"corpus": Source("copy.txt", "0" * 64)}, fail)


def test_of_a_large_entry_a_part_is_checked_and_sizes_always(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "BLOCK", 10)

    def write(folder):
        (folder / "a.bin").write_bytes(bytes(range(95)))
        (folder / "b.bin").write_bytes(b"")
        return {}

    folder = cached(tmp_path, TOKENS, SOURCES, write)
    assert cache_module.is_intact(folder)
    (folder / "a.bin").write_bytes(bytes([*range(50), 0, *range(51, 95)]))
    assert not cache_module.is_intact(folder)
    monkeypatch.setattr(cache_module, "MAX_CHECKED", 4)
    found = sum(not cache_module.is_intact(folder) for _ in range(200))
    assert 40 < found < 120  # 4 of 10 blocks: 80 are expected
    (folder / "b.bin").write_bytes(b"1")
    assert not any(cache_module.is_intact(folder) for _ in range(20))


def test_a_mapped_file_that_shrinks_is_named_as_long_as_an_array_needs_it(tmp_path):
    file, other = tmp_path / "numbers", tmp_path / "empty"
    file.write_bytes(np.arange(1000, dtype=np.int32).tobytes())
    other.touch()
    part = map_array(file, np.int32)[10:20]
    assert part.tolist() == list(range(10, 20))
    assert map_array(other, np.int32).shape == (0,)
    check_maps()
    os.truncate(file, 2000)
    with pytest.raises(DataError, match="numbers was truncated while it was read"):
        check_maps()
    del part
    check_maps()
    left = map_array(file, np.int32)
    file.unlink()
    check_maps()
    assert len(left) == 500
