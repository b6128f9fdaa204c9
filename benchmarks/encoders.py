"""Compare the speed of encoders and static tables with that of the first encoder: sentences/s on the same text, in one run.

    PYTHONPATH=. python benchmarks/encoders.py --text wiki.txt --encoders all-MiniLM-L6-v2 mini-distilled --tables runs/table

Every model has its own process and they take turns. An encoder encodes the first 512 sentences in a turn, a table up to 20,000.
Printed: median sentences/s, and the median over the rounds of (sentences/s / those of the first encoder).
"""

import argparse
import functools
import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.interleaved import interleave

ENCODED, LOOKED_UP = 512, 20_000  # sentences of a turn: of an encoder, of a table


def sentences_of(options: argparse.Namespace, model: str) -> list[str]:
    """Return the sentences that a model encodes in a turn."""
    from jax_sentemb.data.corpus_files import open_corpus

    sentences = open_corpus(str(options.text))
    return [sentences[row] for row in range(min(LOOKED_UP if model in options.tables else ENCODED, len(sentences)))]


def make(options: argparse.Namespace, model: str) -> Callable[[], object]:
    """Return a function that encodes the sentences of a model."""
    from jax_sentemb import SentenceEncoder

    encoder, sentences = SentenceEncoder(model), sentences_of(options, model)
    return lambda: encoder.encode(sentences)


def main() -> None:
    """Time the models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--encoders", nargs="+", required=True, metavar="MODEL", help="the first is the one of the ratios")
    parser.add_argument("--tables", nargs="*", default=[], metavar="TABLE", help="static tables of jax-sentemb distill")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    models = [*options.encoders, *options.tables]
    times = interleave(functools.partial(make, options), models, options.rounds, 1)
    counts = {model: len(sentences_of(options, model)) for model in models}
    rates = {model: [counts[model] / seconds for seconds in times[model]] for model in models}
    first = rates[options.encoders[0]]
    print("| model | sentences/s | times the first |\n|---|--:|--:|")
    for model, own in rates.items():
        ratio = statistics.median(rate / base for rate, base in zip(own, first, strict=True))
        print(f"| {model} | {statistics.median(own):,.0f} | {ratio:,.1f} |", flush=True)


if __name__ == "__main__":
    main()
