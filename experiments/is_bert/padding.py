"""What padding does to an exported IS-BERT in sentence-transformers, with and without the word weights that our exports have.

    python experiments/is_bert/padding.py --export runs/is_bert/sts/IS-BERT/export --data DIR

Encodes 500 sentences of STS12 one at a time and beside a sentence of 100 words, and prints how far the vectors are apart. Needs
sentence-transformers.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import parse

from jax_sentemb.evaluation.catalog import load_sts


def difference(folder: Path, sentences: list[str]) -> str:
    model = SentenceTransformer(str(folder), device="cpu")
    alone = model.encode(sentences, batch_size=1)
    padded = model.encode([*sentences, "word " * 100], batch_size=len(sentences) + 1)[:-1]
    cosine = (alone * padded).sum(1) / np.linalg.norm(alone, axis=1) / np.linalg.norm(padded, axis=1)
    return f"max abs difference {np.abs(alone - padded).max():.1e}, cosine {cosine.mean():.4f} (least {cosine.min():.4f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--export", type=Path, required=True)
    options = parse(parser, senteval="senteval")
    subsets = load_sts(options.senteval)[0]["STS12"].subsets.values()
    sentences = list(dict.fromkeys(sentence for pairs in subsets for side in pairs[:2] for sentence in side))[:500]
    print("as exported:          ", difference(options.export, sentences))
    with tempfile.TemporaryDirectory() as folder:
        stock = Path(folder) / "stock"
        shutil.copytree(options.export, stock)
        modules = [module for module in json.loads((stock / "modules.json").read_text()) if "WordWeights" not in module["type"]]
        (stock / "modules.json").write_text(json.dumps([{**module, "idx": idx} for idx, module in enumerate(modules)]))
        print("without word weights: ", difference(stock, sentences))


if __name__ == "__main__":
    main()
