"""Lay out tables of results like those in papers, as text and as Markdown."""

from collections.abc import Sequence
from typing import NamedTuple

from jax_sentemb.evaluation import suite
from jax_sentemb.evaluation.catalog import GROUPS, SETS, heading
from jax_sentemb.public_text import markdown, without_folders
from jax_sentemb.system.terminal import WIDTH, table


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
    """Return a table for each group with a score; `outcomes` is model -> task -> outcome."""
    tables = []
    for group, names in GROUPS.items():
        scored = {model: [row[name] for name in names if name in row] for model, row in outcomes.items()}
        if group == "arguments":  # corpora given by their path have any name
            scored = {model: [o for o in row.values() if o.item.group == group] for model, row in outcomes.items()}
        columns = list(dict.fromkeys(column for row in scored.values() for outcome in row for column in outcome.headline))
        if not columns:
            continue
        counted = [column for column in columns if column in SETS and SETS[column].averaged]
        average = f"mean of {len(counted)}"
        rows = []
        for model, row in scored.items():
            values = {column: value for outcome in row for column, value in outcome.headline.items()}
            failed_tasks = {failure.task for failure in failed if failure.model == model}
            cells = [
                f"{values[column]:.2f}" if column in values else "failed" if column.split(" ")[0] in failed_tasks else "-"
                for column in columns
            ]
            complete = all(column in values for column in counted)
            if len(counted) > 1:
                cells.append(f"{sum(values[column] for column in counted) / len(counted):.2f}" if complete else "-")
            rows.append((model, cells))
        head = [heading(column) for column in columns] + [average] * (len(counted) > 1)
        scored_tasks = {outcome.item.name for row in scored.values() for outcome in row}
        missing = [name for name in missing_tasks if name in names and name not in scored_tasks]
        notes = [f"missing, not scored: {', '.join(missing)}"] * bool(missing)
        years = {
            name: outcome.item.sizes
            for row in scored.values()
            for outcome in row
            for name in [outcome.item.name]
            if name == "STS13"
        }
        if protocols.sts.aggregate != "all":  # some papers include SMT
            notes += [f"{name}: mean over {', '.join(sizes)}" for name, sizes in years.items()]
        notes += [f"failed: {failure}" for failure in failed if failure.task in names]
        tables.append(Table(_title(group, protocols), head, rows, notes))
    return tables


def _title(group: str, protocols: suite.Protocols) -> str:
    sts = protocols.sts
    return {
        "sts": f"Similarity, {sts.correlation.title()} x 100 of the cosine, {_AGGREGATE[sts.aggregate]} (protocol {sts.name})",
        "transfer": f"Transfer, accuracy in % (protocol {protocols.classifier.name}); r, rho: supervised relatedness x 100",
        "probing": f"Probing, accuracy in % (protocol {protocols.classifier.name})",
        "arguments": "Argument similarity without labels, correlation x 100 with the cosine, mean over topics",
    }[group]


_AGGREGATE = {"all": "all pairs of a year", "mean": "mean over subsets", "wmean": "weighted mean over subsets"}


def as_text(content: Table) -> str:
    """Return a table for the terminal; wide tables are split into parts below each other."""
    name_width = max(len("model"), *(len(name) for name, _ in content.rows))
    widths = [max(len(column), *(len(cells[i]) for _, cells in content.rows)) for i, column in enumerate(content.columns)]
    blocks, start = [], 0
    while start < len(widths):
        end, line_width = start, name_width
        while end < len(widths) and (end == start or line_width + widths[end] + 2 <= WIDTH):
            line_width += widths[end] + 2
            end += 1
        rows = [(name, *cells[start:end]) for name, cells in content.rows]
        blocks.append(table(("model", *content.columns[start:end]), rows))
        start = end
    return "\n".join([content.title, *blocks, *content.notes])


def as_markdown(table: Table) -> str:
    """Return a table for a README."""
    lines = [
        f"### {table.title}",
        "",
        f"| model | {' | '.join(map(markdown, table.columns))} |",
        "|---|" + "---:|" * len(table.columns),
    ]
    lines += [f"| {markdown(name)} | {' | '.join(cells)} |" for name, cells in table.rows]
    return "\n".join([*lines, "", *map(markdown, table.notes), *[""] * bool(table.notes)])
