"""Run `jax-sentemb evaluate --model DIR --data SENTEVAL --tasks sts,transfer,probing --output results/`.

The command scores models on the tasks of SentEval with the protocols of the papers, or on the files of the user.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_sentemb.cli import evaluate_files
from jax_sentemb.cli.program import Parser, count, leave_out, positive, start
from jax_sentemb.errors import ConfigError, UserError, plain
from jax_sentemb.files import user_path, write_text

ENSEMBLE = "ensemble"  # the name of the row of --ensemble
EPILOG = """\
models: a work directory of a run, an export, any Hugging Face BERT or sentence-transformers directory or hub name, a file of word
vectors (GloVe or fastText text, .vec, .npz, also .gz and .xz), or tf-idf. Several models give several rows. Options follow an @:
  bert@cls  bert@mean  bert@first_last   the pooling of an encoder
  runs/m@64                              the first 64 dimensions of an embedding; the widths of train.matryoshka are all scored
  multi@f  multi@max+mean+concatenation  views and poolings of a multi-view model (--vectors FILE adds words to its vocabulary)
  bert@mean+whiten                       whitens the embeddings of a task; remove-first removes their first component; unit length
  glove.txt@sif+remove-first             word vectors weighted by rarity (SIF); stop-words leaves out function words
  glove.txt@random-projection            4,096 random projections of word vectors; +512 after it: 512 of them
  "mine=runs/micse"                      another name in the tables

Your own files are scored by cosine, --pairs and --labels next to tf-idf. Every score has a 95 % interval, and its difference from
the first model:
  --pairs         Spearman and Pearson correlation; with the labels 0 and 1, average precision and the best F1
  --retrieval     nDCG@10, MRR@10, recall@100 and MAP as trec_eval defines them, next to BM25 (needs [bm25]) and its fusion
  --labels        whether the nearest other texts have the same label, logistic regression in five folds, and k-means
  --output DIR    a JSON and a CSV file, and the vectors; after an interruption, the same command continues

examples:
  jax-sentemb evaluate runs/micse all-MiniLM-L6-v2 --retrieval my_queries --output results
  jax-sentemb evaluate runs/micse --pairs pairs.tsv --labels tickets.csv --label-column team
  jax-sentemb evaluate --model runs/micse --data SentEval/data --tasks sts --output results
  jax-sentemb evaluate --model bert@cls --model bert@mean --data SentEval/data --tasks sts,transfer --output results
  jax-sentemb evaluate --check --data SentEval/data

Exit codes: 0 done, 2 usage, 3 data, 4 model file, 5 numerics (NaN, collapsed embeddings), 6 output in use by
another process, 7 memory or disk full.
"""


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return the exit code."""
    options = parser().parse_intermixed_args(argv[1:])
    options.model = [*options.models, *options.model]
    if options.tasks == "help":
        print(_task_list())
        return 0
    if evaluate_files.has_own_files(options):
        return evaluate_files.evaluate(options)
    if not options.data and not (options.arguments and options.model):
        raise ConfigError(f"no data: give {evaluate_files.FORMS}, or --data with SentEval's folder, which has downstream/")
    if not options.data:
        leave_out(options, ("tasks", "sts_protocol"), "it is for SentEval's tasks; give --data")
    from jax_sentemb.evaluation import catalog, sts, suite, transfer

    if options.fetch:
        from jax_sentemb.evaluation.download import fetch

        if not options.data:
            raise ConfigError("--fetch needs --data, the folder to write to")
        written = fetch(options.tasks, options.data)
        print(f"fetched: {', '.join(written) or 'nothing, since all sets exist'}")
        if not options.model and not options.check:
            return 0
    root = _root(options.data) if options.data else Path.cwd()
    if options.check:
        _check_alone(options)
        return _check(root)
    if not options.model:
        raise ConfigError("no --model: give a model directory, a word-vector file or tf-idf (--help shows examples)")
    if options.sts_protocol not in sts.PROTOCOLS:
        raise ConfigError(f"--sts-protocol {options.sts_protocol}: unknown; there are {', '.join(sts.PROTOCOLS)}")
    sts_protocol, classifier = sts.PROTOCOLS[options.sts_protocol], transfer.check_protocol(options.classifier)
    protocols = suite.Protocols(sts_protocol, classifier, options.resamples, regressions=options.output is not None)  # not printed
    if options.plots:
        _check_plots(options)
    if options.ensemble and len(options.model) < 2:
        raise ConfigError(f"--ensemble has one model, {options.model[0]}; give two or more")
    chosen = catalog.select(options.tasks) if options.data else []
    extra = [suite.load_arguments(path) for path in options.arguments]
    loaded = suite.load_all(chosen, root, extra, protocols.sts.smt)
    from jax_sentemb.parallel import use_compilation_cache

    use_compilation_cache()
    return _score(options, loaded, root, protocols)


def parser() -> Parser:
    """Return the parser of the options."""
    parser = Parser(
        prog="jax-sentemb evaluate",
        description="Score sentence embeddings on your own pairs, queries or labels, or on the tasks of SentEval.",
        epilog=EPILOG,
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="the models to score, see below")
    parser.add_argument("--model", nargs="+", action="extend", default=[], metavar="MODEL", help="more models, scored after those")
    parser.add_argument("--data", type=user_path, help="the data folder of SentEval, which contains downstream/ and probing/")
    parser.add_argument("--tasks", default="sts,transfer", help="tasks, groups (sts, transfer, probing, arguments, all), or help")
    parser.add_argument("--vectors", type=user_path, help="file of word vectors that adds missing words to a word model")
    parser.add_argument("--output", type=user_path, help="folder for a JSON file of each task, tables.md and plots")
    parser.add_argument(
        "--sts-protocol", default="simcse", help="protocol of the STS sets: simcse (default), senteval or multiview"
    )
    parser.add_argument(
        "--classifier", default="senteval", help="senteval (default), senteval_prototyping, senteval_2018 or logreg"
    )
    parser.add_argument(
        "--arguments", type=user_path, action="append", default=[], help="file or folder of a corpus of argument pairs"
    )
    parser.add_argument("--ensemble", action="store_true", help="add the ensemble of all models as a row")
    parser.add_argument(
        "--resamples", type=count, default=1000, help="bootstrap draws for the intervals of scores; 0: no intervals (default: 1000)"
    )
    parser.add_argument("--batch-size", type=positive, default=64, help="sentences that are encoded at once (default: 64)")
    parser.add_argument("--plots", action="store_true", help="plot cosine against gold for every similarity task (needs [plots])")
    parser.add_argument("--fetch", action="store_true", help="first download the sets that the Hugging Face hub has (needs [hub])")
    parser.add_argument("--check", action="store_true", help="list existing and missing files and their folders")
    evaluate_files.add_options(parser)
    return parser


def _score(options: argparse.Namespace, loaded: Any, root: Path, protocols: Any) -> int:
    from jax_sentemb.evaluation import suite, tables
    from jax_sentemb.system.terminal import Progress

    items = loaded.items
    for error in loaded.errors:
        print(f"error: {error}", file=sys.stderr)
    if not items:
        return loaded.errors[0].exit_code
    for warning in dict.fromkeys(warning for item in items for warning in item.warnings):
        print(plain(f"warning: {warning}"), file=sys.stderr)
    models, members = _open_models(options, items)
    outcomes: dict[str, dict[str, suite.Outcome]] = {}
    failed: list[tables.FailedTask] = []
    code = loaded.errors[0].exit_code if loaded.errors else 0
    for model in models:
        outcomes[model.name] = {}
        distinct = [len(set(item.sentences)) for item in items]
        total = sum(distinct) if model.per_task else len({sentence for item in items for sentence in item.sentences})
        with Progress(model.name, total, "sentences") as progress:
            for item, outcome in suite.score(model, items, protocols, progress.update):
                if isinstance(outcome, UserError):
                    failed.append(tables.FailedTask(model.name, item.name, str(outcome)))
                    progress.write(f"error: {failed[-1]}")
                    code = code or outcome.exit_code
                    continue
                outcomes[model.name][item.name] = outcome
                progress.write(f"{model.name}: {_line(outcome)}", "stdout")
                _write(options, model.name, suite.record(model.name, model.metadata, outcome, root))
                if options.plots and outcome.similarities:
                    _plot(options, model.name, outcome)
    if options.ensemble and len(members) > 1:
        outcomes[ENSEMBLE] = _combined([outcomes[name] for name in members], protocols)
        for outcome in outcomes[ENSEMBLE].values():
            _write(options, ENSEMBLE, suite.record(ENSEMBLE, {"members": members}, outcome, root))
    _print_tables(options, tables.layout(outcomes, protocols, loaded.missing_tasks, failed))
    return code


def _open_models(options: argparse.Namespace, items: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Return the models of the command line and their trained prefixes, each with a name of its own, and the models' names."""
    from jax_sentemb.evaluation.model_spec import check_distinct_names, load_eval_model, with_widths

    def vocabulary() -> set[str]:
        words = {word for item in items for sentence in set(item.sentences) for word in sentence.split()}
        return words | {word.lower() for word in words}

    given = [load_eval_model(text, vocabulary, options.batch_size, options.vectors) for text in options.model]
    if options.vectors and not any("vectors" in model.metadata for model in given):
        raise ConfigError(f"--vectors {options.vectors} is not used: no model has word vectors as its input; leave it out")
    members = [model.name for model in given]
    models = [cut for model in given for cut in with_widths(model, members)]
    names = [model.name for model in models]
    check_distinct_names(names)
    if options.ensemble and ENSEMBLE in names:
        raise ConfigError(f"a model is called {ENSEMBLE}, as the row of --ensemble: write NAME=PATH for it")
    return models, members


def _combined(members: Sequence[Mapping[str, Any]], protocols: Any) -> dict[str, Any]:
    """Return the outcomes of the ensemble on the tasks that all members have."""
    from jax_sentemb.evaluation import suite

    shared = [task for task in members[0] if all(task in outcomes for outcomes in members)]
    combined = {task: suite.combine([outcomes[task] for outcomes in members], protocols) for task in shared}
    return {task: outcome for task, outcome in combined.items() if outcome}


def _print_tables(options: argparse.Namespace, layouts: Sequence[Any]) -> None:
    """Print the tables, and write them to --output."""
    from jax_sentemb.evaluation import tables

    print()
    print(plain("\n\n".join(tables.as_text(table) for table in layouts)))
    if options.output:
        text = "\n".join(tables.as_markdown(table) for table in layouts)
        options.output.mkdir(parents=True, exist_ok=True)
        write_text(options.output / "tables.md", text + "\n")
        print(plain(f"\nwritten: {options.output}/tables.md and a JSON file for each model and task"))


def _line(outcome: Any) -> str:
    scores = ", ".join(f"{column} {value:.2f}" for column, value in outcome.headline.items())
    if "interval" in outcome.scores:
        scores += " [{:.2f}, {:.2f}]".format(*outcome.scores["interval"])
    dev = f", dev {outcome.scores['dev']:.2f}" if "dev" in outcome.scores else ""
    return f"{scores}{dev} ({sum(outcome.seconds.values()):.1f} s)"


def _write(options: argparse.Namespace, model: str, record: dict[str, Any]) -> None:
    if not options.output:
        return
    folder = options.output / model
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(folder / f"{record['task']}.json", text + "\n")


def _plot(options: argparse.Namespace, model: str, outcome: Any) -> None:
    import numpy as np

    from jax_sentemb.reporting.plots import similarity_against_gold

    cosine = np.concatenate(list(outcome.similarities["cosine"].values()))
    gold = np.concatenate([pairs.gold for pairs in outcome.item.data.subsets.values()])
    similarity_against_gold(options.output / model / f"{outcome.item.name}.png", cosine, gold, f"{outcome.item.name}, {model}")


def _check_alone(options: argparse.Namespace) -> None:
    """Raise ConfigError if --check has no folder, or has options that only a scoring uses."""
    if not options.data:
        raise ConfigError("--check needs --data, the SentEval folder")
    problem = "--check scores nothing; leave one of them out"
    if options.model:
        raise ConfigError(f"--model {options.model[0]} is not used: {problem}")
    names = "tasks", "vectors", "output", "sts_protocol", "classifier", "resamples", "batch_size", "arguments", "ensemble", "plots"
    leave_out(options, names, problem)


def _check_plots(options: argparse.Namespace) -> None:
    """Raise ConfigError before anything is scored if plots cannot be drawn."""
    from jax_sentemb.reporting.plots import require_matplotlib

    if not options.output:
        raise ConfigError("--plots needs --output, the folder to write to")
    require_matplotlib()


def _task_list() -> str:
    from jax_sentemb.evaluation.catalog import GROUPS

    return "\n".join(f"{group:<10} {', '.join(names)}" for group, names in GROUPS.items())


def _root(folder: Path) -> Path:
    """Return the SentEval folder, even if it contains only `probing`."""
    from jax_sentemb.evaluation.sts_data import senteval_root

    folder = user_path(folder)
    return folder if (folder / "probing").is_dir() else senteval_root(folder)


def _check(root: Path) -> int:
    """List the files that exist, those that are missing, and their folders; return exit code 3 if a file is malformed."""
    from jax_sentemb.errors import DataError
    from jax_sentemb.evaluation import suite
    from jax_sentemb.evaluation.catalog import GROUPS, SETS

    code = 0
    for group, names in GROUPS.items():
        print(group)
        for name in names:
            missing = [file for file in SETS[name].files(root) if not file.is_file()]
            try:
                state = "there" if not missing else "missing"
                item = None if missing else suite.load(name, root)
                sizes = item.sizes if item else {}
                detail = ", ".join(f"{part} {size:,}" for part, size in sizes.items())
                if len(sizes) > 8:
                    detail = f"{sum(sizes.values()):,} in {len(sizes)} parts"
                print(f"  {name:<26}{state:<9}{detail}")
                for warning in item.warnings if item else ():
                    print(plain(f"  {'':<26}warning: {warning}"))
            except DataError as error:
                print(f"  {name:<26}{'bad':<9}{error}")
                code = DataError.exit_code
            for folder in dict.fromkeys(file.parent for file in missing):
                names = [file.name for file in missing if file.parent == folder]
                text = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
                print(f"  {'':<26}missing: {folder.relative_to(root)}/ {text}")
    return code


if __name__ == "__main__":
    start(main)
