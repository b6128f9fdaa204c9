"""Make a German corpus and a labelled test set of Debian's package descriptions.

    python experiments/german/prepare.py --packages DIR/debian12/Packages --german DIR/debian12/Translation-de \\
        --english DIR/debian12/Translation-en --output german

It writes `german.txt` (a sentence on each line, a blank line between packages), `german_test.tsv` and `english_test.tsv` (the same
packages with the columns `section` and `text`). One package of each source
package is used, and no test package is in the corpus.
"""

import argparse
import collections
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TEST, SMALLEST = 3000, 20  # test packages; packages of the smallest section that is tested
UNTRANSLATED = "<trans"  # mark of a part that nobody has translated
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-ZÄÖÜ])")


class Description(NamedTuple):
    """The short description and the first paragraph of the long one."""

    short: str
    paragraph: str


class Package(NamedTuple):
    """A package with a German description."""

    name: str
    section: str
    german: Description
    english: Description


def records(path: Path) -> Iterator[dict[str, str]]:
    """Yield the fields of each record of an index; a field continues on lines that begin with white space."""
    record: dict[str, str] = {}
    key = ""
    with path.open(encoding="utf-8") as file:
        for line in (line.rstrip("\n") for line in file):
            if not line:
                if record:
                    yield record
                record = {}
            elif line[0] in " \t":
                record[key] += "\n" + line[1:]
            else:
                key, _, value = line.partition(":")
                record[key] = value.strip()
    if record:
        yield record


def descriptions(path: Path, language: str) -> dict[tuple[str, str], str]:
    """Return the descriptions of a Translation file, by package and MD5 of the original."""
    return {(row["Package"], row["Description-md5"]): row[f"Description-{language}"] for row in records(path)}


def parts(text: str) -> Description:
    """Return the parts of a description that are used."""
    short, _, long = text.partition("\n")
    return Description(short.strip(), " ".join(re.split(r"^\.$", long, flags=re.M)[0].split()))


def packages(options: argparse.Namespace) -> list[Package]:
    """Return the first package of each source package that has both descriptions."""
    german, english = descriptions(options.german, "de"), descriptions(options.english, "en")
    rows, sources = [], set()
    for row in records(options.packages):
        key = row["Package"], row.get("Description-md5", "")
        source = row.get("Source", row["Package"]).split()[0]
        if key in german and key in english and source not in sources:
            sources.add(source)
            rows.append(Package(row["Package"], row["Section"], parts(german[key]), parts(english[key])))
    return [row for row in rows if not any(UNTRANSLATED in text for text in row.german)]


def main() -> None:
    """Write the three files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("packages", "german", "english", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    rows = packages(options)
    random.Random(0).shuffle(rows)
    test, corpus = rows[:TEST], rows[TEST:]
    sizes = collections.Counter(row.section for row in test)
    test = [row for row in test if sizes[row.section] >= SMALLEST]
    options.output.mkdir(parents=True, exist_ok=True)
    blocks = ("\n".join([row.german.short, *SENTENCE_END.split(row.german.paragraph)]) + "\n\n" for row in corpus)
    (options.output / "german.txt").write_text("".join(blocks), encoding="utf-8")
    for language in ("german", "english"):
        lines = (f"{row.section}\t{getattr(row, language).short}\n".replace('"', "'") for row in test)
        (options.output / f"{language}_test.tsv").write_text("section\ttext\n" + "".join(lines), encoding="utf-8")
    print(f"{len(corpus):,} packages in german.txt, {len(test):,} in the test files")


if __name__ == "__main__":
    main()
