"""Bound a program's speed by its operations and bytes and the data sheet of a chip."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core
from jax.interpreters.partial_eval import dce_jaxpr

from jax_sentemb.planning.hlo import Collective
from jax_sentemb.planning.targets import Chip


class Bound(NamedTuple):
    """The least seconds that a step can take by each resource of a chip, and the resource that takes longest."""

    compute: float
    memory: float
    network: float

    @property
    def seconds(self) -> float:
        """Return the least time of a step, if everything overlaps perfectly."""
        return max(self)

    @property
    def limit(self) -> str:
        """Return the resource that takes longest, one of compute, memory and network."""
        return self._fields[int(np.argmax(self))]


def bound(chip: Chip, precision: str, flop: float, moved: float, collectives: Sequence[Collective]) -> Bound:
    """Return the bounds of a step on one chip.

    Args:
        chip: The data sheet.
        precision: The precision of the products.
        flop: Operations of the products.
        moved: Bytes read and written in HBM.
        collectives: The collectives of one step.
    """
    network = sum(
        sent_bytes(collective) / (chip.network if collective.group <= chip.per_host else chip.between_hosts)
        for collective in collectives
    )
    return Bound(flop / getattr(chip, precision), moved / chip.bandwidth, network)


def sent_bytes(collective: Collective) -> float:
    """Return the bytes that a device must send at least (rings; Thakur et al. 2005)."""
    share = 1 - 1 / max(collective.group, 1)
    return collective.bytes * {"all-reduce": 2 * share, "collective-permute": 1.0}.get(collective.operation, share)


def product_flop(jaxpr: Any) -> float:
    """Return the FLOP of the products and convolutions of a traced function over all devices.

    A multiplication with an addition counts 2, and loops are unrolled. Products on which no result depends are not counted, because
    the compiler removes them.
    """
    needed, _ = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return _product_flop(needed)


def _product_flop(jaxpr: Any) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            contracted = params["dimension_numbers"][0][0]
            inner = np.prod([equation.invars[0].aval.shape[axis] for axis in contracted])
            total += 2.0 * inner * equation.outvars[0].aval.size
        elif name == "conv_general_dilated":
            kernel, out = equation.invars[1].aval, equation.outvars[0].aval
            features = kernel.shape[params["dimension_numbers"].rhs_spec[0]]
            total += 2.0 * out.size * kernel.size / features
        elif name == "cond":
            total += max(_product_flop(branch.jaxpr) for branch in params["branches"])
        else:
            inner = sum(_product_flop(function) for function in _inner(params))
            total += inner * _repeats(name, params)
    return total


def _repeats(name: str, params: dict[str, Any]) -> int:
    """Return how often the function inside an equation runs, over all devices."""
    if name == "scan":
        return params["length"]
    if name == "shard_map":
        return params["mesh"].size
    return int(np.prod(params["grid_mapping"].grid)) if name == "pallas_call" else 1


def _inner(params: dict[str, Any]) -> list[Any]:
    """Return the functions that an equation calls."""
    functions = []
    for name, value in params.items():
        if name in ("jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "jvp_jaxpr_thunk"):
            continue
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                functions.append(item.jaxpr)
            elif isinstance(item, core.Jaxpr):
                functions.append(item)
    return functions
