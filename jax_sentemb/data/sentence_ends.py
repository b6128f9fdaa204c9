"""Find the ends of sentences in a text."""

import re

# Space after . ! or ?, which a quotation mark or a bracket may follow, before a capital letter or a digit. If space is before the
# sign too, as in tokenised text, any letter may follow. The signs of Chinese and Japanese need no space. A blank line ends a
# sentence too.
SENTENCE_END = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][\"')\]”’»]))\s+(?=[\"'(\[“‘«]?[^\Wa-z_])"
    r"|(?<=\s[.!?])\s+(?![.!?\s])"
    r"|(?:(?<=[。！？])|(?<=[。！？][」』”’）]))\s*(?=[^\s」』”’）])"
    r"|\n\s*\n\s*"
)


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the first character of each sentence, and the number after its last character. Space between them is left out."""
    first, end = len(text) - len(text.lstrip()), len(text.rstrip())
    spans = []
    for match in SENTENCE_END.finditer(text, first, end):
        if sentence := text[first : match.start()].rstrip():
            spans.append((first, first + len(sentence)))
        first = match.end()
    return [*spans, (first, end)] if first < end else spans


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, which are separated by SENTENCE_END."""
    return [text[start:end] for start, end in sentence_spans(text)]
