"""Compare the seconds from embeddings to transfer scores with SentEval's own classifier loop, task by task.

  PYTHONPATH=. python benchmarks/senteval_speed.py --senteval CHECKOUT --data SENTEVAL/data --model DIR [--model DIR ...] \
      --tasks CR,TREC --output speed.json

Both get the same embeddings (those of several models are concatenated), draw the same folds and train with the same protocol, one
after the other on every task. Compilation counts as our time. The scores are printed next to the seconds and must agree (see
experiments/senteval_parity). The checkout is github.com/facebookresearch/SentEval; PyTorch is needed.
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
        row_of = {sentence: index for index, sentence in enumerate(dict.fromkeys(item.sentences))}
        vectors = np.concatenate([encode(list(row_of)) for encode in models], axis=1)
        started = time.perf_counter()
        outcome = suite.score_one(item, row_of, vectors, protocols)
        our_seconds = time.perf_counter() - started
        senteval_scores, seconds = senteval_toolkit.score(
            toolkit,
            options.data,
            name,
            lambda batch, row_of=row_of, vectors=vectors: vectors[[row_of[sentence] for sentence in batch]],
            options.protocol,
        )
        key = "accuracy" if "accuracy" in outcome.scores else "pearson"
        senteval_score = senteval_scores["acc"] if "acc" in senteval_scores else 100 * senteval_scores["pearson"]
        rows.append(
            {
                "task": name,
                "score": outcome.scores[key],
                "senteval_score": float(senteval_score),
                "seconds": our_seconds,
                "senteval_seconds": seconds,
                "ours": outcome.scores,
                "senteval": {column: float(value) for column, value in senteval_scores.items() if np.isscalar(value)},
            }
        )
        times = f"{our_seconds:>9.1f}{seconds:>10.1f}{seconds / our_seconds:>7.1f}x"
        print(f"{name:<18}{outcome.scores[key]:>9.2f}{senteval_score:>10.2f}{times}", flush=True)
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
    our_seconds, senteval_scores = (sum(row[column] for row in rows) for column in ("seconds", "senteval_seconds"))
    print(f"{'all':<18}{'':>19}{our_seconds:>9.1f}{senteval_scores:>10.1f}{senteval_scores / our_seconds:>7.1f}x")
    print(f"{vectors.shape[1]} dimensions; peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB")


if __name__ == "__main__":
    main()
