"""Check the parts of a corpus that are encoded separately into one directory, and join their lists to vectors.json."""

import contextlib
from pathlib import Path
from typing import Any

from filelock import FileLock

from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.provenance import VECTORS, check
from jax_sentemb.retrieval.vector_manifest import (
    LISTS,
    MANIFEST,
    Part,
    find_shard_damage,
    read_list,
    read_manifest,
    sources_of,
    write_manifest,
)  # fmt: skip


def check_part(directory: Path, part: Part, metadata: dict[str, Any]) -> None:
    """Raise ConfigError if a part does not fit the files in the folder, or its precision needs the whole corpus."""
    precision = sources_of(metadata)["precision"]
    if part.total > 1 and precision in ("int8", "uint8"):
        problem = "all shards need the same ranges of values, which are those of the whole text"
        raise ConfigError(f"--precision {precision}: {problem}; encode parts with float32 or binary")
    if (directory / MANIFEST).is_file():
        return
    suffix = f"-of-{part.total}.json" if part.total > 1 else "/"
    lists = sorted(directory.glob(LISTS))
    if unexpected := [file.name for file in lists if not file.name.endswith(suffix)]:
        raise ConfigError(f"--output {directory} holds {unexpected[0]}: encode its other parts, or give another directory")
    for file in [file for file in lists if file.name != part.list_name][:1]:  # the other lists were compared with this list
        with contextlib.suppress(DataError):  # the command for that part reports its damaged list
            _check_same(file, read_list(file), metadata)


def join_parts(directory: Path, part: Part) -> dict[str, Any] | None:
    """Write vectors.json if all parts are complete, and return it; None if a part is missing.

    Raises:
        ConfigError: Two parts were made from different sources.
        DataError: A shard differs from its list.
    """
    with FileLock(directory / "LOCK"):
        if (directory / MANIFEST).is_file():  # the process of another part was the last
            return read_manifest(directory)
        if len(list(directory.glob(LISTS))) < part.total:
            return None
        files = [directory / each.list_name for each in part.all_parts()]
        lists = [read_list(file) for file in files if file.is_file()]
        if len(lists) < part.total or not all(shard_list["complete"] for shard_list in lists):
            return None
        for file, shard_list in zip(files, lists, strict=True):
            _check_same(file, shard_list, lists[0])
            for shard in shard_list["shards"]:
                if problem := find_shard_damage(directory / shard["file"], shard, file.name):
                    raise DataError(f"{directory / shard['file']}: {problem}; encode the part of {file.name} again")
        manifest = _join(lists)
        write_manifest(directory / MANIFEST, manifest)
        for file in files:
            file.unlink()
            file.with_suffix(".LOCK").unlink(missing_ok=True)
    return manifest


def _check_same(file: Path, shard_list: dict[str, Any], expected: dict[str, Any]) -> None:
    """Raise ConfigError if the list in `file` has other sources than `expected`."""
    remedy = "all parts need the same sources: if those of the file are wrong, delete it and encode its part again"
    check(file, shard_list, VECTORS, sources_of(expected), ConfigError, (remedy,))


def _join(lists: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one manifest from the complete lists of all parts, in order."""
    common = {name: value for name, value in lists[0].items() if name not in ("part", "first_shard", "sha256", "complete")}
    shards = [shard for shard_list in lists for shard in shard_list["shards"]]
    widths = {shard_list["width"] for shard_list in lists if shard_list["width"] is not None}
    rows = sum(shard_list["rows"] for shard_list in lists)
    return {**common, "rows": rows, "width": max(widths, default=None), "shards": shards}
