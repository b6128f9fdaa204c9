"""Arguments of public functions: NumPy's numbers are accepted, other types are one line that names the argument."""

import subprocess
import sys

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jax_sentemb import deduplicate, kmeans, mine_pairs, search
from jax_sentemb.checks import array, choice, finite_number, flag, limits_of, row_numbers, text, whole_number
from jax_sentemb.errors import ConfigError


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.array(3), jnp.int32(3)])
def test_whole_numbers_of_every_library(value):
    number = whole_number("top_k", value, 1, 3)
    assert (number, type(number)) == (3, int)


@pytest.mark.parametrize("value", [0, 4, 3.0, 2.5, "3", True, np.True_, None, float("nan"), [3], np.array([3, 3]), 3j, b"3"])
def test_other_values_are_no_whole_numbers(value):
    with pytest.raises(ConfigError, match=r"^top_k=.*: must be a whole number from 1 to 3$"):
        whole_number("top_k", value, 1, 3)


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.int64(1), np.array(1.0)])
def test_finite_numbers_of_every_library(value):
    assert finite_number("threshold", value, 0) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -1, "1", b"1", True, np.True_, None, [1], 1j, 10**400])
def test_other_values_are_no_finite_numbers(value):
    with pytest.raises(ConfigError, match=r"^threshold=.*: must be a finite number of 0 or more$"):
        finite_number("threshold", value, 0)


@pytest.mark.parametrize("value", ["a man", ["a man"], np.array(["a man"])])
def test_text_in_place_of_embeddings_is_told_so(value):
    with pytest.raises(ConfigError, match=r"^queries is text: must contain real numbers, such as"):
        array("queries", value)


def test_flags_choices_and_texts():
    assert (flag("verify", np.True_), choice("dtype", "a", ("a", "b")), text("prompt", "")) == (True, "a", "")
    for check, value in ((flag, 1), (flag, None), (flag, "no"), (text, 3), (text, None), (text, b"x")):
        with pytest.raises(ConfigError, match=r"^name=.*: must be "):
            check("name", value)
    for value in ("c", None, ["a"], 1):
        with pytest.raises(ConfigError, match=r"^name=.*: must be one of a, b"):
            choice("name", value, ("a", "b"))


def test_arrays_of_every_library():
    torch = pytest.importorskip("torch")
    tensors = [
        torch.ones(2, 3), torch.ones(2, 3, requires_grad=True), torch.ones(2, 3, dtype=torch.bfloat16),
        torch.ones(2, 3, dtype=torch.float16), torch.ones(2, 3, dtype=torch.int8),
    ]  # fmt: skip
    others = [[[1, 1, 1]] * 2, jnp.ones((2, 3)), jnp.ones((2, 3), jnp.bfloat16), np.ones((2, 3), ml_dtypes.float8_e4m3fn)]
    for value in (*tensors, *others):
        numbers = array("vectors", value)
        assert numbers.dtype.kind in "fi"
        np.testing.assert_array_equal(numbers, np.ones((2, 3)))
    assert array("vectors", np.ones(2, np.float64)).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.longdouble])
def test_numbers_of_more_than_32_bits_keep_their_values(dtype):
    rows = np.array([[2**40, 1], [1, 3]], dtype)
    for count in (2, 12):  # queries, which NumPy or JAX compares
        hits = search(np.repeat(rows[:1], count, axis=0), rows, similarity="dot")
        np.testing.assert_allclose(hits.scores, [[2.0**80, 2.0**40]] * count, rtol=1e-6)
        assert hits.indices.tolist() == [[0, 1]] * count
    np.testing.assert_allclose(mine_pairs(rows).scores, 10**-0.5, rtol=1e-6)
    assert kmeans(rows, 2).labels[0] != kmeans(rows, 2).labels[1]


@pytest.mark.parametrize("rows", [slice(None, None, 2), slice(None, None, -1), 1, [0, 1], None, np.array([True, False])])
def test_rows_that_are_no_slice_without_a_step_are_refused(rows):
    assert (limits_of(slice(1, 9), 5), limits_of(slice(-2, None), 5)) == ((1, 5), (3, 5))
    with pytest.raises(ConfigError, match=r"^rows .*: must be a slice without a step"):
        limits_of(rows, 5)


@pytest.mark.parametrize("rows", [[-1], [5], [0.0], [True], 3, [[0]], ["0"], None])
def test_row_numbers_outside_of_the_rows_are_refused(rows):
    assert row_numbers([4, 0], 5).tolist() == [4, 0]
    assert row_numbers([], 5).dtype == np.int64
    with pytest.raises(ConfigError, match=r"^rows .*: must be a list of whole numbers from 0 to 4$"):
        row_numbers(rows, 5)


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">f2", ">i4"])
def test_the_order_of_bytes_has_no_influence(dtype):
    rows = np.random.default_rng(0).integers(-9, 9, (12, 8)).astype(dtype)
    assert array("vectors", rows).dtype.isnative
    for result in (
        lambda rows: kmeans(rows, 3),
        lambda rows: search(rows[:2], rows),
        mine_pairs,
        lambda rows: deduplicate(rows)[:4],
    ):
        for one, other in zip(result(rows), result(rows.astype(np.float32)), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


CALLS = """
top_k=2.5: search(ROWS, ROWS, 2.5)
top_k=True: search(ROWS, ROWS, True)
rescore=-1: search(ROWS, ROWS, rescore=-1)
similarity='l2': search(ROWS, ROWS, similarity="l2")
queries of shape [2, 2, 2]: search(np.ones((2, 2, 2)), ROWS)
vectors of shape [2, 0]: kmeans(np.ones((2, 0)), 1)
top_k=0: mine_pairs(ROWS, 0)
threshold=nan: mine_pairs(ROWS, None, np.nan)
threshold='0.5': mine_pairs(ROWS, None, "0.5")
threshold=nan: community_detection(ROWS, np.nan)
min_community_size=1.0: community_detection(ROWS, 0.5, 1.0)
threshold=nan: deduplicate(ROWS, np.nan)
k=2.0: kmeans(ROWS, 2.0)
seed=-1: kmeans(ROWS, 2, -1)
seed=2147483648: kmeans(ROWS, 2, 1 << 31)
rounds=0: kmeans(ROWS, 2, rounds=0)
tolerance=nan: kmeans(ROWS, 2, tolerance=np.nan)
path 3: Vectors(3)
verify=2: Vectors(".", verify=2)
batch_size=2.0: senteval_batcher(len, 2.0)
model is int: senteval_batcher(3)
encoder is NoneType: score(None, [])
model is NoneType: SentenceEncoder(None)
max_seq_length=nan: SentenceEncoder("absent", max_seq_length=np.nan)
max_seq_length=None: SentenceEncoder("absent", max_seq_length=None)
path 3: train(["a"], workdir=3)
"""


def test_arguments_are_named_where_they_are_given():
    """In a process of its own, because the tests also check the types of all arguments."""
    code = """
import sys
import numpy as np
from jax_sentemb import *
from jax_sentemb.errors import ConfigError
ROWS = np.eye(4, 3)
for line in sys.stdin.read().strip().splitlines():
    try:
        eval(line.partition(": ")[2])
        print("no error")
    except ConfigError as error:
        print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], input=CALLS, text=True, capture_output=True, check=True).stdout
    for expected, message in zip(CALLS.strip().splitlines(), found.splitlines(), strict=True):
        assert message.startswith(expected.partition(": ")[0])
