"""The same embeddings through this package and through the real SentEval toolkit: scores side by side.

  PYTHONPATH=. python experiments/senteval_parity/run.py --senteval CHECKOUT --data DIR --model bert-mini@mean \
      --protocols senteval_prototyping,logreg --add benchmarks/senteval_speed.json --output experiments/senteval_parity

`--add` takes over the rows of a run of benchmarks/senteval_speed.py with the same model, which does the slow default protocol.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import write_rows

from benchmarks import senteval_toolkit
from jax_sentemb.evaluation import suite, transfer
from jax_sentemb.evaluation.model_spec import load_eval_model
from jax_sentemb.evaluation.sts import PROTOCOLS as STS

TASKS = "CR,MRPC,TREC,SST5,SICKEntailment,SICKRelatedness,STSBenchmark,SST2,MR"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--senteval", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="the folder of experiments/data.md")
    parser.add_argument("--model", required=True)
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--sts", default="STS12,STS14,STS15")
    parser.add_argument("--protocols", default="senteval_prototyping,logreg")
    parser.add_argument("--add", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    options.data /= "senteval"
    toolkit = senteval_toolkit.load(options.senteval)
    encode = load_eval_model(options.model, set, 64).fit([])
    rows = []

    def add(task: str, protocol: str, metric: str, ours: float, theirs: float) -> None:
        rows.append((task, protocol, metric, ours, theirs, ours - theirs))
        print(f"{task:<18}{protocol:<24}{metric:<16}{ours:>10.4f}{theirs:>10.4f}{ours - theirs:>12.2e}", flush=True)

    def embedded(name: str) -> tuple[suite.Item, dict[str, int], np.ndarray]:
        item = suite.load(name, options.data)
        place = {sentence: index for index, sentence in enumerate(dict.fromkeys(item.sentences))}
        return item, place, encode(list(place)).astype(np.float64)

    for name in filter(None, options.sts.split(",")):
        item, place, vectors = embedded(name)
        ours = suite.score_one(item, place, vectors, suite.Protocols(STS["senteval"], transfer.PROTOCOLS["logreg"], 0)).scores
        lookup = lambda batch: vectors[[place[sentence] for sentence in batch]]  # noqa: B023, E731 - used before the next
        theirs, _ = senteval_toolkit.score(toolkit, options.data, name, lookup)
        for kind in ("pearson", "spearman"):
            for aggregate in ("mean", "wmean"):
                value = 100 * float(theirs["all"][kind][aggregate])
                add(name, "sts", f"{kind} {aggregate}", ours["cosine"][kind][aggregate], value)
    if options.add:
        for row in json.loads(options.add.read_text(encoding="utf-8"))["rows"]:
            metric = "accuracy" if "accuracy" in row["ours"] else "pearson"
            add(row["task"], "senteval", metric, row["score"], row["senteval_score"])
    for protocol in options.protocols.split(","):
        for name in options.tasks.split(","):
            item, place, vectors = embedded(name)
            if protocol == "logreg" and item.data.spec.procedure == "relatedness":
                continue  # one protocol for it in the toolkit too
            vectors = vectors.astype(np.float32)
            ours = suite.score_one(item, place, vectors, suite.Protocols(STS["senteval"], transfer.PROTOCOLS[protocol], 0)).scores
            lookup = lambda batch: vectors[[place[sentence] for sentence in batch]]  # noqa: B023, E731
            pytorch = protocol != "logreg"
            theirs, _ = senteval_toolkit.score(toolkit, options.data, name, lookup, protocol if pytorch else "senteval", pytorch)
            if "acc" in theirs:
                add(name, protocol, "accuracy", ours["accuracy"], theirs["acc"])
            else:
                add(name, protocol, "pearson", ours["pearson"], 100 * theirs["pearson"])
            if "f1" in theirs:
                add(name, protocol, "F1", ours["f1"], theirs["f1"])
    options.output.mkdir(parents=True, exist_ok=True)
    write_rows(options.output / "results.csv", rows, ("task", "protocol", "metric", "ours", "senteval", "difference"))


if __name__ == "__main__":
    main()
