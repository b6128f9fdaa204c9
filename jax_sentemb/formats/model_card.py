"""Writes the model card of an export: README.md with front matter for model hubs, scores, training metadata and usage."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax_sentemb import __version__
from jax_sentemb.models.cnn import Convolution

POOLING_WORDS = {
    "cls": "the state of the first token ([CLS]) in the last layer, before any training head",
    "mean": "the mean of the last layer over the real tokens",
}


@dataclass(frozen=True)
class Card:
    """Metadata for the model card that the other files of an export do not have; every field is optional."""

    name: str = "sentence encoder"
    method: str | None = None
    base_model: str | None = None
    language: str | None = "en"
    license: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)  # in the order of the card: {"sentences": 10_000, "corpus": ...}
    scores: Mapping[str, dict] = field(default_factory=dict)  # set -> result of `correlate_tasks`
    missing_tasks: Sequence[str] = ()  # evaluation sets that were missing and therefore not scored


def render(
    card: Card,
    *,
    pooling: str,
    normalize: bool,
    max_seq_length: int,
    width: int,
    convolution: Convolution | None = None,
    is_cross_encoder: bool = False,
) -> str:
    """README.md as text: YAML front matter, then Markdown."""
    vectors = f"{width}-dimensional{', unit-length' if normalize else ''} vectors"
    sections = [
        "---\n" + "\n".join(_front_matter(card)) + "\n---",
        f"# {card.name}",
        (
            "Scores pairs of sentences."
            if is_cross_encoder
            else f"Maps sentences to {vectors} for similarity, search and clustering."
        )
        + (f" Trained with {card.method} by jax_sentemb." if card.method else " Written by jax_sentemb."),
        _use(is_cross_encoder),
        f"The score is a linear function of BERT's pooled [CLS] state over both sentences, cut after {max_seq_length} tokens."
        if is_cross_encoder
        else _embedding(pooling, max_seq_length, convolution),
        "## Scores\n" + _score_table(card.scores) if card.scores else "## Scores\nNo scores were measured.",
    ]
    if card.missing_tasks:
        sections.append(f"Not measured, because the data were missing: {', '.join(card.missing_tasks)}.")
    if card.training:
        metadata = "\n".join(f"| {_cell(key)} | {_cell(value)} |" for key, value in card.training.items())
        sections.append(f"## Training\n| | |\n|---|---|\n{metadata}")
    sections.append("`jax_sentemb.json` holds the SHA-256 of every file and the result of re-encoding after the export.")
    return "\n\n".join(sections) + "\n"


def render_word_card(metadata: Mapping[str, Any], step: int, stock: bool) -> str:
    """README.md of a model on word vectors; `stock`: whether sentence-transformers can load it as well."""
    lines = [f"# {metadata['name']}", "", f"{metadata['method']} on word vectors, by jax_sentemb {__version__}; step {step}.", ""]
    lines += ["    jax-sentemb evaluate --model THIS_FOLDER --data path/to/SentEval/data --tasks sts", ""]
    if stock:
        lines += ["    from sentence_transformers import SentenceTransformer", '    model = SentenceTransformer("THIS_FOLDER")', ""]
    lines += ["model.safetensors has PyTorch's names and shapes.", ""]
    return "\n".join([*lines, *(f"* {name}: {value}" for name, value in metadata["training"].items())]) + "\n"


def _use(is_cross_encoder: bool) -> str:
    sentences = '["A man is playing a guitar.", "Someone plays an instrument."]'
    kind, call = ("CrossEncoder", f"score = model.predict([{sentences}])") if is_cross_encoder else (
        "SentenceTransformer", f"vectors = model.encode({sentences})",
    )  # fmt: skip
    return f'## Use\n```python\nfrom sentence_transformers import {kind}\n\nmodel = {kind}("path/to/this/folder")\n{call}\n```'


def _embedding(pooling: str, max_seq_length: int, convolution: Convolution | None) -> str:
    text = (
        f"The embedding is {POOLING_WORDS[pooling]} (pooling mode `{pooling}`). Sentences are cut after "
        f"{max_seq_length} tokens. Compare embeddings by cosine similarity. The folder has no BERT pooler: "
        "`transformers` reports `pooler.dense` as newly initialised, and `pooler_output` means nothing here."
    )
    if convolution is None:
        return text
    windows = ", ".join(map(str, convolution.windows))
    text += f" Between encoder and pooling, convolutions of {windows} tokens are applied to the token states."
    if convolution.reference:
        return text + (
            " They read the states of [PAD] tokens (as the published code of IS-BERT): **an embedding depends on how much its "
            "batch is padded**; `batch_size=1` gives the same vector every time."
        )
    return text + " A module of word weights, all 1, sets [PAD] to zero before them, so padding does not change an embedding."


def _front_matter(card: Card) -> list[str]:
    """YAML lines; strings are written as JSON, which is YAML."""
    lines = [f"{key}: {json.dumps(value)}" for key in ("language", "license", "base_model") if (value := getattr(card, key))]
    lines += [
        "library_name: sentence-transformers",
        "pipeline_tag: sentence-similarity",
        "tags: [sentence-transformers, sentence-similarity, feature-extraction, jax_sentemb]",
    ]
    if card.scores:
        results = [
            {
                "task": {"type": "semantic-similarity", "name": "Semantic Similarity"},
                "dataset": {"name": name, "type": name},
                "metrics": [
                    {
                        "type": f"{kind}_cosine",
                        "name": f"{kind.title()} Cosine",
                        "value": round(score[kind]["all"] / 100, 6),
                    }
                    for kind in ("spearman", "pearson")
                ],
            }
            for name, score in card.scores.items()
        ]
        lines.append("model-index: " + json.dumps([{"name": card.name, "results": results}]))
    return lines


def _score_table(scores: Mapping[str, dict]) -> str:
    columns = [(kind, over) for kind in ("spearman", "pearson") for over in ("all", "mean", "wmean")]
    rows = [f"| set | pairs | {' | '.join(f'{kind.title()} {over}' for kind, over in columns)} |", "|---" * 8 + "|"]
    for name, score in scores.items():
        cells = " | ".join(f"{score[kind][over]:.2f}" for kind, over in columns)
        rows.append(f"| {_cell(name)} | {score['n']:,} | {cells} |")
    return (
        "Correlation x 100 of cosine similarity with gold scores; *all*: over all pairs of the set, *mean* and "
        "*wmean*: over its subsets, unweighted and weighted by pairs.\n\n" + "\n".join(rows)
    )


def _cell(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
