"""Parts of a corpus: which shards they have, and what becomes of them in one folder."""

import json
import random

import numpy as np
import pytest

from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.provenance import KEY, Source
from jax_sentemb.retrieval.vector_manifest import Part, marked, missing_parts, read_manifest
from jax_sentemb.retrieval.vector_store import EncodedSentences, Vectors, write_shards

TEXTS = [f"{number}" for number in range(97)]
SETTINGS = {"precision": "float32", "rows_per_shard": 4, "format": "npy"}
FACTS = marked(SETTINGS)
OTHER_MODEL = marked({**SETTINGS, "model": Source("other", "a" * 64)})


def encode(texts):
    return EncodedSentences(np.array([[float(text), 1.0] for text in texts], np.float32), len(texts) % 3)


def write(folder, part=Part(), facts=FACTS, encode=encode):
    return write_shards(folder, facts, TEXTS, encode, lambda count: None, part)


@pytest.mark.parametrize(("shards", "parts"), [(25, 1), (25, 4), (3, 7), (0, 2), (64, 64)])
def test_every_shard_is_in_one_part(shards, parts):
    found = [number for part in Part(1, parts).all_parts() for number in part.shards(shards)]
    assert found == list(range(shards))
    sizes = [len(part.shards(shards)) for part in Part(1, parts).all_parts()]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "a/4", "1", "-1/4", "1/4/2"])
def test_what_is_no_part(text):
    with pytest.raises(ValueError, match="is not a part"):
        Part.parse(text)


def test_parts_in_any_order_are_the_whole(tmp_path):
    parts = Part(1, 6).all_parts()
    random.Random(1).shuffle(parts)
    for part in parts:
        assert not (tmp_path / "parts" / "vectors.json").exists()
        write(tmp_path / "parts", part)
    write(tmp_path / "whole")
    files = [{file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("parts", "whole")]
    assert files[0].pop("LOCK") == files[1].pop("LOCK")
    assert files[0] == files[1]
    np.testing.assert_array_equal(Vectors(tmp_path / "parts")[:][:, 0], np.arange(97))


def test_more_parts_than_shards(tmp_path):
    for part in Part(1, 40).all_parts():
        write(tmp_path, part)
    assert len(Vectors(tmp_path)) == 97


def test_the_number_of_parts_costs_nothing(tmp_path):
    assert write(tmp_path, Part(7, 10**18))["rows"] == 0
    assert missing_parts(tmp_path) == f"1/{10**18}, 2/{10**18}, 3/{10**18}, 4/{10**18}, 5/{10**18} and {10**18 - 6} others"


def test_what_is_missing_is_named(tmp_path):
    def stops(texts):
        raise KeyboardInterrupt

    assert missing_parts(tmp_path) == ""
    write(tmp_path, Part(2, 4))
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, Part(4, 4), encode=stops)
    assert missing_parts(tmp_path) == "1/4, 3/4, 4/4 (started)"
    write(tmp_path / "nine", Part(2, 9))
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "nine", Part(9, 9), encode=stops)
    assert missing_parts(tmp_path / "nine") == "1/9, 3/9, 4/9, 5/9, 6/9 and 3 others"
    with pytest.raises(DataError, match=r"only parts of vectors: encode 1/4, 3/4, 4/4 \(started\) with jax-sentemb encode --part"):
        read_manifest(tmp_path)


def test_a_part_with_other_settings_is_refused_before_it_writes(tmp_path):
    write(tmp_path, Part(3, 4))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match=r"part-3-of-4\.json was made with rows_per_shard=4, not with rows_per_shard=2;.*delete"):
        write(tmp_path, Part(2, 4), marked({**SETTINGS, "rows_per_shard": 2}))
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_killed_part_encodes_only_what_is_missing(tmp_path):
    calls = []

    def breaks(texts):
        calls.append(texts[0])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(texts)

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, Part(2, 3), encode=breaks)
    calls.clear()
    calls.extend("xxx")  # no further interrupt
    write(tmp_path, Part(2, 3), encode=breaks)
    first = Part(2, 3).shards(25).start
    assert calls[3] == TEXTS[4 * (first + 2)]


def test_a_damaged_shard_is_found_when_parts_are_put_together(tmp_path):
    write(tmp_path, Part(1, 2))
    file = tmp_path / "000003.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"000003\.npy.*encode the part of part-1-of-2\.json again"):
        write(tmp_path, Part(2, 2))
    assert write(tmp_path, Part(1, 2))["complete"]
    np.testing.assert_array_equal(Vectors(tmp_path)[:][:, 0], np.arange(97))


def test_a_part_of_a_complete_folder_encodes_again_what_is_damaged(tmp_path):
    write(tmp_path)
    (tmp_path / "000020.npy").unlink()
    write(tmp_path, Part(1, 2))
    with pytest.raises(DataError):
        Vectors(tmp_path)
    write(tmp_path, Part(2, 2))
    np.testing.assert_array_equal(Vectors(tmp_path)[:][:, 0], np.arange(97))


def test_what_does_not_fit_the_folder(tmp_path):
    write(tmp_path, Part(1, 2))
    with pytest.raises(ConfigError, match=r"holds part-1-of-2\.json"):
        write(tmp_path, Part(1, 3))
    with pytest.raises(ConfigError, match=r"holds part-1-of-2\.json"):
        write(tmp_path)
    with pytest.raises(DataError, match="only parts of vectors"):
        read_manifest(tmp_path)
    with pytest.raises(ConfigError, match=r"without model, not from model other \(SHA-256 a{12}\); give another directory"):
        write(tmp_path, Part(1, 2), OTHER_MODEL)
    write(tmp_path.with_name("other"), Part(1, 2), OTHER_MODEL)
    for file in tmp_path.with_name("other").iterdir():  # a part of another model, copied into the folder
        file.replace(tmp_path / file.name)
    with pytest.raises(ConfigError, match=r"part-1-of-2\.json was made from model other \(SHA-256 a+\), not without model"):
        write(tmp_path, Part(2, 2))
    with pytest.raises(ConfigError, match="int8"):
        write(tmp_path.with_name("bytes"), Part(1, 2), marked({**SETTINGS, "precision": "int8"}))


def test_a_part_with_other_settings_that_was_written_elsewhere_is_found_when_parts_are_put_together(tmp_path):
    write(tmp_path, Part(1, 3))
    write(tmp_path.with_name("other"), Part(2, 3), OTHER_MODEL)
    for file in tmp_path.with_name("other").iterdir():
        file.replace(tmp_path / file.name)
    with pytest.raises(ConfigError, match=r"part-2-of-3\.json was made from model other .*, not without model; .* delete"):
        write(tmp_path, Part(3, 3))


def test_a_list_under_another_name_is_refused(tmp_path):
    write(tmp_path, Part(1, 2))
    (tmp_path / "part-1-of-2.json").rename(tmp_path / "part-2-of-2.json")
    with pytest.raises(DataError, match=r"lists another part.*delete it and encode this part again"):
        write(tmp_path, Part(2, 2))
    (tmp_path / "part-2-of-2.json").unlink()
    for part in Part(1, 2).all_parts():
        write(tmp_path, part)
    assert len(Vectors(tmp_path)) == 97


def test_a_folder_that_was_started_without_parts(tmp_path):
    write(tmp_path)
    manifest = json.loads((tmp_path / "vectors.json").read_text())
    assert "part" not in manifest

    def stops(texts):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "new", encode=stops)
    with pytest.raises(ConfigError, match="started without --part"):
        write(tmp_path / "new", Part(2, 2))


def test_vectors_of_a_later_format_are_refused_as_such_and_nothing_is_written(tmp_path):
    write(tmp_path)
    file = tmp_path / "vectors.json"
    manifest = json.loads(file.read_text())
    manifest[KEY]["format"] += 1
    file.write_text(json.dumps(manifest))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for use in (lambda: Vectors(tmp_path), lambda: write(tmp_path)):
        with pytest.raises(DataError, match=r"vectors\.json has format 4, this version reads format 3; encode the corpus"):
            use()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
