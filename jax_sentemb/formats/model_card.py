"""Write the model card of an export: README.md with front matter for model hubs, scores, training metadata and usage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from jax_sentemb import __version__
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.public_text import markdown

POOLING_DESCRIPTIONS = {
    "cls": "the state of the first token ([CLS]) in the last layer, before any training head",
    "mean": "the mean of the last layer over the real tokens",
    "first_last": "the mean over the real tokens of the average of layer 1 and the last layer",
}
_CARD_DATA = {
    "pipeline_tag": "sentence-similarity",
    "tags": ["sentence-transformers", "sentence-similarity", "feature-extraction", "jax_sentemb"],
}


@dataclass(frozen=True)
class Card:
    """Metadata for the model card that the other files of an export do not have; every field is optional."""

    name: str = "sentence encoder"
    method: str | None = None
    base_model: str | None = None
    language: str | None = None
    license: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)  # in the order of the card: {"sentences": 10_000, "corpus": ...}
    scores: Mapping[str, dict] = field(default_factory=dict)  # set -> result of `correlate_tasks`
    dev: Mapping[str, float] = field(default_factory=dict)  # measures x 100 on queries or labels that selected the weights
    missing_tasks: Sequence[str] = ()  # evaluation sets that were missing and therefore not scored
    verdict: str = ""  # a warning if the model is worse than the one it was trained from
    teacher: Mapping[str, Any] = field(default_factory=dict)  # facts of `training.agreement.Agreement.summary`
    changes: Mapping[str, Any] = field(default_factory=dict)  # changed nearest neighbours: "sentences", "changed", "is_judged"
    widths: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # scores of shortened embeddings, by their width


def render(
    card: Card,
    *,
    pooling: str,
    normalize: bool,
    max_seq_length: int,
    width: int,
    modules: str = "",
    is_cross_encoder: bool = False,
) -> str:
    """Return the text of README.md: YAML front matter, then Markdown.

    Args:
        card: Metadata from the run.
        pooling: The pooling mode, a key of `POOLING_DESCRIPTIONS`.
        normalize: Whether embeddings have unit length.
        max_seq_length: The number of tokens after which sentences are cut.
        width: The number of dimensions of an embedding.
        modules: Sentences about the other modules, from `describe_modules`.
        is_cross_encoder: Whether the model scores pairs of sentences instead of embedding sentences.
    """
    vectors = f"{width}-dimensional{', unit-length' if normalize else ''} vectors"
    sentences = '["A man is playing a guitar.", "Someone plays an instrument."]'
    if is_cross_encoder:
        loader, call, summary = "CrossEncoder", f"score = model.predict([{sentences}])", "Scores pairs of sentences."
        embedding = (
            f"The score is a linear function of BERT's pooled [CLS] state over both sentences, cut after {max_seq_length} tokens."
        )
    else:
        loader, call = "SentenceTransformer", f"vectors = model.encode({sentences})"
        summary = f"Maps sentences to {vectors} for similarity, search and clustering."
        embedding = _embedding(pooling, max_seq_length) + modules
    origin = f" Trained with {markdown(card.method)} by jax_sentemb." if card.method else " Written by jax_sentemb."
    return _from_template(
        "model_card.md",
        _front_matter(card),
        name=markdown(card.name),
        summary=summary + origin,
        verdict=markdown(card.verdict),
        loader=loader,
        call=call,
        embedding=embedding,
        scores=_score_rows(card.scores),
        dev=", ".join(f"{markdown(name)} {value:.2f}" for name, value in card.dev.items()),
        missing_tasks=list(map(markdown, card.missing_tasks)),
        teacher=f"{_teacher_role(card.teacher)} {describe_teacher(card.teacher)}." if card.teacher else "",
        changes=f"{describe_changes(card.changes)}." if card.changes else "",
        widths=f"{describe_widths(card.widths)}." if card.widths else "",
        training=[(_cell(key), _cell(value)) for key, value in for_readers(card.training).items()],
    )


def for_readers(training: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts on the training that a reader of the card needs: none is empty or off, and the optimiser has its rate.

    jax_sentemb.json has all of them.
    """
    off = ("", None, (), [], False)
    return {
        name: value
        for name, value in training.items()
        if value not in off or (value == 0 and type(value) is int and not name.startswith("method."))
        if not name.startswith("optimizer.") or name == "optimizer.learning_rate"
    }


def _teacher_role(facts: Mapping[str, Any]) -> str:
    return "Distilled from" if facts["is_distilled"] else "Compared with a stronger model:"


def describe_changes(facts: Mapping[str, Any]) -> str:
    """Return a text about the nearest neighbours that differ from those of the start, and whether anything judges them."""
    text = f"The nearest sentence changed for {facts['changed']:.1%} of {facts['sentences']:,} sentences"
    return text if facts["is_judged"] else f"{text}; without labels or a stronger model nobody can tell whether for the better"


def describe_teacher(facts: Mapping[str, Any]) -> str:
    """Return a text about a teacher: its names, the agreement with it, and how much faster a student is."""
    values = facts["agreement"]
    names = " and ".join(map(markdown, facts["names"]))
    start = f" ({facts['start']:.1f} % before the training)" if "start" in facts else ""
    text = (
        f"{names}; on {facts['sentences']:,} {'held-out ' if facts['is_distilled'] else ''}sentences "
        f"{values['neighbours']:.1f} % of the ten nearest neighbours are the same{start}, "
        f"the similarities of pairs correlate by {values['pairs'] / 100:.3f} (Spearman)"
    )
    if "cosine" in values:
        text += f", and the cosine to the teacher's vectors is {values['cosine'] / 100:.3f}"
    if speed := facts.get("sentences_per_second"):
        times = speed["student"] / speed["teacher"]
        text += f"; {speed['student']:,.0f} sentences/s, {times:.1f} times as many as the teacher on the machine of the training"
    return text


def describe_widths(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Return a text about the score of shortened embeddings, as numbers and as shares of the score of whole embeddings.

    The score is the mean Spearman correlation over the sets. Without any set it is the retrieval of halves of sentences.
    """

    def mean(values: Mapping[str, float]) -> float:
        sets = [value for name, value in values.items() if name != "retrieval"]
        return sum(sets) / len(sets) if sets else values["retrieval"]

    *shorter, whole = ((width, mean(values)) for width, values in scores.items())
    sets = len(scores[whole[0]]) - 1
    metric = f"mean Spearman x 100 of {sets} set{'s' * (sets != 1)}" if sets else "retrieval x 100 of halves of sentences"
    parts = [f"{width} dimensions {score:.2f}" + (f" ({score / whole[1]:.1%})" if whole[1] else "") for width, score in shorter]
    return f"{metric}: {', '.join([*parts, f'all {whole[0]} dimensions {whole[1]:.2f}'])}"


def render_word_card(metadata: Mapping[str, Any], step: int, stock: bool) -> str:
    """Return README.md of a model on word vectors. If `stock`, sentence-transformers can load it as well."""
    data = ModelCardData(library_name="sentence-transformers" if stock else "jax_sentemb", **_CARD_DATA)
    facts: dict[str, Any] = {key: markdown(metadata[key]) for key in ("name", "method")}
    facts["training"] = {markdown(key): markdown(value) for key, value in for_readers(metadata["training"]).items()}
    return _from_template("word_model_card.md", data, version=__version__, step=step, stock=stock, **facts)


def render_static_card(name: str, metadata: Mapping[str, Any], rows: int, width: int, has_unit_length: bool) -> str:
    """Return README.md of a static table of token vectors, distilled from an encoder.

    Args:
        name: The name of the table.
        metadata: How it was made, as in its manifest.
        rows: The number of its vectors.
        width: The number of dimensions of an embedding.
        has_unit_length: Whether embeddings have length 1.
    """
    data = ModelCardData(library_name="sentence-transformers", base_model=metadata["base_model"], **_CARD_DATA)
    facts = {key: metadata[key] for key in ("regression", "sentences", "sif", "words")}
    facts |= {"base_model": markdown(metadata["base_model"] or ""), "has_unit_length": has_unit_length}
    return _from_template("static_card.md", data, name=markdown(name), version=__version__, rows=rows, width=width, **facts)


def _from_template(template: str, data: ModelCardData, **values: Any) -> str:
    file = files("jax_sentemb.formats") / "templates" / template
    return str(ModelCard.from_template(data, template_str=file.read_text(encoding="utf-8"), **values)).rstrip() + "\n"


def _embedding(pooling: str, max_seq_length: int) -> str:
    return (
        f"The embedding is {POOLING_DESCRIPTIONS[pooling]} (pooling mode `{pooling}`). Sentences are cut after "
        f"{max_seq_length} tokens. If `transformers` loads a pooler, it is the identity and embeddings do not use it."
    )


def describe_modules(convolution: Convolution | None, dense: Sequence[str], similarity: str = "cosine") -> str:
    """Return sentences about the convolution before the pooling, the dense layers after it, and the similarity of embeddings."""
    layers = f" Compare embeddings by {SIMILARITY_NAMES[similarity]}."
    plural = "s are" if len(dense) > 1 else " is"
    layers += f" After the pooling, {len(dense)} dense layer{plural} applied ({', '.join(dense)})." if dense else ""
    if convolution is None:
        return layers
    windows = ", ".join(map(str, convolution.windows))
    text = f"{layers} Between encoder and pooling, convolutions of {windows} tokens are applied to the token states."
    if convolution.reference:
        return text + (
            " They read the states of [PAD] tokens (as the published code of IS-BERT): **an embedding depends on how much its "
            "batch is padded**; `batch_size=1` gives the same vector every time."
        )
    return text + " A module of word weights, all 1, sets [PAD] to zero before them, so padding does not change an embedding."


SIMILARITY_NAMES = {
    "cosine": "cosine similarity", "dot": "dot product", "euclidean": "Euclidean distance", "manhattan": "Manhattan distance",
}  # fmt: skip


def _front_matter(card: Card) -> ModelCardData:
    results = [
        EvalResult(
            task_type="semantic-similarity",
            task_name="Semantic Similarity",
            dataset_type=name,
            dataset_name=name,
            metric_type=f"{correlation}_cosine",
            metric_name=f"{correlation.title()} Cosine",
            metric_value=round(float(score[correlation]["all"]) / 100, 6),
        )
        for name, score in card.scores.items()
        for correlation in ("spearman", "pearson")
    ]
    optional = {key: value for key in ("language", "license", "base_model") if (value := getattr(card, key))}
    evaluation = {"model_name": card.name, "eval_results": results} if results else {}
    return ModelCardData(library_name="sentence-transformers", **_CARD_DATA, **optional, **evaluation)


def _score_rows(scores: Mapping[str, dict]) -> list[list[str]]:
    """Return a row for each set: its name, the number of pairs, and both correlations over all pairs and as means."""
    columns = [(correlation, average) for correlation in ("spearman", "pearson") for average in ("all", "mean", "wmean")]
    return [
        [_cell(name), f"{score['n']:,}", *(f"{score[correlation][average]:.2f}" for correlation, average in columns)]
        for name, score in scores.items()
    ]


def _cell(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return markdown(text)
