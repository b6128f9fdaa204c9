"""Trains SimCSE on the sentences of UKP ASPECT without labels, and compares nearest neighbours before and after.

python experiments/arguments/run.py --data DIR --weights bert-mini --workdir runs/arguments

Writes results.md and neighbours.svg beside this file. Topics are used for measurement and for the dots of the picture only.
"""

import argparse
import sys
from pathlib import Path

import jax_sentemb

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import parse, require_model
from topic_neighbours import picture, read_topics, search_queries, shares_table

HERE = Path(__file__).parent
SETTINGS = {"max_steps": 60, "max_seq_length": 48, "eval_steps": 10, "select": "retrieval"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", required=True, help="a BERT directory")
    parser.add_argument("--workdir", default="runs/arguments")
    options = parse(parser, arguments="afs/UKP_ASPECT.tsv", wiki="corpora/wiki_sentences.txt.xz")
    require_model(options.weights)
    topics = read_topics(options.arguments)
    sentences = list(topics)
    encoders = {
        "[CLS] before": jax_sentemb.SentenceEncoder.load(f"{options.weights}@cls"),
        "mean before": jax_sentemb.SentenceEncoder.load(f"{options.weights}@mean"),
        "mean of first and last layer before": jax_sentemb.SentenceEncoder.load(f"{options.weights}@first_last"),
        "[CLS] after": jax_sentemb.train(sentences, options.weights, recipe="simcse", workdir=options.workdir, **SETTINGS),
    }
    results = (search_queries(encoders[name], sentences) for name in ("[CLS] before", "[CLS] after"))
    heads = "[CLS] before training", "[CLS] after training, without labels"
    table = shares_table(encoders, topics, options.wiki) + "\n"
    (HERE / "results.md").write_text(f"# Neighbours of arguments\n\n{table}", encoding="utf-8")
    (HERE / "neighbours.svg").write_text(picture(topics, *results, heads) + "\n", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
