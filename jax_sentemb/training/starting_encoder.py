"""Handle the sentence encoder that a run starts from: its readout, and whether the export is worse than it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jax_sentemb.config import Config, Encoder
from jax_sentemb.distillation.teacher import teacher_names
from jax_sentemb.errors import ConfigError, Message, Setting, note_text
from jax_sentemb.evaluation.agreement import SELECTING
from jax_sentemb.files import user_path
from jax_sentemb.formats.encode_settings import DEFAULTS, EncodeSettings, read_encode_settings
from jax_sentemb.formats.huggingface import read_max_seq_length, resolve
from jax_sentemb.formats.model_dir import Readout, read_readout, sentence_pooling
from jax_sentemb.formats.modules import read_dense
from jax_sentemb.methods.base import Method
from jax_sentemb.methods.distillation import START, TEACHER, Distillation
from jax_sentemb.methods.through_dense import reads_dense
from jax_sentemb.models.architectures import make_encoder
from jax_sentemb.models.bert import BertConfig
from jax_sentemb.models.dense import DENSE
from jax_sentemb.models.word_vectors import WordsConfig
from jax_sentemb.training.checkpoint_selection import measure_name
from jax_sentemb.training.encoder_source import starting_config
from jax_sentemb.types import Params

MAX_SEQ_LENGTH = 128  # tokens of a sentence in evaluations, unless the settings or the start have a length
# Losses that are not reported: of Spearman x 100, and of the reciprocal rank x 100, which fell by up to 2.3 in runs whose scores
# on labelled pairs rose (experiments/adapting).
NOISE = {"eval": 0.1, "agreement": 0.1, "diagnostics": 4.0}


class Start(NamedTuple):
    """The way in which a sentence encoder, from which a run starts, makes an embedding."""

    name: str  # encoder.weights
    readout: Readout
    max_seq_length: int
    settings: EncodeSettings
    dense: tuple[str, ...] = ()  # activations of the layers after the pooling


def read_start(config: Config) -> Start | None:
    """Return the readout in the directory of `encoder.weights`.

    It is None for a new encoder, a directory without a pooling, an export of masked-language-model training, a cross-encoder, and
    if `encoder.readout` is "method".
    """
    encoder, folder = config.encoder, _sentence_encoder(config)
    if folder is None or not isinstance(encoder, Encoder) or encoder.readout == "method":
        return None
    dense = read_dense(folder)
    return Start(
        encoder.weights, read_readout(folder), read_max_seq_length(folder), read_encode_settings(folder), dense[0] if dense else ()
    )


def _sentence_encoder(config: Config) -> Path | None:
    """Return the directory of `encoder.weights` if it is a sentence encoder; None for a cross-encoder, which reads it as a BERT."""
    weights = getattr(config.encoder, "weights", "")
    folder = resolve(weights) if weights and not config.method.is_cross_encoder else None
    return folder if folder and sentence_pooling(folder) else None


def kept_settings(config: Config, start: Start | None) -> EncodeSettings:
    """Return the prompts and the similarity of the sentence encoder in `encoder.weights`, whatever its readout becomes.

    The width to which it cuts embeddings holds only for its own embedding.
    """
    if start is not None:
        settings = start.settings
    else:
        settings = read_encode_settings(folder) if (folder := _sentence_encoder(config)) else DEFAULTS
    is_own = is_kept(config, start) and not config.method.dense
    return settings if is_own else settings._replace(truncate_dim=None)


def is_kept(config: Config, start: Start | None) -> bool:
    """Return whether the run pools the states of the encoder as its start did."""
    method = config.method
    return (
        start is not None and start.readout.cnn is None and method.convolution is None and method.pooling == start.readout.pooling
    )


def dense_layers(config: Config, start: Start | None) -> tuple[str, ...]:
    """Return the activations of the layers after the pooling.

    They are those of the method, or of the start if the run reads the encoder as the start did.
    """
    if config.method.dense is not None:
        return config.method.dense
    return start.dense if start is not None and is_kept(config, start) else ()


def begins_as_start(config: Config, start: Start | None, encoder: BertConfig | WordsConfig, loaded: Params) -> bool:
    """Return whether the embeddings of step 0 are those of the start.

    They are not if a distillation has a new matrix after its pooling, or leaves out dense layers of the start. Of a start whose
    layers are chosen (`encoder.layers`), the embeddings are those of these layers.
    """
    if start is None or not is_kept(config, start):
        return False
    layers = config.method.dense
    if layers is None:
        return True
    if layers == start.dense:
        return not layers or DENSE in loaded
    return not start.dense and encoder.hidden_size == loaded[TEACHER]["vectors"].shape[1]  # then the matrix is the identity


def without_unused_dense(config: Config, start: Start | None, loaded: Params) -> Params:
    """Return the loaded parts without dense layers that the run does not use, or whose width is not that of the teacher."""
    if DENSE not in loaded:
        return loaded
    if config.method.dense is None:
        is_used = bool(dense_layers(config, start))
    else:
        layer, target = loaded[DENSE]["layer_0"], loaded[TEACHER]["vectors"].shape[1]
        is_linear = start is not None and start.dense == ("identity",) and set(layer) == {"kernel"}
        is_used = is_kept(config, start) and is_linear and layer["kernel"].shape[1] == target
    return loaded if is_used else {name: part for name, part in loaded.items() if name != DENSE}


def check_anchor(config: Config) -> None:
    """Raise ConfigError for an anchor without a start."""
    anchor = config.method.anchor
    if anchor and not getattr(config.encoder, "weights", ""):
        raise ConfigError(
            Setting("method.anchor", anchor), " is the weight of the distance to the start: give ", Setting("encoder.weights")
        )


def with_start(config: Config, start: Start | None) -> tuple[Config, list[str]]:
    """Return the config with the pooling and the length of the start, and notes to print.

    A method that is defined for another embedding keeps its own. If `eval.max_seq_length` is 0, it is the length of a start that is
    kept, or else 128. If the start is a teacher, the config has its name.
    """
    config, notes = _with_readout(config, start)
    if not config.eval.max_seq_length:
        length = start.max_seq_length if start is not None and is_kept(config, start) else MAX_SEQ_LENGTH
        config = dataclasses.replace(config, eval=dataclasses.replace(config.eval, max_seq_length=length))
    return config, notes + _kept_notes(config, start)


def _with_readout(config: Config, start: Start | None) -> tuple[Config, list[str]]:
    """Return the config with the teacher and the pooling of the start, and notes to print."""
    check_anchor(config)
    config = _with_start_as_teacher(config, start)
    notes = []
    if start is None:
        name = start_as_teacher(config)
        if not name or sentence_pooling(resolve(whole_start(config))):  # a sentence encoder with encoder.readout=method
            return config, []
        return config, [f"{name} is not a sentence encoder, so as its own teacher it teaches little; start from one"]
    pooling = start.readout.pooling
    if not is_kept(config, start) and start.readout.cnn is None:
        changed = _with_pooling(config, str(pooling))
        if changed is None:
            notes.append(
                f"{start.name} has {pooling} pooling, but {type(config.method).__name__} needs its own embedding "
                f"({config.method.pooling}{' after a convolution' if config.method.convolution else ''})"
            )
        else:
            kept = f"{start.name} is a sentence encoder with {pooling} pooling, which this run keeps; for {config.method.pooling} "
            notes.append(note_text(kept, "pooling set ", Setting("encoder.readout", "method")))
            config = dataclasses.replace(config, method=changed)
    return config, notes


def _kept_notes(config: Config, start: Start | None) -> list[str]:
    """Return notes on `kept_settings`."""
    settings, name, notes = kept_settings(config, start), getattr(config.encoder, "weights", ""), []
    if prompt := settings.prompt_text(config.method.text_role):
        notes.append(f"{name} has the prompt {prompt!r}, which is put before every sentence of the training text")
    if width := settings.truncate_dim:
        notes.append(f"{name} cuts its embeddings to {width} numbers (truncate_dim), and so do the scores and the export")
    return notes


def dense_notes(config: Config, start: Start | None, loaded: Params) -> list[str]:
    """Return a note on what becomes of the dense layers of the start; [] without."""
    if start is None or not start.dense:
        return []
    use = "left out"
    if DENSE in loaded and config.method.dense is None:
        loss_input = "their output" if reads_dense(config.method) else "the embedding before them"
        use = f"kept as they are; the loss is on {loss_input}"
    elif DENSE in loaded:
        use = "trained further" if config.method.dense else "trained further, but not exported"
    elif config.method.dense:
        use = "replaced by a new matrix, since they are not one matrix as wide as the vectors of the teacher"
    return [f"{start.name} has dense layers after its pooling, which are {use}"]


def _with_start_as_teacher(config: Config, start: Start | None) -> Config:
    """Return the config with the model of `encoder.weights` in place of the teacher "start"."""
    method, weights = config.method, getattr(config.encoder, "weights", "")
    names = teacher_names(method.teacher) if isinstance(method, Distillation) else []
    if START not in names:
        return config
    if not weights:
        problem = " means the encoder before the training: give "
        raise ConfigError(Setting("method.teacher", START), problem, Setting("encoder.weights"))
    model = weights if start else f"{weights}@{method.pooling}"
    teachers = ",".join(model if name == START else name for name in names)
    return dataclasses.replace(config, method=dataclasses.replace(method, teacher=teachers))


def whole_start(config: Config) -> str:
    """Return the weights of the start; "" if it is new or has only some of their layers."""
    return "" if getattr(config.encoder, "layers", "") else getattr(config.encoder, "weights", "")


def start_as_teacher(config: Config) -> str:
    """Return the teacher of the method that is the whole start, not some of its layers; "" if there is none."""
    method, weights = config.method, whole_start(config)
    if not isinstance(method, Distillation) or not weights:
        return ""
    pooled = f"{weights}@{method.pooling}"
    return next((name for name in teacher_names(method.teacher) if name in (START, pooled) or same_model(name, weights)), "")


def same_model(name: str, other: str) -> bool:
    """Return whether two names are one directory, or one repository of the hub."""
    first, second = user_path(name), user_path(other)
    return first.resolve() == second.resolve() if first.exists() and second.exists() else first == second


def judging_teacher(config: Config) -> Distillation | None:
    """Return the method if the agreement with its teacher judges it; None if it has none, or if the start is among its teachers.

    Nothing agrees with the start more than the start itself, so it would always be the best. eval.teacher may judge such a method.
    """
    method = config.method
    return method if isinstance(method, Distillation) and not start_as_teacher(config) else None


def _with_pooling(config: Config, pooling: str) -> Method | None:
    """Return the method with another pooling; None if it is defined for its own pooling."""
    method: Any = config.method
    encoder = config.encoder
    if method.convolution is not None or not isinstance(encoder, Encoder):
        return None
    changed = dataclasses.replace(method, pooling=pooling)
    try:
        changed.check(make_encoder(starting_config(encoder)), config.data.batch_size)
    except ConfigError:
        return None
    return changed


def _is_on_dev(name: str) -> bool:
    """Return whether a value, named as in metrics.jsonl, is a score on labelled data that can be compared."""
    return name.startswith("eval/") and not name.endswith("pearson_cosine")


def compared(start: Mapping[str, float], end: Mapping[str, float]) -> bool:
    """Return whether both were scored on labelled pairs or against a teacher, so the better one is known."""
    return any(name in end and (_is_on_dev(name) or name == SELECTING) for name in start)


def worse_than_start(start: Mapping[str, float], end: Mapping[str, float], selected_by: str) -> tuple[str, Message]:
    """Return the warning about an export that is worse than its start, and what to do; "" and () if it is not worse.

    They are compared by labelled pairs if both were scored on them, otherwise by the agreement with a teacher, otherwise by
    split-half retrieval.

    Args:
        start: Measures of the start, by their names in metrics.jsonl.
        end: Measures of the export.
        selected_by: The measure that selected the weights; "" if none did.
    """
    names = [name for name in start if name in end and _is_on_dev(name)]
    names += [name for name in (SELECTING, "diagnostics/retrieval") if name in start and name in end]
    for name in names[:1]:
        group = name.partition("/")[0]
        if start[name] - end[name] > NOISE[group]:
            problem = f"the export is worse than its start: {measure_name(name)} {end[name]:.2f}, the start {start[name]:.2f}"
            if name == selected_by:
                return problem, ("; use the start",)
            pairs = (" and scored pairs, ", Setting("eval.dev")) if group == "diagnostics" else ()
            select = Setting("eval.select", "agreement" if group == "agreement" else "dev")
            advice = "; use the start, or export the best weights: set "
            return problem, (advice, Setting("eval.eval_steps", 10), ", ", select, *pairs)
    return "", ()
