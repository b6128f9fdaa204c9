"""Distillation: loss and gradient against NumPy and torch, the queue, W in the export, and a run from layers of a model."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_models import tiny_model

from jax_sentemb.config import Config, Data, Encoder, Evaluation, Optimizer, Train
from jax_sentemb.data import synthetic
from jax_sentemb.errors import ConfigError
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.inference.load import load
from jax_sentemb.losses import rank_distillation, similarity_distillation
from jax_sentemb.methods.distillation import TEACHER, Distillation, Taught
from jax_sentemb.models.bert import Bert
from jax_sentemb.models.dense import DENSE
from jax_sentemb.parallel import make_mesh
from jax_sentemb.setting_texts import chosen_layers
from jax_sentemb.training import setup
from jax_sentemb.training.run import run
from jax_sentemb.training.step import create_state, make_measure
from jax_sentemb.types import ROW_NUMBERS, Batch, TrainState
from tests.tiny_models import bert_config

torch = pytest.importorskip("torch")
ENCODER = Bert(bert_config(vocab_size=20, hidden_size=8, intermediate_size=16, max_position_embeddings=6, initializer_range=0.02))
RANDOM = np.random.default_rng(0)
SENTENCES = synthetic.sentences(300, 0)


def normal(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def unit(values):
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def state_of(params, queue=None, queue_rows=None):
    rows = None if queue_rows is None else jnp.array(queue_rows, jnp.int32)
    return TrainState(params, None, queue, None, None, jnp.int32(0), rows)


def started(method, width=5):
    parts = {
        "encoder": {},
        TEACHER: {"vectors": jnp.array(normal(method.queue_size, width)), "rows": jnp.arange(method.queue_size)},
    }
    return method.init(ENCODER, parts, jax.random.key(0))


def test_the_cosine_loss_and_its_gradients_are_those_of_torch():
    student, teacher, kernel = normal(4, 8), normal(4, 5), normal(8, 5)
    method = Distillation()

    def loss(student, kernel):
        params = {DENSE: {"layer_0": {"kernel": kernel}}}
        return method.objective(params, state_of(params), Taught(student, jnp.array(teacher), None))[0]

    value, gradients = jax.value_and_grad(loss, (0, 1))(jnp.array(student), jnp.array(kernel))
    leaves = [torch.tensor(array, requires_grad=True) for array in (student, kernel)]
    expected = (1 - torch.nn.functional.cosine_similarity(leaves[0] @ leaves[1], torch.tensor(teacher))).mean()
    expected.backward()
    assert float(value) == pytest.approx(expected.item(), abs=1e-6)
    for found, leaf in zip(gradients, leaves, strict=True):
        np.testing.assert_allclose(found, leaf.grad, atol=1e-6)


@pytest.mark.parametrize("pairs", [2**22, 8])  # all at once, and some rows at a time
def test_congen_compares_the_shares_of_other_sentences_as_torch_does(monkeypatch, pairs):
    monkeypatch.setattr("jax_sentemb.losses.arrays.PAIRS", pairs)
    student, teacher, queue = normal(4, 5), normal(4, 5), normal(6, 5)
    rows, in_queue = np.array([3.0, 4.0, 5.0, 6.0]), np.array([9, 4, 8, 4, 3, -1])
    leaf = torch.tensor(student, requires_grad=True)
    candidates = torch.tensor(unit(np.concatenate([teacher, queue])))
    losses = []
    for place in range(4):
        others = [number for number in range(10) if number != place and (number < 4 or in_queue[number - 4] != rows[place])]
        assert len(others) == {0: 8, 1: 7}.get(place, 9)
        shares = torch.softmax(torch.tensor(unit(teacher[place])) @ candidates[others].T / 0.3, 0)
        logs = torch.log_softmax(torch.nn.functional.normalize(leaf[place], dim=0) @ candidates[others].T / 0.5, 0)
        losses.append((shares * (shares.log() - logs)).sum())
    expected = torch.stack(losses).mean()
    expected.backward()

    def loss(student):
        return similarity_distillation(student, teacher, queue, (jnp.array(rows, jnp.float32), jnp.array(in_queue)), (0.3, 0.5))

    value, gradient = jax.value_and_grad(loss)(jnp.array(student))
    assert float(value) == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(gradient, leaf.grad, atol=1e-6)


def test_the_rank_loss_is_listnet_without_the_entropy_of_the_teacher():
    student, teacher = normal(5, 8), normal(5, 3)
    leaf = torch.tensor(student, requires_grad=True)
    apart = ~torch.eye(5, dtype=torch.bool)
    by_student = torch.nn.functional.normalize(leaf, dim=1)
    ours = (by_student @ by_student.T)[apart].reshape(5, 4) / 0.2
    theirs = torch.tensor(unit(teacher) @ unit(teacher).T)[apart].reshape(5, 4) / 0.2
    expected = torch.nn.functional.kl_div(ours.log_softmax(1), theirs.softmax(1), reduction="batchmean")
    expected.backward()
    value, gradient = jax.value_and_grad(rank_distillation)(jnp.array(student), jnp.array(teacher), 0.2)
    assert float(value) == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(gradient, leaf.grad, atol=1e-6)
    assert float(rank_distillation(jnp.array(teacher), jnp.array(3 * teacher), 0.2)) == pytest.approx(0, abs=1e-6)


def test_the_losses_are_added_with_their_weights():
    method = Distillation(
        cosine=0.5, congen=2.0, rank=3.0, queue_size=6, teacher_temperature=0.2, student_temperature=0.4, rank_temperature=0.3
    )
    learned = started(method)
    state = state_of(learned.params, learned.queue, learned.queue_rows)
    encoded = Taught(jnp.array(normal(4, 8)), jnp.array(normal(4, 5)), jnp.array([40.0, 41.0, 42.0, 43.0]))
    loss, (metrics, _) = method.objective(learned.params, state, encoded)
    assert set(metrics) == {"cosine_loss", "congen_loss", "rank_loss"}
    mapped, rows = encoded.student @ learned.params[DENSE]["layer_0"]["kernel"], (encoded.row, learned.queue_rows)
    expected = similarity_distillation(mapped, encoded.teacher, learned.queue, rows, (0.2, 0.4))
    assert metrics["congen_loss"].item() == pytest.approx(expected.item(), rel=1e-4)
    assert metrics["rank_loss"].item() == pytest.approx(rank_distillation(encoded.student, encoded.teacher, 0.3).item(), rel=1e-4)
    parts = {name: value.item() for name, value in metrics.items()}
    assert loss.item() == pytest.approx(0.5 * parts["cosine_loss"] + 2 * parts["congen_loss"] + 3 * parts["rank_loss"], rel=1e-5)


def test_the_queue_has_the_newest_teacher_vectors_first_with_their_rows():
    method = Distillation(congen=1.0, queue_size=5)
    learned = started(method)
    vectors = jnp.array(normal(3, 5))
    state = method.post_update(state_of({}, learned.queue, learned.queue_rows), (vectors, jnp.array([7.0, 8.0, 9.0])))
    np.testing.assert_array_equal(state.queue, np.concatenate([vectors, learned.queue[:2]]))
    assert state.queue_rows.tolist() == [7, 8, 9, 0, 1]


def test_the_loss_of_held_out_sentences_ignores_their_numbers():
    """They are counted apart from the sentences of the queue."""
    method, mesh = Distillation(congen=1.0, queue_size=5), make_mesh(1, jax.devices()[:1])
    taught = {TEACHER: {"vectors": normal(5, 5), "rows": np.arange(5, dtype=np.int32)}}
    state = create_state(method, ENCODER, optax.sgd(0.1), taught, 0, mesh)
    measure = make_measure(method, ENCODER, mesh)
    batch = Batch(np.full((2, 4), 7, np.int32), np.ones((2, 4), bool), normal(2, 5))
    batches = [batch._replace(row=np.array(rows, np.int32)) for rows in ((0, 1), (8, 9))]
    assert len({float(measure(state, batch)["loss"]) for batch in batches}) == 1


class ManyExamples:
    """More rows than are numbered; the teacher's vector of a row is its index in two digits, which float32 represents exactly."""

    report = fingerprint = pad_id = max_seq_length = line = lengths = None

    def texts(self, rows, epoch):
        return []

    def __len__(self):
        return 2 * ROW_NUMBERS

    def labels(self, rows, epoch):
        return np.stack(np.divmod(rows, ROW_NUMBERS), axis=1).astype(np.float32)


@pytest.mark.parametrize("parts", [1, 200])
def test_the_first_queue_numbers_its_rows_as_batches_do(monkeypatch, parts):
    monkeypatch.setattr(setup, "gather", lambda leaf: leaf[None])
    method, examples = Distillation(congen=1.0, queue_size=50), ManyExamples()
    content = setup._from_examples(method, examples, 0, parts)[TEACHER]
    rows = content["vectors"].astype(np.int64) @ [ROW_NUMBERS, 1]
    assert (rows >= ROW_NUMBERS).any()
    assert content["rows"].tolist() == (rows * parts % ROW_NUMBERS).tolist()


def test_the_map_begins_as_the_identity_for_equal_widths_and_is_absent_without_a_loss_that_uses_it():
    np.testing.assert_array_equal(started(Distillation(queue_size=2), 8).params[DENSE]["layer_0"]["kernel"], np.eye(8))
    assert started(Distillation(queue_size=2), 5).params[DENSE]["layer_0"]["kernel"].shape == (8, 5)
    assert DENSE not in started(Distillation(queue_size=2, cosine=0.0, rank=1.0), 5).params


def test_without_w_the_dense_layers_of_the_start_stay():
    assert Distillation().dense == ("identity",)
    assert Distillation(output="student").dense == ()
    assert Distillation(output="student", cosine=0.0, rank=1.0).dense is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"teacher": " , "}, r"method\.teacher is empty: name a model"),
        ({"teacher_precision": "int8"}, r"method\.teacher_precision=int8 is not"),
        ({"cosine": 0.0}, r"method\.cosine, congen and rank are 0: give one of them a weight"),
        ({"rank": -1.0}, r"method\.rank=-1\.0 must be at least 0"),
        ({"rank_temperature": 0.0}, r"method\.rank_temperature=0\.0 must be above 0"),
        ({"queue_size": 0}, r"method\.queue_size=0 must be at least 1"),
        ({"output": "both"}, r"method\.output=both is not"),
        ({"output": "teacher", "cosine": 0.0, "rank": 1.0}, r"method\.output=teacher needs the matrix W"),
    ],
)
def test_settings_out_of_range_are_refused_in_one_line(settings, message):
    with pytest.raises(ConfigError, match=message) as caught:
        Distillation(**settings).check(ENCODER, 8)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A sentence encoder of two layers whose vectors differ, and a text."""
    folder = tmp_path_factory.mktemp("teacher")
    model = tiny_model(SENTENCES, 300, layers=2, normalize=True)
    embeddings = model.params["encoder"]["embeddings"]
    embeddings |= {"word": 20 * embeddings["word"], "position": 0 * embeddings["position"]}
    write_export(folder / "model", model)
    (folder / "corpus.txt").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    return folder


def config_of(folder, output, steps=20):
    return Config(
        Distillation(teacher=str(folder / "model"), output=output, congen=0.5, rank=0.5, queue_size=32),
        Data(files=str(folder / "corpus.txt"), tokenizer=str(folder / "model"), max_seq_length=40, batch_size=32, validation=64),
        Encoder(hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48, dropout=0.0),
        Optimizer(learning_rate=1e-2),
        Evaluation(eval_steps=10, diagnostic_sentences=32, report_sentences=0),
        Train(max_steps=steps, save_steps=0),
    )


@pytest.fixture(scope="module")
def students(teacher, monkeypatch_module):
    monkeypatch_module.setenv("JAX_SENTEMB_CACHE", str(teacher / "cache"))
    for output in ("student", "teacher"):
        assert run(config_of(teacher, output), teacher / output) == 0
    return teacher


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def load_card(folder):
    return (folder / "README.md").read_text()


def cosines(first, second):
    return (unit(first) * unit(second)).sum(1)


def test_a_student_learns_the_vectors_of_its_teacher(students):
    """The export with W is in the space of the teacher; both exports equal their work directories."""
    expected = load(students / "model")(SENTENCES)
    vectors = load(students / "teacher" / "export")(SENTENCES)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    events = [json.loads(line) for line in (students / "teacher" / "metrics.jsonl").read_text().splitlines()]
    before, *_, after = [event["agreement/cosine"] for event in events if "agreement/cosine" in event]
    assert after > before + 20
    assert 100 * cosines(vectors, expected).mean() > after - 2  # sentences of training are among these
    for output in ("student", "teacher"):
        run_vectors = load(students / output)(SENTENCES)
        np.testing.assert_allclose(run_vectors, load(students / output / "export")(SENTENCES), atol=1e-5)
    modules = json.loads((students / "teacher" / "export" / "modules.json").read_text())
    assert [module["type"].rpartition(".")[2] for module in modules] == ["Transformer", "Pooling", "Dense", "Normalize"]
    assert "Dense" not in (students / "student" / "export" / "modules.json").read_text()


def continued(students, output, **method):
    """The scores of a run from the student with W, which one step at a rate of 1e-9 leaves as it is."""
    config = config_of(students, output, steps=1)
    config.method = dataclasses.replace(config.method, **method)
    config.encoder = Encoder(weights=str(students / "teacher" / "export"), dropout=0.0)
    config.optimizer.learning_rate = 1e-9
    workdir = students / f"continued {output} {len(method)}"
    assert run(config, workdir) == 0
    return json.loads((workdir / "scores.json").read_text()), workdir


def test_a_second_distillation_continues_with_the_matrix_of_the_first(students, capsys):
    """Otherwise the start that is scored, and exported if nothing is better, is another model."""
    scores, workdir = continued(students, "teacher")
    assert "export has dense layers after its pooling, which are trained further\n" in capsys.readouterr().err
    vectors = load(students / "teacher" / "export")(SENTENCES)
    np.testing.assert_allclose(load(workdir / "export")(SENTENCES), vectors, atol=1e-4)
    assert scores["teacher"]["agreement"]["cosine"] > 50
    without, workdir = continued(students, "student")
    assert "which are trained further, but not exported\n" in capsys.readouterr().err
    assert without["teacher"]["start"] == scores["teacher"]["start"]  # of the start itself, not of step 0, which has no W
    assert load(workdir / "export")(SENTENCES).shape != vectors.shape


def test_a_teacher_of_another_width_replaces_the_matrix(students, capsys):
    _, workdir = continued(students, "teacher", teacher="words:20")
    shown = capsys.readouterr().err
    assert "which are replaced by a new matrix, since they are not one matrix as wide as the vectors of the teacher\n" in shown
    assert "the export has the weights of the start" not in shown  # the new matrix is random
    assert load(workdir / "export")(SENTENCES).shape[1] == 20


@pytest.mark.parametrize(("layers", "numbers"), [(1, (1,)), ((2,), (2,)), ("1,2", (1, 2))])
def test_train_takes_a_teacher_and_some_of_its_layers(teacher, config_of_train, layers, numbers):
    """Without a model the student is made of layers of the teacher, by the recipe distill_encoder."""
    config = config_of_train(SENTENCES, teacher=teacher / "model", layers=layers)
    assert isinstance(config.method, Distillation)
    assert config.method.teacher == config.encoder.weights == str(teacher / "model")
    assert chosen_layers(config.encoder.layers, 2) == numbers


def test_train_holds_out_a_tenth_of_a_short_list_but_a_batch(teacher, config_of_train):
    def held_out(count, **settings):
        sentences = [f"sentence {number}" for number in range(count)]
        return config_of_train(sentences, teacher=teacher / "model", layers=1, **settings).data.validation

    assert [held_out(count) for count in (20_000, 5_000, 300)] == [1000, 500, 128]
    assert held_out(300, data__validation=200) == 200


def test_agreement_selects_the_step_and_no_path_is_published(students):
    about = json.loads((students / "student" / "run.json").read_text())
    assert about["selected_by"] == "agreement/neighbours"
    card = (students / "student" / "export" / "README.md").read_text()
    assert str(students.parent) not in card
    scores = json.loads((students / "student" / "scores.json").read_text())["teacher"]
    assert scores["names"] == [students.name]  # "model" says nothing
    assert scores["sentences_per_second"]["student"] > 0
    assert (
        f"Distilled from {students.name}; on 64 held-out sentences {scores['agreement']['neighbours']:.1f} % of the ten nearest"
        in card
    )
    assert "times as many as the teacher" in card
    assert "Distilled from" not in load_card(students / "model")
    assert "on 64 held-out sentences" in (students / "student" / "report.html").read_text()
