"""Word pieces: a thin wrapper over `tokenizers` that treats corpus text as text and fails with one line."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import BertWordPieceTokenizer
from tokenizers.processors import TemplateProcessing

from jax_sentemb.errors import ModelFileError

# What each role is called in BERT's and in RoBERTa's family.
SPECIALS = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
ALPHABET = 1000  # most frequent characters of a new vocabulary
CHARACTERS_A_PIECE = 64  # text beyond max_seq_length times this is cut before tokenising: a line of 10 MB costs seconds


class Tokenizer:
    """Sentences to ids with [CLS] and [SEP]. The text "[SEP]" in a sentence stays text.

    Attributes: vocab_size, pad_id, unk_id, cls_id, sep_id, mask_id, and fingerprint, a SHA-256 of everything that decides the ids.
    """

    def __init__(self, inner: tokenizers.Tokenizer, where: str = "the tokenizer") -> None:
        inner.no_padding()
        inner.no_truncation()
        inner.encode_special_tokens = True
        self._inner = inner
        self.vocab_size = inner.get_vocab_size(with_added_tokens=True)
        self.names = {}
        for role, names in SPECIALS.items():
            known = [name for name in names if inner.token_to_id(name) is not None]
            if not known:
                raise ModelFileError(f"{where} has no {' or '.join(names)} token: it does not fit a BERT or RoBERTa encoder")
            self.names[role] = known[0]
            setattr(self, f"{role}_id", inner.token_to_id(known[0]))
        if inner.encode("").ids != [self.cls_id, self.sep_id]:
            cls, sep = self.names["cls"], self.names["sep"]
            inner.post_processor = TemplateProcessing(
                single=f"{cls} $A {sep}",
                pair=f"{cls} $A {sep} $B:1 {sep}:1",
                special_tokens=[(cls, self.cls_id), (sep, self.sep_id)],
            )
        self.fingerprint = hashlib.sha256(inner.to_str().encode()).hexdigest()

    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int

    @classmethod
    def load(cls, directory: str | Path) -> "Tokenizer":
        """From `tokenizer.json`, or from `vocab.txt` (lower-cased unless tokenizer_config.json says do_lower_case false)."""
        folder = Path(directory).expanduser()
        file, vocabulary = folder / "tokenizer.json", folder / "vocab.txt"
        if not file.is_file() and not vocabulary.is_file():
            raise ModelFileError(f"{folder} has no tokenizer.json and no vocab.txt")
        source = file if file.is_file() else vocabulary
        try:
            if file.is_file():
                inner = tokenizers.Tokenizer.from_file(str(file))
            else:
                inner = BertWordPieceTokenizer(str(vocabulary), lowercase=_lower_case(folder))._tokenizer
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the binding's PanicException is no Exception
            raise ModelFileError(f"{source} is damaged: {str(error).splitlines()[0][:200]}") from None
        return cls(inner, str(source))

    @classmethod
    def train(cls, sentences: Iterable[str], vocab_size: int) -> "Tokenizer":
        """A lower-casing WordPiece vocabulary of at most `vocab_size` pieces; the same sentences give the same one."""
        texts = list(sentences)
        trainer = BertWordPieceTokenizer(lowercase=True)
        # The trainer numbers characters in the order of a hash table and breaks ties by number: numbered here, it is reproducible.
        counts = Counter(c for text in texts for c in trainer._tokenizer.normalizer.normalize_str(text) if not c.isspace())
        alphabet = [c for c, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:ALPHABET]]
        first = [name for name, _ in SPECIALS.values()] + alphabet + [f"##{c}" for c in alphabet]
        trainer.train_from_iterator(
            texts, vocab_size=max(vocab_size, len(first)), min_frequency=1, special_tokens=first, show_progress=False
        )
        vocabulary = trainer.get_vocab()
        return cls(BertWordPieceTokenizer(vocabulary, lowercase=True)._tokenizer)

    def save(self, directory: str | Path) -> None:
        """tokenizer.json, vocab.txt (word pieces only), tokenizer_config.json and special_tokens_map.json as `transformers` reads them."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        self._inner.save(str(folder / "tokenizer.json"))
        state = json.loads(self._inner.to_str())
        word_pieces = state["model"]["type"] == "WordPiece"
        specials = {f"{role}_token": name for role, name in self.names.items()}
        # split_special_tokens: the text "[SEP]" stays text there too.
        family = "BertTokenizer" if word_pieces else "RobertaTokenizer"
        settings: dict[str, Any] = {"tokenizer_class": family, "split_special_tokens": True, **specials}
        if word_pieces:
            settings["do_lower_case"] = bool((state.get("normalizer") or {}).get("lowercase", False))
            pieces = sorted(self._inner.get_vocab().items(), key=lambda item: item[1])
            _write(folder / "vocab.txt", "".join(f"{piece}\n" for piece, _ in pieces))
        else:
            settings |= {"bos_token": self.names["cls"], "eos_token": self.names["sep"]}
        _write(folder / "tokenizer_config.json", json.dumps(settings, indent=2) + "\n")
        _write(folder / "special_tokens_map.json", json.dumps(specials, indent=2) + "\n")

    def encode(self, sentences: Sequence[str], max_seq_length: int) -> tuple[list[np.ndarray], int]:
        """int32 ids of each sentence, at most `max_seq_length` with [CLS] and [SEP], and how many sentences were cut."""
        longest = max_seq_length * CHARACTERS_A_PIECE
        for number, sentence in enumerate(sentences):
            if not isinstance(sentence, str):
                raise TypeError(f"sentence {number} is {type(sentence).__name__}, not str")
        encoded = self._inner.encode_batch_fast([sentence[:longest] for sentence in sentences])
        rows, cut = [], 0
        for sentence, encoding in zip(sentences, encoded, strict=True):
            ids = encoding.ids
            cut += len(ids) > max_seq_length or len(sentence) > longest
            if len(ids) > max_seq_length:
                ids = [*ids[: max_seq_length - 1], self.sep_id]
            rows.append(np.array(ids, np.int32))
        return rows, cut


def _lower_case(folder: Path) -> bool:
    file = folder / "tokenizer_config.json"
    if not file.is_file():
        return True
    try:
        return bool(json.loads(file.read_text(encoding="utf-8")).get("do_lower_case", True))
    except (ValueError, AttributeError, RecursionError) as error:
        raise ModelFileError(f"{file} is damaged: {str(error).splitlines()[0]}") from None


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
