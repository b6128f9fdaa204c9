"""`jax-sentemb check`: what it counts, against counts made another way; which characters are suspicious; what it recommends."""

import io
import json
import lzma
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_sentemb.__main__ import main
from jax_sentemb.cli import dedup
from jax_sentemb.cli.check import command_lines
from jax_sentemb.cli.distill import parser as distill_parser
from jax_sentemb.cli.program import program
from jax_sentemb.cli.recommend import MIN_SENTENCES, MIN_TO_DISTIL, READ_LENGTH, SMALL, CorpusSummary, advise, advised_length
from jax_sentemb.cli.train import parse
from jax_sentemb.data.corpus import is_running_text, several_sentences
from jax_sentemb.data.quality import LONG, OVERLONG, SUSPICIOUS, find_suspicious, histogram, token_lengths
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.synthetic import sentences
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.methods.mirror_bert import MirrorBERT
from jax_sentemb.methods.neighbours import Neighbours
from jax_sentemb.training.starting_encoder import MAX_SEQ_LENGTH

ROOT = Path(__file__).parents[1]
PLAIN = [
    "one two three",
    "caf\u00e9 na\u00efve S\u00c3O \u00c2ge",
    "a < b & c > d",
    "tab\tinside",
    "\u6f22\u5b57 \U0001f600",
    "\u041f\u0440\u0438\u0432\u0435\u0442",
    "Q&A; R&D",
]
EXAMPLES = {
    "NUL": ["a\0b"],
    "control character": ["a\x07b", "a\x85b", "a\u2028b"],
    "lone carriage return": ["a\rb"],
    "replacement character U+FFFD": ["a\ufffdb"],
    "byte order mark inside": ["a\ufeffb"],
    "zero-width character": ["a\u200bb"],
    "direction mark": ["a\u202eb"],
    "mojibake": [
        *(word.encode().decode("cp1252") for word in ("caf\u00e9", "it\u2019s", "\u201cso", "5 \u00a3", "\u041a\u0440\u0430")),
        "caf\u00e9".encode().decode("latin-1"),
    ],
    "HTML tag or entity": ["a <b>word</b>", "a<br/>b", 'x <a href="y">z</a>', "fish &amp; chips", "&#8217;", "&#x2019;"],
    OVERLONG: ["x" * (LONG + 1), "\u6f22" * LONG],
}  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))


def run(*arguments):
    return program(main, ["jax-sentemb", "check", *map(str, arguments)])


def check(capsys, *arguments):
    assert run(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def corpus_of(tmp_path, lines, name="corpus.txt"):
    file = tmp_path / name
    file.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return file


def test_every_kind_of_odd_text_is_found_and_ordinary_text_is_not(tmp_path):
    assert set(EXAMPLES) == set(SUSPICIOUS)
    assert find_suspicious(Sentences([corpus_of(tmp_path, PLAIN)], tmp_path)) == {}
    for name, examples in EXAMPLES.items():
        for example in examples:
            found = find_suspicious(Sentences([corpus_of(tmp_path, [*PLAIN, example, *PLAIN, example])], tmp_path))
            assert found[name] == (2, len(PLAIN)), (name, example)


def test_a_line_of_the_greatest_length_is_not_too_long(tmp_path):
    assert find_suspicious(Sentences([corpus_of(tmp_path, ["x" * LONG])], tmp_path)) == {}


def test_the_place_is_file_and_line(tmp_path, capsys):
    first = corpus_of(tmp_path, ["", "one", "", "two"], "a.txt")
    second = corpus_of(tmp_path, ["three", "", "four\x07"], "b.txt")
    (suspicious,) = check(capsys, f"{first},{second}")["suspicious"]
    assert (suspicious["file"], suspicious["line"], suspicious["sentences"]) == (str(second), 3, 1)
    assert run(f"{first},{second}") == 0
    assert f"control character: 1 sentence (first: {second} line 3)" in " ".join(capsys.readouterr().out.split())


def test_counts_are_those_of_plain_python(tmp_path, capsys):
    lines = [*sentences(300, seed=1), "", "  ", *sentences(20, seed=1), "Sehr " * 200]
    file = corpus_of(tmp_path, lines)
    facts = check(capsys, file, "--vocab-size", 300, "--max-seq-length", 12, "--batch-size", 16)
    tokenizer = Tokenizer.train([line for line in lines if line.strip()], 300)
    rows = [tokenizer.encode([line], 512)[0][0].tolist() for line in lines if line.strip()]
    distinct = {tuple(row[:11]) for row in rows}
    assert (facts["bytes"], facts["lines"], facts["blank"]) == (file.stat().st_size, len(lines), 2)
    assert (facts["usable"], facts["duplicates"]) == (len(distinct), len(rows) - len(distinct))
    assert facts["truncated"] == sum(len(row) > 12 for row in rows)
    assert facts["batches"] == len(distinct) // 16
    lengths = sorted(map(len, rows))
    tokens = facts["tokens"]
    assert tokens["mean"] == pytest.approx(np.mean(lengths), abs=0.05)
    whole = tokens["whole_99_percent"]
    assert sum(length <= whole for length in lengths) >= 0.99 * len(lengths) > sum(length < whole for length in lengths)
    assert sum(tokens["histogram"].values()) == len(rows)


def test_the_command_that_removes_near_duplicates_writes_a_new_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("unique.tsv", "unique2.tsv", "unique3.tsv"):
        file = corpus_of(tmp_path, ["text", *sentences(20, seed=3)], "corpus.tsv" if name == "unique.tsv" else "unique.tsv")
        options = dedup.parser().parse_args(shlex.split(check(capsys, file, "--vocab-size", 300)["dedup"])[2:])
        assert options.output.name == name
        corpus_of(tmp_path, ["text"], name)


def test_near_duplicates_are_counted_and_the_command_that_removes_them_is_one(tmp_path, capsys):
    lines = [f"{line} in the evening of a day at sea" for line in sentences(60, seed=3)]
    file = corpus_of(tmp_path, [*lines, *(f"{line} again" for line in lines[:30])])
    facts = check(capsys, file, "--vocab-size", 2000)
    assert facts["near_duplicates"]["near"] >= 60 > 0.6 * facts["near_duplicates"]["sample"]
    options = dedup.parser().parse_args(shlex.split(facts["dedup"])[2:])
    assert (options.corpus, options.output.name) == (str(file), "unique.txt")
    assert run(file, "--vocab-size", 2000) == 0
    below = capsys.readouterr().out.partition("new file:\n")[2].partition("\nadvice")[0]
    assert shlex.split(below.replace(" \\\n", "")) == shlex.split(facts["dedup"])
    table = corpus_of(
        tmp_path, ["body\ttitle", *(f"{number}{line}\tx" for number, line in enumerate(sentences(60, seed=3)))], "a.tsv"
    )
    facts = check(capsys, table, "--vocab-size", 300, "--column", "body,title")
    options = dedup.parser().parse_args(shlex.split(facts["dedup"])[2:])
    assert (options.column, options.join, options.output.name) == ("body,title", " ", "unique.tsv")
    mixed = f"{table},{corpus_of(tmp_path, ['body', 'one more line'], 'b.csv')}"  # dedup writes one format
    options = dedup.parser().parse_args(shlex.split(check(capsys, mixed, "--vocab-size", 300, "--column", "body")["dedup"])[2:])
    assert (options.corpus, options.output.name) == (mixed, "unique.txt")


@given(st.lists(st.integers(1, 64), min_size=1))
def test_every_length_is_in_its_range(lengths):
    edges = [4, 16, 64]
    counts = histogram(np.array(lengths), edges)
    assert list(counts.values()) == [sum(low < length <= high for length in lengths) for low, high in ((0, 4), (4, 16), (16, 64))]


def test_lengths_of_a_sample_are_evenly_spaced(tmp_path, monkeypatch):
    monkeypatch.setattr("jax_sentemb.data.quality.SAMPLE", 10)
    corpus = Sentences([corpus_of(tmp_path, ["a " * count for count in range(1, 41)])], tmp_path)
    lengths = token_lengths(corpus, Tokenizer.train(corpus, 50), 30)
    assert lengths.tolist() == [min(count + 2, 30) for count in range(1, 41, 4)]


def test_running_text_is_told_from_shuffled_text(tmp_path, capsys):
    topics = [[f"topic{number} word{number}{place} verb{place}{number}" for place in range(6)] for number in range(200)]
    lines = [f"{line} sentence" for topic in topics for line in topic]
    shuffled = [lines[row] for row in np.random.default_rng(0).permutation(len(lines))]
    told = [check(capsys, corpus_of(tmp_path, text))["order"]["consecutive"] for text in (lines, shuffled, lines[:900])]
    assert told == [True, False, None]
    assert run(corpus_of(tmp_path, [f"{number:03x}" for number in range(1200)])) == 0
    assert "no two sentences of a sample have a long word in common: not checked" in capsys.readouterr().out


def test_lists_sorted_by_topic_pairs_and_variants_are_no_running_text():
    by_topic = [f"topic{number} word{number}{place}" for number in range(40) for place in range(40)]
    pairs = [f"{side} claim{number // 2} number{number // 2}" for number in range(800) for side in ("premise", "answer")]
    variants = [f"woman{number // 4} plays{number // 4} guitar{number // 4} part{number}" for number in range(1600)]
    moving = [f"here{number} here{number + 1} here{number + 2} noun{number} verb{number}" for number in range(1600)]
    found = [is_running_text(lines, several_sentences(lines)) for lines in (by_topic, pairs, variants, moving)]
    assert found == [False, False, False, True]


@pytest.mark.parametrize(
    ("usable", "weights", "recipe"),
    [
        (MIN_SENTENCES, "bert", "adapt"),
        (SMALL - 1, "bert", "adapt"),
        (SMALL, "bert", "simcse_ami"),
        (1_000_000, "bert", "simcse_ami"),
        (50, "", "quickstart"),
        (1_000_000, "", "quickstart"),
    ],
)
def test_the_command_that_is_advised_is_one(usable, weights, recipe):
    advice = advise(CorpusSummary("a b.txt", "text", usable, 48, True, 64, weights, "", 8000))
    assert advice is not None
    assert advice.recipe == recipe
    assert ("give --weights" in advice.confidence) == (not weights and usable < SMALL)
    words = shlex.split(advice.command)
    assert words[:2] == ["jax-sentemb", "train"]
    config, workdir, _ = parse(words[1:])
    assert str(workdir) == f"runs/{recipe}"
    assert (config.data.files, config.encoder.weights, config.data.max_seq_length) == ("a b.txt", weights, 48)
    assert config.data.batch_size <= usable
    steps_per_epoch, limit = usable // config.data.batch_size, config.train.max_steps
    assert (advice.steps == steps_per_epoch * config.train.num_train_epochs) if limit == -1 else (advice.steps == limit)
    assert steps_per_epoch * (advice.num_train_epochs - 1) < advice.steps <= steps_per_epoch * advice.num_train_epochs
    assert any("multi_view" in alternative.text for alternative in advice.alternatives)
    distilled = [parse(shlex.split(other.command)[1:])[0] for other in advice.alternatives if "distill_encoder" in other.command]
    assert [(config.encoder.weights, config.method.teacher) for config in distilled] == [("bert", "all-MiniLM-L6-v2")] * (
        bool(weights) and usable >= MIN_TO_DISTIL
    )
    tables = [shlex.split(other.command) for other in advice.alternatives if " distill " in other.command]
    if weights:
        model = f"runs/{recipe}" if recipe == "simcse_ami" else weights  # with few sentences the table is instead of a training
        assert [words[2:6] for words in tables] == [["--model", model, "--corpus", "a b.txt"]]
        assert distill_parser().parse_args(tables[0][2:]).words == 1024
    else:
        assert not tables
    for named in re.findall(
        r"(?:configs|experiments|docs)/[\w./]+", " ".join([advice.evidence, *(text for text, _ in advice.alternatives)])
    ):
        assert (ROOT / named).exists(), named


def test_a_few_sentences_and_a_bert_are_trained_as_in_the_study():
    """experiments/adapting, mini-2: Mirror-BERT by first and last layer at 1e-4, for 50 steps."""
    advice = advise(CorpusSummary("a.txt", "text", 300, 32, False, 64, "bert", "", 8000))
    config, _, _ = parse(shlex.split(advice.command)[1:])
    assert isinstance(config.method, MirrorBERT)
    assert (config.method.pooling, config.optimizer.learning_rate, config.train.max_steps) == ("first_last", 1e-4, 50)


def test_a_sentence_encoder_learns_from_neighbours_where_the_text_runs_on_else_from_masked_copies():
    """experiments/adapting, MiniLM: Mirror-BERT at 3e-6 and neighbours at 1e-5, both for 50 steps with a warm-up."""
    summary = CorpusSummary("a.txt", "text", 3000, 32, True, 64, "encoder", "", 8000, "mean", layers=6)
    for advice, method, rate, epochs in (
        (advise(summary), Neighbours, 1e-5, 3),  # 1,500 pairs: 23 batches an epoch
        (advise(summary._replace(ordered=False)), MirrorBERT, 3e-6, 2),  # 46 batches
        (advise(summary._replace(ordered=None)), MirrorBERT, 3e-6, 2),
    ):
        config, _, _ = parse(shlex.split(advice.command)[1:])
        assert isinstance(config.method, method)
        assert (config.optimizer.learning_rate, config.optimizer.warmup_ratio, config.train.max_steps) == (rate, 0.1, 50)
        assert (advice.steps, advice.num_train_epochs) == (50, epochs)
        others = [other for other in advice.alternatives if "--config adapt " in other.command]
        assert len(others) == (method is Neighbours)
        (smaller,) = [other.command for other in advice.alternatives if "distill_encoder" in other.command]
        config, _, _ = parse(shlex.split(smaller)[1:])
        assert (config.encoder.weights, config.encoder.layers, config.method.teacher) == ("encoder", "3", "encoder")
        assert (config.train.num_train_epochs, config.data.validation, config.data.max_seq_length) == (6, 300, 64)


def test_texts_of_several_sentences_get_the_recipe_that_was_measured_on_abstracts():
    summary = CorpusSummary("a.txt", "text", 30_000, 128, False, 64, "encoder", "", 8000, "mean", layers=6, has_texts=True)
    advice = advise(summary)
    config, _, _ = parse(shlex.split(advice.command)[1:])
    assert (config.method.teacher, config.data.subset, config.data.max_seq_length) == ("start,start,words:4096", SMALL, 128)
    assert advice.steps == config.train.max_steps
    assert "nDCG@10 x 100 on Cranfield" in advice.evidence
    recipes = [re.search("--config ([a-z_]+)", other.command) for other in advice.alternatives]
    assert [recipe[1] for recipe in recipes if recipe] == ["adapt", "distill_encoder"]
    assert not any("data.subset" in other.command for other in advice.alternatives)  # only the teachers embed the whole text
    (smaller,) = [other.command for other in advice.alternatives if "distill_encoder" in other.command]
    config, _, _ = parse(shlex.split(smaller)[1:])
    assert (config.data.validation, config.data.max_seq_length) == (1000, 128)


def test_words_as_a_second_teacher_are_an_alternative_whose_teachers_do_not_embed_a_large_corpus():
    summary = CorpusSummary("a.txt", "text", 3000, 32, False, 64, "encoder", "", 8000, "mean")
    for usable, subset in ((3000, 0), (10 * SMALL, SMALL)):
        (command,) = [
            other.command
            for other in advise(summary._replace(usable=usable)).alternatives
            if "--config adapt_words" in other.command
        ]
        config, _, _ = parse(shlex.split(command)[1:])
        assert (config.method.teacher, config.method.rank, config.data.subset) == ("start,start,words:4096", 1.0, subset)


def test_text_that_the_model_does_not_know_lowers_the_certainty():
    summary = CorpusSummary("a.txt", "text", 3000, 32, False, 64, "encoder", "", 8000, "mean")
    assert advise(summary._replace(unknown=0.01)).confidence.startswith("fair")
    assert advise(summary._replace(usable=999)).confidence.startswith("low: so few sentences were not measured; measured with")
    unreadable = advise(summary._replace(unknown=0.59))
    assert unreadable.confidence.startswith("low: 59% of the pieces are unknown to this tokenizer")
    assert not unreadable.evidence
    assert not unreadable.alternatives  # each of them names a measurement, on text that its encoder could read


def test_the_numbers_that_are_cited_are_those_of_the_experiments(tmp_path):
    script, table = ROOT / "experiments" / "recommendations.py", ROOT / "jax_sentemb" / "cli" / "recommendations.json"
    subprocess.run([sys.executable, script, f"--output={tmp_path / 'table.json'}"], check=True)
    assert (tmp_path / "table.json").read_text() == table.read_text()


def test_a_length_that_the_papers_do_not_have_is_said(tmp_path):
    alternatives = [
        advise(CorpusSummary("a.txt", "text", 100, length, None, 64, "bert", "", 8000)).alternatives for length in (32, 48)
    ]
    assert ["max_seq_length=32" in " ".join(text for text, _ in some) for some in alternatives] == [False, True]


@pytest.mark.parametrize(
    ("whole", "limit", "is_encoder", "length"),
    [(20, 512, False, 32), (33, 512, False, 48), (54, 256, True, 64), (400, 512, False, 128), (400, 256, True, 256)],
)
def test_the_advised_length_keeps_99_percent_whole_up_to_the_limit(whole, limit, is_encoder, length):
    assert advised_length(whole, limit, is_encoder) == length


def test_the_length_of_an_adapted_encoder_is_in_the_command_and_long_batches_are_divided():
    for length, chunk in ((64, 0), (256, 16)):
        advice = advise(CorpusSummary("a.txt", "text", 3000, length, False, 64, "encoder", "", 8000, "mean"))
        config, _, _ = parse(shlex.split(advice.command)[1:])
        assert (advice.max_seq_length, config.data.max_seq_length, config.train.grad_cache_chunk) == (length, length, chunk)


def test_the_batch_and_the_tokenizer_of_an_adapted_encoder_are_in_the_command():
    summary = CorpusSummary("a.txt", "text", 300, 256, False, 32, "encoder", "other", 8000, "mean")
    advice = advise(summary)
    config, _, _ = parse(shlex.split(advice.command)[1:])
    assert (config.data.batch_size, config.data.tokenizer, config.train.grad_cache_chunk) == (32, "other", 16)
    assert advice.num_train_epochs == 6  # 50 steps of 9
    few = advise(summary._replace(usable=20))
    config, _, _ = parse(shlex.split(few.command)[1:])
    assert (config.data.batch_size, config.train.grad_cache_chunk, few.num_train_epochs) == (20, 0, 50)


def test_one_length_is_checked_and_advised(tmp_path, capsys):
    file = corpus_of(tmp_path, [f"{'word ' * (20 + number % 20)}{number}" for number in range(300)])
    facts = check(capsys, file)
    assert facts["max_seq_length"] == facts["advice"]["max_seq_length"] >= facts["tokens"]["whole_99_percent"] > 32
    assert check(capsys, file, "--max-seq-length", 40)["advice"]["max_seq_length"] == 40


def test_abstracts_are_separate_texts_and_no_running_text(tmp_path, capsys):
    topics = [[f"Topic{number} word{number} has verb{number}{place}." for place in range(6)] for number in range(1200)]
    moving = [f"here{number} here{number + 1} here{number + 2} noun{number} verb{number}" for number in range(1600)]
    assert is_running_text(moving, several_sentences(moving))
    longer = [f"{line}. Here{number} is more." for number, line in enumerate(moving)]
    assert not is_running_text(longer, several_sentences(longer))
    file = corpus_of(tmp_path, [" ".join(topic) for topic in topics])
    assert run(file, "--vocab-size", 300) == 0
    assert "separate texts: 100% of them have several sentences" in capsys.readouterr().out


def test_columns_that_are_read_and_those_that_are_not_are_named(tmp_path, capsys):
    for name, lines in {
        "a.tsv": ["id\ttext\ttitle", "1\tone\ttwo"],
        "a.jsonl": ['{"id": 1, "text": "one", "title": "two"}'],
    }.items():
        file = corpus_of(tmp_path, lines, name)
        assert check(capsys, file)["columns"] == {"read": ["text"], "join": "", "others": ["id", "title"]}
        assert run(file, "--column", "title,text") == 0
        assert "title, text, each a text of its own; not read: id" in capsys.readouterr().out
    assert check(capsys, corpus_of(tmp_path, ["one"]))["columns"] is None


def test_no_line_is_longer_than_100_columns(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = [f"{word} evening of a day at sea &amp; on land" for word in sentences(60, seed=3) for _ in range(2)]
    corpus_of(tmp_path, [f"{number % 2} {line}" for number, line in enumerate(pairs)])
    assert run("corpus.txt", "--vocab-size", 2000) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


@given(st.lists(st.text(" a'\\\"$-=", max_size=60), max_size=8))
def test_a_shell_joins_the_lines_of_a_command(values):
    words = ["jax-sentemb", "train", *(word for value in values for word in (f"--config.data.files={value}", "--model", value))]
    lines = command_lines(shlex.join(words))
    assert shlex.split("\n".join(lines).replace(" \\\n", "")) == words
    assert all(line.endswith(" \\") for line in lines[:-1])


def test_characters_that_a_terminal_does_not_show_stay_in_the_command():
    words = ["jax-sentemb", "--config.data.join=\t", "--column", "it's\\a,b\x1b"]
    line = "".join(command_lines(shlex.join(words))).replace(" \\    ", " ")
    assert line.isprintable()
    shell = shutil.which("bash")
    assert (
        subprocess.run([shell, "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True).stdout.decode().split("\0")[:-1]
        == words
    )


def test_a_language_that_the_default_model_does_not_read_gets_no_command_that_would_run(tmp_path, capsys):
    lines = [line.translate({ord(latin): ord("а") + number for number, latin in enumerate("abcdefghijklmnopqrstuvwxyz")})
             for line in sentences(60, seed=3)]  # fmt: skip
    file = corpus_of(tmp_path, [*lines, *(f"{line} а" for line in lines[:30])])
    assert "--model MODEL" in check(capsys, file, "--vocab-size", 2000)["dedup"]
    assert run(file, "--vocab-size", 2000) == 0
    assert "remove them with an encoder of sentences in this language (MODEL)" in " ".join(capsys.readouterr().out.split())


def test_a_corpus_of_unknown_pieces_has_no_near_duplicates(tmp_path, capsys):
    lines = [f"{chr(0x13000 + number)}{chr(0x13100 + number)} {line}" for number, line in enumerate(sentences(60, seed=3))]
    file = corpus_of(tmp_path, [*lines, *(f"{line} again" for line in lines[:30])])
    assert run(file, "--weights", "mini-distilled") == 0
    out = capsys.readouterr().out
    assert "not checked: too many pieces are unknown" in out
    assert "jax-sentemb dedup" not in out


@pytest.mark.parametrize(("weights", "length", "reads"), [("", 64, 0), ("", 256, 256), ("bert", 128, 0), ("bert", 256, 256)])
def test_an_export_reads_the_length_that_is_advised(weights, length, reads):
    advice = advise(CorpusSummary("a.txt", "text", 30_000, length, False, 64, weights, "", 8000))
    assert advice is not None
    config = parse(shlex.split(advice.command)[1:])[0]
    assert (config.data.max_seq_length, config.eval.max_seq_length) == (length, reads)  # 0 reads 128
    assert MAX_SEQ_LENGTH == READ_LENGTH
    assert weights or (config.optimizer.warmup_steps, config.optimizer.warmup_ratio) == (0, 0.1)


def test_too_little_text_gets_no_advice(tmp_path, capsys):
    assert advise(CorpusSummary("a.txt", "text", MIN_SENTENCES - 1, 48, None, 64, "", "", 8000)) is None
    assert run(corpus_of(tmp_path, ["one", "two"])) == 0
    assert "2 sentences are too few" in capsys.readouterr().out


def test_columns_packed_files_and_standard_input_are_read(tmp_path, capsys, monkeypatch):
    table = tmp_path / "a.csv"
    table.write_text("id,review\n1,good one\n2,<b>bad</b> one\n", encoding="utf-8")
    assert check(capsys, table, "--column", "review")["usable"] == 2
    assert run(table, "--column", "review") == 0
    assert f"(first: {table} row 1)" in " ".join(capsys.readouterr().out.split())
    packed = tmp_path / "a.txt.xz"
    packed.write_bytes(lzma.compress(b"one\ntwo\n"))
    assert check(capsys, packed)["usable"] == 2
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\nthree\n")))
    assert check(capsys, "-")["usable"] == 3


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        ("", 2, "required: files"),
        ("absent.txt", 3, "error: absent.txt: no such file"),
        ("blank.txt", 3, "contains no sentence (2 lines"),
        ("latin.txt", 3, "line 2, byte 6: not UTF-8"),
        ("good.csv --column words", 3, "has no column 'words', only text: name the column of the text with --column"),
        ("semicolons.csv", 3, "separates its columns by semicolons: save it with commas"),
        ("quoted.csv", 3, "separates its columns by semicolons: save it with commas"),
        ("mac.csv", 3, r"carriage returns and no line feed, so it is one line: try tr '\r' '\n'"),
        ("mac.tsv", 3, r"carriage returns and no line feed, so it is one line: try tr '\r' '\n'"),
        ("good.csv --weights absent/", 2, "--weights absent/"),
        ("good.csv --weights good.csv", 2, "--weights good.csv: is a file; give a directory"),
        ("good.csv --weights .", 4, "config.json"),
        ("good.csv --tokenizer .", 4, "has no tokenizer.json"),
        ("good.csv --max-seq-length 513", 2, "exceeds the encoder's 512 positions"),
        ("good.csv --max-seq-length 2", 2, "--max-seq-length 2 must be at least 3"),
        ("good.csv --vocab-size 10", 2, "at least 50"),
        ("good.csv --batch-size none", 2, "not a whole number"),
    ],
)
def test_mistakes_are_one_line_and_an_exit_code(tmp_path, monkeypatch, capsys, arguments, code, named):
    monkeypatch.chdir(tmp_path)
    for name, content in {
        "blank.txt": b"\n \n",
        "latin.txt": b"ok\ncaf\xe9\n",
        "good.csv": b"text\none\ntwo\n",
        "semicolons.csv": b"id;text\n1;one\n",
        "quoted.csv": b'"text";"id"\n"a; b";1\n',
        "mac.csv": b"id,text\r1,one\r2,two\r",
        "mac.tsv": b"id\ttext\r1\tone\r2\ttwo\r",
    }.items():
        (tmp_path / name).write_bytes(content)
    assert run(*arguments.split()) == code
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1
