"""Compare our bidirectional GRU and LSTM with torch.nn.GRU and torch.nn.LSTM on packed sequences: forward and backward pass.

    PYTHONPATH=. python benchmarks/recurrent_step.py [--shape small|multi_view|cons_sent] [--rounds 10]

Every contender has its own process and they take turns. Printed: median milliseconds of a step, and the median over the rounds of
PyTorch's time / ours: above 1 we are faster. Gradients of all weights are computed, in float32 and without dropout.
"""

import argparse
import functools
import os
import statistics

from benchmarks.interleaved import interleave

SHAPES = {  # sentences, most words, width of word vectors, hidden size of a direction
    "small": (64, 32, 50, 256),
    "multi_view": (512, 40, 300, 1024),
    "cons_sent": (64, 64, 300, 2048),
}
CONTENDERS = ("torch gru", "ours gru", "torch lstm", "ours lstm")


def batch(shape):
    """Return vectors [B, T, I] and lengths like those of Wikipedia sentences (mean about 25 words)."""
    import numpy as np

    sentences, words, inputs, _ = SHAPES[shape]
    random = np.random.default_rng(0)
    lengths = np.clip(random.gamma(6.0, 4.2, sentences).astype(int), 3, words)
    lengths[0] = words
    return random.normal(size=(sentences, words, inputs)).astype("float32"), lengths


def torch_step(cell, shape):
    import torch

    torch.set_num_threads(os.cpu_count())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    vectors, lengths = batch(shape)
    _, _, inputs, hidden = SHAPES[shape]
    module = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[cell](inputs, hidden, batch_first=True, bidirectional=True).to(device)
    vectors, lengths = torch.tensor(vectors, device=device), torch.tensor(lengths)

    def step():
        module.zero_grad(set_to_none=True)
        packed = torch.nn.utils.rnn.pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        states = torch.nn.utils.rnn.pad_packed_sequence(module(packed)[0], batch_first=True)[0]
        loss = states.square().sum()
        loss.backward()
        return loss.item()

    return step


def our_step(cell, shape):
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jax_sentemb.models.rnn import init_rnn, run_rnn

    vectors, lengths = batch(shape)
    _, words, inputs, hidden = SHAPES[shape]
    params = init_rnn(jax.random.key(0), cell, inputs, hidden)
    vectors, mask = jnp.array(vectors), jnp.array(np.arange(words) < lengths[:, None])

    @jax.jit
    def loss_and_gradient(params):
        return jax.value_and_grad(lambda params: jnp.square(run_rnn(cell, params, vectors, mask).states).sum())(params)

    def step():
        loss, gradient = loss_and_gradient(params)
        jax.block_until_ready(gradient)
        return float(loss)

    return step


def make(shape, name):
    library, cell = name.split()
    return (torch_step if library == "torch" else our_step)(cell, shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3, help="steps a turn")
    options = parser.parse_args()
    times = interleave(functools.partial(make, options.shape), CONTENDERS, options.rounds, options.steps)
    print(f"{options.shape} {SHAPES[options.shape]}, {options.rounds} rounds of {options.steps} steps")
    print(f"{'':<12}{'ms/step':>10}{'min':>10}{'max':>10}{'PyTorch/ours':>14}")
    for name, seconds in times.items():
        ratio = statistics.median(
            torch_time / own_time for torch_time, own_time in zip(times[f"torch {name.split()[1]}"], seconds, strict=True)
        )
        columns = "".join(f"{value * 1e3:>10.1f}" for value in (statistics.median(seconds), min(seconds), max(seconds)))
        print(f"{name:<12}{columns}{ratio:>14.2f}")


if __name__ == "__main__":
    main()
