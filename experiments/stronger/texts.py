"""Writes the texts of the study: wiki.txt, mix.txt, and held_out.txt of other kinds of text.

    python experiments/stronger/texts.py --data DIR --output texts

No sentence of a text occurs in an STS or SICK file (compared by letters and digits alone), and no picture whose captions do.
"""

import argparse
import csv
import itertools
import lzma
import random
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from data import SETS
from study_data import require

MIX = {"wiki": 70_000, "news": 20_000, "novels": 25_000, "nli": 35_000, "captions": 40_000, "paragraphs": 10_000}
PARAGRAPH = (60, 160)  # words; its sentences follow one another in a document
WIKI, HELD_OUT = 200_000, 680  # sentences of wiki.txt; of each kind in held_out.txt
WORDS = 3  # fewest words of a sentence


def bare(sentence: str) -> str:
    """Return the letters and digits of a sentence in lower case."""
    return re.sub(r"[\W_]+", "", sentence.lower())


def table(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a tab-separated file with a header, compressed or not."""
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def lines(path: Path) -> list[str]:
    """Return the lines of a compressed text that are not blank."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip()]


def scored(data: Path) -> set[str]:
    """Return the bare sentences of all STS and SICK files."""
    return {
        bare(row[side])
        for path in sorted((data / "sts_raw").rglob("*.tsv"))
        for row in table(path)
        for side in ("sentence1", "sentence2")
    }


def usable(sentences: Iterable[str], left_out: set[str], count: int, seed: int = 0) -> list[str]:
    """Return `count` distinct sentences that are not left out, in random order."""
    distinct = {bare(sentence): sentence for sentence in sentences if len(sentence.split()) >= WORDS}
    found = [sentence for key, sentence in distinct.items() if key not in left_out]
    random.Random(seed).shuffle(found)
    return found[:count]


def kinds(data: Path, left_out: set[str]) -> dict[str, Iterable[str]]:
    """Return the sentences of each kind of training text."""
    corpora = data / "corpora"
    nli = [
        row[side]
        for path in sorted(corpora.glob("nli_*"))
        for row in table(path)
        for side in ("sentence1", "sentence2")
        if row.get(side)
    ]
    with lzma.open(corpora / "captions_multi30k.tsv.xz", "rt", encoding="utf-8") as file:
        pictures = [line.rstrip("\n").split("\t") for line in file]
    clean = [row for row in pictures if not any(bare(caption) in left_out for caption in row)]
    return {
        "wiki": lines(corpora / "wiki_sentences.txt.xz"),
        "news": lines(corpora / "news_1b_heldout.txt.xz"),
        "novels": lines(corpora / "ordered_novels.txt.xz"),
        "nli": nli,
        "captions": itertools.chain.from_iterable(clean),
        "paragraphs": paragraphs(corpora / "ordered_wiki.txt.xz", left_out),
    }


def paragraphs(path: Path, left_out: set[str], seed: int = 0) -> Iterator[str]:
    """Yield paragraphs of random lengths of documents that blank lines separate, without sentences that are left out."""
    lengths = random.Random(seed)
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for filled, document in itertools.groupby(map(str.strip, file), bool):
            most, words = lengths.randint(*PARAGRAPH), []
            for sentence in document if filled else ():
                if bare(sentence) in left_out:
                    words = []
                    continue
                words += sentence.split()
                if len(words) >= most:
                    yield " ".join(words)
                    most, words = lengths.randint(*PARAGRAPH), []


def other_kinds(data: Path) -> dict[str, list[str]]:
    """Return the sentences of kinds of text that are neither trained on nor scored."""
    downstream = next(path for path in (data / "senteval").rglob("downstream"))

    def text(pattern: str) -> list[str]:
        return [line.strip() for path in sorted(downstream.glob(pattern)) for line in path.read_text("latin-1").splitlines()]

    return {
        "reviews of films": text("MR/rt-polarity.*"),
        "reviews of products": text("CR/custrev.*"),
        "questions": [line.partition(" ")[2] for line in text("TREC/train*")],
    }


def write(path: Path, sentences: Iterable[str]) -> None:
    """Write one sentence a line."""
    path.write_text("".join(f"{' '.join(sentence.split())}\n" for sentence in sentences), encoding="utf-8")


def main() -> None:
    """Write the three texts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of experiments/data.md")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    read_here = [row for row in SETS if "stronger" in row["studies"] and not row["path"].startswith("domains/")]
    require([options.data / row["path"] for row in read_here])  # tables.py reads the domains
    options.output.mkdir(parents=True, exist_ok=True)
    left_out = scored(options.data)
    training = kinds(options.data, left_out)
    parts = {name: usable(sentences, left_out, max(MIX[name], WIKI * (name == "wiki"))) for name, sentences in training.items()}
    write(options.output / "wiki.txt", parts["wiki"][:WIKI])
    mixed = [sentence for name, count in MIX.items() for sentence in parts[name][:count]]
    random.Random(0).shuffle(mixed)
    write(options.output / "mix.txt", mixed)
    trained = left_out | {bare(sentence) for part in parts.values() for sentence in part}
    others = {name: usable(sentences, trained, HELD_OUT) for name, sentences in other_kinds(options.data).items()}
    write(options.output / "held_out.txt", itertools.chain.from_iterable(others.values()))
    for name, part in (parts | others).items():
        print(f"{name}: {len(part):,} sentences, for instance {part[0][:90]}")


if __name__ == "__main__":
    main()
