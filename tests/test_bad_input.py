"""What users get wrong: settings, corpora, bytes, paths, arguments. One line that says what, where and what to do; or it works."""

import ast
import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jax_sentemb import SentenceEncoder
from jax_sentemb.__main__ import main as shell
from jax_sentemb.cli.program import program
from jax_sentemb.data import text_file
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.tokenizer import SPECIALS, Tokenizer
from jax_sentemb.errors import DataError
from jax_sentemb.main import main
from jax_sentemb.training import trainer

ROOT = Path(__file__).parents[1]
TINY = "--config=simcse.py:tiny"
MAKES = "from jax_sentemb.config import *\nfrom jax_sentemb.methods.simcse import SimCSE\ndef get_config(size=''):\n    "
SETS = "method = SimCSE()\n    method.{}\n    return Config(method)\n"  # the constructor has its types checked in tests


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current directory, with a recipe in it: messages have no long paths."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))
    shutil.copy(ROOT / "configs" / "simcse.py", tmp_path)
    return tmp_path


def refused(capsys, code, *arguments, command=main):
    """The one line, all that stands on stderr, of a command that ends with `code`."""
    assert program(command, ["command", *map(str, arguments)]) == code
    error = capsys.readouterr().err
    assert error.startswith("error: "), error
    assert error.count("\n") == 1, error
    assert len(error) < 200, error
    return error


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("def get_config(:\n", "line 1: invalid syntax"),
        ("def get_config():\nreturn 1\n", "line 2: expected an indented block"),
        ("x = 1\n\0", "null bytes"),
        (b"x = 'caf\xe9'\n", "line 1: (unicode error)"),
        (b"\x80\x02" * 5_000_000, "line 1: (unicode error)"),
        ("# " + "x" * 10_000_000 + "\ny = 1\n", "config.py: defines no get_config()"),
        ("(" * 100_000, "line 1: too many nested parentheses"),
        ("x = 1\nraise RuntimeError('broken')\n", "line 2: RuntimeError: broken"),
        ("def get_config():\n    raise ValueError('two\\nlines' + 'x' * 1000)\n", "line 2: ValueError: two linesxxx"),
        ("def get_config():\n\n    return {}['key']\n", "line 3: KeyError: 'key'"),
        ("def get_config():\n    open('absent')\n", "line 2: FileNotFoundError: "),
        ("import no_such_module\n", "line 1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("import sys\nsys.exit('enough')\n", "line 2: SystemExit: enough"),
        ("x = 1\n", "config.py: defines no get_config()"),
        ("", "config.py: defines no get_config()"),
        ("get_config = 3\n", "'int' object is not callable"),
        ("def get_config(a, b):\n    return 1\n", "missing 2 required positional arguments"),
        ("def get_config():\n    return {}\n", "get_config returned dict, not a jax_sentemb Config"),
        ("def get_config():\n    pass\n", "get_config returned NoneType"),
        (MAKES + "return Config", "get_config returned type"),
        (MAKES + "return Config(SimCSE(), dta=Data())", "line 4: TypeError: Config.__init__() got an unexpected keyword"),
        (MAKES + "return Config(None)", "method=None is NoneType, not Method"),
        (MAKES + "return Config(SimCSE(), data=None)", "data=None is NoneType, not Data"),
        (MAKES + "return Config(SimCSE(), pretrain=3)", "pretrain=3 is int, not "),
        (
            MAKES + "method = SimCSE()\n    method.temperature = '1e-4'\n    return Config(method)",
            "method.temperature='1e-4' is str, not a number",
        ),
        (
            MAKES + "method = SimCSE()\n    method.head = 'no'\n    return Config(method)",
            "method.head='no' is str, not True or False",
        ),
        (MAKES + "return Config(SimCSE(), Data(batch_size='64'))", "data.batch_size='64' is str, not a whole number"),
        (MAKES + "return Config(SimCSE(), Data(batch_size=64.5))", "data.batch_size=64.5 is float, not a whole number"),
        (MAKES + "return Config(SimCSE(), Data(batch_size=True))", "data.batch_size=True is bool, not a whole number"),
        (MAKES + "return Config(SimCSE(), Data(files=['a.txt']))", "data.files=['a.txt'] is list, not text"),
    ],
)
def test_a_config_file_that_makes_no_config_is_named_with_its_line(folder, capsys, text, named):
    (folder / "config.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    error = refused(capsys, 2, "--config=config.py")
    assert named in error
    assert "config.py" in error or "=" in error  # a value names its field


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("", "no --config"),
        ("--config", "no --config"),
        ("--config=", "no --config"),
        ("adapt --workdir=x", "no --config: give --config adapt (jax-sentemb recipes lists them)"),
        ("corpus.txt", "no --config: name a recipe, as --config adapt"),
        ("--config=absent.py", "--config absent.py: no such file"),
        ("--config=mice.yaml", "error: --config mice.yaml: no such file\n"),
        ("--config=simcs.py", "did you mean simcse.py?"),
        ("--config=.", "is a directory"),
        ("--config=simcse.py:large", "size 'large' of the recipe is unknown"),
        ("TINY corpus.txt", "unexpected argument 'corpus.txt'"),
        ("TINY --wrkdir=x", "option --wrkdir is unknown; did you mean --workdir?"),
        ("TINY --lr=1", "option --lr is unknown; did you mean --config.optimizer.learning_rate?"),
        ("TINY --batch-size=8", "option --batch-size is unknown; did you mean --config.data.batch_size?"),
        ("TINY --config.model=x", "--config.model is unknown; did you mean --config.encoder.weights?"),
        ("TINY --config.train.lr=1", "--config.train.lr is unknown; did you mean --config.optimizer.learning_rate?"),
        ("TINY --config=simcse.py", "--config is given twice"),
        ("TINY --workdir=a --workdir b", "--workdir is given twice"),
        ("TINY --config.train.seed=1 --config.train.seed=1", "--config.train.seed is given twice"),
        ("TINY --config.optimizer.learning_rte=1", "did you mean --config.optimizer.learning_rate?"),
        ("TINY --config.optimiser.learning_rate=1", "did you mean --config.optimizer.learning_rate?"),
        ("TINY --config.method.temprature=1", "did you mean --config.method.temperature?"),
        ("TINY --config.data.batch_size.x=1", "--config.data.batch_size.x is unknown; did you mean --config.data.batch_size?"),
        ("TINY --config.zzz=1", "--config.zzz is unknown; jax-sentemb train --config RECIPE --help"),
        ("TINY --config.data.files[0]=1", "--config.data.files[0] is unknown; did you mean --config.data.files?"),
        ("TINY --config.data=3", "--config.data is a section, not a setting"),
        ("TINY --config.encoder=3", "--config.encoder is a section, not a setting"),
        ("TINY --config.method=SimCSE", "--config.method is a section, not a setting"),
        ("TINY --config.pretrain=x", "--config.pretrain is a section, not a setting"),
        ("TINY --config.method.ami=1", "--config.method.ami=1 is not True or None: set one of its settings"),
        ("TINY --config.data.batch_size=many", "--config.data.batch_size=many is not a whole number"),
        ("TINY --config.data.batch_size=8.5", "--config.data.batch_size=8.5 is not a whole number"),
        ("TINY --config.data.batch_size=", "--config.data.batch_size= is not a whole number"),
        ("TINY --config.data.batch_size=0", "data.batch_size=0 must be at least 2"),
        ("TINY --config.data.batch_size=-8", "data.batch_size=-8 must be at least 2"),
        ("TINY --config.data.length_grouping=0", "data.length_grouping=0 must be at least 1"),
        ("TINY --config.data.subset_seed=-1", "data.subset_seed=-1 must be at least 0"),
        ("TINY --config.train.seed=99999999999999999999", "train.seed=99999999999999999999 must be below 2147483648"),
        ("TINY --config.train.remat=perhaps", "--config.train.remat=perhaps is not True or False"),
        ("TINY --config.train.precision=float16", "--config.train.precision=float16 is not one of float32, bfloat16"),
        ("TINY --config.train.fused_attention=flash", "--config.train.fused_attention=flash is not one of"),
        ("TINY --config.train.fused_attention=cudnn", "needs --config.train.precision=bfloat16"),
        ("TINY --config.train.fused_attention=cudnn --config.train.precision=bfloat16", "needs an NVIDIA GPU"),
        ("TINY --config.train.fused_attention=xla --config.train.attention_block=8", "set only one of them"),
        ("TINY --config.train.grad_cache_chunk=3", "train.grad_cache_chunk=3"),
        ("TINY --config.optimizer.learning_rate=fast", "--config.optimizer.learning_rate=fast is not a number"),
        ("TINY --config.train.seed 1.5", "--config.train.seed=1.5 is not a whole number"),
        ("TINY --config.variants=A", "--config.variants is a section, not a setting"),
        ("TINY --config.train.remat --config.train.seed=x", "--config.train.seed=x is not a whole number"),
        ("TINY --config.train.remat=1 --config.train.sed=3", "--config.train.sed is unknown; did you mean --config.train.seed?"),
        ("TINY --config.train.seed=0x10 --config.train.max_steps=q", "--config.train.max_steps=q is not a whole number"),
        ("TINY --config.train.max_steps", "--config.train.max_steps has no value"),
        ("TINY --config.optimizer.learning_rate=nan", "optimizer.learning_rate=nan is not a finite number"),
        ("TINY --config.optimizer.learning_rate=-1", "optimizer.learning_rate=-1.0 must be at least 0"),
        ("TINY --config.method.temperature=0", "method.temperature=0.0 must be above 0"),
        ("TINY --config.encoder.hidden_size=33", "encoder.hidden_size=33 is not a multiple"),
        ("TINY --config.encoder.weights=no/such/bert/there", "no/such/bert/there"),
        ("TINY --config.data.files=", "data.files is empty"),
        ("TINY --processes=x", "argument --processes"),
    ],
)
def test_a_setting_that_cannot_be_is_named(folder, capsys, arguments, named):
    assert named in refused(capsys, 2, *arguments.replace("TINY", TINY).split())
    assert not list(folder.glob("runs/*/metrics.jsonl"))


def test_a_batch_that_the_devices_cannot_share_is_named(eight_devices, capsys):
    error = refused(capsys, 2, TINY, "--config.data.batch_size=12")
    assert "data.batch_size=12 is not a multiple of 8 devices: give 8 or 16" in error


@pytest.mark.parametrize(
    ("arguments", "code", "lines"),
    [
        (["--help"], 0, 0),
        ([TINY, "--help"], 0, 0),
        ([TINY, "--config.data.batch_size=0"], 2, 1),
        (["--config=broken.py"], 2, 1),
    ],
)
def test_a_mistake_is_told_at_once(folder, arguments, code, lines):
    (folder / "broken.py").write_text("def get_config(:\n", encoding="utf-8")
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "jax_sentemb.main", *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (code, lines), done.stderr
    assert time.monotonic() - begin < 10  # under 3 s on an idle machine


GOOD = b"".join(b"good line %d\n" % number for number in range(20))


@pytest.mark.parametrize(
    ("files", "content", "named"),
    [
        ("absent.txt", None, "data.files=absent.txt: no such file"),
        (".", None, "data.files=. is a directory"),
        ("pipe.txt", os.mkfifo, "data.files=pipe.txt is not a regular file"),
        ("broken.txt", "absent", "data.files=broken.txt: no such file"),
        ("memory.txt", "/proc/self/mem", "memory.txt cannot be read: Input/output error"),
        ("corpus.pdf", GOOD, "unknown file format"),
        ("empty.txt", b"", "contains no sentence (0 lines"),
        ("blank.txt", b"\n \n\t\r\n\0\n", "contains no sentence (4 lines, all blank)"),
        (
            "one.txt",
            b"one sentence\n",
            "1 usable example (1 lines, 0 blank, 0 equal to an earlier one after the cut), fewer than --config.data.batch_size=8",
        ),
        ("few.txt", b"one\n\ntwo\ntwo\n", "2 usable examples (4 lines, 1 blank, 1 equal to an earlier one after the cut)"),
        ("same.txt", b"the same\n" * 30, "1 usable example (30 lines, 0 blank, 29 equal to an earlier one after the cut)"),
        ("good.txt, absent.txt, good.txt", GOOD, "data.files=absent.txt: no such file"),
        ("*.none", None, "data.files=*.none: no file matches"),
        ("latin.txt", GOOD + b"caf\xe9\n", "latin.txt line 21, byte 253: not UTF-8"),
        ("gzip.txt", gzip.compress(GOOD, mtime=0), "gzip.txt line 1, byte 1: not UTF-8"),
        ("short.txt.gz", gzip.compress(GOOD, mtime=0)[:-9], "short.txt.gz cannot be read"),
        ("open.csv", b'text\none\n"two\nthree\n', "open.csv cannot be read as a table from line 3 on"),
    ],
)
def test_a_corpus_that_cannot_be_used_is_told_before_anything_compiles(folder, capsys, monkeypatch, files, content, named):
    name = folder / files.partition(",")[0]
    if isinstance(content, bytes):
        name.write_bytes(content)
    elif isinstance(content, str):
        name.symlink_to(content)
    elif content is not None:
        content(name)
    monkeypatch.setattr(trainer, "create_state", None)
    assert named in refused(capsys, 3, TINY, f"--config.data.files={files}", "--workdir=run")


# Invalid bytes, half a surrogate pair, every kind of line end, marks, what spells special tokens, and beginnings of tables.
PARTS = [
    *(b"\n", b"\r", b"\r\n", b" ", b"\t", b"\0", b"\x1c", b"a", b"b c", b"[SEP]", b"[CLS] [MASK] [PAD] <s>", b"\xff", b"\xc3"),
    *(b"\xed\xa0\x80", b"\xef\xbb\xbf", b'"', b",", b'{"text": "', b'"}\n', b"text\n", b"\\ud800"),
    *(
        text.encode()
        for text in ("\u00e9", "\u2028", "\u0085", "\x0b\x0c", "e\u0301", "\u202e", "\U0001f469\u200d\U0001f467", "\ue000")
    ),
    *(text.encode() for text in ("\ufffe", "\U0010ffff", "\u6f22")),
]
BYTES = st.binary(max_size=60) | st.lists(st.sampled_from(PARTS), max_size=40).map(b"".join)
KIND = st.sampled_from(["any.txt"] * 6 + ["any.txt.gz", "any.csv", "any.tsv", "any.jsonl"])


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([part.decode("utf-8", "replace") for part in PARTS], 200)


def lines_in_plain_python(content):
    """The sentences of a valid UTF-8 file by the rules, written another way."""
    lines = content.removeprefix(b"\xef\xbb\xbf").decode().split("\n")
    return [line.removesuffix("\r") for line in lines if any(sign > " " and not sign.isspace() for sign in line)]


def read_as_the_rules_say_or_refuse(folder, tokenizer, name, content):
    """A corpus of any bytes is either its lines, whose ids have no special token inside, or one line that names file and place."""
    packed = name.endswith(".gz")
    (folder / name).write_bytes(gzip.compress(content, mtime=0) if packed else content)
    block, text_file.BLOCK = text_file.BLOCK, 5  # lines and characters across block ends
    sentences, refusal = [], ""
    try:
        corpus = open_corpus(str(folder / name))
        sentences = list(corpus)
        assert corpus.report["lines"] - corpus.report["blank"] == len(sentences)
    except DataError as error:
        refusal = str(error)
    finally:
        text_file.BLOCK = block
    assert bool(sentences) != bool(refusal)
    assert "\n" not in refusal
    if "carriage returns" in refusal:
        assert b"\n" not in content
        return
    if "UTF-16" in refusal:
        assert 8 < len(content) < 8 * sum(byte < 9 for byte in content)
        return
    if ".txt" in name:
        try:
            assert sentences == lines_in_plain_python(content)
        except UnicodeDecodeError:
            with pytest.raises(UnicodeDecodeError) as caught:
                content.decode()
            at = caught.value.start
            assert f"line {1 + content[:at].count(10)}, byte {at}: not UTF-8" in refusal
    if refusal and not packed:  # of a packed file the unpacked one in the cache is named
        assert name in refusal
    special = {getattr(tokenizer, f"{role}_id") for role in SPECIALS} - {tokenizer.unk_id}
    for ids in tokenizer.encode(sentences, 32)[0]:
        assert (ids[0], ids[-1]) == (tokenizer.cls_id, tokenizer.sep_id)
        assert not special & set(ids[1:-1].tolist())


@settings(max_examples=500, deadline=None)
@given(name=KIND, content=BYTES)
@example(name="any.csv", content=b'"two\nlines"\n')  # a column's name
def test_any_bytes_are_read_or_refused_with_the_place(tmp_path_factory, tokenizer, name, content):
    read_as_the_rules_say_or_refuse(tmp_path_factory.getbasetemp(), tokenizer, name, content)


@pytest.mark.nightly
@settings(max_examples=10_000, deadline=None)
@given(name=KIND, content=BYTES)
def test_very_many_bytes_are_read_or_refused_with_the_place(tmp_path_factory, tokenizer, name, content):
    read_as_the_rules_say_or_refuse(tmp_path_factory.getbasetemp(), tokenizer, name, content)


ODD = [
    *(
        "\r",
        "a\rb",
        "\0",
        "".join(map(chr, range(1, 32))).replace("\n", ""),
        "a\u2028b\u2029c\u0085d",
        "a\x0bb\x0cc\x1cd",
        "a\ufeffb",
    ),
    *(
        "\u202eabc\u202c\u2066",
        "e" + "\u0301" * 5000,
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",
        "\ue000\U000f0000",
        "\ufffe\uffff",
    ),
    *(
        "\U0010ffff",
        "[SEP] [CLS] [MASK] [PAD] <s> </s>",
        "\u6f22\u5b57" * 50,
        "x" * 70_000,
        "\ufffd",
        "\u200b",
        "\u0130\u0131",
        " a ",
    ),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The export of a run that trained nothing."""
    folder = tmp_path_factory.mktemp("model")
    config = f"--config={ROOT}/configs/simcse.py:tiny"
    assert program(main, ["main", config, "--config.train.max_steps=0", "--config.eval.data=", f"--workdir={folder}/run"]) == 0
    return folder / "run" / "export"


@pytest.fixture(scope="module")
def encoder(model):
    return SentenceEncoder.load(model)


def test_vectors_of_odd_text_are_finite_and_those_of_its_file(folder, model, encoder):
    vectors = encoder.encode(ODD)
    assert np.isfinite(vectors).all()
    (folder / "odd.txt").write_bytes("".join(f"{text}\n" for text in ODD).encode())
    assert program(shell, ["shell", "encode", f"--model={model}", "--input=odd.txt", "--output=odd.npy"]) == 0
    visible = np.array([max(text) > " " for text in ODD])  # a text without visible characters has a row of zeros in the file
    np.testing.assert_allclose(np.load("odd.npy"), np.where(visible[:, None], vectors, 0), atol=1e-6)


def test_a_million_sentences_keep_their_order(encoder):
    few = ["word " * number for number in range(7)]
    vectors = encoder.encode((few[number * number % 7] for number in range(1_000_000)), truncate_dim=2)
    expected = encoder.encode(few, truncate_dim=2)
    assert len(np.unique(expected.round(5), axis=0)) == 7
    np.testing.assert_allclose(vectors, expected[np.arange(1_000_000) ** 2 % 7], atol=1e-6)


LONG = """
import json, pathlib, time
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import tokenize
tokenizer = Tokenizer.train(["short words x a b"], 100)
begin = time.process_time()
report = tokenize(open_corpus("long.txt"), tokenizer, 32).report
seconds = time.process_time() - begin
status = pathlib.Path("/proc/self/status")  # not getrusage: its peak counts that of the process that started this one
lines = status.read_text().splitlines() if status.exists() else []
print(json.dumps([report, seconds, *[int(line.split()[1]) for line in lines if line.startswith("VmHWM")]]))
"""


def read_in_a_process_of_its_own(folder):
    """The report on long.txt, the seconds of a processor that it took, and the largest memory in bytes (Linux; else 0)."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", LONG], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    report, seconds, *kilobytes = json.loads(done.stdout)
    memory = sum(kilobytes) * 1024
    print(f"{seconds:.2f} s, {memory / 1e6:.0f} MB")
    return report, seconds, memory


@pytest.mark.parametrize(
    ("content", "counts"),
    [
        (b"short one\n" + b"word " * 2_000_000 + b"\nanother\n", {"usable": 3, "truncated": 1}),
        (b"short one\n" + b"x" * 10_000_000, {"usable": 2, "truncated": 0}),  # a word that long is one unknown piece
        (b"short one\n" + b" " * 10_000_000 + b"\n", {"usable": 1, "blank": 1}),
        (b"a\nb\n" * 500_000, {"usable": 2, "duplicates": 999_998, "truncated": 0}),
    ],
    ids=["words", "one word", "spaces", "letters"],
)
def test_very_long_and_very_many_lines_cost_little(folder, content, counts):
    (folder / "long.txt").write_bytes(content)
    report, seconds, memory = read_in_a_process_of_its_own(folder)
    assert {name: report[name] for name in counts} == counts
    assert seconds < (10 if len(content) < 10_000_000 else 1)  # a system call for each of a million lines: 7 s on a slow machine
    assert memory < 2e8


@pytest.mark.nightly
def test_a_line_of_a_gigabyte_costs_little(folder):
    with (folder / "long.txt").open("wb") as file:
        for _ in range(1000):
            file.write(b"words " * 166_667)
    report, seconds, memory = read_in_a_process_of_its_own(folder)
    assert (report["usable"], report["truncated"]) == (1, 1)
    assert seconds < 100
    assert memory < 2e8


@pytest.mark.parametrize(
    "name",
    [
        "\u00e9\u6f22\u5b57 \U0001f600",
        "a #%&=+@mean;'\"",
        "-dash",
        "x" * 255,
        "~/run",
        "./~",
        "~nobody-of-this-name",
        "folder/",
        "link/run",
    ],
)
def test_paths_of_any_kind_work(folder, capsys, monkeypatch, name):
    monkeypatch.setenv("HOME", str(folder / "home"))
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    corpus = f"{name.rstrip('/')[:251]}.txt"
    place = folder / "home" / corpus[2:] if name == "~/run" else folder / corpus
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(GOOD)
    train = [
        *("main", TINY, f"--workdir={name}", f"--config.data.files={corpus}", "--config.train.max_steps=1"),
        *("--config.eval.data=", "--config.encoder.num_hidden_layers=1", "--config.eval.report_sentences=0"),
    ]
    assert program(main, train) == 0
    capsys.readouterr()
    assert program(main, train) == 0
    assert "continuing at step 1 of 1" in capsys.readouterr().err
    beside = f"{Path(name).parent}/{{}}{Path(name).name[1:]}" if name != "./~" else "./{}"
    for arguments in (
        ["encode", f"--model={name}", f"--input={corpus}", f"--output={beside.format('v')}"],
        ["export", f"--workdir={name}", f"--output={beside.format('e')}"],
    ):
        assert program(shell, ["shell", *arguments]) == 0
    parent = place.parent
    made = {path.name[0] for path in parent.iterdir()}
    assert {"v", "e"} <= made
    assert (parent / Path(beside.format("v")).name / "vectors.json").is_file()
    assert (parent / Path(beside.format("e")).name / "config.json").is_file()


LATIN = os.fsdecode(b"caf\xe9")  # a name as file systems of old have it


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--workdir=LATIN"),
        ("train", "--workdir=LATIN/run"),
        ("train", "--workdir=link"),  # to such a folder
        ("train", "--config.data.files=LATIN.txt"),
        ("train", "--config.data.files=good.txt,caf*.txt"),
        ("train", "--config.data.files=LATIN.txt.gz"),
        ("train", "--config.encoder.weights=LATIN"),
        ("train", "--config.data.tokenizer=LATIN"),
        ("train", "--config.eval.data=LATIN"),
        ("encode", "--model=MODEL", "--input=LATIN.txt", "--output=vectors"),
        ("encode", "--model=MODEL", "--input=good.txt", "--output=LATIN"),
        ("encode", "--model=MODEL", "--input=good.txt", "--output=LATIN.npy"),
        ("encode", "--model=LATIN", "--input=good.txt", "--output=vectors"),
        ("mine", "--corpus=LATIN"),
        ("export", "--workdir=MODEL", "--output=LATIN"),
        ("evaluate", "--model=MODEL", "--data=good.txt", "--output=LATIN"),
    ],
    ids=" ".join,
)
def test_a_name_that_is_not_utf8_is_refused_at_the_start(folder, model, capsys, arguments):
    for name in (f"{LATIN}.txt", "good.txt", f"{LATIN}.txt.gz"):
        Path(name).write_bytes(GOOD)
    Path(LATIN).mkdir()
    Path("link").symlink_to(LATIN)
    before = sorted(Path().rglob("*"))
    command, *options = (argument.replace("LATIN", LATIN).replace("MODEL", str(model)) for argument in arguments)
    if command == "train":
        options = [TINY, *options, *([] if "workdir" in options[0] else ["--workdir=run"])]
    assert program(shell, ["shell", command, *options]) == 2
    error = capsys.readouterr().err
    assert "\\udce9" in error or "link: the name" in error
    assert "is not UTF-8" in error
    assert error.count("\n") == 1
    assert [path for path in sorted(Path().rglob("*")) if path.parts[0] != "run"] == before  # a generated corpus


def test_a_folder_in_which_a_name_is_not_utf8_is_refused_for_what_is_written_there(folder, capsys, monkeypatch):
    Path(LATIN).mkdir()
    monkeypatch.chdir(LATIN)
    assert program(main, ["main", TINY, "--workdir=run"]) == 2
    assert "is not UTF-8" in capsys.readouterr().err
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    ("workdir", "named"),
    [
        ("[a]", "[a]: the path of a checkpoint must not contain ["),
        ("a*b/c", "must not contain *"),
        ("what?", "must not contain ?"),
        ("\\\\server\\share", "must not contain \\"),
        ("x" * 256, "File name too long"),
        ("simcse.py", "--workdir simcse.py is a file: give a directory"),
        ("model", "--workdir model contains config.json and no run: give a new directory"),
        ("simcse.py/run", "--workdir simcse.py/run cannot be created (Not a directory): give another"),
        ("/proc/run", "--workdir /proc/run cannot be created ("),
    ],
)
def test_a_work_directory_that_cannot_be_is_told_at_once(folder, capsys, workdir, named):
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}", encoding="utf-8")
    before = sorted(folder.rglob("*"))
    assert program(main, ["main", TINY, f"--workdir={workdir}"]) == 2
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


@pytest.fixture
def read_only(folder, model, mount_tmpfs):
    """A file system that cannot be written, with a model and an empty folder."""
    disk = mount_tmpfs(folder / "disk")
    shutil.copytree(model, disk / "model")
    (disk / "run").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    return disk


def test_from_a_read_only_folder_is_read_and_in_it_nothing_is_trained(read_only, capsys):
    for name in ("run", "new"):
        assert "Read-only file system" in refused(capsys, 2, TINY, f"--workdir=disk/{name}")
    Path("good.txt").write_bytes(GOOD)
    encode = ["encode", "--model=disk/model", "--input=good.txt"]
    assert "Read-only file system" in refused(capsys, 2, *encode, "--output=disk/vectors", command=shell)
    assert program(shell, ["shell", *encode, "--output=vectors"]) == 0


@pytest.mark.parametrize(
    "environment",
    [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}, {"LC_ALL": "tr_TR.UTF-8"}],
    ids=lambda found: " ".join(found),
)
def test_the_locale_changes_nothing(folder, environment):
    (folder / "\u00e9.txt").write_text(
        "".join(f"{text}\n" for text in ("I\u0130\u0131i", "\u00e9\u6f22", "TITLE")), encoding="utf-8"
    )

    def check(**environment):
        code = "program(lambda argv: print('\\u00b1') or main(argv), sys.argv)"  # of a table with spreads, and what a corpus has
        code = f"import sys; from jax_sentemb.__main__ import main; from jax_sentemb.cli.program import program; sys.exit({code})"
        command = [sys.executable, "-c", code, "check", "--json", "\u00e9.txt".encode()]
        base = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHONUTF8"))}
        done = subprocess.run(command, cwd=folder, env={**base, "PYTHONPATH": str(ROOT), **environment}, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    out = check(**environment)
    assert out.startswith("\u00b1".encode())
    assert "\u00e9.txt".encode() in out
    assert out == check(LC_ALL="C.UTF-8", JAX_SENTEMB_CACHE=str(folder / "other"))


# Calls of that name that open no text.
OWN = ("os.open", "self.open", "archive.open", "_job.sentences.open", "write_text", "files.write_text")


def test_text_files_are_opened_as_utf8_whatever_the_locale():
    for file in (ROOT / "jax_sentemb").rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call):
                continue
            name = ast.unparse(call.func).split(".")[-1]
            mode = next((part.value for part in call.args if isinstance(part, ast.Constant)), "")
            if name in ("read_text", "write_text", "open") and ast.unparse(call.func) not in OWN:
                named = any(word.arg == "encoding" for word in call.keywords) or mode == "utf-8"
                assert named or (name == "open" and "b" in str(mode)), f"{file}:{call.lineno}: {ast.unparse(call)}"
