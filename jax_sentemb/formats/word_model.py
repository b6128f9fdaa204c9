"""Write and read models on word vectors: settings, weights and vocabulary in one directory, which contains no code.

model.json          {"method": name, "settings": {...}, "encoder": {...}, "max_seq_length": n, "provenance": {...}}
model.safetensors   PyTorch's state dict: emb_layer.weight (word vectors), then the parts with the names of nn.GRU, nn.LSTM and
                    nn.Linear, for instance f.weight_ih_l0_reverse or g.weight
tokenizer.json      the words

One LSTM, the linear view alone, and the average of word vectors are also written as standard modules of sentence-transformers. Such
a directory has a modules.json, and the tensors of a part are in the folder of its module. Both programs compute equal vectors,
except for a sentence without words: its maximum over no state is -inf in sentence-transformers and 0 here.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr, tree_leaves_with_path
from safetensors.numpy import save

from jax_sentemb.data.digest import file_digest
from jax_sentemb.data.tokenizer_checks import check_rows
from jax_sentemb.data.word_tokenizer import WordTokenizer, count_words
from jax_sentemb.data.word_vectors import read_word_vectors
from jax_sentemb.errors import REPLACE_MODEL, ConfigError, ModelFileError
from jax_sentemb.files import join_inside, quote, read_json, write_json
from jax_sentemb.formats.encode_settings import DEFAULTS, FILE, EncodeSettings
from jax_sentemb.formats.model_dir import check_hashes
from jax_sentemb.formats.sentence_transformers import pooling_config
from jax_sentemb.formats.tensors import Tensors, check_finite, read_safetensors
from jax_sentemb.methods.cons_sent import ConsSent
from jax_sentemb.methods.infer_sent import InferSent
from jax_sentemb.methods.language_model import LanguageModel
from jax_sentemb.methods.multi_view import POOLINGS, MultiView
from jax_sentemb.methods.quick_thoughts import QuickThoughts
from jax_sentemb.methods.word_average import WordAverage
from jax_sentemb.models.architectures import make_encoder
from jax_sentemb.models.rnn import DIRECTIONS
from jax_sentemb.models.word_vectors import FROZEN, WordsConfig, vector_part
from jax_sentemb.provenance import KEY, WORD_MODEL, check, is_marked, mark
from jax_sentemb.side_files.reader import check_links
from jax_sentemb.types import Params

WORD_METHODS = (ConsSent, InferSent, LanguageModel, MultiView, QuickThoughts, WordAverage)
WordMethod = ConsSent | InferSent | LanguageModel | MultiView | QuickThoughts | WordAverage
METHODS: dict[str, type[WordMethod]] = {method.__name__: method for method in WORD_METHODS}  # methods that a file may name
VECTORS = "emb_layer.weight"
LSTM_FOLDER, POOLING_FOLDER, DENSE_FOLDER, NORMALIZE_FOLDER = "1_LSTM", "2_Pooling", "3_Dense", "4_Normalize"
TENSOR_PREFIXES = {LSTM_FOLDER: "encoder", DENSE_FOLDER: "linear"}  # in these modules of sentence-transformers
TORCH_NAMES = {"input": "ih_l0", "recurrent": "hh_l0"}
DIRECTION_SUFFIXES: dict[str, str] = dict(zip(DIRECTIONS, ("", "_reverse"), strict=True))


def is_word_model(directory: str | Path) -> bool:
    """Return whether a directory has a model.json of a model on word vectors, in any format."""
    file = Path(directory) / "model.json"
    return file.is_file() and is_marked(read_json(file), WORD_MODEL)


def write_word_model(
    directory: Path, metadata: dict[str, Any], params: Params, tokenizer: WordTokenizer, settings: EncodeSettings = DEFAULTS
) -> None:
    """Write the files of a model, without the parameters that only training needs. model.json is `metadata` with a mark."""
    method, parts = method_of(metadata, "the run"), _with_linear_view(params)
    vectors = vector_part(params)["vectors"]
    files: dict[str, Tensors] = {"": {VECTORS: np.asarray(vectors, np.float32)}}
    for name in method.embedding_params:
        folder, prefix = _tensor_location(method, name)
        files.setdefault(folder, {}).update(part_to_torch(parts[name], prefix))
    for folder, tensors in files.items():
        (directory / folder).mkdir(exist_ok=True)
        (directory / folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    write_json(directory / "model.json", {KEY: mark(WORD_MODEL, {}), **metadata})
    tokenizer.save(directory)
    write_json(directory / FILE, settings.to_json())
    if _module_folders(method) is not None:
        _write_modules(directory, method, metadata["max_seq_length"], files, settings)


def _with_linear_view(params: Params) -> Params:
    """Add the generative linear view, the transpose of the weights "U" that predict words, as "g", or as "h" after a "g"."""
    return {**params, "h" if "g" in params else "g": {"kernel": params["U"]}} if "U" in params else params


def embedding_parts(metadata: dict[str, Any], params: Params) -> Params:
    """Return the parameters that embeddings depend on, with the same names for a run and its export."""
    parts = _with_linear_view(params)
    names = method_of(metadata, "the model").embedding_params
    return {"vectors": vector_part(params)["vectors"], **{name: parts[name] for name in names}}


def _module_folders(method: WordMethod) -> tuple[str, ...] | None:
    """Return the folders of the sentence-transformers modules that compute the embedding; None if no modules can."""
    if isinstance(method, WordAverage):
        return (POOLING_FOLDER,)
    if method.embedding_params == ("lstm",):
        return (LSTM_FOLDER, POOLING_FOLDER)
    if method.embedding_params == ("g",) and method.pooling == "mean":
        return (POOLING_FOLDER, DENSE_FOLDER, NORMALIZE_FOLDER)
    return None


def _tensor_location(method: WordMethod, part: str) -> tuple[str, str]:
    """Return the folder of the tensors of a part, and the prefix of their names."""
    folders = (folder for folder in _module_folders(method) or () if folder in TENSOR_PREFIXES)
    return next(((folder, TENSOR_PREFIXES[folder]) for folder in folders), ("", part))


def _write_modules(
    directory: Path, method: WordMethod, max_seq_length: int, files: dict[str, Tensors], settings: EncodeSettings
) -> None:
    """Write the list of modules, and the settings of each module."""
    chain = _module_folders(method) or ()
    inputs = width = files[""][VECTORS].shape[1]
    content: dict[str, dict | list] = {
        "wordembedding_config.json": {
            "tokenizer_class": "sentence_transformers.models.tokenizer.TransformersTokenizerWrapper",
            "update_embeddings": False,
            "max_seq_length": max_seq_length,
        },
        # Special tokens are not named, so the text "[PAD]" has three words. The module pads by itself.
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 10**9},
    }  # fmt: skip
    if LSTM_FOLDER in chain:
        hidden = files[LSTM_FOLDER]["encoder.weight_hh_l0"].shape[1]
        is_bidirectional = "encoder.weight_hh_l0_reverse" in files[LSTM_FOLDER]
        width = hidden * (2 if is_bidirectional else 1)
        content[f"{LSTM_FOLDER}/lstm_config.json"] = {
            "word_embedding_dimension": inputs, "hidden_dim": hidden, "num_layers": 1, "dropout": 0,
            "bidirectional": is_bidirectional,
        }  # fmt: skip
    if DENSE_FOLDER in chain:
        content[f"{DENSE_FOLDER}/config.json"] = {
            "in_features": inputs, "out_features": len(files[DENSE_FOLDER]["linear.weight"]), "bias": False,
            "activation_function": "torch.nn.modules.linear.Identity",
        }  # fmt: skip
    content[f"{POOLING_FOLDER}/config.json"] = pooling_config(width, method.pooling, settings.include_prompt)
    content["modules.json"] = [
        {"idx": number, "name": str(number), "path": folder, "type": f"sentence_transformers.models.{module_type}"}
        for number, (folder, module_type) in enumerate(
            [("", "WordEmbeddings"), *((folder, folder.split("_")[1]) for folder in chain)]
        )
    ]
    for name, value in content.items():
        (directory / name).parent.mkdir(exist_ok=True)
        write_json(directory / name, value)


def part_to_torch(part: Params, name: str) -> Tensors:
    """Return the tensors of a recurrent or linear part with PyTorch's names and shapes."""
    if "kernel" in part:
        return {f"{name}.weight": np.ascontiguousarray(np.asarray(part["kernel"], np.float32).T)}
    tensors = {}
    for direction, suffix in DIRECTION_SUFFIXES.items():
        for flax, torch in TORCH_NAMES.items() if direction in part else ():
            leaf = part[direction][flax]
            tensors[f"{name}.weight_{torch}{suffix}"] = np.ascontiguousarray(np.asarray(leaf["kernel"], np.float32).T)
            tensors[f"{name}.bias_{torch}{suffix}"] = np.asarray(leaf["bias"], np.float32)
    return tensors


def part_from_torch(tensors: Tensors, name: str) -> Params:
    """Return a part from PyTorch's tensors, the inverse of `part_to_torch`; raise KeyError for a missing tensor."""
    if f"{name}.weight" in tensors:
        return {"kernel": tensors[f"{name}.weight"].T}
    directions = DIRECTIONS if f"{name}.weight_ih_l0_reverse" in tensors else DIRECTIONS[:1]
    return {
        direction: {
            flax: {
                "kernel": tensors[f"{name}.weight_{torch}{DIRECTION_SUFFIXES[direction]}"].T,
                "bias": tensors[f"{name}.bias_{torch}{DIRECTION_SUFFIXES[direction]}"],
            }
            for flax, torch in TORCH_NAMES.items()
        }
        for direction in directions
    }


def method_of(metadata: dict[str, Any], where: str) -> WordMethod:
    """Return the method that model.json describes.

    Raises:
        ModelFileError: The method or a setting is unknown. The message begins with `where`.
    """
    try:
        settings: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in metadata["settings"].items()
        }
        method = METHODS[metadata["method"]](**settings)
        encoder = make_encoder(WordsConfig(**metadata["encoder"]))
        method.check(encoder, 2**30)
        hash(tuple(vars(method).values()))  # raises TypeError for nested values, which no setting has
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # wrong types raise these as well
        raise _undescribed(where, error) from None
    return method


def _undescribed(where: str | Path, error: Exception) -> ModelFileError:
    """Return the error for a model.json with a method, settings or sizes that cannot exist."""
    return ModelFileError(f"{where} does not describe a model ({type(error).__name__} {error}); {REPLACE_MODEL}")


def with_readout(metadata: dict[str, Any], options: Sequence[str], params: Params | None) -> dict[str, Any]:
    """Return `metadata` with the poolings or the ensemble in `options`.

    Raises:
        ConfigError: The method or `params` does not have an option, or options contradict each other.
    """
    if not options:
        return metadata
    if metadata["method"] != "MultiView":
        raise ConfigError(f"{', '.join(options)}: {metadata['method']} has one embedding; only multi-view models have several")
    poolings = [option for option in options if option in POOLINGS]
    ensembles = [option for option in options if option not in poolings]
    if len(ensembles) > 1:
        raise ConfigError(f"{' and '.join(ensembles)} exclude each other: give one of them")
    chosen = {"pooling": "+".join(poolings)} if poolings else {}
    chosen |= {"ensemble": ensembles[0]} if ensembles else {}
    changed = {**metadata, "settings": {**metadata["settings"], **chosen}}
    method = method_of(changed, "the option")
    if missing := [name for name in method.embedding_params if params is not None and name not in params]:
        raise ConfigError(f"{' and '.join(missing)}: the model has no such view; leave it out")
    return changed


def with_words(
    metadata: dict[str, Any], params: Params, tokenizer: WordTokenizer, file: Path, text: Iterable[str]
) -> tuple[dict[str, Any], Params, WordTokenizer]:
    """Add the words of `text` that the model lacks, from the file of vectors with which it was trained.

    Raises:
        ConfigError: The model was trained with another file, or its word vectors were trained.
    """
    _check_vectors_file(metadata.get("vectors"), file)
    part = "encoder" if "encoder" in params else FROZEN
    known, vectors = tokenizer.words, np.asarray(params[part]["vectors"], np.float32)
    unknown = sorted(count_words(text, tokenizer.lowercase).keys() - set(known))
    in_file = read_word_vectors(file, {*unknown, *known})
    table = dict(zip(in_file.words, in_file.vectors, strict=True))
    if any(not np.array_equal(table[word], vectors[number]) for number, word in enumerate(known) if word in table):
        raise ConfigError(f"--vectors {file.name}: words cannot be added to trained word vectors; leave --vectors out")
    new = [word for word in unknown if word in table]
    if not new:
        return metadata, params, tokenizer
    longer = np.concatenate([vectors, np.stack([table[word] for word in new])])
    metadata = {**metadata, "encoder": {**metadata["encoder"], "vocab_size": len(longer)}}
    return metadata, {**params, part: {**params[part], "vectors": longer}}, tokenizer.extended(new)


def _check_vectors_file(recorded: Any, file: Path) -> None:
    """Raise ConfigError unless `file` is the recorded one, with which the model was trained."""
    if not isinstance(recorded, dict) or not recorded.keys() == {"name", "sha256"}:
        raise ConfigError(f"--vectors {file.name}: this model was trained without a file of word vectors; leave --vectors out")
    if not file.is_file():
        raise ConfigError(f"--vectors {file}: no such file")
    if (digest := file_digest(file)) != recorded["sha256"]:
        raise ConfigError(
            f"--vectors {file.name} (SHA-256 {digest[:12]}): this model was trained with {quote(recorded['name'])} (SHA-256 "
            f"{quote(recorded['sha256'])[1:13]}); give that file"
        )


def read_files(directory: str | Path) -> tuple[dict[str, Any], Params, WordTokenizer]:
    """Read metadata, parameters and vocabulary.

    Raises:
        ModelFileError: A file is missing or damaged, or has changed since the export.
    """
    directory = Path(directory)
    check_links(directory)
    check_hashes(directory)
    file = directory / "model.json"
    metadata = read_json(file)
    check(file, metadata, WORD_MODEL)
    try:
        method = method_of(metadata, str(file))
    except ConfigError as error:
        raise ModelFileError(f"{file}: {error}; {REPLACE_MODEL}") from None
    tensors: Tensors = {}
    for weights in word_weight_files(directory, method):
        tensors |= read_safetensors(weights)
    check_finite(tensors, directory)
    try:
        parts = {name: part_from_torch(tensors, _tensor_location(method, name)[1]) for name in method.embedding_params}
        vectors = tensors[VECTORS]
    except KeyError as error:
        raise ModelFileError(f"{directory} lacks the tensor {error}, which {metadata['method']} needs; {REPLACE_MODEL}") from None
    words = WordsConfig(**metadata["encoder"])
    if vectors.shape != (words.vocab_size, words.hidden_size):
        raise ModelFileError(
            f"{directory}: {VECTORS} has shape {list(vectors.shape)}, expected "
            f"[{quote(words.vocab_size)}, {quote(words.hidden_size)}] from model.json; {REPLACE_MODEL}"
        )
    _check_parts(method, words, parts, file)
    tokenizer = WordTokenizer.load(directory)
    check_rows(tokenizer.vocab_size, words.vocab_size, directory)
    return metadata, {FROZEN: {"vectors": vectors}, **parts}, tokenizer


def word_weight_files(directory: Path, method: WordMethod) -> list[Path]:
    """Return the weight files of a model on word vectors."""
    folders = dict.fromkeys(("", *(_tensor_location(method, name)[0] for name in method.embedding_params)))
    return [join_inside(directory, folder, directory / "model.json") / "model.safetensors" for folder in folders]


def _check_parts(method: WordMethod, words: WordsConfig, parts: Params, where: Path) -> None:
    """Raise ModelFileError unless the parts have the shapes with which the method initialises them."""
    try:
        initial = jax.eval_shape(lambda: _with_linear_view(method.init(make_encoder(words), {}, jax.random.key(0)).params))
    except (TypeError, ValueError, OverflowError) as error:  # for sizes that no array can have
        raise _undescribed(where, error) from None
    for name, part in parts.items():
        shapes, expected = (
            {keystr(path): leaf.shape for path, leaf in tree_leaves_with_path(tree)} for tree in (part, initial[name])
        )
        for leaf in sorted({*shapes, *expected}):
            if shapes.get(leaf) != expected.get(leaf):
                raise ModelFileError(
                    f"{where}: {name}{leaf} has shape {shapes.get(leaf)}, expected {expected.get(leaf)}; {REPLACE_MODEL}"
                )
