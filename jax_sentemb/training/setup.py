"""What a run works on: corpus, tokenizer, batches, weights and evaluation sets, checked against each other before it compiles."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_sentemb import files
from jax_sentemb.config import Config, Words
from jax_sentemb.data.batches import Batches, BatchesInTurn, make_batches
from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples, train_validation_split
from jax_sentemb.data.tokenizer import FILES as TOKENIZER_FILES
from jax_sentemb.data.tokenizer import Lines, Tokenizer, check_rows, new_tokenizer
from jax_sentemb.data.word_tokenizer import WordTokenizer, count_words
from jax_sentemb.data.word_vectors import read_word_vectors
from jax_sentemb.errors import ConfigError, ModelFileError
from jax_sentemb.evaluation.sts_data import StsTask
from jax_sentemb.formats.huggingface import read_parts, resolve
from jax_sentemb.formats.model_dir import transformer_folder
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.word_vectors import FROZEN, WordsConfig, WordVectors
from jax_sentemb.parallel import is_main_process
from jax_sentemb.training.argument_folds import is_split, split
from jax_sentemb.training.corpus_source import corpus_files, corpus_task
from jax_sentemb.training.evaluator import DownstreamTasks, evaluation_tasks
from jax_sentemb.types import Params


class RunSetup(NamedTuple):
    """What a run works on, before any compilation."""

    sentences: Lines
    tokenizer: Any  # Tokenizer, or WordTokenizer
    examples: Examples
    batches: Batches | BatchesInTurn
    validation: Batches | BatchesInTurn | None  # data.validation sentences
    encoder_config: BertConfig | WordsConfig
    loaded: Params  # by part: "encoder", "cnn"...; {} for a start from scratch
    tasks: dict[str, StsTask]
    missing_tasks: list[str]
    dev: str  # the task that selects the best checkpoint, "" without one
    final: DownstreamTasks | None  # classification and other tasks for the end


def prepare(config: Config, workdir: Path) -> RunSetup:
    """Corpus, tokenizer, batches, weights and evaluation sets, checked against each other; errors before anything compiles."""
    tasks, missing_tasks, dev = evaluation_tasks(config.eval)
    if is_split(config.data):
        tested = split(config.data)
        tasks[tested.test.name] = tested.test
        for warning in tested.warnings if is_main_process() else ():
            files.say(warning)
        missing_tasks = [
            *missing_tasks,
            *(f"{tested.test.name}, {topic} (too few pairs or one gold score)" for topic in tested.left_out),
        ]
    final = final_tasks(config)
    if isinstance(config.encoder, Words):
        return _prepare_words(config, config.encoder, workdir, tasks, missing_tasks, dev, final)
    weights = resolve(config.encoder.weights) if config.encoder.weights else None
    bert_config, loaded = read_parts(weights) if weights else (None, {})
    config.method.check(Bert(bert_config or _new_bert(config, config.data.vocab_size)), config.data.batch_size)

    def make_tokenizer(sentences: Lines) -> Tokenizer:
        if config.data.tokenizer:
            return _given_tokenizer(config.data.tokenizer, weights)
        return Tokenizer.load(transformer_folder(weights)) if weights else new_tokenizer(sentences, config.data.vocab_size)

    corpus = _corpus(config, workdir, make_tokenizer)
    examples = config.method.examples(corpus, config.train.seed)
    tokenizer = corpus.tokenizer
    if bert_config is None:
        bert_config = dataclasses.replace(_new_bert(config, tokenizer.vocab_size), pad_token_id=tokenizer.pad_id)
    bert_config = dataclasses.replace(bert_config, mask_token_id=tokenizer.mask_id, sep_token_id=tokenizer.sep_id)
    check_rows(tokenizer.vocab_size, bert_config.vocab_size, "data.tokenizer and encoder.weights")
    positions = bert_config.max_position_embeddings - bert_config.position_offset
    for name in ("data", "eval"):
        length = getattr(config, name).max_seq_length
        if length > positions:
            raise ConfigError(f"{name}.max_seq_length={length} exceeds the encoder's {positions} positions")
    examples, batches, validation = _batches(config, examples)
    return RunSetup(
        corpus.sentences, tokenizer, examples, batches, validation, bert_config, loaded, tasks, missing_tasks, dev, final
    )


def _given_tokenizer(name: str, weights: Path | None) -> Tokenizer:
    """The tokenizer of data.tokenizer; ModelFileError where a piece has another number than in the one that lies with the weights.

    Pieces that only one of them has may differ: words of a domain take the place of unused ones.
    """
    given = Tokenizer.load(name)
    folder = weights and transformer_folder(weights)
    if folder and any((folder / file).is_file() for file in TOKENIZER_FILES):
        own = Tokenizer.load(folder)
        numbers = own.numbers
        if any(numbers.get(piece, number) != number for piece, number in given.numbers.items()):
            raise ModelFileError(
                f"data.tokenizer={name} has {given.vocab_size} tokens (SHA-256 {given.fingerprint[:12]}), that of encoder.weights "
                f"{own.vocab_size} ({own.fingerprint[:12]}), and numbers them otherwise: leave data.tokenizer out"
            )
    return given


def _batches(config: Config, examples: Examples) -> tuple[Examples, Batches | BatchesInTurn, Batches | BatchesInTurn | None]:
    """What is trained on, its batches, and those of what is held out."""
    validation, size, seed, grouping = None, config.data.batch_size, config.train.seed, config.data.length_grouping
    if config.data.validation:
        examples, held = train_validation_split(examples, config.data.validation, seed)
        validation = make_batches(held, size, seed, grouping)
    return examples, make_batches(examples, size, seed, grouping), validation


def _corpus(config: Config, workdir: Path, make_tokenizer: Callable[[Lines], Any]) -> Corpus:
    data = config.data
    if data.pack and not config.method.reads_packed:
        raise ConfigError(f"data.pack=True: {type(config.method).__name__} reads single sentences; only MaskedLM reads packed rows")
    folder = workdir if is_main_process() else workdir / f"process-{jax.process_index()}"  # of files that a run generates
    folder.mkdir(parents=True, exist_ok=True)
    return Corpus(
        lambda pairs: corpus_files(data, config.eval.data, folder, pairs),
        make_tokenizer, data.max_seq_length, data.subset, data.subset_seed, data.num_workers, data.pack,
    )  # fmt: skip


def _prepare_words(
    config: Config,
    words: Words,
    workdir: Path,
    tasks: dict[str, StsTask],
    missing_tasks: list[str],
    dev: str,
    final: DownstreamTasks | None,
) -> RunSetup:
    """As `prepare`, with word vectors in place of a BERT."""
    loaded: Params = {}

    def make_tokenizer(sentences: Lines) -> WordTokenizer:
        scored = [text for task in tasks.values() for pairs in task.subsets.values() for side in pairs[:2] for text in side]
        scored += [text for item in (final.items if final else []) for text in item.sentences]
        tokenizer, tables = word_table(words, sentences, scored, config.train.seed)
        loaded.update(tables)
        return tokenizer

    config.method.check(WordVectors(WordsConfig(3, words.hidden_size)), config.data.batch_size)
    corpus = _corpus(config, workdir, make_tokenizer)
    examples = config.method.examples(corpus, config.train.seed)
    vectors = loaded["encoder" if words.trained else FROZEN]["vectors"]
    encoder_config = WordsConfig(len(vectors), vectors.shape[1], corpus.tokenizer.pad_id)
    tokenizer = corpus.tokenizer
    examples, batches, validation = _batches(config, examples)
    return RunSetup(
        corpus.sentences, tokenizer, examples, batches, validation, encoder_config, loaded, tasks, missing_tasks, dev, final
    )


def corpus_sample(setup: RunSetup, count: int, seed: int) -> list[str]:
    """Up to `count` sentences of the corpus, drawn by `seed`, in its order."""
    chosen = np.random.default_rng(seed).choice(len(setup.examples), min(count, len(setup.examples)), replace=False)
    return [setup.sentences[int(line)] for line in setup.examples.line[np.sort(chosen)]]


def final_tasks(config: Config) -> DownstreamTasks | None:
    """The tasks of eval.tasks with their data, or None."""
    if not config.eval.tasks:
        return None
    if config.method.is_cross_encoder:
        raise ConfigError("eval.tasks: a cross-encoder has no embeddings that classifiers could be trained on; leave it empty")
    names = corpus_task(config.data.files) if config.eval.tasks == "corpus" else config.eval.tasks
    return DownstreamTasks(names, config.eval.data, config.eval.classifier)


def _new_bert(config: Config, vocab_size: int) -> BertConfig:
    encoder = config.encoder
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=encoder.hidden_size,
        num_hidden_layers=encoder.num_hidden_layers,
        num_attention_heads=encoder.num_attention_heads,
        intermediate_size=encoder.intermediate_size,
        max_position_embeddings=max(config.data.max_seq_length, config.eval.max_seq_length),
    )


def word_table(words: Words, corpus: Lines, scored: Iterable[str], seed: int) -> tuple[WordTokenizer, dict[str, Params]]:
    """The vocabulary and the parts of the parameters that belong to it: "vectors" [V, E] and "counts" [V].

    Words of the corpus by frequency, then those of the `scored` sentences, at most `max_words`; with a file of vectors only words
    that it has. Unknown words and padding have the vector 0 (Tang and de Sa 2019). New vectors are drawn from N(0, 0.1^2).
    "counts", in the corpus, are what negative words are drawn by.
    """
    counts = count_words((corpus[row] for row in range(len(corpus))), words.lowercase)
    wanted = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    wanted += sorted(count_words(scored, words.lowercase).keys() - counts.keys())
    table: dict[str, np.ndarray] = {}
    if words.vectors:
        found = read_word_vectors(words.vectors, set(wanted))
        table = dict(zip(found.words, found.vectors, strict=True))
        wanted = [word for word in wanted if word in table]
    wanted = wanted[: words.max_words]
    tokenizer = WordTokenizer.of(wanted, words.lowercase)
    width = len(next(iter(table.values()))) if table else words.hidden_size
    vectors = np.zeros((tokenizer.vocab_size, width), np.float32)
    if table:
        vectors[2:] = [table[word] for word in wanted]
    else:
        vectors[2:] = np.random.default_rng(seed).normal(0, 0.1, (len(wanted), width))
    frequency = np.array([0, 0, *(counts[word] for word in wanted)], np.float32)
    if words.trained:
        return tokenizer, {"encoder": {"vectors": vectors}, FROZEN: {"counts": frequency}}
    return tokenizer, {FROZEN: {"vectors": vectors, "counts": frequency}}
