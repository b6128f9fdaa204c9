"""An exported model, with its PyTorch weights, in the real SentEval toolkit.

  PYTHONPATH=. python experiments/senteval_parity/export_in_senteval.py --senteval CHECKOUT --data DIR \
      --model runs/micse/export --tasks STS12,STS14,SICKEntailment
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks import senteval_toolkit
from jax_sentemb.evaluation.senteval_toolkit import senteval_batcher


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--senteval", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="the folder of experiments/data.md")
    parser.add_argument("--model", required=True)
    parser.add_argument("--tasks", default="STS12,STS14,SICKEntailment")
    options = parser.parse_args()
    toolkit = senteval_toolkit.load(options.senteval)
    prepare, batcher = senteval_batcher(options.model)
    folds, classifier = senteval_toolkit.SETTINGS["senteval"]
    parameters = {"task_path": str(options.data / "senteval"), "usepytorch": True, "kfold": folds, "classifier": classifier}
    for task in options.tasks.split(","):
        result = toolkit.engine.SE(dict(parameters), batcher, prepare).eval(task)
        shown = result["all"] if "all" in result else {name: value for name, value in result.items() if np.isscalar(value)}
        print(task, shown, flush=True)


if __name__ == "__main__":
    main()
