"""What a report reads of a run: the files of its work directory, its curves and the time it took."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jax_sentemb.errors import ModelFileError
from jax_sentemb.reporting.plot_data import read_metrics

# What a curve is of, and how to read it; others are shown under their name.
CURVES = {
    "train/loss": ("loss", "of training batches: what is minimised"),
    "train/grad_norm": ("gradient norm", "before clipping"),
    "train/accuracy": ("accuracy", "of the method's own task in a batch"),
    "train/alignment": ("alignment in a batch", "squared distance of two views of a sentence: 0 is best"),
    "validation/loss": ("held-out loss", "of sentences that are not trained on"),
    "validation/accuracy": ("held-out accuracy", "of the method's own task on sentences that are not trained on"),
    "diagnostics/alignment": ("alignment", "squared distance of the two halves of a sentence: 0 is best"),
    "diagnostics/retrieval": ("retrieval", "one half of a sentence finds the other among all: 100 is always"),
    "diagnostics/uniformity": ("uniformity", "lower is more even, 0 is collapse"),
    "diagnostics/spread": ("spread", "1 is isotropic, 0 is collapse"),
    "diagnostics/mean_cosine": ("mean cosine", "of any two sentences (anisotropy): near 0 is isotropic, 1 is collapse"),
    "diagnostics/effective_rank": ("effective rank", "number of directions in use"),
    "speed/sentences_per_second": ("sentences a second", "without compilation, evaluation and saving"),
    "speed/steps_per_second": ("steps a second", "the same"),
}
SECTIONS = {
    "train": "Training",
    "validation": "Held-out sentences",
    "eval": "Scores while training",
    "diagnostics": "Without labels",
    "speed": "Speed",
}
UNDRAWN = ("diagnostics/collapsed",)  # yes or no: a warning says it


class Run(NamedTuple):
    """The files of a work directory that a report is made of; {} and () for those that are not there."""

    workdir: Path
    about: dict[str, Any]  # run.json
    settings: dict[str, Any]  # config.json
    model: dict[str, Any]  # model.json
    records: Sequence[dict[str, Any]]  # metrics.jsonl
    scores: dict[str, Any]  # scores.json: a run that is done
    looks: dict[str, dict[str, Any]]  # samples/start.json and end.json


def read_run(workdir: Path) -> Run:
    """The files of a run; ModelFileError where it is no work directory or a file is damaged, DataError for its log."""
    if not (workdir / "run.json").is_file():
        raise ModelFileError(f"{workdir} is no work directory of a run: it has no run.json")
    about, settings, model = (read_json_file(workdir / name) for name in ("run.json", "config.json", "model.json"))
    looks = {when: found for when in ("start", "end") if (found := read_json_file(workdir / "samples" / f"{when}.json"))}
    return Run(workdir, about, settings, model, read_metrics(workdir), read_json_file(workdir / "scores.json"), looks)


def read_json_file(file: Path, kind: type = dict) -> Any:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, kind):
            raise ValueError(f"a {type(content).__name__}, expected a {kind.__name__}")
        return content
    except FileNotFoundError:
        return kind()
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{file} is damaged: {str(error).splitlines()[0]}") from None


def find_curves(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """{name: {step: value}} of every number that was logged over time, in order of steps; the later of two of a step."""
    found: dict[str, dict[int, float]] = {}
    for record in records:
        if "event" in record:
            continue
        for name, value in record.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and name not in ("step", "time"):
                found.setdefault(name, {})[record["step"]] = float(value)
    return {name: dict(sorted(course.items())) for name, course in found.items()}


def seconds(records: Sequence[Mapping[str, Any]]) -> float:
    """Time between the first and the last event, without the time between a stop and the continuation."""
    pairs = itertools.pairwise(record for record in records if "time" in record)
    return sum(max(after["time"] - before["time"], 0) for before, after in pairs if after.get("event") != "start")


def selecting_curve(run: Run) -> str:
    """The curve that selects the weights, "" without one; of held-out sentences the accuracy, or the loss where there is none."""
    name = run.about.get("selected_by", "")
    if name != "validation":
        return name
    return "validation/accuracy" if any("validation/accuracy" in record for record in run.records) else "validation/loss"


def run_name(run: Run) -> str:
    return run.model.get("name") or run.workdir.resolve().name


def curve_title(name: str) -> str:
    """The name of a curve as people read it."""
    if name in CURVES:
        return CURVES[name][0]
    section, _, rest = name.partition("/")
    rest = rest or section
    for key, label in (("/spearman_cosine", "Spearman"), ("/pearson_cosine", "Pearson")):
        if rest.endswith(key):
            return f"{rest.removesuffix(key)} {label}"
    return rest.replace("_", " ")
