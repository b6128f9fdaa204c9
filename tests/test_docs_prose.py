"""Sentences of the documentation are short, and its lines of prose are wrapped."""

import re

import pytest
from pages import LISTED, ROOT

MOST_WORDS = 25
MOST_COLUMNS = 100
ABBREVIATIONS = ("e.g", "i.e", "etc", "vs", "et al", "Sec", "Fig", "Eq", "No", "cf", "approx")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")


def name(page):
    return page.relative_to(ROOT).as_posix()


def prose_lines(text):
    """Lines outside code blocks, tables, headings, comments, pictures and directives."""
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    return ["" if re.match(r"\s*(\||#|!\[|\[!\[|:::|<|---)", line) else line for line in text.splitlines()]


def paragraphs(text):
    """Paragraphs and list items, each as one line."""
    parts = [""]
    for line in prose_lines(text):
        if not line.strip() or ITEM.match(line):
            parts.append("")
        parts[-1] += " " + ITEM.sub("", line, count=1).strip()
    return [part.strip() for part in parts if part.strip()]


def sentences(text):
    """Sentences of the prose: a link counts as its text, a piece of code as one word."""
    parts = []
    for paragraph in paragraphs(text):
        plain = re.sub(r"`[^`]+`", "code", paragraph)
        plain = re.sub(r"\[[^\]\s]*[./_][^\]\s]*\]\([^)]*\)", "code", plain)  # the name of a file
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
        for abbreviation in ABBREVIATIONS:
            plain = plain.replace(f"{abbreviation}. ", f"{abbreviation} ")
        parts += re.split(r"(?<=[.!?:])[)*\"]*\s+(?=[A-Z\"(*])|(?<=[.!?])[)*\"]*\s+(?=code|[\d±])", plain)
    return [part for part in parts if part]


def word_count(sentence):
    return len(re.findall(r"[^\W_]\S*", sentence))


def faults(text):
    long = [f"{word_count(part)} words: {part}" for part in sentences(text) if word_count(part) > MOST_WORDS]
    return long + [f"{len(line)} columns: {line}" for line in prose_lines(text) if is_too_wide(line)]


def is_too_wide(line):
    """Return whether a line is too long and can be wrapped: links and pieces of code stay whole."""
    words = re.sub(r"`[^`]+`|\]\([^)]*\)", "x", ITEM.sub("", line, count=1)).split()
    return len(line) > MOST_COLUMNS and len(words) > 1


@pytest.mark.parametrize("page", LISTED, ids=name)
def test_sentences_are_short_and_lines_are_wrapped(page):
    assert faults(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("word " * 25, 0),
        ("word " * 26, 1),
        ("word " * 13 + "end. Word " + "word " * 13, 0),
        ("word " * 13 + "rose to 2.5. It " + "word " * 13, 0),
        ("word " * 13 + "`a b c d` [e f](g.md#h) " + "word " * 9, 0),
        ("word " * 13 + "`a b c d` [e f](g.md#h) " + "word " * 10, 1),
        ("- " + "word " * 20 + "\n- " + "word " * 20, 0),
        ("| " + "word " * 40 + "|", 0),
        ("```sh\n" + "word " * 40 + "\n```", 0),
        ("word\n" * 26, 1),
    ],
)
def test_words_of_a_sentence_are_counted(text, count):
    assert sum("words:" in fault for fault in faults(text)) == count


def test_a_wide_line_is_reported_unless_it_cannot_be_wrapped():
    assert faults("word " * 25) == [f"125 columns: {'word ' * 25}"]
    assert faults(f"- `{'x' * 120}`") == []
    assert faults(f"| {'x' * 120} |\n\n# {'x y ' * 40}") == []
