"""A run from a sentence encoder: its readout is kept, its step 0 may be the best, and a worse export says so."""

import dataclasses
import json
import shlex
import shutil
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import bert_config, tiny_model

from jax_sentemb.__main__ import main
from jax_sentemb.cli.program import program
from jax_sentemb.config import Config, Data, Encoder, Evaluation
from jax_sentemb.data import synthetic
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.evaluation.model_spec import load_eval_model
from jax_sentemb.formats.encode_settings import EncodeSettings, read_encode_settings
from jax_sentemb.formats.huggingface import read_encoder
from jax_sentemb.formats.model_dir import read_readout, sentence_pooling
from jax_sentemb.formats.run_dir import averaged
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.inference.encoder import SentenceEncoder
from jax_sentemb.inference.load import load
from jax_sentemb.methods.distillation import TEACHER, Distillation
from jax_sentemb.methods.is_bert import ISBERT
from jax_sentemb.methods.mirror_bert import MirrorBERT
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.methods.through_dense import ThroughDense, through_dense
from jax_sentemb.models.dense import DENSE
from jax_sentemb.provenance import EXPORT, KEY, mark
from jax_sentemb.recipes import read_config
from jax_sentemb.training import loop, starting_encoder
from jax_sentemb.training.agreement import check_judge
from jax_sentemb.training.api import train
from jax_sentemb.training.starting_encoder import (
    begins_as_start,
    dense_notes,
    judging_teacher,
    kept_settings,
    read_start,
    start_as_teacher,
    with_start,
    without_unused_dense,
    worse_than_start,
)

SENTENCES = synthetic.sentences(200, 0)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A sentence encoder: mean pooling, unit length, 40 tokens, a prompt."""
    folder = tmp_path_factory.mktemp("start")
    settings = EncodeSettings({"text": "q: "}, "text", "dot")
    write_export(folder / "model", tiny_model(SENTENCES, 300, normalize=True, settings=settings))
    (folder / "corpus.txt").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    return folder / "model"


def config_of(encoder, method, eval=None, **settings):
    return Config(method, Data(files="x.txt"), Encoder(weights=str(encoder), **settings), eval=eval or Evaluation())


def started(config):
    return with_start(config, read_start(config))


def test_pooling_and_length_of_the_directory_take_the_place_of_the_methods(encoder):
    config, notes = started(config_of(encoder, SimCSE()))
    assert (config.method.pooling, config.eval.max_seq_length) == ("mean", 40)
    assert "mean pooling" in notes[0]
    notes = started(config_of(encoder, SimCSE(pooling="mean")))[1]
    assert len(notes) == 1
    assert "has the prompt 'q: ', which is put before every sentence" in notes[0]


def test_a_method_may_ask_for_its_own_and_one_with_a_convolution_says_so(encoder):
    asked = config_of(encoder, SimCSE(), readout="method", eval=Evaluation(max_seq_length=9))
    config, notes = started(asked)
    assert config == asked
    assert len(notes) == 1
    assert "has the prompt 'q: '" in notes[0]
    config, notes = started(config_of(encoder, ISBERT()))
    assert config.method == ISBERT()
    assert "needs its own embedding" in notes[0]


def test_prompts_stay_with_any_readout_and_the_width_with_the_embedding_of_the_start(tmp_path):
    cut = EncodeSettings({"query": "q: "}, None, "dot", 8)
    write_export(tmp_path / "model", tiny_model(SENTENCES, 300, settings=cut))

    def kept(method, **settings):
        config = config_of(tmp_path / "model", method, **settings)
        return kept_settings(started(config)[0], read_start(config))

    assert kept(SimCSE()) == cut
    assert kept(Distillation(teacher="x", output="student")) == cut
    for other in (kept(SimCSE(), readout="method"), kept(ISBERT()), kept(Distillation(teacher="x"))):
        assert other == cut._replace(truncate_dim=None)
    assert kept_settings(config_of(encoder_without_pooling(tmp_path), SimCSE()), None) == EncodeSettings()


def encoder_without_pooling(folder):
    shutil.copytree(folder / "model", folder / "plain")
    (folder / "plain" / "modules.json").unlink()
    return folder / "plain"


def test_plain_encoders_and_masked_language_models_keep_what_recipes_say(encoder, tmp_path):
    plain = tmp_path / "plain"
    shutil.copytree(encoder, plain)
    (plain / "jax_sentemb.json").write_text(json.dumps({KEY: mark(EXPORT, {}), "method": "MaskedLM", "sha256": {}}))
    assert read_start(config_of(plain, SimCSE())) is None
    assert sentence_pooling(plain) == ""
    (plain / "jax_sentemb.json").unlink()
    assert sentence_pooling(plain) == "mean"
    (plain / "modules.json").unlink()
    config = config_of(plain, SimCSE(), eval=Evaluation(max_seq_length=9))
    assert started(config) == (config, [])


@pytest.mark.parametrize(("given", "kept", "own"), [(0, 40, 128), (128, 128, 128), (9, 9, 9)])
def test_a_length_that_is_given_counts_and_otherwise_that_of_the_start(encoder, given, kept, own):
    for options, length in (({}, kept), ({"readout": "method"}, own)):
        config = config_of(encoder, SimCSE(), eval=Evaluation(max_seq_length=given), **options)
        assert started(config)[0].eval.max_seq_length == length


def test_the_average_with_the_start_is_of_the_encoder_only():
    trained, loaded = {"encoder": {"a": jnp.array([4.0])}, "head": jnp.array([8.0])}, {"encoder": {"a": jnp.array([0.0])}}
    found = averaged(trained, loaded, 0.25)
    assert (float(found["encoder"]["a"][0]), float(found["head"][0])) == (3.0, 8.0)
    assert averaged(trained, loaded, 0.0) is trained


def test_worse_is_said_by_pairs_first_and_small_falls_are_not():
    pairs, halves = "eval/dev/spearman_cosine", "diagnostics/retrieval"
    assert "dev 71.00, the start 77.00" in worse_than_start({pairs: 77.0, halves: 50.0}, {pairs: 71.0, halves: 60.0}, "")[0]
    assert worse_than_start({pairs: 77.0, halves: 50.0}, {pairs: 76.95, halves: 10.0}, "") == ("", ())
    assert "split-half retrieval 10.00" in worse_than_start({halves: 50.0}, {halves: 10.0, pairs: 99.0}, pairs)[0]
    assert worse_than_start({}, {halves: 10.0}, "") == ("", ())


def test_weights_that_are_the_best_already_are_not_advised():
    pairs = "eval/dev/spearman_cosine"
    assert worse_than_start({pairs: 77.0}, {pairs: 71.0}, pairs)[1] == ("; use the start",)
    assert Setting("eval.select", "dev") in worse_than_start({pairs: 77.0}, {pairs: 71.0}, "")[1]


def test_check_advises_a_short_training_of_a_sentence_encoder_or_none(encoder, capsys):
    corpus = encoder.parent / "corpus.txt"
    assert program(main, ["jax-sentemb", "check", "--weights", str(encoder), str(corpus), "--json"]) == 0
    advice = json.loads(capsys.readouterr().out)["advice"]
    assert advice["recipe"] == "adapt"
    length = "--config.data.max_seq_length=40"  # the limit of the encoder
    expected = [f"--config.data.files={corpus}", f"--config.encoder.weights={encoder}", length]
    assert shlex.split(advice["command"])[-3:] == expected
    assert advice["steps"] == read_config("adapt").train.max_steps
    assert any(
        "encode --model" in other["command"] and "with the mean pooling" in other["text"] for other in advice["alternatives"]
    )


@pytest.fixture(scope="module")
def harmful(encoder):
    """A run whose pairs have the start's own cosines as gold: every step is worse. Selected by them, and the last weights."""
    first, second = SENTENCES[:60], SENTENCES[60:120]
    vectors = SentenceEncoder(encoder).encode([*first, *second])  # with the default prompt
    gold = (vectors[:60] * vectors[60:]).sum(axis=1)
    rows = [f"{one}\t{other}\t{score:.9f}" for one, other, score in zip(first, second, gold, strict=True)]
    pairs = encoder.parent / "pairs.tsv"
    pairs.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n", encoding="utf-8")
    runs, counted = {}, []
    patch = pytest.MonkeyPatch()
    patch.setattr(starting_encoder, "read_readout", lambda folder: counted.append(folder) or read_readout(folder))
    for select, share in (("dev", 0.0), ("last", 0.0), ("last", 0.5)):
        workdir = encoder.parent / (select if not share else "averaged")
        options = {
            "data.files": encoder.parent / "corpus.txt", "encoder.weights": encoder, "optimizer.learning_rate": 0.1,
            "optimizer.warmup_steps": 0, "train.max_steps": 2, "data.batch_size": 16, "eval.eval_steps": 1, "eval.dev": pairs,
            "eval.select": select, "eval.data": "", "eval.diagnostic_sentences": 100, "eval.report_sentences": 0,
            "train.average_with_start": share,
        }  # fmt: skip
        flags = [f"--config.{name}={value}" for name, value in options.items()]
        assert program(main, ["jax-sentemb", "train", "--config", "simcse", f"--workdir={workdir}", *flags]) == 0
        runs[workdir.name] = workdir
    patch.undo()
    assert len(counted) == len(runs)  # the directory is read once in a run: it may change or go away meanwhile
    return runs


def test_the_start_is_scored_by_its_own_readout_and_can_be_the_best(harmful, encoder):
    scores = json.loads((harmful["dev"] / "scores.json").read_text())
    assert scores["baselines"]["untrained"]["dev"] == pytest.approx(100, abs=0.1)
    assert scores["step"] == 0
    assert scores["verdict"] == "the export has the weights of the start: no later ones were better by dev"
    assert scores["verdict"] in (harmful["dev"] / "export" / "README.md").read_text()
    assert f">{encoder.parent.name}<" in (harmful["dev"] / "report.html").read_text()  # as the card names it
    same = (encoder / "model.safetensors").read_bytes()
    assert (harmful["dev"] / "export" / "model.safetensors").read_bytes() == same


def train_adapt(encoder, workdir, recipe="adapt", **settings):
    """Run a recipe for ready encoders, by default with a rate that ruins the encoder."""
    options = {
        "data.files": encoder.parent / "corpus.txt", "encoder.weights": encoder, "optimizer.learning_rate": 0.1,
        "optimizer.warmup_ratio": 0, "train.max_steps": 2, "data.batch_size": 16, "eval.eval_steps": 1, "train.save_steps": 1,
        "optimizer.lr_scheduler_type": "constant", "eval.diagnostic_sentences": 40, **settings,
    }  # fmt: skip
    flags = [f"--config.{name}={value}" for name, value in options.items()]
    assert program(main, ["jax-sentemb", "train", "--config", recipe, f"--workdir={workdir}", *flags]) == 0
    return json.loads((workdir / "scores.json").read_text())


def test_a_stronger_model_keeps_the_start_if_no_step_agrees_more_with_it(encoder, tmp_path, capsys):
    """Here it is a copy of the start, so that every other model agrees less."""
    folder, judge = tmp_path / "run", shutil.copytree(encoder, tmp_path / "model")
    scores = train_adapt(encoder, folder, **{"eval.teacher": judge, "train.max_steps": 1})
    verdict = "the export has the weights of the start: no later ones were better by agreement with the teacher"
    assert (scores["step"], scores["verdict"], scores["changes"]) == (0, verdict, {})
    teacher = scores["teacher"]
    assert (teacher["names"], teacher["is_distilled"], teacher["sentences"]) == ([tmp_path.name], False, 200)
    assert teacher["agreement"]["neighbours"] == teacher["start"] == pytest.approx(100, abs=0.5)
    assert f"warning: {verdict}" in capsys.readouterr().err
    scores = train_adapt(encoder, folder, **{"eval.teacher": judge})  # continues
    assert (scores["step"], scores["verdict"]) == (0, verdict)
    card = (folder / "export" / "README.md").read_text()
    assert (
        f"Compared with a stronger model: {tmp_path.name}; on 200 sentences 100.0 % of the ten nearest neighbours are the same"
        in card
    )
    for text in (card, (folder / "report.html").read_text(), capsys.readouterr().err):
        assert verdict in text
    assert (folder / "export" / "model.safetensors").read_bytes() == (encoder / "model.safetensors").read_bytes()


def test_without_labels_the_run_shows_which_neighbours_changed(encoder, tmp_path, capsys):
    folder = tmp_path / "run"
    scores = train_adapt(encoder, folder)
    changes = scores["changes"]
    assert (scores["step"], changes["sentences"], changes["is_judged"]) == (2, 40, False)
    assert 0.1 < changes["changed"] <= 1
    printed = capsys.readouterr().err
    share = f"The nearest sentence changed for {changes['changed']:.1%} of 40 sentences"
    assert f"changes   {share}" in printed
    assert 1 <= printed.count("    before: ") == printed.count("    after:  ") <= 3
    assert "cannot tell whether the export is better than the start" in printed
    assert "--config.eval.teacher=MODEL" in printed
    sentence = f"{share}; without labels or a stronger model nobody can tell whether for the better."
    assert sentence in (folder / "export" / "README.md").read_text()
    assert sentence in (folder / "report.html").read_text()


def test_labelled_pairs_keep_the_start_in_the_recipe_for_ready_encoders(harmful, encoder, tmp_path):
    scores = train_adapt(encoder, tmp_path / "run", **{"eval.dev": encoder.parent / "pairs.tsv"})
    assert (scores["step"], scores["changes"]) == (0, {})
    assert scores["verdict"] == "the export has the weights of the start: no later ones were better by dev"


def test_in_python_the_teacher_of_a_recipe_without_one_judges(encoder, config_of_train):
    config = config_of_train(SENTENCES, encoder, recipe="adapt", teacher="stronger")
    assert (config.encoder.weights, config.eval.teacher) == (str(encoder), "stronger")


def test_scores_have_the_default_prompt_too(encoder):
    model = load(encoder)
    scored, plain = load_eval_model(str(encoder), set).fit([])(SENTENCES[:4]), model.embedder(model.params, SENTENCES[:4])
    np.testing.assert_allclose(scored, SentenceEncoder(encoder).encode(SENTENCES[:4]), atol=1e-6)
    assert np.abs(scored - plain).max() > 1e-3


def test_an_export_that_is_worse_says_so_everywhere(harmful):
    verdict = json.loads((harmful["last"] / "scores.json").read_text())["verdict"]
    assert verdict.startswith("the export is worse than its start: dev ")
    for file in ("report.html", "export/README.md"):
        assert "worse than its start" in (harmful["last"] / file).read_text()
    copy = SentenceEncoder(harmful["last"] / "export").save(harmful["last"] / "copy")
    assert "worse than its start" in (copy / "README.md").read_text()


def test_the_export_keeps_unit_length_and_prompts(harmful, encoder):
    export = harmful["last"] / "export"
    assert read_readout(export) == read_readout(encoder)
    assert read_encode_settings(export) == read_encode_settings(encoder)


def test_every_part_that_continues_a_loaded_one_is_averaged():
    trained = {name: {"kernel": np.full(2, 3.0)} for name in ("encoder", "cnn", "pooler", "token_head", "classifier", "dense")}
    loaded = {name: {"kernel": np.full(2, 1.0)} for name in ("encoder", "cnn", "pooler", "classifier", "dense", "other")}
    mixed = averaged(trained, loaded, 0.25)
    assert {name: part["kernel"][0] for name, part in mixed.items()} == {
        "encoder": 2.5, "cnn": 2.5, "pooler": 2.5, "token_head": 3.0, "classifier": 3.0, "dense": 3.0,
    }  # fmt: skip
    assert averaged(trained, loaded, 0) is trained


def test_an_average_with_the_start_is_exported(harmful, encoder):
    before, last, average = (
        read_encoder(path)[1] for path in (encoder, harmful["last"] / "export", harmful["averaged"] / "export")
    )
    expected = jax.tree.map(lambda one, other: (one + other) / 2, before, last)
    jax.tree.map(lambda found, wanted: np.testing.assert_allclose(found, wanted, atol=1e-6), average, expected)


def test_a_run_and_each_export_of_it_are_the_average_with_the_start(harmful, tmp_path, capsys):
    run = shutil.copytree(harmful["averaged"], tmp_path / "run")
    trained = load(str(run / "export")).fingerprint()
    assert load(str(run)).fingerprint() == trained
    for step in ("best", "last", "2"):
        assert program(main, ["jax-sentemb", "export", f"--workdir={run}", f"--step={step}", f"--output={tmp_path / step}"]) == 0
        assert load(str(tmp_path / step)).fingerprint() == trained
    (run / "start" / "0" / "manifest.json").unlink()
    capsys.readouterr()
    assert program(main, ["jax-sentemb", "export", f"--workdir={run}", f"--output={tmp_path / 'other'}"]) == 4
    assert f"restore {run / 'start' / '0'} from a copy" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_an_interrupted_call_returns_the_average_with_the_start(encoder, monkeypatch):
    report = loop.Metrics.add

    def interrupted(self, step, metrics):
        report(self, step, metrics)
        if step == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(loop.Metrics, "add", interrupted)
    settings = {"max_steps": 4, "learning_rate": 0.1, "warmup_steps": 0, "eval_steps": 0, "diagnostic_sentences": 100}
    found = train(SENTENCES, model=str(encoder), recipe="simcse", average_with_start=0.999, data__batch_size=16, **settings)
    texts = SENTENCES[:10]
    assert np.abs(found.encode(texts) - SentenceEncoder(encoder).encode(texts)).max() < 0.02


def beir_folder(folder):
    """Twelve sentences as queries; the first half of each finds it among all."""
    (folder / "qrels").mkdir(parents=True)
    texts = {"queries": [sentence[: len(sentence) // 2] for sentence in SENTENCES[:12]], "corpus": SENTENCES}
    for name, lines in texts.items():
        records = (json.dumps({"_id": str(row), "text": text}) for row, text in enumerate(lines))
        (folder / f"{name}.jsonl").write_text("\n".join(records) + "\n", encoding="utf-8")
    (folder / "qrels" / "dev.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"{row}\t{row}\t1\n" for row in range(12)), encoding="utf-8"
    )
    return folder


def test_training_agreement_and_scores_read_texts_with_the_prompts_of_their_roles(tmp_path):
    """A student of all layers of its teacher is the teacher if both read the same text: it has no loss and agrees fully."""
    prompts = EncodeSettings({"query": "a man who plays ", "passage": "the ", "other": "dogs "}, "other")
    write_export(tmp_path / "model", tiny_model(SENTENCES, 300, normalize=True, settings=prompts))
    (tmp_path / "corpus.txt").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    folder = tmp_path / "run"
    options = {
        "method.teacher": tmp_path / "model", "encoder.layers": "1,", "encoder.dropout": 0.0, "data.validation": 40,
        "eval.dev": beir_folder(tmp_path / "beir"), "train.max_steps": 1, "data.max_seq_length": 40,
        "optimizer.learning_rate": 1e-9,
    }  # fmt: skip
    scores = train_adapt(tmp_path / "model", folder, recipe="distill_encoder", **options)
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [record["train/cosine_loss"] for record in records if "train/cosine_loss" in record]
    assert losses == [pytest.approx(0, abs=1e-5)]  # the vectors of the teacher are float16
    agreement = scores["teacher"]["agreement"]
    assert (agreement["neighbours"], agreement["cosine"]) == (pytest.approx(100, abs=1), pytest.approx(100, abs=0.1))
    exported = SentenceEncoder(folder / "export")
    assert exported.prompts == prompts.prompts
    measured = exported.evaluate(retrieval=tmp_path / "beir", resamples=0)
    assert scores["dev"]["nDCG@10"] == pytest.approx(measured["nDCG@10"], abs=1e-3)
    exported.prompts = {"other": "dogs "}
    assert abs(exported.evaluate(retrieval=tmp_path / "beir", resamples=0)["nDCG@10"] - measured["nDCG@10"]) > 1


def test_a_run_scores_the_numbers_that_its_export_keeps(tmp_path):
    """A student of all layers of its teacher, whose map is the identity; only the first 8 numbers are exported."""
    cut = EncodeSettings(truncate_dim=8)
    write_export(tmp_path / "teacher", tiny_model(SENTENCES, 300, normalize=True))
    write_export(tmp_path / "model", tiny_model(SENTENCES, 300, normalize=True, settings=cut))
    (tmp_path / "corpus.txt").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    options = {
        "method.teacher": tmp_path / "teacher", "encoder.layers": "1,", "encoder.dropout": 0.0, "data.validation": 40,
        "eval.dev": beir_folder(tmp_path / "beir"), "train.max_steps": 1, "data.max_seq_length": 40,
        "optimizer.learning_rate": 1e-9, "method.output": "student",
    }  # fmt: skip
    scores = train_adapt(tmp_path / "model", tmp_path / "run", recipe="distill_encoder", **options)
    exported = SentenceEncoder(tmp_path / "run" / "export")
    assert exported.encode(SENTENCES[:2]).shape == (2, 8)
    measured = exported.evaluate(retrieval=tmp_path / "beir", resamples=0)
    assert scores["dev"]["nDCG@10"] == pytest.approx(measured["nDCG@10"], abs=1e-3)
    agreement = scores["teacher"]["agreement"]
    assert agreement["cosine"] == pytest.approx(100, abs=0.1)  # of all numbers, which the map to the teacher reads
    assert agreement["pairs"] < 99.9


def test_the_start_is_known_by_any_path(encoder, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(encoder)
    monkeypatch.chdir(encoder.parent)
    for name in (f"{encoder}/", "model", "./model", str(tmp_path / "link")):
        assert start_as_teacher(distilled(encoder, f"words:16,{name}")) == name
        with pytest.raises(ConfigError, match=r"is the start, which would always win"):
            check_judge(config_of(encoder, SimCSE(), eval=Evaluation(teacher=name)))


def test_a_student_that_is_its_teacher_is_told_before_anything_is_read(encoder):
    config = dataclasses.replace(distilled(encoder, str(encoder)), eval=Evaluation(select="agreement"))
    with pytest.raises(
        ConfigError, match=r"is the start itself, .*: give eval\.teacher=MODEL to name a stronger model, encoder\.layers=3 to"
    ):
        check_judge(config)
    config.encoder.layers = "1,"
    check_judge(config)


def distilled(weights, teacher, **encoder):
    return config_of(weights, Distillation(teacher=teacher, cosine=0.0, rank=1.0, output="student"), **encoder)


def test_the_start_can_be_a_teacher(encoder, tmp_path):
    config, _ = started(distilled(encoder, "start,start,words:16"))
    assert config.method.teacher == f"{encoder},{encoder},words:16"
    plain = tmp_path / "plain"
    shutil.copytree(encoder, plain)
    (plain / "modules.json").unlink()
    config, notes = started(distilled(plain, "words:16,start"))
    assert config.method.teacher == f"words:16,{plain}@mean"
    assert notes == [f"{plain}@mean is not a sentence encoder, so as its own teacher it teaches little; start from one"]
    notes = started(distilled(encoder, str(encoder), readout="method"))[1]
    assert [note for note in notes if "prompt" not in note] == []  # it is a sentence encoder
    with pytest.raises(ConfigError, match=r"means the encoder before the training: give encoder\.weights"):
        started(distilled("", "start"))


def test_the_start_as_teacher_is_no_stronger_model(encoder):
    for teacher, name in (
        ("start,words:16", "start"), (f"{encoder}@mean", f"{encoder}@mean"), (f"other,{encoder}", str(encoder)),
    ):  # fmt: skip
        config = distilled(encoder, teacher)
        assert start_as_teacher(config) == name
        assert judging_teacher(config) is None
    for config in (config_of(encoder, SimCSE()), distilled(encoder, "other"), distilled(encoder, str(encoder), layers="1")):
        assert not start_as_teacher(config)
        assert judging_teacher(config) is (config.method if isinstance(config.method, Distillation) else None)


@pytest.fixture(scope="module")
def with_dense(tmp_path_factory):
    """A sentence encoder with a dense layer after its pooling."""
    folder = tmp_path_factory.mktemp("dense")
    model = tiny_model(SENTENCES, 300, normalize=True, dense=("tanh",))
    kernel = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    model.params[DENSE] = {"layer_0": {"kernel": kernel, "bias": np.linspace(-1, 1, 16, dtype=np.float32)}}
    write_export(folder / "model", model)
    (folder / "corpus.txt").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    return folder / "model"


def test_a_start_with_dense_layers_has_nothing_to_learn_from_itself(with_dense, tmp_path):
    """The gradient of a ranking is 0 where student and teacher have the same vectors, so both are read after these layers."""
    options = {"method.teacher": "start", "encoder.dropout": 0.0, "train.max_steps": 1, "optimizer.learning_rate": 1e-9}
    train_adapt(with_dense, tmp_path / "run", recipe="adapt_words", **options)
    records = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    norms = [record["train/grad_norm"] for record in records if "train/grad_norm" in record]
    assert norms == [pytest.approx(0, abs=1e-2)]  # the teacher's vectors are float16


def test_the_loss_reads_the_dense_layers_of_a_start_unless_a_head_or_a_queue_has_another_width(with_dense):
    for method in (MirrorBERT(), Distillation(cosine=0.0, rank=1.0, output="student")):
        assert isinstance(through_dense(method, ("tanh",)), ThroughDense)
        assert through_dense(method, ()) is method
    for method in (SimCSE(), Distillation(), ISBERT()):
        assert through_dense(method, ("tanh",)) is method
    for method, place in ((MirrorBERT(), "their output"), (SimCSE(), "the embedding before them")):
        config, _ = started(config_of(with_dense, method))
        (note,) = dense_notes(config, read_start(config), {DENSE: {}})
        assert note.endswith(f"kept as they are; the loss is on {place}")


def test_only_a_single_matrix_as_wide_as_the_teacher_is_trained_further(with_dense):
    """`with_dense` has a layer with tanh, which a distillation replaces."""
    config, _ = started(config_of(with_dense, Distillation()))
    start = read_start(config)
    linear = start._replace(dense=("identity",))
    for parts, width, begun, kept in [
        ({"kernel": (16, 5)}, 5, linear, True),
        ({"kernel": (16, 5), "bias": (5,)}, 5, linear, False),
        ({"kernel": (16, 5)}, 6, linear, False),
        ({"kernel": (16, 5)}, 5, start, False),
    ]:
        layer = {name: np.zeros(shape, np.float32) for name, shape in parts.items()}
        loaded = {TEACHER: {"vectors": np.zeros((1, width), np.float32)}, DENSE: {"layer_0": layer}}
        used = without_unused_dense(config, begun, loaded)
        assert (DENSE in used) == kept
        assert begins_as_start(config, begun, bert_config(hidden_size=16), used) == kept
        assert dense_notes(config, begun, used)[0].endswith("trained further") == kept


def test_the_recipe_with_words_moves_texts_with_the_same_rare_words_together(encoder, tmp_path, capfd):
    """The encoder of the tests has random weights, so its neighbours share few words."""
    options = {
        "optimizer.learning_rate": 1e-3,
        "method.teacher": "start,words:1024",
        "data.batch_size": 32,
        "train.max_steps": 20,
        "eval.diagnostic_sentences": 200,
    }
    train_adapt(encoder, tmp_path / "run", recipe="adapt_words", **options)
    assert "The nearest sentence changed for" in capfd.readouterr().err
    words = [{*sentence.split()} for sentence in SENTENCES[:200]]
    same = np.array([[len(one & other) / len(one | other) for other in words] for one in words])
    rows = np.triu_indices(len(same), 1)

    def agreement(model):
        vectors = SentenceEncoder(model).encode(SENTENCES[:200])
        return np.corrcoef((vectors @ vectors.T)[rows], same[rows])[0, 1]

    assert agreement(tmp_path / "run" / "export") > agreement(encoder) + 0.1
