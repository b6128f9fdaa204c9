"""The command `jax-sentemb dedup`: copies of records in every format, what is dropped, and every mistake."""

import codecs
import csv
import gzip
import io
import json
import lzma

import pytest

from jax_sentemb import SentenceEncoder, Vectors, deduplicate
from jax_sentemb.__main__ import main
from jax_sentemb.cli.dedup import _share
from jax_sentemb.cli.program import program
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.inference.encoded_texts import ROWS_PER_SHARD
from jax_sentemb.retrieval.deduplication import CURVE
from tests.tiny_models import tiny_model

BASE = ["a man plays the guitar", "two dogs run", "the grass is tall", "a woman dances", "it rains in the town"]
RECORDS = [BASE[0], BASE[1], BASE[0], "", BASE[2], "two  dogs run ", BASE[3], BASE[4]]
KEPT = [0, 1, 4, 6, 7]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    write_export(folder, tiny_model(RECORDS, 60))
    return folder


def dedup(model, corpus, output, *options, threshold=1):
    arguments = ["dedup", "--model", model, "--corpus", corpus, "--output", output, "--threshold", threshold, *options]
    return program(main, ["jax-sentemb", *map(str, arguments)])


@pytest.mark.parametrize("names_model", [True, False])
def test_vectors_of_texts_of_unknown_pieces_are_compared_by_their_text(model, tmp_path, capsys, names_model):
    (tmp_path / "a.txt").write_text("😀\n😎\n👍\na man plays the guitar\n", "utf-8")
    encode = ["encode", "--model", model, "--input", tmp_path / "a.txt", "--output", tmp_path / "vectors"]
    assert program(main, ["jax-sentemb", *map(str, encode)]) == 0
    arguments = ["dedup", "--corpus", tmp_path / "vectors", "--corpus-text", tmp_path / "a.txt", "--output", tmp_path / "b.txt"]
    arguments += ["--model", model] if names_model else []
    assert program(main, ["jax-sentemb", *map(str, arguments)]) == 0
    printed = capsys.readouterr()
    assert ("4 of 4 records" if names_model else "2 of 4 records") in printed.out
    assert (
        "have only pieces that the tokenizer does not know" if names_model else "without --model, different texts"
    ) in printed.err


def test_lines_are_copied_with_their_line_ends_and_what_is_dropped_is_listed(model, tmp_path, capsys):
    corpus, output = tmp_path / "corpus.txt", tmp_path / "unique.txt"
    corpus.write_bytes(codecs.BOM_UTF8 + "\r\n".join(RECORDS).encode())
    assert dedup(model, corpus, output) == 0
    lines = [RECORDS[row] + "\r\n" for row in KEPT[:-1]] + [RECORDS[KEPT[-1]] + "\n"]
    assert output.read_bytes() == codecs.BOM_UTF8 + "".join(lines).encode()
    printed = capsys.readouterr()
    assert "5 of 8 records" in printed.out
    assert "1 of 8 records have no text (rows 3)" in printed.err
    dropped = list(csv.DictReader(io.StringIO((tmp_path / "unique.txt.dropped.csv").read_text("utf-8"))))
    assert [(row["row"], row["reason"], row["kept_row"], row["kept_text"]) for row in dropped] == [
        ("2", "exact", "0", BASE[0]), ("3", "empty", "", ""), ("5", "exact", "1", BASE[1]),
    ]  # fmt: skip
    facts = json.loads((tmp_path / "unique.txt.json").read_text("utf-8"))
    assert [facts[name] for name in ("records", "empty", "exact", "near", "kept", "content")] == [8, 1, 2, 0, 5, "records"]
    assert {point["threshold"] for point in facts["curve"]} == {*CURVE, 1.0}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "corpus.txt",
        "unique.txt",
        "unique.txt.dropped.csv",
        "unique.txt.json",
    ]


def test_rows_of_tables_stay_rows_with_their_header(model, tmp_path):
    fields = [[str(row), text, 'a "quoted"\nnote, ' * (row % 2)] for row, text in enumerate(RECORDS)]
    stream = io.StringIO()
    csv.writer(stream, quoting=csv.QUOTE_NONNUMERIC).writerows([["_id", "text", "note"], *fields])
    rows = stream.getvalue().split("\r\n")  # the notes contain line feeds only
    corpus, output = tmp_path / "corpus.csv.gz", tmp_path / "unique.csv.xz"
    corpus.write_bytes(gzip.compress("\r\n".join([rows[0], "", *rows[1:]]).encode()))
    assert dedup(model, corpus, output) == 0
    assert (
        lzma.decompress(output.read_bytes()).decode() == "\r\n".join(rows[row] for row in [0, *(row + 1 for row in KEPT)]) + "\r\n"
    )
    dropped = list(csv.DictReader(io.StringIO((tmp_path / "unique.csv.xz.dropped.csv").read_text("utf-8"))))
    assert [(row["_id"], row["kept_id"]) for row in dropped] == [("2", "0"), ("3", ""), ("5", "1")]


def test_several_files_become_one(model, tmp_path, capsys):
    for name, rows in {"a": RECORDS[:4], "b": RECORDS[4:]}.items():
        (tmp_path / f"{name}.tsv").write_text("n\ttext\n" + "".join(f"7\t{text}\n" for text in rows), encoding="utf-8")
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n\n" for text in rows), encoding="utf-8")
    assert dedup(model, f"{tmp_path}/*.tsv", tmp_path / "unique.tsv.gz") == 0
    assert gzip.decompress((tmp_path / "unique.tsv.gz").read_bytes()).decode().splitlines()[1:] == [
        f"7\t{RECORDS[row]}" for row in KEPT
    ]
    assert dedup(model, f"{tmp_path}/a.jsonl,{tmp_path}/b.jsonl", tmp_path / "unique.jsonl") == 0
    assert [json.loads(line)["text"] for line in (tmp_path / "unique.jsonl").read_text().splitlines()] == [
        RECORDS[row] for row in KEPT
    ]
    assert dedup(model, f"{tmp_path}/a.tsv,{tmp_path}/b.jsonl", tmp_path / "unique.txt") == 0
    assert (tmp_path / "unique.txt").read_text() == "".join(RECORDS[row] + "\n" for row in KEPT)
    assert "5 of 8 texts" in capsys.readouterr().out
    (tmp_path / "b.tsv").write_text("text\tn\nx y\t7\n")
    assert dedup(model, f"{tmp_path}/a.tsv,{tmp_path}/b.tsv", tmp_path / "other.tsv") == 3
    assert "other columns" in capsys.readouterr().err
    assert not (tmp_path / "other.tsv").exists()


def test_rows_of_parquet_files_keep_their_columns(model, tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"text": [text or None for text in RECORDS], "n": list(range(8))})
    parquet.write_table(table, tmp_path / "corpus.parquet")
    assert dedup(model, tmp_path / "corpus.parquet", tmp_path / "unique.parquet") == 0
    copied = parquet.read_table(tmp_path / "unique.parquet")
    assert (copied.schema, copied["n"].to_pylist()) == (table.schema, KEPT)


def test_a_share_is_100_percent_only_if_all_are_kept():
    assert [_share(kept, 100_000) for kept in (99_999, 100_000, 50_000)] == ["99.9%", "100.0%", "50.0%"]


def test_vectors_give_the_same_as_their_text(model, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"{text}\n" for text in RECORDS))
    arguments = ["encode", "--model", model, "--input", corpus, "--output", tmp_path / "vectors"]
    assert program(main, ["jax-sentemb", *map(str, arguments)]) == 0
    assert dedup(model, corpus, tmp_path / "one.txt", threshold=0.9) == 0
    arguments = ["dedup", "--corpus", tmp_path / "vectors", "--corpus-text", corpus, "--output", tmp_path / "two.txt"]
    assert program(main, ["jax-sentemb", *map(str, arguments)]) == 0
    for suffix in ("", ".dropped.csv"):
        assert (tmp_path / f"one.txt{suffix}").read_bytes() == (tmp_path / f"two.txt{suffix}").read_bytes()
    kept = deduplicate(Vectors(tmp_path / "vectors"), 0.9).kept
    assert (tmp_path / "one.txt").read_text().splitlines() == [RECORDS[row] for row in kept.tolist()]


def test_an_interrupted_command_continues_with_its_vectors(model, tmp_path, monkeypatch, capsys):
    corpus, output = tmp_path / "corpus.txt", tmp_path / "unique.txt"
    corpus.write_text("".join(f"{text}\n" for text in RECORDS))
    with monkeypatch.context() as patch:
        patch.setattr(
            "jax_sentemb.retrieval.deduplication.deduplicate", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        assert dedup(model, corpus, output) == 130
    assert not output.exists()
    assert (tmp_path / "unique.txt.vectors/vectors.json").exists()
    monkeypatch.setattr(SentenceEncoder, "encode", lambda *arguments, **options: pytest.fail("it encodes again"))
    assert dedup(model, corpus, output) == 0
    assert not (tmp_path / "unique.txt.vectors").exists()


@pytest.mark.parametrize("is_input", [False, True])
def test_vectors_of_the_user_next_to_the_output_are_kept(model, tmp_path, is_input):
    """They are used, since they have the same sources as those that the command would write; only its own are deleted."""
    corpus, output, vectors = tmp_path / "corpus.txt", tmp_path / "unique.txt", tmp_path / "unique.txt.vectors"
    corpus.write_text("".join(f"{text}\n" for text in RECORDS))
    arguments = ["encode", "--model", model, "--input", corpus, "--output", vectors, "--rows-per-shard", ROWS_PER_SHARD]
    assert program(main, ["jax-sentemb", *map(str, arguments)]) == 0
    before = {file: file.read_bytes() for file in vectors.iterdir()}
    source = ["--corpus", vectors, "--corpus-text", corpus] if is_input else ["--model", model, "--corpus", corpus]
    assert program(main, ["jax-sentemb", "dedup", *map(str, source), "--output", str(output)]) == 0
    assert {file: file.read_bytes() for file in vectors.iterdir()} == before


def test_its_own_vectors_are_kept_if_they_are_its_input(model, tmp_path, monkeypatch):
    corpus, output, vectors = tmp_path / "corpus.txt", tmp_path / "unique.txt", tmp_path / "unique.txt.vectors"
    corpus.write_text("".join(f"{text}\n" for text in RECORDS))
    with monkeypatch.context() as patch:
        patch.setattr("jax_sentemb.cli.dedup.copy_records", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        assert dedup(model, corpus, output) == 130
    source = ["--corpus", vectors, "--corpus-text", corpus]
    assert program(main, ["jax-sentemb", "dedup", *map(str, source), "--output", str(output)]) == 0
    assert (vectors / "vectors.json").exists()


def test_texts_of_unknown_pieces_only_are_no_near_duplicates(model, tmp_path, capsys):
    corpus, output = tmp_path / "corpus.txt", tmp_path / "unique.txt"
    corpus.write_text("\n".join(["🍕", *BASE, "🍣", "🍕", "a man plays the guitar 🍕"]) + "\n", encoding="utf-8")
    vectors = SentenceEncoder(model).encode(["🍕", "🍣"])
    assert (vectors[0] == vectors[1]).all()  # what makes them look equal
    assert dedup(model, corpus, output, threshold=0.999) == 0
    assert output.read_text("utf-8").splitlines() == ["🍕", *BASE, "🍣", "a man plays the guitar 🍕"]
    assert "3 texts (the first is record 0) have only pieces that the tokenizer does not know" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("corpus", "output", "options", "named"),
    [
        ("corpus.txt", "corpus.txt", (), "exists"),
        ("corpus.txt", "link.txt", (), "exists"),
        ("corpus.txt", "absent/unique.txt", (), "no folder"),
        ("corpus.csv", "unique.tsv", (), "ends in .csv or .txt"),
        ("corpus.txt", "unique.csv", (), "ends in .txt"),
        ("corpus.txt", "unique", (), "ends in .txt"),
        ("corpus.csv", "unique.csv", ("--column", "text,note"), "--join"),
        ("x.txt.dropped.csv", "x.txt", (), "part of the corpus"),
        ("vectors", "unique.txt", (), "--corpus-text"),
        ("corpus.txt", "unique.txt", ("--corpus-text", "absent.txt"), "--corpus-text goes with a directory of vectors"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_lost(model, tmp_path, capsys, corpus, output, options, named):
    for name in ("corpus.txt", "corpus.csv", "x.txt.dropped.csv"):
        (tmp_path / name).write_text("text,note\na b,c\n")
    (tmp_path / "link.txt").symlink_to(tmp_path / "corpus.txt")
    (tmp_path / "vectors").mkdir()
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert dedup(model, tmp_path / corpus, tmp_path / output, *options) == 2
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("suffix", [".json", ".dropped.csv"])
def test_only_results_of_an_earlier_call_are_replaced(model, tmp_path, capsys, suffix):
    corpus, output, beside = tmp_path / "corpus.txt", tmp_path / "x.txt", tmp_path / f"x.txt{suffix}"
    corpus.write_text("".join(f"{text}\n" for text in RECORDS))
    for make in (lambda: beside.write_text('{"my": "own"}'), beside.mkdir, lambda: beside.symlink_to("nothing")):
        make()
        assert dedup(model, corpus, output) == 2
        assert f"x.txt{suffix} exists and would be replaced; give another name" in capsys.readouterr().err
        assert not output.exists()
        beside.rmdir() if beside.is_dir() else beside.unlink()
    assert dedup(model, corpus, output) == 0
    output.unlink()  # as after a kill between the files
    assert dedup(model, corpus, output) == 0


def test_the_table_names_the_threshold_with_all_digits(model, tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text("a b\n")
    assert dedup(model, tmp_path / "corpus.txt", tmp_path / "unique.txt", threshold=0.9000001) == 0
    assert " 0.9000001 " in capsys.readouterr().out


def test_thresholds_out_of_range(model, tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text("a b\n")
    for threshold in ("0", "1.01", "nan"):
        assert dedup(model, tmp_path / "corpus.txt", tmp_path / "unique.txt", threshold=threshold) == 2
        assert "--threshold" in capsys.readouterr().err
