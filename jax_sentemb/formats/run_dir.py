"""Read and write the files of a work directory that describe the model of a run: model.json, checkpoints, tokenizer."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_sentemb.errors import REPLACE_FILE, ModelFileError, Setting
from jax_sentemb.files import quote, read_json, write_json
from jax_sentemb.formats import manifest
from jax_sentemb.formats.encode_settings import DEFAULTS, EncodeSettings
from jax_sentemb.formats.model_dir import read_manifest
from jax_sentemb.provenance import CHECKPOINT, KEY, RUN, Source, check, fingerprint
from jax_sentemb.types import Params

if TYPE_CHECKING:
    from jax_sentemb.data.tokenizer import Tokenizer
    from jax_sentemb.data.word_tokenizer import WordTokenizer
    from jax_sentemb.models.bert import BertConfig
    from jax_sentemb.models.cnn import Convolution
    from jax_sentemb.models.word_vectors import WordsConfig

REQUIRED_KEYS = (
    "encoder",
    "name",
    "method",
    "base_model",
    "pooling",
    "max_seq_length",
    "missing_tasks",
    "tokenizer",
    "training",
)  # in model.json


CONTINUED = ("encoder", "cnn", "pooler", "token_head")  # parts that a method continues to train if the directory has them


def write_metadata(workdir: Path, encoder_config: "BertConfig | WordsConfig", metadata: dict[str, Any]) -> None:
    """Write the metadata that an export needs besides weights and tokenizer to `workdir`/model.json."""
    content = {"encoder": dataclasses.asdict(encoder_config), **metadata}
    write_json(workdir / "model.json", content)


def read_metadata(workdir: Path) -> dict[str, Any]:
    """Return the content of `workdir`/model.json.

    Raises:
        ModelFileError: The file is missing or damaged.
    """
    from jax_sentemb.formats.config_json import config_of_fields

    file = workdir / "model.json"
    if not file.is_file():
        raise ModelFileError(
            f"{workdir} is not the work directory of a run: it has no model.json; give the ", Setting("--workdir"), " of a run"
        )
    metadata = read_json(file)
    check(file, metadata, RUN)
    if missing := [name for name in REQUIRED_KEYS if name not in metadata]:
        raise ModelFileError(f"{file} is damaged: it has no {missing[0]}; {REPLACE_FILE}")
    encoder = metadata["encoder"]
    if not isinstance(encoder, dict):
        raise ModelFileError(f"{file} is damaged: encoder={quote(encoder)}; {REPLACE_FILE}")
    if not is_words(metadata):
        config = config_of_fields(encoder, file)
        positions, length = config.max_position_embeddings - config.position_offset, metadata["max_seq_length"]
        if not isinstance(length, int) or not 2 <= length <= positions:
            raise ModelFileError(f"{file} is damaged: max_seq_length={quote(length)} is not from 2 to {positions}; {REPLACE_FILE}")
        if unknown := encoder.keys() - {field.name for field in dataclasses.fields(config)}:
            raise ModelFileError(f"{file} is damaged: encoder has the unknown entry {quote(min(unknown))}; {REPLACE_FILE}")
    return metadata


def find_export(workdir: Path) -> Path | None:
    """Return the folder of the export of a run, None if it is missing or belongs to an earlier run in this directory."""
    folder = workdir / "export"
    run = read_manifest(folder).get(KEY, {}).get("sources", {}).get("run")
    is_current = run and run["sha256"] == run_digest(read_json(workdir / "model.json"))
    return folder if is_current else None


def run_digest(metadata: dict[str, Any]) -> str:
    """Return the SHA-256 that identifies the run of a model.json."""
    return metadata[KEY]["sources"]["run"]["sha256"]


def is_words(metadata: dict[str, Any]) -> bool:
    """Return whether model.json describes a model on word vectors instead of a BERT."""
    return metadata["encoder"].get("model_type") == "words"


def read_checkpoint(workdir: Path, which: str) -> tuple[Params, int]:
    """Read a checkpoint as the run exports it: with `train.average_with_start`, its average with the initial weights.

    Args:
        workdir: The work directory of the run.
        which: "best", "last" or the number of a step. If the best step is the last one too, "last" is the encoder that was kept.

    Returns:
        The parameters as NumPy arrays, and the step.

    Raises:
        ModelFileError: The checkpoint does not exist, is damaged, has another format, or is not of the run of model.json.
    """

    def ignore(warning: str) -> None: ...

    folders = {folder: manifest.steps(workdir / folder, ignore) for folder in ("best", "checkpoints")}
    if which in ("best", "last"):
        for folder in ("best", "checkpoints") if which == "best" else ("checkpoints",):
            if newest := manifest.newest(workdir / folder):
                kept = manifest.valid(workdir / "best", newest[0]) if folder == "checkpoints" else None
                return _read(workdir, "best" if kept else folder, *(kept or newest)), newest[0]
    folder = next((folder for folder, steps in folders.items() if which.isdecimal() and int(which) in steps), "")
    if not folder:
        steps = sorted({*folders["best"], *folders["checkpoints"]})
        numbers = ", ".join(map(str, steps)) or "none"
        hint = "; its export has the initial weights" if not steps and find_export(workdir) else ""
        raise ModelFileError(f"--step {which}: {workdir} has no such checkpoint; its checkpoints are: {numbers}{hint}")
    try:
        content = manifest.verify(workdir / folder / str(int(which)))
    except manifest.Damaged as problem:
        raise ModelFileError(f"--step {which}: {problem}; give another --step, or restore the step from a copy") from None
    return _read(workdir, folder, int(which), content), int(which)


def _read(workdir: Path, folder: str, step: int, content: dict[str, Any]) -> Params:
    """Return the parameters of a step that was verified; `content` is its manifest."""
    from jax_sentemb.formats.checkpoint import read_params

    _check_run(workdir, folder, step, content)
    params = read_params(workdir / folder / str(step))
    file = workdir / "model.json"
    share = read_json(file).get("average_with_start") if file.is_file() else None
    if not share:
        return params
    start = workdir / manifest.START / "0"
    try:
        _check_run(workdir, manifest.START, 0, manifest.verify(start))
    except manifest.Damaged as problem:
        raise ModelFileError(f"{problem}; restore {start} from a copy, or continue the run, which writes it again") from None
    return averaged(params, read_params(start), share)


def averaged(params: Params, loaded: Params, share: float) -> Params:
    """Return (1 - share) * trained + share * loaded for every part that continues a loaded one; unchanged at share 0."""
    import jax

    if not share:
        return params
    parts = [name for name in CONTINUED if name in params and name in loaded]
    start = {name: loaded[name] for name in parts}
    # In this form a frozen weight stays exact.
    mixed = jax.tree.map(lambda trained, old: old + (1 - share) * (trained - old), {name: params[name] for name in parts}, start)
    return {**params, **mixed}


def _check_run(workdir: Path, folder: str, step: int, content: dict[str, Any]) -> None:
    """Raise ModelFileError if a checkpoint was not written by the run that model.json describes."""
    file, where = workdir / "model.json", workdir / folder / str(step)
    if file.is_file():
        run = Source(f"of {where}", fingerprint(CHECKPOINT, content[KEY]["sources"]))
        check(file, read_json(file), RUN, {"run": run}, remedy=("restore the one that was copied from another run",))


def read_run_tokenizer(workdir: Path, metadata: dict[str, Any]) -> "Tokenizer | WordTokenizer":
    """Read the tokenizer of a run.

    Raises:
        ModelFileError: The tokenizer is damaged, or differs from the one with which the run was trained.
    """
    from jax_sentemb.data.tokenizer import Tokenizer
    from jax_sentemb.data.tokenizer_checks import check_rows
    from jax_sentemb.data.word_tokenizer import WordTokenizer

    folder, encoder = workdir / "tokenizer", metadata["encoder"]
    tokenizer = (WordTokenizer if is_words(metadata) else Tokenizer).load(folder)
    check_rows(tokenizer.vocab_size, encoder["vocab_size"], folder)
    if tokenizer.fingerprint != metadata["tokenizer"]:
        raise ModelFileError(
            f"{folder} is not the tokenizer with which the run was trained: its SHA-256 is {tokenizer.fingerprint[:12]}, that in "
            f"model.json is {quote(metadata['tokenizer'])}; {REPLACE_FILE}"
        )
    return tokenizer


def encode_settings_of(metadata: dict[str, Any]) -> EncodeSettings:
    """Return the prompts, similarity and width in model.json, which a run takes over from its initial model."""
    return EncodeSettings(**metadata["encode_settings"]) if metadata.get("encode_settings") else DEFAULTS


def convolution_of(metadata: dict[str, Any]) -> "Convolution | None":
    """Return the convolution between encoder and pooling from model.json of a run, or None."""
    from jax_sentemb.models.cnn import Convolution

    settings = metadata.get("convolution")
    return Convolution(**{**settings, "windows": tuple(settings["windows"])}) if settings else None
