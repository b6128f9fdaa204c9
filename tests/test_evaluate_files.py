"""jax-sentemb evaluate on the files of a user: pairs, a folder in BEIR's layout and labelled texts."""

import csv
import gzip
import json
import shutil

import numpy as np
import pytest
import scipy
from filelock import FileLock
from tiny_models import tiny_model

import jax_sentemb
from jax_sentemb import SentenceEncoder
from jax_sentemb.cli.evaluate import main
from jax_sentemb.cli.program import program
from jax_sentemb.data import synthetic
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.evaluation.measures import values_of
from jax_sentemb.evaluation.model_spec import load_eval_model, parse_spec, with_trained_widths
from jax_sentemb.evaluation.pair_task import PairTask, read_pairs
from jax_sentemb.evaluation.retrieval_task import RetrievalTask
from jax_sentemb.evaluation.widths import trained_widths
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.inference import encoded_texts
from jax_sentemb.system import terminal

FIRST, SECOND, GOLD = synthetic.graded_pairs(60, seed=3)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two encoders with other weights."""
    folder = tmp_path_factory.mktemp("models")
    for name, layers in (("one", 1), ("two", 2)):
        write_export(folder / name, tiny_model([*FIRST, *SECOND], 300, layers=layers))
    return folder / "one", folder / "two"


@pytest.fixture
def beir(tmp_path):
    """Ten queries on 60 documents, with two grades. Query q9 has no answer, and query q10 is not judged."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{row}", "title": f"note {row}", "text": text} for row, text in enumerate(SECOND)]
    documents[3] |= {"title": None}
    del documents[4]["title"]
    write_lines(folder / "corpus.jsonl", map(json.dumps, documents))
    write_lines(folder / "queries.jsonl", (json.dumps({"_id": f"q{row}", "text": FIRST[row]}) for row in range(11)))
    rows = [f"q{row}\td{row}\t{1 + row % 2}" for row in range(9)] + ["q0\td20\t1", "q1\tabsent\t1", "q9\td1\t0"]
    write_lines(folder / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", *rows])
    return folder


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def pairs_file(path, scores, column="score"):
    rows = zip(FIRST, SECOND, scores, strict=True)
    return write_lines(path, [f"sentence1\tsentence2\t{column}", *("\t".join(map(str, row)) for row in rows)])


def exact_cosines(model):
    """Cosines of the pairs in float64."""
    encoder = SentenceEncoder(model)
    first, second = (encoder.encode(side).astype(np.float64) for side in (FIRST, SECOND))
    return (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)


def run(*arguments):
    return program(main, ["evaluate", *map(str, arguments)])


@pytest.mark.parametrize("task", ["retrieval", "labels"])
def test_a_comparison_of_vectors_shows_its_progress(models, beir, tmp_path, monkeypatch, task):
    """A search among many texts takes longer than their encoding by a small model."""
    labels = write_lines(tmp_path / "labels.tsv", ["text\tlabel", *(f"{text}\t{row % 2}" for row, text in enumerate(SECOND))])
    monkeypatch.setattr(terminal.Progress, "show", lambda progress, done, note="": shown.append((progress.label, done)))
    shown = []
    assert run(models[0], f"--{task}", {"retrieval": beir, "labels": labels}[task], "--resamples", 0) == 0
    counts = [done for label, done in shown if label == f"one: {task}"]
    assert counts[0] == 0
    assert max(counts) > 0


def test_each_width_that_was_trained_has_a_row(models, tmp_path):
    folder = tmp_path / "trained"
    shutil.copytree(models[0], folder)
    (folder / "jax_sentemb.json").unlink(missing_ok=True)
    (folder / "model.json").write_text(json.dumps({"training": {"matryoshka": [4, 8]}}), encoding="utf-8")
    spec = parse_spec(str(folder))
    settings = {"training": {"matryoshka": [4, 8]}, "encode_settings": {"truncate_dim": 8}}
    (folder / "cut").mkdir()
    (folder / "cut" / "model.json").write_text(json.dumps(settings), encoding="utf-8")
    assert trained_widths(folder / "cut") == (4,)
    assert [(cut.label, cut.width) for cut in with_trained_widths(spec)] == [("trained", None), ("trained+4", 4), ("trained+8", 8)]
    assert [cut.width for cut in with_trained_widths(spec, {"trained", "trained+8"})] == [None, 4]
    assert with_trained_widths(parse_spec(f"{folder}@6"))[0].width == 6
    assert len(with_trained_widths(parse_spec(f"{folder}@6"))) == len(with_trained_widths(parse_spec(str(models[0])))) == 1


@pytest.mark.parametrize("folder", ["export", "model"])
def test_the_exports_of_two_runs_have_the_names_of_the_runs(folder, tmp_path):
    exports = [tmp_path / name / folder for name in ("one", "two")]
    for export in exports:
        export.mkdir(parents=True)
    assert [parse_spec(str(export)).label for export in exports] == ["one", "two"]
    assert parse_spec(f"{exports[0]}@mean+32").label == "one+mean+32"


def test_a_width_takes_the_place_of_that_of_the_directory(models, tmp_path):
    folder = tmp_path / "cut"
    shutil.copytree(models[0], folder)
    (folder / "jax_sentemb.json").unlink(missing_ok=True)
    file = folder / "config_sentence_transformers.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | {"truncate_dim": 4}), encoding="utf-8")
    given, wider = (load_eval_model(spec, set) for spec in (str(folder), f"{folder}@6"))
    assert [model.fit(FIRST)(FIRST)[:, : model.width].shape[1] for model in (given, wider)] == [4, 6]


def test_retrieval_of_two_models_and_bm25(models, beir, tmp_path, capsys):
    pytest.importorskip("bm25s")
    pytrec_eval = pytest.importorskip("pytrec_eval")
    assert run(*models, "--retrieval", beir, "--output", tmp_path / "out", "--resamples", 30) == 0
    shown = capsys.readouterr()
    assert "1 of 11 queries have no judgements: they are left out" in shown.err
    assert "1 queries have no relevant document: they score 0, as in trec_eval" in shown.err
    assert "1 judgements name documents that the corpus does not have" in shown.err
    content = json.loads((tmp_path / "out" / "retrieval.json").read_text(encoding="utf-8"))
    assert list(content["scores"]) == ["one", "two", "BM25", "one + BM25", "two + BM25"]
    assert content["items"] == 10
    with (tmp_path / "out" / "retrieval.csv").open(encoding="utf-8") as file:
        rows = {(row["model"], row["measure"]): row for row in csv.DictReader(file)}
    encoder = SentenceEncoder(models[1])
    joined = [f"note {row} {text}" if row not in (3, 4) else text for row, text in enumerate(SECOND)]
    scores = encoder.similarity(encoder.encode(FIRST[:10]), encoder.encode(joined))
    results = {f"q{q}": {f"d{d}": float(scores[q, d]) for d in range(60)} for q in range(10)}
    qrels = {f"q{row}": {f"d{row}": 1 + row % 2} for row in range(9)} | {"q9": {"d1": 0}}
    qrels["q0"]["d20"] = qrels["q1"]["absent"] = 1
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.100", "map"}).evaluate(results).values()
    for measure, name in (("nDCG@10", "ndcg_cut_10"), ("recall@100", "recall_100"), ("MAP", "map")):
        value = float(rows["two", measure]["value"])
        assert value == pytest.approx(100 * np.mean([each[name] for each in theirs]), abs=1e-4)
        first = float(rows["one", measure]["value"])
        assert float(rows["two", measure]["difference"]) == pytest.approx(value - first, abs=1e-9)
        assert float(rows["two", measure]["low"]) <= value <= float(rows["two", measure]["high"])
        assert rows["one", measure]["difference"] == ""
    assert "Difference to one on the same queries" in shown.out


def test_a_query_that_is_a_document_does_not_retrieve_itself(models, tmp_path, caplog):
    pytest.importorskip("bm25s")
    texts, folders = [*FIRST[:12], *SECOND[:12]], []
    for prefix in ("d", "q"):  # ids of the queries: those of their documents, and others
        folder = tmp_path / prefix
        (folder / "qrels").mkdir(parents=True)
        documents = ({"_id": f"d{row}", "title": "note", "text": text} for row, text in enumerate(texts))
        write_lines(folder / "corpus.jsonl", map(json.dumps, documents))
        write_lines(folder / "queries.jsonl", (json.dumps({"_id": f"{prefix}{row}", "text": texts[row]}) for row in range(12)))
        rows = (f"{prefix}{row}\td{row + 12}\t1" for row in range(12))
        write_lines(folder / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", *rows])
        folders.append(folder)
    encoder = SentenceEncoder(models[0])
    measured = encoder.evaluate(retrieval=folders[0], resamples=0)
    assert "12 queries are documents too (the same id and text), which they do not retrieve" in caplog.text
    scores = encoder.similarity(encoder.encode(texts[:12]), encoder.encode([f"note {text}" for text in texts]))
    rank = [1 + sum(scores[q, d] > scores[q, q + 12] for d in range(24) if d != q) for q in range(12)]
    assert measured["MRR@10"] == pytest.approx(100 * np.mean([1 / each if each <= 10 else 0 for each in rank]), abs=1e-3)
    assert encoder.evaluate(retrieval=folders[1], resamples=0)["MRR@10"] < measured["MRR@10"]


def test_the_same_command_continues_and_other_texts_are_refused(models, beir, tmp_path, capsys, monkeypatch):
    arguments = (models[0], "--retrieval", beir, "--no-bm25", "--output", tmp_path / "out", "--resamples", 0)
    monkeypatch.setattr(encoded_texts, "ROWS_PER_SHARD", 16)
    real, encoded = SentenceEncoder.encode, []

    def until_killed(self, sentences, *options, **keywords):
        if len(encoded) == 3:
            raise KeyboardInterrupt
        encoded.append(len(sentences))
        return real(self, sentences, *options, **keywords)

    monkeypatch.setattr(SentenceEncoder, "encode", until_killed)
    assert run(*arguments) == 130
    assert encoded == [10, 16, 16]
    monkeypatch.setattr(SentenceEncoder, "encode", lambda self, *a, **k: encoded.append(len(a[0])) or real(self, *a, **k))
    assert run(*arguments) == 0
    assert encoded == [10, 16, 16, 16, 12]
    assert run(*arguments) == 0
    assert len(encoded) == 5
    write_lines(beir / "queries.jsonl", [json.dumps({"_id": "q1", "text": "another"})])
    capsys.readouterr()
    assert run(*arguments) == 2
    assert "was made from corpus queries.jsonl" in capsys.readouterr().err


def test_a_model_that_cannot_be_loaded_loses_no_result_of_another(models, tmp_path, capsys):
    pairs = pairs_file(tmp_path / "pairs.tsv", GOLD)
    assert run(models[0], "./absent", models[1], "--pairs", pairs, "--resamples", 0, "--output", tmp_path / "out") == 2
    assert "error: absent: --model ./absent: no such directory" in capsys.readouterr().err
    content = json.loads((tmp_path / "out" / "pairs.json").read_text(encoding="utf-8"))
    assert {"one", "two"} <= set(content["models"])


def test_pairs_with_scores(models, tmp_path, capsys):
    file = pairs_file(tmp_path / "pairs.tsv", GOLD)
    assert run(models[0], "--pairs", file, "--output", tmp_path / "out", "--resamples", 20) == 0
    scores = json.loads((tmp_path / "out" / "pairs.json").read_text(encoding="utf-8"))["scores"]["one"]
    cosines = exact_cosines(models[0])
    assert scores["Spearman"]["value"] == pytest.approx(100 * scipy.stats.spearmanr(cosines, GOLD).statistic, abs=1e-3)
    assert scores["Pearson"]["value"] == pytest.approx(100 * scipy.stats.pearsonr(cosines, GOLD).statistic, abs=1e-3)
    low, high = scores["Spearman"]["interval"]
    assert low < scores["Spearman"]["value"] < high
    shown = capsys.readouterr().out
    assert "Pairs: 60 pairs, scores, pairs.tsv" in shown
    assert sum(line.lstrip().startswith("tf-idf") for line in shown.splitlines()) == 2  # its scores, and its difference


def test_pairs_show_what_tf_idf_reaches(tmp_path):
    vectorizer = pytest.importorskip("sklearn.feature_extraction.text").TfidfVectorizer
    task = PairTask("--pairs", str(pairs_file(tmp_path / "pairs.tsv", GOLD)))
    ((name, scored),) = task.baselines()
    texts = list(dict.fromkeys(line for pair in zip(FIRST, SECOND, strict=True) for line in pair))
    counts = vectorizer(token_pattern=r"\w+", norm=None, use_idf=False).fit(texts)
    has_word = counts.transform(texts).toarray() > 0
    rarity = np.log((1 + len(texts)) / (1 + has_word.sum(axis=0)))
    first, second = (counts.transform(side).toarray() * rarity for side in (FIRST, SECOND))
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    assert name == "tf-idf"
    assert values_of(scored)["Spearman"] == pytest.approx(100 * scipy.stats.spearmanr(cosines, GOLD).statistic, abs=1e-6)


def test_words_that_tell_no_pair_from_another_have_no_row(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("sentence1\tsentence2\tscore\none\ttwo\t1\nthree\tfour\t2\n", encoding="utf-8")
    assert not list(PairTask("--pairs", str(file)).baselines())


def test_models_are_scored_in_the_order_of_the_command_line(models, tmp_path, capsys):
    file = pairs_file(tmp_path / "pairs.tsv", GOLD)
    assert run("--model", *reversed(models), "--pairs", file, "--resamples", 20) == 0
    assert "Difference to two on the same pairs" in capsys.readouterr().out


def test_pairs_with_labels(models, tmp_path, capsys):
    metrics = pytest.importorskip("sklearn.metrics")
    labels = [int(gold > 2) for gold in GOLD]
    file = tmp_path / "pairs.csv"
    with file.open("w", encoding="utf-8", newline="") as opened:
        csv.writer(opened).writerows([("sentence1", "sentence2", "label"), *zip(FIRST, SECOND, labels, strict=True)])
    assert run(models[0], "--pairs", file, "--output", tmp_path / "out", "--resamples", 20) == 0
    content = json.loads((tmp_path / "out" / "pairs.json").read_text(encoding="utf-8"))["scores"]
    cosines = exact_cosines(models[0])
    assert content["one"]["AP"]["value"] == pytest.approx(100 * metrics.average_precision_score(labels, cosines), abs=1e-3)
    threshold = content["one"]["threshold"]
    assert content["one"]["F1"]["value"] == pytest.approx(100 * metrics.f1_score(labels, cosines >= threshold - 1e-6), abs=1e-3)
    assert content["chance"]["AP"]["value"] == pytest.approx(100 * np.mean(labels))
    assert content["chance"]["F1"]["value"] == pytest.approx(100 * metrics.f1_score(labels, [1] * 60))


def test_scores_and_labels_are_two_scales(tmp_path):
    rows = [
        {"sentence1": one, "sentence2": two, "score": None if row % 2 else 5 * gold, "label": row % 3 % 2}
        for row, (one, two, gold) in enumerate(zip(FIRST, SECOND, GOLD, strict=True))
    ]
    pairs = read_pairs("--pairs", str(write_lines(tmp_path / "pairs.jsonl", map(json.dumps, rows))))
    np.testing.assert_allclose(pairs.labels, [5 * gold for gold in GOLD[::2]])


def labelled_file(tmp_path):
    """Sixty texts of three classes, one that is alone in its class, and two records without a label or a text."""
    names = ["north", "south", "east"]
    lines = [json.dumps({"body": f"{text} {names[row % 3]}", "section": row % 3}) for row, text in enumerate(FIRST)]
    others = [{"body": "the only one", "section": "single"}, {"body": "no label", "section": None}, {"body": " ", "section": 1}]
    return write_lines(tmp_path / "labels.jsonl", [*lines, *map(json.dumps, others)])


def test_labels_in_the_shell_and_in_python(models, tmp_path, capsys):
    file = labelled_file(tmp_path)
    options = ("--label-column", "section", "--column", "body", "--output", tmp_path / "out", "--resamples", 20)
    assert run(models[0], "--labels", file, *options) == 0
    shown = capsys.readouterr()
    assert "2 records have no text or no label" in shown.err
    content = json.loads((tmp_path / "out" / "labels.json").read_text(encoding="utf-8"))
    assert content["classes"] == {"0": 20, "1": 20, "2": 20, "single": 1}
    assert list(content["scores"]) == ["one", "tf-idf", "chance", "largest class"]
    assert set(content["scores"]["tf-idf"]) == {"accuracy@1", "accuracy@5"}
    assert set(content["scores"]["tf-idf"]["accuracy@1"]) == {"value", "interval", "difference"}
    found = SentenceEncoder(models[0]).evaluate(labels=file, label_column="section", column="body", resamples=20)
    assert found["texts"] == 61
    for measure, value in content["scores"]["one"].items():
        assert found[measure] == pytest.approx(value["value"], abs=1e-4)
        assert found["intervals"][measure] == pytest.approx(value["interval"], abs=1e-3)


def test_python_and_packed_files(models, beir):
    encoder = SentenceEncoder(models[0])
    expected = encoder.evaluate(retrieval=beir, resamples=0)
    assert list(expected) == ["queries", "nDCG@10", "MRR@10", "recall@100", "MAP"]
    (beir / "corpus.jsonl.gz").write_bytes(gzip.compress((beir / "corpus.jsonl").read_bytes()))
    (beir / "corpus.jsonl").unlink()
    (beir / "qrels" / "test.tsv").rename(beir / "qrels" / "dev.tsv")
    assert encoder.evaluate(retrieval=str(beir), resamples=0) == pytest.approx(expected)

    class Other:
        """An encoder of another package."""

        def encode(self, sentences):
            return encoder.encode(sentences)

    assert jax_sentemb.score(Other(), retrieval=beir, resamples=0) == pytest.approx(expected, abs=1e-3)


def test_prompts_of_queries_and_documents_are_put_before_them(models, beir):
    encoder = SentenceEncoder(models[0])
    encoder.prompts = {"query": "ask ", "document": "tell "}
    seen = {}
    real = encoder._vectors
    encoder._vectors = lambda texts, *rest: seen.setdefault(texts[0].split()[0], real(texts, *rest))
    encoder.evaluate(retrieval=beir, resamples=0)
    assert list(seen) == ["ask", "tell"]


MISTAKES = [
    (["MODEL", "--pairs", "absent.tsv"], 3, "--pairs absent.tsv: no such file"),
    (["MODEL", "--retrieval", "absent"], 3, "--retrieval absent: no such folder; the folder needs corpus.jsonl"),
    (["MODEL", "--retrieval", "MODEL"], 3, "corpus.jsonl is missing; the folder needs"),
    (["MODEL", "--labels", "absent.tsv"], 3, "--labels absent.tsv: no such file"),
    (["MODEL", "--labels", "PAIRS"], 3, "has no column 'text', only sentence1, sentence2, score: name the columns with"),
    (["MODEL", "--labels", "PAIRS", "--column", "sentence1"], 3, "has no column 'label', only sentence1, sentence2, score"),
    (["MODEL", "--labels", "PAIRS", "--column", "sentence1", "--label-column", "x"], 3, "has no column 'x'"),
    (["MODEL", "--pairs", "PAIRS", "--pair-columns", "a,b"], 2, "--pair-columns a,b: name two columns of text and one of scores"),
    (["MODEL", "--pairs", "PAIRS", "--pair-columns", "a,b,c"], 3, "has no column 'a'"),
    (["MODEL", "--pairs", "OTHER"], 3, ": no row has a score or a label; name the columns sentence1, sentence2, and"),
    (["MODEL", "--pairs", "OTHER", "--pair-columns", "sentence1,sentence2,gold"], 3, "60 pairs have 1 distinct score; give pairs"),
    (["MODEL", "--pairs", "PAIRS", "--tasks", "sts"], 2, "--tasks is not used: it is for SentEval's tasks, and --pairs is a file"),
    (["MODEL", "--pairs", "PAIRS", "--sample", "0"], 2, "--sample is an option of --labels; give --labels or leave it out"),
    (["MODEL", "--pairs", "PAIRS", "--split", "dev"], 2, "--split is an option of --retrieval; give --retrieval or leave it out"),
    (["MODEL", "--pairs", "PAIRS", "--data", "x"], 2, "--data cannot be combined with --pairs"),
    (["--pairs", "PAIRS"], 2, "no model: name a model directory"),
    (["tf-idf", "--pairs", "PAIRS"], 2, "--model tf-idf: only encoders are scored on your own files; leave it out, since"),
    (["MODEL@whiten", "--pairs", "PAIRS"], 2, "whiten is an option of SentEval's tasks; leave it out"),
    (["MODEL@500", "--pairs", "PAIRS"], 2, "--model truncate_dim=500"),
    (["./absent", "--pairs", "PAIRS"], 2, "--model ./absent: no such directory"),
    (["MODEL", "MODEL", "--pairs", "PAIRS"], 2, "two models are called one: write NAME=PATH for one of them"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "message"), MISTAKES)
def test_mistakes_are_named(models, tmp_path, capsys, arguments, code, message):
    places = {"MODEL": str(models[0]), "PAIRS": str(pairs_file(tmp_path / "pairs.tsv", GOLD))}
    places["OTHER"] = str(pairs_file(tmp_path / "other.tsv", [1] * 60, "gold"))
    for name, path in places.items():
        arguments = [argument.replace(name, path) for argument in arguments]
    assert run(*arguments) == code
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n", "no judgement; give lines with"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1 d1 1\n", "line 2 has 1 tab-separated fields; give query-id"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\tgood\n", "line 2: score 'good' is not a number"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\tnan\n", "line 2: score 'nan' is not a number"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td1\t0\n", "line 3: query 'q1' grades document"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nx\td1\t1\n", "no query of queries.jsonl has judgements in test.tsv"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t0\n", "test.tsv has no judgement above 0"),
        ("corpus.jsonl", '{"text": "a"}\n', "record 0 has no _id|no key '_id'"),
        ("corpus.jsonl", '{"_id": "d1", "text": "a"}\n{"_id": "d1", "text": "b"}\n', "_id 'd1' occurs twice"),
        ("corpus.jsonl", '{"_id": "d1", "text": 3}\n', "text is a number, not text"),
        ("corpus.jsonl", '{"_id": "d1", "title": 3, "text": "a"}\n', "title is a number, not text"),
        ("corpus.jsonl", '{"_id": "d1"}\n', "has no key 'text'"),
        ("queries.jsonl", '{"_id": "q1", "text": ""}\n', "contains no sentence"),
    ],
)  # fmt: skip
def test_damaged_folders_are_refused(beir, file, content, message):
    (beir / file).write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as error:
        RetrievalTask("--retrieval", beir)
    assert any(each in str(error.value) for each in message.split("|"))


def test_the_split_is_named(beir):
    (beir / "qrels" / "test.tsv").rename(beir / "qrels" / "dev.tsv")
    with pytest.raises(DataError, match=r"^--split test: qrels/test\.tsv is missing; the folder has dev$"):
        RetrievalTask("--retrieval", beir, "test")
    (beir / "qrels" / "train.tsv").write_bytes((beir / "qrels" / "dev.tsv").read_bytes())
    with pytest.raises(
        DataError, match=r"has dev, train and no test\.tsv; rename one to test\.tsv, or choose it with --split dev$"
    ):
        RetrievalTask("--retrieval", beir)
    assert RetrievalTask("--retrieval", beir, "train").title.endswith("train.tsv")


def test_python_mistakes(models, beir):
    encoder = SentenceEncoder(models[0])
    with pytest.raises(ConfigError, match="give one of data, pairs, retrieval and labels"):
        encoder.evaluate()
    with pytest.raises(ConfigError, match="give one of data"):
        encoder.evaluate("pairs.tsv", retrieval=beir)
    with pytest.raises(ConfigError, match=r"^split is not an option of labels; the options are label_column, column, sample"):
        encoder.evaluate(labels="x.tsv", split="dev")
    with pytest.raises(ConfigError, match=r"^split is an option of pairs, retrieval or labels"):
        encoder.evaluate("pairs.tsv", split="dev")
    with pytest.raises(DataError, match=r"^split=dev: qrels/dev\.tsv is missing; the folder has test$"):
        encoder.evaluate(retrieval=beir, split="dev")
    with pytest.raises(ConfigError, match="resamples"):
        encoder.evaluate(retrieval=beir, resamples=-1)


def test_one_model_that_fails_does_not_stop_the_others(models, tmp_path, capsys, monkeypatch):
    real = SentenceEncoder.encode

    def encode(self, *arguments, **options):
        vectors = real(self, *arguments, **options)
        return np.ones_like(vectors) if "/one'" in repr(self) else vectors

    monkeypatch.setattr(SentenceEncoder, "encode", encode)
    assert run(*models, "--pairs", pairs_file(tmp_path / "pairs.tsv", GOLD), "--resamples", 20) == 5
    shown = capsys.readouterr()
    assert "error: one: pairs: all 60 pairs have the similarity 1.000000: the embeddings collapsed" in shown.err
    assert "failed" in shown.out
    assert "two" in shown.out


def changed_ids(beir, change):
    documents = [json.loads(line) for line in (beir / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = (json.dumps({**document, "_id": change(int(document["_id"][1:]))}) for document in documents)
    write_lines(beir / "corpus.jsonl", lines)
    judged = (beir / "qrels" / "test.tsv").read_text(encoding="utf-8").replace("\td", "\t")
    (beir / "qrels" / "test.tsv").write_text(judged, encoding="utf-8")


@pytest.mark.parametrize("change", [float, int, lambda number: f" {number} "])
def test_ids_of_numbers_are_those_of_the_judgements(beir, change):
    expected = RetrievalTask("--retrieval", beir, has_bm25=False)._data.judgements
    changed_ids(beir, change)
    judged = RetrievalTask("--retrieval", beir, has_bm25=False)._data.judgements
    assert [each.rows.tolist() for each in judged] == [each.rows.tolist() for each in expected]


def test_ids_that_fit_no_judgement_are_refused(beir):
    changed_ids(beir, lambda number: f"other {number}")
    with pytest.raises(DataError, match=r"no document of corpus\.jsonl has judgements in test\.tsv; compare the ids"):
        RetrievalTask("--retrieval", beir)
    changed_ids_of_lists = [json.dumps({"_id": [row], "text": "a text"}) for row in range(3)]
    write_lines(beir / "corpus.jsonl", changed_ids_of_lists)
    with pytest.raises(DataError, match="record 0: _id is a list, not text or a number"):
        RetrievalTask("--retrieval", beir)


@pytest.mark.parametrize("grade", ["nan", "inf", "1_0"])
def test_a_first_line_without_a_grade_is_no_header(beir, grade):
    write_lines(beir / "qrels" / "test.tsv", [f"q0\td0\t{grade}", "q1\td1\t1"])
    with pytest.raises(DataError, match=f"line 1: score '{grade}' is not a number"):
        RetrievalTask("--retrieval", beir)


def test_other_ids_are_other_judgements(beir):
    def digest():
        return RetrievalTask("--retrieval", beir, has_bm25=False).facts["sources"]["judgements"]["sha256"]

    before = digest()
    content = (beir / "corpus.jsonl").read_text(encoding="utf-8")
    exchanged = content.replace('"d1"', '"x"').replace('"d2"', '"d1"').replace('"x"', '"d2"')
    (beir / "corpus.jsonl").write_text(exchanged, encoding="utf-8")
    assert digest() != before


@pytest.mark.parametrize("name", ["BM25", "chance", "largest class", "one + BM25"])
def test_a_model_cannot_have_the_name_of_another_row(models, beir, name, capsys):
    assert run(f"{name}={models[0]}", "--retrieval", beir) == 2
    assert f"error: --model {name}: the tables have a row of this name" in capsys.readouterr().err


def test_scores_of_python_are_written_plainly(models, tmp_path):
    encoder = SentenceEncoder(models[0])
    scores = [*GOLD[:-1], "1_0"]
    with pytest.raises(DataError, match="line 61: score '1_0' is not a number"):
        encoder.evaluate(pairs=pairs_file(tmp_path / "pairs.tsv", scores))
    file = pairs_file(tmp_path / "good.tsv", GOLD)
    for columns, problem in (
        (None, "columns=None: must be a str"),
        (("sentence1", "sentence2", "score"), "must be a str"),
        ("sentence1,sentence1,score", "name two columns of text and one of scores, all different"),
    ):
        with pytest.raises(ConfigError, match=problem):
            encoder.evaluate(pairs=file, columns=columns)


def test_python_hears_of_texts_that_are_left_out(models, beir, caplog):
    SentenceEncoder(models[0]).evaluate(retrieval=beir, resamples=0)
    assert "retrieval: 1 of 11 queries have no judgements: they are left out" in caplog.text
    with pytest.raises(ConfigError, match="split=3: must be a str"):
        SentenceEncoder(models[0]).evaluate(retrieval=beir, split=3)
    with pytest.raises(ConfigError, match="has_bm25 is an option of the command line"):
        SentenceEncoder(models[0]).evaluate(retrieval=beir, has_bm25=True)


@pytest.mark.parametrize(
    ("vectors", "problem"),
    [
        (lambda count: np.ones((count - 1, 4)), "returned the shape .* texts; return a row for each text"),
        (lambda count: np.ones(count), "return a row for each text"),
        (lambda count: np.ones((count, 2, 2)), "return a row for each text"),
        (lambda count: np.ones((count, 4)) + 1j, "real numbers"),
        (lambda count: ["x"] * count, "real numbers"),
    ],
)
def test_the_vectors_of_a_foreign_encoder_are_checked(tmp_path, vectors, problem):
    class Foreign:
        def encode(self, lines):
            return vectors(len(lines))

    file = pairs_file(tmp_path / "pairs.tsv", GOLD)
    for data in ({"pairs": file, "resamples": 0}, {"data": list(zip(FIRST, SECOND, GOLD, strict=True))}):
        with pytest.raises(ConfigError, match=problem):
            jax_sentemb.score(Foreign(), **data)


def test_a_second_writer_ends_and_keeps_the_results_of_the_first(models, tmp_path, capsys):
    file, output = pairs_file(tmp_path / "pairs.tsv", GOLD), tmp_path / "out"
    assert run(models[0], "--pairs", file, "--output", output, "--resamples", 0) == 0
    before = (output / "pairs.json").read_bytes()
    with FileLock(output / "vectors" / "one" / "pairs" / "texts" / "LOCK"):
        assert run(models[0], "--pairs", file, "--output", output, "--resamples", 0) == 6
    assert "is being written by another process" in capsys.readouterr().err
    assert (output / "pairs.json").read_bytes() == before
