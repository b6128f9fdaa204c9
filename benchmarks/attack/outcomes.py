"""Attack with text that would be cut by characters, with rows that are equal or extreme, and with useless results."""

import json

import numpy as np
from commands import case, corpus, done, encode, fresh, model, refused, train


@case(23, "a sentence after 5 million tabs, zero-width spaces, or in one line with a long word")
def hidden():
    file = fresh("long") / "corpus.txt"
    lines = ["a man cut the hull", "\t" * 5_000_000 + "a man cut the hull", "\u200b" * 5_000_000 + "a man cut the hull"]
    lines += ["a " + "x" * 200 + " cut", "a " + "x" * 5_000_000 + " cut"]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done(*encode(model(), file, file.parent / "x.npy"))
    vectors = np.load(file.parent / "x.npy")
    for row, same in ((1, 0), (2, 0), (4, 3)):
        assert np.abs(vectors[row] - vectors[same]).max() < 1e-5, f"line {row + 1} is not read as line {same + 1}"


@case(23, "every sentence twice, --threshold 1")
def equal():
    file = fresh("twice") / "vectors.npy"
    rows = np.random.default_rng(0).normal(size=(100, 384)).astype(np.float32)
    rows *= np.resize(np.array([1, 1e37, 1e-30], np.float32), 100)[:, None]
    np.save(file, np.concatenate([rows, rows]))
    pairs = [json.loads(line) for line in done("mine", "--corpus", str(file), "--threshold", "1", "--json").splitlines()]
    assert sorted((pair["first"], pair["second"]) for pair in pairs) == [(row, row + 100) for row in range(100)], (
        f"{len(pairs)} pairs"
    )
    assert all(pair["score"] == 1 for pair in pairs), "a cosine of equal rows is not 1"


@case(23, "postprocess on equal sentences, and on fewer than there are components")
def whitened():
    file = fresh("equal") / "corpus.txt"
    file.write_text("a man cut the hull\n" * 20, encoding="utf-8")
    output = file.parent / "model"
    common = ("postprocess", "--model", str(model()), "--corpus", str(file), "--output", str(output))
    refused(3, *common, "--whiten", named="are equal")
    refused(3, *common, "--remove", "1", named="are equal")
    file.write_text("a man cut the hull\na cook\na farmer cut the cargo\n", encoding="utf-8")
    refused(2, *common, "--remove", "5", named="from 1 to 2")
    assert not output.exists(), "a model was published"


@case(23, "a learning rate of 1e6, without any evaluation")
def collapsed():
    workdir = fresh("run") / "run"
    refused(5, *train(workdir, "--config.eval.data=", "--config.optimizer.learning_rate=1e6", steps=5))
    assert not (workdir / "export").exists(), "an export was published"


@case(23, "a corpus of one sentence as int8")
def one():
    refused(2, *encode(model(), corpus(1), fresh("int8") / "vectors", "--precision", "int8"), named="different embeddings")
