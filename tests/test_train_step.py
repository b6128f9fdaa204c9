"""Whole training steps, dropout and all, against an independent float64 computation in torch.

Taken from the package: the initial parameters, the random bits (`random_bits`, `keep_mask`) and the sampled attention positions,
both as plain arrays. Everything else is written out here from the formulas.
"""

import jax
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict

from jax_sentemb import config as settings
from jax_sentemb import train
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.simcse import MASK_STREAM, Momentum, SimCSE
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.layers import keep_mask, mix, random_bits
from jax_sentemb.sharding import make_mesh, put_rows, replicated
from jax_sentemb.types import Rows

torch = pytest.importorskip("torch")
functional = torch.nn.functional

STEPS, TOTAL, BATCH, WIDTH, VOCABULARY, HEADS, MASK_TOKEN = 3, 6, 4, 8, 40, 2, 4
DROPOUT, MOMENTUM_DROPOUT, DECAY, QUEUE = 0.1, 0.3, 0.9, 6  # the queue is full and cut in the second of three steps
TEMPERATURE, MASKED_FRACTION, AMI_WEIGHT, SAMPLES = 0.2, 0.4, 0.7, 30
# The rate is 0, then 1e-2, then 0.8e-2. The norm is far above max_grad_norm, so that clipping acts. With Adam's usual epsilon the
# key biases, whose gradient is 0, would walk along their rounding errors.
OPTIONS = settings.Optimizer(
    learning_rate=1e-2, warmup_steps=1, weight_decay=0.5, max_grad_norm=0.1, adam_beta1=0.8, adam_beta2=0.95, adam_epsilon=1e-5
)
AMI = AttentionMI(weight=AMI_WEIGHT, samples=SAMPLES)
MOMENTUM = Momentum(queue_size=QUEUE, decay=DECAY, dropout=MOMENTUM_DROPOUT)
PLAIN = {"temperature": TEMPERATURE, "mlm_probability": MASKED_FRACTION}
METHODS = {  # the method and the encoder's depth: four layers tell the pairing of layers l, l + 2 from that of neighbours
    "simcse": (SimCSE(**PLAIN), 2),
    "ami, heads paired, mean pooling": (SimCSE(**PLAIN, pooling="mean", ami=AttentionMI(AMI_WEIGHT, SAMPLES, pairing="heads")), 2),
    "momentum": (SimCSE(**PLAIN, momentum=MOMENTUM), 2),
    "micse": (SimCSE(**PLAIN, ami=AMI, momentum=MOMENTUM), 4),
    "mlm": (SimCSE(**PLAIN, mlm_weight=0.5), 2),
    "without negatives": (SimCSE(**PLAIN, negatives=False), 2),
}


def batches() -> list[Rows]:
    random = np.random.default_rng(0)
    masks = [np.arange(WIDTH) < random.integers(4, WIDTH + 1, (BATCH, 1)) for _ in range(STEPS)]
    return [Rows(np.where(mask, random.integers(5, VOCABULARY, mask.shape), 0).astype(np.int32), mask) for mask in masks]


def tensors(tree) -> dict:
    return {path: torch.tensor(np.array(leaf, np.float64)) for path, leaf in flatten_dict(tree, sep="/").items()}


class Dropout:
    """The masks of one forward pass."""

    def __init__(self, seeds, rate):
        self.seeds, self.rate = seeds, rate

    def kept(self, stream, shape, strides=None):
        return torch.tensor(np.array(keep_mask(self.rate, self.seeds, stream, shape, strides)))

    def hidden(self, states, stream):
        return states * self.kept(stream, states.shape[1:]) / (1 - self.rate)


def bert(p, tokens, mask, dropout):
    """Last hidden state [R, T, D]; log attention and kept entries of every layer, [R, H, T, T] each."""

    def dense(inputs, name):
        return inputs @ p[f"{name}/kernel"] + p[f"{name}/bias"]

    def norm(inputs, name):
        return functional.layer_norm(inputs, inputs.shape[-1:], p[f"{name}/scale"], p[f"{name}/bias"], 1e-12)

    def by_head(inputs):
        return inputs.reshape(*inputs.shape[:2], HEADS, -1).transpose(1, 2)

    width = tokens.shape[1]
    states = p["embeddings/word"][tokens] + p["embeddings/position"][:width] + p["embeddings/token_type"][0]
    states = dropout.hidden(norm(states, "embeddings/norm"), 0)
    logs, kept = [], []
    for number in range(1, 1 + sum(path.endswith("query/kernel") for path in p)):
        name = f"layer_{number - 1}"
        query, key, value = (by_head(dense(states, f"{name}/{part}")) for part in ("query", "key", "value"))
        scores = torch.einsum("rhqd,rhkd->rhqk", query, key) / query.shape[-1] ** 0.5
        logs.append(scores.masked_fill(~mask[:, None, None, :], -np.inf).log_softmax(-1))
        kept.append(dropout.kept(8 * number, logs[-1].shape[1:], (2**22, 2**11, 1)))
        weights = logs[-1].exp() * kept[-1] / (1 - dropout.rate)
        context = (weights @ value).transpose(1, 2).reshape(states.shape)
        states = norm(states + dropout.hidden(dense(context, f"{name}/attention_output"), 8 * number + 1), f"{name}/attention_norm")
        inner = functional.gelu(dense(states, f"{name}/intermediate"))
        states = norm(states + dropout.hidden(dense(inner, f"{name}/output"), 8 * number + 2), f"{name}/output_norm")
    return states, logs, kept


def pairs_of_maps(pairing, layers):
    """The two (layer, head) of each slice, both counted from 0."""
    if pairing == "heads":
        return [((layer, h), (layer, h + 1)) for layer in range(layers) for h in range(0, HEADS, 2)]
    return [((layer, h), (layer + layers // 2, h)) for layer in range(layers // 2) for h in range(HEADS)]


def attention_mutual_information(pairing, positions, views, lengths):
    """The mean of -1/2 log(1 - rho^2) and the density factor; a view is (log attention, kept) of every layer."""
    slices = pairs_of_maps(pairing, len(views[0][0]))
    information, density = [], []
    for sentence in range(BATCH):
        for number, maps in enumerate(slices):
            member, query, key = (axis[sentence, number] for axis in positions)
            drawn = [(*maps[m], q, k) for m, q, k in zip(member, query, key, strict=True)]
            entries = [(layer, sentence, h, q, k) for layer, h, q, k in drawn]
            entries = [e for e in entries if all(kept[e[0]][e[1:]] for _, kept in views)]
            first, second = (torch.stack([logs[e[0]][e[1:]] for e in entries]) for logs, _ in views)
            rho = torch.corrcoef(torch.stack([first, second]))[0, 1]
            information.append(-0.5 * torch.log(1 - rho**2))
            density.append(len(entries) / SAMPLES * lengths[sentence] / lengths.max())
    return torch.stack(information).mean(), np.mean(density) ** 2 + 1e-6


class Reference:
    """The run in torch."""

    def __init__(self, method, state):
        self.method, self.run_key = method, jax.random.wrap_key_data(state.rng)
        self.params = {path: leaf.requires_grad_() for path, leaf in tensors(state.params).items()}
        self.average = None if state.ema_params is None else tensors(state.ema_params)
        self.queue = torch.zeros(0, 16, dtype=torch.float64)
        groups = [
            {"params": [leaf for leaf in self.params.values() if leaf.ndim > 1], "weight_decay": OPTIONS.weight_decay},
            {"params": [leaf for leaf in self.params.values() if leaf.ndim == 1], "weight_decay": 0.0},
        ]
        betas = (OPTIONS.adam_beta1, OPTIONS.adam_beta2)
        self.optimizer = torch.optim.AdamW(groups, lr=OPTIONS.learning_rate, betas=betas, eps=OPTIONS.adam_epsilon)

    def encoder(self):
        return {path.removeprefix("encoder/"): leaf for path, leaf in self.params.items() if path.startswith("encoder/")}

    def project(self, states, mask):
        means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        pooled = means if self.method.pooling == "mean" else states[:, 0]
        return torch.tanh(pooled @ self.params["head/kernel"] + self.params["head/bias"])

    def contrastive(self, first, second):
        first, second, queue = (functional.normalize(x, dim=-1) for x in (first, second, self.queue))
        total = 0.0
        for i in range(BATCH):
            positive = torch.exp(first[i] @ second[i] / TEMPERATURE)
            if self.method.negatives:
                everything = torch.exp(torch.cat([second, queue]) @ first[i] / TEMPERATURE).sum()
            else:
                everything = positive + BATCH - 1  # every other logit is 0
            total = total - torch.log(positive / everything) / BATCH
        return total

    def masked_language_model(self, rows, seeds):
        selected, targets, tokens = [], [], rows.tokens.copy()
        chosen, kind, other = (np.array(random_bits(seeds, MASK_STREAM + n, (WIDTH,))) / 2**32 for n in range(3))
        for row, length in enumerate(rows.mask.sum(1)):
            for place in range(1, length - 1):
                if chosen[row, place] < MASKED_FRACTION:
                    selected.append((row, place))
                    targets.append(int(rows.tokens[row, place]))
                    if kind[row, place] < 0.8:
                        tokens[row, place] = MASK_TOKEN
                    elif kind[row, place] < 0.9:
                        tokens[row, place] = round(other[row, place] * 2**32) % VOCABULARY
        states, _, _ = bert(self.encoder(), torch.tensor(tokens).long(), torch.tensor(rows.mask), Dropout(seeds, DROPOUT))
        states = torch.stack([states[place] for place in selected])
        inner = functional.gelu(states @ self.params["token_head/transform/kernel"] + self.params["token_head/transform/bias"])
        inner = functional.layer_norm(
            inner, (16,), self.params["token_head/norm/scale"], self.params["token_head/norm/bias"], 1e-12
        )
        logits = inner @ self.params["encoder/embeddings/word"].T + self.params["token_head/bias"]
        return functional.cross_entropy(logits, torch.tensor(targets))

    def loss(self, number, rows):
        """The loss, its parts under the names of the metrics, and the embeddings that enter the queue."""
        seeds = jax.random.bits(jax.random.fold_in(self.run_key, number), (BATCH,), np.uint32)
        of_view = [mix(seeds + np.uint32((view + 1) * 0x9E3779B1 % 2**32)) for view in range(4)]
        tokens, mask = torch.tensor(rows.tokens).long(), torch.tensor(rows.mask)
        views = [bert(self.encoder(), tokens, mask, Dropout(of_view[view], DROPOUT)) for view in range(2)]
        parts = {"contrastive": self.contrastive(*(self.project(states, mask) for states, _, _ in views))}
        loss, entering = parts["contrastive"], None
        if self.method.ami is not None:
            layers = len(views[0][1])
            lengths = rows.mask.sum(1)
            positions = self.method.ami.sample(seeds, jax.numpy.array(lengths, np.int32), WIDTH, layers * HEADS // 2)
            parts["attention_mi"], density = attention_mutual_information(
                self.method.ami.pairing, [np.array(axis) for axis in positions], [view[1:] for view in views], lengths
            )
            loss = loss - AMI_WEIGHT * density * parts["attention_mi"]
        if self.method.mlm_weight:
            parts["mlm"] = self.masked_language_model(rows, of_view[3])
            loss = loss + self.method.mlm_weight * parts["mlm"]
        if self.average is not None:
            with torch.no_grad():
                states, _, _ = bert(self.average, tokens, mask, Dropout(of_view[2], MOMENTUM_DROPOUT))
                entering = self.project(states, mask)
        return loss, parts, entering

    def step(self, number, rows):
        """One step; returns what the step's metrics are to be."""
        loss, parts, entering = self.loss(number, rows)
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.sqrt(sum(leaf.grad.square().sum() for leaf in self.params.values()))
        for leaf in self.params.values():
            leaf.grad *= min(1.0, OPTIONS.max_grad_norm / norm.item())
        for group in self.optimizer.param_groups:
            group["lr"] = OPTIONS.learning_rate * (0.0, 1.0, 0.8)[number]
        self.optimizer.step()
        if self.average is not None:
            for path, leaf in self.encoder().items():
                self.average[path] = DECAY * self.average[path] + (1 - DECAY) * leaf.detach()
            self.queue = torch.cat([entering, self.queue])[:QUEUE]
        return {name: float(value.detach()) for name, value in {"loss": loss, "grad_norm": norm, **parts}.items()}


def starting_state(method, encoder, optimizer, mesh):
    """A fresh state with every leaf moved at random, weights and average each their own way: no bias is 0, no scale 1."""
    state = train.create_state(method, encoder, optimizer, None, 0, mesh)
    random = np.random.default_rng(1)

    def moved(leaf):
        return np.array(leaf + random.normal(0, 0.1, leaf.shape), np.float32)

    params, average = jax.tree.map(moved, (state.params, state.ema_params))
    return state._replace(params=jax.device_put(params, replicated(mesh)), ema_params=jax.device_put(average, replicated(mesh)))


def same(ours, theirs, tolerance):
    """Leaf by leaf, relative to the leaf's largest value (or to 1 / 1000 of the largest of all: some gradients are zero)."""
    ours = tensors(ours)
    assert ours.keys() == theirs.keys()
    largest = max(leaf.abs().max() for leaf in theirs.values())
    for path, leaf in ours.items():
        scale = max(theirs[path].abs().max(), largest / 1000)
        assert (leaf - theirs[path]).abs().max() <= tolerance * scale, path


@pytest.mark.parametrize("name", METHODS)
def test_steps_equal_torch(name):
    method, layers = METHODS[name]
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=layers, num_attention_heads=HEADS, intermediate_size=24,
        max_position_embeddings=12, initializer_range=0.3, mask_token_id=MASK_TOKEN,
    )  # fmt: skip
    encoder = Bert(config, dropout=DROPOUT)
    mesh = make_mesh(BATCH, jax.devices()[:1])
    optimizer = train.make_optimizer(OPTIONS, TOTAL)
    state = starting_state(method, encoder, optimizer, mesh)
    reference = Reference(method, jax.device_get(state))
    step = train.make_step(method, encoder, optimizer, mesh)
    for number, rows in enumerate(batches()):
        state, metrics = step(state, put_rows(rows, mesh))
        expected = reference.step(number, rows)
        assert expected["grad_norm"] > 2 * OPTIONS.max_grad_norm
        assert {key: float(metrics[key]) for key in expected} == pytest.approx(expected, rel=1e-5)
        assert set(metrics) == {*expected, "accuracy", "alignment"}
        if number == 0:
            clipped = {path: leaf.grad * (1 - OPTIONS.adam_beta1) for path, leaf in reference.params.items()}
            same(optax.tree.get(jax.device_get(state.opt_state), "mu"), clipped, 1e-4)
    assert int(state.step) == STEPS
    same(state.params, {path: leaf.detach() for path, leaf in reference.params.items()}, 2e-5)
    if method.momentum is None:
        assert state.ema_params is None
        assert state.queue is None
    else:
        same(state.ema_params, reference.average, 1e-5)
        np.testing.assert_allclose(state.queue, reference.queue, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "warmup", "expected"),
    [
        ("linear", 4, {0: 0, 1: 0.25, 4: 1, 7: 0.5, 10: 0}),
        ("linear", 0, {0: 1, 5: 0.5, 10: 0}),
        ("cosine", 4, {0: 0, 2: 0.5, 4: 1, 6: 0.75, 7: 0.5, 10: 0}),
        ("constant", 4, {0: 0, 2: 0.5, 4: 1, 10: 1}),
    ],
)
def test_schedule_rises_to_the_rate_and_falls_to_zero_at_the_last_step(kind, warmup, expected):
    options = settings.Optimizer(learning_rate=0.2, lr_scheduler_type=kind, warmup_steps=warmup)
    schedule = train.make_schedule(options, 10)
    assert [float(schedule(step)) for step in expected] == pytest.approx([0.2 * share for share in expected.values()], abs=1e-8)
