"""Step time of SimCSE, AMI+SimCSE and miCSE against a plain PyTorch SimCSE loop: same model, batch, lengths and dropout, one run.

    PYTHONPATH=. python benchmarks/train_step.py [--shape small|minilm|base] [--rounds 10]

Every contender lives in its own process and they take turns, so that a drift of the machine's speed meets all of them. Printed:
median milliseconds of a step, and the median over the rounds of (PyTorch's time / ours) at the same precision: above 1 we are
faster.
"""

import argparse
import functools
import os
import statistics

from benchmarks.interleaved import interleave

SHAPES = {  # layers, hidden, heads, intermediate
    "small": (4, 256, 4, 1024),
    "minilm": (6, 384, 12, 1536),
    "base": (12, 768, 12, 3072),
}
BATCH, WIDTH, VOCABULARY = 64, 32, 30522
CONTENDERS = (
    "torch float32", "simcse float32", "simcse_ami float32", "micse float32",
    "torch bfloat16", "simcse bfloat16", "simcse_ami bfloat16", "micse bfloat16",
)  # fmt: skip


def batch():
    """Token ids and mask [BATCH, WIDTH] with lengths like Wikipedia sentences cut at 32 (mean about 25)."""
    import numpy as np

    random = np.random.default_rng(0)
    lengths = np.clip(random.gamma(6.0, 4.6, BATCH).astype(int), 5, WIDTH)
    lengths[0] = WIDTH
    ids = random.integers(1000, VOCABULARY, (BATCH, WIDTH)).astype("int32")
    return ids, np.arange(WIDTH) < lengths[:, None]


def torch_stepper(shape, precision):
    import torch
    from transformers import BertConfig, BertModel

    torch.set_num_threads(os.cpu_count())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers, hidden, heads, inner = SHAPES[shape]
    model = BertModel(
        BertConfig(
            vocab_size=VOCABULARY, num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads,
            intermediate_size=inner, attn_implementation="sdpa",
        ),
        add_pooling_layer=False,
    ).to(device)  # fmt: skip
    head = torch.nn.Sequential(torch.nn.Linear(hidden, hidden), torch.nn.Tanh()).to(device)
    model.train()
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-5, weight_decay=0.0, fused=True)
    ids, mask = (torch.tensor(x).to(device).repeat_interleave(2, 0) for x in batch())
    ids, mask = ids.long(), mask.long()
    labels = torch.arange(BATCH, device=device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            embedding = head(model(ids, attention_mask=mask).last_hidden_state[:, 0])
        unit = torch.nn.functional.normalize(embedding.float(), dim=-1)
        loss = torch.nn.functional.cross_entropy(unit[0::2] @ unit[1::2].T / 0.05, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.item()

    return step


def jax_stepper(name, shape, precision):
    import jax
    import jax.numpy as jnp

    from jax_sentemb.config import Optimizer
    from jax_sentemb.methods.attention_mi import AttentionMI
    from jax_sentemb.methods.simcse import Momentum, SimCSE
    from jax_sentemb.models.bert import Bert, BertConfig
    from jax_sentemb.sharding import make_mesh, put_batch
    from jax_sentemb.train import create_state, make_optimizer, make_step
    from jax_sentemb.types import Batch

    layers, hidden, heads, inner = SHAPES[shape]
    config = BertConfig(
        vocab_size=VOCABULARY,
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=inner,
    )
    encoder = Bert(config, jnp.dtype(precision), 0.1)
    method = SimCSE(ami=AttentionMI() if name != "simcse" else None, momentum=Momentum() if name == "micse" else None)
    mesh = make_mesh(BATCH, jax.devices()[:1])
    optimizer = make_optimizer(Optimizer(), 10_000)
    state = create_state(method, encoder, optimizer, {}, 0, mesh)
    compiled = make_step(method, encoder, optimizer, mesh)
    rows = put_batch(Batch(*batch()), mesh)

    def step():
        nonlocal state
        state, metrics = compiled(state, rows)
        return float(metrics["loss"])

    return step


def make(shape, name):
    method, precision = name.split()
    return torch_stepper(shape, precision) if method == "torch" else jax_stepper(method, shape, precision)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3, help="steps a turn")
    options = parser.parse_args()
    times = interleave(functools.partial(make, options.shape), CONTENDERS, options.rounds, options.steps)
    print(f"{options.shape} {SHAPES[options.shape]}, {BATCH} sentences x 2 views x {WIDTH} tokens, {options.rounds} rounds")
    print(f"{'':<22}{'ms/step':>9}{'min':>9}{'PyTorch/ours':>14}{'ours/SimCSE':>13}")
    for name, taken in times.items():
        precision = name.split()[1]
        ratio = statistics.median(t / own for t, own in zip(times[f"torch {precision}"], taken, strict=True))
        cost = statistics.median(own / s for own, s in zip(taken, times[f"simcse {precision}"], strict=True))
        shown = f"{statistics.median(taken) * 1e3:>9.1f}{min(taken) * 1e3:>9.1f}{ratio:>14.2f}"
        print(f"{name:<22}{shown}" + (f"{cost:>13.2f}" if not name.startswith("torch") else ""))


if __name__ == "__main__":
    main()
