"""Tables and progress of the terminal."""

import io
import json
import re
import sys
from types import SimpleNamespace

import pytest

from jax_sentemb.system import terminal
from jax_sentemb.system.terminal import WIDTH, Progress, counted, json_text, table


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
    assert "the dog barks" in table(("text",), [("the dog\u2028barks",)])


def test_json_and_heads_of_tables_have_nothing_that_a_terminal_obeys():
    assert json_text({"a": "caf\u00e9 \x1b[31m \x7f \x9b2J"}) == '{"a": "caf\u00e9 \\u001b[31m \\u007f \\u009b2J"}'
    assert json.loads(json_text({"a": "\x9b"})) == {"a": "\x9b"}
    assert "\x1b" not in table(["a\x1b[31mb"], [["c"]], title="\x9b2Jt")
    assert "\x9b" not in table(["a\x1b[31mb"], [["c"]], title="\x9b2Jt")


@pytest.fixture
def clock(monkeypatch):
    """time.monotonic under the test's hand."""
    now = SimpleNamespace(value=100.0)
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now.value)
    return now


def test_a_log_has_a_line_of_progress_from_time_to_time(clock, capsys):
    with Progress("encode", 1000, "sentences") as progress:
        for _ in range(100):
            clock.value += 1
            progress.update(10)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "encode 30/1000: 10 sentences/s, 00:03 done, 01:37 left"  # after DELAY
    assert lines[-1] == "encode 1000/1000: 10 sentences/s, 01:40 done, 00:00 left"
    assert len(lines) == 5  # after 3, 34, 65 and 96 seconds, and at the end


def test_the_time_left_does_not_count_the_compilation_of_the_first_batch(clock, capsys):
    with Progress("encode", 400, "sentences") as progress:
        for seconds, count in ((60, 10), (31, 310), (8, 80)):
            clock.value += seconds
            progress.update(count)
    assert capsys.readouterr().err.splitlines() == [
        "encode 10/400: 01:00 done",
        "encode 320/400: 10 sentences/s, 01:31 done, 00:08 left",
        "encode 400/400: 4.04 sentences/s, 01:39 done, 00:00 left",
    ]


def test_a_count_starts_when_nothing_is_finished_yet(clock, capsys):
    with counted("compare", "blocks") as progress:
        for total in (4, 2):
            progress(0, total)
            for done in range(total):
                clock.value += 2
                progress(done + 1, total)
    assert capsys.readouterr().err.splitlines() == [
        "compare 2/4: 0.5 blocks/s, 00:04 done, 00:04 left",
        "compare 4/4: 0.5 blocks/s, 00:08 done, 00:00 left",
        "compare 2/2: 0.5 blocks/s, 00:04 done, 00:00 left",
    ]


def test_a_short_task_prints_nothing(clock, capsys):
    with Progress("encode", 10, "sentences") as progress:
        clock.value += terminal.DELAY - 0.1
        progress.update(10)
    assert capsys.readouterr().err == ""


def test_rows_that_are_finished_replace_the_distinct_texts_counted_before(clock, capsys):
    progress = Progress("vectors", 8, "rows", delay=0)
    clock.value += 40
    progress.update(2)  # two distinct texts of four rows
    progress.finish(4)
    clock.value += 40
    progress.finish(4)
    shown = [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["vectors 2/8", "vectors 8/8"]
    progress.restart()
    assert (progress.done, progress.total) == (0, 8)


def test_rows_that_existed_are_not_in_the_rate(clock, capsys):
    with Progress("teacher", 2000, "sentences") as progress:
        for _ in range(9):  # shards of an interrupted command
            clock.value += 0.001
            progress.finish(100)
        for count in (10, 320, 770):
            clock.value += 31
            progress.update(count)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in lines] == [
        "00:31 done",
        "10.3 sentences/s, 01:02 done, 01:14 left",
        "11.8 sentences/s, 01:33 done, 00:00 left",
    ]


def test_a_bar_does_not_count_rows_that_existed(monkeypatch):
    monkeypatch.setattr(terminal, "is_watched", lambda: True)
    with Progress("teacher", 2000, "sentences", delay=0) as progress:
        progress.finish(900)
        progress.update(100)
        assert (progress._bar.n, progress._bar.initial) == (1000, 900)


def test_on_a_terminal_a_bar_shows_the_time_left_and_lines_stand_above_it(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("<model>", 4, "texts", delay=0) as progress:
        progress.update(1)
        progress.write("\x1b[31merror: x")
        progress.show(4, "note")
    text = stream.getvalue()
    assert "4/4" in text
    assert "note" in text
    assert "\rerror: x\n" in re.sub(r"\r +\r", "\r", text)
