"""Select the best checkpoint (`eval.select`) and stop training early (`eval.patience`)."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from jax_sentemb.config import Evaluation
from jax_sentemb.errors import ConfigError, Message, Setting
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
    best_encoder: str = ""  # the encoder with the best score, for a method with several encoders
    selected_by: str = ""
    scale: dict[str, int] = dataclasses.field(default_factory=dict)  # settings without which scores cannot be compared
    measured_on: dict[str, Any] = dataclasses.field(default_factory=dict)  # labelled pairs and held-out sentences, by setting
    evaluated: int = -1  # the step of the last evaluation
    not_improved: int = 0  # number of evaluations since the best one
    first_rows: int = 0  # rows of the run as it was planned at its start, before it was made longer
    skipped: list[int] = dataclasses.field(default_factory=list)
    rewinds: int = 0


UNSELECTED: Mapping[str, Any] = {  # no best weights yet; `evaluated` lets the run score the step at which it continues
    "best_score": -math.inf,
    "best_step": -1,
    "best_encoder": "",
    "evaluated": -1,
    "not_improved": 0,
}

MEASURES = ("eval/", "agreement/", "diagnostics/")  # the beginnings of the names of metrics that depend on `Progress.scale`


def continued(path: Path, saved: Mapping[str, Any], now: Progress) -> tuple[Progress, str, list[str]]:
    """Return the progress of a checkpoint for a run that continues it, a note to print, and the measures that begin anew.

    If scores are now measured in another way, earlier scores cannot be compared with new ones, so they are forgotten. So are the
    best weights, if their score is one of them: `best_step` is then -1.

    Args:
        path: The checkpoint.
        saved: Its progress.
        now: The progress of the run before it starts.

    Raises:
        ModelFileError: The pairs or the held-out sentences of the earlier scores were replaced.
    """
    progress = dataclasses.replace(now, **{name: value for name, value in saved.items() if name in vars(now)})
    recorded = {name: value for name, value in progress.measured_on.items() if name in now.measured_on}
    expected = {name: now.measured_on[name] for name in recorded}
    remedy = "scores on both cannot be compared: give the old content, or another ", Setting("--workdir")
    check(path, {KEY: mark(CHECKPOINT, recorded)}, CHECKPOINT, expected, remedy=remedy)
    changed = {name: f"{name}={value} (before: {progress.scale.get(name)})" for name, value in now.scale.items()
               if progress.scale.get(name) != value}  # fmt: skip
    previous, notes = progress.selected_by, []
    if previous != now.selected_by:
        notes.append(f"weights are now selected by {now.selected_by or 'the last step'}, before by {previous or 'the last step'}")
    if changed:
        notes.append(f"scores are now measured with {' and '.join(changed.values())}; earlier scores do not count")
        comparable = {name: value for name, value in progress.measured.items() if not _depends(name, changed)}
        start = {} if _depends("eval/", changed) else progress.start
        progress = dataclasses.replace(progress, start=start, measured=comparable)
    if previous != now.selected_by or _depends(previous, changed):
        if progress.best_step >= 0:
            notes.append(f"the best weights so far, of step {progress.best_step}, are deleted")
        progress = dataclasses.replace(progress, **UNSELECTED)
    sources = {**progress.measured_on, **now.measured_on}  # also those that this run does not measure, for a later continuation
    progress = dataclasses.replace(progress, selected_by=now.selected_by, scale=now.scale, measured_on=sources)
    return progress, "; ".join(notes), [measure for measure in MEASURES if _depends(measure, changed)]


def _depends(metric: str, settings: Collection[str]) -> bool:
    """Return whether a metric of metrics.jsonl depends on one of these settings of `Progress.scale`."""
    is_diagnostic = metric.startswith("diagnostics/")
    return ("eval.max_seq_length" in settings and "/" in metric) or ("eval.diagnostic_sentences" in settings and is_diagnostic)


def selected_by(options: Evaluation, validation: bool, on_dev: str, is_cross_encoder: bool, agreement: str = "") -> str:
    """Return the name, as in metrics.jsonl, of the metric that selects weights.

    It is "validation", the score on a development set, the agreement with a teacher, or retrieval.

    Args:
        options: The settings.
        validation: Whether sentences are held out.
        on_dev: The name of the score on the development set, "" if there is none.
        is_cross_encoder: Whether there are no embeddings.
        agreement: The name of the agreement with a teacher, "" if it is not measured.

    Returns:
        The name; "" if the last weights are exported.

    Raises:
        ConfigError: This run does not measure the metric of eval.select.
    """
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
                "; if the method has no teacher, or the start is one, give ",
                Setting("eval.teacher", "MODEL"),
            )
    elif options.select == "dev":
        name = on_dev
        if not on_dev:
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
            " needs a score that can stop improving: set ",
            Setting("eval.select"),
            ", ",
            Setting("eval.dev"),
            " or ",
            Setting("data.validation"),
        )
    return name


def check_plateau(factor: float, method: Method, selected: str) -> None:
    """Raise ConfigError if the rate falls when a score does not improve, and no score is measured."""
    if factor < 1 and not selected:
        held_out = (", ", Setting("data.validation", 1000)) if method.validation_selects else ()
        advice = Setting("eval.dev", "pairs.tsv"), *held_out, " or ", Setting("eval.select")
        raise ConfigError(Setting("optimizer.plateau_factor", factor), " needs a score: give ", *advice)


def measure_name(selected: str) -> str:
    """Return the text for a selection metric: the name of a development set, "agreement with the teacher" or another measure."""
    group, *names = selected.split("/")
    texts = {"agreement": "agreement with the teacher", "diagnostics": "split-half retrieval"}
    return names[0] if group == "eval" else texts.get(group, selected)


def score(name: str, values: Mapping[str, float]) -> float | None:
    """Return a selection metric (higher is better), None if it was not measured.

    "validation" is the accuracy, or minus the loss if there is no accuracy.
    """
    if name == "validation":
        return 100 * values["validation/accuracy"] if "validation/accuracy" in values else -values["validation/loss"]
    return values.get(name)


def better(scores: Mapping[str, float | None]) -> str:
    """Return the name with the highest score; the first if scores are equal or none was measured."""
    return max(scores, key=lambda name: -math.inf if (value := scores[name]) is None else value)


def kept_encoder(method: Method, params: Params, kept: str, selected: str) -> tuple[str, Message]:
    """Return the name of the encoder that is exported, and the reason; "" and () for a method with one encoder.

    `kept` is the encoder of the best checkpoint, "" if the last weights are exported.
    """
    names = list(method.encoders(params))
    if names == [""]:
        return "", ()
    if len(names) == 1:
        reason: Message = ("it is the value of ", Setting("method.keep"))
    elif kept and selected != "validation":
        reason = (f"the higher {selected} of {' and '.join(names)}",)
    else:
        settings = (Setting("eval.dev"), ", or without labels ", Setting("eval.select", "retrieval"))
        reason = ("no score distinguishes the encoders (set ", *settings, ")")
    return kept or names[0], reason
