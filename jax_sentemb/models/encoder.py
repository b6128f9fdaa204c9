"""The interface of an encoder: what heads, pooling and methods use of a BERT or of a table of word vectors."""

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from jax.typing import DTypeLike
from jaxtyping import UInt

from jax_sentemb.types import Array, Params, Rows

if TYPE_CHECKING:
    from jax_sentemb.models.bert import BertOutput


@runtime_checkable
class EncoderConfig(Protocol):
    """The sizes that a BertConfig and a WordsConfig both have."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def pad_token_id(self) -> int: ...
    @property
    def max_position_embeddings(self) -> int: ...
    @property
    def position_offset(self) -> int: ...
    @property
    def model_type(self) -> str: ...


@runtime_checkable
class TokenEncoder(Protocol):
    """Maps rows of tokens to token states: a `Bert` or a `WordVectors`, as `make_encoder` builds them."""

    @property
    def config(self) -> EncoderConfig: ...
    @property
    def dtype(self) -> DTypeLike: ...
    @property
    def dropout(self) -> float: ...
    @property
    def last_layers(self) -> int: ...
    def apply(
        self, variables: dict[str, Params], rows: Rows, seeds: UInt[Array, " rows"] | None = None, **options: Any
    ) -> "BertOutput":
        """Encode `rows` with the parameters variables["params"]; the options are those of `Bert.__call__`."""
        ...
