"""Containers of sentences: those whose iteration gives names or keys are refused everywhere, the others are read."""

import collections
from collections import UserString

import datasets
import numpy as np
import pandas
import pyarrow
import pytest
from tiny_models import tiny_model

import jax_sentemb
from jax_sentemb import SentenceEncoder
from jax_sentemb.data.containers import problem_with, sentence_list
from jax_sentemb.data.word_tokenizer import WordTokenizer
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.formats.encode_settings import EncodeSettings
from jax_sentemb.formats.sentence_transformers import write_export

TEXTS = ["a man plays", "two dogs run", "a man plays"]
TABLE = {"id": ["1", "2", "3"], "text": TEXTS}


class Keyed:
    """A mapping that is not registered as one."""

    def keys(self):
        return TABLE.keys()

    def __iter__(self):
        return iter(TABLE)


class Frame:
    """A table of a package that nobody knows."""

    columns = ("id", "text")

    def __iter__(self):
        return iter(self.columns)


def tables():
    frame = pandas.DataFrame(TABLE)
    dataset = datasets.Dataset.from_dict(TABLE)
    return {
        "DataFrame": frame,
        "dict": TABLE,
        "ChainMap": collections.ChainMap(TABLE),
        "Table": pyarrow.table(TABLE),
        "RecordBatch": pyarrow.RecordBatch.from_pydict(TABLE),
        "Dataset": dataset,
        "DatasetDict": datasets.DatasetDict({"train": dataset}),
        "IterableDataset": dataset.to_iterable_dataset(),
        "DataFrameGroupBy": frame.groupby("id"),
        "ndarray": np.array(list(zip(*TABLE.values(), strict=True)), [("id", "U9"), ("text", "U9")]),
        "recarray": frame.to_records(index=False),
        "Keyed": Keyed(),
        "Frame": Frame(),
    }


OTHERS = {
    "set": set(TEXTS),
    "frozenset": frozenset(TEXTS),
    "dict_keys": TABLE.keys(),
    "bytes": b"a",
    "memoryview": memoryview(b"a"),
}
OTHERS |= {"int": 3, "NoneType": None, "UserString": UserString("a man")}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("containers") / "model"
    write_export(folder, tiny_model(TEXTS, 60))
    return SentenceEncoder(folder)


@pytest.mark.parametrize("name", tables())
def test_a_table_is_refused_with_the_way_to_give_a_column(encoder, name):
    table = tables()[name]
    wanted = rf"^sentences is {name} with the columns .*, not a list of str; give one column, for instance data\['\w+'\]"
    for call in (
        encoder.encode,
        encoder.encode_query,
        encoder.encode_document,
        lambda texts: encoder.encode(texts, output_value="token_embeddings"),
        lambda texts: encoder.tokenizer.encode(texts, 16),
        lambda texts: WordTokenizer.of(["a"], True).encode(texts, 16),
        EncodeSettings().add_prompt,
    ):
        with pytest.raises(TypeError, match=wanted):
            call(table)
    with pytest.raises(ConfigError, match=wanted):
        jax_sentemb.train(table, recipe="simcse:tiny")
    with pytest.raises(DataError, match=rf"^data is {name} with the columns .*; it needs sentence1, sentence2, score$"):
        jax_sentemb.score(encoder, table)


@pytest.mark.parametrize("name", OTHERS)
def test_what_has_no_sentences_is_refused(encoder, name):
    for call in (encoder.encode, lambda texts: encoder.tokenizer.encode(texts, 16), EncodeSettings().add_prompt):
        with pytest.raises(TypeError, match=f"^sentences is {name}"):
            call(OTHERS[name])
    with pytest.raises(ConfigError, match=f"^sentences is {name}"):
        jax_sentemb.train(OTHERS[name], recipe="simcse:tiny")


def test_a_single_text_is_not_read_letter_by_letter(encoder):
    for call in (lambda texts: encoder.tokenizer.encode(texts, 16), EncodeSettings().add_prompt):
        with pytest.raises(TypeError, match="sentences is str, a single text; give a list of str"):
            call("a man")


def columns():
    frame = pandas.DataFrame(TABLE)
    return {
        "list": TEXTS,
        "tuple": tuple(TEXTS),
        "generator": (text for text in TEXTS),
        "values": dict(enumerate(TEXTS)).values(),
        "deque": collections.deque(TEXTS),
        "series": frame["text"],
        "series with the texts as index": frame.set_index("text", drop=False)["text"],
        "index": pandas.Index(TEXTS),
        "extension array": frame["text"].astype("string").array,
        "numpy strings": np.array(TEXTS),
        "numpy objects": np.array(TEXTS, object),
        "numpy variable strings": np.array(TEXTS, np.dtypes.StringDType()),
        "arrow": pyarrow.array(TEXTS),
        "arrow chunks": pyarrow.chunked_array([TEXTS[:1], TEXTS[1:]]),
        "arrow of a table": pyarrow.table(TABLE)["text"],
        "datasets column": datasets.Dataset.from_dict(TABLE)["text"],
        "datasets iterable column": datasets.Dataset.from_dict(TABLE).to_iterable_dataset()["text"],
    }


@pytest.mark.parametrize("name", columns())
def test_a_column_is_read(name):
    assert sentence_list(columns()[name]) == TEXTS


def test_polars():
    polars = pytest.importorskip("polars")
    assert sentence_list(polars.DataFrame(TABLE)["text"]) == TEXTS
    for table in (polars.DataFrame(TABLE), polars.LazyFrame(TABLE)):
        assert problem_with(table).endswith(
            "with the columns id, text, not a list of str; give one column, for instance data['text']"
        )


def test_two_dimensions_are_refused():
    assert (
        problem_with(np.array([TEXTS, TEXTS])) == "sentences is ndarray with 2 dimensions; give one column, for instance data[:, 0]"
    )


@pytest.mark.parametrize(
    "column",
    [
        pandas.Series(["a", None, float("nan")]),
        pandas.array(["a", None], dtype="string"),
        pyarrow.array(["a", None]),
        np.ma.masked_array(["a", "b"], [False, True]),
        ["a", float("nan")],
        np.array(["a", b"b"], object),
    ],
)
def test_a_missing_text_is_refused_with_its_number(encoder, column):
    with pytest.raises(TypeError, match=r"^sentence 1 is \w+, not str"):
        encoder.encode(column)
    with pytest.raises(DataError, match=r"^sentence 1 is \w+, not str"):
        jax_sentemb.train(column, recipe="simcse:tiny")
