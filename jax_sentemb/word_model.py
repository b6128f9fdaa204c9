"""Models on word vectors as files: settings, weights and vocabulary in one directory, read back without any code from it.

model.json          {"format": "jax_sentemb words", "method": name, "settings": {...}, "encoder": {...}, "max_seq_length": n}
model.safetensors   every parameter by its path, for instance f/forward/input/kernel
tokenizer.json      the words
"""

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors import SafetensorError
from safetensors.numpy import load, save

from jax_sentemb import __version__
from jax_sentemb.errors import ModelFileError
from jax_sentemb.evaluation.embed import Embedder
from jax_sentemb.export import PROBES, staged, verify_export
from jax_sentemb.methods.cons_sent import ConsSent
from jax_sentemb.methods.multi_view import MultiView
from jax_sentemb.model_folder import MANIFEST, check_hashes, read_json, sha256
from jax_sentemb.models.words import FROZEN, WordsConfig, WordVectors
from jax_sentemb.text.words import WordTokenizer
from jax_sentemb.types import Params

FORMAT = "jax_sentemb words"
METHODS = {"ConsSent": ConsSent, "MultiView": MultiView}  # what a file may name


def is_word_model(directory: str | Path) -> bool:
    """Whether a directory says that it is one of these."""
    file = Path(directory) / "model.json"
    return file.is_file() and read_json(file).get("format") == FORMAT


def export_word_model(
    directory: Path,
    facts: dict[str, Any],
    params: Params,
    tokenizer: WordTokenizer,
    embed: Callable[[Sequence[str]], np.ndarray],
    step: int,
) -> None:
    """Write, verify and publish a directory as `export.export` does; `facts` are those of the run."""
    stated = {"format": FORMAT, **{name: facts[name] for name in ("method", "settings", "encoder", "max_seq_length")}}
    with staged(directory) as stage:
        write_word_model(stage, stated, params, tokenizer)
        lines = [f"# {facts['name']}", "", f"{facts['method']} on word vectors, by jax_sentemb {__version__}; step {step}.", ""]
        lines += ["    python -m jax_sentemb.evaluate --model THIS_FOLDER --data path/to/SentEval/data --tasks sts", ""]
        lines += [f"* {name}: {value}" for name, value in facts["training"].items()]
        (stage / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        difference = verify_export(stage, embed, PROBES, read_word_model)
        hashes = {file.name: sha256(file) for file in sorted(stage.iterdir())}
        manifest = {"jax_sentemb": __version__, "verification": {"max_abs_difference": difference}, "sha256": hashes}
        (stage / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    print(f"export {directory}: max abs difference {difference:.1e} over {len(PROBES)} sentences", flush=True)


def write_word_model(directory: Path, facts: dict[str, Any], params: Params, tokenizer: WordTokenizer) -> None:
    """The three files; word counts, which only training needs, are left out."""
    kept = {**params, FROZEN: {name: leaf for name, leaf in params[FROZEN].items() if name != "counts"}}
    tensors = {path: np.asarray(leaf, np.float32) for path, leaf in flatten_dict(kept, sep="/").items()}
    (directory / "model.safetensors").write_bytes(save(tensors))
    (directory / "model.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    tokenizer.save(directory)


def embedder_of(facts: dict[str, Any], tokenizer: WordTokenizer, batch_size: int = 64, where: str = "model.json") -> Embedder:
    """(params, sentences) -> float32 [N, E]; ModelFileError for facts that describe no method of ours."""
    try:
        method = METHODS[facts["method"]](**facts["settings"])
        encoder = WordVectors(WordsConfig(**facts["encoder"]))
        length = int(facts["max_seq_length"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{where} describes no model that this version knows: {type(error).__name__} {error}") from None
    method.check(encoder, 2**30)
    return Embedder(lambda params, rows: method.embed(encoder, params, rows), tokenizer, length, batch_size)


def read_word_model(directory: str | Path, batch_size: int = 64) -> Callable[[Sequence[str]], np.ndarray]:
    """Sentences -> float32 [N, E] by a directory; ModelFileError where it is damaged or changed."""
    directory = Path(directory)
    facts, file = read_json(directory / "model.json"), directory / "model.safetensors"
    check_hashes(directory, [directory / "model.json", file, directory / "tokenizer.json"])
    try:
        params = unflatten_dict(load(file.read_bytes()), sep="/")
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise ModelFileError(f"{file} is missing or damaged: {str(error)[:200]}") from None
    embedder = embedder_of(facts, WordTokenizer.load(directory), batch_size, str(directory / "model.json"))
    return functools.partial(embedder, params)
