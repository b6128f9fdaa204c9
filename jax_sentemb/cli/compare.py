"""Run `jax-sentemb compare --recipes simcse,micse,is_bert --seeds 3 --corpus FILE --data SENTEVAL`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jax_sentemb.cli import interrupts
from jax_sentemb.cli.program import EXIT_CODES, Parser, positive, start
from jax_sentemb.cli.train import config_settings
from jax_sentemb.errors import PREEMPTED, ConfigError, Setting, flag, plain, spelled
from jax_sentemb.files import user_path, write_text
from jax_sentemb.system.allocator import keep_freed_memory
from jax_sentemb.system.streams import print_line

if TYPE_CHECKING:
    from jax_sentemb.reporting.comparison_table import Entry
    from jax_sentemb.training.comparison import Comparison

FITTED_SENTENCES = 100_000  # of the corpus, on which tf-idf and SIF are fitted
EPILOG = f"""\
Every recipe is trained twice for each seed: as published, and at the common budget of --steps, --batch-size, --max-seq-length
and --readout. The table also has the untrained encoder by each readout, tf-idf and, with --vectors, averages of word vectors.
The same command continues a comparison that was stopped. --config.SECTION.FIELD=VALUE changes a setting of all runs.

examples:
  jax-sentemb compare --recipes simcse,micse,is_bert --seeds 3 --corpus corpus.txt --data SentEval/data --weights path/to/bert
  jax-sentemb compare --recipes simcse,ct,my_recipe.yaml --corpus corpus.txt --data SentEval/data --vectors glove.txt --steps 300

{EXIT_CODES}"""


def parser() -> Parser:
    """Return the parser of the options."""
    parser = Parser(
        prog="jax-sentemb compare",
        description="Compare recipes on one corpus: baselines, every recipe as published and at one common budget, over seeds.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--recipes", required=True, help="recipes by name or file, comma separated; the others are compared with the first"
    )
    parser.add_argument(
        "--corpus", required=True, metavar="FILE", help="text to train on: a file with one sentence on each line, or a table"
    )
    parser.add_argument("--data", required=True, type=user_path, help="the data folder of SentEval, which contains downstream/")
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="runs of each recipe and budget (default: 3)")
    parser.add_argument("--weights", default="", help="the BERT to start from: a directory or a hub name (default: from scratch)")
    parser.add_argument("--vectors", type=user_path, help="a file of word vectors for the word baselines (GloVe or fastText)")
    parser.add_argument("--column", default="text", help="the column of a table that has the text (default: text)")
    parser.add_argument("--steps", type=positive, default=1000, help="training steps of the common budget (default: 1000)")
    parser.add_argument("--batch-size", type=positive, default=64, help="batch size of the common budget (default: 64)")
    parser.add_argument("--max-seq-length", type=positive, default=32, help="tokens of a sentence, common budget (default: 32)")
    parser.add_argument("--readout", default="mean", help="pooling of the common budget: mean (default), cls or first_last")
    parser.add_argument(
        "--workdir", type=user_path, default=Path("runs/compare"), help="folder of the runs (default: runs/compare)"
    )
    return parser


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return its exit code."""
    with spelled(flag):
        options, comparison = _parse(argv)
        keep_freed_memory()
        from jax_sentemb.parallel import use_compilation_cache
        from jax_sentemb.training.run import run

        use_compilation_cache()
        # First, so that unusable word vectors are reported before hours of training.
        words = _word_entries(options, comparison.study.data.join)
        trained = len(comparison.study.variants) * comparison.seeds
        print_line(f"runs      {trained} trained, {len(comparison.starts.variants)} readouts of the untrained encoder", "stderr")
        with interrupts.ending_at_once():
            code = 0
            for study in (comparison.starts, comparison.study):
                code = run(study, options.workdir, temporary=True, brief=True) or code
                if code == PREEMPTED:
                    return code
        _report(options, comparison, words)
        return code


def _parse(argv: list[str]) -> tuple[argparse.Namespace, "Comparison"]:
    """Return the options and the runs.

    Raises:
        ConfigError: An option or a recipe cannot be used.
        DataError: The corpus or the evaluation sets cannot be read.
        ModelFileError: The weights cannot be read.
    """
    parse = parser()
    options, rest = parse.parse_known_args(argv[1:])
    from jax_sentemb.data.corpus_files import open_text
    from jax_sentemb.formats.huggingface import resolve
    from jax_sentemb.training.comparison import Budget, base_config, comparison

    if options.corpus == "-":
        raise ConfigError(Setting("--corpus", "-"), ": every run reads the text again; write it to a file first")
    names = [name.strip() for name in options.recipes.split(",") if name.strip()]
    if not names:
        raise ConfigError(Setting("--recipes"), " is empty: name recipes, for instance --recipes simcse,micse")
    budget = Budget(options.steps, options.batch_size, options.max_seq_length, options.readout)
    base = base_config(options.corpus, options.column, options.weights, options.data)
    runs = comparison(names, options.seeds, base, budget, config_settings(rest, base, parse))
    open_text("--corpus", options.corpus, options.column, runs.study.data.join)
    if options.weights:
        resolve(options.weights, "--weights")
    if options.vectors:
        from jax_sentemb.data.word_vectors import is_word_vectors

        if not is_word_vectors(options.vectors):
            raise ConfigError(
                Setting("--vectors", options.vectors), ": not a file of word vectors; give GloVe or fastText text, .vec or .npz"
            )
    return options, runs


def _report(options: argparse.Namespace, comparison: "Comparison", words: Sequence["Entry"]) -> None:
    """Print and write the table of the finished runs."""
    from jax_sentemb.reporting.comparison_table import as_markdown, as_text, layout, write_csv

    entries = _entries(options.workdir, comparison)
    starts = [entry for entry in entries if entry.group == "start"]
    entries = [*starts, *words, *(entry for entry in entries if entry.group != "start")]
    tables = layout(entries, comparison.seeds, _notes(options, comparison))
    print(plain(as_text(tables)))
    write_text(options.workdir / "compare.md", as_markdown(tables))
    write_csv(options.workdir / "compare.csv", entries)
    print(plain(f"\nwritten: {options.workdir}/compare.md, compare.csv"))


def _entries(workdir: Path, comparison: "Comparison") -> list["Entry"]:
    """Return the entries of the untrained encoder and of all recipes, in the order of the table, from sweep.json."""
    from jax_sentemb.files import read_json
    from jax_sentemb.reporting.comparison_table import Entry
    from jax_sentemb.training.comparison import COMMON, PUBLISHED, START, run_facts

    rows = [row for row in read_json(workdir / "sweep.json", list) if row.get("scores")]
    seeds = range(1, comparison.seeds + 1)
    order = [*comparison.starts.variants, *(f"{name}:{group}" for group in (PUBLISHED, COMMON) for name in comparison.recipes)]
    entries = []
    for variant in order:
        first, _, second = variant.partition(":")
        name, group = (second, START) if first == START else (first, second)
        chosen = {int(row["settings"]["train.seed"]): row for row in rows if row["settings"].get("variant") == variant}
        chosen = {seed: chosen[seed] for seed in seeds if seed in chosen}
        facts = run_facts(workdir, next(iter(chosen.values()))["folder"]) if chosen else {}
        single = group == START and comparison.starts.sweep == "train.seed=1..1"
        scores = {0 if single else seed: row["scores"] for seed, row in chosen.items()}
        entries.append(Entry(name, group, {} if group == START else facts, scores, [row["step"] for row in chosen.values()]))
    return entries


def _word_entries(options: argparse.Namespace, join: str) -> list["Entry"]:
    """Return the scores of tf-idf and of averaged word vectors. `join` is put between the columns of the corpus."""
    from jax_sentemb.data.corpus_files import open_corpus
    from jax_sentemb.evaluation import suite, transfer
    from jax_sentemb.evaluation.catalog import SEVEN
    from jax_sentemb.evaluation.model_spec import tf_idf_baselines, word_vector_baselines
    from jax_sentemb.evaluation.sts import PROTOCOLS
    from jax_sentemb.evaluation.sts_data import senteval_root
    from jax_sentemb.reporting.comparison_table import WORDS, Entry

    loaded = suite.load_all([(name, False) for name in SEVEN], senteval_root(options.data))
    protocols = suite.Protocols(PROTOCOLS["simcse"], transfer.check_protocol("senteval"), resamples=0)
    corpus = open_corpus(options.corpus, options.column, join)
    sentences = [corpus[row] for row in range(min(len(corpus), FITTED_SENTENCES))]
    models = tf_idf_baselines(sentences)
    if options.vectors:
        models += word_vector_baselines(options.vectors, [text for item in loaded.items for text in item.sentences], sentences)
    entries = []
    for model in models:
        scores = {}
        for item, outcome in suite.score(model, loaded.items, protocols):
            if isinstance(outcome, suite.Outcome):
                scores[item.name] = outcome.headline[item.name]
        entries.append(Entry(model.name, WORDS, {}, {0: scores}))
    return entries


def _notes(options: argparse.Namespace, comparison: "Comparison") -> list[str]:
    notes = [
        "published: the settings of the recipe, on this corpus",
        "common: the same steps, batch size, length and readout for all, a warm-up of a tenth, and the rate of the recipe",
    ]
    selected = "steps: the mean of the scored ones, selected on STS-B dev without the pairs of the scored sets"
    notes.append(selected if comparison.selects else "STS-B dev is missing, so the last step of each run is scored")
    if not options.weights:
        notes.append("start: a new encoder with random weights; --weights gives a BERT")
    if not options.vectors:
        notes.append("missing baselines: averaged word vectors and SIF; give --vectors glove.txt (nlp.stanford.edu/projects/glove)")
    return notes


if __name__ == "__main__":
    start(main)
