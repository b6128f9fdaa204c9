"""Writes one model whose weights are the mean of those of several runs: `python average.py OUTPUT EXPORT EXPORT ...`.

The runs have to start from the same weights, as seeds of one study do (model soups, Wortsman et al. 2022).
"""

import argparse
from pathlib import Path

import jax
import numpy as np

from jax_sentemb.inference.export import export_loaded
from jax_sentemb.inference.load import load


def mean(*leaves):
    return np.mean(leaves, axis=0, dtype=np.float64).astype(np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("exports", nargs="+")
    options = parser.parse_args()
    models = [load(export) for export in options.exports]
    params = jax.tree.map(mean, *(model.params for model in models))
    export_loaded(options.output, models[0]._replace(params=params), models[0].embedder.max_seq_length, None)
    print(f"{options.output}: the mean of {len(models)} models")


if __name__ == "__main__":
    main()
