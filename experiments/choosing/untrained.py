"""Scores the start and word baselines on the pairs of this study, and writes ../choosing_baselines.csv.

    python experiments/choosing/untrained.py --data DIR --weights bert-mini --vectors glove.6B.50d.txt

tf-idf and SIF as published are fitted on the scored sentences, the others on 100,000 Wikipedia sentences.
"""

import argparse
import statistics
import sys
from pathlib import Path

from jax_sentemb.evaluation.catalog import load_sts
from jax_sentemb.evaluation.model_spec import EvalModel, load_eval_model, tf_idf_baselines, word_vector_baselines
from jax_sentemb.evaluation.sts import correlate_tasks, task_cosines
from jax_sentemb.evaluation.sts_data import StsTask
from jax_sentemb.models.pooling import POOLINGS

sys.path.insert(0, str(Path(__file__).parents[1]))

from baselines import CORPUS, CORPUS_NAME, sentences_of
from run import SETS, TEST, thinned
from study_data import parse, require_model, write_rows

HERE = Path(__file__).parent


def score(model: EvalModel, task: StsTask) -> float:
    """Return Spearman x 100 over all pairs of a set."""
    encode = model.fit(sentences(task))
    cosines = task_cosines(lambda texts: model.finish(encode(texts)), {task.name: task})
    return correlate_tasks(cosines, {task.name: task})[task.name]["spearman"]["all"]


def sentences(task: StsTask) -> list[str]:
    """Return the sentences of a set."""
    return [text for pairs in task.subsets.values() for side in (pairs.first, pairs.second) for text in side]


def main() -> None:
    """Score the baselines and write choosing_baselines.csv."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True, help="the BERT directory of run.py")
    parser.add_argument("--vectors", type=Path, required=True, help="GloVe vectors")
    options = parse(parser, wiki=CORPUS, senteval="senteval")
    require_model(options.weights)
    full = load_sts(options.senteval)[0]
    tasks = [thinned(full[name], SETS[name]) for name in TEST]
    wiki = sentences_of(Path(options.wiki))
    models = [
        *(load_eval_model(f"untrained, {readout}={options.weights}@{readout}", set) for readout in POOLINGS),
        *word_vector_baselines(options.vectors, [text for task in tasks for text in sentences(task)], wiki, CORPUS_NAME),
        *tf_idf_baselines(wiki, CORPUS_NAME),
    ]
    rows = []
    for model in models:
        scores = [score(model, task) for task in tasks]
        rows.append([model.name, *(f"{value:.2f}" for value in (*scores, statistics.mean(scores)))])
        print(f"| {' | '.join(rows[-1])} |", flush=True)
    write_rows(HERE.parent / "choosing_baselines.csv", rows, ("baseline", *TEST, "test"))


if __name__ == "__main__":
    main()
