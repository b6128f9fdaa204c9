"""Make the sections of a run's report: tables, figures and texts for the template run.html."""

import math
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_sentemb.errors import Setting, stored_text
from jax_sentemb.formats.model_card import describe_changes, describe_teacher, describe_widths
from jax_sentemb.public_text import public_argument, without_folders
from jax_sentemb.reporting.html_parts import Figure, duration_text, fact_text, number_text, score_text
from jax_sentemb.reporting.map_page import map_section
from jax_sentemb.reporting.report_data import (
    CURVES,
    ENCODER,
    SECTIONS,
    Run,
    describe_curve,
    find_curves,
    is_drawn,
    is_finished,
    run_name,
    run_state,
    seconds,
    selecting_curve,
)
from jax_sentemb.reporting.svg import histogram, line_chart, scatter

Curves = Mapping[str, Mapping[int, float]]
HUNDRED = "of 100, chance 0, higher is better"  # of correlations x 100
CLASSES = {"start": "b", "end": "a"}  # colours of the untrained and of the exported weights


def context(run: Run) -> dict[str, Any]:
    """Return the variables of the template of a run, by name."""
    curves = find_curves(run.records)
    run_by, *arguments = run.about.get("argv") or ["-c"]
    return {
        "name": run_name(run),
        "state": run_state(run),
        "finished": is_finished(run),
        "cards": _cards(run, curves),
        "warnings": list(map(without_folders, _warnings(run))),
        "scores": _scores(run, curves),
        "evidence": _evidence(run, curves),
        "neighbours": _neighbours(run),
        "map": _corpus_map(run),
        "random_pairs": _random_pairs(run),
        "curves": _curve_sections(run, curves),
        "numbers": _curve_numbers(run, curves),
        "gold": _against_gold(run),
        "command": command_line([run_by, *(public_argument(argument, run.model.get("base_model")) for argument in arguments)]),
        "pretrained": (run.workdir / "pretrain" / "report.html").exists(),
        "facts": _facts(run),
        "settings": [(name, without_folders(fact_text(value))) for name, value in run.settings.items()],
    }


def _cards(run: Run, curves: Curves) -> list[dict[str, str]]:
    """Return summary cards: start and kept weights by the selection score, on labelled pairs and by retrieval; the time."""
    cards = []
    scores, start = run.scores.get("scores", {}), run.scores.get("baselines", {}).get("untrained", {})
    shared = [name for name in scores if name in start]
    if len(shared) > 1:
        before, after = (statistics.mean(values) for values in ([start[n] for n in shared], [_spearman(scores[n]) for n in shared]))
        cards.append(_card(f"mean of {len(shared)} sets", before, after, 2, f"Spearman {HUNDRED}; start → kept weights"))
    selected = selecting_curve(run)
    dev = [name for name in curves if name.startswith("eval/") and name.endswith("/spearman_cosine")]
    for name in dict.fromkeys((selected, *dev, "diagnostics/retrieval")):
        course = {step: value for step, value in curves.get(name, {}).items() if math.isfinite(value)}
        if len(course) > 1:
            first, *later = course.values()
            end = course.get(run.scores.get("step", -1), later[-1])
            note = "start → kept weights" if run.scores else "start → last"
            note += "; selects the weights" if name == selected else ""
            note = f"{_scale(name, run)}; {note}"
            cards.append(_card(describe_curve(name).title, first, end, 3, note))
    if any("time" in record for record in run.records):
        speed = [value for value in curves.get("speed/sentences_per_second", {}).values() if math.isfinite(value)]
        end = "export" if run.scores else "last event"
        note = f"from reading the corpus to the {end}, with compilation and scoring"
        note += f"; {number_text(statistics.median(speed), 3)} sentences/s in training" if speed else ""
        cards.append({"name": "time", "value": duration_text(seconds(run.records)), "note": note})
    return cards


def _scale(name: str, run: Run) -> str:
    """Return what the number of a card is out of, its value by chance, and which direction is better."""
    if name == "diagnostics/retrieval":
        count = run.about.get("diagnostic_sentences", 512)
        chance = 100 / max(count, 1) * sum(1 / rank for rank in range(1, count + 1))  # the mean of 100 / rank over all ranks
        return f"half a sentence looks for its other half among {count}: mean of 100 / rank, 100 is best, chance {chance:.1f}"
    if name == "validation/loss":
        return "lower is better"
    if name == "validation/accuracy":
        return "of 1, higher is better"
    return HUNDRED if name.endswith(("/spearman_cosine", "/pearson_cosine")) else "of 100, higher is better"


def _card(name: str, first: float, end: float, digits: int, note: str) -> dict[str, str]:
    values = [score_text(value) if digits == 2 else number_text(value, digits) for value in (first, end)]
    return {"name": name, "value": " → ".join(values), "note": note}


def _spearman(result: Mapping[str, Any]) -> float:
    return result["spearman"]["all"]


def _warnings(run: Run) -> list[str]:
    corpus = run.about.get("corpus", {})
    warnings = [record["warning"] for record in run.records if "warning" in record] + run.scores.get("warnings", [])
    sentences = corpus.get("sentences") or corpus.get("usable") or 1
    if corpus.get("truncated", 0) / sentences >= 0.01:
        share = f"{corpus['truncated']:,} of {sentences:,} sentences of the corpus ({corpus['truncated'] / sentences:.1%})"
        warnings.append(stored_text(f"{share} are cut at ", Setting("data.max_seq_length", corpus.get("max_seq_length"))))
    if corpus.get("unknown_token_rate", 0) >= 0.01:
        warnings.append(f"{corpus['unknown_token_rate']:.1%} of the corpus are tokens that the vocabulary does not have")
    if run.scores.get("missing_tasks"):
        warnings.append(f"evaluation sets missing, not scored: {', '.join(run.scores['missing_tasks'])}")
    return list(dict.fromkeys(warnings))


def _scores(run: Run, curves: Curves) -> dict[str, Any]:
    """Return the tables of scores; {} if nothing was scored."""
    scores, transfer, dev = (run.scores.get(name, {}) for name in ("scores", "transfer", "dev"))
    if not scores and not transfer and not dev:
        return {}
    baselines = {name: values for name, values in run.scores.get("baselines", {}).items() if set(values) & set(scores)}
    start = baselines.pop("untrained", {})
    rows = []
    for name, result in scores.items():
        end, before = _spearman(result), start.get(name)
        change = "" if before is None else f"{end - before:+.2f}".replace("-", "\N{MINUS SIGN}")
        other_scores = [score_text(values.get(name)) for values in baselines.values()]
        rows.append([name, f"{result['n']:,}", score_text(before), score_text(end), change, *other_scores])
    note = f"Spearman × 100 with gold scores over all pairs, of the weights of step {run.scores['step']:,}."
    if set(scores) - set(start):
        note += " The start is scored only on the set that selects the weights."
    aggregates = ("all pairs", "mean", "weighted mean")
    tasks = [
        [task, result["protocol"], name, score_text(value)]
        for task, result in transfer.items()
        for name, value in result["headline"].items()
    ]
    return {
        "note": note,
        "columns": ["set", "pairs", "start", "kept", "change", *baselines],
        "rows": rows,
        "all_columns": [
            "set",
            *(f"{correlation}, {aggregate}" for correlation in ("Spearman", "Pearson") for aggregate in aggregates),
        ],
        "all_rows": _all_scores(scores),
        "dev": [[name, score_text(curves.get(f"eval/dev/{name}", {}).get(0)), score_text(value)] for name, value in dev.items()],
        "tasks": tasks,
    }


def _all_scores(scores: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for name, result in scores.items():
        numbers = [
            score_text(result[correlation][aggregate])
            for correlation in ("spearman", "pearson")
            for aggregate in ("all", "mean", "wmean")
        ]
        rows.append([name, *numbers])
        if len(result["spearman"]["subsets"]) > 1:
            for subset, value in result["spearman"]["subsets"].items():
                rows.append(
                    [f"{name}: {subset}", score_text(value), "", "", score_text(result["pearson"]["subsets"][subset]), "", ""]
                )
    return rows


def _evidence(run: Run, curves: Curves) -> list[list[str]]:
    """Return rows of the label-free measures: title, value of the untrained and of the kept weights, how to read it."""
    rows = []
    for name, curve in CURVES.items():
        course = [value for value in curves.get(name, {}).values() if math.isfinite(value)]
        if name.startswith("diagnostics/") and course:
            kept_value = run.scores.get("diagnostics", {}).get(name.removeprefix("diagnostics/"), course[-1])
            rows.append([curve.title, number_text(course[0]), number_text(kept_value), curve.note])
    return rows


def _curve_sections(run: Run, curves: Curves) -> list[dict[str, Any]]:
    names = _in_order(run, curves)
    sections = []
    for title in dict.fromkeys((*SECTIONS.values(), "More")):
        section_names = [name for name in names if _heading(name) == title and ENCODER not in name and is_drawn(name, curves)]
        if figures := [figure for name in section_names if (figure := _curve_figure(run, name, curves))]:
            sections.append({"title": title, "figures": figures})
    return sections


def _in_order(run: Run, curves: Curves) -> list[str]:
    first_names = [selecting_curve(run), *CURVES]  # in this order, before all others
    return sorted(curves, key=lambda name: (first_names.index(name) if name in first_names else len(first_names), name))


def _heading(name: str) -> str:
    return SECTIONS.get(name.partition("/")[0], "More")


def _curve_figure(run: Run, name: str, curves: Curves) -> Figure | None:
    """Return the figure of a curve with those of other encoders; None if no value is finite."""
    encoder_curves = {
        curve_name.partition(ENCODER)[0] + ENCODER[:-1]: values
        for curve_name, values in curves.items()
        if curve_name.endswith(ENCODER + name)
    }
    courses = {"main encoder" if encoder_curves else "": curves[name], **encoder_curves}
    series = {
        letter: points
        for letter, course in zip("ab", courses.values(), strict=False)
        if (points := [(float(step), value) for step, value in course.items() if math.isfinite(value)])
    }
    if "a" not in series:
        return None
    selects = name == selecting_curve(run)
    mark = run.scores.get("step") if selects else None
    curve = describe_curve(name)
    change = f"{number_text(series['a'][0][1])} → {number_text(series['a'][-1][1])}"
    notes = [curve.note] if curve.note else []
    notes += ["selects the weights"] if selects else []
    notes += [change]
    notes += [f"dashed: the weights that were kept, step {mark:,}"] if mark is not None else []
    notes += [f"{left_out} values not finite, left out"] if (left_out := len(curves[name]) - len(series["a"])) else []
    picture = line_chart(f"{curve.title} over steps: {change}", series, curve.unit, mark)
    keys = list(zip(series, courses, strict=False)) if encoder_curves else ()
    return Figure(picture, curve.title, "; ".join(notes), keys)


def _curve_numbers(run: Run, curves: Curves) -> list[list[str]]:
    rows = []
    for name in _in_order(run, curves):
        values = [value for value in curves[name].values() if math.isfinite(value)]
        ends = (values[0], values[-1], min(values), max(values)) if values else ()
        rows.append([name, f"{len(curves[name]):,}", *(map(number_text, ends) if ends else ["not finite"] * 4)])
    return rows


def _against_gold(run: Run) -> dict[str, Any]:
    """Return figures of similarities over gold scores, before and after training."""
    value_name = "score" if run.model.get("scores_pairs") else "cosine"
    names = list(dict.fromkeys(name for sample in run.samples.values() for name in sample["pairs"]))
    figures = []
    for name in names:
        sides = {when: sample["pairs"][name] for when, sample in run.samples.items() if name in sample["pairs"]}
        spearman = {"start": run.scores.get("baselines", {}).get("untrained", {}).get(name)}
        spearman["end"] = _spearman(run.scores["scores"][name]) if name in run.scores.get("scores", {}) else None
        for when, side in sides.items():
            score = f"Spearman {spearman[when]:.2f}; " if spearman[when] is not None else ""
            title = f"{name}, {_when(when)}"
            labels = ("gold score", f"{value_name} of a pair")
            picture = scatter(
                f"{title}: {value_name} against gold score; {score}", side["dots"], side["ranges"], CLASSES[when], labels
            )
            figures.append(Figure(picture, title, f"{score}{side['n']:,} pairs"))
    return {"heading": f"{value_name.capitalize()} against gold", "figures": figures} if figures else {}


def _when(name: str) -> str:
    """Return the label of a sample: those of a run are named start and end, and the report calls the second "kept"."""
    return {"end": "kept"}.get(name, name)


def _random_pairs(run: Run) -> Figure | None:
    cosines = {when: sample["cosines"] for when, sample in run.samples.items() if "cosines" in sample}
    if not cosines:
        return None
    series = {CLASSES[when]: side["counts"] for when, side in cosines.items()}
    text = ", ".join(f"{_when(when)} {side['mean']:.3f}" for when, side in cosines.items())
    among = next(sample["neighbours"]["among"] for sample in run.samples.values() if "neighbours" in sample)
    picture = histogram(f"Cosines of any two sentences, mean: {text}", -1, 1, series, "cosine")
    notes = f"All pairs of {among:,} sentences of the corpus, each outline to its own height. Mean: {text}."
    return Figure(
        picture, "Start and kept weights" if len(cosines) > 1 else "Start", notes, [(CLASSES[w], _when(w)) for w in cosines]
    )


def _neighbours(run: Run) -> dict[str, Any]:
    """Return some sentences with their nearest neighbours before and after training, side by side."""
    by_time = {when: sample["neighbours"] for when, sample in run.samples.items() if "neighbours" in sample}
    if not by_time:
        return {}
    end = run.samples.get("end", {})
    if "neighbours_before" in end:
        by_time = {"start": end["neighbours_before"], "end": end["neighbours"]}
    elif "end" in by_time:  # the sentences of the start were others
        del by_time["start"]
    queries = [
        {"sentence": sides[0]["sentence"], "rows": list(zip(*(query["nearest"] for query in sides), strict=True))}
        for sides in zip(*(side["queries"] for side in by_time.values()), strict=True)
    ]
    return {
        "among": next(iter(by_time.values()))["among"],
        "times": [_when(when) for when in by_time],
        "queries": queries,
        "kept": end.get("neighbours", {}).get("kept"),
        "changes": describe_changes(changes) if (changes := run.scores.get("changes")) else "",
    }


def _corpus_map(run: Run) -> dict[str, Any]:
    """Return the variables of the map before and after training; {} if no map was stored."""
    corpus_map = run.samples.get("end", {}).get("map")
    return map_section(corpus_map) if corpus_map else {}


def _facts(run: Run) -> list[tuple[str, str]]:
    corpus, devices, encoder = (run.about.get("corpus", {}), run.about.get("devices", {}), run.model.get("encoder", {}))
    count, chip = devices.get("count", 0), devices.get("kind", "")
    processes = f" in {devices['processes']} processes" if devices.get("processes", 1) > 1 else ""
    sizes = {"layers": "num_hidden_layers", "width": "hidden_size", "vocabulary": "vocab_size"}
    weights = run.model.get("base_model") or run.settings.get("encoder.weights")
    facts: dict[str, object] = {
        "method": run.model.get("method"),
        "starts from": weights or run.settings.get("encoder.vectors") or "new weights",
        "layers of the start": run.settings.get("encoder.layers"),
        "teacher": describe_teacher(run.scores["teacher"]) if run.scores.get("teacher") else None,
        "widths": describe_widths(run.scores["widths"]) if run.scores.get("widths") else None,
        "corpus": run.settings.get("data.files"),
        **{f"corpus: {name.replace('_', ' ')}": value for name, value in corpus.items()},
        "encoder": ", ".join(f"{name} {encoder[key]:,}" for name, key in sizes.items() if encoder.get(key)),
        "parameters": run.about.get("parameters"),
        "steps": run.about.get("steps"),
        "batch size": run.settings.get("data.batch_size"),
        "devices": f"{count} × {chip} ({devices.get('platform')}){processes}" if devices else None,
        "versions": ", ".join(f"{name} {version}" for name, version in run.about.get("versions", {}).items()),
        "Python": run.about.get("python"),
    }
    return [(name, without_folders(fact_text(value))) for name, value in facts.items() if value not in (None, "")]


def command_line(argv: Sequence[str]) -> str:
    """Return a command line as its user wrote it; "jax_sentemb.train(...) in Python" for a notebook and `python -c`."""
    program = Path(argv[0]) if argv else Path()
    if program.parts[-2:] == ("jax_sentemb", "main.py"):
        return f"python -m jax_sentemb.main {shlex.join(argv[1:])}"
    if program.parts[-2:] == ("jax_sentemb", "__main__.py") or program.name == "jax-sentemb":
        return f"jax-sentemb {shlex.join(argv[1:])}"
    if program.name.startswith("ipykernel") or program.name == "-c":
        return "jax_sentemb.train(...) in Python"
    return shlex.join([program.name, *argv[1:]]) if argv else ""
