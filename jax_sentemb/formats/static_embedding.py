"""Static tables of token vectors as files: the module StaticEmbedding of sentence-transformers, read and written.

modules.json                 StaticEmbedding, and Normalize where embeddings have unit length
model.safetensors            embedding.weight, float32 [V, E]
tokenizer.json               the pieces, without special tokens: the text "[SEP]" stays text
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tokenizers
from jaxtyping import Float
from safetensors.numpy import save

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokenizer_checks import check_rows
from jax_sentemb.errors import ModelFileError
from jax_sentemb.files import inside, read_json, shown, write_json, write_text
from jax_sentemb.formats.encode_settings import DEFAULTS, FILE, EncodeSettings, read_encode_settings
from jax_sentemb.formats.model_dir import check_hashes, read_modules
from jax_sentemb.formats.tensors import check_finite, read_safetensors

WEIGHT = "embedding.weight"
KIND = "StaticEmbedding"


class StaticTable(NamedTuple):
    """A vector for each piece of a vocabulary; the embedding of a text is the mean of those of its pieces."""

    vectors: Float[np.ndarray, "pieces width"]  # float32
    tokenizer: Tokenizer
    normalize: bool  # embeddings have unit length
    max_seq_length: int | None = None  # pieces to which a text is cut
    settings: EncodeSettings = DEFAULTS


def is_static(directory: Path) -> bool:
    """Whether the first module of a directory is a StaticEmbedding."""
    file = directory / "modules.json"
    if not file.is_file():
        return False
    first = read_json(file, list)[:1]
    return bool(first) and isinstance(first[0], dict) and str(first[0].get("type")).endswith(KIND)


def write_static(directory: Path, table: StaticTable) -> None:
    """Write the files of a table into `directory`, except a card and a manifest."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {WEIGHT: np.ascontiguousarray(table.vectors, np.float32)}
    (directory / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    write_text(directory / "tokenizer.json", _tokenizer_json(table))
    kinds = [("", KIND), *([("1_Normalize", "Normalize")] if table.normalize else [])]
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(kinds)
    ]
    write_json(directory / "modules.json", modules)
    for path, _ in kinds[1:]:
        (directory / path).mkdir(exist_ok=True)
        write_json(directory / path / "config.json", {})
    write_json(directory / FILE, table.settings.to_json())


def read_static(directory: Path) -> StaticTable:
    """The table of a directory. ModelFileError where a file is missing, damaged, or the modules are other ones."""
    check_hashes(directory)
    modules = read_modules(directory)
    kinds = [kind for kind, _ in modules]
    if kinds not in ([KIND], [KIND, "Normalize"]):
        raise ModelFileError(f"{directory}: modules {' + '.join(kinds)[:200]}: we know {KIND}, with Normalize behind it or not")
    folder = modules[0][1]
    tensors = read_safetensors(inside(folder, "model.safetensors", directory / "modules.json"))
    check_finite(tensors, folder)
    vectors = tensors.get(WEIGHT)
    if vectors is None or vectors.ndim != 2 or not vectors.size:
        found = {name: list(tensor.shape) for name, tensor in tensors.items()}
        raise ModelFileError(f"{folder}/model.safetensors: expected a matrix {WEIGHT}, found {shown(found)}")
    tokenizer = Tokenizer.load(folder)
    check_rows(tokenizer.vocab_size, len(vectors), folder)
    cut = (read_json(folder / "tokenizer.json").get("truncation") or {}).get("max_length")
    return StaticTable(vectors, tokenizer, "Normalize" in kinds, cut, read_encode_settings(directory))


def _tokenizer_json(table: StaticTable) -> str:
    """Return tokenizer.json in which no text is a special token: the module cannot be told to read "[SEP]" as text."""
    inner = tokenizers.Tokenizer.from_str(table.tokenizer.serialized)
    pieces = inner.get_vocab(with_added_tokens=False)
    if table.max_seq_length is not None:
        inner.enable_truncation(table.max_seq_length)
    state = json.loads(inner.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] not in pieces]
    state |= {"post_processor": None, "padding": None}
    return json.dumps(state, ensure_ascii=False)
