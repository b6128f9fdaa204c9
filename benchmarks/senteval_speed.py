"""Seconds from embeddings to transfer scores: this package against SentEval's own classifier loop, task by task.

  PYTHONPATH=. python benchmarks/senteval_speed.py --senteval CHECKOUT --data SENTEVAL/data --model DIR [--model DIR ...] \
      --tasks CR,TREC --output speed.json

Both get the same embeddings (those of several models are put side by side), draw the same folds and train with the same
protocol, one after the other on every task; compilation counts as our time. Scores are printed beside the seconds: they
have to agree, see experiments/senteval_parity. The checkout is github.com/facebookresearch/SentEval; needs PyTorch.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks import senteval_toolkit
from jax_sentemb.evaluation import suite, transfer
from jax_sentemb.evaluation.model_spec import load_eval_model
from jax_sentemb.evaluation.sts import PROTOCOLS as STS

TASKS = "CR,MRPC,TREC,SST5,SICKEntailment,SICKRelatedness,STSBenchmark,SST2,MR"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--senteval", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--protocol", default="senteval", choices=sorted(senteval_toolkit.SETTINGS))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of PyTorch")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    toolkit = senteval_toolkit.load(options.senteval)
    protocols = suite.Protocols(STS["simcse"], transfer.PROTOCOLS[options.protocol], 0)
    models = [load_eval_model(text, set, 64).fit([]) for text in options.model]
    rows = []
    print(f"{'task':<18}{'ours':>9}{'SentEval':>10}{'seconds':>9}{'SentEval':>10}{'ratio':>8}")
    for name in options.tasks.split(","):
        item = suite.load(name, options.data)
        place = {sentence: index for index, sentence in enumerate(dict.fromkeys(item.sentences))}
        vectors = np.concatenate([encode(list(place)) for encode in models], axis=1)
        started = time.perf_counter()
        outcome = suite.score_one(item, place, vectors, protocols)
        ours = time.perf_counter() - started
        theirs, seconds = senteval_toolkit.score(
            toolkit,
            options.data,
            name,
            lambda batch, place=place, vectors=vectors: vectors[[place[sentence] for sentence in batch]],
            options.protocol,
        )
        key = "accuracy" if "accuracy" in outcome.scores else "pearson"
        other = theirs["acc"] if "acc" in theirs else 100 * theirs["pearson"]
        rows.append(
            {
                "task": name,
                "score": outcome.scores[key],
                "senteval_score": float(other),
                "seconds": ours,
                "senteval_seconds": seconds,
                "ours": outcome.scores,
                "senteval": {kind: float(value) for kind, value in theirs.items() if np.isscalar(value)},
            }
        )
        print(f"{name:<18}{outcome.scores[key]:>9.2f}{other:>10.2f}{ours:>9.1f}{seconds:>10.1f}{seconds / ours:>7.1f}x", flush=True)
        if options.output:
            facts = {
                "models": [Path(text).name for text in options.model],
                "dimensions": vectors.shape[1],
                "protocol": options.protocol,
                "torch": torch.__version__,
                "torch_threads": options.threads,
                **suite.versions(),
            }
            options.output.write_text(json.dumps({**facts, "rows": rows}, indent=2) + "\n", encoding="utf-8")
    ours, theirs = (sum(row[kind] for row in rows) for kind in ("seconds", "senteval_seconds"))
    print(f"{'all':<18}{'':>19}{ours:>9.1f}{theirs:>10.1f}{theirs / ours:>7.1f}x")
    print(f"{vectors.shape[1]} dimensions; peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB")


if __name__ == "__main__":
    main()
