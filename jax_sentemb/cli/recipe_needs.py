"""Derive what a recipe needs from its method: the text that the method reads, and the model that it starts from."""

import dataclasses
from typing import NoReturn

from jax_sentemb.config import Config, Encoder, Words
from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.tokenizer import Lines, Tokenizer
from jax_sentemb.distillation.teacher import WORDS, teacher_names
from jax_sentemb.methods.base import Method
from jax_sentemb.methods.distillation import START, Distillation


def needs(config: Config) -> list[str]:
    """Return what a user has to give for a config: texts, then models."""
    before = needs(config.pretrain) if config.pretrain is not None else []
    methods = [variant.method for variant in config.variants.values()] or [config.method]
    texts = [_text_of(method, config) for method in methods]
    models = []
    if isinstance(config.encoder, Words):
        models += [] if config.encoder.trained else ["word vectors"]
    elif not config.encoder.from_scratch:
        models += ["a sentence encoder"]
    elif dataclasses.replace(config.encoder, dropout=Encoder.dropout) == Encoder():  # otherwise it is the size of a new encoder
        models += ["a BERT" if config.method.trains_sentences else "a BERT or a size for a new one"]
    teachers = teacher_names(config.method.teacher) if isinstance(config.method, Distillation) else []
    models += ["a teacher"] if any(name != START and not name.startswith(WORDS) for name in teachers) else []
    return [need for need in dict.fromkeys([*before, *texts]) if need and need not in models] + models


def _text_of(method: Method, config: Config) -> str:
    """Return the text that a method reads with these settings, "" for text that the package generates."""
    files = config.data.files or config.sweep.partition("data.files=")[2]
    if files.startswith("grammar:"):
        return ""
    try:
        method.examples(_UnreadCorpus(), 0)
    except _Reads as text:
        columns = f" (of a table: {config.data.column.replace(',', ', ')})" if config.data.column != "text" else ""
        return f"{text}{' of SentEval' if files.startswith('senteval:') else columns}"
    raise AssertionError(f"{type(method).__name__} reads no corpus")


class _Reads(Exception):
    """The text that a method opens."""


class _UnreadCorpus(Corpus):
    """A corpus that raises `_Reads` when a method opens its text."""

    def __init__(self) -> None:
        super().__init__(lambda pairs: ("", "", ""), _no_tokenizer, max_seq_length=3)

    def _open(self, in_order: bool = False) -> Sentences:
        raise _Reads("running text" if in_order else "sentences")

    def pairs(self, classes: tuple[str, ...] = (), joined: bool = False, top_score: float = 0.0) -> NoReturn:
        raise _Reads("labelled pairs" if classes else "scored pairs")


def _no_tokenizer(lines: Lines) -> Tokenizer:
    raise AssertionError("nothing is read")
