"""Selects the best checkpoint (`eval.select`) and stops training early (`eval.patience`)."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jax_sentemb.config import Evaluation
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.methods.base import Method
from jax_sentemb.provenance import CHECKPOINT, KEY, check, mark
from jax_sentemb.types import Params


@dataclasses.dataclass
class Progress:
    """The progress of a run in its checkpoints: best score, last evaluation, skipped batches."""

    start: dict[str, float] = dataclasses.field(default_factory=dict)  # scores of the untrained weights
    measured: dict[str, float] = dataclasses.field(default_factory=dict)  # of the start, by names in metrics.jsonl
    best_score: float = -math.inf
    best_step: int = -1
    kept: str = ""  # which encoder of a method with several has the best score
    selected_by: str = ""
    scale: dict[str, int] = dataclasses.field(default_factory=dict)  # settings without which scores cannot be compared
    measured_on: dict[str, Any] = dataclasses.field(default_factory=dict)  # labelled pairs and held-out sentences, by setting
    evaluated: int = -1
    skipped: list[int] = dataclasses.field(default_factory=list)
    rewinds: int = 0


def continued(where: Path, saved: Mapping[str, Any], now: Progress) -> tuple[Progress, str]:
    """Return the progress of a checkpoint for a run that continues it, and what has to be said.

    Scores that were measured otherwise cannot be compared with those that follow: they are forgotten.

    Args:
        where: The checkpoint.
        saved: Its progress.
        now: The progress of the run before it starts.

    Raises:
        ModelFileError: The pairs or the held-out sentences of the scores so far were replaced.
    """
    progress = dataclasses.replace(now, **{name: value for name, value in saved.items() if name in vars(now)})
    recorded = {name: value for name, value in progress.measured_on.items() if name in now.measured_on}
    expected = {name: now.measured_on[name] for name in recorded}
    remedy = "scores on both cannot be compared: give the old content, or another --workdir"
    check(where, {KEY: mark(CHECKPOINT, recorded)}, CHECKPOINT, expected, remedy=remedy)
    changed = [f"{name}={value}, until here {progress.scale.get(name)}" for name, value in now.scale.items()
               if progress.scale.get(name) != value]  # fmt: skip
    before, notes = progress.selected_by, []
    if before != now.selected_by:
        notes.append(f"weights are now selected by {now.selected_by or 'the last step'}, until here by {before or 'the last step'}")
    if changed:
        notes.append(f"scores are now measured with {' and '.join(changed)}: earlier ones do not count")
        progress = dataclasses.replace(progress, start={}, measured={})
    if before != now.selected_by or (changed and "/" in before):  # "validation" depends on neither of these settings
        progress = dataclasses.replace(progress, best_score=-math.inf)
    fresh = {name: getattr(now, name) for name in ("selected_by", "scale", "measured_on")}
    return dataclasses.replace(progress, **fresh), "; ".join(notes)


def selected_by(options: Evaluation, validation: bool, dev: str, is_cross_encoder: bool, agreement: str = "") -> str:
    """The selection metric by its name in metrics.jsonl: "validation", Spearman on `dev`, or retrieval; "" for the last weights.

    `agreement`: the name of the agreement with a teacher, "" if it is not measured. ConfigError if this run does not measure it.
    """
    on_dev = f"eval/{dev}/spearman_cosine" if dev else ""
    if not options.select:
        name = on_dev or agreement or ("validation" if validation else "")
    elif options.select == "agreement":
        name = agreement
        if not agreement:
            raise ConfigError(
                Setting("eval.select", "agreement"),
                " needs a teacher and held-out sentences: give ",
                Setting("data.validation", 1000),
                " or ",
                Setting("eval.held_out", "FILES"),
            )
    elif options.select == "dev":
        name = on_dev
        if not dev:
            raise ConfigError(
                Setting("eval.select", "dev"),
                " needs labelled pairs: ",
                Setting("eval.dev", "pairs.tsv"),
                ", or STS-B in ",
                Setting("eval.data"),
            )
    elif options.select == "retrieval":
        name = "diagnostics/retrieval"
        if is_cross_encoder:
            raise ConfigError(
                Setting("eval.select", "retrieval"), ": a cross-encoder has no embeddings; take dev, validation or last"
            )
    else:
        name = options.select.removesuffix("last")
    if options.patience and not name:
        raise ConfigError(
            Setting("eval.patience", options.patience),
            " needs a score that can stop rising: set ",
            Setting("eval.select"),
            ", ",
            Setting("eval.dev"),
            " or ",
            Setting("data.validation"),
        )
    return name


def score(name: str, values: Mapping[str, float]) -> float | None:
    """A selection metric (higher is better), None if not measured; "validation" is the accuracy, or minus the loss without one."""
    if name == "validation":
        return 100 * values["validation/accuracy"] if "validation/accuracy" in values else -values["validation/loss"]
    return values.get(name)


def better(found: Mapping[str, float | None]) -> str:
    """The name with the highest score; the first one if scores are equal or none was measured."""
    return max(found, key=lambda name: -math.inf if (value := found[name]) is None else value)


def kept_encoder(method: Method, params: Params, kept: str, selected: str) -> dict[str, str]:
    """{"kept_encoder", "kept_because"} for scores.json and model.json; {} for a method with one encoder.

    `kept` is the encoder of the best checkpoint, "" if the last weights are exported.
    """
    names = list(method.encoders(params))
    if names == [""]:
        return {}
    if len(names) == 1:
        why = "method.keep asks for it"
    elif kept and selected != "validation":
        why = f"the higher {selected} of {' and '.join(names)}"
    else:
        why = "no score tells the encoders apart (labelled pairs: eval.dev; without labels: eval.select=retrieval)"
    return {"kept_encoder": kept or names[0], "kept_because": why}


def should_stop_early(patience: int, eval_steps: int, evaluated: int, best_step: int) -> bool:
    """Whether the last `patience` evaluations did not improve the best score (`best_step` < 0: there is none yet)."""
    return 0 < patience * eval_steps <= evaluated - max(best_step, 0)
