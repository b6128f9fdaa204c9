"""Bounds of a program's speed: its operations and bytes against the data sheet of a chip."""

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
        """The least time of a step, if everything overlaps perfectly."""
        return max(self)

    @property
    def limit(self) -> str:
        """compute, memory or network."""
        return self._fields[int(np.argmax(self))]


def bound(chip: Chip, precision: str, flop: float, moved: float, collectives: Sequence[Collective]) -> Bound:
    """`flop` of products, `moved` bytes of HBM and `collectives`, all of one chip and one step."""
    network = sum(sent_bytes(one) / (chip.network if one.group <= chip.per_host else chip.between_hosts) for one in collectives)
    return Bound(flop / getattr(chip, precision), moved / chip.bandwidth, network)


def sent_bytes(collective: Collective) -> float:
    """Bytes that a device must send at least (rings; Thakur et al. 2005)."""
    share = 1 - 1 / max(collective.group, 1)
    return collective.bytes * {"all-reduce": 2 * share, "collective-permute": 1.0}.get(collective.kind, share)


def product_flop(jaxpr: Any) -> float:
    """FLOP of the products and convolutions of a traced function over all devices; 2 a multiply and add, loops unrolled.

    Products that no result depends on are not counted: the compiler removes them.
    """
    read, _ = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return _product_flop(read)


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
            inner = sum(_product_flop(part) for part in _inner(params))
            total += inner * _repeats(name, params)
    return total


def _repeats(name: str, params: dict[str, Any]) -> int:
    """How often the function inside an equation runs, over all devices."""
    if name == "scan":
        return params["length"]
    if name == "shard_map":
        return params["mesh"].size
    return int(np.prod(params["grid_mapping"].grid)) if name == "pallas_call" else 1


def _inner(params: dict[str, Any]) -> list[Any]:
    """The functions that an equation calls."""
    found = []
    for name, value in params.items():
        if name in ("jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "jvp_jaxpr_thunk"):
            continue
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, core.ClosedJaxpr):
                found.append(part.jaxpr)
            elif isinstance(part, core.Jaxpr):
                found.append(part)
    return found
