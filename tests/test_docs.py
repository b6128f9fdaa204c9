"""Every command and every piece of Python in README.md and docs/ is run; test_docs_names.py checks what else they name.

Blocks are marked: ```sh has commands, ```console commands after "$ " with output below, ```python code, ```yaml the file mine.yaml,
```text neither.
SUBSTITUTES says what stands in for data that only a user has, stand_ins.py what stands in for Chroma, Ray and mteb. Commands run in
one process and one folder. Training itself is done once for each kind of encoder, in the fixture; what a further `train` command
names is read and checked as far as before the first compilation (test_contract.py trains every config), and its work directory is a
copy. Commands for other machines and accelerators are parsed.
"""

import importlib
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import PAGES, ROOT, blocks
from stand_ins import installed

import jax_sentemb.training.run
from jax_sentemb.__main__ import main
from jax_sentemb.cli import compare, plan
from jax_sentemb.cli.program import program
from jax_sentemb.cli.train import parse
from jax_sentemb.config import Words
from jax_sentemb.data import synthetic
from jax_sentemb.evaluation.catalog import SETS
from jax_sentemb.planning.targets import parse_target
from jax_sentemb.training.setup import prepare

SUBSTITUTES = [
    (r"(--config[= ])(configs/\w+\.py)(?!:)", rf"\1{ROOT}/\2:tiny"),
    (r"(--config[= ])(configs/\w+\.py:tiny)", rf"\1{ROOT}/\2"),
    (r"(--config[= ])([a-z_]+)(?= |$)", r"\1\2:tiny"),
    (r"(check .*--weights \S+)", r"\1 --max-seq-length 24"),
    (r"recipe: (\w+)", r"recipe: \1:tiny"),
    (r'recipe="(\w+)"', r'recipe="\1:tiny"'),
    (r"layers=(3|1,3,5|\(1, 3, 5\))(?!\w)", "layers=1"),
    (r'(teacher="all-MiniLM-L6-v2", )', r'\1recipe="distill_encoder:tiny", '),
    (r"matryoshka=32,64,128", "matryoshka=8,16,32"),
    (r"max_seq_length=\d+", "max_seq_length=24"),
    (r"path/to/bert|experiments/pretraining/mini-2", "bert"),
    (r"models/other", "other=runs/mine/export"),
    (r"path/to/stronger", "bert@mean"),
    (r"path/to/encoder|all-MiniLM-L6-v2|mini-distilled", "runs/mine/export"),
    (r"(jax-sentemb distill .*)", r"\1 --width 8"),
    (r"tests/data/", f"{ROOT}/tests/data/"),
    (r"(--config\.eval\.data=)path/to/SentEval/data", r"\1grammar"),
    (r"path/to/SentEval/data", "senteval"),
    (r"--tasks [A-Z]\S+", "--tasks CR"),
    (r"(evaluate .*--tasks .*)", r"\1 --classifier logreg --resamples 20"),
    (r"--config\.data\.subset=\d+", "--config.data.subset=100"),
    (r"debian_packages\.tsv", "packages.tsv"),
    (r"\bcranfield\b", "my_queries"),
    (r"20_?000", "400"),
    (r"runs/cons_sent/export", "runs/average/export"),  # in Python: its LSTM is tests/test_word_model.py's
]
ELSEWHERE = ("--distributed", "--coordinator")


def commands(kind, text):
    """(command, the error that it is shown to end with) of a block."""
    text = text.replace("\\\n", " ")
    if kind == "sh":
        return [(line, "") for line in text.splitlines() if line.strip()]
    shown = re.split(r"^\$ ", text, flags=re.M)[1:]
    return [(line, output if output.startswith("error: ") else "") for line, _, output in (part.partition("\n") for part in shown)]


def substituted(text):
    for pattern, substitute in SUBSTITUTES:
        text = re.sub(pattern, substitute, text)
    return text


def write_senteval(root):
    """CR and STS13, whose scores hang on shared words."""
    random = np.random.default_rng(0)
    words = [
        "the",
        "baker",
        "cook",
        "chef",
        "judge",
        "thief",
        "soup",
        "bread",
        "boat",
    ]  # of the corpus: a word model knows no others

    def sentence(*extra):
        return " ".join([*random.choice(words, 5), *extra])

    def write(path, lines):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    for name, word in (("pos", "good"), ("neg", "bad")):
        write(root / f"downstream/CR/custrev.{name}", [sentence(word) for _ in range(30)])
    for subset in SETS["STS13"].spec.files:
        made = [(sentence(), sentence()) for _ in range(12)]
        write(root / f"downstream/STS/STS13-en-test/STS.input.{subset}.txt", ["\t".join(pair) for pair in made])
        write(root / f"downstream/STS/STS13-en-test/STS.gs.{subset}.txt", [f"{random.uniform(0, 5):.3f}" for _ in made])


def write_beir(root, lines):
    """Queries whose relevant document is the sentence itself."""
    (root / "qrels").mkdir(parents=True)
    for name in ("corpus", "queries"):
        records = [json.dumps({"_id": f"{name[0]}{row}", "title": "", "text": line}) for row, line in enumerate(lines)]
        (root / f"{name}.jsonl").write_text("\n".join(records) + "\n", encoding="utf-8")
    judged = [f"q{row}\tc{row}\t1\n" for row in range(len(lines))]
    (root / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged), encoding="utf-8")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A folder with what a user has, in which two encoders are trained; `train` commands copy them from now on."""
    folder = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("JAX_SENTEMB_CACHE", str(folder / "cache"))
        lines = synthetic.sentences(400, seed=0)
        for name in ("corpus.txt", "ordered.txt", "german.txt", "domain.txt"):
            Path(name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        records = [{"_id": f"d{row}", "title": line, "text": line if row % 9 else ""} for row, line in enumerate(lines[:40])]
        for name in ("corpus.jsonl", "queries.jsonl"):
            Path(name).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        pairs = zip(*(side[:100] for side in synthetic.graded_pairs(100, 0)), strict=True)
        rows = [f"{first}\t{second}\t{score}\n" for first, second, score in pairs]
        Path("pairs.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(rows), encoding="utf-8")
        graded = [f"{line.rstrip()}\ttopic {row % 3}\n" for row, line in enumerate(rows)]
        Path("UKP_ASPECT.tsv").write_text("sentence1\tsentence2\tlabel\ttopic\n" + "".join(graded), encoding="utf-8")
        write_senteval(folder / "senteval")
        write_beir(folder / "my_queries", lines[:20])
        labels = [f'"{line}",team {row % 2}\n' for row, line in enumerate(lines[:40])]
        Path("tickets.csv").write_text("text,team\n" + "".join(labels), encoding="utf-8")
        german = [f"section {row % 3}\t{line}\n" for row, line in enumerate(lines[:40])]
        Path("german_test.tsv").write_text("section\ttext\n" + "".join(german), encoding="utf-8")
        packages = [f"section {row % 3}\t{line}\n" for row, line in enumerate(lines[:40])]
        Path("packages.tsv").write_text("section\ttext\n" + "".join(packages), encoding="utf-8")
        random = np.random.default_rng(0)
        words = sorted({word for line in lines for word in re.findall(r"\w+", line.lower())})
        vectors = [f"{word} {' '.join(f'{value:.3f}' for value in random.normal(size=12))}\n" for word in words]
        Path("glove.6B.300d.txt").write_text("".join(vectors), encoding="utf-8")
        for name in ("micse", "multi_view", "word_average"):
            assert run_line(f"jax-sentemb train --config configs/{name}.py --workdir made/{name}") == 0
        shutil.copytree("made/micse/export", "bert")
        patch.setattr(jax_sentemb.training.run, "run", rehearse)
        for name, kind in (("mine", "micse"), ("multi_view", "multi_view"), ("average", "word_average")):
            shutil.copytree(f"made/{kind}", f"runs/{name}")
        yield folder


def rehearse(config, workdir, begin=lambda: None, **options):
    """As run.run up to the first compilation; the work directory is then that of a trained encoder of its kind."""
    begin()
    prepare(config, workdir / "rehearsed")
    shutil.copytree("made/multi_view" if isinstance(config.encoder, Words) else "made/micse", workdir, dirs_exist_ok=True)
    return 0


def run_line(line):
    """The exit code of a command of the documentation, None for one that is only looked at."""
    words = shlex.split(substituted(line), comments=True)
    if words[0] in ("gcloud", "srun"):
        inner = re.search(r"python -m jax_sentemb\.main [^']*", line)
        assert inner, line
        words = shlex.split(substituted(inner[0]))
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert all(re.search(rf"^{target}:", makefile, re.M) for target in words[1:]), line
        return None
    if words[:2] == ["pip", "install"]:
        assert re.fullmatch(r"\.(\[\w+\])?", words[2]), line
        return None
    if words[0] in ("uvicorn", "curl"):
        return None  # a server: test_serving.py
    if words[:2] == ["python", "-c"]:
        with installed(words[2]):
            exec(compile(words[2], line, "exec"), {})
        return None
    if words[:2] == ["jax-sentemb", "plan"]:  # its compilers for accelerators take minutes: test_plan.py
        options, rest = plan.parser().parse_known_args(words[2:])
        parse_target(options.target)
        parse(["jax-sentemb plan", *rest, "--config.data.files=corpus.txt"])
        return None
    if words[:2] == ["jax-sentemb", "compare"]:  # trains for minutes: test_compare.py
        _, rest = compare.parser().parse_known_args(words[2:])
        assert rest == []
        return None
    if words[:2] == ["python", "-m"]:
        name, words = words[2], words[2:]
        command = importlib.import_module(name).main
    else:
        assert words[0] == "jax-sentemb", f"{line}: neither one of our commands nor one that this test knows"
        command = main
    if any(word.partition("=")[0] in ELSEWHERE for word in words):
        parse(words)
        return None
    return program(command, words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_the_page_says_works(page, workspace, capfd):
    names: dict[str, Any] = {}
    for kind, text in blocks(page, ("sh", "console", "python", "yaml")):
        if kind == "yaml":
            Path("mine.yaml").write_text(substituted(text), encoding="utf-8")
            continue
        if kind == "python":
            if re.search(r"^import psycopg|^from (bertopic|keybert|setfit) ", text, re.M):
                continue  # a server is needed: test_deploying.py; imports of half a minute: test_topics.py
            for package in ("sentence_transformers", "langchain_core", "datasets", "fastapi"):
                if f"from {package}" in text:
                    pytest.importorskip(package)
            with installed(text):
                exec(compile(substituted(text), str(page), "exec"), names)
            continue
        for line, error in commands(kind, text):
            capfd.readouterr()
            code = run_line(line)
            shown = capfd.readouterr().err
            if error:
                assert code not in (0, None), line
                assert error in shown
            else:
                assert code in (0, None), f"{line}\n{shown}"


def test_a_command_that_fails_is_noticed(workspace):
    assert run_line("jax-sentemb train --config configs/simcse.py --config.data.files=absent.txt") == 3
    assert run_line("jax-sentemb check corpus.txt --colunm x") == 2
    with pytest.raises(AssertionError, match="neither"):
        run_line("rm corpus.txt")


SITE_PACKAGES = ("myst_nb", "sphinx_external_toc", "sphinx_book_theme", "sphinx_copybutton")


def build_site(source, folder, *options):
    """Run what `make docs` runs."""
    command = [sys.executable, "-m", "sphinx", "-q", "-E", "-W", *options, source, folder]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    for package in SITE_PACKAGES:
        pytest.importorskip(package)
    result = build_site(ROOT, tmp_path, "-c", ROOT / "docs")
    assert result.returncode == 0, result.stderr
    assert "docs/index.html" in (tmp_path / "index.html").read_text(encoding="utf-8")
    api = (tmp_path / "docs/python.html").read_text(encoding="utf-8")
    for name in jax_sentemb.__all__:
        assert f'id="jax_sentemb.{name}"' in api or name == "__version__"
    assert "Parameters" in api  # Google sections
    assert "method.ami.weight" in (tmp_path / "docs/settings.html").read_text(encoding="utf-8")
    assert list(tmp_path.glob("_downloads/*/micse.py"))  # files that pages link to


FAULTS = {
    "a link to a page": ("docs/index.md", "[x](absent.md)", "absent.md"),
    "a link to a file": ("docs/index.md", "[x](../configs/absent.py)", "absent.py"),
    "an anchor": ("docs/index.md", "[x](api.md#absent)", "absent"),
    "an anchor of the same page": ("docs/index.md", "[x](#absent)", "absent"),
    "a picture": ("docs/index.md", "![x](absent.png)", "absent.png"),
    "a page of the navigation": ("docs/toc.yml", "  - file: docs/absent", "docs/absent"),
    "the navigation of a page": ("docs/unlisted.md", "# Unlisted", "unlisted.md"),
    "a name of the package": (
        "docs/api.md",
        "```{eval-rst}\n.. autofunction:: jax_sentemb.errors.absent\n```",
        "'absent' from module",
    ),
}


@pytest.mark.slow
def test_the_site_is_not_built_with_a_fault(tmp_path):
    """Every fault is reported, and the exit status is not 0."""
    for package in SITE_PACKAGES:
        pytest.importorskip(package)
    shutil.copytree(ROOT / "docs/static", tmp_path / "docs/static")
    shutil.copytree(ROOT / "docs/root", tmp_path / "docs/root")
    shutil.copy(ROOT / "docs/conf.py", tmp_path / "docs/conf.py")
    pages = {"index.md": "# Index\n", "api.md": "# API\n", "toc.yml": "root: docs/index\nentries:\n  - file: docs/api\n"}
    for name, text in pages.items():
        (tmp_path / "docs" / name).write_text(text, encoding="utf-8")
    assert build_site(tmp_path, tmp_path / "site", "-c", tmp_path / "docs").returncode == 0
    for name, text, _ in FAULTS.values():
        with (tmp_path / name).open("a", encoding="utf-8") as file:
            file.write(f"\n{text}\n")
    result = build_site(tmp_path, tmp_path / "site", "-c", tmp_path / "docs")
    assert result.returncode == 1
    assert [fault for fault, (_, _, shown) in FAULTS.items() if shown not in result.stderr] == []
