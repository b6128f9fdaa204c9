"""Read the work directory of a run for its report: files, curves, and the time that the run took."""

import itertools
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jax_sentemb.errors import REPLACE_FILE, ModelFileError, Setting, first_line
from jax_sentemb.files import check_regular, fingerprint, print_warning, read_limited
from jax_sentemb.provenance import KEY, RUN, check, difference
from jax_sentemb.reporting.plot_data import read_metrics


class Curve(NamedTuple):
    """The presentation of a logged number: its title, the unit of its axis, and how to read it."""

    title: str
    unit: str
    note: str = ""


CURVES = {  # any other number has its name as title
    "train/loss": Curve("loss", "loss", "of training batches; not comparable between settings"),
    "train/grad_norm": Curve("gradient norm", "norm", "before clipping"),
    "train/accuracy": Curve("accuracy", "share of 1", "of the training task in a batch"),
    "train/alignment": Curve("alignment in a batch", "squared distance", "of two views of a sentence; 0 is best"),
    "train/learning_rate": Curve("learning rate", "rate"),
    "validation/loss": Curve("held-out loss", "loss", "of sentences that are not trained on"),
    "validation/accuracy": Curve("held-out accuracy", "share of 1", "of the training task on sentences that are not trained on"),
    "agreement/neighbours": Curve("neighbours kept", "%", "of the teacher's ten nearest neighbours, on held-out sentences"),
    "agreement/pairs": Curve("order of pairs kept", "Spearman x 100", "of the cosines of all pairs of held-out sentences"),
    "agreement/cosine": Curve("cosine to the teacher", "cosine x 100", "mean over held-out sentences"),
    "diagnostics/retrieval": Curve("retrieval", "100 / rank", "one half of a sentence ranks the other half among all; 100 is best"),
    "diagnostics/alignment": Curve(
        "alignment",
        "squared distance",
        "of the two halves of a sentence, 0 to 4; it rises when vectors spread out, so a rise alone is not damage",
    ),
    "diagnostics/uniformity": Curve("uniformity", "log of a mean", "lower is more even, 0 is collapse"),
    "diagnostics/spread": Curve("spread", "0 to 1", "1 is isotropic, 0 is collapse"),
    "diagnostics/mean_cosine": Curve("mean cosine", "cosine", "of any two sentences; near 0 is isotropic, 1 is collapse"),
    "diagnostics/effective_rank": Curve("effective rank", "directions", "number of directions in use"),
    "speed/sentences_per_second": Curve("speed", "sentences/s", "without compilation, evaluation and saving"),
}
SECTIONS = {  # first part of the name of a curve -> heading
    "eval": "Scores over steps",
    "agreement": "Agreement with the teacher over steps",
    "validation": "Scores over steps",
    "diagnostics": "Label-free measures over steps",
    "train": "Training",
    "speed": "Training",
}
ENCODER = " encoder/"  # "first encoder/NAME" is NAME of another candidate for export


class Run(NamedTuple):
    """The contents of a work directory's files; {} and () for missing files."""

    workdir: Path
    about: dict[str, Any]  # run.json
    settings: dict[str, Any]  # config.json
    model: dict[str, Any]  # model.json
    records: Sequence[dict[str, Any]]  # metrics.jsonl
    scores: dict[str, Any]  # scores.json, of a finished run
    samples: dict[str, dict[str, Any]]  # samples/start.json and end.json


def read_run(workdir: Path) -> Run:
    """Read a work directory.

    Raises:
        ModelFileError: The directory has no run.json, or a file is damaged or a folder.
    """
    if not (workdir / "run.json").exists():
        raise ModelFileError(
            f"{workdir} is not the work directory of a run: it has no run.json; give the ", Setting("--workdir"), " of a run"
        )
    about, settings = (read_json_file(workdir / name) for name in ("run.json", "config.json"))
    check(workdir / "run.json", about, RUN)
    run = {"run": about[KEY]["sources"].get("run")}
    if settings and about.get("settings_sha256") != fingerprint(settings):
        print_warning(f"{workdir / 'config.json'} has the settings of another run; it is left out of the report")
        settings = {}
    model, scores = (read_of_run(workdir / name, run) for name in ("model.json", "scores.json"))
    samples = {when: content for when in ("start", "end") if (content := read_of_run(workdir / "samples" / f"{when}.json", run))}
    return Run(workdir, about, settings, model, read_metrics(workdir), scores, samples)


def read_of_run(file: Path, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a file of a run, {} if it is missing or of another run."""
    content = read_json_file(file)
    if content:
        check(file, content, RUN)
    if content and (problem := difference(content, RUN, run)):
        print_warning(f"{file} {problem}; it is left out of the report")
        return {}
    return content


def read_json_file(file: Path, expected_type: type = dict) -> Any:
    """Return the content of a JSON file, an empty `expected_type` if the file is missing.

    Raises:
        ModelFileError: The file is damaged, or not a file.
    """
    try:
        check_regular(file)
        content = json.loads(read_limited(file))
        if not isinstance(content, expected_type):
            raise ValueError(f"a {type(content).__name__}, expected a {expected_type.__name__}")
        return content
    except FileNotFoundError:
        return expected_type()
    except OSError as error:
        raise ModelFileError(f"{file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{file} is damaged: {first_line(error)}; {REPLACE_FILE}") from None


def is_finished(run: Run) -> bool:
    """Return whether a run has its scores; a run that is made longer has those of its earlier end until it ends again."""
    events = [record["event"] for record in run.records if record.get("event") in ("start", "end")]
    return bool(run.scores) and events[-1:] != ["start"]


def run_state(run: Run) -> str:
    """Return the method of a run, whether it finished, its steps and when it was started."""
    last, total = max((record["step"] for record in run.records), default=0), run.about.get("steps", 0)
    if is_finished(run):
        state = f"finished after {last:,} steps" + (f" of {total:,}" if last < total else "")
    elif any(record.get("event") == "not finite" for record in run.records):
        state = f"failed at step {last:,} of {total:,}"
    else:
        state = f"stopped at step {last:,} of {total:,}"
        if run.scores:
            state += f"; the scores are those of step {run.scores['step']:,}"
    times = [record["time"] for record in run.records if "time" in record]
    started = f", started {time.strftime('%Y-%m-%d %H:%M', time.gmtime(times[0]))} UTC" if times else ""
    return f"{run.model.get('method', 'Run')}, {state}{started}"


def find_curves(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """Return {name: {step: value}} of every logged number, ordered by step; of two values at a step the later one.

    A measure begins anew where a run continued with another scale, since earlier values cannot be compared.
    """
    curves: dict[str, dict[int, float]] = {}
    for record in records:
        for measures in record.get("new_scale", ()):
            curves = {name: course for name, course in curves.items() if not name.startswith(measures)}
        if "event" in record:
            continue
        for name, value in record.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and name not in ("step", "time"):
                curves.setdefault(name, {})[record["step"]] = float(value)
    return {name: dict(sorted(course.items())) for name, course in curves.items()}


def seconds(records: Sequence[Mapping[str, Any]]) -> float:
    """Return the time from the beginning of the run to its last event, without the time between a stop and the continuation."""
    timed = [record for record in records if "time" in record]
    pairs = itertools.pairwise(timed)
    logged = sum(max(after["time"] - before["time"], 0) for before, after in pairs if after.get("event") != "start")
    return logged + sum(record.get("milliseconds_before", 0) for record in timed) / 1000


def selecting_curve(run: Run) -> str:
    """Return the name of the curve that selects the weights, "" if there is none.

    `validation` is its accuracy, or its loss if it has no accuracy.
    """
    name = run.about.get("selected_by", "")
    if name != "validation":
        return name
    return "validation/accuracy" if any("validation/accuracy" in record for record in run.records) else "validation/loss"


def is_drawn(name: str, curves: Mapping[str, Mapping[int, float]]) -> bool:
    """Return whether a curve has a picture.

    Curves that repeat another curve, and collapse (a warning), are only in the table of numbers.
    """
    if name.endswith("/pearson_cosine"):
        return name.replace("/pearson_", "/spearman_") not in curves
    if name.startswith("train/") and name != "train/loss":  # the only term of the loss
        return curves[name] != curves.get("train/loss")
    return name not in ("diagnostics/collapsed", "speed/steps_per_second")


def run_name(run: Run) -> str:
    """Return the name of a run's model, or that of its work directory."""
    return run.model.get("name") or run.workdir.resolve().name


def describe_curve(name: str) -> Curve:
    """Return the title, unit and note of a curve."""
    if name in CURVES:
        return CURVES[name]
    section, _, measure = name.partition("/")
    measure = measure or section
    for key, label in (("/spearman_cosine", "Spearman"), ("/pearson_cosine", "Pearson")):
        if measure.endswith(key):
            return Curve(f"{measure.removesuffix(key)} {label}", f"{label} × 100", "correlation with gold scores")
    return Curve(measure.replace("_", " "), "value")
