"""The files next to vectors that say which record each row is, also where texts are empty; and damage to them."""

import json

import numpy as np
import pytest

from jax_sentemb.data.records import Record
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.provenance import Source
from jax_sentemb.retrieval.vector_manifest import Part, digest, marked, read_manifest
from jax_sentemb.retrieval.vector_records import records_file
from jax_sentemb.retrieval.vector_store import EncodedSentences, Vectors, write_shards

TEXTS = ["", "3", "1", "", "", "", "7", "2", "5", ""]  # the second of three shards is empty
EMPTY = [0, 3, 4, 5, 9]
FACTS = marked({"precision": "float32", "rows_per_shard": 3, "format": "npy"})


def record_of(row):
    return Record(row // 2, ("title", "text")[row % 2], {"key": f'"empty": true}}{row}'} if row % 3 else None)


def encode(texts):
    return EncodedSentences(np.array([[float(text), 1.0] for text in texts], np.float32).reshape(-1, 2), 0)


def write(folder, part=Part(), facts=FACTS):
    return write_shards(folder, facts, TEXTS, encode, lambda count: None, part, record_of)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "vectors")
    return tmp_path / "vectors"


def test_each_row_has_its_record_and_an_empty_text_is_a_row_of_zeros(folder):
    vectors = Vectors(folder)
    assert vectors.empty_rows.tolist() == EMPTY
    assert [vectors.record(row) for row in range(len(TEXTS))] == [record_of(row) for row in range(len(TEXTS))]
    with pytest.raises(ConfigError, match="row=10: must be a whole number from 0 to 9"):
        vectors.record(10)
    np.testing.assert_array_equal(vectors[:], [[float(text), 1] if text else [0, 0] for text in TEXTS])
    assert [shard["records"]["empty"] for shard in read_manifest(folder)["shards"]] == [1, 3, 0, 1]


def test_chunks_of_two_columns_of_a_record_belong_to_two_texts(tmp_path):
    places = [(0, "title", 0, 3), (0, "text", 0, 9), (0, "text", 7, 15), (1, "title", 0, 4)]

    def chunk(row):
        record, column, start, end = places[row]
        return Record(record, column, None, start, end)

    facts = marked({"precision": "float32", "rows_per_shard": 3, "format": "npy", "chunks": "each"})
    write_shards(tmp_path / "chunks", facts, ["1", "2", "3", "4"], encode, lambda count: None, Part(), chunk)
    assert Vectors(tmp_path / "chunks").chunk_spans().tolist() == [[0, 0, 3], [1, 0, 9], [1, 7, 15], [2, 0, 4]]


def test_parts_have_the_records_of_the_whole(folder, tmp_path):
    for number in (3, 1, 4, 2):
        write(tmp_path / "parts", Part(number, 4))
    for file in folder.glob("*.jsonl"):
        assert (tmp_path / "parts" / file.name).read_bytes() == file.read_bytes()
    assert Vectors(tmp_path / "parts").empty_rows.tolist() == EMPTY


def test_a_lost_or_changed_file_of_records_is_found_and_made_again(folder):
    file = records_file(folder / "000001.npy")
    whole = file.read_bytes()
    for change in (lambda: file.unlink(), lambda: file.write_bytes(whole.replace(b"true", b"null")), lambda: file.write_bytes(b"")):
        change()
        with pytest.raises(DataError, match=r"000001\.npy\.records\.jsonl.*run the same encode command again"):
            Vectors(folder)
        with pytest.raises(DataError, match=r"000001\.npy\.records\.jsonl.*run the same encode command again"):
            Vectors(folder, verify=False)
        write(folder)
        assert file.read_bytes() == whole
    assert Vectors(folder).empty_rows.tolist() == EMPTY


HOSTILE = [b"[]", b"5", b'{"row": "x"}', b'{"row": 1, "column": 2}', b"\xc3", b"[" * 9999, b'{"row": true}', b'{"row": -1}']
SPANS = [(-1, 2), (3, 2), (0, 1 << 63), ("true", 2), (0.5, 2), (0, "null")]


@pytest.mark.parametrize("line", [*HOSTILE, *(f'{{"row": 1, "start": {start}, "end": {end}}}'.encode() for start, end in SPANS)])
def test_a_hostile_record_is_one_line(folder, line):
    file = records_file(folder / "000002.npy")
    file.write_bytes(line + b"\n" + file.read_bytes().split(b"\n", 1)[1])
    vectors = Vectors(folder, verify=False)
    with pytest.raises(DataError) as caught:
        vectors.record(6)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "records", [3, [], {"bytes": "x"}, {"bytes": 1, "empty": 1}, {"bytes": 1, "empty": 0.5, "sha256": ""}, None]
)
def test_a_hostile_description_of_records_is_one_line(folder, records):
    manifest = read_manifest(folder)
    manifest["shards"][1]["records"] = records
    manifest["sha256"] = digest(manifest)
    (folder / "vectors.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"vectors\.json is damaged"):
        Vectors(folder)


def test_vectors_with_other_records_are_another_directory(folder):
    with pytest.raises(Exception, match=r"was made without records, not from records ids\.csv"):
        write(
            folder, facts=marked({"precision": "float32", "rows_per_shard": 3, "format": "npy", "records": Source("ids.csv", "a")})
        )


def test_vectors_of_another_program_have_no_records(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 2), np.float32))
    vectors = Vectors(tmp_path / "x.npy")
    assert vectors.record(2) == Record(2)
    assert len(vectors.empty_rows) == 0
