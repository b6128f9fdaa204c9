"""Run `jax-sentemb evaluate MODEL... --pairs FILE`, `--retrieval DIR` or `--labels FILE`: score the files of the user."""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_sentemb.cli.program import count, is_given, leave_out
from jax_sentemb.errors import BusyError, ConfigError, UserError, plain
from jax_sentemb.files import write_text
from jax_sentemb.public_text import model_name

if TYPE_CHECKING:
    from jax_sentemb.evaluation.model_spec import ModelSpec
    from jax_sentemb.evaluation.user_scores import Table

FORMS = "--pairs FILE, --retrieval DIR or --labels FILE --label-column NAME"
SENTEVAL_ONLY = ("data", "arguments", "vectors", "ensemble", "plots", "fetch", "check")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the files of the user."""
    group = parser.add_argument_group("your own files")
    group.add_argument("--pairs", help="a table with the columns sentence1, sentence2 and score, or label (0 or 1)")
    group.add_argument("--pair-columns", help="names of these three columns, if they differ; comma separated")
    group.add_argument("--retrieval", help="a folder with corpus.jsonl, queries.jsonl and qrels/*.tsv (BEIR's layout)")
    group.add_argument("--split", default="", help="the file in qrels (default: test, or the only one)")
    group.add_argument(
        "--no-bm25", action="store_true", help="do not score BM25 and its fusion with the models (these need [bm25])"
    )
    group.add_argument("--labels", help="a table with a column of texts and one of labels")
    group.add_argument("--label-column", help="the column of the labels (default: label)")
    group.add_argument("--column", help="the column of the texts of --labels (default: text)")
    group.add_argument("--sample", type=count, help="largest number of texts of --labels to score (default: 50000); 0: all")


def has_own_files(options: argparse.Namespace) -> bool:
    """Return whether the command scores files of the user; raise ConfigError for an option that does not belong to them."""
    files = [name for name in ("pairs", "retrieval", "labels") if getattr(options, name) is not None]
    for name, owner in OWNERS.items():
        if is_given(options, name) and owner not in files:
            raise ConfigError(f"--{name.replace('_', '-')} is an option of --{owner}; give --{owner} or leave it out")
    if files and (others := [name for name in SENTEVAL_ONLY if getattr(options, name)]):
        raise ConfigError(f"--{others[0]} cannot be combined with --{files[0]}; run evaluate twice")
    if files:
        names, problem = ("tasks", "sts_protocol", "classifier"), f"it is for SentEval's tasks, and --{files[0]} is a file of yours"
        leave_out(options, names, problem)
    return bool(files)


OWNERS = {
    "pair_columns": "pairs", "split": "retrieval", "no_bm25": "retrieval", "label_column": "labels", "column": "labels",
    "sample": "labels",
}  # fmt: skip


def evaluate(options: argparse.Namespace) -> int:
    """Score the models on each of the files; return the exit code."""
    from jax_sentemb.evaluation.model_spec import check_distinct_names, check_is_encoder, parse_spec, with_trained_widths
    from jax_sentemb.evaluation.user_scores import check_name
    from jax_sentemb.parallel import use_compilation_cache

    if not options.model:
        raise ConfigError("no model: name a model directory, as in jax-sentemb evaluate runs/micse --pairs pairs.tsv")
    given = [parse_spec(text) for text in options.model]
    for spec in given:
        check_is_encoder(spec)
    given_labels = {model.label for model in given}
    specs = [spec for model in given for spec in with_trained_widths(model, given_labels)]
    labels = [spec.label for spec in specs]
    check_distinct_names(labels)
    for label in labels:
        check_name(label)
    tasks = list(_tasks(options))
    for task in tasks:
        for text in task.notes:
            print(plain(f"note: {text}"), file=sys.stderr)
    use_compilation_cache()
    with tempfile.TemporaryDirectory(prefix="jax_sentemb-") as temporary:
        scorer = _Scorer(options, tasks, Path(temporary))
        for spec in specs:
            scorer.score(spec)
    return scorer.finish()


def _tasks(options: argparse.Namespace) -> Iterator[Any]:
    from jax_sentemb.evaluation.user_scores import open_task

    if options.pairs is not None:
        columns = {"columns": options.pair_columns} if options.pair_columns else {}
        yield open_task("--pairs", "pairs", options.pairs, **columns)
    if options.retrieval is not None:
        yield open_task("--retrieval", "retrieval", options.retrieval, split=options.split, has_bm25=not options.no_bm25)
    if options.labels is not None:
        names = {"label_column": options.label_column or "label", "column": options.column or "text"}
        sample = {} if options.sample is None else {"sample": options.sample}
        yield open_task("--labels", "labels", options.labels, **names, **sample)


class _Scorer:
    """Scores models, one after the other, on all tasks. A model that fails does not stop the others."""

    def __init__(self, options: argparse.Namespace, tasks: list[Any], temporary: Path) -> None:
        from jax_sentemb.evaluation.user_scores import Table

        self._options, self._temporary = options, temporary
        self._tables = [Table(task, options.resamples) for task in tasks]
        self._failed: list[dict[str, str]] = [{} for _ in tasks]
        self._models: dict[str, Any] = {}
        self._code = 0

    def score(self, spec: "ModelSpec") -> None:
        """Score a model on all tasks."""
        from jax_sentemb.evaluation.model_spec import load_encoder

        try:
            encoder = load_encoder(spec)
        except UserError as error:
            if not self._models:  # no result would be lost
                raise
            for failed in self._failed:
                failed[spec.label] = str(error)
            self._code = self._code or error.exit_code
            print(plain(f"error: {spec.label}: {error}"), file=sys.stderr)
            return
        self._models[spec.label] = {"source": model_name(spec.source), "sha256": encoder.fingerprint}
        for table, failed in zip(self._tables, self._failed, strict=True):
            try:
                self._score_task(spec.label, encoder, table)
            except UserError as error:
                if isinstance(error, ConfigError | BusyError):  # it is not the model that fails
                    raise
                failed[spec.label] = str(error)
                self._code = self._code or error.exit_code
                print(plain(f"error: {spec.label}: {table.task.name}: {error}"), file=sys.stderr)

    def _score_task(self, label: str, encoder: Any, table: "Table") -> None:
        from jax_sentemb.evaluation.user_scores import encoder_vectors
        from jax_sentemb.evaluation.user_tables import line
        from jax_sentemb.system.terminal import Progress, counted

        task = table.task
        folder = (self._options.output or self._temporary) / "vectors" / label / task.name
        total = sum(len(texts.lines) for texts in task.texts.values())
        with encoder.counting_cuts(), Progress(label, total, "texts") as progress:
            vectors: dict[str, Any] = dict(encoder_vectors(encoder, label, task, folder, self._options.batch_size, progress.update))
        if cut := sum(each.manifest["truncated"] for each in vectors.values()):
            print(plain(f"note: {label}: {cut:,} texts longer than {encoder.max_seq_length} tokens were cut"), file=sys.stderr)
        with counted(f"{label}: {task.name}", "steps") as steps:
            row = table.add_model(label, vectors, steps)
        print(plain(f"{label}: {line(row)}"), file=sys.stderr)

    def finish(self) -> int:
        """Print and write the tables; return the exit code."""
        from jax_sentemb.evaluation import user_tables
        from jax_sentemb.system.terminal import counted

        for table, failed in zip(self._tables, self._failed, strict=True):
            with counted(f"baselines: {table.task.name}", "texts") as progress:
                table.add_baselines(progress)
            print("\n" + plain(user_tables.as_text(table, failed, self._options.resamples > 0)))
            if folder := self._options.output:
                content = user_tables.as_json(table, failed, self._models, self._options.resamples)
                text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
                write_text(folder / f"{table.task.name}.json", text + "\n")
                write_text(folder / f"{table.task.name}.csv", user_tables.as_csv(table.rows))
                print(plain(f"written: {folder}/{table.task.name}.json and .csv"))
        return self._code
