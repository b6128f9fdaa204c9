"""Reads the description of a model directory: modules, pooling, hashes.

Code that a file names is never imported, and paths out of the directory are errors.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jax_sentemb import provenance
from jax_sentemb.errors import ModelFileError, Setting
from jax_sentemb.files import inside, read_json, sha256, shown, user_path
from jax_sentemb.formats.tensors import read_shapes
from jax_sentemb.provenance import EXPORT
from jax_sentemb.side_files.reader import read_side_file, warn_once

MODULES = 16  # largest number of modules
HASHED = 1 << 28  # bytes of a file that is hashed before anything else is known of it
MANIFEST = "jax_sentemb.json"  # of our own exports: SHA-256 of every file
WORD_WEIGHTS = ("config.json", "wordweights_config.json")  # the same content, for sentence-transformers from 5 on and before
# The first of these files that has content is read, as in sentence-transformers.
SENTENCE_CONFIGS = tuple(
    f"sentence_{name}_config.json" for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
OLD_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
}  # until sentence-transformers 5


def transformer_folder(path: str | Path) -> Path:
    """The folder with config.json, weights and tokenizer: `path`, or the folder that its modules.json names."""
    kind, folder = read_modules(user_path(path))[0]
    if kind != "Transformer":
        raise ModelFileError(f"{path}/modules.json: the first module is {kind}, expected Transformer")
    return folder


def read_sentence_config(path: str | Path) -> tuple[Path, dict[str, Any]]:
    """Return the file with the length and the tokenizer's settings, and its content; {} without a list of modules or a file."""
    root = user_path(path)
    folder = transformer_folder(root)
    names = SENTENCE_CONFIGS if (root / "modules.json").is_file() else ()
    for file in (folder / name for name in names):
        if file.is_file() and (content := read_side_file(file, "sentence_bert_config.json")):
            return file, content
    return folder / SENTENCE_CONFIGS[0], {}


def read_modules(root: Path) -> list[tuple[str, Path]]:
    """(kind, folder) of the modules of a sentence-transformers directory; a directory without modules.json is one Transformer."""
    if not root.is_dir():
        raise ModelFileError(
            Setting("encoder.weights", str(root)), " is not a directory: give one with config.json and model.safetensors"
        )
    file = root / "modules.json"
    if not file.is_file():
        return [("Transformer", root)]
    modules, stated = [], read_side_file(file, "modules.json", list)
    if len(stated) > MODULES:
        raise ModelFileError(f"{file} names {len(stated):,} modules, at most {MODULES} are supported")
    for module in stated:
        name, folder = (module.get("type"), module.get("path")) if isinstance(module, dict) else (None, None)
        if not isinstance(name, str) or not name.startswith("sentence_transformers."):
            raise ModelFileError(
                f"{file}: type {shown(name)} is not a module of sentence-transformers; code from a model directory is never run"
            )
        modules.append((name.rsplit(".", 1)[1], inside(root, folder, file)))
    if not modules:
        raise ModelFileError(f"{file} names no module")
    names = [module["name"] for module in stated if "name" in module]
    if len({*map(str, names)}) < len(names):
        raise ModelFileError(f"{file}: two modules have the same name, of which sentence-transformers keeps one: {shown(names)}")
    return modules


class Readout(NamedTuple):
    """The steps by which a sentence-transformers directory reduces token states to one vector."""

    pooling: str | None  # "cls", "mean" or "first_last"; None for a plain encoder directory
    normalize: bool  # to unit length
    cnn: Path | None  # folder of a CNN module between encoder and pooling
    masked: bool  # token states at [PAD] are set to zero before the CNN
    dense: tuple[Path, ...] = ()  # folders of dense layers behind the pooling
    layers: Path | None = None  # folder of a mean over layers before the pooling; `modules.check_layer_mean` reads it


def read_readout(path: str | Path) -> Readout:
    """The modules that follow the encoder of a directory; ModelFileError if their embedding is not supported."""
    modules = read_modules(user_path(path))
    kinds = [kind for kind, _ in modules]
    folders = dict(modules)
    if kinds == ["Transformer"]:
        return Readout(None, False, None, False)
    place = kinds.index("Pooling") if "Pooling" in kinds else 0
    middle, behind = kinds[1:place], kinds[place + 1 :]
    known = kinds[0] == "Transformer" and place and middle in ([], ["CNN"], ["WordWeights", "CNN"], ["WeightedLayerPooling"])
    if not known or behind not in (dense := ["Dense"] * behind.count("Dense"), [*dense, "Normalize"]):
        raise ModelFileError(
            f"{path}: modules {' + '.join(kinds)[:200]} are not supported; supported are Transformer + Pooling, with or without "
            "a CNN or WeightedLayerPooling between them, and Dense and Normalize after them"
        )
    if "WordWeights" in folders:
        _check_plain_weights(folders["WordWeights"])
    file = folders["Pooling"] / "config.json"
    stated = read_side_file(file, "Pooling")
    mode: Any
    if "pooling_mode" in stated:  # sentence-transformers >= 6
        mode = stated["pooling_mode"]
    else:
        chosen = [key for key, on in stated.items() if key.startswith("pooling_mode_") and on]
        mode = OLD_POOLING_KEYS.get(chosen[0], chosen[0]) if len(chosen) == 1 else chosen
    if mode not in OLD_POOLING_KEYS.values():
        raise ModelFileError(f"{file}: pooling {shown(mode)} is neither cls nor mean")
    check_normalize(modules)
    mean_of_layers = folders.get("WeightedLayerPooling")
    if mean_of_layers is not None and mode != "mean":
        raise ModelFileError(f"{file}: pooling {mode} after WeightedLayerPooling is not supported, only mean")
    return Readout(
        "first_last" if mean_of_layers else mode,
        "Normalize" in kinds,
        folders.get("CNN"),
        "WordWeights" in kinds,
        tuple(folder for kind, folder in modules if kind == "Dense"),
        mean_of_layers,
    )


def check_normalize(modules: Sequence[tuple[str, Path]]) -> None:
    """Raise ModelFileError for a Normalize module that scales something else than the embedding."""
    for kind, folder in modules:
        if kind == "Normalize" and (folder / "config.json").is_file():
            read_side_file(folder / "config.json", "Normalize")


NO_ENCODER = ("MaskedLM",)  # methods whose exports have a pooling but are not sentence encoders yet


def sentence_pooling(path: str | Path) -> str:
    """The pooling of a sentence encoder; "" for a plain encoder directory and an export of masked-language-model training."""
    root = user_path(path)
    return "" if read_manifest(root).get("method") in NO_ENCODER else read_readout(root).pooling or ""


def _check_plain_weights(folder: Path) -> None:
    """ModelFileError unless all word weights are 1. Exports have such a module because it sets [PAD] to zero."""
    for file in (folder / name for name in WORD_WEIGHTS):
        stated = read_side_file(file, "WordWeights")
        if stated.get("word_weights") or stated.get("unknown_word_weight") != 1:
            raise ModelFileError(f"{file}: different word weights are not supported")


def read_manifest(root: Path) -> dict[str, Any]:
    """Return the manifest of an export, {} for a directory without one.

    Raises:
        ModelFileError: The manifest is damaged or has another format.
    """
    file = root / MANIFEST
    if not file.is_file():
        return {}
    content = read_json(file)
    provenance.check(file, content, EXPORT)
    if not isinstance(content.get("sha256"), dict):
        raise ModelFileError(f"{file} is damaged: it does not have the SHA-256 of the files")
    return content


def check_hashes(root: Path) -> None:
    """Compare the files of an export with its manifest; directories of other programs have no manifest.

    README.md is not compared, because the owner of a model may edit it. A warning names a file that the manifest does not list
    and that could change embeddings.

    Raises:
        ModelFileError: A file is missing or differs, or the manifest has another format.
    """
    listed = read_manifest(root).get("sha256", {})
    for name, digest in listed.items():
        file = inside(root, name, root / MANIFEST)
        _check_size(file)
        if name != "README.md" and sha256(file) != digest:
            raise ModelFileError(
                f"{file} has changed since the export: its SHA-256 differs from {MANIFEST}; export again, or delete {MANIFEST} if "
                "you changed the model"
            )
    for folder in {(root / name).parent for name in listed}:
        for file in sorted([*folder.glob("*.json"), *folder.glob("*.safetensors")]):
            name = file.relative_to(root).as_posix()
            if name not in listed and name != MANIFEST:
                warn_once(file, "", f"{file} is not listed in {MANIFEST}: it was added after the export")


def _check_size(file: Path) -> None:
    """Raise ModelFileError for a file that would take long to hash, and that has more bytes than it can have."""
    if file.is_file() and file.stat().st_size > HASHED:
        if file.suffix != ".safetensors":
            raise ModelFileError(f"{file} has {file.stat().st_size:,} bytes, too many for a file beside the weights")
        read_shapes(file)
