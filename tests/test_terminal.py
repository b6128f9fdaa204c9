"""Tables of the terminal."""

import json

from jax_sentemb.system.terminal import WIDTH, json_text, table


def test_numbers_are_to_the_right_and_what_is_too_wide_is_wrapped():
    text = table(("set", "score"), [("STS12", "1.00"), ("a" * 200, "61.20")], "Scores")
    lines = text.splitlines()
    assert lines[0] == "Scores"
    assert max(map(len, lines)) <= WIDTH
    assert text.count("a") == 200
    assert next(line for line in lines if "STS12" in line).endswith(" 1.00")


def test_texts_cannot_control_the_terminal():
    text = table(("text",), [("\x1b[31mred[/red] [bold]x",)])
    assert "red[/red] [bold]x" in text
    assert "\x1b" not in text


def test_json_and_heads_of_tables_have_nothing_that_a_terminal_obeys():
    assert json_text({"a": "caf\u00e9 \x1b[31m \x7f \x9b2J"}) == '{"a": "caf\u00e9 \\u001b[31m \\u007f \\u009b2J"}'
    assert json.loads(json_text({"a": "\x9b"})) == {"a": "\x9b"}
    assert "\x1b" not in table(["a\x1b[31mb"], [["c"]], title="\x9b2Jt")
    assert "\x9b" not in table(["a\x1b[31mb"], [["c"]], title="\x9b2Jt")
