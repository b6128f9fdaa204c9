"""The settings of a `SentenceEncoder` that a user can change: prompts, the similarity, and the width of embeddings."""

from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from jax_sentemb.checks import text
from jax_sentemb.errors import ConfigError
from jax_sentemb.files import quote
from jax_sentemb.formats.encode_settings import EncodeSettings, check_similarity, check_truncate_dim
from jax_sentemb.inference import similarity
from jax_sentemb.types import Array


class ChangeableSettings:
    """Settings that start as those of a model directory and can be changed; `encode_settings` has their current values."""

    SETTINGS = ("prompts", "default_prompt", "similarity_fn_name", "truncate_dim")

    def __init__(self, settings: EncodeSettings, width: int) -> None:
        self._saved_settings, self._full_width = settings, width
        self.prompts, self.default_prompt_name = settings.prompts, settings.default_prompt_name
        self._similarity_fn_name, self._truncate_dim = settings.similarity_fn_name, settings.truncate_dim

    @property
    def encode_settings(self) -> EncodeSettings:
        """Return the settings as `save` writes them."""
        _check_prompts(self.prompts)  # which may have been changed since they were given
        settings = self._saved_settings.with_prompts(self.prompts, self.default_prompt)
        return settings._replace(similarity_fn_name=self.similarity_fn_name, truncate_dim=self.truncate_dim)

    @property
    def prompts(self) -> dict[str, str]:
        """Return the texts by name that `encode` may put before every sentence."""
        return self._prompts

    @prompts.setter
    def prompts(self, prompts: dict[str, str]) -> None:
        _check_prompts(prompts)
        self._prompts = dict(prompts)

    @property
    def default_prompt(self) -> str:
        """Return the text that is put before sentences for which no prompt is given; one of `prompts` changes with it."""
        return self._default_prompt if self._default_name is None else self.prompts.get(self._default_name, "")

    @default_prompt.setter
    def default_prompt(self, prompt: str) -> None:
        self._default_prompt = text("default_prompt", prompt)
        self._default_name = next((name for name, value in self.prompts.items() if prompt and value == prompt), None)

    @property
    def default_prompt_name(self) -> str | None:
        """Return the name in `prompts` of the default prompt, None without a default prompt or a name for it."""
        return self._default_name if self.default_prompt else None

    @default_prompt_name.setter
    def default_prompt_name(self, name: str | None) -> None:
        if name is not None and text("default_prompt_name", name) not in self.prompts:
            raise ConfigError(f"default_prompt_name={name!r} is unknown; the model has {', '.join(self.prompts) or 'no prompts'}")
        self._default_prompt, self._default_name = "", name

    @property
    def similarity_fn_name(self) -> str:
        """Return the name of the function of `similarity`, one of cosine, dot, euclidean and manhattan."""
        return self._similarity_fn_name

    @similarity_fn_name.setter
    def similarity_fn_name(self, name: str) -> None:
        check_similarity(name)
        self._similarity_fn_name = name

    @property
    def truncate_dim(self) -> int | None:
        """Return the number of dimensions that `encode` keeps; None keeps all."""
        return self._truncate_dim

    @truncate_dim.setter
    def truncate_dim(self, width: int | None) -> None:
        check_truncate_dim(width, self._full_width)
        self._truncate_dim = width

    def similarity(
        self, first: Shaped[Array, "*first embedding"], second: Shaped[Array, "*second embedding"]
    ) -> Float[np.ndarray, "first second"]:
        """Return the similarities float32 [N, M] of embeddings [N, E] and [M, E]; N or M is 1 for a single embedding [E].

        `similarity_fn_name` is the function. Distances (euclidean, manhattan) are negative.
        """
        return similarity.similarity(self.similarity_fn_name, first, second)

    def similarity_pairwise(
        self, first: Shaped[Array, "*pairs embedding"], second: Shaped[Array, "*pairs embedding"]
    ) -> Float[np.ndarray, " pairs"]:
        """Return the similarities float32 [N] of the rows of embeddings [N, E] and [N, E], or of single ones.

        Raises:
            ConfigError: The numbers of embeddings differ.
        """
        return similarity.similarity_pairwise(self.similarity_fn_name, first, second)

    def _prompt(self, prompt: str | None, name: str | None) -> str:
        """Return the text to put before each sentence."""
        for argument, value in (("prompt", prompt), ("prompt_name", name)):
            if value is not None:
                text(argument, value)
        if prompt is not None and name is not None:
            raise ConfigError("prompt and prompt_name are both given: leave one of them out")
        if name is not None:
            prompt = self.prompts.get(name)  # one lookup, since another thread may change the dictionary
            if prompt is None:
                raise ConfigError(f"prompt_name={name!r} is unknown; the model has {', '.join(self.prompts) or 'no prompts'}")
        text_before = self.default_prompt if prompt is None else prompt
        if text_before and not self._saved_settings.include_prompt:
            raise ConfigError("the model's pooling excludes the tokens of a prompt, which is not supported; leave out the prompt")
        return text(f"prompts[{name!r}]", text_before)  # checked again: the dictionary may have changed since it was set

    def _with_prompt(self, options: dict[str, Any], name: str) -> dict[str, Any]:
        if options.get("prompt") is not None or options.get("prompt_name") is not None:
            return options
        return {**options, "prompt": self.prompts.get(name, "")}

    def prompt_for(self, role: str) -> str:
        """Return the prompt that commands put before "query" or "document" texts, "" if there is none."""
        return self.encode_settings.prompt_text(role) or ""


def _check_prompts(prompts: Any) -> None:
    """Raise ConfigError unless prompts are a dictionary of texts by names."""
    if not isinstance(prompts, dict):
        raise ConfigError(f"prompts={quote(prompts)}: must be a dictionary of texts")
    for name, prompt in prompts.items():
        text("a name of prompts", name)  # JSON makes text of other keys
        text(f"prompts[{quote(name)}]", prompt)
