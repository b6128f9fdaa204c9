"""What a frozen encoder knows of a pair: five-fold ridge regression of STS-B dev scores (Spearman x 100) from its states.

python experiments/is_bert/cross_probe.py BERT STSBenchmark-dev.tsv
"""

import csv
import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import spearmanr

from jax_sentemb.data.pairs import JoinedPairs
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import pad
from jax_sentemb.evaluation.arguments import _ridge
from jax_sentemb.formats.huggingface import read_encoder
from jax_sentemb.models.bert import Bert
from jax_sentemb.types import Rows

WEIGHTS, DEV = sys.argv[1:3]
config, params = read_encoder(WEIGHTS)
params, tok = jax.tree.map(jnp.asarray, params), Tokenizer.load(WEIGHTS)
config = dataclasses.replace(config, sep_token_id=tok.sep_id)
enc = Bert(config)
with open(DEV, encoding="utf-8") as file:
    rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
one, two, gold = [r["sentence1"] for r in rows], [r["sentence2"] for r in rows], np.array([float(r["score"]) for r in rows])


def states(ids, width):
    """[CLS] and the mean of the last layer, side by side."""
    found = []
    for start in range(0, len(ids), 100):
        rows = pad([row[:width] for row in ids[start : start + 100]], width, tok.pad_id)
        h, mask = np.array(apply(*rows)), rows[1]
        found.append(np.concatenate([h[:, 0], (h * mask[..., None]).sum(1) / mask.sum(1)[:, None]], 1))
    return np.concatenate(found)


@jax.jit
def apply(tokens, mask):
    ends = (tokens == config.sep_token_id).astype(jnp.int32)
    types = jnp.where(mask, jnp.minimum(jnp.cumsum(ends, -1) - ends, 1), 0)
    return enc.apply({"params": params}, Rows(tokens, mask), None, token_types=types).hidden[-1]


joined = states(JoinedPairs(tok).encode(list(zip(one, two, strict=True)), 64)[0], 64)
u, v = (states(tok.encode(side, 48)[0], 48)[:, 256:] for side in (one, two))
features = {
    "joined [CLS]": joined[:, :256],
    "joined mean": joined[:, 256:],
    "single |u-v|, u*v": np.concatenate([np.abs(u - v), u * v], 1),
}
fold = np.random.RandomState(0).permutation(len(gold)) % 5
for name, x in features.items():
    got = np.empty(len(gold))
    for k in range(5):
        got[fold == k], _ = _ridge(x[fold != k], gold[fold != k], x[fold == k])
    print(f"{name}: {100 * spearmanr(got, gold).statistic:.1f}")
cos = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
print(f"cosine of means: {100 * spearmanr(cos, gold).statistic:.1f}")
