"""Read and write config_sentence_transformers.json: prompts, the similarity of embeddings, and their width."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jax_sentemb import __version__
from jax_sentemb.checks import choice, whole_number
from jax_sentemb.data.containers import problem_with
from jax_sentemb.errors import CORRECT, OTHER_MODEL, ConfigError, ModelFileError
from jax_sentemb.files import quote, read_json, user_path
from jax_sentemb.formats.model_dir import read_modules
from jax_sentemb.side_files.reader import read_side_file

FILE = "config_sentence_transformers.json"
ROLES = {"query": ("query",), "document": ("document", "passage", "corpus")}  # the names of the prompts of each
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


class EncodeSettings(NamedTuple):
    """Settings for texts before they are embedded and for the embeddings afterwards. Names are those in the file."""

    prompts: dict[str, str] = {}  # by name; a prompt is put before each text
    default_prompt_name: str | None = None  # the prompt if a call gives none
    similarity_fn_name: str = "cosine"
    truncate_dim: int | None = None  # only the first numbers of an embedding are returned
    include_prompt: bool = True  # False: the pooling skips the tokens of a prompt, which is not supported

    @property
    def default_prompt(self) -> str:
        """Return the text of the default prompt, "" without a default prompt."""
        return self.prompts[self.default_prompt_name] if self.default_prompt_name is not None else ""

    def width_of(self, full: int) -> int:
        """Return the width of an embedding, of which the model computes `full` dimensions."""
        return min(full, self.truncate_dim or full)

    def add_prompt(self, sentences: Sequence[Any], role: str = "") -> list[Any]:
        """Return the sentences with the prompt of their role before each, as for `prompt_text`; "" is the default prompt."""
        if problem := problem_with(sentences):
            raise TypeError(problem)
        prompt = self.prompt_text(role)
        return [prompt + sentence for sentence in sentences] if prompt else list(sentences)

    def prompt_text(self, role: str) -> str | None:
        """Return the text of the prompt for the role "query" or "document"; None if there is none.

        The role "" has the default prompt. A role without a prompt has it too, unless it is the prompt of the other role.

        Raises:
            ConfigError: The role has a prompt, and the pooling excludes its tokens.
        """
        names = ROLES.get(role, ())
        of_others = [name for other, names_of in ROLES.items() if role and other != role for name in names_of]
        default = None if self.default_prompt_name in of_others else self.default_prompt_name
        name = next((name for name in names if self.prompts.get(name)), default)
        text = self.prompts[name] if name is not None else ""
        if text and not self.include_prompt:
            raise ConfigError(
                f"the model has the prompt {name!r}, whose tokens its pooling excludes (include_prompt), which is not supported; "
                f"{OTHER_MODEL}"
            )
        return text or None

    def with_prompts(self, prompts: Mapping[str, str], default_prompt: str) -> "EncodeSettings":
        """Return these settings with other prompts. A default prompt without a name is called "default"."""
        texts, name = dict(prompts), self.default_prompt_name
        if not default_prompt:
            name = None
        elif texts.get(name or "") != default_prompt:
            name = next((candidate for candidate, text in texts.items() if text == default_prompt), None)
            if name is None:
                name = "default" + "_" * sum(used.rstrip("_") == "default" for used in texts)
                texts[name] = default_prompt
        return self._replace(prompts=texts, default_prompt_name=name)

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        content = {"__version__": {"jax_sentemb": __version__}, **self._asdict()}
        del content["include_prompt"]  # a setting of the pooling
        if self.truncate_dim is None:
            del content["truncate_dim"]
        return content


DEFAULTS = EncodeSettings()


def read_encode_settings(path: str | Path) -> EncodeSettings:
    """Read the settings of a directory.

    A directory with neither modules.json nor model.json has the defaults, as in sentence-transformers.

    Raises:
        ModelFileError: The file is damaged, or names a prompt or a similarity that does not exist.
    """
    root = user_path(path)
    if not (root / FILE).is_file() or not any((root / name).is_file() for name in ("modules.json", "model.json")):
        return DEFAULTS
    content = read_side_file(root / FILE, FILE)
    prompts, name = content.get("prompts") or {}, content.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise ModelFileError(f"{root / FILE}: prompts={quote(prompts)} must be an object of texts; {CORRECT}")
    if name is not None and (not isinstance(name, str) or name not in prompts):
        raise ModelFileError(f"{root / FILE}: the default prompt {quote(name)} is not one of {quote(list(prompts))}; {CORRECT}")
    similarity, width = content.get("similarity_fn_name") or "cosine", content.get("truncate_dim")
    try:
        check_similarity(similarity)
        check_truncate_dim(width)
    except ConfigError as error:
        raise ModelFileError(f"{root / FILE}: {error}; {CORRECT}") from None
    pooling = dict(read_modules(root)).get("Pooling")
    include_prompt = pooling is None or read_json(pooling / "config.json").get("include_prompt", True) is not False
    settings = EncodeSettings(prompts, name, similarity, width, include_prompt)
    if settings.default_prompt and not include_prompt:
        raise ModelFileError(f"{pooling}/config.json: include_prompt=false is not supported with a default prompt; {OTHER_MODEL}")
    return settings


def check_similarity(name: Any) -> None:
    """Raise ConfigError for a similarity function that does not exist."""
    choice("similarity_fn_name", name, SIMILARITIES)


def check_truncate_dim(width: Any, widest: int | None = None) -> None:
    """Raise ConfigError for a width of embeddings that is not None or an integer from 1 to `widest`."""
    if width is not None:
        whole_number("truncate_dim", width, 1, widest)
