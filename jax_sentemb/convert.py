"""python -m jax_sentemb.convert --workdir runs/micse [--step best|last|N] [--output DIR]

Exports a checkpoint of a run as a Hugging Face and sentence-transformers directory, verified by re-encoding.
"""

import dataclasses
import functools
import sys
from pathlib import Path
from typing import Any

from jax_sentemb import manifest
from jax_sentemb.command_line import EXIT_CODES, Parser, program
from jax_sentemb.errors import ModelFileError
from jax_sentemb.model_folder import read_json, shown
from jax_sentemb.paths import user_path, write_json

NEEDED = ("encoder", "name", "method", "base_model", "pooling", "max_seq_length", "absent", "training")  # in model.json


def main(argv: list[str]) -> int:
    """Exit code of the command line `argv` (program name first)."""
    parser = Parser(
        prog="python -m jax_sentemb.convert",
        description="Export a checkpoint for transformers and sentence-transformers.",
        epilog=f"example: python -m jax_sentemb.convert --workdir runs/micse --step 500 --output models/micse-500\n\n{EXIT_CODES}",
    )
    parser.add_argument("--workdir", type=user_path, required=True, help="work directory of a run")
    parser.add_argument("--step", default="best", help="best (default; last if the run kept none), last, or a step's number")
    parser.add_argument("--output", type=user_path, help="directory to write (default: WORKDIR/export)")
    options = parser.parse_args(argv[1:])
    facts = read_facts(options.workdir)
    params, step = read_checkpoint(options.workdir, options.step)
    export_run(options.output or options.workdir / "export", facts, params, options.workdir, step)
    return 0


def write_facts(workdir: Path, bert_config: Any, facts: dict[str, Any]) -> None:
    """What an export needs beside weights and tokenizer, in `workdir`/model.json."""
    content = {"encoder": dataclasses.asdict(bert_config), **facts}
    write_json(workdir / "model.json", content)


def read_facts(workdir: Path) -> dict[str, Any]:
    """`workdir`/model.json; ModelFileError if there is none or it is damaged."""
    from jax_sentemb.models.bert import BertConfig
    from jax_sentemb.weights import bert_config

    file = workdir / "model.json"
    if not file.is_file():
        raise ModelFileError(f"{workdir} is no work directory of a run: it has no model.json")
    facts = read_json(file)
    if absent := [name for name in NEEDED if name not in facts]:
        raise ModelFileError(f"{file} is damaged: it has no {absent[0]}")
    encoder = facts["encoder"]
    if not isinstance(encoder, dict):
        raise ModelFileError(f"{file} is damaged: encoder={shown(encoder)}")
    if encoder.get("model_type") != "words":
        config = bert_config(encoder, file)
        positions, length = config.max_position_embeddings - config.position_offset, facts["max_seq_length"]
        if not isinstance(length, int) or not 2 <= length <= positions:
            raise ModelFileError(f"{file} is damaged: max_seq_length={shown(length)} is not between 2 and {positions}")
        if foreign := encoder.keys() - {field.name for field in dataclasses.fields(BertConfig)}:
            raise ModelFileError(f"{file} is damaged: encoder has {shown(min(foreign))}")
    return facts


def read_checkpoint(workdir: Path, which: str) -> tuple[Any, int]:
    """Parameters as NumPy arrays and the step of "best", "last" or a number; ModelFileError if it is not there."""
    from jax_sentemb.checkpoint import read_params

    def quiet(text: str) -> None: ...

    found = {kind: manifest.steps(workdir / kind, quiet) for kind in ("best", "checkpoints")}
    if which in ("best", "last"):
        for kind in ("best", "checkpoints") if which == "best" else ("checkpoints",):
            if newest := manifest.newest(workdir / kind):
                return read_params(workdir / kind / str(newest[0])), newest[0]
    kind = next((kind for kind, steps in found.items() if which.isdigit() and int(which) in steps), "")
    if not kind:
        steps = sorted({*found["best"], *found["checkpoints"]})
        there = ", ".join(map(str, steps)) or "none"
        hint = "; its export has the weights that it started from" if not steps and (workdir / "export").is_dir() else ""
        raise ModelFileError(f"--step {which}: {workdir} has no such checkpoint; there are: {there}{hint}")
    try:
        manifest.verify(workdir / kind / str(int(which)))
    except manifest.Damaged as problem:
        raise ModelFileError(f"--step {which}: {problem}") from None
    return read_params(workdir / kind / str(int(which))), int(which)


def run_embedder(workdir: Path, facts: dict[str, Any], pooling: str = "", dtype: str = "float32", batch_size: int = 64) -> Any:
    """The Embedder of a run, (parameters, sentences) -> float32 [N, E]; of a cross-encoder, (parameters, pairs) -> scores [N, 1].

    `pooling` of the encoder's states takes the place of what the run's method does with them; `dtype` is that of products.
    """
    import jax.numpy as jnp

    from jax_sentemb.evaluation.embed import Embedder
    from jax_sentemb.models.bert import Bert, BertConfig
    from jax_sentemb.models.head import pair_score
    from jax_sentemb.models.pooling import sentence_embedding
    from jax_sentemb.text.pairs import JoinedPairs

    if facts["encoder"].get("model_type") == "words":
        from jax_sentemb.word_model import embedder_of

        return embedder_of(facts, read_run_tokenizer(workdir, facts), batch_size)
    encoder = Bert(BertConfig(**facts["encoder"]), jnp.dtype(dtype))
    convolution = None if pooling else convolution_of(facts)
    scores_pairs = facts.get("scores_pairs", False)

    def embed(params: Any, rows: Any) -> Any:
        if scores_pairs:
            return pair_score(encoder, params, rows)
        return sentence_embedding(encoder, params, rows, pooling or facts["pooling"], convolution)

    tokenizer = read_run_tokenizer(workdir, facts)
    return Embedder(embed, JoinedPairs(tokenizer) if scores_pairs else tokenizer, facts["max_seq_length"], batch_size)


def read_run_tokenizer(workdir: Path, facts: dict[str, Any]) -> Any:
    """The tokenizer of a run; ModelFileError where it is not the one that the run was trained with."""
    from jax_sentemb.text.tokenizer import Tokenizer, check_rows
    from jax_sentemb.text.words import WordTokenizer

    folder, encoder = workdir / "tokenizer", facts["encoder"]
    tokenizer = (WordTokenizer if encoder.get("model_type") == "words" else Tokenizer).load(folder)
    check_rows(tokenizer.vocab_size, encoder["vocab_size"], folder)
    trained_with = facts.get("tokenizer", tokenizer.fingerprint)  # older runs do not say
    if tokenizer.fingerprint != trained_with:
        raise ModelFileError(
            f"{folder} is not the tokenizer that the run was trained with: its SHA-256 is {tokenizer.fingerprint[:12]}, "
            f"in model.json {shown(trained_with)}"
        )
    return tokenizer


def convolution_of(facts: dict[str, Any]) -> Any:
    """The Convolution between encoder and pooling that the facts of a run tell of, or None."""
    from jax_sentemb.models.cnn import Convolution

    stated = facts.get("convolution")
    return Convolution(**{**stated, "windows": tuple(stated["windows"])}) if stated else None


def export_run(output: Path, facts: dict[str, Any], params: Any, workdir: Path, step: int) -> None:
    """Write and verify the export of a run's parameters."""
    from jax_sentemb.card import Card
    from jax_sentemb.export import export
    from jax_sentemb.models.bert import BertConfig

    embedder = run_embedder(workdir, facts)
    if facts["encoder"].get("model_type") == "words":
        from jax_sentemb.word_model import export_word_model

        embed = functools.partial(embedder, params)
        export_word_model(output, facts, params, embedder.tokenizer, embed, step)
        return
    scores = facts.get("scores", {}) if facts.get("scores_of_step") == step else {}
    card = Card(
        name=facts["name"],
        method=facts["method"],
        base_model=facts["base_model"],
        training={**facts["training"], "steps": step},
        scores=scores,
        absent=facts["absent"],
    )
    export(
        output,
        BertConfig(**facts["encoder"]),
        params,
        read_run_tokenizer(workdir, facts),
        functools.partial(embedder, params),
        pooling=facts["pooling"],
        max_seq_length=facts["max_seq_length"],
        convolution=convolution_of(facts),
        card=card,
    )


if __name__ == "__main__":
    sys.exit(program(main, sys.argv))
