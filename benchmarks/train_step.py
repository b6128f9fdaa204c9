"""Compare a training step with a plain PyTorch loop: same model, sentences, lengths and dropout, one run.

    PYTHONPATH=. python benchmarks/train_step.py [--shape small|minilm|base] [--methods simcse,is_bert] [--rounds 10]
A packed batch of masked-LM training: --methods mlm --lengths 64-64 --mean 1000
SimCSE's own model, in addition: --methods simcse --simcse CHECKOUT of github.com/princeton-nlp/SimCSE
On a GPU: --shape base --sentences 512 --lengths 32-128 --mean 70 --batches 4 --fused

Every contender has its own process and they take turns, so that a drift of the machine's speed affects all of them. Printed:
median milliseconds of a step, sentences/s, the median over the rounds of (PyTorch's time / ours) at the same precision (above 1 we
are faster), and the model's floating-point operations a second: 6 for each weight of a product and real token, padding not counted,
with attention. "of a product" compares them with a product of two large matrices on the same device, "of the sheet" with the data
sheet of a known GPU.
"""

import argparse
import functools
import os
import statistics
import time

from benchmarks.interleaved import interleave

SHAPES = {  # layers, hidden, heads, intermediate; of a recurrent view: width of word vectors, hidden
    "small": (4, 256, 4, 1024, 300, 256),
    "minilm": (6, 384, 12, 1536, 300, 512),
    "base": (12, 768, 12, 3072, 300, 1024),
}
VOCABULARY = 30522
METHODS = ("simcse", "simcse_ami", "micse", "is_bert", "multi_view", "mlm")
PEERS = {
    "simcse": "simcse", "simcse_ami": "simcse", "micse": "simcse", "is_bert": "is_bert", "multi_view": "multi_view", "mlm": "mlm",
}  # fmt: skip
SHEET = {  # dense bfloat16 (V100, T4: float16) TFLOP/s of an NVIDIA GPU, as its data sheet has it
    "H200": 989, "H100": 989, "A100": 312, "B200": 2250, "L40S": 362, "L4": 121, "A10": 125, "V100": 125, "T4": 65,
}  # fmt: skip


def make_batches(options):
    """Return token ids and masks of `options.batches` batches, made as in a run: sorted by length, as wide as a bucket."""
    import numpy as np

    from jax_sentemb.data.batches import Batches
    from jax_sentemb.data.tokens import Tokens

    shortest, longest = options.lengths
    random = np.random.default_rng(0)
    count = options.batches * options.sentences
    lengths = np.clip(random.gamma(6.0, options.mean / 6, count).astype(int), shortest, longest)
    lengths[:: options.sentences] = longest  # one batch is as wide as the limit
    starts = np.cumsum(lengths) - lengths
    ids = random.integers(1000, VOCABULARY, lengths.sum()).astype(np.int32)
    rows = {"line": np.arange(count), "lengths": lengths, "starts": starts}
    batches = Batches(Tokens({"ids": ids, **rows}, {}, "", 0, longest), options.sentences, 0)
    return [batches.at(step) for step in range(options.batches)]


def operations(options, method, batches):
    """Return the mean number of floating-point operations of a step: three forward passes of every view, real tokens only."""
    layers, hidden, _, inner, *_ = SHAPES[options.shape]
    if method in ("multi_view", "mlm"):
        return None
    of_batches = []
    for batch in batches:
        lengths = batch.mask.sum(-1).astype(float)
        products = 2 * (4 * hidden**2 + 2 * hidden * inner) * lengths.sum()
        of_batches.append(layers * (products + 4 * hidden * (lengths**2).sum()))
    views = {"is_bert": 3.0, "micse": 6.0 + 1.0}.get(method, 6.0)  # the momentum view is a forward pass of one of two views
    return views * sum(of_batches) / len(of_batches)


def torch_config(options):
    from transformers import BertConfig

    layers, hidden, heads, inner, *_ = SHAPES[options.shape]
    return BertConfig(
        vocab_size=VOCABULARY, num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads,
        intermediate_size=inner, attn_implementation="sdpa",
    )  # fmt: skip


def torch_encoder(options):
    import torch
    from transformers import BertModel

    config, device = torch_config(options), "cuda" if torch.cuda.is_available() else "cpu"
    return BertModel(config, add_pooling_layer=False).to(device).train(), config.hidden_size, device


def torch_simcse(options, batches):
    import torch

    model, hidden, device = torch_encoder(options)
    head = torch.nn.Sequential(torch.nn.Linear(hidden, hidden), torch.nn.Tanh()).to(device)
    views = [tuple(torch.tensor(side, device=device).long().repeat_interleave(2, 0) for side in batch.rows) for batch in batches]
    labels = torch.arange(options.sentences, device=device)

    def loss_of(number, cast):
        ids, mask = views[number]
        with cast():
            embedding = head(model(ids, attention_mask=mask).last_hidden_state[:, 0])
        unit = torch.nn.functional.normalize(embedding.float(), dim=-1)
        return torch.nn.functional.cross_entropy(unit[0::2] @ unit[1::2].T / 0.05, labels)

    return [model, head], loss_of


def torch_published(options, batches):
    """Return BertForCL of simcse/models.py in a checkout of SimCSE, called with two copies of each sentence as its trainer does."""
    import importlib.util
    from types import SimpleNamespace

    import torch

    spec = importlib.util.spec_from_file_location("simcse_models", f"{options.simcse}/simcse/models.py")
    published = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(published)
    published.BertForCL.all_tied_weights_keys = {}  # transformers 5 sets it in a method that the model of 2021 does not call
    settings = SimpleNamespace(pooler_type="cls", temp=0.05, do_mlm=False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = published.BertForCL(torch_config(options), model_args=settings).to(device).train()
    views = [tuple(torch.tensor(side, device=device).long()[:, None].repeat(1, 2, 1) for side in batch.rows) for batch in batches]

    def loss_of(number, cast):
        ids, mask = views[number]
        with cast():
            return model(ids, attention_mask=mask, return_dict=True).loss

    return [model], loss_of


def torch_is_bert(options, batches):
    import math

    import torch

    model, hidden, device = torch_encoder(options)
    windows = torch.nn.ModuleList([torch.nn.Conv1d(hidden, 256, size, padding=size // 2) for size in (1, 3, 5)]).to(device)
    rows = [tuple(torch.tensor(side, device=device).long() for side in batch.rows) for batch in batches]
    is_own = torch.eye(options.sentences, device=device)[:, None]

    def loss_of(number, cast):
        ids, mask = rows[number]
        real = mask[..., None].float()
        with cast():
            states = model(ids, attention_mask=mask).last_hidden_state * real
            local = torch.cat([window(states.transpose(1, 2)) for window in windows], 1).transpose(1, 2).float()
        sentence = (local * real).sum(1) / real.sum(1)
        scores = torch.einsum("bte,se->bts", local, sentence)
        positive = ((math.log(2.0) - torch.nn.functional.softplus(-scores)) * real * is_own).sum() / real.sum()
        negative = ((torch.nn.functional.softplus(scores) - math.log(2.0)) * real * (1 - is_own)).sum()
        return negative / (real.sum() * (options.sentences - 1)) - positive

    return [model, windows], loss_of


def torch_mlm(options, batches):
    """Return BertForMaskedLM as Hugging Face's examples train it: labels of -100 where nothing is predicted, logits everywhere."""
    import torch
    from transformers import BertForMaskedLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = BertForMaskedLM(torch_config(options)).to(device).train()
    rows = [tuple(torch.tensor(side, device=device).long() for side in batch.rows) for batch in batches]

    def loss_of(number, cast):
        ids, mask = rows[number]
        selected = (torch.rand(ids.shape, device=device) < 0.15) & (mask > 0)
        masked = torch.where(selected & (torch.rand(ids.shape, device=device) < 0.8), 103, ids)
        with cast():
            return model(masked, attention_mask=mask, labels=torch.where(selected, ids, -100)).loss

    return [model], loss_of


def torch_multi_view(options, batches):
    import torch

    *_, inputs, hidden = SHAPES[options.shape]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    vectors = torch.randn(VOCABULARY, inputs, device=device) * 0.3
    gru = torch.nn.GRU(inputs, hidden, batch_first=True, bidirectional=True).to(device)
    linear = torch.nn.Linear(inputs, 2 * hidden, bias=False).to(device)
    temperature = torch.nn.Parameter(torch.zeros((), device=device))
    rows = [(torch.tensor(batch.tokens, device=device).long(), torch.tensor(batch.mask, device=device)) for batch in batches]
    positions = torch.arange(options.sentences, device=device)
    near = (positions[:, None] - positions).abs() <= 3

    def without_top(view):
        with torch.no_grad():
            weights = torch.full((len(view),), len(view) ** -0.5, device=device)
            for _ in range(5):
                weights = torch.nn.functional.normalize(view @ (view.T @ weights), dim=0)
            top = torch.nn.functional.normalize(view.T @ weights, dim=0)
        return torch.nn.functional.normalize(view - torch.outer(view @ top, top), dim=-1)

    def loss_of(number, cast):
        ids, mask = rows[number]
        words = vectors[ids] * mask[..., None]
        with cast():
            packed = torch.nn.utils.rnn.pack_padded_sequence(words, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
            last = gru(packed)[1]
            second = linear(words.sum(1) / mask.sum(1, keepdim=True))
        first, second = (without_top(view.float()) for view in (torch.cat([last[0], last[1]], 1), second))
        agreement = first @ second.T
        scores = torch.log_softmax((agreement + agreement.T) * torch.exp(-temperature), dim=1)
        return -scores[near].mean()

    return [gru, linear], loss_of


def torch_stepper(options, method, precision):
    import torch

    torch.set_num_threads(os.cpu_count())
    make = {
        "simcse": torch_simcse, "published": torch_published, "is_bert": torch_is_bert, "multi_view": torch_multi_view,
        "mlm": torch_mlm,
    }[method]  # fmt: skip
    modules, loss_of = make(options, make_batches(options))
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-5, weight_decay=0.0, fused=True)
    cast = functools.partial(
        torch.autocast, parameters[0].device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16"
    )  # fmt: skip
    number = 0

    def step():
        nonlocal number
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(number % options.batches, cast)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        number += 1
        return loss.item()

    return step


def jax_stepper(options, name, precision):
    from jax_sentemb.system.allocator import keep_freed_memory

    keep_freed_memory()  # as a run does, before JAX has threads
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jax_sentemb.config import Optimizer
    from jax_sentemb.methods.attention_mi import AttentionMI
    from jax_sentemb.methods.is_bert import ISBERT
    from jax_sentemb.methods.masked_lm import MaskedLM
    from jax_sentemb.methods.multi_view import MultiView
    from jax_sentemb.methods.simcse import Momentum, SimCSE
    from jax_sentemb.models.bert import Bert, BertConfig
    from jax_sentemb.models.word_vectors import FROZEN, WordsConfig, WordVectors
    from jax_sentemb.parallel import make_mesh, shard_batch
    from jax_sentemb.training.optimizer import make_optimizer
    from jax_sentemb.training.step import create_state, make_step

    layers, hidden, heads, inner, inputs, recurrent = SHAPES[options.shape]
    dtype = jnp.dtype(precision)
    if name == "multi_view":
        encoder, method = WordVectors(WordsConfig(VOCABULARY, inputs), dtype), MultiView(hidden=recurrent)
        vectors = np.random.default_rng(0).normal(size=(VOCABULARY, inputs)).astype(np.float32) * 0.3
        loaded = {FROZEN: {"vectors": vectors, "counts": np.ones(VOCABULARY, np.float32)}}
    else:
        config = BertConfig(VOCABULARY, hidden, layers, heads, inner)
        fused = "cudnn" if options.fused and precision == "bfloat16" else ""
        encoder, loaded = Bert(config, dtype, 0.1, fused_attention=fused), {}
        ami = AttentionMI() if name in ("simcse_ami", "micse") else None
        simcse = SimCSE(ami=ami, momentum=Momentum() if name == "micse" else None)
        method = {"is_bert": ISBERT(), "mlm": MaskedLM()}.get(name, simcse)
    mesh = make_mesh(options.sentences, jax.devices()[:1])
    optimizer = make_optimizer(Optimizer(), 10_000)
    state = create_state(method, encoder, optimizer, loaded, 0, mesh)
    compiled = make_step(method, encoder, optimizer, mesh)
    batches, number = [shard_batch(batch, mesh) for batch in make_batches(options)], 0

    def step():
        nonlocal state, number
        state, metrics = compiled(state, batches[number % options.batches])
        number += 1
        return float(metrics["loss"])

    return step


def product(precision, size):
    """Return (floating-point operations a second of one large product, the peak in the device's data sheet or None)."""
    import jax
    import jax.numpy as jnp

    dtype = jnp.dtype(precision)
    first, second = (jax.random.normal(jax.random.key(number), (size, size), dtype) for number in (0, 1))
    exact = jax.lax.Precision.HIGHEST if precision == "float32" else None
    multiply = jax.jit(lambda a, b: jnp.matmul(a, b, precision=exact, preferred_element_type=jnp.float32))
    multiply(first, second).block_until_ready()
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        multiply(first, second).block_until_ready()
        seconds.append(time.perf_counter() - start)
    device_kind = jax.devices()[0].device_kind
    sheet = next((figure for name, figure in SHEET.items() if name in device_kind), None) if precision == "bfloat16" else None
    return 2 * size**3 / min(seconds), sheet and sheet * 1e12


def make(options, name):
    library, method, precision = name.split()
    return (torch_stepper if library == "PyTorch" else jax_stepper)(options, method, precision)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--precisions", default="float32,bfloat16")
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--lengths", default="5-32", help="shortest and longest sentence in tokens")
    parser.add_argument(
        "--mean", type=float, default=28.0, help="their mean before they are cut there (28: sentences of Wikipedia)"
    )
    parser.add_argument("--batches", type=int, default=1, help="different batches that steps go through in turn")
    parser.add_argument("--fused", action="store_true", help="attention by cuDNN in bfloat16")
    parser.add_argument("--simcse", help="a checkout of SimCSE's repository, whose model (published) is then timed as well")
    parser.add_argument("--alone", action="store_true", help="no turns: each contender while no other process waits")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=0, help="steps a turn (default: --batches, at least 2)")
    options = parser.parse_args()
    options.lengths = tuple(map(int, options.lengths.split("-")))
    steps = options.steps or max(options.batches, 2)
    methods, precisions = options.methods.split(","), options.precisions.split(",")
    peers = list(dict.fromkeys(PEERS[method] for method in methods)) + (["published"] if options.simcse else [])
    batches = make_batches(options)
    widths = ", ".join(str(batch.tokens.shape[-1]) for batch in batches)
    padding = 1 - sum(batch.mask.sum() for batch in batches) / sum(batch.mask.size for batch in batches)
    print(f"{options.shape} {SHAPES[options.shape]}, {options.sentences} sentences, widths {widths}, padding {padding:.1%}, {options.rounds} rounds")  # fmt: skip  # noqa: E501
    for precision in precisions:  # so that no more contenders than needed are in memory
        names = [f"PyTorch {peer} {precision}" for peer in peers] + [f"ours {method} {precision}" for method in methods]
        together = [[name] for name in names] if options.alone else [names]
        times = {}
        for group in together:
            times |= interleave(functools.partial(make, options), group, options.rounds, steps)
        peak, sheet = product(precision, 2048 if os.cpu_count() < 16 else 8192)
        print(f"\n| {precision} | ms/step | min | sentences/s | PyTorch / ours | published / ours | ours / our SimCSE | GFLOP/s | of a product | of the sheet |\n|---|" + "--:|" * 9)  # fmt: skip  # noqa: E501
        for name, seconds in times.items():
            library, method, _ = name.split()
            cells = [name.removesuffix(f" {precision}"), f"{statistics.median(seconds) * 1e3:,.1f}", f"{min(seconds) * 1e3:,.1f}"]
            cells.append(f"{options.sentences / statistics.median(seconds):,.0f}")
            simcse, published = times.get(f"ours simcse {precision}"), times.get(f"PyTorch published {precision}")
            of_simcse = library == "ours" and PEERS[method] == "simcse"
            cells.append("" if library == "PyTorch" else f"{ratio(times[f'PyTorch {PEERS[method]} {precision}'], seconds):.2f}")
            cells.append(f"{ratio(published, seconds):.2f}" if published and of_simcse else "")
            cells.append(f"{ratio(seconds, simcse):.2f}" if simcse and of_simcse else "")
            operation_count = operations(options, method, batches)
            speed = operation_count and operation_count / statistics.median(seconds)
            cells += (
                [f"{speed / 1e9:,.0f}", f"{speed / peak:.0%}", f"{speed / sheet:.0%}" if sheet else ""] if speed else ["", "", ""]
            )
            print("| " + " | ".join(cells) + " |", flush=True)


def ratio(numerators, denominators):
    """Return the median over the rounds of one time divided by another."""
    return statistics.median(numerator / denominator for numerator, denominator in zip(numerators, denominators, strict=True))


if __name__ == "__main__":
    main()
