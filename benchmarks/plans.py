"""Compile steps of BERT-base for absent accelerators: rows for benchmarks/README.md.

    python benchmarks/plans.py [--targets tpu:v5e-1,h100] [--methods simcse,micse,is_bert,mlm] [--sentences 64,512] [--layers 12]
    python benchmarks/plans.py --find    the largest batch that fits, instead of a bound

    python benchmarks/plans.py --set data.max_seq_length=128 train.fused_attention=cudnn    other settings

Each row is one `jax-sentemb plan --json` in bfloat16 with 64 tokens and fused attention. Compile seconds are processor seconds of
all batches that were compiled.
"""

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Iterator

BASE = {
    "train.precision": "bfloat16", "train.fused_attention": "pallas", "data.vocab_size": 30522, "data.max_seq_length": 64,
    "encoder.hidden_size": 768, "encoder.num_attention_heads": 12, "encoder.intermediate_size": 3072,
}  # fmt: skip
COLUMNS = (
    "TFLOP of products",
    "HBM traffic GB",
    "FLOP a byte",
    "temporaries GB",
    "bound ms",
    "of the peak, at most",
    "sentences/s, at most",
)


def plan(method: str, target: str, settings: dict, find: bool) -> tuple[dict, float]:
    """Return (output of the command, processor seconds); raise SystemExit with its message if it fails."""
    flags = [f"--config.{name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "jax_sentemb", "plan", "--config", method, "--target", target, "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*command, *(["--find", "batch_size"] if find else []), *flags], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not done.stdout.strip():
        raise SystemExit(f"{method}, {target}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cells(facts: dict, find: bool) -> list[str]:
    """Return the numbers of one plan."""
    if find:
        return [f"{facts['batch_size']:,}", f"{facts['temporaries'] / 1e9:.1f}"]
    if facts["reason"]:
        return [facts["reason"]]
    bound = facts["bound_seconds"]
    seconds = max(bound.values())
    return [
        f"{facts['flop'] / 1e12:.2f}", f"{facts['moved'] / 1e9:.1f}", f"{facts['flop'] / facts['moved']:.0f}",
        f"{facts['temporaries'] / 1e9:.2f}", f"{seconds * 1e3:.1f} ({facts['bound']})", f"{bound['compute'] / seconds:.0%}",
        f"{facts['bound_sentences_per_second']:,.0f}",
    ]  # fmt: skip


def rows(options: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the head of the table and its rows."""
    names = ("largest batch", "temporaries GB") if options.find else COLUMNS
    yield ["", "sentences", *names, "compile s"]
    yield ["---", *["--:"] * (len(names) + 2)]
    sizes = [512] if options.find else [int(size) for size in options.sentences.split(",")]
    for target in options.targets.split(","):
        for method in options.methods.split(","):
            for size in sizes:
                row_settings = {"encoder.num_hidden_layers": options.layers, "data.batch_size": size}
                facts, seconds = plan(
                    method, target, {**BASE, **row_settings, **dict(text.split("=", 1) for text in options.set)}, options.find
                )
                yield [f"{method}, {target}", str(size), *cells(facts, options.find), f"{seconds:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="tpu:v5e-1,h100")
    parser.add_argument("--methods", default="simcse,micse,is_bert,mlm")
    parser.add_argument("--sentences", default="64,512", help="of one device")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--find", action="store_true", help="the largest batch that fits")
    parser.add_argument("--set", nargs="+", default=[], metavar="SECTION.FIELD=VALUE", help="settings of the recipes")
    options = parser.parse_args()
    for row in rows(options):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
