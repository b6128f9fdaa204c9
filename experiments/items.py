"""Bootstrap the mean difference of two readouts over the pairs of the five similarity sets.

python experiments/items.py --data DIR --weights bert-mini=bert-mini mini-2=experiments/pretraining/mini-2

Writes items.csv, which docs/evidence.py reads. Each draw takes the pairs of every set with replacement, the same for both readouts.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats
from study_data import write_rows

if TYPE_CHECKING:
    from jax_sentemb.evaluation.measures import Measure, Scored

HERE = Path(__file__).parent
READOUTS = {"untrained [CLS]": "cls", "untrained mean": "mean"}  # by their names in the tables of docs/evidence.toml
RESAMPLES = 1000


def spearman_of(cosines: np.ndarray, gold: np.ndarray) -> "Measure":
    """Return the measure that is 100 times Spearman's correlation on some pairs."""
    return lambda items: 100 * float(stats.spearmanr(cosines[items], gold[items]).statistic)


def scored_sets(spec: str, data: Path) -> list["Scored"]:
    """Return the correlation of a model on the pairs of each set."""
    from jax_sentemb.evaluation import suite, transfer
    from jax_sentemb.evaluation.catalog import SEVEN
    from jax_sentemb.evaluation.measures import Scored
    from jax_sentemb.evaluation.model_spec import load_eval_model
    from jax_sentemb.evaluation.sts import PROTOCOLS

    items = suite.load_all([(name, False) for name in SEVEN], data / "senteval").items
    protocols = suite.Protocols(PROTOCOLS["simcse"], transfer.check_protocol("senteval"), resamples=0)
    sets = []
    for item, outcome in suite.score(load_eval_model(spec, set), items, protocols):
        if not isinstance(outcome, suite.Outcome):
            raise outcome
        cosines = outcome.similarities["cosine"]
        gold = np.concatenate([item.data.subsets[name].gold for name in cosines])
        sets.append(Scored(len(gold), {"spearman": spearman_of(np.concatenate(list(cosines.values())), gold)}))
    return sets


def mean_of_sets(sets: list["Scored"]) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Return the mean of the sets, and its values on draws of their pairs."""
    from jax_sentemb.evaluation.measures import bootstrap, values_of

    value = np.mean([values_of(scored)["spearman"] for scored in sets])
    return {"mean": float(value)}, {"mean": np.mean([bootstrap(scored, RESAMPLES)["spearman"] for scored in sets], axis=0)}


def main() -> None:
    """Write items.csv."""
    from jax_sentemb.evaluation.measures import differences

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of experiments/data.md")
    parser.add_argument("--weights", nargs="+", required=True, metavar="NAME=DIR", help="untrained encoders")
    options = parser.parse_args()
    first, second = READOUTS
    rows = []
    for name, _, folder in (entry.partition("=") for entry in options.weights):
        without, with_ = (mean_of_sets(scored_sets(f"{folder}@{readout}", options.data)) for readout in READOUTS.values())
        estimate = differences(*with_, *without)["mean"]
        rows.append([name, first, second, *(f"{number:.2f}" for number in estimate)])
        print(*rows[-1], flush=True)
    write_rows(HERE / "items.csv", rows, ("encoder", "first", "second", "difference", "low", "high"))


if __name__ == "__main__":
    main()
