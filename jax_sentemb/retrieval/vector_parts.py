"""Parts of a corpus that are encoded apart into one directory: whether they fit each other, and vectors.json of all of them."""

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
    read_list,
    read_manifest,
    shard_damage,
    sources_of,
    write_manifest,
)  # fmt: skip


def check_part(directory: Path, part: Part, metadata: dict[str, Any]) -> None:
    """ConfigError where a part does not fit what is in the folder already, or its precision needs the whole corpus."""
    precision = sources_of(metadata)["precision"]
    if part.total > 1 and precision in ("int8", "uint8"):
        problem = "the bytes of all shards stand for the ranges of the first one"
        raise ConfigError(f"--precision {precision}: {problem}; encode parts with float32 or binary")
    if (directory / MANIFEST).is_file():
        return
    ours = f"-of-{part.total}.json" if part.total > 1 else "/"
    lists = sorted(directory.glob(LISTS))
    if strange := [file.name for file in lists if not file.name.endswith(ours)]:
        raise ConfigError(f"--output {directory} holds {strange[0]}: encode its other parts, or give another directory")
    for file in [file for file in lists if file.name != part.list_name][:1]:  # the others were compared with it
        with contextlib.suppress(DataError):  # that part says itself that its list is damaged
            _check_same(file, read_list(file), metadata)


def join_parts(directory: Path, part: Part) -> dict[str, Any] | None:
    """Write vectors.json if all parts are complete and their shards are what their lists say; else None."""
    with FileLock(directory / "LOCK"):
        if (directory / MANIFEST).is_file():  # another part was the last one
            return read_manifest(directory)
        if len(list(directory.glob(LISTS))) < part.total:
            return None
        files = [directory / one.list_name for one in part.all_parts()]
        lists = [read_list(file) for file in files if file.is_file()]
        if len(lists) < part.total or not all(one["complete"] for one in lists):
            return None
        for file, one in zip(files, lists, strict=True):
            _check_same(file, one, lists[0])
            for shard in one["shards"]:
                if problem := shard_damage(directory / shard["file"], shard, file.name):
                    raise DataError(f"{directory / shard['file']}: {problem}; encode the part of {file.name} again")
        manifest = _joined(lists)
        write_manifest(directory / MANIFEST, manifest)
        for file in files:
            file.unlink()
            file.with_suffix(".LOCK").unlink(missing_ok=True)
    return manifest


def _check_same(file: Path, found: dict[str, Any], other: dict[str, Any]) -> None:
    """ConfigError where the sources of a part differ from those of another part, or of a command."""
    remedy = "all parts need the same: if those of the file are wrong, delete it and encode its part again"
    check(file, found, VECTORS, sources_of(other), ConfigError, remedy)


def _joined(lists: list[dict[str, Any]]) -> dict[str, Any]:
    """One manifest from the complete lists of all parts, in order."""
    whole = {name: value for name, value in lists[0].items() if name not in ("part", "first_shard", "sha256", "complete")}
    shards = [shard for one in lists for shard in one["shards"]]
    widths = {one["width"] for one in lists if one["width"] is not None}
    return {**whole, "rows": sum(one["rows"] for one in lists), "width": max(widths, default=None), "shards": shards}
