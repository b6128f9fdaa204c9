"""The corpus of this study: NLI sentences and captions as plain text, without what the evaluation sets contain.

    python experiments/is_bert/prepare.py --data DIR --output nli_captions.txt

A row of captions (five of one picture) is dropped whole where any of them occurs in an STS or SICK file; NLI sentences are dropped
one by one. Compared are letters and digits in lower case. Prints what it did.
"""

import argparse
import csv
import lzma
import re
import sys
from pathlib import Path

from jax_sentemb.evaluation import suite
from jax_sentemb.evaluation.catalog import load_sts

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import parse

NLI = ("nli_snli-dev", "nli_snli-test", "nli_snli_counterfactual", "nli_mnli-train_sample", "nli_mnli-test_sample")


def letters(sentence: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", sentence.lower())


def rows(path: Path):
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        table = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(table)
        yield from table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    options = parse(parser, corpora="corpora", senteval="senteval")
    options.corpora, options.senteval = Path(options.corpora), Path(options.senteval)
    tasks, _ = load_sts(options.senteval)
    scored = {letters(s) for task in tasks.values() for pairs in task.subsets.values() for side in pairs[:2] for s in side}
    for name in ("STSBenchmark", "SICKRelatedness"):
        scored |= {letters(sentence) for sentence in suite.load(name, options.senteval).sentences}
    nli = [sentence for name in NLI for row in rows(options.corpora / f"{name}.tsv.xz") for sentence in row[:2]]
    kept = dict.fromkeys(sentence for sentence in nli if letters(sentence) not in scored)
    print(f"NLI: {len(nli):,} sentences, {len(set(nli)):,} distinct, {len(kept):,} of them in no evaluation set")
    captions = list(rows(options.corpora / "captions_multi30k.tsv.xz"))
    free = [row for row in captions if not any(letters(sentence) in scored for sentence in row)]
    kept |= dict.fromkeys(sentence for row in free for sentence in row)
    print(f"captions: {len(captions):,} rows of five, {len(free):,} share no sentence with an evaluation set")
    options.output.write_text("".join(sentence + "\n" for sentence in kept), encoding="utf-8")
    print(f"{options.output.name}: {len(kept):,} distinct sentences")


if __name__ == "__main__":
    main()
