"""Load or create a run's encoder: tokenizer, configuration and first weights."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jax_sentemb.config import Data, Encoder, Words
from jax_sentemb.data.tokenizer import Lines, Tokenizer, new_tokenizer
from jax_sentemb.data.tokenizer_checks import check_rows
from jax_sentemb.data.tokenizer_files import FILES as TOKENIZER_FILES
from jax_sentemb.data.word_tokenizer import WordTokenizer, count_words
from jax_sentemb.data.word_vectors import read_word_vectors
from jax_sentemb.errors import ConfigError, ModelFileError, Setting
from jax_sentemb.formats.config_json import read_config
from jax_sentemb.formats.huggingface import load_tokenizer, read_parts, resolve
from jax_sentemb.formats.model_dir import transformer_folder
from jax_sentemb.models.architectures import make_encoder
from jax_sentemb.models.bert import BertConfig
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.families.table import FAMILIES
from jax_sentemb.models.word_vectors import FROZEN, WordsConfig
from jax_sentemb.setting_texts import chosen_layers
from jax_sentemb.types import Params


class EncoderSource(Protocol):
    """Source of the encoder that `config.encoder` describes: weights, tokenizer and sizes."""

    loaded: Params  # by part: "encoder", "cnn"...; {} for a new encoder; complete after `tokenizer`

    def blank(self) -> TokenEncoder:
        """Return an encoder of the right sizes without parameters, for the checks of a method before data is read."""
        ...

    def tokenizer(self, sentences: Lines) -> Tokenizer | WordTokenizer:
        """Return the tokenizer, loaded or trained on `sentences`.

        Raises:
            ModelFileError: Tokenizer and weights do not fit each other.
        """
        ...

    def config(self, tokenizer: Any) -> BertConfig | WordsConfig:
        """Return the configuration of the encoder with the tokenizer of this source."""
        ...


class BertSource:
    """A BERT from `encoder.weights`, or a new one with a new vocabulary.

    `lengths` are the longest sentences by setting, {"data.max_seq_length": 32, ...}: the encoder needs a position for each token.
    `prompt` is put before every sentence.
    """

    def __init__(self, encoder: Encoder, data: Data, lengths: dict[str, int], prompt: str = "") -> None:
        self._encoder, self._data, self._lengths, self._prompt = encoder, data, lengths, prompt
        self._folder = resolve(encoder.weights) if encoder.weights else None
        self._config, self.loaded = read_parts(self._folder) if self._folder else (None, {})
        if self._config and encoder.layers:
            self._config, self.loaded["encoder"] = take_layers(self._config, self.loaded["encoder"], encoder.layers)

    def blank(self) -> TokenEncoder:
        """Return a BERT of the right sizes.

        Raises:
            ConfigError: A sentence is longer than the encoder can read.
        """
        config = self._config or self._new(self._data.vocab_size)
        positions = config.max_position_embeddings - config.position_offset
        for name, length in self._lengths.items():
            if length > positions:
                raise ConfigError(Setting(name, length), f" exceeds the encoder's {positions} positions; lower it")
        return make_encoder(config)

    def tokenizer(self, sentences: Lines) -> Tokenizer:
        """Return the tokenizer of data.tokenizer, or else that of encoder.weights, or else a new one.

        Raises:
            ModelFileError: It has other pieces than the weights, or too many.
        """
        if self._data.tokenizer:
            tokenizer = given_tokenizer(self._data.tokenizer, self._folder)
        elif self._folder:
            tokenizer = load_tokenizer(self._folder)
        else:
            tokenizer = new_tokenizer(sentences, self._data.vocab_size)
        if self._config:
            check_rows(tokenizer.vocab_size, self._config.vocab_size, "data.tokenizer and encoder.weights")
        return tokenizer.with_prompt(self._prompt) if self._prompt else tokenizer

    def config(self, tokenizer: Tokenizer) -> BertConfig:
        """Return the configuration with the tokenizer's special tokens."""
        config = self._config or dataclasses.replace(self._new(tokenizer.vocab_size), pad_token_id=tokenizer.pad_id)
        return dataclasses.replace(config, mask_token_id=tokenizer.mask_id, sep_token_id=tokenizer.sep_id)

    def _new(self, vocab_size: int) -> BertConfig:
        return BertConfig(
            vocab_size=vocab_size,
            hidden_size=self._encoder.hidden_size,
            num_hidden_layers=self._encoder.num_hidden_layers,
            num_attention_heads=self._encoder.num_attention_heads,
            intermediate_size=self._encoder.intermediate_size,
            max_position_embeddings=max(self._lengths.values()),
        )


class WordSource:
    """Word vectors from `words.vectors`, or new ones, for the words of the corpus and of the `scored` sentences."""

    def __init__(self, words: Words, scored: Callable[[], Iterable[str]], seed: int) -> None:
        self._words, self._scored, self._seed = words, scored, seed
        self.loaded: Params = {}

    def blank(self) -> TokenEncoder:
        """Return word vectors as wide as new ones."""
        return make_encoder(WordsConfig(3, self._words.hidden_size))

    def tokenizer(self, sentences: Lines) -> WordTokenizer:
        """Build the vocabulary, and put its vectors into `loaded`."""
        tokenizer, self.loaded = word_table(self._words, sentences, self._scored(), self._seed)
        return tokenizer

    def config(self, tokenizer: WordTokenizer) -> WordsConfig:
        """Return number and width of the vectors."""
        vectors = self.loaded["encoder" if self._words.trained else FROZEN]["vectors"]
        return WordsConfig(len(vectors), vectors.shape[1], tokenizer.pad_id)


def take_layers(config: BertConfig, encoder: Params, layers: str) -> tuple[BertConfig, Params]:
    """Return the configuration and the parameters of an encoder with some of its layers.

    Args:
        config: The architecture of the whole encoder.
        encoder: Its parameters: "layer_0", "layer_1"... and other parts, which are all kept.
        layers: The value of encoder.layers.

    Raises:
        ConfigError: The encoder does not have these layers, or cannot be used without the layers between them.
    """
    numbers = chosen_layers(layers, config.num_hidden_layers)
    family = FAMILIES[config.model_type]
    if not family.layers_are_alike and numbers != tuple(range(1, len(numbers) + 1)):
        raise ConfigError(
            Setting("encoder.layers", layers),
            f": layers of a {family.title} differ by their position; choose its first ones, such as 1,2,3",
        )
    other_parts = {name: part for name, part in encoder.items() if not name.startswith("layer_")}
    chosen = {f"layer_{position}": encoder[f"layer_{number - 1}"] for position, number in enumerate(numbers)}
    return dataclasses.replace(config, num_hidden_layers=len(numbers)), {**other_parts, **chosen}


def starting_config(encoder: Encoder) -> BertConfig:
    """Return the architecture of encoder.weights with the chosen layers, without reading its parameters."""
    config = read_config(resolve(encoder.weights))
    if not encoder.layers:
        return config
    return dataclasses.replace(config, num_hidden_layers=len(chosen_layers(encoder.layers, config.num_hidden_layers)))


def given_tokenizer(name: str, weights: Path | None) -> Tokenizer:
    """Return the tokenizer of data.tokenizer.

    Pieces that only one of the two tokenizers has may differ, since the words of a domain can replace unused pieces.

    Raises:
        ModelFileError: A piece has another number in the tokenizer of the weights.
    """
    given = load_tokenizer(name)
    folder = weights and transformer_folder(weights)
    if weights and folder and any((folder / file).is_file() for file in TOKENIZER_FILES):
        original = load_tokenizer(weights)
        numbers = original.numbers
        if any(numbers.get(piece, number) != number for piece, number in given.numbers.items()):
            raise ModelFileError(
                Setting("data.tokenizer", name),
                f" has {given.vocab_size} tokens (SHA-256 {given.fingerprint[:12]}), that of ",
                Setting("encoder.weights"),
                f" {original.vocab_size} ({original.fingerprint[:12]}), with other numbers for the same tokens: leave ",
                Setting("data.tokenizer"),
                " out",
            )
    return given


def word_table(words: Words, corpus: Lines, scored: Iterable[str], seed: int) -> tuple[WordTokenizer, dict[str, Params]]:
    """Return the vocabulary and its parts of the parameters: "vectors" [V, E] and "counts" [V].

    The vocabulary has the words of the corpus by frequency, then those of the `scored` sentences, at most `max_words`. With a file
    of vectors it has only words of that file. Unknown words and padding have the vector 0 (Tang and de Sa 2019). New vectors are
    drawn from N(0, 0.1^2). "counts" are frequencies in the corpus, by which negative words are drawn.
    """
    counts = count_words(corpus, words.lowercase)
    vocabulary = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    vocabulary += sorted(count_words(scored, words.lowercase).keys() - counts.keys())
    table: dict[str, np.ndarray] = {}
    if words.vectors:
        file_vectors = read_word_vectors(words.vectors, set(vocabulary))
        table = dict(zip(file_vectors.words, file_vectors.vectors, strict=True))
        vocabulary = [word for word in vocabulary if word in table]
    vocabulary = vocabulary[: words.max_words]
    tokenizer = WordTokenizer.of(vocabulary, words.lowercase)
    width = len(next(iter(table.values()))) if table else words.hidden_size
    vectors = np.zeros((tokenizer.vocab_size, width), np.float32)
    if table:
        vectors[2:] = [table[word] for word in vocabulary]
    else:
        vectors[2:] = np.random.default_rng(seed).normal(0, 0.1, (len(vocabulary), width))
    frequency = np.array([0, 0, *(counts[word] for word in vocabulary)], np.float32)
    if words.trained:
        return tokenizer, {"encoder": {"vectors": vectors}, FROZEN: {"counts": frequency}}
    return tokenizer, {FROZEN: {"vectors": vectors, "counts": frequency}}
