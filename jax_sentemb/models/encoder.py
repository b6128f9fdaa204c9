"""Define the interface of an encoder: what heads, pooling and methods need from a BERT or a table of word vectors."""

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from jax.typing import DTypeLike
from jaxtyping import UInt

from jax_sentemb.types import Array, Params, Rows

if TYPE_CHECKING:
    from jax_sentemb.models.bert import BertOutput


@runtime_checkable
class EncoderConfig(Protocol):
    """The sizes that BertConfig and WordsConfig have in common."""

    @property
    def vocab_size(self) -> int:
        """Return the number of tokens of the vocabulary."""
        ...

    @property
    def hidden_size(self) -> int:
        """Return the width of a token state."""
        ...

    @property
    def pad_token_id(self) -> int:
        """Return the id of [PAD]."""
        ...

    @property
    def max_position_embeddings(self) -> int:
        """Return the number of positions."""
        ...

    @property
    def position_offset(self) -> int:
        """Return the position of the first token."""
        ...

    @property
    def model_type(self) -> str:
        """Return the name of the family."""
        ...


@runtime_checkable
class TokenEncoder(Protocol):
    """Map rows of tokens to token states: a `Bert` or a `WordVectors`, as `make_encoder` builds them."""

    @property
    def config(self) -> EncoderConfig:
        """Return the sizes."""
        ...

    @property
    def dtype(self) -> DTypeLike:
        """Return the precision of the matrix products."""
        ...

    @property
    def dropout(self) -> float:
        """Return the rate of dropout."""
        ...

    @property
    def last_layers(self) -> int:
        """Return the number of layers that are trained, 0 for all."""
        ...

    def apply(
        self, variables: dict[str, Params], rows: Rows, seeds: UInt[Array, " rows"] | None = None, **options: Any
    ) -> "BertOutput":
        """Encode `rows` with the parameters variables["params"]; the options are those of `Bert.__call__`."""
        ...
