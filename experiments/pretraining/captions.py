"""Writes the captions that studies train on: those of Multi30k, without the pictures that STS or SICK share a caption with.

    python experiments/pretraining/captions.py --data DIR --output captions.txt

Sentences are compared by their letters and digits in lower case. run.py `--captions` writes the same file into its work directory.
"""

import argparse
import lzma
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import parse


def write_captions(corpora: Path, senteval: Path, output: Path) -> None:
    """Write every caption of the pictures none of whose captions is a sentence of an STS or SICK file."""
    scored = {plain(text) for path in scored_files(senteval) for text in path.read_text("utf-8").replace("\n", "\t").split("\t")}
    with lzma.open(corpora / "captions_multi30k.tsv.xz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    kept = [row for row in rows if not scored.intersection(map(plain, row))]
    print(f"captions: {len(rows) - len(kept):,} of {len(rows):,} pictures share a sentence with STS or SICK and are left out")
    partial = output.with_suffix(".partial")
    partial.write_text("".join(f"{caption}\n" for row in kept for caption in row), encoding="utf-8")
    partial.replace(output)


def scored_files(senteval: Path) -> Iterator[Path]:
    """Yield the STS and SICK files of a SentEval folder."""
    for part in ("STS", "SICK"):
        yield from (path for path in sorted((senteval / "downstream" / part).rglob("*")) if path.is_file())


def plain(text: str) -> str:
    """Return a sentence without case, punctuation and tokenisation."""
    return "".join(re.findall(r"\w+", text.lower()))


def main() -> None:
    """Write the captions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    options = parse(parser, corpora="corpora", senteval="senteval")
    write_captions(Path(options.corpora), Path(options.senteval), options.output)


if __name__ == "__main__":
    main()
