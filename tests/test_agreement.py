"""Agreement of a student with its teacher, and the sentences on which it is measured."""

import numpy as np
import pytest
import scipy

from jax_sentemb.config import Config, Data, Encoder
from jax_sentemb.errors import ConfigError, DataError, NumericsError
from jax_sentemb.evaluation.agreement import agreement
from jax_sentemb.methods.cross_encoder import CrossEncoder
from jax_sentemb.methods.distillation import Distillation
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.training.agreement import Agreement, HeldOut, check_judge, held_out_sentences

NO_SAMPLE = None  # no sentences of the corpus are read
RANDOM = np.random.default_rng(0)


def test_a_rotated_and_scaled_teacher_agrees_fully():
    teacher = RANDOM.normal(size=(40, 6))
    turned = teacher @ np.linalg.qr(RANDOM.normal(size=(6, 6)))[0] * RANDOM.uniform(0.5, 2, (40, 1))
    values = agreement(turned.astype(np.float32), teacher.astype(np.float32), (3 * teacher).astype(np.float32))
    assert values == pytest.approx({"pairs": 100, "neighbours": 100, "cosine": 100}, abs=1e-3)


def test_the_measures_are_those_of_a_plain_computation():
    student, teacher = (RANDOM.normal(size=(25, 4)).astype(np.float32) for _ in range(2))

    def cosines(vectors):
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit @ unit.T

    ours, theirs = cosines(student), cosines(teacher)
    pairs = [(i, j) for i in range(25) for j in range(i)]
    expected = scipy.stats.spearmanr([ours[pair] for pair in pairs], [theirs[pair] for pair in pairs]).statistic
    shared = [
        len(
            {*sorted(set(range(25)) - {i}, key=lambda j: -ours[i, j])[:10]}
            & {*sorted(set(range(25)) - {i}, key=lambda j: -theirs[i, j])[:10]}
        )
        for i in range(25)
    ]
    values = agreement(student, teacher, None)
    assert values == pytest.approx({"pairs": 100 * expected, "neighbours": 10 * np.mean(shared)}, abs=1e-3)


def test_a_collapsed_student_has_no_correlation_and_one_with_nan_is_refused():
    teacher = RANDOM.normal(size=(12, 3)).astype(np.float32)
    assert agreement(np.zeros((12, 2), np.float32), teacher, None)["pairs"] == 0
    with pytest.raises(NumericsError, match="1 of 12 embeddings are not finite"):
        agreement(np.where(np.arange(12)[:, None] == 3, np.nan, teacher), teacher, None)


def config(method, **settings):
    found = Config(method, Data(files="x.txt"), encoder=Encoder(weights="ready"))
    for name, value in settings.items():
        setattr(found.eval, name, value)
    return found


def test_other_text_is_read_with_the_vectors_of_the_teacher(tmp_path):
    (tmp_path / "other.txt").write_text("".join(f"word{number} word{number + 1}\n" for number in range(30)))
    held_out = held_out_sentences(
        config(Distillation(teacher="words:19"), held_out=str(tmp_path / "other.txt")), None, [], 1, NO_SAMPLE
    )
    assert (len(held_out.sentences), held_out.vectors.shape) == (30, (30, 19))
    assert held_out.vectors[3] @ held_out.vectors[4] > held_out.vectors[3] @ held_out.vectors[9]  # a word in common
    assert held_out_sentences(config(Distillation()), None, [], 1, NO_SAMPLE) is None
    assert held_out_sentences(config(SimCSE()), None, [], 1, NO_SAMPLE) is None


def test_held_out_text_without_a_teacher_or_without_a_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"held_out=a\.txt: SimCSE has no teacher; name one with eval\.teacher=MODEL"):
        held_out_sentences(config(SimCSE(), held_out="a.txt"), None, [], 1, NO_SAMPLE)
    adapted = config(Distillation(teacher="start,words:19"), held_out="a.txt")
    adapted.encoder.weights = "model"
    with pytest.raises(ConfigError, match=r"held_out=a\.txt: the start is among the teachers; name one with eval\.teacher=MODEL"):
        held_out_sentences(adapted, None, [], 1, NO_SAMPLE)
    with pytest.raises(ConfigError, match=r"eval\.held_out=a\.txt: method\.teacher=.*npy has vectors of the training text only"):
        held_out_sentences(config(Distillation(teacher=str(tmp_path / "x.npy")), held_out="a.txt"), None, [], 1, NO_SAMPLE)
    with pytest.raises(DataError, match=r"^eval\.held_out="):
        held_out_sentences(config(Distillation(teacher="words:19"), held_out=str(tmp_path / "none.txt")), None, [], 1, NO_SAMPLE)
    (tmp_path / "one.txt").write_text("a sentence\n")
    with pytest.raises(DataError, match=r"^eval\.held_out=.*one\.txt has one sentence, which cannot be compared with others"):
        held_out_sentences(config(Distillation(teacher="words:19"), held_out=str(tmp_path / "one.txt")), None, [], 1, NO_SAMPLE)


def test_a_teacher_that_was_removed_during_the_run_costs_only_its_speed(tmp_path, capsys):
    teacher = RANDOM.normal(size=(12, 3)).astype(np.float32)
    held_out = HeldOut([f"sentence {number}" for number in range(12)], teacher)
    method = Distillation(teacher=str(tmp_path / "gone"))
    facts = Agreement(config(method), held_out, lambda params, sentences: teacher).summary({}, {"agreement/neighbours": 40.0})
    assert facts["agreement"]["neighbours"] == pytest.approx(100)
    assert (facts["names"], facts["start"], facts["is_distilled"]) == (["gone"], 40.0, True)
    assert "sentences_per_second" not in facts
    assert "the speed of the teacher is not measured: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("method", "judge", "problem"),
    [
        (Distillation(), "model", r"^eval\.teacher=model: the method already has a teacher that judges it; leave this one out"),
        (CrossEncoder(), "model", "a cross-encoder has no embeddings to compare"),
        (SimCSE(), "vectors.npy", r"^eval\.teacher=vectors\.npy is a file of vectors; name the model"),
        (SimCSE(), "words:1024", r"^eval\.teacher=words:1024 is not a model; name one that is stronger than the start"),
        (SimCSE(), "start", r"^eval\.teacher=start is not a model"),
        (SimCSE(), "/no/such/model", r"^eval\.teacher=/no/such/model"),
        (SimCSE(), "ready/", r"^eval\.teacher=ready/ is the start, which would always win; name a stronger model"),
    ],
)
def test_a_judge_is_a_model_of_a_method_without_a_teacher(method, judge, problem):
    with pytest.raises(ConfigError, match=problem):
        check_judge(config(method, teacher=judge))
