"""Run `jax-sentemb postprocess --model DIR --corpus corpus.txt --remove 1 --output DIR`: add a linear map after the pooling."""

from jax_sentemb.cli.encode import add_text_options, corpus_sentences, naming_model
from jax_sentemb.cli.program import EXIT_CODES, Parser, positive, start
from jax_sentemb.data.corpus_files import corpus_name
from jax_sentemb.errors import ConfigError, plain
from jax_sentemb.files import print_warning, user_path
from jax_sentemb.provenance import Source
from jax_sentemb.public_text import model_name

EPILOG = f"""\
The map is fitted to the embeddings of your text and is exported as a dense layer, which sentence-transformers reads. Whether it
helps depends on model and text, so score both models on pairs that you trust (jax-sentemb evaluate).

examples:
  jax-sentemb postprocess --model bert-base-uncased --corpus corpus.txt --remove 1 --output models/centred
  jax-sentemb postprocess --model runs/micse --corpus corpus.txt --whiten --width 256 --output models/whitened

{EXIT_CODES}"""


def parser() -> Parser:
    """Return the parser of the options."""
    parser = Parser(
        prog="jax-sentemb postprocess",
        description="Remove the strongest components of a model's embeddings of your text, or whiten them.",
        epilog=EPILOG,
    )
    parser.add_argument("--model", required=True, help="a work directory, an export, or a sentence-transformers or BERT directory")
    parser.add_argument("--corpus", required=True, help="your text: .txt, .jsonl, .csv, .tsv, also .gz and .xz; .parquet; globs")
    add_text_options(parser)
    parser.add_argument("--output", type=user_path, required=True, help="directory to write")
    parser.add_argument("--remove", type=positive, help="subtract the mean and this number of the strongest components")
    parser.add_argument("--whiten", action="store_true", help="map to mean 0 and covariance 1")
    parser.add_argument("--width", type=positive, default=0, help="with --whiten: keep this number of the strongest components")
    return parser


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return the exit code."""
    options = parser().parse_args(argv[1:])
    if bool(options.remove) == options.whiten or (options.width and not options.whiten):
        raise ConfigError("give --remove N, or --whiten with or without --width N")
    sentences = corpus_sentences(options)

    from jax_sentemb.inference.export import export_loaded
    from jax_sentemb.inference.load import load
    from jax_sentemb.inference.postprocess import SAMPLE, before_length, whitening, with_layer, without_components
    from jax_sentemb.parallel import use_compilation_cache
    from jax_sentemb.system.terminal import Progress

    use_compilation_cache()
    with naming_model():
        model = load(options.model)
    sample = [sentences[row] for row in range(0, len(sentences), -(-len(sentences) // SAMPLE))]
    with Progress("encode", len(set(sample)), "sentences") as progress:
        vectors = before_length(model, sample, progress.update)
    layer = without_components(vectors, options.remove) if options.remove else whitening(vectors, options.width)
    changed = with_layer(model, layer)
    if options.whiten:  # the numbers to which the start is cut are others now
        changed = changed._replace(settings=changed.settings._replace(truncate_dim=None))
    sources = {
        "source": Source(model_name(options.model), model.fingerprint()),
        "corpus": Source(corpus_name(options.corpus), sentences.fingerprint),
        **{name: getattr(options, name) for name in ("remove", "whiten", "width")},
    }
    export_loaded(options.output, changed, model.embedder.max_seq_length, options.model, sources)
    inputs = len(layer["kernel"])
    if options.whiten and len(sample) <= inputs:
        print_warning(
            f"{len(sample)} sentences are too few for {inputs} dimensions, so some dimensions are lost: give many more sentences, "
            "or --remove 1"
        )
    print(plain(f"{options.output}: {inputs} dimensions become {changed.width}, fitted to {len(sample):,} sentences"))
    return 0


if __name__ == "__main__":
    start(main)
