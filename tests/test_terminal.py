"""Tables of the terminal."""

from jax_sentemb.terminal import WIDTH, table


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
