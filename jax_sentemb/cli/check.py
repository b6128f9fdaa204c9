"""Run `jax-sentemb check corpus.txt`: describe a corpus before training, and recommend a recipe for it."""

import argparse
import itertools
import math
import re
import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_sentemb.cli.encode import add_text_options
from jax_sentemb.cli.program import EXIT_CODES, Parser, leave_out, positive, start
from jax_sentemb.cli.recommend import MAX_UNKNOWN, READ_LENGTH, Advice, CorpusSummary, advise, advised_length
from jax_sentemb.data.corpus import MIN_ORDER_CHECK, TEXTS, is_ordered, is_running_text, several_sentences, words_in_common
from jax_sentemb.data.corpus_files import open_text, sources_of, text_options
from jax_sentemb.data.quality import SUSPICIOUS, find_suspicious, histogram, token_lengths
from jax_sentemb.data.records import Records
from jax_sentemb.data.tables import column_names
from jax_sentemb.data.tokenizer import Tokenizer, new_tokenizer
from jax_sentemb.data.tokens import Tokens, tokenize
from jax_sentemb.errors import ARGUMENT, ConfigError, plain
from jax_sentemb.public_text import shell_word
from jax_sentemb.system.terminal import json_text, table

EDGES = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
ENDING = re.compile(r"\.(parquet|(txt|jsonl|csv|tsv)(\.gz|\.xz)?)$")  # of the name of a corpus that is a file
MANY_NEAR = 0.01  # share of near duplicates from which on they are worth removing
POSITIONS = 512  # of a BERT
WIDTH, INDENT = 100, 12  # of a line, and of its text below a heading
STANDARD_INPUT = "standard input"
ANY_MODEL = "MODEL"  # in a command that needs a model of the reader's
MOSTLY, SCRIPT_SAMPLE = 0.8, 1000  # share of the letters; sentences whose letters are counted
LINE_FILES = (".txt", ".txt.gz", ".txt.xz", STANDARD_INPUT)  # their records are lines, not rows of a table
EPILOG = f"""\
examples:
  jax-sentemb check corpus.txt
  jax-sentemb check --weights path/to/bert --max-seq-length 64 corpus.txt
  jax-sentemb check reviews.csv --column review --json

{EXIT_CODES}"""


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return the exit code."""
    options = parser().parse_args(argv[1:])
    if options.weights or options.tokenizer:
        leave_out(options, ["vocab_size"], "no new vocabulary is made; leave out --weights and --tokenizer")
    facts = survey(options)
    advice = facts["advice"]
    if options.json:
        print(json_text(facts | {"advice": _as_json(advice) if advice else None}, indent=2))
    else:
        print(plain("\n".join(describe(facts))))
    return 0


def _as_json(advice: Advice) -> dict[str, Any]:
    return advice._asdict() | {"alternatives": [alternative._asdict() for alternative in advice.alternatives]}


def parser() -> Parser:
    """Return the parser of the options."""
    parser = Parser(
        prog="jax-sentemb check",
        description="Describe a corpus before training, and recommend a recipe for it.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "files", help="paths and globs, comma separated: .txt, .jsonl, .csv, .tsv (also .gz, .xz), .parquet; or hf:NAME"
    )
    add_text_options(parser)
    parser.add_argument(
        "--weights", "--model", default="", help="the model to start from: a directory or a hub name (default: from scratch)"
    )
    parser.add_argument("--tokenizer", default="", help="directory of a tokenizer (default: that of --weights, or a new one)")
    parser.add_argument("--vocab-size", type=positive, default=8000, help="size of a new vocabulary (default: 8000)")
    parser.add_argument(
        "--max-seq-length", type=positive, help="tokens after which sentences are cut (default: a length that keeps 99 %% whole)"
    )
    parser.add_argument("--batch-size", type=positive, default=64, help="sentences in a batch (default: 64)")
    parser.add_argument("--json", action="store_true", help="print a JSON object instead of text")
    return parser


def survey(options: argparse.Namespace) -> dict[str, Any]:
    """Return everything that the command prints about the corpus. `advice` is an Advice or None. Errors are as in training."""
    _check_limits(options)
    vocabulary, positions, pooling, limit, layers = options.tokenizer, POSITIONS, "", POSITIONS, 0
    if options.weights:
        from jax_sentemb.formats.huggingface import max_positions, read_config, read_max_seq_length, resolve
        from jax_sentemb.formats.model_dir import sentence_pooling

        folder = resolve(options.weights, "--weights")
        vocabulary, positions, layers = vocabulary or folder, max_positions(folder), read_config(folder).num_hidden_layers
        pooling = sentence_pooling(folder)
        limit = min(read_max_seq_length(folder), positions) if pooling else positions
    if (options.max_seq_length or 0) > positions:
        raise ConfigError(f"--max-seq-length {options.max_seq_length} exceeds the encoder's {positions} positions; lower it")
    records = open_text(ARGUMENT, options.files, options.column, options.join)
    sentences = records.sentences
    files = [STANDARD_INPUT] if options.files == "-" else list(sources_of(options.files))
    if vocabulary:
        from jax_sentemb.formats.huggingface import load_tokenizer

        tokenizer = load_tokenizer(vocabulary)
    else:
        tokenizer = new_tokenizer(sentences, options.vocab_size)
    lengths = token_lengths(sentences, tokenizer, positions)
    whole = int(np.percentile(lengths, 99, method="higher"))
    length = options.max_seq_length or advised_length(whole, limit, bool(pooling))
    tokens = tokenize(sentences, tokenizer, length, workers=0 if options.files == "-" else -1)
    report = tokens.report
    near = _count_near(tokens, tokenizer)
    order = _measure_order(records)
    corpus = CorpusSummary(
        "corpus.txt" if options.files == "-" else options.files,
        options.column, report["usable"], length, order["consecutive"], options.batch_size, options.weights,
        options.tokenizer, options.vocab_size, pooling, report["unknown_token_rate"], options.join, layers,
        not order["consecutive"] and order["several_sentences"] >= TEXTS, limit if pooling else READ_LENGTH,
    )  # fmt: skip
    return {
        "files": files,
        "columns": _columns(options, files),
        "bytes": sentences.report["bytes"],
        **{name: report[name] for name in ("lines", "blank", "sentences", "usable", "duplicates")},
        "near_duplicates": near,
        "dedup": _dedup_command(options, files, options.weights if pooling else "" if _is_latin(records) else ANY_MODEL),
        "tokenizer": str(vocabulary) or f"a new one of {tokenizer.vocab_size} pieces",
        "unknown_token_rate": report["unknown_token_rate"],
        "max_seq_length": length,
        "model_limit": limit,
        "truncated": report["truncated"],
        "tokens": _measure_lengths(lengths, positions) | {"whole_99_percent": whole},
        "suspicious": _suspicious(records, files),
        "order": order,
        "batch_size": options.batch_size,
        "batches": report["usable"] // options.batch_size,
        "advice": advise(corpus),
    }


def _check_limits(options: argparse.Namespace) -> None:
    """Raise ConfigError for a number that is too small."""
    for name, minimum in (("max_seq_length", 3), ("batch_size", 2), ("vocab_size", 50)):
        if (getattr(options, name) or minimum) < minimum:
            raise ConfigError(f"--{name.replace('_', '-')} {getattr(options, name)} must be at least {minimum}")


def _measure_lengths(lengths: np.ndarray, positions: int) -> dict[str, Any]:
    """Return the figures of sorted numbers of tokens."""
    return {
        "sentences": len(lengths),
        "mean": round(float(lengths.mean()), 1),
        **{name: int(np.percentile(lengths, percent)) for name, percent in (("median", 50), ("p95", 95))},
        "longest": int(lengths[-1]),
        "at_most": positions,
        "histogram": histogram(lengths, [*(edge for edge in EDGES if edge < positions), positions]),
    }


def _measure_order(records: Records) -> dict[str, Any]:
    """Return whether the records are running text (None: too little text to decide), and the figures that decide it."""
    sentences = records.sentences
    in_common = words_in_common(sentences) if len(sentences) >= MIN_ORDER_CHECK else None
    several = several_sentences(sentences)
    is_running = None
    if in_common and any(in_common):
        is_running = is_ordered(*in_common) and not records.columns and is_running_text(sentences, several)
    return {
        "consecutive": is_running,
        "several_sentences": round(several, 4),
        "in_common_neighbours": in_common and round(in_common[0], 4),
        "in_common_anywhere": in_common and round(in_common[1], 4),
    }


def _columns(options: argparse.Namespace, files: list[str]) -> dict[str, Any] | None:
    """Return the columns that are read, the text that joins them, and the other columns; None for files without columns."""
    names = list(dict.fromkeys(name for file in files if file != STANDARD_INPUT for name in column_names(file)))
    read = [name.strip() for name in options.column.split(",")]
    return {"read": read, "join": options.join, "others": [name for name in names if name not in read]} if names else None


def _suspicious(records: Records, files: list[str]) -> list[dict[str, Any]]:
    """Return the suspicious characters. Their first position is a line of text, from 1, or a row of a table, from 0."""
    rows = []
    for name, occurrences in find_suspicious(records.sentences).items():
        file, row = records.file_and_row(occurrences.first)
        position = {"line": row + 1} if files[file].endswith(LINE_FILES) else {"row": row}
        counts = {"what": name, "sentences": occurrences.sentences, "file": files[file]}
        rows.append({**counts, **position, "remedy": SUSPICIOUS[name][1]})
    return sorted(rows, key=lambda row: -row["sentences"])


def describe(facts: dict[str, Any]) -> list[str]:
    """Return the lines of text: tables of the corpus and of its lengths, suspicious characters, and the advice."""
    tokens, count, files = facts["tokens"], facts["sentences"], facts["files"]
    more = f" and {len(files) - 4} more" if len(files) > 4 else ""
    sampled = "" if tokens["sentences"] >= count else f" (of {tokens['sentences']:,} evenly spaced sentences)"
    length = facts["max_seq_length"]
    cut = f"{facts['truncated']:,} ({facts['truncated'] / max(count, 1):.1%}) are cut at max_seq_length={length}"
    whole = tokens["whole_99_percent"]
    is_unreadable = facts["unknown_token_rate"] > MAX_UNKNOWN
    limit = f", but the limit of the model is {facts['model_limit']}" if whole > facts["model_limit"] else ""
    rows = [
        ("files", f"{', '.join(files[:4])}{more}"),
        *([("column", _column(facts["columns"]))] if facts["columns"] else []),
        ("size", f"{facts['bytes']:,} bytes of text, {facts['lines']:,} lines, {facts['blank']:,} blank"),
        ("sentences", f"{facts['usable']:,} usable; {_duplicates(facts['duplicates'], length)}"),
        ("near", "not checked: too many pieces are unknown" if is_unreadable else _near(facts["near_duplicates"])),
        ("tokenizer", f"{facts['tokenizer']}; {facts['unknown_token_rate']:.2%} of the pieces are unknown"),
        ("tokens", f"mean {tokens['mean']}, median {tokens['median']}, 95 % have {tokens['p95']} or fewer{sampled}"),
        ("length", f"{cut}; {_whole(whole, tokens['at_most'])}{limit}"),
        ("batches", _batches(facts)),
        ("order", _order(facts["order"])),
    ]
    lines = [table(("corpus", ""), rows, text_columns=(0, 1), width=WIDTH), ""]
    lines += [table(("tokens", "sentences", ""), _bars(tokens["histogram"]), text_columns=(2,)), ""]
    for row in facts["suspicious"]:
        unit = "line" if "line" in row else "row"
        where = f"first: {row['file']} {unit} {row[unit]}"
        count = f"{row['sentences']:,} sentence{'s' * (row['sentences'] > 1)}"
        lines += paragraph("suspicious", f"{row['what']}: {count} ({where}); {row['remedy']}")
    lines += [] if facts["suspicious"] else ["suspicious  nothing"]
    lines += [] if is_unreadable else _near_advice(facts["near_duplicates"], facts["dedup"])
    return [*lines, *_advice(facts["advice"], facts["usable"])]


def _batches(facts: dict[str, Any]) -> str:
    """Return the number of batches in an epoch, and that of pairs if they are recommended."""
    size, advice = facts["batch_size"], facts["advice"]
    pairs = f"; of {size} pairs of neighbours: {facts['usable'] // 2 // size:,}" if advice and advice.recipe == "neighbours" else ""
    return f"{facts['batches']:,} of {size} sentences in an epoch{pairs}"


def paragraph(heading: str, text: str) -> list[str]:
    """Return the lines of a text to the right of a heading; words such as paths are not broken."""
    options = {"width": WIDTH, "subsequent_indent": " " * INDENT, "break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(text, initial_indent=heading.ljust(INDENT), **options)


def command_lines(command: str) -> list[str]:
    """Return the lines of a command, broken before options in the way that a shell joins again."""
    parts: list[str] = []
    for word in map(shell_word, shlex.split(command)):
        if parts and not word.startswith("--"):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    lines = [parts[0]]
    for part in parts[1:]:
        if INDENT + len(f"{lines[-1]} {part} \\") <= WIDTH:
            lines[-1] += f" {part}"
        else:
            lines.append(f"    {part}")
    return [" " * INDENT + line for line in (*(f"{line} \\" for line in lines[:-1]), lines[-1])]


def _column(columns: dict[str, Any]) -> str:
    """Return which columns are read, and which are not."""
    read, others = columns["read"], columns["others"]
    several = f", joined by {columns['join']!r}" if columns["join"] else ", each a text of its own"
    return f"{', '.join(read)}{several if len(read) > 1 else ''}" + (f"; not read: {', '.join(others)}" if others else "")


def _whole(length: int, at_most: int) -> str:
    """Return how many tokens keep 99 % of the sentences whole; no sentence is counted to more than `at_most`."""
    return f"{length} keeps 99 % whole" if length < at_most else f"{at_most} or more would keep 99 % whole"


def _duplicates(count: int, length: int) -> str:
    """Return how many sentences are left out, and what is compared."""
    if not count:
        return "no two are equal"
    verb, whose = ("is", "its") if count == 1 else ("are", "their")
    return f"{count:,} {verb} left out, because {whose} first {length} tokens equal those of an earlier sentence"


def _bars(counts: dict[int, int]) -> list[tuple[str, str, str]]:
    """Return a row for each range of lengths up to the last that is not empty: the range, the number of sentences, and a bar."""
    edges, largest = list(counts), max(counts.values())
    last = max(edge for edge, count in counts.items() if count)
    rows = zip([1, *(edge + 1 for edge in edges)], counts.items(), strict=False)
    return [
        (f"{start} to {edge}", f"{count:,}", "#" * math.ceil(40 * count / largest)) for start, (edge, count) in rows if edge <= last
    ]


def _count_near(tokens: Tokens, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return how many sentences of a sample are near duplicates."""
    from jax_sentemb.data.near_duplicates import OVERLAP, NearDuplicates, near_duplicates

    counts = near_duplicates(tokens, tokenizer) if len(tokens) else NearDuplicates(0, 0)
    return {**counts._asdict(), "overlap": OVERLAP}


def _is_latin(records: Records) -> bool:
    """Return whether most letters of a sample are those of English, which the default model of `dedup` can read."""
    count = len(records.sentences)
    sample = (records.sentences[number] for number in range(0, count, max(1, count // SCRIPT_SAMPLE)))
    letters = [letter for text in sample for letter in text if letter.isalpha()]
    return sum(map(str.isascii, letters)) >= MOSTLY * len(letters)


def _near(near: dict[str, Any]) -> str:
    share = near["near"] / max(near["sample"], 1)
    return f"{share:.1%} of {near['sample']:,} random sentences share {near['overlap']:.0%} of their pieces with another one"


def _near_advice(near: dict[str, Any], command: str) -> list[str]:
    """Return what to do about near duplicates, if there are many."""
    if near["near"] < MANY_NEAR * max(near["sample"], 1):
        return []
    model = f" with an encoder of sentences in this language ({ANY_MODEL})" if f" {ANY_MODEL} " in command else ""
    reason = f"contrastive training pushes near duplicates apart, which harms it; remove them{model}, and train on the new file:"
    return [*paragraph("near", reason), *command_lines(command)]


def _dedup_command(options: argparse.Namespace, sources: Sequence[str], model: str) -> str:
    """Return a command that writes the corpus, which consists of `sources`, without near duplicates."""
    files = "corpus.txt" if options.files == "-" else options.files
    join = options.join or " " * ("," in options.column)
    endings = {match[0] if (match := ENDING.search(source)) else ".txt" for source in sources}
    ending = endings.pop() if len(endings) == 1 else ".txt"
    names = (f"unique{number}{ending}" for number in itertools.chain([""], itertools.count(2)))
    output = next(name for name in names if not Path(name).exists())
    settings = [*text_options(options.column, join), *(["--model", model] if model else [])]
    return shlex.join(["jax-sentemb", "dedup", "--corpus", files, *settings, "--output", output])


def _order(order: dict[str, Any]) -> str:
    if order["several_sentences"] >= TEXTS:
        return f"separate texts: {order['several_sentences']:.0%} of them have several sentences"
    if order["consecutive"] is None:
        is_short = order["in_common_neighbours"] is None
        reason = (
            f"fewer than {MIN_ORDER_CHECK:,} sentences" if is_short else "no two sentences of a sample have a long word in common"
        )
        return f"{reason}: not checked"
    verdict = "running text: neighbouring sentences belong together" if order["consecutive"] else "not running text"
    near, far = order["in_common_neighbours"], order["in_common_anywhere"]
    return f"{verdict} (neighbours have {near:.2%} of their long words in common, any two {far:.2%})"


def _advice(advice: Advice | None, usable: int) -> list[str]:
    if advice is None:
        return paragraph("advice", f"{usable} sentence{'s are' if usable != 1 else ' is'} too few for any recipe: add text")
    settings = f"max_seq_length {advice.max_seq_length}, epochs {advice.num_train_epochs}, steps {advice.steps:,}"
    lines = [*paragraph("advice", f"{advice.recipe}: {settings}"), *command_lines(advice.command)]
    lines += [*paragraph("confidence", advice.confidence), *paragraph("", advice.evidence)]
    for text, command in advice.alternatives:
        lines += [*paragraph("or", text), *(command_lines(command) if command else [])]
    return lines


if __name__ == "__main__":
    start(main)
