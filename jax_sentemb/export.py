"""Export of a trained encoder to a directory that transformers and sentence-transformers load, verified by re-encoding.

Old class paths and pooling keys of sentence-transformers are written, because every version from 2.2 to 6 reads them.
"""

import errno
import functools
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save

from jax_sentemb import __version__
from jax_sentemb.card import Card, render
from jax_sentemb.errors import ConfigError, ModelFileError, ResourceError
from jax_sentemb.evaluation.embed import Embedder
from jax_sentemb.model_folder import MANIFEST, read_normalize, read_pooling, sha256, transformer_folder
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.pooling import pool
from jax_sentemb.text.tokenizer import Tokenizer
from jax_sentemb.types import Array, Params, Rows
from jax_sentemb.weights import read_encoder, read_max_seq_length, to_torch

TOLERANCE = 1e-5  # largest difference in an entry of an embedding between the model in memory and its export

# Pooling mode -> the key of sentence-transformers' Pooling module. first_last has none: it is for evaluation only.
POOLING_KEYS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
}
EXPORTABLE = ("cls", "mean")

# What `export` re-encodes: sentences of the kinds that break tokenizers, and lengths up to far beyond usual limits.
ODD = [
    "", " ", "a", ".", "?!", "[CLS] [SEP] [PAD]", "<s> </s>", "ALL CAPS", "C++ != C#", "a\tb\nc", "don't won't",
    "x" * 300, "3.14 1,000", "https://example.org/?q=1#a", "na\u00efve caf\u00e9", "e" + "\u0301" * 40, "a\u2028b",
    "\u6f22\u5b57\u4eee\u540d", "\u0645\u0631\u062d\u0628\u0627", "\u05e9\u05dc\u05d5\u05dd", "\u202eabc", "\u200b",
    "\ufffd", "\U0001f600\U0001f3fd",
]  # fmt: skip
LONG = "The quick brown fox jumps over the lazy dog while nobody looks. " * 60
PROBES = (*ODD, *(LONG[:length].strip() for length in range(1, 3200, 80)))


def export(
    directory: str | Path,
    config: BertConfig,
    params: Params,
    tokenizer: Tokenizer,
    embed: Callable[[Sequence[str]], np.ndarray],
    *,
    pooling: str,
    max_seq_length: int,
    normalize: bool = False,
    card: Card | None = None,
    sentences: Sequence[str] = PROBES,
) -> float:
    """Write, verify and publish an export; the largest difference from `embed`, the float32 model in memory.

    Written beside `directory` and renamed when it is complete and verified, so `directory` is never half an export; an
    earlier export there is replaced, anything else is left alone (ConfigError). ModelFileError where the weights do not
    fit or re-encoding differs by more than TOLERANCE: then an earlier export stays as it was.
    """
    directory = Path(directory).expanduser().absolute()
    card = card or Card()
    with _staged(directory) as stage:
        settings = {"pooling": pooling, "normalize": normalize, "max_seq_length": max_seq_length}
        write_export(stage, config, params, tokenizer, card=card, **settings)
        difference = verify_export(stage, embed, sentences)
        facts = {
            "jax_sentemb": __version__,
            "method": card.method,
            "base_model": card.base_model,
            **settings,
            "training": dict(card.training),
            "scores": dict(card.scores),
            "absent": list(card.absent),
            "verification": {"sentences": len(sentences), "max_abs_difference": difference, "tolerance": TOLERANCE},
            "sha256": {file.relative_to(stage).as_posix(): sha256(file) for file in sorted(stage.rglob("*")) if file.is_file()},
        }
        _write_json(stage / MANIFEST, facts)
    print(f"export {directory}: max abs difference {difference:.1e} over {len(sentences)} sentences", flush=True)
    return difference


def write_export(
    directory: str | Path,
    config: BertConfig,
    params: Params,
    tokenizer: Tokenizer,
    *,
    pooling: str,
    max_seq_length: int,
    normalize: bool = False,
    card: Card | None = None,
) -> None:
    """Write every file of an export but the manifest into `directory`, made if need be; `params` are the encoder's."""
    positions = config.max_position_embeddings - config.position_offset
    if pooling not in EXPORTABLE:
        raise ConfigError(f"pooling={pooling!r} cannot be exported: sentence-transformers has {' and '.join(EXPORTABLE)}")
    if not 2 <= max_seq_length <= positions:
        raise ConfigError(f"max_seq_length={max_seq_length} is not between 2 and the encoder's {positions} positions")
    if tokenizer.vocab_size > config.vocab_size:
        raise ModelFileError(f"the tokenizer has {tokenizer.vocab_size} tokens, the encoder's vocab_size is {config.vocab_size}")
    tensors = to_torch(config, params)
    directory = Path(directory)
    (directory / "1_Pooling").mkdir(parents=True, exist_ok=True)
    (directory / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    tokenizer.save(directory)
    files = {
        "config.json": _huggingface_config(config),
        "modules.json": _modules(normalize),
        "sentence_bert_config.json": {"max_seq_length": max_seq_length, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "__version__": {"jax_sentemb": __version__},
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        "1_Pooling/config.json": {
            "word_embedding_dimension": config.hidden_size,
            **{key: mode == pooling for mode, key in POOLING_KEYS.items()},
        },
    }
    for name, content in files.items():
        _write_json(directory / name, content)
    readme = render(card or Card(), pooling=pooling, normalize=normalize, max_seq_length=max_seq_length, width=config.hidden_size)
    (directory / "README.md").write_text(readme, "utf-8")


def verify_export(directory: str | Path, embed: Callable[[Sequence[str]], np.ndarray], sentences: Sequence[str]) -> float:
    """Largest difference between the vectors of `embed` and of the directory; ModelFileError above TOLERANCE."""
    ours = np.asarray(embed(sentences), np.float32)
    exported = read_embedder(directory)(sentences)
    if ours.shape != exported.shape:
        raise ModelFileError(f"the export encodes to {list(exported.shape)}, the model in memory to {list(ours.shape)}")
    difference = float(np.abs(ours - exported).max(initial=0.0))
    if not difference <= TOLERANCE:  # also refuses NaN
        raise ModelFileError(
            f"the export encodes {len(sentences)} sentences with a max abs difference of {difference:.1e} from the "
            f"model in memory, above {TOLERANCE:.0e}: nothing was exported"
        )
    return difference


def read_embedder(path: str | Path, batch_size: int = 64, pooling: str = "") -> Callable[[Sequence[str]], np.ndarray]:
    """Sentences -> float32 [N, D] by the encoder, tokenizer, pooling (mean if unsaid) and limit of a directory.

    `pooling` (cls, mean or first_last) takes the place of what the directory says.
    """
    config, params = read_encoder(path)
    pooling, normalize = pooling or read_pooling(path) or "mean", read_normalize(path)
    bert = Bert(config)

    def embed(params: Params, rows: Rows) -> Array:
        vectors = pool(bert.apply({"params": params}, rows).hidden, rows.mask, pooling)
        if normalize:
            vectors = vectors / jnp.maximum(jnp.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
        return vectors

    tokenizer = Tokenizer.load(transformer_folder(path))
    return functools.partial(Embedder(embed, tokenizer, read_max_seq_length(path), batch_size), params)


@contextmanager
def _staged(directory: Path) -> Iterator[Path]:
    """A sibling folder to write into; it takes the place of `directory` when the block ends well, else vanishes."""
    stage, previous = (directory.parent / f".{directory.name[:100]}.{end}" for end in ("partial", "previous"))
    try:
        if directory.exists() and not (directory / MANIFEST).is_file() and (not directory.is_dir() or any(directory.iterdir())):
            raise ConfigError(f"{directory} exists and is not an export of jax_sentemb: give another directory or move it away")
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir(parents=True)
        yield stage
        _replace(directory, stage, previous)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise (ResourceError if full else ConfigError)(f"cannot write the export {directory}: {error.strerror}") from None
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _replace(directory: Path, stage: Path, previous: Path) -> None:
    """Rename `stage` to `directory`. No folder can be renamed over a full one: the earlier export steps aside."""
    if directory.exists():
        shutil.rmtree(previous, ignore_errors=True)
        directory.rename(previous)
    try:
        stage.rename(directory)
    except OSError:
        if previous.exists():
            previous.rename(directory)
        raise
    shutil.rmtree(previous, ignore_errors=True)


def _huggingface_config(config: BertConfig) -> dict:
    """config.json of transformers' BertModel or RobertaModel. Dropout 0.1 is what fine-tuning in torch starts from."""
    special = {"bos_token_id": 0, "eos_token_id": 2} if config.model_type == "roberta" else {}
    return {
        "architectures": ["RobertaModel" if config.model_type == "roberta" else "BertModel"],
        "model_type": config.model_type,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        "hidden_act": config.hidden_act,
        "max_position_embeddings": config.max_position_embeddings,
        "type_vocab_size": config.type_vocab_size,
        "layer_norm_eps": config.layer_norm_eps,
        "initializer_range": config.initializer_range,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "position_embedding_type": "absolute",
        "pad_token_id": config.pad_token_id,
        **special,
        "torch_dtype": "float32",
    }


def _modules(normalize: bool) -> list[dict]:
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")] + [("2_Normalize", "Normalize")] * normalize
    return [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds)
    ]


def _write_json(path: Path, content: dict | list) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
