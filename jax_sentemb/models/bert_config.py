"""The sizes of an encoder, without JAX: the families and the readers of files need them."""

from dataclasses import dataclass

MAX_POSITIONS = 2**11  # the counters of random numbers tell apart at least this many
# Fields that the tokenizer or the family determines; config.json does not have them.
DERIVED = ("position_offset", "mask_token_id", "sep_token_id")


@dataclass(frozen=True)
class BertConfig:
    """The architecture of a BERT; field names are those of Hugging Face's config.json."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2  # 0: no segments (DistilBERT)
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"
    initializer_range: float = 0.02
    pad_token_id: int = 0
    position_offset: int = 0  # position of the first token: 0 in BERT, pad_token_id + 1 in RoBERTa
    model_type: str = "bert"
    mask_token_id: int = 103  # of the tokenizer; only masked-language-model losses use it
    sep_token_id: int = 102  # of the tokenizer; only cross-encoders and masked-language-model losses use it

    @property
    def embedding_width(self) -> int:
        """Return the width of the word embeddings; other than `hidden_size` in some architectures."""
        return self.hidden_size

    @property
    def counted_positions(self) -> int:
        """Return the number of positions that the counters of random numbers tell apart, a power of two."""
        return max(MAX_POSITIONS, 1 << (self.max_position_embeddings - 1).bit_length())
