"""Write the results of a run: final scores, the export, and samples for the report."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from jax_sentemb.config import Config, Words
from jax_sentemb.errors import ConfigError, Message, Setting, note_text, stored_text
from jax_sentemb.evaluation.agreement import AGREEMENT
from jax_sentemb.evaluation.catalog import SEVEN, heading
from jax_sentemb.evaluation.widths import width_scores
from jax_sentemb.formats.model_card import describe_changes, describe_teacher, describe_widths
from jax_sentemb.formats.run_dir import read_metadata, write_metadata
from jax_sentemb.formats.sentence_transformers import check_exportable
from jax_sentemb.inference.export import MEASURED, export_run
from jax_sentemb.methods.distillation import Distillation
from jax_sentemb.parallel import is_main_process, replicate
from jax_sentemb.provenance import KEY
from jax_sentemb.reporting.html_report import not_vital
from jax_sentemb.reporting.report_data import read_of_run
from jax_sentemb.reporting.samples import changed_examples, collect_samples, map_size
from jax_sentemb.system.streams import print_line
from jax_sentemb.training.agreement import Agreement
from jax_sentemb.training.checkpoint_selection import Progress, measure_name
from jax_sentemb.training.evaluator import Scorer, score_table, word_overlap_scores
from jax_sentemb.training.logger import Log
from jax_sentemb.training.run_metadata import write_json
from jax_sentemb.training.setup import RunSetup, corpus_sample
from jax_sentemb.training.starting_encoder import compared, start_as_teacher, worse_than_start
from jax_sentemb.types import Params

UNJUDGED: Message = (
    "cannot tell whether the export is better than the start: give labelled data with ",
    Setting("eval.dev", "pairs.tsv"),
    " or a stronger model with ",
    Setting("eval.teacher", "MODEL"),
)
ROWS_PER_SENTENCE = 4  # training rows for each sentence of the report, so that the report takes a small part of a short run


class Results:
    """Score parameters on all sets, and write scores.json, samples/*.json and export/ of a work directory."""

    def __init__(
        self,
        config: Config,
        setup: RunSetup,
        metadata: dict[str, Any],
        scorer: Scorer,
        agreement: Agreement | None,
        log: Log,
        workdir: Path,
    ) -> None:
        """Take `model_metadata` of the run as `metadata`; `agreement` measures the agreement with a teacher, if there is one."""
        self._agreement = agreement
        self._config, self._setup, self._metadata = config, setup, metadata
        self._scorer, self._log, self._workdir = scorer, log, workdir
        self._mark = {KEY: metadata[KEY]}

    def score(self, params: Params, step: int, progress: Progress, kept: dict[str, str], trained_rows: int) -> None:
        """Print the final scores and write them to scores.json, then the samples for the report and the verified export.

        Args:
            params: The weights to export.
            step: Their step.
            progress: What the run measured on its start, and the metric that selects weights.
            kept: "kept_encoder" and "kept_because" for scores.json and model.json; {} for a method with one encoder.
            trained_rows: Rows of the whole run.
        """
        setup, scorer, measured = self._setup, self._scorer, progress.measured
        diagnostics = scorer.diagnostics(params)  # before `replicate`: its new tree would be diagnosed again
        params = replicate(params)
        scores, warnings = scorer.all_tasks(params) if setup.tasks else {}, []
        if setup.tasks and (cut := scorer.truncated):
            limit = Setting("eval.max_seq_length", self._config.eval.max_seq_length)
            warnings.append(self._warn(f"{cut:,} distinct evaluation sentences were cut at ", limit))
        samples = self.sample("end", step, params, trained_rows, progress.first_rows)
        baselines = {"untrained": progress.start}
        if self._config.eval.data == "grammar":
            baselines |= word_overlap_scores(setup.tasks, list(setup.sentences))
        results: dict[str, Any] = {
            "step": step,
            "scores": scores,
            "baselines": baselines,
            "missing_tasks": setup.missing_tasks,
        } | kept
        results["diagnostics"] = diagnostics
        end = {f"eval/{name}/spearman_cosine": result["spearman"]["all"] for name, result in scores.items()}
        if dev_scores := scorer.on_dev_task(params):
            results["dev"] = {name.rpartition("/")[2]: value for name, value in dev_scores.items()}
            end |= dev_scores
            self._log.info(f"dev       {', '.join(f'{name} {value:.2f}' for name, value in results['dev'].items())}")
        end |= {f"diagnostics/{name}": value for name, value in results["diagnostics"].items()}
        if self._agreement:
            results["teacher"] = self._agreement.summary(params, measured)
            end |= {f"{AGREEMENT}{name}": value for name, value in results["teacher"]["agreement"].items()}
            self._log.info(f"teacher   {describe_teacher(results['teacher'])}")
        if widths := self._config.train.matryoshka:
            results["widths"] = width_scores(scorer.embed.embed_as(params), setup.tasks, scorer.sample, widths)
            self._log.info(f"widths    {describe_widths(results['widths'])}")
        has_start = bool(getattr(self._config.encoder, "weights", ""))
        is_judged = compared(measured, end)
        results["verdict"], advice = self._verdict(step, progress, end) if has_start else ("", ())
        results["warnings"] = warnings + ([stored_text(results["verdict"], *advice)] if results["verdict"] else [])
        results["changes"] = self._changes(samples, is_judged) if has_start and step else {}
        self._log.summary({name: result["spearman"]["all"] for name, result in scores.items()})
        self._log.finish_progress()
        if self._log.is_brief:
            numbers = [f"{heading(name)} {result['spearman']['all']:.2f}" for name, result in scores.items() if name in SEVEN]
            self._log.info(f"scores    {', '.join(numbers)}")
        elif scores or not (setup.final or setup.dev_task):
            print_line(score_table(scores, setup.missing_tasks, baselines))
        if setup.final:
            results["transfer"] = setup.final.score(self._workdir.name, functools.partial(scorer.embed, params, role=""))
            results["missing_tasks"] = [*setup.missing_tasks, *setup.final.missing_tasks]
        if is_main_process():
            write_json(self._workdir / "scores.json", results | self._mark)
            facts = {name: results.get(name, nothing) for name, nothing in MEASURED.items()}
            self._export(params, step, kept | facts | {"scores_of_step": step})
        if results["changes"] and not self._log.is_brief:
            self._log.info(f"changes   {describe_changes(results['changes'] | {'is_judged': True})}")
            if examples := changed_examples(samples):
                self._log.info(examples)
        if results["verdict"]:
            self._warn(results["verdict"], *advice)
        elif has_start and not is_judged:
            self._log.info(note_text(*UNJUDGED))

    def _warn(self, *message: str | Setting) -> str:
        """Print a warning about the scores, and return it as scores.json has it: metrics.jsonl would keep it for later scores."""
        self._log.info(f"warning: {note_text(*message)}")
        return stored_text(*message)

    def _verdict(self, step: int, progress: Progress, end: Mapping[str, float]) -> tuple[str, Message]:
        """Return the warning that the export is the start or worse than it, and what to do; "" and () otherwise."""
        if not step and self._config.train.max_steps and progress.selected_by:
            measure = measure_name(progress.selected_by)
            return f"the export has the weights of the start: no later ones were better by {measure}", ()
        return worse_than_start(progress.measured, end, progress.selected_by)

    def _changes(self, samples: Mapping[str, Any], is_judged: bool) -> dict[str, Any]:
        """Return how many nearest neighbours differ from those of the start; {} if other models are the teachers."""
        neighbours = samples.get("neighbours", {})
        is_student = isinstance(self._config.method, Distillation) and not start_as_teacher(self._config)
        if "changed" not in neighbours or is_student:
            return {}
        return {"sentences": neighbours["among"], "changed": neighbours["changed"], "is_judged": is_judged}

    def sample(self, when: str, step: int, params: Params, trained_rows: int, first_rows: int) -> dict[str, Any]:
        """Write samples/`when`.json: neighbours and similarities under these weights, so that the report needs no model.

        The content is returned, {} if it cannot be made and in all processes but the main one.

        Args:
            when: "start" or "end".
            step: The step of the weights.
            params: The weights, which were scored last.
            trained_rows: Rows of the whole run, which limit the size of the map.
            first_rows: Rows of the run as it was planned at its start, which limit the number of sentences. A run that is made
                longer has the same sentences, so that neighbours can be compared.
        """
        scorer, config = self._scorer, self._config
        with not_vital(self._workdir):
            count = min(config.eval.report_sentences, max(len(scorer.sample), first_rows // ROWS_PER_SENTENCE))
            sentences, vectors = scorer.sample, scorer.vectors  # the diagnostics of these weights have embedded them
            if scorer.is_cross_encoder or not count:
                sentences, vectors = [], []
            elif count != len(sentences):
                sentences = corpus_sample(self._setup, count, config.train.seed)
                vectors = scorer.embed(params, sentences)
            if not is_main_process():
                return {}
            before, size = None, None
            if when == "end":
                start = read_of_run(self._workdir / "samples" / "start.json", {"run": self._mark[KEY]["sources"].get("run")})
                before, size = start.get("vectors") or {}, map_size(trained_rows)
            by_sentence = dict(zip(sentences, vectors, strict=True))
            samples = collect_samples(by_sentence, scorer.similarities, self._setup.tasks, before, size)
            write_json(self._workdir / "samples" / f"{when}.json", {"step": step, **samples, **self._mark})
            return samples
        return {}

    def _export(self, params: Params, step: int, extra: dict[str, Any]) -> None:
        config, workdir = self._config, self._workdir
        write_metadata(workdir, self._setup.encoder_config, {**self._metadata, **extra})
        try:
            if not isinstance(config.encoder, Words):  # word models have their own directory format
                check_exportable(config.method.pooling, config.method.convolution)
        except ConfigError as error:  # the model can still be evaluated from its work directory
            stale = f"; {workdir / 'export'} is of an earlier run" if (workdir / "export").is_dir() else ""
            print_line(f"not exported: {error}{stale}")
            return
        export_run(workdir / "export", read_metadata(workdir), jax.device_get(params), workdir, step)
