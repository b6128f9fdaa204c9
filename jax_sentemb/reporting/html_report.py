"""jax-sentemb report --workdir runs/micse

Writes report.html into the work directory: what was run, curves, scores, cosines and nearest neighbours, in one file that needs
nothing else (no script, font or picture). A run writes it at its end by itself; everything in it is read from files of the work
directory, no model is loaded.
"""

import contextlib
import math
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jax_sentemb.errors import ModelFileError
from jax_sentemb.files import replacing
from jax_sentemb.reporting.html_parts import Cell, duration_text, fact_text, facts_table, number_text, page, score_text, table
from jax_sentemb.reporting.report_data import (
    CURVES,
    SECTIONS,
    UNDRAWN,
    Run,
    curve_title,
    find_curves,
    read_json_file,
    read_run,
    run_name,
    seconds,
    selecting_curve,
)
from jax_sentemb.reporting.svg import Markup, element, histogram, line_chart, scatter
from jax_sentemb.reporting.sweep_table import summary


@contextlib.contextmanager
def not_vital(workdir: Path) -> Iterator[None]:
    """A defect of the report is said in one line, and the run goes on: what it learns, and its exit code, do not depend on it."""
    try:
        yield
    except Exception as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        how = f"jax-sentemb report --workdir {workdir}"
        print(f"warning: the report is not complete: {problem}; {how} tries again", file=sys.stderr)


def write_report(workdir: Path) -> Path:
    """`workdir`/report.html of a run, done or not, or of the runs of config.sweep; errors as `read_run`."""
    rows = read_json_file(workdir / "vary.json", list)
    run = None if rows else read_run(workdir)
    try:
        content = run_page(run) if run else vary_page(workdir, rows)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ModelFileError(f"{workdir}: a file of the run is damaged ({type(error).__name__}: {error})") from error
    output = workdir / "report.html"
    with replacing(output) as partial:
        partial.write_text(content, encoding="utf-8")
    return output


def run_page(run: Run) -> str:
    """The report of one run as HTML."""
    curves = find_curves(run.records)
    parts = [
        *_header(run, curves),
        *_warnings(run),
        *_scores(run),
        *_curve_sections(run, curves),
        *_against_gold(run),
        *_random_pairs(run),
        *_neighbours(run),
        *_what_was_run(run),
    ]
    return page(run_name(run), parts)


def vary_page(workdir: Path, rows: list[dict[str, Any]]) -> str:
    """The report of the runs of config.sweep: the table with means and spreads, and each run with a link to its own report."""
    columns, groups = summary(rows)
    parts: list[Markup] = [
        element("h1", workdir.resolve().name),
        element("p", f"{len(rows)} runs of one command. Mean and, of several seeds, sample standard deviation.", _class="soft"),
        table(["settings", "runs", *columns], [[label, runs, *cells] for label, runs, cells in groups]),
        element("h2", "Runs"),
    ]
    runs = []
    for row in rows:
        label = " ".join(f"{name}={value}" for name, value in row["settings"].items())
        name: Cell = element("a", label, href=f"{quote(row['folder'])}/report.html") if "folder" in row else label
        scores = row.get("scores", {})
        runs.append([name, *(f"{scores[column]:.2f}" if column in scores else "" for column in columns), row.get("error", "")])
    failed = any("error" in row for row in rows)
    parts.append(table(["run", *columns, *["error"] * failed], [run if failed else run[:-1] for run in runs]))
    return page(workdir.resolve().name, parts)


def _header(run: Run, curves: Mapping[str, Mapping[int, float]]) -> list[Markup]:
    last, total = max((record["step"] for record in run.records), default=0), run.about.get("steps", 0)
    if run.scores:
        state = f"finished after {last:,} steps" + (f" of {total:,}" if last < total else "")
    elif any(record.get("event") == "not finite" for record in run.records):
        state = f"failed at step {last:,} of {total:,}"
    else:
        state = f"stopped at step {last:,} of {total:,}"
    times = [record["time"] for record in run.records if "time" in record]
    started = f", started {time.strftime('%Y-%m-%d %H:%M', time.gmtime(times[0]))} UTC" if times else ""
    cards, selected = [], selecting_curve(run)
    for name in dict.fromkeys((selected, "train/loss", "diagnostics/uniformity", "speed/sentences_per_second")):
        course = {step: value for step, value in curves.get(name, {}).items() if math.isfinite(value)}
        first, *others = course.values() or [math.nan]
        if name.startswith("speed/") and course:
            cards.append((curve_title(name), number_text(statistics.median(course.values())), "median over the run"))
        elif others:
            end = course.get(run.scores.get("step", -1), others[-1]) if name == selected else others[-1]
            note = "selects the weights" if name == selected else "start to end"
            cards.append((curve_title(name), f"{number_text(first, 3)} → {number_text(end, 3)}", note))
    if times:
        cards.append(("time", duration_text(seconds(run.records)), "training and the scores on the way"))
    return [
        element("h1", run_name(run)),
        element("p", f"{run.model.get('method', 'Run')}, {state}{started}", _class="soft"),
        element(
            "dl",
            *(
                element("div", element("dt", name), element("dd", value), element("dd", note, _class="soft"))
                for name, value, note in cards
            ),
            _class="cards",
        ),
    ]


def _warnings(run: Run) -> list[Markup]:
    corpus = run.about.get("corpus", {})
    found = [record["warning"] for record in run.records if "warning" in record]
    sentences = corpus.get("sentences") or corpus.get("usable") or 1
    if corpus.get("truncated", 0) / sentences >= 0.01:
        found.append(
            f"{corpus['truncated']:,} of {sentences:,} sentences of the corpus ({corpus['truncated'] / sentences:.1%}) are cut at "
            f"data.max_seq_length={corpus.get('max_seq_length')}"
        )
    if corpus.get("unknown_token_rate", 0) >= 0.01:
        found.append(f"{corpus['unknown_token_rate']:.1%} of the corpus are tokens that the vocabulary does not have")
    if run.scores.get("absent"):
        found.append(f"evaluation sets absent, not scored: {', '.join(run.scores['absent'])}")
    return [element("ul", *(element("li", text) for text in dict.fromkeys(found)), _class="warn")] if found else []


def _scores(run: Run) -> list[Markup]:
    scores, transfer = run.scores.get("scores", {}), run.scores.get("transfer", {})
    if not run.scores:
        return []
    parts = [element("h2", "Scores")]
    if not scores and not transfer:
        return [*parts, element("p", "No evaluation set was given, so nothing is scored.", _class="soft")]
    if scores:
        baselines = {name: values for name, values in run.scores.get("baselines", {}).items() if set(values) & set(scores)}
        start = baselines.pop("untrained", {})
        rows = []
        for name, result in scores.items():
            end, before = result["spearman"]["all"], start.get(name)
            change = "" if before is None else f"{end - before:+.2f}".replace("-", "\N{MINUS SIGN}")
            others = [score_text(values.get(name)) for values in baselines.values()]
            rows.append([name, f"{result['n']:,}", score_text(before), score_text(end), change, *others])
        note = f"Spearman × 100 with gold over all pairs, of the weights of step {run.scores['step']:,}."
        if set(scores) - set(start):
            note += " The start is scored only on the set that selects the weights."
        parts += [
            element("p", note, _class="soft"),
            table(["set", "pairs", "start", "end", "change", *baselines], rows),
        ]
        parts.append(element("details", element("summary", "Pearson, means and subsets"), _all_scores(scores)))
    if transfer:
        rows = [
            [task, found["protocol"], name, score_text(value)]
            for task, found in transfer.items()
            for name, value in found["headline"].items()
        ]
        parts += [element("h3", "Other tasks"), table(["task", "protocol", "number", "score"], rows)]
    return parts


def _all_scores(scores: Mapping[str, Any]) -> Markup:
    rows = []
    for name, result in scores.items():
        numbers = [score_text(result[kind][which]) for kind in ("spearman", "pearson") for which in ("all", "mean", "wmean")]
        rows.append([name, *numbers])
        if len(result["spearman"]["subsets"]) > 1:
            for subset, value in result["spearman"]["subsets"].items():
                rows.append(
                    [f"{name}: {subset}", score_text(value), "", "", score_text(result["pearson"]["subsets"][subset]), "", ""]
                )
    kinds = ("all pairs", "mean", "weighted mean")
    return table(["set", *(f"{kind}, {which}" for kind in ("Spearman", "Pearson") for which in kinds)], rows)


def _curve_sections(run: Run, curves: Mapping[str, Mapping[int, float]]) -> list[Markup]:
    parts: list[Markup] = []
    known = [selecting_curve(run), *CURVES]  # in this order, the others behind
    names = sorted(curves, key=lambda name: (known.index(name) if name in known else len(known), name))
    for section, title in (*SECTIONS.items(), ("", "More")):
        here = [name for name in names if _section(name) == section and name not in UNDRAWN]
        if figures := [figure for name in here for figure in _curve(run, name, curves[name])]:
            parts += [element("h2", title), element("div", *figures, _class="grid-of")]
    rows = []
    for name in names:
        values = [value for value in curves[name].values() if math.isfinite(value)]
        numbers = (
            [number_text(value) for value in (values[0], values[-1], min(values), max(values))] if values else ["not finite"] * 4
        )
        rows.append([name, f"{len(curves[name]):,}", *numbers])
    numbers_table = table(["curve", "points", "first", "last", "lowest", "highest"], rows)
    return [*parts, element("details", element("summary", "All curves as numbers"), numbers_table)]


def _section(name: str) -> str:
    section = name.partition("/")[0]
    return section if section in SECTIONS else ""


def _curve(run: Run, name: str, course: Mapping[int, float]) -> list[Markup]:
    """The figure of a curve; none where no value is finite."""
    points = [(float(step), value) for step, value in course.items() if math.isfinite(value)]
    if not points:
        return []
    selects = name == selecting_curve(run)
    mark = run.scores.get("step") if selects else None
    change = f"{number_text(points[0][1])} → {number_text(points[-1][1])}"
    notes = [CURVES[name][1]] if name in CURVES else []
    notes += ["selects the weights"] if selects else []
    notes += [change]
    notes += [f"dashed: the weights that were kept, step {mark:,}"] if mark is not None else []
    notes += [f"{lost} values not finite, left out"] if (lost := len(course) - len(points)) else []
    picture = line_chart(f"{curve_title(name)} over steps: {change}", points, mark)
    return [element("figure", picture, element("figcaption", element("b", curve_title(name)), ". ", "; ".join(notes)))]


def _against_gold(run: Run) -> list[Markup]:
    what = "score" if run.model.get("scores_pairs") else "cosine"
    names = list(dict.fromkeys(name for seen in run.looks.values() for name in seen["pairs"]))
    figures = []
    for name in names:
        sides = {when: seen["pairs"][name] for when, seen in run.looks.items() if name in seen["pairs"]}
        known = {"start": run.scores.get("baselines", {}).get("untrained", {}).get(name)}
        known["end"] = run.scores["scores"][name]["spearman"]["all"] if name in run.scores.get("scores", {}) else None
        for when, side in sides.items():
            score = f", Spearman {known[when]:.2f}" if known[when] is not None else ""
            title = f"{name}, {when}: {what} against gold score{score}"
            picture = scatter(title, side["dots"], side["ranges"], "a" if when == "end" else "b")
            caption = element("b", f"{name}, {when}"), f"{score}; {side['n']:,} pairs"
            figures.append(element("figure", picture, element("figcaption", *caption)))
    if not figures:
        return []
    text = (
        f"Up: {what} of a pair; across: the gold score. Boxes: the middle half of a range of gold scores with its median, "
        "lines to the 5th and 95th percentile, of all pairs; dots: some of them. Each picture has a scale of its own."
    )
    heading = f"{what.capitalize()} against gold"
    return [element("h2", heading), element("p", text, _class="soft"), element("div", *figures, _class="grid-of two")]


def _random_pairs(run: Run) -> list[Markup]:
    found = {when: seen["cosines"] for when, seen in run.looks.items() if "cosines" in seen}
    if not found:
        return []
    series = {"a" if when == "end" else "b": side["counts"] for when, side in found.items()}
    text = ", ".join(f"mean at the {when} {side['mean']:.3f}" for when, side in found.items())
    keys = [part for when in found for part in (element("i", "", _class=f"key {'a' if when == 'end' else 'b'}"), f" {when}  ")]
    among = next(seen["neighbours"]["among"] for seen in run.looks.values() if "neighbours" in seen)
    caption = element(
        "figcaption",
        *keys,
        f"All pairs of {among:,} sentences of the corpus by their cosine, each outline to its own height; {text}.",
    )
    picture = histogram(f"Cosines of any two sentences: {text}", -1, 1, series)
    return [
        element("h2", "Cosines of any two sentences"),
        element("div", element("figure", picture, caption), _class="grid-of two"),
    ]


def _neighbours(run: Run) -> list[Markup]:
    found = {when: seen["neighbours"] for when, seen in run.looks.items() if "neighbours" in seen}
    if not found:
        return []
    among = next(iter(found.values()))["among"]
    parts = [
        element("h2", "Nearest neighbours"),
        element("p", f"Among {among:,} sentences of the corpus, with their cosines.", _class="soft"),
    ]
    for queries in zip(*(side["queries"] for side in found.values()), strict=True):
        rows = []
        for ranked in zip(*(query["nearest"] for query in queries), strict=True):
            rows.append(
                [element("span", element("span", f"{cosine:.3f} ", _class="n"), element("bdi", text)) for cosine, text in ranked]
            )
        parts += [element("blockquote", element("bdi", queries[0]["sentence"])), table(list(found), rows, "near", heads=False)]
    return parts


def _what_was_run(run: Run) -> list[Markup]:
    corpus, devices, encoder = (run.about.get("corpus", {}), run.about.get("devices", {}), run.model.get("encoder", {}))
    count, kind = devices.get("count", 0), devices.get("kind", "")
    processes = f" in {devices['processes']} processes" if devices.get("processes", 1) > 1 else ""
    sizes = {
        "layers": encoder.get("num_hidden_layers"),
        "width": encoder.get("hidden_size"),
        "vocabulary": encoder.get("vocab_size"),
    }
    facts: dict[str, object] = {
        "method": run.model.get("method"),
        "starts from": run.settings.get("encoder.weights") or run.settings.get("encoder.vectors") or "new weights",
        "corpus": run.settings.get("data.files"),
        **{f"corpus: {name.replace('_', ' ')}": value for name, value in corpus.items()},
        "encoder": ", ".join(f"{name} {value:,}" for name, value in sizes.items() if value),
        "parameters": run.about.get("parameters"),
        "steps": run.about.get("steps"),
        "batch size": run.settings.get("data.batch_size"),
        "devices": f"{count} × {kind} ({devices.get('platform')}){processes}" if devices else None,
        "versions": ", ".join(f"{name} {version}" for name, version in run.about.get("versions", {}).items()),
        "Python": run.about.get("python"),
    }
    rows = [[name, fact_text(value)] for name, value in facts.items() if value not in (None, "")]
    parts = [element("h2", "What was run"), element("pre", _command(run.about.get("argv", [])))]
    if (run.workdir / "before" / "report.html").exists():
        parts.append(element("p", "It goes on from another run: ", element("a", "its report", href="before/report.html")))
    parts.append(facts_table(rows))
    settings = facts_table([[name, fact_text(value)] for name, value in run.settings.items()])
    return [*parts, element("details", element("summary", "All settings"), settings)]


def _command(argv: Sequence[str]) -> str:
    if argv and Path(argv[0]).parts[-2:] == ("jax_sentemb", "main.py"):
        return f"python -m jax_sentemb.main {shlex.join(argv[1:])}"
    return shlex.join(argv)
