"""Whole training steps against an independent torch computation: transformers' BertModel, the loss from its formula, torch's AdamW.

Dropout is 0 here, so that both sides see the same network; attention mutual information has its own test against NumPy.
"""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb import config as settings
from jax_sentemb.formats.weight_table import to_torch
from jax_sentemb.methods.simcse import Momentum, SimCSE
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.parallel import make_mesh, shard_batch
from jax_sentemb.training.optimizer import make_optimizer, make_schedule
from jax_sentemb.training.step import create_state, make_step
from jax_sentemb.types import Batch

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CONFIG = BertConfig(
    vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=12, initializer_range=0.3,
)  # fmt: skip
OPTIONS = settings.Optimizer(learning_rate=1e-2, warmup_steps=2, weight_decay=0.05, max_grad_norm=0.5)
STEPS, TOTAL, BATCH, TEMPERATURE = 4, 10, 6, 0.5
METHODS = {
    "simcse": SimCSE(temperature=TEMPERATURE),
    "mean pooling, no head": SimCSE(temperature=TEMPERATURE, pooling="mean", head=False),
    "momentum queue": SimCSE(temperature=TEMPERATURE, momentum=Momentum(queue_size=10, decay=0.9, dropout=0.0)),
}


def batches():
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        mask = np.arange(8) < random.integers(3, 9, (BATCH, 1))
        yield Batch(random.integers(5, 40, (BATCH, 8)).astype(np.int32), mask)


class Torch:
    """The same run in torch: float32 model, everything else written out."""

    def __init__(self, method, params):
        self.method = method
        self.bert = transformers.BertModel(
            transformers.BertConfig(
                vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
                max_position_embeddings=12, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager",
            ),
            add_pooling_layer=False,
        )  # fmt: skip
        tensors = {name: torch.tensor(np.array(value)) for name, value in to_torch(CONFIG, params["encoder"]).items()}
        self.bert.load_state_dict(tensors)
        self.head = (
            [torch.tensor(np.array(params["head"][name]), requires_grad=True) for name in ("kernel", "bias")] if method.head else []
        )
        self.average = copy.deepcopy(self.bert)
        self.queue = torch.zeros(0, 16)
        everything = [*self.bert.parameters(), *self.head]
        self.parameters = everything
        groups = [
            {"params": [p for p in everything if p.ndim > 1], "weight_decay": 0.05},
            {"params": [p for p in everything if p.ndim == 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.999), eps=1e-8)

    def embed(self, bert, rows):
        mask = torch.tensor(rows.mask)
        states = bert(torch.tensor(rows.tokens).long(), attention_mask=mask.long()).last_hidden_state
        means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        pooled = means if self.method.pooling == "mean" else states[:, 0]
        return torch.tanh(pooled @ self.head[0] + self.head[1]) if self.head else pooled

    def step(self, number, rows):
        embedding = torch.nn.functional.normalize(self.embed(self.bert, rows), dim=-1)
        logits = embedding @ embedding.T / TEMPERATURE
        queue = torch.nn.functional.normalize(self.queue, dim=-1)
        logits = torch.cat([logits, embedding @ queue.T / TEMPERATURE], dim=1)
        loss = torch.nn.functional.cross_entropy(logits, torch.arange(BATCH))
        with torch.no_grad():
            entering = self.embed(self.average, rows)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 0.5)
        rate = 1e-2 * (number / 2 if number < 2 else 1 - (number - 2) / (TOTAL - 2))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        with torch.no_grad():
            for old, new in zip(self.average.parameters(), self.bert.parameters(), strict=True):
                old.mul_(0.9).add_(0.1 * new)
        if self.method.momentum is not None:
            self.queue = torch.cat([entering, self.queue])[:10]
        return loss.item()


@pytest.mark.parametrize("name", METHODS)
def test_steps_equal_torch(name):
    method = METHODS[name]
    encoder = Bert(CONFIG, jnp.float32, 0.0)
    mesh = make_mesh(BATCH, jax.devices()[:1])
    optimizer = make_optimizer(OPTIONS, TOTAL)
    state = create_state(method, encoder, optimizer, {}, 0, mesh)
    reference = Torch(method, jax.device_get(state.params))
    step = make_step(method, encoder, optimizer, mesh)
    for number, rows in enumerate(batches()):
        state, metrics = step(state, shard_batch(rows, mesh))
        assert float(metrics["loss"]) == pytest.approx(reference.step(number, rows), rel=2e-5)
    same_weights(state.params["encoder"], reference.bert)
    if method.momentum is not None:
        same_weights(state.ema_params, reference.average)
        np.testing.assert_allclose(state.queue, reference.queue.numpy(), atol=2e-4)


def same_weights(params, module):
    """All but the key biases: softmax does not see them, so their gradient is 0 and Adam makes steps of its rounding."""
    theirs = module.state_dict()
    for key, ours in to_torch(CONFIG, jax.device_get(params)).items():
        if not key.endswith("key.bias"):
            np.testing.assert_allclose(ours, theirs[key].numpy(), atol=2e-5, err_msg=key)


def test_the_schedule_warms_up_and_ends_at_zero():
    linear = make_schedule(OPTIONS, TOTAL)
    assert [float(linear(step)) for step in (0, 1, 2, 6, 10)] == pytest.approx([0, 5e-3, 1e-2, 5e-3, 0])
    constant = make_schedule(settings.Optimizer(learning_rate=0.1, lr_scheduler_type="constant"), TOTAL)
    assert float(constant(9)) == pytest.approx(0.1)
    cosine = make_schedule(settings.Optimizer(learning_rate=0.1, lr_scheduler_type="cosine"), TOTAL)
    assert [float(cosine(step)) for step in (0, 5, 10)] == pytest.approx([0.1, 0.05, 0.0])
