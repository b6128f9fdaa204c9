"""Compare a distillation step with sentence-transformers, and the speed of students with that of their teacher, each in one run.

    PYTHONPATH=. python benchmarks/distillation.py --text corpus.txt --teacher all-MiniLM-L6-v2 --student mini-2 --layers 1,2,3

Every contender has its own process and they take turns. A step is that of a run: sentences are tokenised (ours: read from the
token cache), padded, encoded and compared with the teacher's stored vectors, and AdamW updates the weights with clipping.
sentence-transformers draws random batches. Ours sorts by length within groups, and is also timed without sorting. Printed: median
milliseconds of a step, and the median over the rounds of (time of EmbedDistillLoss / ours); then sentences/s of encoders.
"""

import argparse
import functools
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.interleaved import interleave

STEPS = ("EmbedDistillLoss", "MSELoss", "ours", "ours, random batches")
ENCODED = 256  # sentences that an encoder encodes in a turn


def read_sentences(options: argparse.Namespace) -> list[str]:
    """Return the sentences of the text that are used."""
    from jax_sentemb.data.corpus_files import open_corpus

    sentences = open_corpus(str(options.text))
    return [sentences[row] for row in range(min(options.sentences, len(sentences)))]


def student(options: argparse.Namespace, folder: Path) -> str:
    """Return the directory of the student for sentence-transformers: its weights, or layers of them."""
    from sentence_transformers import SentenceTransformer
    from torch.nn import ModuleList

    model = SentenceTransformer(str(options.student), device="cpu")
    if options.layers:
        transformer = model[0].auto_model
        transformer.encoder.layer = ModuleList(
            transformer.encoder.layer[number - 1] for number in map(int, options.layers.split(","))
        )
        transformer.config.num_hidden_layers = len(transformer.encoder.layer)
    model.save(str(folder))
    return str(folder)


def torch_step(options: argparse.Namespace, loss_name: str) -> Callable[[], float]:
    """Return a step of sentence-transformers: its tokeniser, its loss, PyTorch's fused AdamW."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses

    torch.set_num_threads(os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as folder:
        model = SentenceTransformer(student(options, Path(folder)), device="cpu")
    model.max_seq_length = options.max_seq_length
    sentences, targets = read_sentences(options), torch.tensor(np.load(options.vectors))
    width = targets.shape[1]
    if loss_name == "EmbedDistillLoss":
        loss_of = losses.EmbedDistillLoss(model, projection_dim=width)
    else:
        loss_of = losses.MSELoss(model, projection_dim=width)
    loss_of.train()
    parameters = [parameter for parameter in loss_of.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=2e-4, weight_decay=0.0, fused=True)
    rows = iter(
        np.random.default_rng(0).permutation(len(sentences) // options.batch * options.batch).reshape(-1, options.batch).tolist()
        * 1000
    )

    def step() -> float:
        chosen = next(rows)
        features = model.preprocess([sentences[row] for row in chosen])
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bfloat16"):
            loss = loss_of([features], targets[chosen])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.item()

    return step


def our_step(options: argparse.Namespace, grouping: int) -> Callable[[], float]:
    """Return a step of a run of the recipe, with its batches."""
    from jax_sentemb.system.allocator import keep_freed_memory

    keep_freed_memory()  # as a run does, before JAX has threads
    import jax

    from jax_sentemb.data.batches import FIRST
    from jax_sentemb.parallel import make_mesh, shard_batch
    from jax_sentemb.recipes import override, read_config
    from jax_sentemb.training.optimizer import make_optimizer
    from jax_sentemb.training.setup import prepare, run_encoder
    from jax_sentemb.training.step import create_state, make_step

    config = read_config("distill_encoder")
    settings = {
        "data.files": str(options.lines), "data.validation": 0, "data.length_grouping": grouping, "data.batch_size": options.batch,
        "data.max_seq_length": options.max_seq_length, "method.teacher": str(options.vectors),
        "encoder.weights": str(options.student), "encoder.layers": options.layers, "encoder.dropout": 0.1,
        "train.precision": options.precision,
    }  # fmt: skip
    for name, value in settings.items():
        override(config, name, value)
    with tempfile.TemporaryDirectory() as folder:
        setup = prepare(config, Path(folder))
    mesh = make_mesh(options.batch, jax.devices()[:1])
    encoder, optimizer = run_encoder(config, setup.encoder_config, mesh), make_optimizer(config.optimizer, 10_000)
    state = create_state(config.method, encoder, optimizer, setup.loaded, 0, mesh)
    compiled, number = make_step(config.method, encoder, optimizer, mesh), FIRST  # the batches before have fewer widths
    for step_number in range(min(setup.batches.steps_per_epoch, options.warm_up)):  # every width is compiled before the turns
        state, _ = compiled(state, shard_batch(setup.batches.parts(step_number), mesh))

    def step() -> float:
        nonlocal state, number
        state, metrics = compiled(state, shard_batch(setup.batches.parts(number), mesh))
        number += 1
        return float(metrics["loss"])

    return step


def encoder(options: argparse.Namespace, name: str) -> Callable[[], object]:
    """Return a function that encodes ENCODED sentences by "teacher", "student" or "teacher, sentence-transformers"."""
    sentences = read_sentences(options)[:ENCODED]
    if name.endswith("sentence-transformers"):
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(os.cpu_count() or 1)
        model = SentenceTransformer(str(options.teacher), device="cpu")
        return lambda: model.encode(sentences, show_progress_bar=False)
    from jax_sentemb import SentenceEncoder

    sentence_encoder = SentenceEncoder(options.teacher if name == "teacher" else options.exported)
    return lambda: sentence_encoder.encode(sentences)


def make(options: argparse.Namespace, name: str) -> Callable[[], object]:
    """Return the step of a contender."""
    if name in ("EmbedDistillLoss", "MSELoss"):
        return torch_step(options, name)
    if name.startswith("ours"):
        return our_step(options, 1 if "random" in name else 32)
    return encoder(options, name)


def encode_teacher(options: argparse.Namespace, folder: Path) -> None:
    """Write the sentences as a text, and the teacher's vectors, which all contenders read."""
    from jax_sentemb import SentenceEncoder

    sentences = list(dict.fromkeys(" ".join(sentence.split()) for sentence in read_sentences(options)))
    options.lines, options.vectors, options.exported = folder / "text.txt", folder / "vectors.npy", folder / "student"
    options.lines.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
    options.text = options.lines
    np.save(options.vectors, SentenceEncoder(options.teacher).encode(sentences, normalize_embeddings=True))
    student(options, options.exported)


def main() -> None:
    """Time the steps, then the encoders, and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--teacher", required=True, help="a directory of sentence-transformers")
    parser.add_argument("--student", required=True, help="a BERT or sentence-transformers directory, or the teacher")
    parser.add_argument("--layers", default="", help="numbers from 1 of the student's layers, separated by commas")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--sentences", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--max-seq-length", type=int, default=64)
    parser.add_argument("--warm-up", type=int, default=64, help="steps of ours before the turns, so that all widths are compiled")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8, help="steps of a turn")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        encode_teacher(options, Path(folder))
        times = interleave(functools.partial(make, options), STEPS, options.rounds, options.steps)
        print(f"| {options.precision}, batches of {options.batch} | ms/step | min | EmbedDistillLoss / this |\n|---|--:|--:|--:|")
        for name, seconds in times.items():
            ratio = statistics.median(
                base_time / own_time for base_time, own_time in zip(times["EmbedDistillLoss"], seconds, strict=True)
            )
            print(f"| {name} | {statistics.median(seconds) * 1e3:,.0f} | {min(seconds) * 1e3:,.0f} | {ratio:.2f} |", flush=True)
        encoders = ("teacher", "student", "teacher, sentence-transformers")
        times = interleave(functools.partial(make, options), encoders, options.rounds, 1)
        print(f"\n| encoding {ENCODED} sentences | sentences/s | this / teacher |\n|---|--:|--:|")
        for name, seconds in times.items():
            ratio = statistics.median(base_time / own_time for base_time, own_time in zip(times["teacher"], seconds, strict=True))
            print(f"| {name} | {ENCODED / statistics.median(seconds):,.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
