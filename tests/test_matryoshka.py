"""`train.matryoshka`: the loss and its gradients on prefixes against torch, and the scores of every width of a run."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb import SentenceEncoder
from jax_sentemb.cli.program import program
from jax_sentemb.cli.report import main as report
from jax_sentemb.config import Config, Data, Encoder, Evaluation, Train
from jax_sentemb.errors import ConfigError
from jax_sentemb.evaluation.model_spec import load_eval_model, with_widths
from jax_sentemb.inference.load import load
from jax_sentemb.methods.anchor import anchored
from jax_sentemb.methods.contrastive_tension import ContrastiveTension
from jax_sentemb.methods.distillation import Distillation, Taught
from jax_sentemb.methods.is_bert import ISBERT
from jax_sentemb.methods.masked_lm import MaskedLM
from jax_sentemb.methods.matryoshka import Matryoshka, in_prefixes
from jax_sentemb.methods.mirror_bert import MirrorBERT
from jax_sentemb.methods.neighbours import Neighbours
from jax_sentemb.methods.simcse import Momentum, SimCSE, SimCSEViews
from jax_sentemb.methods.views import TwoViews
from jax_sentemb.models.bert import Bert
from jax_sentemb.models.dense import DENSE
from jax_sentemb.parallel import fsdp_sharding, make_mesh, shard_batch
from jax_sentemb.training.optimizer import make_optimizer
from jax_sentemb.training.run import run
from jax_sentemb.training.setup import prepare
from jax_sentemb.training.step import create_state, make_step
from jax_sentemb.types import Batch, TrainState
from tests.pages import ROOT
from tests.tiny_models import bert_config

torch = pytest.importorskip("torch")
WIDTHS = (2, 5)
BERT = Bert(
    bert_config(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, intermediate_size=64, max_position_embeddings=16, initializer_range=0.02
    ),
    jnp.float32,
    0.1,
)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def state_of(params, queue=None, step=0):
    rows = None if queue is None else jnp.full(len(queue), -1, jnp.int32)
    return TrainState(params, None, queue, None, None, jnp.int32(step), rows)


def torch_info_nce(first, second, temperature, queue=None):
    unit = torch.nn.functional.normalize
    candidates = unit(second, dim=1) if queue is None else torch.cat([unit(second, dim=1), unit(queue, dim=1)])
    return torch.nn.functional.cross_entropy(unit(first, dim=1) @ candidates.T / temperature, torch.arange(len(first)))


def test_the_loss_is_the_mean_over_prefixes_and_the_whole_and_its_gradients_are_those_of_torch():
    """With a head, whose kernel then has as many rows as the prefix has numbers."""
    first, second, kernel, bias = normal(0, 4, 8), normal(1, 4, 8), normal(2, 8, 8), normal(3, 8)
    method = in_prefixes(SimCSE(temperature=0.3), WIDTHS, 8)

    def loss(first, second, head):
        encoded = SimCSEViews(TwoViews(first, second, jnp.ones(4)), None, None, None, None)
        return method.objective({"head": head}, state_of({}), encoded)

    head = {"kernel": kernel, "bias": bias}
    (found, (metrics, _)), gradients = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(first, second, head)
    leaves = [torch.tensor(array, requires_grad=True) for array in (first, second, kernel, bias)]
    expected = {}
    for width in (*WIDTHS, 8):
        views = [torch.tanh(view[:, :width] @ leaves[2][:width] + leaves[3]) for view in leaves[:2]]
        expected[width] = torch_info_nce(*views, 0.3)
    total = sum(expected.values()) / 3
    total.backward()
    assert float(found) == pytest.approx(total.item(), rel=1e-5)
    for width in WIDTHS:
        assert float(metrics[f"loss_{width}"]) == pytest.approx(expected[width].item(), rel=1e-5)
    assert float(metrics["contrastive"]) == pytest.approx(expected[8].item(), rel=1e-5)
    for gradient, leaf in zip((*gradients[:2], gradients[2]["kernel"], gradients[2]["bias"]), leaves, strict=True):
        np.testing.assert_allclose(gradient, leaf.grad, rtol=1e-4, atol=1e-6)


def test_a_queue_of_embeddings_is_cut_too_and_takes_in_whole_ones():
    first, second, queue, momentum = normal(0, 4, 8), normal(1, 4, 8), normal(2, 6, 8), normal(3, 4, 8)
    method = in_prefixes(SimCSE(temperature=0.3, head=False, momentum=Momentum(queue_size=6)), WIDTHS, 8)
    encoded = SimCSEViews(TwoViews(*map(jnp.array, (first, second)), jnp.ones(4)), momentum, None, None, None)
    state = state_of({"encoder": {}}, jnp.array(queue), step=9)._replace(ema_params={})
    found, (_, carry) = method.objective({}, state, encoded)
    cut = [[torch.tensor(part[:, :width]) for part in (first, second)] for width in (*WIDTHS, 8)]
    expected = [torch_info_nce(*views, 0.3, torch.tensor(queue[:, : views[0].shape[1]])) for views in cut]
    assert float(found) == pytest.approx(float(sum(expected)) / 3, rel=1e-5)
    np.testing.assert_array_equal(method.post_update(state, carry).queue[:4], momentum)


def test_a_student_is_cut_and_its_teacher_is_not():
    student, teacher, kernel = normal(0, 4, 8), normal(1, 4, 5), normal(2, 8, 5)
    params = {DENSE: {"layer_0": {"kernel": kernel}}}
    found, _ = in_prefixes(Distillation(output="student"), WIDTHS, 8).objective(
        params, state_of(params), Taught(student, teacher, None)
    )
    cosines = [
        torch.nn.functional.cosine_similarity(torch.tensor(student[:, :width] @ kernel[:width]), torch.tensor(teacher))
        for width in (*WIDTHS, 8)
    ]
    assert float(found) == pytest.approx(float(sum((1 - each).mean() for each in cosines)) / 3, rel=1e-5)


@pytest.mark.parametrize(
    "method", [MirrorBERT(), Neighbours(), ContrastiveTension(form="in_batch")], ids=lambda one: type(one).__name__
)
def test_a_prefix_counts_as_scaled_to_length_1(method):
    """The prefix of the views is the same as views of this width, in every method that compares cosines."""
    views = [normal(number, 4, 8) for number in (0, 1)]
    params = {"logit_scale": jnp.log(3.0)}
    _, (metrics, _) = in_prefixes(method, WIDTHS, 8).objective(params, state_of(params), TwoViews(*views, jnp.ones(4)))
    for width in WIDTHS:
        short = TwoViews(*(5.0 * view[:, :width] for view in views), jnp.ones(4))
        assert float(metrics[f"loss_{width}"]) == pytest.approx(
            float(method.objective(params, state_of(params), short)[0]), rel=1e-5
        )


def test_the_whole_width_counts_once_and_without_widths_nothing_changes():
    method = SimCSE()
    assert in_prefixes(method, (), 8) is method
    assert in_prefixes(method, (2, 8), 8).widths == (2,)


@pytest.mark.parametrize(
    ("method", "widths", "says"),
    [
        (SimCSE(), (5, 2), r"^train\.matryoshka=5,2: give rising widths, the last one at most 8"),
        (SimCSE(), (2, 2), "give rising widths"),
        (SimCSE(), (2, 9), "at most 8, the width of an embedding"),
        (
            SimCSE(momentum=Momentum()),
            (2,),
            "SimCSE with these settings does not compare embeddings by their cosine; remove it, or set method.head=False",
        ),
        (ContrastiveTension(), (2,), "ContrastiveTension with these settings"),
        (ISBERT(), (2,), "ISBERT with these settings"),
        (MaskedLM(), (2,), "MaskedLM with these settings"),
        (Distillation(output="teacher"), (2,), r"not exported: set .*method\.output=student"),
    ],
)
def test_what_has_no_prefixes_is_an_error(method, widths, says):
    with pytest.raises(ConfigError, match=says):
        in_prefixes(method, widths, 8)


@pytest.mark.parametrize(
    ("train", "encoder", "says"),
    [
        (Train(matryoshka=(9,)), Encoder(hidden_size=8, num_attention_heads=2), "matryoshka=9: give rising widths"),
        (Train(last_layers=9), Encoder(weights=str(ROOT / "experiments/pretraining/mini-2")), "last_layers=9: the encoder has 4"),
    ],
)
def test_a_value_that_does_not_fit_the_encoder_is_told_before_the_corpus_is_read(train, encoder, says, tmp_path):
    with pytest.raises(ConfigError, match=says):
        prepare(Config(SimCSE(), Data("absent.txt"), encoder, train=train), tmp_path)


def test_devices_chunks_and_an_anchor_change_nothing(eight_devices):
    random = np.random.default_rng(0)
    mask = np.arange(12) < random.integers(4, 13, (8, 1))
    batch = Batch(np.where(mask, random.integers(5, 60, mask.shape), 0).astype(np.int32), mask, row=np.arange(8, dtype=np.int32))
    method = in_prefixes(SimCSE(anchor=0.5, head=False, momentum=Momentum(queue_size=16)), (8, 16), 32)
    assert isinstance(anchored(method).inner, Matryoshka)
    optimizer, losses = make_optimizer(Config(SimCSE()).optimizer, 10), {}
    for count, chunk in ((1, 0), (8, 0), (1, 2)):
        mesh = make_mesh(8, eight_devices[:count], fsdp=2 if count == 8 else 1)
        state = create_state(method, BERT, optimizer, {}, 0, mesh)
        step, losses[count, chunk] = make_step(method, BERT, optimizer, mesh, chunk, fsdp_sharding(mesh, state)), []
        for _ in range(3):
            state, metrics = step(state, shard_batch(batch, mesh))
            losses[count, chunk].append([float(metrics[name]) for name in ("loss", "loss_8", "anchor")])
    np.testing.assert_allclose(losses[8, 0], losses[1, 0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(losses[1, 2], losses[1, 0], rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("matryoshka") / "run"
    config = Config(
        SimCSE(pooling="mean", head=False),
        Data("grammar:200", vocab_size=500, max_seq_length=24, batch_size=8),
        Encoder(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64),
        eval=Evaluation(
            data="grammar", eval_steps=0, batch_size=32, max_seq_length=24, diagnostic_sentences=32, report_sentences=16
        ),
        train=Train(max_steps=3, matryoshka=(8, 16)),
    )
    assert run(config, folder) == 0
    return folder


def test_every_width_is_scored_and_the_card_and_the_report_say_how_much_it_keeps(trained):
    scores = json.loads((trained / "scores.json").read_text())
    assert list(scores["widths"]) == ["8", "16", "32"]
    whole = scores["widths"]["32"]
    assert whole["grammar-test"] == pytest.approx(scores["scores"]["grammar-test"]["spearman"]["all"], abs=1e-3)
    assert whole["retrieval"] == pytest.approx(scores["diagnostics"]["retrieval"], abs=1e-3)
    assert scores["widths"]["8"]["grammar-test"] != whole["grammar-test"]
    card = (trained / "export" / "README.md").read_text()
    assert "`truncate_dim=K` keeps K of them. Their scores: mean Spearman x 100 of 2 sets: 8 dimensions " in card
    assert "%), 16 dimensions " in card
    assert ", all 32 dimensions " in card
    copy = SentenceEncoder(trained / "export").save(trained / "copy")
    assert ", all 32 dimensions " in (copy / "README.md").read_text()
    assert "mlm_probability" not in card  # of a loss that was not trained
    assert program(report, ["jax-sentemb report", "--workdir", str(trained)]) == 0
    assert "mean Spearman x 100 of 2 sets: 8 dimensions" in (trained / "report.html").read_text()


@pytest.mark.parametrize("folder", ["", "export"])
def test_evaluate_scores_every_width_of_a_run_and_of_its_export(trained, folder):
    models = with_widths(load_eval_model(str(trained / folder), set))
    assert [model.name for model in models] == ["run", "run+8", "run+16"]
    sentences = ["A man is playing a guitar.", "A woman sings."]
    vectors = load(trained / folder)(sentences)
    for model, width in zip(models, (32, 8, 16), strict=True):
        np.testing.assert_array_equal(model.finish(model.fit([])(sentences)), vectors[:, :width])
    assert [model.width for model in with_widths(models[0], {models[1].name})] == [None, 16]
    (alone,) = with_widths(load_eval_model(f"short={trained / folder}@8+unit", set))
    assert (alone.name, alone.width, alone.postprocessing) == ("short", 8, ("unit",))


@pytest.mark.parametrize(
    ("option", "says"), [("33", "of 33 or more numbers"), ("0", "give one number, of at least 1"), ("8+16", "one number")]
)
def test_a_width_that_cannot_be_is_one_line(trained, option, says):
    with pytest.raises(ConfigError, match=says):
        load_eval_model(f"{trained}@{option}", set)
    with pytest.raises(ConfigError, match="@8 cuts the embedding of an encoder"):
        load_eval_model("tf-idf@8", set)
