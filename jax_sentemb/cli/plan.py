"""Run `jax-sentemb plan --config FILE --target tpu:v5e-16`: estimate whether a run fits an accelerator, and how fast it can be."""

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from jax_sentemb.cli.encode import note
from jax_sentemb.cli.program import EXIT_CODES, Parser, start
from jax_sentemb.cli.train import parse
from jax_sentemb.errors import ConfigError, Setting, flag, plain, spelled

if TYPE_CHECKING:
    from jax_sentemb.planning.plan import Plan

EPILOG = f"""\
The compiler of the accelerator compiles the step of the run. It runs on any machine. A run from scratch needs no data, no
accelerator and no download of weights. Times are bounds from the data sheet of the chip, never measurements.

targets:
  tpu:v5e-16, tpu:v6e-256    number of chips            needs pip install libtpu
  tpu:v5p-128                number of cores, two on each chip
  v5e, v5p, v6e              the smallest slice
  tpu:2xv5e-256              two slices
  h100, h100:8, h200:16      number of GPUs             needs pip install 'jax[cuda13]'

examples:
  jax-sentemb plan --config micse --target tpu:v5e-16 --config.data.batch_size=8192 --config.train.precision=bfloat16
  jax-sentemb plan --config simcse --target h100:8 --find batch_size

{EXIT_CODES.replace("memory full", "memory full, or the run does not fit")}"""


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return the exit code: 0 if the run fits, 7 if not."""
    options, rest = parser().parse_known_args(argv[1:])
    with spelled(flag):
        return _plan(options, [argv[0], *rest])


def _plan(options: Any, argv: list[str]) -> int:
    from jax_sentemb.planning.targets import describe_devices, parse_target

    target = parse_target(options.target)
    config, _, _ = parse([argv[0], *_with_files(argv[1:])])
    if config.sweep or config.variants:
        raise ConfigError(Setting("--config"), " has several runs: plan the recipe and settings of one of them")
    if config.pretrain is not None:
        note("the run of pretrain, which comes first, is not planned: plan its recipe")
    import jax

    jax.config.update("jax_platforms", "cpu")  # nothing is run, and an accelerator of this machine may be in use
    devices = describe_devices(target)
    from jax_sentemb.planning.plan import check_units, compile_plan, largest_batch, smallest_split
    from jax_sentemb.planning.step import PlannedRun, feed_rate

    run, size, fsdp = PlannedRun(config), config.data.batch_size, config.train.fsdp
    unit = check_units(config, target.chips)

    def plan_of(batch_size: int, split: int) -> Any:
        plan = compile_plan(run, target, devices, batch_size, split)
        if options.find and not options.json:
            print(f"data.batch_size={batch_size} train.fsdp={split}: {_memory(plan)}", flush=True)
        return plan

    if options.find == "batch_size":
        plan = largest_batch(lambda batch_size: plan_of(batch_size, fsdp), size, unit)
    elif options.find == "fsdp":
        plan = smallest_split(lambda split: plan_of(size, split), target.chips)
    else:
        plan = plan_of(size, fsdp)
    feed = feed_rate(config, plan.batch_size // target.hosts)
    print(json.dumps(_facts(plan, feed), indent=2) if options.json else plain("\n".join(describe(plan, feed))))
    return 0 if plan.fits else 7


def parser() -> Parser:
    """Return the parser of the options other than the settings."""
    parser = Parser(
        prog="jax-sentemb plan",
        usage="jax-sentemb plan --config RECIPE --target TARGET [--find batch_size|fsdp] [--json] [--config.SECTION.FIELD=V ...]",
        description="Estimate whether a run fits TPUs or GPUs that you do not have, and print an upper bound of its speed.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("--target", required=True, help="the accelerator, see below")
    parser.add_argument("--find", choices=("batch_size", "fsdp"), help="find the largest batch, or the smallest split, that fits")
    parser.add_argument("--json", action="store_true", help="print a JSON object instead of text")
    return parser


def _with_files(rest: list[str]) -> list[str]:
    """Return the arguments for the config. If they name no corpus, generated sentences are named, since no corpus is read."""
    from jax_sentemb.recipes import read_config

    recipe = next((value for name, value in pairwise(rest) if name == "--config"), "")
    recipe = recipe or next((text.partition("=")[2] for text in rest if text.startswith("--config=")), "")
    if not recipe or any(text.startswith("--config.data.files") for text in rest):
        return rest  # `parse` reports what is missing
    return rest if read_config(recipe).data.files else [*rest, "--config.data.files=grammar:400"]


def describe(plan: "Plan", feed: float) -> list[str]:
    """Return the lines that describe a plan. A core of this machine reads `feed` rows in a second."""
    target, chip, bound = plan.target, plan.target.chip, plan.bound
    lines = [
        f"target      {target.name}: {target.chips} chips in {target.hosts} hosts",
        f"batch       {plan.batch_size} sentences, {plan.batch_size // target.chips} per chip; train.fsdp={plan.fsdp}",
        f"memory      {_memory(plan)}",
    ]
    if target.slices > 1:
        lines.append("            the bound of the network does not include traffic between slices")
    if plan.reason:
        return [*lines, f"compile     {plan.compile_seconds:.0f} s on this machine"]
    compiler = f" ({plan.compiler_flop / 1e12:.3f} by the compiler's count)" if plan.compiler_flop else ""
    share = bound.compute / bound.seconds if bound.seconds else 0.0
    needed = plan.sentences_per_second / target.hosts
    lines += [
        f"products    {plan.flop / 1e12:.3f} TFLOP per chip{compiler}",
        f"traffic     {plan.moved / 1e9:.2f} GB of HBM per chip ({plan.accessed / 1e9:.2f} with memory on the chip); "
        f"{plan.flop / max(plan.moved, 1):.0f} FLOP per byte, the chip has {chip.bfloat16 / chip.bandwidth:.0f} in bfloat16",
        f"padding     {plan.padding:.1%} of the arrays' bytes fill tiles",
        *(
            f"network     {item.times} {item.operation} of {item.group} chips, {item.bytes / 1e6:.1f} MB"
            for item in plan.collectives
        ),
        f"bound       {bound.limit}: at least {bound.seconds * 1e3:.2f} ms per step (compute {bound.compute * 1e3:.2f}, "
        f"memory {bound.memory * 1e3:.2f}, network {bound.network * 1e3:.2f}; not measured)",
        f"            at most {plan.sentences_per_second:,.0f} sentences/s, {share:.0%} of the peak of products",
        f"input       at this bound each host reads {needed:,.0f} rows/s; a reading thread of this machine gives {feed:,.0f} "
        f"(measured on generated sentences){': the input is the limit' if needed > feed else ''}",
        f"compile     {plan.compile_seconds:.0f} s on this machine",
        f"data sheet  {chip.source}",
    ]
    return lines


def _memory(plan: Any) -> str:
    limit = plan.target.chip.memory / 2**30
    if plan.reason:
        return f"does not fit: {plan.reason}; a chip has {limit:.2f} GiB"
    sizes = f"{plan.arguments / 2**30:.2f} GiB of arguments and {plan.temporaries / 2**30:.2f} of temporaries of {limit:.2f} GiB"
    return f"{'fits' if plan.fits else 'does not fit'}: {sizes}"


def _facts(plan: "Plan", feed: float) -> dict[str, Any]:
    target = plan.target
    facts = {name: value for name, value in vars(plan).items() if name not in ("target", "collectives", "bound", "largest")}
    return {
        "target": target.name,
        "chips": target.chips,
        "hosts": target.hosts,
        "memory_limit": target.chip.memory,
        **facts,
        "collectives": [item._asdict() for item in plan.collectives],
        "largest_arrays": [{"bytes": size, "array": array, "operation": name} for size, array, name in plan.largest],
        "bound_seconds": plan.bound._asdict(),
        "bound": plan.bound.limit,
        "bound_sentences_per_second": plan.sentences_per_second,
        "input_rows_per_second_of_a_host": plan.sentences_per_second / target.hosts,
        "input_rows_per_second_of_a_core_here": feed,
        "data_sheet": target.chip.source,
    }


if __name__ == "__main__":
    start(main)
