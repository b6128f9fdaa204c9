"""Run `jax-sentemb distill --model DIR --corpus corpus.txt --output DIR`: make a static table of token vectors of an encoder."""

import argparse

from jax_sentemb.cli.encode import add_text_options, corpus_sentences, naming_model, note
from jax_sentemb.cli.program import EXIT_CODES, Parser, count, finite, leave_out, positive, start
from jax_sentemb.errors import ConfigError, plain
from jax_sentemb.files import user_path
from jax_sentemb.public_text import shell_command
from jax_sentemb.system.terminal import Progress

FEW = 2_000  # sentences; a table from so many scored less than one from more text of other kinds
EPILOG = f"""\
A static table or a small encoder? A table runs no network. It is hundreds of times as fast as its encoder, but ignores the order of
words. A small encoder that learns the encoder's vectors is a few times as fast and loses less:
  jax-sentemb train --config distill_encoder --config.data.files=corpus.txt --config.method.teacher=all-MiniLM-L6-v2 \\
      --config.encoder.weights=all-MiniLM-L6-v2 --config.encoder.layers=1,3,5

Every piece of the encoder's vocabulary becomes a vector: its embedding, whitened to --width numbers and weighted by its rarity in
the corpus. --epochs trains these vectors on the encoder's embeddings of the corpus. This gives better vectors, but the corpus has
to be encoded. --words adds dimensions in which sentences are close if they share rare words. That helps if the encoder was trained
without a teacher. search, encode, evaluate and sentence-transformers (StaticEmbedding) read the output like any other model.

examples:
  jax-sentemb distill --model all-MiniLM-L6-v2 --corpus corpus.txt --output models/static
  jax-sentemb distill --model runs/mine --corpus corpus.txt --words 1024 --output models/static
  jax-sentemb distill --model all-MiniLM-L6-v2 --corpus corpus.txt --epochs 3 --output models/static
  jax-sentemb encode --model all-MiniLM-L6-v2 --input corpus.txt --output vectors
  jax-sentemb distill --model all-MiniLM-L6-v2 --corpus corpus.txt --vectors vectors --epochs 3 --output models/static

{EXIT_CODES}"""


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return the exit code."""
    options = parser().parse_args(argv[1:])
    if options.vectors and not options.epochs:
        raise ConfigError(f"--vectors {options.vectors}: only training reads vectors; give --epochs as well")
    if not options.epochs:
        leave_out(options, ("learning_rate", "seed"), "only training has it; give --epochs")
    sentences = corpus_sentences(options)

    from jax_sentemb.data.corpus_files import text_options
    from jax_sentemb.distillation.distill import Regression, Settings, distill
    from jax_sentemb.inference.load import load
    from jax_sentemb.parallel import use_compilation_cache
    from jax_sentemb.retrieval.vector_store import Vectors

    use_compilation_cache()
    with naming_model():
        model = load(options.model, batch_size=options.batch_size)
    vectors = Vectors(options.vectors) if options.vectors else None
    regression = Regression(options.epochs, options.batch_size, options.learning_rate, options.seed) if options.epochs else None
    bars: dict[str, Progress] = {}

    def progress(task: str, more: int, total: int) -> None:
        (bars.get(task) or bars.setdefault(task, Progress(task, total, "sentences"))).update(more)

    settings = Settings(options.width, options.sif, options.words, regression)
    table = distill(model, options.model, sentences, options.output, settings, vectors, progress)
    for progress_bar in bars.values():
        progress_bar.close()
    rows, width = table.vectors.shape
    megabytes = table.vectors.nbytes / 1e6
    print(plain(f"{options.output}: {rows:,} pieces of {width} dimensions, {megabytes:.1f} MB, from {len(sentences):,} sentences"))
    if len(sentences) <= FEW:
        note(f"{len(sentences):,} sentences say little about how rare a word is; add other text (docs/methods/distillation.md)")
    corpus = "corpus.txt" if options.corpus == "-" else options.corpus
    command = ["jax-sentemb", "search", "--model", str(options.output), "--corpus", corpus]
    command += [*text_options(options.column, options.join), "--query", "a text to look for"]
    print(plain(f"next    {shell_command(command)}"))
    return 0


def _unsigned(text: str) -> float:
    value = finite(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 0")
    return value


def parser() -> Parser:
    """Return the parser of the options."""
    parser = Parser(
        prog="jax-sentemb distill",
        description="Make a static table of token vectors from an encoder. Encoding sentences with it runs no network.",
        epilog=EPILOG,
    )
    parser.add_argument("--model", required=True, help="a work directory, an export, or a sentence-transformers or BERT directory")
    parser.add_argument("--corpus", required=True, help="your text: .txt, .jsonl, .csv, .tsv, also .gz and .xz; .parquet; globs")
    add_text_options(parser)
    parser.add_argument("--output", type=user_path, required=True, help="directory to write")
    parser.add_argument("--width", type=positive, default=256, help="dimensions of a vector (default: 256)")
    parser.add_argument(
        "--sif",
        type=_unsigned,
        default=1e-3,
        help="a in the weight a / (a + p) of a piece with the share p of the corpus; 0: no weights (default: 0.001)",
    )
    parser.add_argument(
        "--words",
        type=count,
        default=0,
        help="dimensions to add, in which sentences are close if they share rare words (default: 0)",
    )
    parser.add_argument("--epochs", type=count, default=0, help="passes of training over the corpus (default: 0, no training)")
    parser.add_argument(
        "--vectors", type=user_path, help="output of `encode` for this corpus and model, so that it is not encoded again"
    )
    parser.add_argument("--batch-size", type=positive, default=256, help="sentences in a training step (default: 256)")
    parser.add_argument(
        "--learning-rate", type=_unsigned, default=5e-3, help="initial rate of Adam, which falls to 0 (default: 0.005)"
    )
    parser.add_argument("--seed", type=count, default=0, help="seed of the random order of the sentences (default: 0)")
    return parser


if __name__ == "__main__":
    start(main)
