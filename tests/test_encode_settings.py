"""Which prompt texts of a role have."""

import pytest

from jax_sentemb.errors import ConfigError
from jax_sentemb.formats.encode_settings import EncodeSettings


@pytest.mark.parametrize(
    ("prompts", "default", "query", "document", "neither"),
    [
        ({}, None, None, None, None),
        ({"query": "q ", "document": "d "}, None, "q ", "d ", None),
        ({"query": "q ", "passage": "p ", "corpus": "c "}, None, "q ", "p ", None),
        ({"query": "", "document": "", "corpus": "c "}, None, None, "c ", None),  # sentence-transformers adds the empty ones
        ({"query": "q ", "document": ""}, "query", "q ", None, "q "),
        ({"query": "q "}, "query", "q ", None, "q "),
        ({"query": "", "passage": "p "}, "passage", None, "p ", "p "),
        ({"query": "q ", "document": "", "other": "o "}, "other", "q ", "o ", "o "),
        ({"other": ""}, "other", None, None, None),
    ],
)
def test_a_role_has_its_prompt_or_a_default_that_is_not_that_of_the_other_role(prompts, default, query, document, neither):
    settings = EncodeSettings(prompts, default)
    assert [settings.prompt_text(role) for role in ("query", "document", "")] == [query, document, neither]
    assert settings.add_prompt(["text"], "document") == [f"{document or ''}text"]


def test_a_prompt_whose_tokens_the_pooling_excludes_is_refused():
    settings = EncodeSettings({"query": "q "}, include_prompt=False)
    assert settings.prompt_text("document") is None
    with pytest.raises(ConfigError, match=r"has the prompt 'query', whose tokens its pooling excludes \(include_prompt\)"):
        settings.prompt_text("query")
