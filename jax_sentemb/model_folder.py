"""What a model directory says about itself: its modules, its pooling, its length limit, its hashes.

No code that a file names is imported, and no path that a file names leads out of the directory.
"""

import hashlib
import json
import reprlib
from pathlib import Path, PureWindowsPath
from typing import Any, NamedTuple

from jax_sentemb.errors import ModelFileError
from jax_sentemb.paths import user_path

JSON_LIMIT = 1 << 24  # bytes; what describes a model has a few thousand, and a value takes 20 times its text in memory
MODULES = 16  # of a directory: we know four
MANIFEST = "jax_sentemb.json"  # of our own exports: SHA-256 of every file
WORD_WEIGHTS = ("config.json", "wordweights_config.json")  # the same content: since sentence-transformers 5, and before
OLD_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
}  # until sentence-transformers 5
_repr = reprlib.Repr()  # looks a few levels and entries deep into a value, however large it is
_repr.maxstring = _repr.maxother = 100
shown = _repr.repr  # a value from a file, for a message


def transformer_folder(path: str | Path) -> Path:
    """The folder with config.json, weights and tokenizer: `path` itself, or the one that its modules.json names."""
    kind, folder = _modules(user_path(path))[0]
    if kind != "Transformer":
        raise ModelFileError(f"{path}/modules.json: the first module is {kind}, expected Transformer")
    return folder


def read_json(path: Path, kind: type = dict) -> Any:
    """The content of a JSON file whose outermost value is a `kind`."""
    try:
        check_own(path)
        if path.stat().st_size > JSON_LIMIT:
            raise ModelFileError(f"{path} has {path.stat().st_size:,} bytes, more than a description of a model needs")
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not JSON: {str(error)[:100]}") from None
    if not isinstance(value, kind):
        raise ModelFileError(f"{path} holds a {type(value).__name__}, expected a {kind.__name__}")
    return value


def check_regular(file: Path) -> None:
    """ModelFileError for a pipe, for instance: who opens one may wait for ever."""
    if file.exists() and not file.is_file():
        raise ModelFileError(f"{file} is a folder or a pipe, expected a file")


def check_own(file: Path) -> None:
    """As `check_regular`, and for a link that leads out of the file's folder; the hub's cache links to its blobs."""
    check_regular(file)
    if file.is_symlink():
        inside(file.parent, file.name, file)


def _modules(root: Path) -> list[tuple[str, Path]]:
    """(kind, folder) of the modules of a sentence-transformers directory; a plain directory is one Transformer."""
    if not root.is_dir():
        raise ModelFileError(f"encoder.weights={str(root)!r} is not a directory: give one with config.json and model.safetensors")
    file = root / "modules.json"
    if not file.is_file():
        return [("Transformer", root)]
    modules, stated = [], read_json(file, list)
    if len(stated) > MODULES:
        raise ModelFileError(f"{file} names {len(stated):,} modules, more than any model that we know has")
    for module in stated:
        name, folder = (module.get("type"), module.get("path")) if isinstance(module, dict) else (None, None)
        if not isinstance(name, str) or not name.startswith("sentence_transformers."):
            raise ModelFileError(
                f"{file}: type {shown(name)} is no sentence-transformers module; code that a model names is not run"
            )
        modules.append((name.rsplit(".", 1)[1], inside(root, folder, file)))
    if not modules:
        raise ModelFileError(f"{file} names no module")
    return modules


def inside(root: Path, name: Any, source: Path) -> Path:
    """root/name; ModelFileError where that is not below `root`, links followed. `source` is the file that names it."""
    limit = root.resolve()
    for folder in (limit, limit.parent):
        if folder.parent.name == "snapshots":  # the hub's cache: files in snapshots/REVISION[/MODULE] are links into blobs/
            limit = folder.parent.parent
    relative = isinstance(name, str) and not PureWindowsPath(name).anchor and ".." not in Path(name).parts
    try:
        within = relative and (root / name).resolve().is_relative_to(limit)
        if within:
            (root / name).exists()  # OSError for a name that is too long
    except (OSError, ValueError, RuntimeError):  # NUL and lone surrogates are ValueErrors, a circle of links a RuntimeError
        within = False
    if not within:
        raise ModelFileError(f"{source}: path {shown(name)} leads out of {root} or nowhere")
    return root / name


class Readout(NamedTuple):
    """How a sentence-transformers directory makes one vector of token states."""

    pooling: str | None  # "cls" or "mean"; None for a plain encoder directory
    normalize: bool  # to unit length
    cnn: Path | None  # folder of a CNN module between encoder and pooling
    masked: bool  # token states at [PAD] are set to zero before the CNN


def read_readout(path: str | Path) -> Readout:
    """What stands behind the encoder of a directory.

    ModelFileError where the directory computes its embedding in a way that we cannot.
    """
    modules = _modules(user_path(path))
    kinds = [kind for kind, _ in modules]
    folders = dict(modules)
    if kinds == ["Transformer"]:
        return Readout(None, False, None, False)
    known = [
        ["Transformer", *middle, "Pooling", *end] for middle in ([], ["CNN"], ["WordWeights", "CNN"]) for end in ([], ["Normalize"])
    ]
    if kinds not in known:
        raise ModelFileError(
            f"{path}: modules {' + '.join(kinds)[:200]}: we know Transformer + Pooling, a CNN between and Normalize behind or not"
        )
    if "WordWeights" in folders:
        _check_plain_weights(folders["WordWeights"])
    file = folders["Pooling"] / "config.json"
    stated = read_json(file)
    mode: Any
    if "pooling_mode" in stated:  # sentence-transformers >= 6
        mode = stated["pooling_mode"]
    else:
        chosen = [key for key, on in stated.items() if key.startswith("pooling_mode_") and on]
        mode = OLD_POOLING_KEYS.get(chosen[0], chosen[0]) if len(chosen) == 1 else chosen
    if mode not in OLD_POOLING_KEYS.values():
        raise ModelFileError(f"{file}: pooling {shown(mode)} is neither cls nor mean")
    return Readout(mode, "Normalize" in kinds, folders.get("CNN"), "WordWeights" in kinds)


def _check_plain_weights(folder: Path) -> None:
    """An export has a module of equal word weights because it sets [PAD] to zero; any other weighting is not ours."""
    for file in (folder / name for name in WORD_WEIGHTS):
        stated = read_json(file)
        if stated.get("word_weights") or stated.get("unknown_word_weight") != 1:
            raise ModelFileError(f"{file}: words of different weight are not supported")


def check_hashes(root: Path) -> None:
    """ModelFileError where an export of ours lacks a file of its manifest, or has another one; others have no manifest.

    README.md is left out: an owner may edit it.
    """
    if not (root / MANIFEST).is_file():
        return
    expected = read_json(root / MANIFEST).get("sha256")
    if not isinstance(expected, dict):
        raise ModelFileError(f"{root / MANIFEST} is damaged: it has no SHA-256 of the files")
    for name, digest in expected.items():
        file = inside(root, name, root / MANIFEST)
        if name != "README.md" and sha256(file) != digest:
            raise ModelFileError(f"{file} is not the file that was exported: its SHA-256 differs from {MANIFEST}")


def sha256(file: Path) -> str:
    """Hex digest of a file's content."""
    try:
        check_regular(file)
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise ModelFileError(f"{file}: {error.strerror}") from None
