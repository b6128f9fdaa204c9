"""Run `jax-sentemb dedup --corpus corpus.txt --output unique.txt`: write a corpus without exact and near duplicates."""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jax_sentemb import __version__
from jax_sentemb.cli.collection import Opener, add_corpus_options, check_no_text_of_text, is_vectors
from jax_sentemb.cli.encode import load_encoder, note
from jax_sentemb.cli.program import EXIT_CODES, Parser, finite, start
from jax_sentemb.data.corpus_files import corpus_name, open_text, sources_of_option
from jax_sentemb.data.record_copies import check_formats, copy_records
from jax_sentemb.data.records import KEEP_CHOICES, Records
from jax_sentemb.data.text_file import check_unchanged, identity_of
from jax_sentemb.errors import ConfigError, plain
from jax_sentemb.files import remove, replacing, sole_writer, user_path, write_json
from jax_sentemb.provenance import Source
from jax_sentemb.public_text import model_name, spreadsheet_cell
from jax_sentemb.system.terminal import Progress, counted, json_text, table

if TYPE_CHECKING:
    from jax_sentemb.inference.encoder import SentenceEncoder
    from jax_sentemb.retrieval.deduplication import Deduplicated

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
RESULT_BYTES = 100  # that tell a result from another file
COLUMNS = ("row", "reason", "cosine", "kept_row", "text", "kept_text")
EPILOG = f"""\
Records are visited in order: by their number, or the longest first. A record is kept unless its text equals a kept one, or the
cosine of both is at least --threshold. Texts are equal if they differ only in the Unicode form (NFC) and in white space. Texts of
which the tokenizer knows no piece, such as emoji, are compared by their text only.

--output unique.csv           the kept records as they are in the corpus, in its order: lines, or rows with the header. The format
                              is that of the corpus, or .txt for the texts alone; .gz and .xz compress
        unique.csv.dropped.csv  the dropped records: row, reason (exact, near or empty), cosine, and the record that was kept
        unique.csv.json         counts, model, threshold, and how many records each of several thresholds would keep
        unique.csv.vectors      the vectors until the command has ended; after an interruption, the same command continues

examples:
  jax-sentemb dedup --corpus corpus.txt --output unique.txt
  jax-sentemb dedup --corpus reviews.csv --column review --threshold 0.95 --keep longest --output unique.csv
  jax-sentemb dedup --corpus vectors --corpus-text corpus.txt --output unique.txt

{EXIT_CODES}"""


def parser() -> Parser:
    """Return the parser of the options."""
    parser = Parser(
        prog="jax-sentemb dedup",
        description="Write a corpus without exact and near duplicates. Every pair is compared.",
        epilog=EPILOG,
    )
    add_corpus_options(parser, default_model=MODEL)
    parser.add_argument("--threshold", type=finite, default=0.9, help="lowest cosine of near duplicates (default: 0.9)")
    parser.add_argument("--keep", choices=KEEP_CHOICES, default="first", help="the record of a group that is kept (default: first)")
    parser.add_argument("--output", type=user_path, required=True, help="the file to write, with the format of the corpus or .txt")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    return parser


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return the exit code."""
    options = parser().parse_args(argv[1:])
    if not 0 < options.threshold <= 1:
        raise ConfigError(f"--threshold {options.threshold:g}: must be above 0 and at most 1")
    option, files = _text_option(options)
    sources = sources_of_option(option, files)
    _check_outputs(options.output, sources)
    with sole_writer(options.output):
        paths = [Path(source) for source in sources if Path(source).is_file()]
        identity = identity_of(paths)
        records = open_text(option, files, options.column, options.join, options.id)
        if records.columns:
            raise ConfigError(f"--column {options.column}: dedup compares one text of each record; give one column, or --join")
        if blank := records.describe_blank():
            note(f"{option} {files}: {blank}: they are left out")
        result, model = _find(options, files, records)
        is_kept = np.zeros(records.count, bool)
        is_kept[result.kept] = True
        facts = _facts(options, files, records, result, model)
        with replacing(options.output) as partial:
            facts["content"] = "records" if copy_records(records, sources, is_kept, options.output, partial) else "texts"
            with replacing(_beside(options.output, ".dropped.csv")) as dropped:
                _write_dropped(dropped, records, result)
            write_json(_beside(options.output, ".json"), facts)
            check_unchanged(paths, identity)
            records.sentences.check_unchanged()
        _remove_vectors(options)
    print(json_text(facts, indent=2) if options.json else plain(_describe(facts, options.output)))
    return 0


def _text_option(options: argparse.Namespace) -> tuple[str, str]:
    """Return the option that names the text of the corpus, and its value."""
    if not is_vectors(options.corpus):
        check_no_text_of_text(options)
        return "--corpus", options.corpus
    if not options.corpus_text:
        raise ConfigError(f"--corpus {options.corpus} has vectors, and dedup copies records of the text; give --corpus-text too")
    return "--corpus-text", options.corpus_text


def _beside(output: Path, suffix: str) -> Path:
    """Return a file next to the output."""
    return output.with_name(output.name + suffix)


def _check_outputs(output: Path, sources: list[str]) -> None:
    """Raise ConfigError if the output exists, cannot be written, or cannot have the format of the corpus."""
    if output.exists() or output.is_symlink():
        raise ConfigError(f"--output {output} exists: give another name or move it away")
    if not output.parent.is_dir():
        raise ConfigError(f"--output {output}: there is no folder {output.parent}; create it")
    check_formats(sources, output)
    for beside in (_beside(output, suffix) for suffix in (".dropped.csv", ".json")):
        if beside.exists() and any(Path(source).exists() and beside.samefile(source) for source in sources):
            raise ConfigError(f"--output {output}: {beside} would be replaced, but it is part of the corpus; give another name")
        if beside.is_symlink() or (beside.exists() and not _is_result(beside)):
            raise ConfigError(f"--output {output}: {beside} exists and would be replaced; give another name or move it away")


def _is_result(file: Path) -> bool:
    """Return whether a file is from an earlier call of this command, which may have been killed before it wrote --output."""
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        content = stream.read(RESULT_BYTES)
    return content.startswith(b'{\n  "jax_sentemb": ' if file.suffix == ".json" else ",".join(COLUMNS).encode())


def _find(options: argparse.Namespace, files: str, records: Records) -> tuple["Deduplicated", str]:
    """Return the duplicates and the name of the model."""
    from jax_sentemb.retrieval.deduplication import deduplicate

    if is_vectors(options.corpus):
        opener = Opener(options)
        vectors: Any = opener.corpus().vectors
        model = vectors.sources["model"]["name"] if getattr(vectors, "is_marked", False) else ""
        if options.model:
            vectors = _without_unknown(opener.encoder, vectors, vectors.empty_rows, records)
        else:
            note("without --model, different texts of which the tokenizer knows no piece, such as emoji, may be dropped as equal")
    else:
        vectors, model = _encode(options, files, records), model_name(options.model or MODEL)
    with counted("compare", "blocks") as progress:
        return deduplicate(vectors, options.threshold, records.texts, options.keep, progress), model


def _encode(options: argparse.Namespace, files: str, records: Records) -> Any:
    """Encode the texts into a folder next to the output, which an interrupted command may have begun."""
    from jax_sentemb.inference.encoded_texts import encode_into, encoded_sources

    if not options.model:
        note(f"the model is {MODEL}, for English text; --model names another one")
        options.model = MODEL
    encoder = load_encoder(options)
    corpus = Source(corpus_name(files), records.sentences.fingerprint)
    sources = encoded_sources(encoder, model_name(options.model), corpus)
    folder = _beside(options.output, ".vectors")
    with Progress("encode", len(records.texts), "texts") as progress:
        vectors = encode_into(folder, encoder, sources, records.texts, "document", options.batch_size, progress.update)
    if cut := vectors.manifest["truncated"]:
        note(
            f"{cut:,} texts longer than {encoder.max_seq_length} tokens were cut: they are compared by their beginnings; "
            "`encode --chunks mean` writes vectors of whole texts"
        )
    return _without_unknown(encoder, vectors, records.empty_texts, records)


def _without_unknown(encoder: "SentenceEncoder", vectors: Any, empty: Any, records: Records) -> Any:
    """Return the vectors with zeros for texts of which the tokenizer knows no piece. The rows `empty` are of empty texts."""
    from jax_sentemb.inference.encoded_texts import texts_of_unknown_pieces
    from jax_sentemb.retrieval.sources import WithEmptyRows, ZeroedRows

    if len(unknown := texts_of_unknown_pieces(encoder, records.texts)):
        vectors = ZeroedRows(vectors, unknown)
        note(
            f"{len(unknown):,} texts (the first is record {unknown[0]}) have only pieces that the tokenizer does not know, such as "
            "emoji: they are dropped only if their text is equal to that of a kept one"
        )
    return WithEmptyRows(vectors, empty)


def _remove_vectors(options: argparse.Namespace) -> None:
    """Delete the vectors next to the output if this command made them and they are not its input."""
    from jax_sentemb.inference.encoded_texts import INTERMEDIATE
    from jax_sentemb.retrieval.vector_manifest import MANIFEST, read_manifest

    folder = _beside(options.output, ".vectors")
    is_input = is_vectors(options.corpus) and folder.exists() and folder.samefile(options.corpus)
    if (folder / MANIFEST).is_file() and not is_input and read_manifest(folder).get(INTERMEDIATE):
        remove(folder)


def _facts(options: argparse.Namespace, files: str, records: Records, result: "Deduplicated", model: str) -> dict[str, Any]:
    """Return the content of the JSON file."""
    exact = int(result.is_exact.sum())
    return {
        "jax_sentemb": __version__,
        "corpus": {"name": corpus_name(files), "sha256": records.sentences.fingerprint},
        "model": model,
        "threshold": options.threshold,
        "keep": options.keep,
        "records": records.count,
        "empty": len(records.empty_texts),
        "exact": exact,
        "near": len(result.dropped) - exact,
        "kept": len(result.kept),
        "distinct": result.distinct,
        "curve": [{"threshold": value, "kept": kept} for value, kept in result.curve.items()],
    }


def _write_dropped(file: Path, records: Records, result: "Deduplicated") -> None:
    """Write a row for each record that is not in the output, in the order of the corpus."""
    names = ("_id", "kept_id") if records.has_ids else ()
    rows = {
        row: ("exact" if is_exact else "near", f"{score:.6f}", kept)
        for row, kept, score, is_exact in zip(*(field.tolist() for field in result[1:5]), strict=True)
    }
    rows |= {row: ("empty", "", None) for row in records.empty_texts.tolist()}
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*COLUMNS, *names])
        for row in sorted(rows):
            reason, score, kept = rows[row]
            texts = records.texts[row], "" if kept is None else records.texts[kept]
            ids = (records.id_of(row), None if kept is None else records.id_of(kept)) if names else ()
            cells = [row, reason, score, "" if kept is None else kept, *texts, *("" if value is None else value for value in ids)]
            writer.writerow([spreadsheet_cell(cell) for cell in cells])


def _describe(facts: dict[str, Any], output: Path) -> str:
    """Return the table of the curve, and the counts."""
    filled = facts["records"] - facts["empty"]
    rows = list(_curve_rows(facts, filled))
    dropped = f"{facts['exact']:,} exact, {facts['near']:,} near"
    if facts["empty"]:
        dropped += f", {facts['empty']:,} empty"
    lines = [
        table(("threshold", "kept", "share", ""), rows, text_columns=(3,)),
        "",
        f"dropped: {dropped} (see {output.name}.dropped.csv)",
        f"written: {output}: {facts['kept']:,} of {facts['records']:,} {facts['content']}",
    ]
    return "\n".join(lines)


def _share(kept: int, filled: int) -> str:
    """Return a share in per cent; it is 100 only if all are kept."""
    return f"{min(kept / filled, 1 if kept == filled else 0.999):.1%}"


def _curve_rows(facts: dict[str, Any], filled: int) -> Iterator[tuple[str, str, str, str]]:
    for point in facts["curve"]:
        remark = "--threshold" if point["threshold"] == facts["threshold"] else ""
        yield f"{point['threshold']:.15g}", f"{point['kept']:,}", _share(point["kept"], filled), remark
    yield "exact", f"{facts['distinct']:,}", _share(facts["distinct"], filled), "without equal texts only"


if __name__ == "__main__":
    start(main)
