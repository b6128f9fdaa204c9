"""Tables of results like those in papers, as text and as Markdown."""

from collections.abc import Sequence
from typing import NamedTuple

from jax_sentemb.evaluation import suite
from jax_sentemb.evaluation.catalog import GROUPS, SETS, heading
from jax_sentemb.public_text import markdown, without_folders
from jax_sentemb.terminal import WIDTH, table


class Table(NamedTuple):
    """Scores of several models on the tasks of a group."""

    title: str
    columns: list[str]
    rows: list[tuple[str, list[str]]]  # name of the model, a cell for each column
    notes: list[str]


class FailedTask(NamedTuple):
    """A task on which a model could not be scored."""

    model: str
    task: str
    problem: str

    def __str__(self) -> str:
        problem = self.problem.removeprefix(self.task).removeprefix(":").strip()  # some errors begin with the task
        return f"{self.model}: {self.task}: {without_folders(problem)}"


def layout(
    outcomes: dict[str, dict[str, suite.Outcome]],
    protocols: suite.Protocols,
    missing_tasks: Sequence[str],
    failed: Sequence[FailedTask],
) -> list[Table]:
    """A table for each group with a score; `outcomes` is model -> task -> outcome."""
    found = []
    for group, names in GROUPS.items():
        scored = {model: [row[name] for name in names if name in row] for model, row in outcomes.items()}
        if group == "arguments":  # corpora given by their path have any name
            scored = {model: [o for o in row.values() if o.item.group == group] for model, row in outcomes.items()}
        columns = list(dict.fromkeys(column for row in scored.values() for one in row for column in one.headline))
        if not columns:
            continue
        counted = [column for column in columns if column in SETS and SETS[column].averaged]
        average = f"mean of {len(counted)}"
        rows = []
        for model, row in scored.items():
            values = {column: value for outcome in row for column, value in outcome.headline.items()}
            lost = {each.task for each in failed if each.model == model}
            cells = [
                f"{values[column]:.2f}" if column in values else "failed" if column.split(" ")[0] in lost else "-"
                for column in columns
            ]
            complete = all(column in values for column in counted)
            if len(counted) > 1:
                cells.append(f"{sum(values[column] for column in counted) / len(counted):.2f}" if complete else "-")
            rows.append((model, cells))
        head = [heading(column) for column in columns] + [average] * (len(counted) > 1)
        given = {outcome.item.name for row in scored.values() for outcome in row}
        missing = [name for name in missing_tasks if name in names and name not in given]
        notes = [f"missing, not scored: {', '.join(missing)}"] * bool(missing)
        years = {name: one.item.sizes for row in scored.values() for one in row for name in [one.item.name] if name == "STS13"}
        if protocols.sts.aggregate != "all":  # some papers include SMT
            notes += [f"{name}: mean over {', '.join(sizes)}" for name, sizes in years.items()]
        notes += [f"failed: {each}" for each in failed if each.task in names]
        found.append(Table(_title(group, protocols), head, rows, notes))
    return found


def _title(group: str, protocols: suite.Protocols) -> str:
    kind = protocols.sts
    return {
        "sts": f"Similarity, {kind.correlation.title()} x 100 of the cosine, {_AGGREGATE[kind.aggregate]} (protocol {kind.name})",
        "transfer": f"Transfer, accuracy in % (protocol {protocols.classifier.name}); r, rho: supervised relatedness x 100",
        "probing": f"Probing, accuracy in % (protocol {protocols.classifier.name})",
        "arguments": "Argument similarity without labels, correlation x 100 with the cosine, mean over topics",
    }[group]


_AGGREGATE = {"all": "all pairs of a year", "mean": "mean over subsets", "wmean": "weighted mean over subsets"}


def as_text(found: Table) -> str:
    """A table for the terminal; wide tables are split into parts below each other."""
    name_width = max(len("model"), *(len(name) for name, _ in found.rows))
    widths = [max(len(column), *(len(cells[i]) for _, cells in found.rows)) for i, column in enumerate(found.columns)]
    parts, start = [], 0
    while start < len(widths):
        end, used = start, name_width
        while end < len(widths) and (end == start or used + widths[end] + 2 <= WIDTH):
            used += widths[end] + 2
            end += 1
        rows = [(name, *cells[start:end]) for name, cells in found.rows]
        parts.append(table(("model", *found.columns[start:end]), rows))
        start = end
    return "\n".join([found.title, *parts, *found.notes])


def as_markdown(table: Table) -> str:
    """A table for a README."""
    lines = [
        f"### {table.title}",
        "",
        f"| model | {' | '.join(map(markdown, table.columns))} |",
        "|---|" + "---:|" * len(table.columns),
    ]
    lines += [f"| {markdown(name)} | {' | '.join(cells)} |" for name, cells in table.rows]
    return "\n".join([*lines, "", *map(markdown, table.notes), *[""] * bool(table.notes)])
