"""Read and write static tables of token vectors: the module StaticEmbedding of sentence-transformers.

modules.json                 StaticEmbedding, and Normalize if embeddings have unit length
model.safetensors            embedding.weight, float32 [V, E]; model2vec has embeddings [K, E], mapping [V] and weights [V] instead
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
from jax_sentemb.errors import CORRECT, REPLACE_MODEL, ModelFileError
from jax_sentemb.files import join_inside, quote, read_json, write_json, write_text
from jax_sentemb.formats.encode_settings import DEFAULTS, FILE, EncodeSettings, read_encode_settings
from jax_sentemb.formats.model_dir import check_hashes, check_normalize, read_modules
from jax_sentemb.formats.tensors import check_finite, read_safetensors
from jax_sentemb.side_files.reader import check_links, read_side_file

WEIGHT = "embedding.weight"
MODULE_TYPE = "StaticEmbedding"
MODEL2VEC_LENGTH = 512  # pieces to which model2vec cuts a text by default


class StaticTable(NamedTuple):
    """A vector for each piece of a vocabulary. The embedding of a text is the mean of the vectors of its pieces."""

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
    return bool(first) and isinstance(first[0], dict) and str(first[0].get("type")).endswith(MODULE_TYPE)


def write_static(directory: Path, table: StaticTable) -> None:
    """Write the files of a table into `directory`, except the model card and the manifest."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {WEIGHT: np.ascontiguousarray(table.vectors, np.float32)}
    (directory / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    write_text(directory / "tokenizer.json", _tokenizer_json(table))
    chain = [("", MODULE_TYPE), *([("1_Normalize", "Normalize")] if table.normalize else [])]
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{module_type}"}
        for index, (path, module_type) in enumerate(chain)
    ]
    write_json(directory / "modules.json", modules)
    for path, _ in chain[1:]:
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
    folder, normalize, max_length = directory, False, None
    if (directory / "modules.json").is_file():
        modules = read_modules(directory)
        types, folder = [module_type for module_type, _ in modules], modules[0][1]
        if types not in ([MODULE_TYPE], [MODULE_TYPE, "Normalize"]):
            raise ModelFileError(
                f"{directory}: unsupported modules {' + '.join(types)[:200]}; only {MODULE_TYPE}, with or without Normalize, "
                "can be read"
            )
        check_normalize(modules)
        normalize = "Normalize" in types
    else:
        normalize, max_length = _model2vec_settings(directory / "config.json")
    vectors = _vectors(join_inside(folder, "model.safetensors", directory))
    tokenizer, tokenizer_length = Tokenizer.load_pieces(folder)
    check_rows(tokenizer.vocab_size, len(vectors), folder)
    return StaticTable(vectors, tokenizer, normalize, tokenizer_length or max_length, read_encode_settings(directory))


def _model2vec_settings(file: Path) -> tuple[bool, int | None]:
    """Return whether embeddings have unit length, and the pieces to which a text is cut."""
    config = read_side_file(file, "model2vec")
    normalize, max_length = config.get("normalize"), config.get("max_length", MODEL2VEC_LENGTH)
    if normalize is not None and not isinstance(normalize, bool):
        raise ModelFileError(f"{file}: normalize={quote(normalize)} must be true or false; {CORRECT}")
    is_number = isinstance(max_length, int) and not isinstance(max_length, bool) and max_length > 0
    if max_length is not None and not is_number:
        raise ModelFileError(f"{file}: max_length={quote(max_length)} is not a number of tokens; {CORRECT}")
    return bool(normalize), max_length


def _vectors(file: Path) -> Float[np.ndarray, "pieces width"]:
    """Return the vector of each piece. A file of model2vec may share vectors between pieces and scale them."""
    tensors = read_safetensors(file, integers=("mapping", "embeddings"))
    check_finite(tensors, file)
    vectors = tensors.get(WEIGHT, tensors.get("embeddings"))
    if vectors is None or vectors.ndim != 2 or not vectors.size:
        shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
        raise ModelFileError(f"{file}: expected a matrix {WEIGHT} or embeddings, got {quote(shapes)}; {REPLACE_MODEL}")
    if WEIGHT in tensors:
        return vectors
    mapping, weights = tensors.get("mapping", np.arange(len(vectors))), tensors.get("weights")
    if mapping.ndim != 1 or mapping.dtype != np.int64 or mapping.min(initial=0) < 0 or mapping.max(initial=0) >= len(vectors):
        raise ModelFileError(
            f"{file}: mapping must give each piece the number of one of the {len(vectors)} rows of embeddings; {REPLACE_MODEL}"
        )
    if weights is not None and weights.shape != mapping.shape:
        raise ModelFileError(
            f"{file}: weights has shape {list(weights.shape)}, expected [{len(mapping)}], one for each piece; {REPLACE_MODEL}"
        )
    vectors = vectors.astype(np.float32)[mapping]
    return vectors if weights is None else vectors * weights[:, None]


def _tokenizer_json(table: StaticTable) -> str:
    """Return tokenizer.json without special tokens, since the module has no option to read "[SEP]" as text."""
    inner = tokenizers.Tokenizer.from_str(table.tokenizer.serialized)
    pieces = {*inner.get_vocab(with_added_tokens=False)} & {*table.tokenizer.names.values()}
    if table.max_seq_length is not None:
        inner.enable_truncation(table.max_seq_length)
    state = json.loads(inner.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] not in pieces]
    state |= {"post_processor": None, "padding": None}
    return json.dumps(state, ensure_ascii=False)
