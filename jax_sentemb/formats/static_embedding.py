"""Static tables of token vectors as files: the module StaticEmbedding of sentence-transformers, read and written.

modules.json                 StaticEmbedding, and Normalize where embeddings have unit length
model.safetensors            embedding.weight, float32 [V, E]; of model2vec embeddings [K, E], mapping [V] and weights [V]
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
from jax_sentemb.formats.model_dir import check_hashes, check_normalize, read_modules
from jax_sentemb.formats.tensors import check_finite, read_safetensors
from jax_sentemb.side_files.reader import check_links, read_side_file

WEIGHT = "embedding.weight"
KIND = "StaticEmbedding"
MODEL2VEC_LENGTH = 512  # pieces to which model2vec cuts a text by default


class StaticTable(NamedTuple):
    """A vector for each piece of a vocabulary; the embedding of a text is the mean of those of its pieces."""

    vectors: Float[np.ndarray, "pieces width"]  # float32
    tokenizer: Tokenizer
    normalize: bool  # embeddings have unit length
    max_seq_length: int | None = None  # pieces to which a text is cut
    settings: EncodeSettings = DEFAULTS


def is_static(directory: Path) -> bool:
    """Return whether the first module of a directory is a StaticEmbedding, or whether model2vec wrote it without modules."""
    file = directory / "modules.json"
    if not file.is_file():
        config = directory / "config.json"
        content = read_json(config) if config.is_file() else {}
        return content.get("model_type") == "model2vec" or content.get("architectures") == ["StaticModel"]
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
    """Read the table of a directory that sentence-transformers, model2vec or this package wrote.

    Raises:
        ModelFileError: A file is missing or damaged, or the modules are not StaticEmbedding with or without Normalize.
    """
    check_hashes(directory)
    check_links(directory)
    folder, normalize, cut = directory, False, None
    if (directory / "modules.json").is_file():
        modules = read_modules(directory)
        kinds, folder = [kind for kind, _ in modules], modules[0][1]
        if kinds not in ([KIND], [KIND, "Normalize"]):
            raise ModelFileError(
                f"{directory}: unsupported modules {' + '.join(kinds)[:200]}; only {KIND}, with or without Normalize, can be read"
            )
        check_normalize(modules)
        normalize = "Normalize" in kinds
    else:
        config = read_side_file(directory / "config.json", "model2vec")
        normalize, cut = bool(config.get("normalize")), config.get("max_length", MODEL2VEC_LENGTH)
    vectors = _vectors(inside(folder, "model.safetensors", directory))
    tokenizer, stated_cut = Tokenizer.load_pieces(folder)
    check_rows(tokenizer.vocab_size, len(vectors), folder)
    return StaticTable(vectors, tokenizer, normalize, stated_cut or cut, read_encode_settings(directory))


def _vectors(file: Path) -> Float[np.ndarray, "pieces width"]:
    """Return a vector for each piece; model2vec may share vectors between pieces and scale them."""
    tensors = read_safetensors(file, integers=("mapping", "embeddings"))
    check_finite(tensors, file)
    vectors = tensors.get(WEIGHT, tensors.get("embeddings"))
    if vectors is None or vectors.ndim != 2 or not vectors.size:
        shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
        raise ModelFileError(f"{file}: expected a matrix {WEIGHT} or embeddings, got {shown(shapes)}")
    if WEIGHT in tensors:
        return vectors
    mapping, weights = tensors.get("mapping", np.arange(len(vectors))), tensors.get("weights")
    if mapping.ndim != 1 or mapping.dtype != np.int64 or mapping.min(initial=0) < 0 or mapping.max(initial=0) >= len(vectors):
        raise ModelFileError(f"{file}: mapping does not give the number of a row of embeddings [{len(vectors)}] for each piece")
    if weights is not None and weights.shape != mapping.shape:
        raise ModelFileError(
            f"{file}: weights has shape {list(weights.shape)}, expected one number for each of {len(mapping)} pieces"
        )
    vectors = vectors.astype(np.float32)[mapping]
    return vectors if weights is None else vectors * weights[:, None]


def _tokenizer_json(table: StaticTable) -> str:
    """Return tokenizer.json in which no text is a special token: the module cannot be told to read "[SEP]" as text."""
    inner = tokenizers.Tokenizer.from_str(table.tokenizer.serialized)
    pieces = {*inner.get_vocab(with_added_tokens=False)} & {*table.tokenizer.names.values()}
    if table.max_seq_length is not None:
        inner.enable_truncation(table.max_seq_length)
    state = json.loads(inner.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] not in pieces]
    state |= {"post_processor": None, "padding": None}
    return json.dumps(state, ensure_ascii=False)
