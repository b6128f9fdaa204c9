"""Encodes the texts of the sets with every model, once: vectors/SET/MODEL.npz holds an array for each key of the texts."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from labelled_sets import LabelledSet

from jax_sentemb.data.word_vectors import is_word_vectors
from jax_sentemb.evaluation.model_spec import TF_IDF, load_eval_model, parse_spec
from jax_sentemb.parallel import use_compilation_cache

ELSEWHERE = "elsewhere"  # as the path of a model: another program writes its vectors


class Model(NamedTuple):
    """A model of the study. The first of a family in the command line represents it."""

    family: str
    name: str
    spec: str  # as `jax-sentemb evaluate` reads it


def parse_models(entries: Sequence[str]) -> list[Model]:
    """Return the models of FAMILY:NAME=SPEC; ValueError for another form or a name that is given twice."""
    models = []
    for entry in entries:
        head, equals, spec = entry.partition("=")
        family, colon, name = head.partition(":")
        if not (equals and colon and family and name and spec):
            raise ValueError(f"model {entry!r}: write FAMILY:NAME=PATH")
        models.append(Model(family, name, spec))
    if len({model.name for model in models}) < len(models):
        raise ValueError("two models have the same name")
    return models


def encode_all(sets: Sequence[LabelledSet], models: Sequence[Model], workdir: Path) -> None:
    """Encode what is missing, and write texts/SET.json for models that another program encodes."""
    use_compilation_cache()
    for each in sets:
        file = workdir / "texts" / f"{each.name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(each.texts), encoding="utf-8")
    for model in models:
        missing = [each for each in sets if not vector_file(workdir, each.name, model.name).exists()]
        if missing and model.spec == ELSEWHERE:
            files = ", ".join(str(vector_file(workdir, each.name, model.name)) for each in missing)
            raise SystemExit(f"{model.name}: write {files} with another program")
        if missing:
            _encode(model, missing, workdir)


def vector_file(workdir: Path, name: str, model: str) -> Path:
    """Return the file of the vectors of a set."""
    return workdir / "vectors" / name / f"{model}.npz"


def _encode(model: Model, sets: Sequence[LabelledSet], workdir: Path) -> None:
    has_words = model.spec.startswith(TF_IDF) or is_word_vectors(Path(parse_spec(model.spec).source))
    texts = {each.name: {key: _split(lines) if has_words else lines for key, lines in each.texts.items()} for each in sets}
    words = {word for each in texts.values() for lines in each.values() for line in lines for word in line.split()}
    loaded = load_eval_model(model.spec, lambda: words | {word.lower() for word in words})
    for each in sets:
        encode = loaded.fit([line for key in each.task.texts for line in texts[each.name][key]])
        vectors = _finished(loaded.finish, encode, texts[each.name])
        file = vector_file(workdir, each.name, model.name)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part.npz")
        np.savez(part, **vectors)
        part.rename(file)
        print(f"{model.name}: {each.name}", flush=True)


def _finished(
    finish: Callable[[np.ndarray], np.ndarray], encode: Callable[[Sequence[str]], np.ndarray], texts: dict[str, list[str]]
) -> dict[str, np.ndarray]:
    """Return the vectors of each key; the postprocessing is fitted on all texts together."""
    lines = [line for each in texts.values() for line in each]
    filled = [row for row, line in enumerate(lines) if line]
    encoded = finish(np.asarray(encode([lines[row] for row in filled]), np.float32))
    vectors = np.zeros((len(lines), encoded.shape[1]), np.float32)
    vectors[filled] = encoded
    ends = np.cumsum([len(each) for each in texts.values()])[:-1]
    return dict(zip(texts, np.split(vectors, ends), strict=True))


def _split(lines: list[str]) -> list[str]:
    """Return the lines with spaces around punctuation, which word vectors need."""
    return [" ".join(re.findall(r"[\w'-]+|[^\w\s]", line)) for line in lines]
