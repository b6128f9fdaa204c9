"""Read the description of a model directory: modules, pooling and hashes.

Code that a file names is never imported. A path that leads out of the directory is an error.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jax_sentemb import provenance
from jax_sentemb.errors import OTHER_MODEL, REPLACE_MODEL, ModelFileError, Setting
from jax_sentemb.files import join_inside, quote, read_json, sha256, user_path
from jax_sentemb.formats.tensors import read_shapes
from jax_sentemb.provenance import EXPORT
from jax_sentemb.side_files.reader import read_side_file, warn_once

MAX_MODULES = 16
HASH_LIMIT = 1 << 28  # bytes; larger files are hashed only if their size fits the tensors in their header
MANIFEST = "jax_sentemb.json"  # written by exports of this package: SHA-256 of every file
WORD_WEIGHTS = ("config.json", "wordweights_config.json")  # the same content: from sentence-transformers 5 on, and before
# The first of these files that has content is read, as in sentence-transformers.
SENTENCE_CONFIGS = tuple(
    f"sentence_{name}_config.json" for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
OLD_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
}  # until sentence-transformers 5


def transformer_folder(path: str | Path) -> Path:
    """Return the folder with config.json, weights and tokenizer: `path`, or the folder that its modules.json names.

    Raises:
        ModelFileError: The first module is not a Transformer, or modules.json is damaged.
    """
    module_type, folder = read_modules(user_path(path))[0]
    if module_type != "Transformer":
        raise ModelFileError(f"{path}/modules.json: the first module is {module_type}, expected Transformer; {OTHER_MODEL}")
    return folder


def read_sentence_config(path: str | Path) -> tuple[Path, dict[str, Any]]:
    """Return the file with the maximum length and the tokenizer's settings, and its content.

    The content is {} if the directory has no modules.json or no such file.
    """
    root = user_path(path)
    folder = transformer_folder(root)
    names = SENTENCE_CONFIGS if (root / "modules.json").is_file() else ()
    for file in (folder / name for name in names):
        if file.is_file() and (content := read_side_file(file, "sentence_bert_config.json")):
            return file, content
    return folder / SENTENCE_CONFIGS[0], {}


def read_modules(root: Path) -> list[tuple[str, Path]]:
    """Return the type and the folder of each module of a sentence-transformers directory.

    A directory without modules.json is a single Transformer.

    Raises:
        ModelFileError: modules.json is damaged, or names code or a path outside the directory.
    """
    if not root.is_dir():
        raise ModelFileError(
            Setting("encoder.weights", str(root)), " is not a directory: give one with config.json and model.safetensors"
        )
    file = root / "modules.json"
    if not file.is_file():
        return [("Transformer", root)]
    modules, entries = [], read_side_file(file, "modules.json", list)
    if len(entries) > MAX_MODULES:
        raise ModelFileError(f"{file} names {len(entries):,} modules, at most {MAX_MODULES} are supported; {OTHER_MODEL}")
    for module in entries:
        name, folder = (module.get("type"), module.get("path")) if isinstance(module, dict) else (None, None)
        if not isinstance(name, str) or not name.startswith("sentence_transformers."):
            raise ModelFileError(
                f"{file}: type {quote(name)} is not a module of sentence-transformers, and code from a model directory is "
                f"never run; {OTHER_MODEL}"
            )
        modules.append((name.rsplit(".", 1)[1], join_inside(root, folder, file)))
    if not modules:
        raise ModelFileError(f"{file} names no module; {REPLACE_MODEL}")
    names = [module["name"] for module in entries if "name" in module]
    if len({*map(str, names)}) < len(names):
        raise ModelFileError(
            f"{file}: modules {quote(names)}: two have the same name, and sentence-transformers would drop one; rename one of them"
        )
    return modules


class Readout(NamedTuple):
    """The steps by which a sentence-transformers directory reduces token states to one vector."""

    pooling: str | None  # "cls", "mean" or "first_last"; None for a plain encoder directory
    normalize: bool  # to unit length
    cnn: Path | None  # folder of a CNN module between encoder and pooling
    masks_padding: bool  # token states at [PAD] are set to zero before the CNN
    dense: tuple[Path, ...] = ()  # folders of dense layers after the pooling
    layers: Path | None = None  # folder of a mean over layers before the pooling; `modules.check_layer_mean` reads it


def read_readout(path: str | Path) -> Readout:
    """Return the steps that follow the encoder of a directory.

    Raises:
        ModelFileError: A module, a pooling mode or their order is not supported.
    """
    modules = read_modules(user_path(path))
    types = [module_type for module_type, _ in modules]
    folders = dict(modules)
    if types == ["Transformer"]:
        return Readout(None, False, None, False)
    pooling = types.index("Pooling") if "Pooling" in types else 0
    before, after = types[1:pooling], types[pooling + 1 :]
    is_known = types[0] == "Transformer" and pooling and before in ([], ["CNN"], ["WordWeights", "CNN"], ["WeightedLayerPooling"])
    if not is_known or after not in (dense := ["Dense"] * after.count("Dense"), [*dense, "Normalize"]):
        raise ModelFileError(
            f"{path}: modules {' + '.join(types)[:200]} are not supported; supported are Transformer + Pooling, with or without "
            "a CNN or WeightedLayerPooling between them, and Dense and Normalize after them"
        )
    if "WordWeights" in folders:
        _check_plain_weights(folders["WordWeights"])
    file = folders["Pooling"] / "config.json"
    settings = read_side_file(file, "Pooling")
    mode: Any
    if "pooling_mode" in settings:  # sentence-transformers >= 6
        mode = settings["pooling_mode"]
    else:
        chosen = [key for key, is_on in settings.items() if key.startswith("pooling_mode_") and is_on]
        mode = OLD_POOLING_KEYS.get(chosen[0], chosen[0]) if len(chosen) == 1 else chosen
    if mode not in OLD_POOLING_KEYS.values():
        raise ModelFileError(f"{file}: pooling {quote(mode)} is neither cls nor mean; {OTHER_MODEL}")
    check_normalize(modules)
    mean_of_layers = folders.get("WeightedLayerPooling")
    if mean_of_layers is not None and mode != "mean":
        raise ModelFileError(f"{file}: pooling {mode} after WeightedLayerPooling is not supported, only mean; {OTHER_MODEL}")
    return Readout(
        "first_last" if mean_of_layers else mode,
        "Normalize" in types,
        folders.get("CNN"),
        "WordWeights" in types,
        tuple(folder for module_type, folder in modules if module_type == "Dense"),
        mean_of_layers,
    )


def check_normalize(modules: Sequence[tuple[str, Path]]) -> None:
    """Raise ModelFileError for a Normalize module that scales anything other than the embedding."""
    for module_type, folder in modules:
        if module_type == "Normalize" and (folder / "config.json").is_file():
            read_side_file(folder / "config.json", "Normalize")


NOT_SENTENCE_ENCODERS = ("MaskedLM",)  # methods whose exports have a pooling although they embed no sentences yet


def sentence_pooling(path: str | Path) -> str:
    """Return the pooling of a sentence encoder.

    It is "" for a plain encoder directory and for an export of masked-language-model training.
    """
    root = user_path(path)
    return "" if read_manifest(root).get("method") in NOT_SENTENCE_ENCODERS else read_readout(root).pooling or ""


def _check_plain_weights(folder: Path) -> None:
    """Raise ModelFileError unless all word weights are 1. Exports have such a module because it sets [PAD] to zero."""
    for file in (folder / name for name in WORD_WEIGHTS):
        settings = read_side_file(file, "WordWeights")
        if settings.get("word_weights") or settings.get("unknown_word_weight") != 1:
            raise ModelFileError(f"{file}: different word weights are not supported; {OTHER_MODEL}")


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
        raise ModelFileError(f"{file} is damaged: it does not list the SHA-256 of the files; export the model again")
    return content


def check_hashes(root: Path) -> None:
    """Compare the files of an export with its manifest, if it has one. Directories of other programs have no manifest.

    README.md is not compared, because the owner of a model may edit it. A file that the manifest does not list and that could
    change embeddings causes a warning.

    Raises:
        ModelFileError: A file is missing or differs, or the manifest has another format.
    """
    listed = read_manifest(root).get("sha256", {})
    for name, digest in listed.items():
        file = join_inside(root, name, root / MANIFEST)
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
    """Raise ModelFileError for a file that would take long to hash and has more bytes than such a file can have."""
    if file.is_file() and file.stat().st_size > HASH_LIMIT:
        if file.suffix != ".safetensors":
            raise ModelFileError(
                f"{file} has {file.stat().st_size:,} bytes, too many for a file next to the weights; {REPLACE_MODEL}"
            )
        read_shapes(file)
