"""What users get wrong: settings, corpora, bytes, paths, arguments. One line that says what, where and what to do; or it works."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jax_sentemb.command_line import program
from jax_sentemb.main import main

ROOT = Path(__file__).parents[1]
TINY = "--config=simcse.py:tiny"
MAKES = "from jax_sentemb.config import *\nfrom jax_sentemb.methods.simcse import SimCSE\ndef get_config(size=''):\n    "


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
        (MAKES + "return Config(SimCSE(), before=3)", "before=3 is int, not "),
        (MAKES + "return Config(SimCSE(temperature='1e-4'))", "method.temperature='1e-4' is str, not a number"),
        (MAKES + "return Config(SimCSE(head='no'))", "method.head='no' is str, not True or False"),
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
        ("--config=absent.py", "--config absent.py: no such file"),
        ("--config=simcs.py", "did you mean simcse.py?"),
        ("--config=.", "is a directory"),
        ("--config=simcse.py:large", "config size 'large' is unknown"),
        ("TINY corpus.txt", "unexpected argument 'corpus.txt'"),
        ("TINY --wrkdir=x", "'wrkdir'. Did you mean: workdir ?"),
        ("TINY --config=simcse.py", "--config is given twice"),
        ("TINY --workdir=a --workdir b", "--workdir is given twice"),
        ("TINY --config.train.seed=1 --config.train.seed=1", "--config.train.seed is given twice"),
        ("TINY --config.optimizer.learning_rte=1", "did you mean --config.optimizer.learning_rate?"),
        ("TINY --config.optimiser.learning_rate=1", "did you mean --config.optimizer.learning_rate?"),
        ("TINY --config.method.temprature=1", "did you mean --config.method.temperature?"),
        ("TINY --config.data.batch_size.x=1", "--config.data.batch_size.x is unknown; did you mean --config.data.batch_size?"),
        ("TINY --config.zzz=1", "--config.zzz is unknown; --help"),
        ("TINY --config.data=3", "--config.data is a part of the config, not a setting"),
        ("TINY --config.encoder=3", "--config.encoder is a part of the config, not a setting"),
        ("TINY --config.method=SimCSE", "--config.method is a part of the config, not a setting"),
        ("TINY --config.before=x", "--config.before: before is None in this config"),
        ("TINY --config.method.ami.weight=1", "--config.method.ami.weight: method.ami is None in this config"),
        ("TINY --config.data.batch_size=many", "--config.data.batch_size=many"),
        ("TINY --config.data.batch_size=8.5", "--config.data.batch_size=8.5"),
        ("TINY --config.data.batch_size=", "--config.data.batch_size="),
        ("TINY --config.data.batch_size=0", "data.batch_size=0 must be at least 2"),
        ("TINY --config.data.batch_size=-8", "data.batch_size=-8 must be at least 2"),
        ("TINY --config.data.batch_size=12", "data.batch_size=12 is not a multiple of the 8 devices"),
        ("TINY --config.data.subset_seed=-1", "data.subset_seed=-1 must be at least 0"),
        ("TINY --config.train.seed=99999999999999999999", "train.seed=99999999999999999999 must be below 2147483648"),
        ("TINY --config.train.remat=perhaps", "--config.train.remat=perhaps"),
        ("TINY --config.train.precision=float16", "train.precision='float16' is not one of float32, bfloat16"),
        ("TINY --config.train.fused_attention=flash", "train.fused_attention='flash'"),
        ("TINY --config.train.fused_attention=cudnn", "needs train.precision=bfloat16"),
        ("TINY --config.train.fused_attention=cudnn --config.train.precision=bfloat16", "needs an NVIDIA GPU"),
        ("TINY --config.train.fused_attention=xla --config.train.attention_block=8", "set one of them"),
        ("TINY --config.train.grad_cache_chunk=3", "train.grad_cache_chunk=3"),
        ("TINY --config.optimizer.learning_rate=fast", "--config.optimizer.learning_rate=fast"),
        ("TINY --config.optimizer.learning_rate=nan", "optimizer.learning_rate=nan is not a finite number"),
        ("TINY --config.optimizer.learning_rate=-1", "optimizer.learning_rate=-1.0 must be at least 0"),
        ("TINY --config.method.temperature=0", "method.temperature=0.0 must be greater than 0"),
        ("TINY --config.encoder.hidden_size=33", "encoder.hidden_size=33 is not a multiple"),
        ("TINY --config.encoder.weights=no/such/bert/there", "no/such/bert/there"),
        ("TINY --config.data.files=", "data.files is empty"),
        ("TINY --processes=x", "--processes=x"),
    ],
)
def test_a_setting_that_cannot_be_is_named(folder, capsys, arguments, named):
    assert named in refused(capsys, 2, *arguments.replace("TINY", TINY).split())
    assert not list(folder.glob("runs/*/metrics.jsonl"))


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
