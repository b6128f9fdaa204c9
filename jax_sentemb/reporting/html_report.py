"""jax-sentemb report --workdir runs/micse

Writes report.html into the work directory: what was run, curves, scores, cosines and nearest neighbours, in one file that needs
nothing else (no script, font or picture). A run writes it at its end by itself; everything in it is read from files of the work
directory, no model is loaded.
"""

import contextlib
import itertools
import json
import math
import shlex
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from jax_sentemb.errors import ModelFileError
from jax_sentemb.files import replacing
from jax_sentemb.reporting.plots import read_metrics
from jax_sentemb.reporting.svg import Markup, element, histogram, line_chart, scatter, together
from jax_sentemb.reporting.sweep_table import summary

STYLE = """
:root{color-scheme:light dark;--back:#fff;--card:#f5f6f8;--text:#1b1f24;--soft:#59626d;--line:#d9dde2;--a:#0072b2;--b:#d55e00;
--warn:#fff4d6;--edge:#b98900}
@media(prefers-color-scheme:dark){:root{--back:#14171a;--card:#1e2327;--text:#e6e8ea;--soft:#9aa4ae;--line:#353c43;--a:#56b4e9;
--b:#f0a04b;--warn:#33290f;--edge:#d9a92b}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:72rem;background:var(--back);color:var(--text);font:1rem/1.5 system-ui,sans-serif;
overflow-wrap:anywhere}
h1{font-size:1.7rem;line-height:1.2;margin:.5rem 0 0}h2{font-size:1.25rem;margin:2.2rem 0 .6rem}
h3{font-size:1rem;margin:1.4rem 0 .4rem}p{margin:.4rem 0}a{color:var(--a)}
.soft,figcaption,caption{color:var(--soft);font-size:.875rem}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.6rem;margin:1rem 0}
.cards div{background:var(--card);border-radius:.5rem;padding:.6rem .8rem}
.cards dt{color:var(--soft);font-size:.8rem}.cards dd{margin:0;font-size:1.25rem;line-height:1.3;font-weight:600}
.cards dd.soft{font-size:.8rem;font-weight:400}
ul.warn{background:var(--warn);border-left:.25rem solid var(--edge);border-radius:.25rem;margin:1rem 0;
padding:.6rem 1rem .6rem 2rem}
.grid-of{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(19rem,100%),1fr));gap:1.2rem 1.5rem}
.two{grid-template-columns:repeat(auto-fill,minmax(min(19rem,100%),26rem))}
figure{margin:0}figcaption b{color:var(--text)}svg{display:block;width:100%;height:auto}
.grid{stroke:var(--line);fill:none}.tick{fill:var(--soft);font-size:11px;text-anchor:middle}.tick.end{text-anchor:end}
.a{--c:var(--a)}.b{--c:var(--b)}
.line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}.band{fill:var(--c);opacity:.22}
.filled{fill:var(--c);fill-opacity:.12}.mark{stroke:var(--soft);stroke-dasharray:4 4}
.dots{stroke:var(--c);stroke-width:3;stroke-linecap:round;fill:none;opacity:.45}.dots.large{stroke-width:6;opacity:1}
.box{fill:none;stroke:var(--text);stroke-width:1.3}.median{stroke-width:3.5}
i.key{margin-left:.4em;display:inline-block;width:.8em;height:.8em;border-radius:.2em;background:var(--c)}
table{border-collapse:collapse;width:100%;margin:.4rem 0;font-variant-numeric:tabular-nums}
caption{text-align:left}th,td{padding:.3rem .6rem .3rem 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
thead th{color:var(--soft);font-weight:500;font-size:.875rem}tbody th{font-weight:500}
.n{text-align:right}.facts th{width:34%;color:var(--soft)}.near td{width:50%}.near .n{color:var(--soft);padding-right:.6rem}
pre{background:var(--card);border-radius:.5rem;padding:.8rem;white-space:pre-wrap;font-size:.85rem;margin:.4rem 0}
details{margin:.8rem 0}summary{cursor:pointer;color:var(--a)}blockquote{margin:1.4rem 0 .2rem;font-weight:600}
@media(max-width:40rem){.stack thead{position:absolute;clip-path:inset(50%)}.stack tr{display:block;padding:.5rem 0;
border-bottom:1px solid var(--line)}
.stack tbody th{font-weight:700}
.stack th,.stack td{display:flex;justify-content:space-between;gap:1rem;border:0;padding:.1rem 0;width:auto}
.stack td::before{content:attr(data-label);color:var(--soft)}.near td::before{flex:0 0 3rem}.near td{text-align:right}}
"""

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

Cell = str | Markup


class Run(NamedTuple):
    """The files of a work directory that a report is made of; {} and () for those that are not there."""

    workdir: Path
    about: dict[str, Any]  # run.json
    settings: dict[str, Any]  # config.json
    model: dict[str, Any]  # model.json
    records: Sequence[dict[str, Any]]  # metrics.jsonl
    scores: dict[str, Any]  # scores.json: a run that is done
    looks: dict[str, dict[str, Any]]  # samples/start.json and end.json


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
    rows = _json(workdir / "vary.json", list)
    run = None if rows else read_run(workdir)
    try:
        content = run_page(run) if run else vary_page(workdir, rows)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ModelFileError(f"{workdir}: a file of the run is damaged ({type(error).__name__}: {error})") from error
    output = workdir / "report.html"
    with replacing(output) as partial:
        partial.write_text(content, encoding="utf-8")
    return output


def read_run(workdir: Path) -> Run:
    """The files of a run; ModelFileError where it is no work directory or a file is damaged, DataError for its log."""
    if not (workdir / "run.json").is_file():
        raise ModelFileError(f"{workdir} is no work directory of a run: it has no run.json")
    about, settings, model = (_json(workdir / name) for name in ("run.json", "config.json", "model.json"))
    looks = {when: found for when in ("start", "end") if (found := _json(workdir / "samples" / f"{when}.json"))}
    return Run(workdir, about, settings, model, read_metrics(workdir), _json(workdir / "scores.json"), looks)


def _json(file: Path, kind: type = dict) -> Any:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, kind):
            raise ValueError(f"a {type(content).__name__}, expected a {kind.__name__}")
        return content
    except FileNotFoundError:
        return kind()
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{file} is damaged: {str(error).splitlines()[0]}") from None


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
    return _page(_name(run), parts)


def vary_page(workdir: Path, rows: list[dict[str, Any]]) -> str:
    """The report of the runs of config.sweep: the table with means and spreads, and each run with a link to its own report."""
    columns, groups = summary(rows)
    parts: list[Markup] = [
        element("h1", workdir.resolve().name),
        element("p", f"{len(rows)} runs of one command. Mean and, of several seeds, sample standard deviation.", _class="soft"),
        _table(["settings", "runs", *columns], [[label, runs, *cells] for label, runs, cells in groups]),
        element("h2", "Runs"),
    ]
    runs = []
    for row in rows:
        label = " ".join(f"{name}={value}" for name, value in row["settings"].items())
        name: Cell = element("a", label, href=f"{quote(row['folder'])}/report.html") if "folder" in row else label
        scores = row.get("scores", {})
        runs.append([name, *(f"{scores[column]:.2f}" if column in scores else "" for column in columns), row.get("error", "")])
    failed = any("error" in row for row in rows)
    parts.append(_table(["run", *columns, *["error"] * failed], [run if failed else run[:-1] for run in runs]))
    return _page(workdir.resolve().name, parts)


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
    cards, selected = [], _selected(run)
    for name in dict.fromkeys((selected, "train/loss", "diagnostics/uniformity", "speed/sentences_per_second")):
        course = {step: value for step, value in curves.get(name, {}).items() if math.isfinite(value)}
        first, *others = course.values() or [math.nan]
        if name.startswith("speed/") and course:
            cards.append((_title(name), _number(statistics.median(course.values())), "median over the run"))
        elif others:
            end = course.get(run.scores.get("step", -1), others[-1]) if name == selected else others[-1]
            note = "selects the weights" if name == selected else "start to end"
            cards.append((_title(name), f"{_number(first, 3)} → {_number(end, 3)}", note))
    if times:
        cards.append(("time", _duration(seconds(run.records)), "training and the scores on the way"))
    return [
        element("h1", _name(run)),
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
            others = [_score(values.get(name)) for values in baselines.values()]
            rows.append([name, f"{result['n']:,}", _score(before), _score(end), change, *others])
        note = f"Spearman × 100 with gold over all pairs, of the weights of step {run.scores['step']:,}."
        if set(scores) - set(start):
            note += " The start is scored only on the set that selects the weights."
        parts += [
            element("p", note, _class="soft"),
            _table(["set", "pairs", "start", "end", "change", *baselines], rows),
        ]
        parts.append(element("details", element("summary", "Pearson, means and subsets"), _all_scores(scores)))
    if transfer:
        rows = [
            [task, found["protocol"], name, _score(value)]
            for task, found in transfer.items()
            for name, value in found["headline"].items()
        ]
        parts += [element("h3", "Other tasks"), _table(["task", "protocol", "number", "score"], rows)]
    return parts


def _all_scores(scores: Mapping[str, Any]) -> Markup:
    rows = []
    for name, result in scores.items():
        numbers = [_score(result[kind][which]) for kind in ("spearman", "pearson") for which in ("all", "mean", "wmean")]
        rows.append([name, *numbers])
        if len(result["spearman"]["subsets"]) > 1:
            for subset, value in result["spearman"]["subsets"].items():
                rows.append([f"{name}: {subset}", _score(value), "", "", _score(result["pearson"]["subsets"][subset]), "", ""])
    kinds = ("all pairs", "mean", "weighted mean")
    return _table(["set", *(f"{kind}, {which}" for kind in ("Spearman", "Pearson") for which in kinds)], rows)


def _curve_sections(run: Run, curves: Mapping[str, Mapping[int, float]]) -> list[Markup]:
    parts: list[Markup] = []
    known = [_selected(run), *CURVES]  # in this order, the others behind
    names = sorted(curves, key=lambda name: (known.index(name) if name in known else len(known), name))
    for section, title in (*SECTIONS.items(), ("", "More")):
        here = [name for name in names if _section(name) == section and name not in UNDRAWN]
        if figures := [figure for name in here for figure in _curve(run, name, curves[name])]:
            parts += [element("h2", title), element("div", *figures, _class="grid-of")]
    rows = []
    for name in names:
        values = [value for value in curves[name].values() if math.isfinite(value)]
        numbers = [_number(value) for value in (values[0], values[-1], min(values), max(values))] if values else ["not finite"] * 4
        rows.append([name, f"{len(curves[name]):,}", *numbers])
    table = _table(["curve", "points", "first", "last", "lowest", "highest"], rows)
    return [*parts, element("details", element("summary", "All curves as numbers"), table)]


def _section(name: str) -> str:
    section = name.partition("/")[0]
    return section if section in SECTIONS else ""


def _curve(run: Run, name: str, course: Mapping[int, float]) -> list[Markup]:
    """The figure of a curve; none where no value is finite."""
    points = [(float(step), value) for step, value in course.items() if math.isfinite(value)]
    if not points:
        return []
    selects = name == _selected(run)
    mark = run.scores.get("step") if selects else None
    change = f"{_number(points[0][1])} → {_number(points[-1][1])}"
    notes = [CURVES[name][1]] if name in CURVES else []
    notes += ["selects the weights"] if selects else []
    notes += [change]
    notes += [f"dashed: the weights that were kept, step {mark:,}"] if mark is not None else []
    notes += [f"{lost} values not finite, left out"] if (lost := len(course) - len(points)) else []
    picture = line_chart(f"{_title(name)} over steps: {change}", points, mark)
    return [element("figure", picture, element("figcaption", element("b", _title(name)), ". ", "; ".join(notes)))]


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
        parts += [element("blockquote", element("bdi", queries[0]["sentence"])), _table(list(found), rows, "near", heads=False)]
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
    rows = [[name, _fact(value)] for name, value in facts.items() if value not in (None, "")]
    parts = [element("h2", "What was run"), element("pre", _command(run.about.get("argv", [])))]
    if (run.workdir / "before" / "report.html").exists():
        parts.append(element("p", "It goes on from another run: ", element("a", "its report", href="before/report.html")))
    parts.append(_facts(rows))
    settings = _facts([[name, _fact(value)] for name, value in run.settings.items()])
    return [*parts, element("details", element("summary", "All settings"), settings)]


def _page(name: str, parts: Iterable[Markup]) -> str:
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{name}: report"),
        element("style", Markup(STYLE)),
    ]
    content = element("html", element("head", together(head)), element("body", element("main", together(parts))), lang="en")
    return f"<!DOCTYPE html>\n{content}\n"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], kind: str = "", heads: bool = True) -> Markup:
    """A table that becomes one block a row in a narrow window; the first cell of a row is its head where `heads`."""

    def cell(place: int, value: Cell) -> Markup:
        if heads and not place:
            return element("th", value, scope="row", role="rowheader")
        return element("td", value, role="cell", data_label=columns[place], **({"_class": "n"} if heads else {}))

    numeric = [{"_class": "n"} if heads and place else {} for place in range(len(columns))]
    top = element(
        "tr", *(element("th", c, scope="col", role="columnheader", **n) for c, n in zip(columns, numeric, strict=True)), role="row"
    )
    body = [element("tr", *(cell(place, value) for place, value in enumerate(row)), role="row") for row in rows]
    groups = element("thead", top, role="rowgroup"), element("tbody", *body, role="rowgroup")
    return element("table", *groups, role="table", _class=f"stack {kind}".strip())


def _facts(rows: Iterable[Sequence[Cell]]) -> Markup:
    body = (element("tr", element("th", name, scope="row"), element("td", value)) for name, value in rows)
    return element("table", element("tbody", *body), _class="facts")


def _name(run: Run) -> str:
    return run.model.get("name") or run.workdir.resolve().name


def _selected(run: Run) -> str:
    """The curve that selects the weights, "" without one; of held-out sentences the accuracy, or the loss where there is none."""
    name = run.about.get("selected_by", "")
    if name != "validation":
        return name
    return "validation/accuracy" if any("validation/accuracy" in record for record in run.records) else "validation/loss"


def _title(name: str) -> str:
    if name in CURVES:
        return CURVES[name][0]
    section, _, rest = name.partition("/")
    rest = rest or section
    for key, label in (("/spearman_cosine", "Spearman"), ("/pearson_cosine", "Pearson")):
        if rest.endswith(key):
            return f"{rest.removesuffix(key)} {label}"
    return rest.replace("_", " ")


def _command(argv: Sequence[str]) -> str:
    if argv and Path(argv[0]).parts[-2:] == ("jax_sentemb", "main.py"):
        return f"python -m jax_sentemb.main {shlex.join(argv[1:])}"
    return shlex.join(argv)


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}".replace("-", "\N{MINUS SIGN}")


def _number(value: float, digits: int = 4) -> str:
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
    return text.replace("-", "\N{MINUS SIGN}")


def _fact(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _duration(time_taken: float) -> str:
    minutes, rest = divmod(round(time_taken), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
