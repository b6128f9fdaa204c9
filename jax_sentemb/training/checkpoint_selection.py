"""Selects the best checkpoint (`eval.select`) and stops training early (`eval.patience`)."""

import math
from collections.abc import Mapping

from jax_sentemb.config import Evaluation
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.methods.base import Method
from jax_sentemb.types import Params


def selected_by(options: Evaluation, validation: bool, dev: str, is_cross_encoder: bool, agreement: str = "") -> str:
    """The selection metric by its name in metrics.jsonl: "validation", Spearman on `dev`, or retrieval; "" for the last weights.

    `agreement`: the name of the agreement with a teacher, "" if it is not measured. ConfigError if this run does not measure it.
    """
    on_dev = f"eval/{dev}/spearman_cosine" if dev else ""
    if not options.select:
        name = on_dev or agreement or ("validation" if validation else "")
    elif options.select == "agreement":
        name = agreement
        if not agreement:
            raise ConfigError(
                Setting("eval.select", "agreement"),
                " needs a teacher and held-out sentences: give ",
                Setting("data.validation", 1000),
                " or ",
                Setting("eval.held_out", "FILES"),
            )
    elif options.select == "dev":
        name = on_dev
        if not dev:
            raise ConfigError(
                Setting("eval.select", "dev"),
                " needs labelled pairs: ",
                Setting("eval.dev", "pairs.tsv"),
                ", or STS-B in ",
                Setting("eval.data"),
            )
    elif options.select == "retrieval":
        name = "diagnostics/retrieval"
        if is_cross_encoder:
            raise ConfigError(
                Setting("eval.select", "retrieval"), ": a cross-encoder has no embeddings; take dev, validation or last"
            )
    else:
        name = options.select.removesuffix("last")
    if options.patience and not name:
        raise ConfigError(
            Setting("eval.patience", options.patience),
            " needs a score that can stop rising: set ",
            Setting("eval.select"),
            ", ",
            Setting("eval.dev"),
            " or ",
            Setting("data.validation"),
        )
    return name


def score(name: str, values: Mapping[str, float]) -> float | None:
    """A selection metric (higher is better), None if not measured; "validation" is the accuracy, or minus the loss without one."""
    if name == "validation":
        return 100 * values["validation/accuracy"] if "validation/accuracy" in values else -values["validation/loss"]
    return values.get(name)


def better(found: Mapping[str, float | None]) -> str:
    """The name with the highest score; the first one if scores are equal or none was measured."""
    return max(found, key=lambda name: -math.inf if (value := found[name]) is None else value)


def kept_encoder(method: Method, params: Params, kept: str, selected: str) -> dict[str, str]:
    """{"kept_encoder", "kept_because"} for scores.json and model.json; {} for a method with one encoder.

    `kept` is the encoder of the best checkpoint, "" if the last weights are exported.
    """
    names = list(method.encoders(params))
    if names == [""]:
        return {}
    if len(names) == 1:
        why = "method.keep asks for it"
    elif kept and selected != "validation":
        why = f"the higher {selected} of {' and '.join(names)}"
    else:
        why = "no score tells the encoders apart (labelled pairs: eval.dev; without labels: eval.select=retrieval)"
    return {"kept_encoder": kept or names[0], "kept_because": why}


def should_stop_early(patience: int, eval_steps: int, evaluated: int, best_step: int) -> bool:
    """Whether the last `patience` evaluations did not improve the best score (`best_step` < 0: there is none yet)."""
    return 0 < patience * eval_steps <= evaluated - max(best_step, 0)
