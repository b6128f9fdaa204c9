"""Arguments topic by topic: methods trained on the other topics (data.scheme=cross-topic) beside those without labels.

    python experiments/is_bert/topics.py --unlabelled runs/is_bert_mini_2/afs-scores \\
        --run SBERT=runs/sbert_topics "cross-encoder=runs/cross_encoder_topics"

--unlabelled: a folder of jax-sentemb evaluate --arguments (run.py, stage afs). --run: sweeps over data.fold. Only topics that every
sweep has tested are kept. Writes topics.csv here; prints means and paired differences to the first sweep.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import write_rows

from jax_sentemb.reporting.sweep_table import half_interval

HERE = Path(__file__).parent
KINDS = ("pearson", "spearman")
Scores = dict[str, dict[str, float]]  # {kind: {topic: x 100}}


def unlabelled(folder: Path) -> dict[str, Scores]:
    found = {}
    for file in sorted(folder.glob("*/*.json")):
        content = json.loads(file.read_text(encoding="utf-8"))
        found[content["model"]] = {kind: content["scores"]["unsupervised"][kind]["topics"] for kind in KINDS}
    return found


def tested(folder: Path) -> Scores:
    """Each run of a cross-topic sweep has one topic."""
    found: Scores = {kind: {} for kind in KINDS}
    for file in sorted(folder.glob("data.fold=*/scores.json")):
        scores = json.loads(file.read_text(encoding="utf-8"))["scores"]["arguments"]
        for kind in KINDS:
            found[kind] |= scores[kind]["subsets"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--unlabelled", type=Path, required=True)
    parser.add_argument("--run", nargs="+", required=True, metavar="NAME=SWEEP")
    options = parser.parse_args()
    sweeps = {name: tested(Path(folder)) for name, _, folder in (given.partition("=") for given in options.run)}
    topics = sorted(set.intersection(*(set(sweep[KINDS[0]]) for sweep in sweeps.values())))
    if not topics:
        parser.error("--run: no topic was tested by every sweep")
    methods = unlabelled(options.unlabelled) | sweeps
    rows = [(name, topic, *(f"{methods[name][kind][topic]:.2f}" for kind in KINDS)) for name in methods for topic in topics]
    write_rows(HERE / "topics.csv", rows, ("method", "topic", *KINDS))
    first = next(iter(sweeps))
    print(f"{len(topics)} topics; differences to {first}\n")
    for name, scores in methods.items():
        cells = []
        for kind in KINDS:
            differences = [scores[kind][topic] - sweeps[first][kind][topic] for topic in topics]
            mean = statistics.mean(scores[kind][topic] for topic in topics)
            difference = f"{statistics.mean(differences):+.2f} ± {half_interval(differences):.2f}" if name != first else ""
            cells.append(f"{mean:.2f} | {difference}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
