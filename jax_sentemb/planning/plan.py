"""Compile a run's train step for a target, and report whether it fits, what limits its speed, and how fast its input must be."""

import dataclasses
import re
import time
from collections.abc import Callable
from typing import Any

import jax

from jax_sentemb.config import Config
from jax_sentemb.errors import ConfigError, ResourceError, Setting
from jax_sentemb.planning.hlo import Collective, Program
from jax_sentemb.planning.roofline import Bound, bound, product_flop
from jax_sentemb.planning.step import PlannedRun
from jax_sentemb.planning.targets import Target

GIB = 2**30
OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "Ran out of memory")


@dataclasses.dataclass
class Plan:
    """Resources of one step according to the compiler; sizes and FLOP are those of one chip."""

    target: Target
    batch_size: int
    fsdp: int
    fits: bool
    reason: str = ""  # of the compiler, if it refuses the program
    arguments: float = 0.0  # bytes of parameters, optimiser state and batch
    temporaries: float = 0.0  # bytes of all other arrays
    flop: float = 0.0  # of products
    compiler_flop: float = 0.0  # of everything, each loop counted once; 0: unknown to the compiler
    compiler_bytes: float = 0.0  # the same for bytes that operations access
    moved: float = 0.0  # bytes read and written in HBM
    accessed: float = 0.0  # bytes read and written by all operations, also on the chip
    collectives: list[Collective] = dataclasses.field(default_factory=list)
    padding: float = 0.0  # share of the arrays' bytes that is padding of the chip's tiles
    largest: list[tuple[float, str, str]] = dataclasses.field(default_factory=list)
    compile_seconds: float = 0.0
    bound: Bound = Bound(0.0, 0.0, 0.0)

    @property
    def total(self) -> float:
        """Return the bytes of arguments and temporaries."""
        return self.arguments + self.temporaries

    @property
    def sentences_per_second(self) -> float:
        """Return an upper bound of the speed over all chips."""
        return self.batch_size / self.bound.seconds if self.bound.seconds else 0.0


def compile_plan(run: PlannedRun, target: Target, devices: list[Any], batch_size: int, fsdp: int) -> Plan:
    """Return the plan of one batch size and split.

    Raises:
        ConfigError: Settings do not fit each other or the devices.
        ResourceError: The compiler does not accept the program for a reason other than memory.
    """
    traced, _ = run.trace(devices, batch_size, fsdp)
    start = time.perf_counter()
    try:
        compiled = traced.lower().compile()
    except jax.errors.JaxRuntimeError as error:
        message = " ".join(str(error).split())
        if not any(sign in message for sign in OUT_OF_MEMORY):
            raise ResourceError(
                f"XLA's compiler for {target.name} does not take this program: try ",
                Setting("train.precision", "bfloat16"),
                f" or other sizes ({message.partition(' = ')[0][:160]})",
            ) from error
        needs = re.search(r"\(?([\d.]+[KMGT])\)? exceeds|Used ([\d.]+[KMGT])", message)
        reason = f"needs {needs[1] or needs[2]}iB of temporaries" if needs else message[:200]
        return Plan(target, batch_size, fsdp, False, reason, compile_seconds=time.perf_counter() - start)
    seconds = time.perf_counter() - start
    return read_plan(target, batch_size, fsdp, compiled, product_flop(traced.jaxpr.jaxpr), run.config.train.precision, seconds)


def read_plan(target: Target, batch_size: int, fsdp: int, compiled: Any, flop: float, precision: str, seconds: float) -> Plan:
    """Return the plan of a compiled step.

    Args:
        target: The devices.
        batch_size: Sentences of a step.
        fsdp: The split that the step was compiled for.
        compiled: The step as JAX compiled it.
        flop: Operations of its products over all chips.
        precision: The precision of the products.
        seconds: The time that the compilation took.
    """
    program, memory = Program(compiled.as_text()), compiled.memory_analysis()
    costs = compiled.cost_analysis() or {}
    collectives = program.collectives(target.chips)
    moved = program.moved_bytes()
    arguments, temporaries = memory.argument_size_in_bytes, memory.temp_size_in_bytes
    temporaries += max(memory.output_size_in_bytes - memory.alias_size_in_bytes, 0)
    return Plan(
        target,
        batch_size,
        fsdp,
        fits=arguments + temporaries <= target.chip.memory,
        arguments=arguments,
        temporaries=temporaries,
        flop=flop / target.chips,
        compiler_flop=costs.get("flops", 0.0),
        compiler_bytes=costs.get("bytes accessed", 0.0),
        moved=moved,
        accessed=program.moved_bytes(hbm_only=False),
        collectives=collectives,
        padding=program.padding(),
        largest=program.largest(),
        compile_seconds=seconds,
        bound=bound(target.chip, precision, flop / target.chips, moved, collectives),
    )


def largest_batch(plan_of: Callable[[int], Plan], first: int, unit: int) -> Plan:
    """Return the plan of the largest batch that fits, a multiple of `unit`, to within a sixteenth.

    Memory grows about linearly. Two plans that fit give a line, and the size at which it reaches the limit is tried next. One plan
    also gives a line, as if all its temporaries grew with the batch.

    Args:
        plan_of: Returns the plan of a batch size.
        first: The size to try first.
        unit: The step between sizes.

    Raises:
        ResourceError: A batch of `unit` does not fit.
    """
    fitting: list[Plan] = []
    too_large, size = 0, max(first // unit, 1) * unit
    while True:
        plan = plan_of(size)
        if plan.fits:
            fitting = sorted([*fitting, plan], key=lambda plan: plan.batch_size)
        elif size == unit:
            raise ResourceError(
                f"not even {unit} sentences fit: raise ", Setting("train.fsdp"), ", or set ", Setting("train.remat", True)
            )
        else:
            too_large = size
        size = _next_size(fitting, too_large, unit)
        if fitting and size - fitting[-1].batch_size <= max(unit, fitting[-1].batch_size // 16) and (too_large or len(fitting) > 1):
            return fitting[-1]


def smallest_split(plan_of: Callable[[int], Plan], chips: int) -> Plan:
    """Return the plan of the smallest train.fsdp that fits.

    Raises:
        ResourceError: None fits.
    """
    tried: list[Plan] = []
    for size in (size for size in range(1, chips + 1) if chips % size == 0):
        tried.append(plan_of(size))
        if tried[-1].fits:
            return tried[-1]
    shortage = tried[-1].reason or f"{tried[-1].total / GIB:.1f} GiB a chip"
    raise ResourceError(
        "no ",
        Setting("train.fsdp"),
        f" up to {chips} fits ({shortage}): lower ",
        Setting("data.batch_size"),
        ", or set ",
        Setting("train.grad_cache_chunk"),
        " or ",
        Setting("train.remat", True),
    )


def _next_size(fitting: list[Plan], too_large: int, unit: int) -> int:
    """Return the next batch size to try; `fitting` is ordered by size."""
    if not fitting:
        return max(too_large // 4 // unit, 1) * unit
    best = fitting[-1]
    slope, least = best.temporaries / best.batch_size, max(unit, best.batch_size // 8)
    if len(fitting) > 1:
        slope, least = (best.total - fitting[-2].total) / (best.batch_size - fitting[-2].batch_size), 0
    guess = 2 * best.batch_size
    if slope > 0:
        guess = best.batch_size + max(int(0.98 * (best.target.chip.memory - best.total) / slope), least)
    if too_large and guess >= too_large:
        guess = (best.batch_size + too_large) // 2
    return max(guess // unit * unit, best.batch_size)


def check_units(config: Config, chips: int) -> int:
    """Return the number that a batch is a multiple of: the chips, or the chunk of gradient caching.

    Raises:
        ConfigError: The chunk is not a multiple of the chips.
    """
    chunk = config.train.grad_cache_chunk
    if chunk and chunk % chips:
        raise ConfigError(Setting("train.grad_cache_chunk", chunk), f" is not a multiple of the {chips} chips of --target")
    return chunk or chips
