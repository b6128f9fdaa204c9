"""Evaluation sets from the hub, with a stand-in for its client."""

import pytest

from jax_sentemb.cli.evaluate import main
from jax_sentemb.cli.program import program
from jax_sentemb.errors import DataError
from jax_sentemb.evaluation import download, suite

datasets = pytest.importorskip("datasets")

PAIRS = [{"sentence1": "a\tb", "sentence2": "c\nd", "score": 4.5}, {"sentence1": "e", "sentence2": "f", "score": 1}]
SOURCES = [{**pair, "genre": "g", "dataset": "d", "year": year, "sid": 1} for pair in PAIRS for year in ("2015", "2017")]
LABELS = [{"sentence1": "a b", "sentence2": "c", "label": 1}, {"sentence1": "e", "sentence2": "f", "label": 0}]
TEXTS = [{"text": "caf\u00e9 good", "label": 1}, {"text": "bad", "label": 0}]


@pytest.fixture
def client(monkeypatch):
    asked = []

    def load_dataset(name, config, split):
        asked.append((name, config, split))
        return {"nyu-mll/glue": LABELS, "mteb/stsbenchmark-sts": SOURCES, "cornell-movie-review-data/rotten_tomatoes": TEXTS}.get(
            name, PAIRS
        )

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


def test_what_the_hub_has_becomes_a_senteval_folder(client, tmp_path):
    assert download.fetch("STS14,STSBenchmark-test,MRPC,MR,TREC", tmp_path) == ["STS14", "STSBenchmark-test", "MR", "MRPC"]
    assert ("nyu-mll/glue", "mrpc", "validation") in client
    year = suite.load("STS14", tmp_path)
    assert year.sizes == {"all": 2}
    assert year.data.subsets["all"].first == ["a b", "e"]
    assert year.data.subsets["all"].gold.tolist() == [4.5, 1]
    assert suite.load("STSBenchmark-test", tmp_path).data.subsets["test"].second == ["c d", "c d", "f", "f"]
    assert "g\td\t2017\t1\t4.5\ta b\tc d\n" in (tmp_path / "downstream/STS/STSBenchmark/sts-dev.csv").read_text()
    assert suite.load("STSBenchmark", tmp_path).sizes == {"train": 4, "dev": 4, "test": 4}
    assert suite.load("MRPC", tmp_path).sizes == {"train": 4, "test": 2}
    reviews = suite.load("MR", tmp_path).data.splits["all"]
    assert reviews.first == ["bad"] * 3 + ["caf\u00e9 good"] * 3
    assert reviews.labels.tolist() == [0, 0, 0, 1, 1, 1]
    count = len(client)
    assert download.fetch("STS14,MR", tmp_path) == []  # what is there is left alone
    assert len(client) == count


def test_the_command(client, tmp_path, capsys):
    assert program(main, ["evaluate", "--fetch", "--data", str(tmp_path), "--tasks", "STS12"]) == 0
    assert capsys.readouterr().out == "fetched: STS12\n"
    assert program(main, ["evaluate", "--fetch", "--data", str(tmp_path), "--tasks", "TREC"]) == 2
    assert "the hub has none of TREC; it has STS12" in capsys.readouterr().err


def test_what_cannot_be_loaded(monkeypatch, tmp_path):
    def load_dataset(name, config, split):
        raise ConnectionError("no route\nmore")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(DataError, match=r"^mteb/sts12-sts cannot be loaded from the hub \(no route\); check the network"):
        download.fetch("STS12", tmp_path)
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config, split: [{"sentence1": "a"}])
    with pytest.raises(DataError, match="has no column 'sentence2'"):
        download.fetch("STS12", tmp_path)
    assert not (tmp_path / "downstream").exists()


def test_a_set_that_is_damaged_is_refused_and_loaded_again(client, tmp_path, capsys):
    download.fetch("STS14,MR", tmp_path)
    folder = tmp_path / "downstream/STS/STS14-en-test"
    whole = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert sorted(whole) == ["STS.gs.all.txt", "STS.input.all.txt", "download.json"]

    def cut(name, size):
        (folder / name).write_bytes(whole[name][:size])

    for damage, problem in (
        (lambda: (folder / "STS.gs.all.txt").write_text("4.5\n2\n"), "STS.gs.all.txt is damaged: its size or SHA-256 differs"),
        (lambda: [cut("STS.gs.all.txt", 4), cut("STS.input.all.txt", 8)], "is damaged: its size or SHA-256 differs"),  # a row less
        (lambda: (folder / "STS.gs.all.txt").unlink(), "STS.gs.all.txt is missing"),
        (lambda: cut("download.json", 30), "download.json is not JSON"),
        (lambda: (folder / "download.json").write_text("{}"), "download.json does not record its sources"),
        (
            lambda: (folder / "download.json").write_bytes(whole["download.json"].replace(b'"format": 1', b'"format": 2')),
            "has format 2, this version reads format 1",
        ),
    ):
        damage()
        with pytest.raises(DataError, match=f"{problem}.*; jax-sentemb evaluate --fetch loads it again") as caught:
            suite.load("STS14", tmp_path)
        assert "\n" not in str(caught.value)
        assert program(main, ["evaluate", "--data", str(tmp_path), "--tasks", "STS14", "--model", "tf-idf"]) == 3
        assert download.fetch("STS14,MR", tmp_path) == ["STS14"]
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == whole
        assert suite.load("STS14", tmp_path).sizes == {"all": 2}


def test_a_download_that_is_killed_leaves_no_set(client, tmp_path, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(download, "write_mark", stop)
    with pytest.raises(KeyboardInterrupt):
        download.fetch("STS14", tmp_path)
    monkeypatch.undo()
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []
    with pytest.raises(DataError, match="is missing"):
        suite.load("STS14", tmp_path)


def test_a_folder_of_another_program_is_never_replaced(client, tmp_path):
    folder = tmp_path / "downstream/STS/STS14-en-test"
    folder.mkdir(parents=True)
    assert download.fetch("STS14", tmp_path) == ["STS14"]  # an empty folder
    (folder / "download.json").unlink()
    assert download.fetch("STS14", tmp_path) == []
    (folder / "STS.gs.all.txt").unlink()
    with pytest.raises(DataError, match=r"STS.gs.all.txt is missing, and .* was not written by --fetch: complete it"):
        download.fetch("STS14", tmp_path)
    assert (folder / "STS.input.all.txt").is_file()
