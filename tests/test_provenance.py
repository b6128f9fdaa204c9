"""Marks of what a file was made from: which differences are found, and how a message says them."""

import json

import pytest

from jax_sentemb import provenance
from jax_sentemb.errors import ConfigError, DataError, ModelFileError, keyword, spelled
from jax_sentemb.provenance import CHECKPOINT, KEY, SEARCH_INDEX, VECTORS, Source, check, fingerprint, mark

OLD, NEW = Source("a.txt", "a" * 64), Source("b.txt", "b" * 64)
SOURCES = {"corpus": OLD, "normalize": False, "range": (1, 2), "prompt": None}


def content(sources=SOURCES, file_type=SEARCH_INDEX):
    return json.loads(json.dumps({KEY: mark(file_type, sources)}))


def problem(recorded, sources=SOURCES, file_type=SEARCH_INDEX):
    with pytest.raises(DataError) as caught:
        check("idx", recorded, file_type, sources)
    return str(caught.value)


def test_a_file_of_the_same_sources_is_accepted():
    assert check("idx", content(), SEARCH_INDEX, SOURCES)["corpus"] == {"name": "a.txt", "sha256": "a" * 64}
    renamed = {**SOURCES, "corpus": OLD._replace(name="copy.txt")}
    check("idx", content(), SEARCH_INDEX, renamed)
    check("idx", content(), SEARCH_INDEX, {"normalize": False})  # only what is named is compared


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"corpus": NEW}, "was made from corpus a.txt (SHA-256 aaaaaaaaaaaa), not from corpus b.txt (SHA-256 bbbbbbbbbbbb)"),
        ({"normalize": True}, "was made with normalize=False, not with normalize=True"),
        ({"range": (1, 3)}, "was made with range=[1, 2], not with range=[1, 3]"),
        ({"prompt": "query: "}, "was made without prompt, not with prompt='query: '"),
        ({"dtype": "bfloat16"}, "was made without dtype, not with dtype='bfloat16'"),
        ({"corpus": None}, "was made from corpus a.txt (SHA-256 aaaaaaaaaaaa), not without corpus"),
    ],
)
def test_a_source_that_differs_is_named_with_both_values(changed, expected):
    assert problem(content(), {**SOURCES, **changed}) == f"idx {expected}; delete it, or give another --index"


def test_another_format_and_another_type_of_file_are_named():
    current = SEARCH_INDEX.format
    newer = content(file_type=SEARCH_INDEX._replace(format=current + 1))
    assert (
        problem(newer) == f"idx has format {current + 1}, this version reads format {current}; delete it, or give another --index"
    )
    assert (
        problem(content(file_type=VECTORS))
        == "idx is a file of type 'vectors', not 'search index'; delete it, or give another --index"
    )
    assert not provenance.is_marked(content(file_type=VECTORS), SEARCH_INDEX)
    assert provenance.is_marked(newer, SEARCH_INDEX)


@pytest.mark.parametrize(
    "recorded",
    [None, 3, [], {}, {KEY: None}, {KEY: []}, {KEY: {"file": "search index", "format": 1}}, {KEY: {"sources": []}}],
)
def test_a_file_without_a_mark_is_refused(recorded):
    assert problem(recorded) == "idx does not record its sources; delete it, or give another --index"


@pytest.mark.parametrize(
    "value", [3, "a" * 64, None, {}, {"name": "a.txt"}, {"name": 3, "sha256": [1]}, {"name": "\x1b[2J" * 999, "sha256": "c" * 9999}]
)
def test_values_of_a_hostile_mark_are_one_short_line(value):
    recorded = content()
    recorded[KEY]["sources"]["corpus"] = value
    found = problem(recorded)
    assert found.isprintable()
    assert len(found) < 2000
    assert "not from corpus a.txt" in found


def test_the_error_and_the_remedy_are_those_of_the_type_or_of_the_caller():
    with pytest.raises(ModelFileError):
        check("1", {}, CHECKPOINT)
    with pytest.raises(ConfigError, match=r"; another directory$"):
        check("vectors", {}, VECTORS, error=ConfigError, remedy=("another directory",))


def test_a_fingerprint_depends_on_type_format_and_sources_and_not_on_names():
    made = fingerprint(VECTORS, SOURCES)
    assert made == fingerprint(VECTORS, {**SOURCES, "corpus": OLD._replace(name="copy.txt")})
    others = [
        fingerprint(SEARCH_INDEX, SOURCES),
        fingerprint(VECTORS._replace(format=9), SOURCES),
        fingerprint(VECTORS, {**SOURCES, "corpus": NEW}),
        fingerprint(VECTORS, {**SOURCES, "normalize": True}),
        fingerprint(VECTORS, {**SOURCES, "normalize": 0}),  # equal to False in Python
    ]
    assert len({made, *others}) == 1 + len(others)


def test_a_remedy_is_spelled_for_a_function_of_python():
    with pytest.raises(ModelFileError, match=r"give the old input or setting, or another workdir$"), spelled(keyword):
        check("step", {}, CHECKPOINT)
