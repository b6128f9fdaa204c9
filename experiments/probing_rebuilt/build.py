"""Three probing tasks rebuilt from any file of sentences, in SentEval's format, for where the published files are not at hand.

  python experiments/probing_rebuilt/build.py --data DIR --output probing --train 20000 --words 200

Length: six bins of tokens. WordContent: which one of some words of middling frequency a sentence has. BigramShift: whether two
neighbouring words were swapped. Built as Conneau et al. (2018) describe, from other sentences, so not comparable with their scores.
"""

import argparse
import lzma
import sys
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import parse

BINS = ((5, 8), (9, 12), (13, 16), (17, 20), (21, 25), (26, 28))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--train", type=int, default=20_000, help="training sentences of each task; a tenth of it for dev and test")
    parser.add_argument("--words", type=int, default=200, help="classes of WordContent (published: 1,000)")
    parser.add_argument("--seed", type=int, default=0)
    options = parse(parser, sentences="corpora/wiki_sentences.txt.xz")
    options.sentences = Path(options.sentences)
    opened = lzma.open if options.sentences.suffix == ".xz" else open
    with opened(options.sentences, "rt", encoding="utf-8") as file:
        sentences = [tokens for line in file if 5 <= len(tokens := line.split()) <= 28]
    random = np.random.default_rng(options.seed)
    sentences = [sentences[row] for row in random.permutation(len(sentences))]
    sizes = [options.train, options.train // 10, options.train // 10]
    write(options.output, "sentence_length", length(sentences, sum(sizes)), sizes)
    write(options.output, "word_content", word_content(sentences, sum(sizes), options.words), sizes)
    write(options.output, "bigram_shift", bigram_shift(sentences, sum(sizes), random), sizes)


def length(sentences: list[list[str]], count: int) -> list[tuple[str, list[str]]]:
    """As many sentences of each bin."""
    found: list[tuple[str, list[str]]] = []
    left = [-(-count // len(BINS))] * len(BINS)
    for tokens in sentences:
        label = next(number for number, (low, high) in enumerate(BINS) if low <= len(tokens) <= high)
        if left[label]:
            left[label] -= 1
            found.append((str(label), tokens))
    return found


def word_content(sentences: list[list[str]], count: int, words: int) -> list[tuple[str, list[str]]]:
    """As many sentences of each word, every sentence with one of the words only. Words are taken from rank 2,000 on."""
    counts = Counter(word for tokens in sentences for word in set(tokens))
    ranked = [word for word, _ in counts.most_common() if word.isalpha() and word.islower()]
    targets = set(ranked[2000 : 2000 + words])
    left = dict.fromkeys(targets, count // words)
    found = []
    for tokens in sentences:
        inside = targets.intersection(tokens)
        if len(inside) == 1 and left[word := inside.pop()]:
            left[word] -= 1
            found.append((word, tokens))
    return found


def bigram_shift(sentences: list[list[str]], count: int, random: np.random.Generator) -> list[tuple[str, list[str]]]:
    """Every other sentence with two neighbouring, different words swapped, not at its ends."""
    found = []
    for number, tokens in enumerate(sentences[:count]):
        tokens = list(tokens)
        places = [place for place in range(1, len(tokens) - 2) if tokens[place] != tokens[place + 1]]
        if number % 2 and places:
            place = int(random.choice(places))
            tokens[place : place + 2] = tokens[place + 1], tokens[place]
            found.append(("I", tokens))
        else:
            found.append(("O", tokens))
    return found


def write(folder: Path, name: str, examples: list[tuple[str, list[str]]], sizes: list[int]) -> None:
    """SentEval's lines, shuffled already; parts shrink together where there are too few examples."""
    random = np.random.default_rng(1)
    examples = [examples[row] for row in random.permutation(len(examples))]
    share = min(1.0, len(examples) / sum(sizes))
    path = folder / "probing" / f"{name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = iter(examples)
    with path.open("w", encoding="utf-8") as file:
        for part, size in zip(("tr", "va", "te"), sizes, strict=True):
            for _ in range(int(size * share)):
                label, tokens = next(rows)
                file.write(f"{part}\t{label}\t{' '.join(tokens)}\n")
    print(f"{path}: {int(sum(sizes) * share):,} sentences")


if __name__ == "__main__":
    main()
