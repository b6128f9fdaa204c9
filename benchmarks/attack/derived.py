"""Attack files that were made from other sources: indexes, vectors, and runs whose inputs were replaced under the same name."""

import shutil
from pathlib import Path

from commands import case, corpus, done, encode, fresh, model, refused, train


@case(24, "an index of a corpus that was edited, of another length, and of another model at the same path")
def stale_index():
    folder, text = model(), corpus()
    search = ["search", "--model", str(folder), "--corpus", str(text), "--query", "a man", "--index", str(text.parent / "idx")]
    done(*search)
    refused(3, *search, "--max-seq-length", "5", named="max_seq_length=5")
    whole = text.read_text(encoding="utf-8")
    text.write_text(whole.replace("cook", "king"), encoding="utf-8")
    refused(3, *search, named="from corpus corpus.txt")
    text.write_text(whole, encoding="utf-8")
    other_run = fresh("run")
    done(*train(other_run, "--config.train.seed=7", steps=2))
    shutil.rmtree(folder)
    shutil.copytree(other_run / "export", folder)
    refused(3, *search, named="from model export")


@case(24, "vectors with another text, and with another model")
def stale_vectors():
    folder, text = model(), corpus()
    vectors, other = text.parent / "vectors", Path(corpus(590))
    done(*encode(folder, text, vectors))
    refused(3, "mine", "--corpus", str(vectors), "--corpus-text", str(other), named="from corpus corpus.txt")
    refused(3, "mine", "--corpus", str(vectors), "--model", f"{folder}@mean", named="from model export")
    refused(2, *encode(folder, text, vectors, "--max-seq-length", "5"), named="max_seq_length=5")


@case(25, "a run whose start was replaced under the same name")
def replaced_start():
    start, workdir, other = model(), fresh("run"), fresh("run")
    more = [f"--config.encoder.weights={start}", "--config.optimizer.lr_scheduler_type=constant"]
    done(*train(workdir, *more, steps=2))
    done(*train(other, "--config.train.seed=7", steps=2))
    shutil.rmtree(start)
    shutil.copytree(other / "export", start)
    refused(4, *train(workdir, *more, "--config.train.average_with_start=0.5", steps=4), named="encoder.weights")


@case(25, "a run whose text was replaced under the same name")
def replaced_text():
    text, workdir = corpus(), fresh("run")
    more = [f"--config.data.files={text}", "--config.optimizer.lr_scheduler_type=constant"]
    done(*train(workdir, *more, steps=2))
    text.write_text(text.read_text(encoding="utf-8").replace("cook", "king"), encoding="utf-8")
    refused(4, *train(workdir, *more, steps=4), named="data.files")
