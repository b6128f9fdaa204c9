"""Settings whose text has a form of its own."""

import pytest

from jax_sentemb.errors import ConfigError
from jax_sentemb.setting_texts import chosen_layers, rate_steps, rewind_window


@pytest.mark.parametrize(
    ("text", "count", "numbers"),
    [("1,3,5", 6, (1, 3, 5)), ("3", 6, (1, 3, 5)), ("3", 12, (1, 5, 9)), ("4", 6, (1, 2, 4, 5)), ("6,", 6, (6,)), ("1", 6, (1,)),
     ("6", 6, (1, 2, 3, 4, 5, 6)), (" 2, 4", 6, (2, 4))],
)  # fmt: skip
def test_a_count_is_spread_from_the_first_layer_and_numbers_are_from_1(text, count, numbers):
    assert chosen_layers(text, count) == numbers


def test_steps_are_read_in_order():
    assert rate_steps("steps", "3:1e-2,7:1e-3") == {3: 1e-2, 7: 1e-3}
    assert rate_steps("linear", "") == {}


def test_a_rewind_names_the_number_of_batches():
    assert [rewind_window(text) for text in ("", "rewind:7")] == [0, 7]
    with pytest.raises(ConfigError, match="rewind:K"):
        rewind_window("rewind:-1")
