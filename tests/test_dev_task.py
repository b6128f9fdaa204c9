"""Queries and documents, or labelled texts, as the development set of a run."""

import gzip
import json
from pathlib import Path

import pytest

from jax_sentemb import SentenceEncoder
from jax_sentemb.config import Evaluation
from jax_sentemb.data import synthetic
from jax_sentemb.errors import ConfigError, DataError, ModelFileError
from jax_sentemb.recipes import read_config
from jax_sentemb.training.dev_task import open_dev_task
from jax_sentemb.training.evaluator import evaluation_tasks
from jax_sentemb.training.run import run

CONFIG = Path(__file__).parents[1] / "configs" / "simcse.py"
FIRST, SECOND, _ = synthetic.graded_pairs(40, seed=4)


def beir_folder(folder):
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("queries", FIRST[:12]), ("corpus", [*SECOND, ""])):
        lines = (json.dumps({"_id": str(row), "text": text}) for row, text in enumerate(texts))
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = "".join(f"{row}\t{row}\t1\n" for row in range(12))
    (folder / "qrels" / "dev.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}", encoding="utf-8")
    return folder


def labelled(file):
    file.write_text("text\tsection\n" + "".join(f"{text}\t{row % 2}\n" for row, text in enumerate(FIRST)), encoding="utf-8")
    return file


def trained(workdir, **settings):
    config = read_config(f"{CONFIG}:tiny")
    config.train.max_steps, config.eval.eval_steps, config.eval.report_sentences, config.eval.data = 4, 2, 0, ""
    for name, value in settings.items():
        setattr(config.eval, name, str(value))
    assert run(config, workdir) == 0
    events = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return events, json.loads((workdir / "scores.json").read_text(encoding="utf-8"))


def test_queries_select_the_weights(tmp_path):
    folder = beir_folder(tmp_path / "beir")
    events, scores = trained(tmp_path / "run", dev=folder)
    measured = {event["step"]: event["eval/dev/nDCG@10"] for event in events if "eval/dev/nDCG@10" in event}
    assert list(measured) == [0, 2, 4]
    best = max((step for step in measured if step), key=measured.__getitem__)
    assert (scores["step"], scores["dev"]["nDCG@10"]) == (best, pytest.approx(measured[best]))
    assert json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["selected_by"] == "eval/dev/nDCG@10"
    exported = SentenceEncoder(tmp_path / "run" / "export").evaluate(retrieval=folder, resamples=0)
    assert exported["queries"] == 12
    for name, value in scores["dev"].items():
        assert exported[name] == pytest.approx(value, abs=1e-3)
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "nothing is scored" not in report
    row = f'nDCG@10</th><td role="cell" data-label="start" class="n">{measured[0]:.2f}</td>'
    assert f'{row}<td role="cell" data-label="kept" class="n">{measured[best]:.2f}</td>' in report.replace("\n", "")
    card = (tmp_path / "run" / "export" / "README.md").read_text(encoding="utf-8")
    assert "No scores" not in card
    assert f"which may have selected the weights: nDCG@10 {measured[best]:.2f}, " in card
    for source in ("export", ""):
        copy = SentenceEncoder(tmp_path / "run" / source).save(tmp_path / f"copy{source}")
        assert f"nDCG@10 {measured[best]:.2f}, " in (copy / "README.md").read_text(encoding="utf-8")


def test_labels_select_the_weights_and_replaced_ones_are_refused(tmp_path):
    file = labelled(tmp_path / "labels.tsv")
    events, scores = trained(tmp_path / "run", dev=file, label_column="section", select="dev")
    assert {f"eval/dev/{name}" for name in scores["dev"]} <= {name for event in events for name in event}
    assert set(scores["dev"]) == {"accuracy@1", "accuracy@5", "logistic", "V-measure", "ARI"}
    file.write_text(file.read_text(encoding="utf-8").replace("\t1\n", "\t2\n"), encoding="utf-8")
    config = read_config(f"{CONFIG}:tiny")
    config.train.max_steps, config.eval.eval_steps, config.eval.report_sentences, config.eval.data = 4, 2, 0, ""
    config.eval.dev, config.eval.label_column = str(file), "section"
    with pytest.raises(ModelFileError, match=r"was made from eval\.dev labels\.tsv .* scores on both cannot be compared"):
        run(config, tmp_path / "run")


def test_pairs_may_be_in_any_table(tmp_path):
    rows = [
        {"sentence1": one, "sentence2": other, "label": row % 2} for row, (one, other) in enumerate(zip(FIRST, SECOND, strict=True))
    ]
    rows.append({"sentence1": "a", "sentence2": "b", "label": None})  # is left out
    (tmp_path / "pairs.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    tasks, _, dev = evaluation_tasks(Evaluation(dev=str(tmp_path / "pairs.jsonl.gz")))
    assert tasks[dev].subsets["dev"].first == FIRST
    assert tasks[dev].subsets["dev"].gold.tolist() == [0, 1] * 20
    with pytest.raises(DataError, match=r"^eval\.dev=absent\.tsv: no such file"):
        evaluation_tasks(Evaluation(dev="absent.tsv"))


def test_mistakes_are_named(tmp_path):
    folder, file = beir_folder(tmp_path / "beir"), labelled(tmp_path / "labels.tsv")
    assert open_dev_task(Evaluation(dev=str(file)), False) is None
    assert evaluation_tasks(Evaluation(dev=str(folder))) == ({}, [], "")
    with pytest.raises(ConfigError, match=r"eval\.label_column=section needs a table with labels: eval\.dev=FILE"):
        open_dev_task(Evaluation(label_column="section"), False)
    with pytest.raises(ConfigError, match=r"eval\.label_column=section needs a table"):
        open_dev_task(Evaluation(dev=str(folder), label_column="section"), False)
    with pytest.raises(ConfigError, match=r"eval\.dev=.*beir: a cross-encoder has no embeddings"):
        open_dev_task(Evaluation(dev=str(folder)), True)
    (tmp_path / "run").mkdir()
    with pytest.raises(DataError, match=r"^eval\.dev=.*run: corpus\.jsonl is missing; the folder needs"):
        open_dev_task(Evaluation(dev=str(tmp_path / "run")), False)
    with pytest.raises(
        DataError, match=r"has no column 'part', .*: name the columns with eval\.text_column and eval\.label_column"
    ):
        open_dev_task(Evaluation(dev=str(file), label_column="part"), False)
