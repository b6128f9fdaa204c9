"""Compare `SentenceEncoder.encode` with `SentenceTransformer.encode` and a plain PyTorch loop: sentences/s with the same weights.

    PYTHONPATH=. python benchmarks/encode.py corpus.txt --model path/to/all-MiniLM-L6-v2 [--sentences 10000] [--rounds 5]
    PYTHONPATH=. python benchmarks/encode.py corpus.txt --model path/to/all-MiniLM-L6-v2 --random 4x256

The plain loop is transformers' BertModel with SDPA attention on sentences sorted by length, padded to the longest of a batch.
`--random LAYERSxWIDTH` is an encoder of that size with random weights and the tokenizer of --model. Contenders take turns, each at
every batch size. Printed: median sentences/s, and the medians over the rounds of (their time / ours at our fastest batch size) at
the same precision: above 1 we are faster. `--batch-sizes 16,64` shows PyTorch at the size that suits it.
"""

import argparse
import contextlib
import functools
import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.interleaved import interleave

CONTENDERS = ("torch", "sentence-transformers", "jax_sentemb")


def write_random(directory, shape, tokenizer_of):
    """Write a directory with an encoder of random weights that all contenders can load."""
    import jax
    import numpy as np

    from jax_sentemb.data.tokenizer import Tokenizer
    from jax_sentemb.formats.sentence_transformers import SentenceModel, write_export
    from jax_sentemb.models.bert import Bert, BertConfig
    from jax_sentemb.types import Rows

    layers, width = map(int, shape.split("x"))
    tokenizer = Tokenizer.load(tokenizer_of)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=width, num_hidden_layers=layers, num_attention_heads=max(width // 64, 1),
        intermediate_size=4 * width,
    )  # fmt: skip
    rows = Rows(np.ones((1, 4), np.int32), np.ones((1, 4), bool))
    params = jax.jit(Bert(config).init)(jax.random.key(0), rows)["params"]
    write_export(
        directory, SentenceModel(config, {"encoder": params}, tokenizer, pooling="mean", max_seq_length=256, normalize=True)
    )


def torch_stepper(model, sentences, batch_size, dtype):
    import torch
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(os.cpu_count())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(model)
    bert = AutoModel.from_pretrained(model, attn_implementation="sdpa", dtype=getattr(torch, dtype)).to(device).eval()

    def step():
        ids = tokenizer(sentences, truncation=True, max_length=256)["input_ids"]
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        embeddings = torch.zeros(len(ids), bert.config.hidden_size)
        with torch.inference_mode():
            for start in range(0, len(order), batch_size):
                chosen = order[start : start + batch_size]
                batch = tokenizer.pad({"input_ids": [ids[row] for row in chosen]}, return_tensors="pt").to(device)
                states = bert(**batch).last_hidden_state.float()
                mask = batch["attention_mask"][..., None]
                pooled = (states * mask).sum(1) / mask.sum(1)
                embeddings[chosen] = torch.nn.functional.normalize(pooled, dim=-1).cpu()
        return embeddings.numpy()

    return step


def transformer_stepper(model, sentences, batch_size, dtype):
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(os.cpu_count())
    encoder = SentenceTransformer(model, model_kwargs={"dtype": getattr(torch, dtype)})
    return lambda: encoder.encode(sentences, batch_size=batch_size, show_progress_bar=False)


def our_stepper(model, sentences, batch_size, dtype):
    from jax_sentemb import SentenceEncoder

    encoder = SentenceEncoder.load(model, dtype=dtype)
    return lambda: encoder.encode(sentences, batch_size=batch_size)


def make(model, sentences, name):
    contender, dtype, batch_size = name.split()
    stepper = dict(zip(CONTENDERS, (torch_stepper, transformer_stepper, our_stepper), strict=True))[contender]
    return stepper(model, sentences, int(batch_size), dtype)


def print_padding(model, sentences, batch_size):
    """Print the number of computed tokens for each real token, and the time of the tokenisation."""
    from jax_sentemb.data.batches import bucket
    from jax_sentemb.data.tokenizer import Tokenizer
    from jax_sentemb.inference.embedder import BUCKETS, FINE_BUCKETS

    tokenizer = Tokenizer.load(model)
    start = time.perf_counter()
    ids, _ = tokenizer.encode(sentences, 512)
    print(f"tokenised in {time.perf_counter() - start:.2f} s; tokens computed for each real one:")
    lengths = sorted((len(row) for row in ids), reverse=True)
    for name, widths in (("BUCKETS", BUCKETS), ("with FINE_BUCKETS", (*BUCKETS, *FINE_BUCKETS))):
        computed = sum(batch_size * bucket(lengths[first], widths) for first in range(0, len(lengths), batch_size))
        print(f"{computed / sum(lengths):.2f} {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", help="a text file, one sentence per line")
    parser.add_argument("--model", required=True)
    parser.add_argument("--random", metavar="LAYERSxWIDTH")
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--batch-sizes", default="64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precisions", default="float32,bfloat16")
    parser.add_argument("--padding", action="store_true", help="only count the computed tokens")
    options = parser.parse_args()
    from jax_sentemb.data.corpus_files import open_corpus

    corpus = open_corpus(options.corpus)
    sentences = [corpus[row] for row in range(min(options.sentences, len(corpus)))]
    if options.padding:
        return print_padding(options.model, sentences, int(options.batch_sizes))
    sizes = options.batch_sizes.split(",")
    names = [f"{contender} {dtype} {size}" for dtype in options.precisions.split(",") for contender in CONTENDERS for size in sizes]
    with contextlib.ExitStack() as stack:
        model = options.model
        if options.random:
            model = str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model")
            write_random(model, options.random, options.model)
        times = interleave(functools.partial(make, model, sentences), names, options.rounds, 1)
    shape = options.random or Path(options.model).name
    print(f"{shape}, {len(sentences)} sentences, {options.rounds} rounds")
    print(f"{'batch size':>35}{'sentences/s':>12}{'time / ours':>13}{'min':>7}{'max':>7}")
    for name, seconds in times.items():
        dtype = name.split()[1]
        our_seconds = min((times[f"{CONTENDERS[-1]} {dtype} {size}"] for size in sizes), key=statistics.median)
        ratios = [their_time / our_time for their_time, our_time in zip(seconds, our_seconds, strict=True)]
        rate = len(sentences) / statistics.median(seconds)
        print(f"{name:<35}{rate:>12,.0f}{statistics.median(ratios):>13.2f}{min(ratios):>7.2f}{max(ratios):>7.2f}")


if __name__ == "__main__":
    main()
