"""Draws what a search in arguments finds before and after distillation, and counts the neighbours on the topic.

python experiments/stronger/picture.py --data DIR --teacher all-MiniLM-L6-v2

Writes neighbours.svg beside this file, and prints the table. No argument was a training text.
"""

import argparse
import sys
from pathlib import Path

import jax_sentemb

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import parse
from topic_neighbours import picture, read_topics, search_queries, shares_table

START = Path(__file__).parents[1] / "pretraining" / "mini-2"
MODELS = {f"mini-2, {pooling}": f"{START}@{pooling}" for pooling in ("cls", "mean", "first_last")}
BEFORE, AFTER = "mini-2, first_last", "mini-distilled"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", help="the teacher, for its row in the table")
    options = parse(parser, arguments="afs/UKP_ASPECT.tsv", wiki="corpora/wiki_sentences.txt.xz")
    topics = read_topics(options.arguments)
    models = {**MODELS, AFTER: AFTER, **({"the teacher": options.teacher} if options.teacher else {})}
    encoders = {name: jax_sentemb.SentenceEncoder(source) for name, source in models.items()}
    print(shares_table(encoders, topics, options.wiki))
    results = (search_queries(encoders[name], list(topics)) for name in (BEFORE, AFTER))
    drawn = picture(topics, *results, ("before", "after distillation, without labels"))
    Path(__file__).with_name("neighbours.svg").write_text(drawn + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
