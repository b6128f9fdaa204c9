"""Links, files, modules, settings, tests and options of commands that README.md and docs/ name exist."""

import ast
import importlib
import importlib.util
import json
import pkgutil
import re
import runpy
import shlex
import sys
import tomllib

import pytest
from pages import LISTED, PAGES, ROOT, SETTINGS, blocks

import jax_sentemb
from jax_sentemb.__main__ import COMMANDS
from jax_sentemb.cli.recommend import SMALL, CorpusSummary, advise
from jax_sentemb.cli.train import parse

NAMED_PATH = re.compile(r"(?<![\w./-])(?:jax_sentemb|tests|configs|benchmarks|experiments)/[\w./-]*+(?![{*])")
SETTING = re.compile(r"config\.((?:data|encoder|optimizer|eval|train|method)\.[a-z_.]*[a-z_])")


def test_every_block_says_what_it_is():
    for page in PAGES:
        kinds = re.findall(r"^```(.*)$", page.read_text(encoding="utf-8"), re.M)[::2]
        assert set(kinds) <= {"sh", "console", "python", "text", "yaml", "{eval-rst}"}, page


def test_a_block_of_text_has_no_command_and_no_code():
    """What is shown as text is not run."""
    programs = "jax-sentemb|python|pip|make|pytest|git|gcloud|srun"
    command = re.compile(rf"^\s*(\$ |({programs}) |import \w|from \w+ import )", re.M)
    for page in PAGES:
        for _, text in blocks(page, ("text", "")):
            assert not command.search(text), f"{page}: {text}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_of_commands_within_a_line_exist(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for line in re.findall(r"`jax-sentemb ([^`]+)`", text):
        name, *words = shlex.split(line)
        known = importlib.import_module(COMMANDS[name][0]).parser()._option_string_actions
        named = [word.partition("=")[0] for word in words if word.startswith("--") and not word.startswith("--config.")]
        assert [option for option in named if option not in known] == [], line


def functions_of(path):
    """Names of the functions of a file."""
    return [node.name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("page", sorted(set(LISTED)), ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_tests_that_are_named_exist(page):
    """Each word of a -k expression is in the name of a test, or the id of a parameter, of the named files."""
    for line in re.findall(r"`(pytest [^`]+)`", page.read_text(encoding="utf-8")):
        words = shlex.split(line)
        files = [ROOT / name for word in words if word.startswith("tests/") for name in expanded(word.partition("::")[0])]
        assert files, line
        text = "".join(file.read_text(encoding="utf-8") for file in files)
        names = [name for file in files for name in functions_of(file) if name.startswith("test_")]
        wanted = words[words.index("-k") + 1].split() if "-k" in words else []
        for word in (word for word in wanted if word not in ("and", "or", "not")):
            assert any(word in name for name in names) or re.search(rf'["\'].*{word}', text), f"{line}: {word}"


def expanded(name):
    """`a/{b,c}.py` as its names."""
    found = re.search(r"\{([^{}]*,[^{}]*)\}", name)
    return [one for part in found[1].split(",") for one in expanded(name.replace(found[0], part, 1))] if found else [name]


@pytest.mark.parametrize("page", sorted(set(LISTED)), ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_paths_with_braces_exist(page):
    folders = "jax_sentemb|tests|configs|benchmarks|experiments|docs"
    names = re.findall(rf"(?<![\w./-])(?:{folders})/[\w./-]*\{{[^}}\s]*\}}[\w./]*", page.read_text("utf-8"))
    assert [name for braces in names for name in expanded(braces) if not (ROOT / name.rstrip(".")).exists()] == []


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        if target.startswith("../../actions/workflows/"):  # GitHub's badge, relative to the page of the repository
            assert (ROOT / ".github/workflows" / target.split("/")[4]).is_file()
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}#{anchor}"


@pytest.mark.parametrize("page", sorted(set(LISTED)), ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_named_paths_and_modules_exist(page):
    text = page.read_text(encoding="utf-8")
    assert [name for name in NAMED_PATH.findall(text) if not (ROOT / name.rstrip("./")).exists()] == []
    assert [name for name in re.findall(r"python -m (jax_sentemb[\w.]*\w)", text) if not importlib.util.find_spec(name)] == []


def test_every_setting_that_is_named_exists_and_is_on_the_page_of_settings():
    known = set(re.findall(r"^\| `([\w.]+)`", SETTINGS.read_text(encoding="utf-8"), re.M))
    assert {"data.files", "train.seed", "method.ami.weight", "method.momentum.decay", "eval.data", "sweep"} <= known
    for page in PAGES:
        text = re.sub(r"^error: .*|^\$ .*learning_rte.*", "", page.read_text(encoding="utf-8"), flags=re.M)  # shown as mistakes
        assert set(SETTING.findall(text)) <= known, page


def test_the_page_of_settings_is_up_to_date():
    page = runpy.run_path(str(ROOT / "docs/settings.py"))["page"]()
    assert SETTINGS.read_text(encoding="utf-8") == page, "run python docs/settings.py"


def test_every_page_is_in_the_navigation():
    assert set(pages_of_the_navigation()) == {*PAGES[1:], SETTINGS, *ROOT.glob("docs/notebooks/*.ipynb")}


MOST_PAGES = 25
TASK = re.compile(r"(This (page|notebook) shows how to|In this tutorial you|With jax_sentemb you can) \w")


def pages_of_the_navigation():
    """Return the files of docs/ in the order of the navigation."""
    names = re.findall(r"(?:root|file): (docs/[\w/]+)", (ROOT / "docs/toc.yml").read_text(encoding="utf-8"))
    return [next(path for path in (ROOT / f"{name}.md", ROOT / f"{name}.ipynb") if path.exists()) for name in names]


def first_paragraph(page):
    """Return the first paragraph below the title of a page or notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        text = "".join(json.loads(text)["cells"][0]["source"])
    return re.sub(r"\A# .*\n+", "", text).partition("\n\n")[0]


def test_the_navigation_is_small_and_every_page_begins_with_its_task():
    pages = pages_of_the_navigation()
    assert len(pages) <= MOST_PAGES
    assert [page.name for page in pages if not TASK.match(first_paragraph(page))] == []


def test_the_first_page_lists_every_page_in_the_order_of_the_navigation():
    first, *pages = pages_of_the_navigation()
    heading, *parts = re.split(r"^### ", first.read_text(encoding="utf-8").partition("\n## All pages\n")[2], flags=re.M)
    assert not heading.strip()
    captions = re.findall(r"caption: (.+)", (ROOT / "docs/toc.yml").read_text(encoding="utf-8"))
    assert [part.partition("\n")[0] for part in parts] == captions[:4]
    rows = re.findall(r"^\| \[(.+?)\]\(([^)#]+)\) \|", "".join(parts), re.M)
    assert [first.parent / target for _, target in rows] == pages
    titles = [page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for page in pages if page.suffix == ".md"]
    assert [title for title, target in rows if target.endswith(".md")] == titles


QUESTIONS = ("German", "How long", "LangChain", "all-MiniLM")


def test_each_frequent_question_is_answered_with_a_link():
    text = (ROOT / "docs/index.md").read_text(encoding="utf-8").partition("## Frequent questions")[2].partition("\n## ")[0]
    answers = dict(re.findall(r"^\| (.+\?) \| (.+) \|$", text, re.M))
    for word in QUESTIONS:
        assert [question for question, answer in answers.items() if word in question and "](" in answer], word


CORE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
EXTRAS = {  # package -> what `pip install` needs
    **dict.fromkeys(("sentence_transformers", "torch"), r"\.\[torch\]"),
    **dict.fromkeys(("faiss", "usearch"), r"\.\[ann\]"),
    **dict.fromkeys(("bertopic", "keybert", "setfit", "sklearn", "umap"), r"\.\[topics\]"),
    "datasets": r"\.\[(hub|topics)\]",
    "fastapi": r"\.\[service\]",
    "ray": r"\.\[ray\]",
    "langchain_core": "langchain-core",
    "chromadb": "chromadb",
    "mteb": "mteb",
    "psycopg": "psycopg",
}


def without_installation(text):
    """Return the packages that code of a page imports, although neither its section nor the introduction installs them."""
    introduction, *sections = re.split(r"^## ", text, flags=re.M)
    core = {re.split(r"[>=<]", name)[0].lower().replace("-", "_") for name in CORE} | {
        "jax_sentemb",
        "yaml",
        *sys.stdlib_module_names,
    }
    missing = set()
    for section in sections:
        installs = " ".join(re.findall(r"pip install ([^`\n]*)", introduction + section))
        lines = re.findall(r"^(?:import|from) .*|^python -c '[^;]*", section, re.M)
        names = {name for line in lines for name in imported(line)} - core
        missing |= {name for name in names if not re.search(EXTRAS.get(name, "not in EXTRAS"), installs)}
    return missing


def imported(line):
    """Return the packages that a line of Python imports; none if it is prose."""
    try:
        (node,) = ast.parse(line.removeprefix("python -c '")).body
    except (SyntaxError, ValueError):
        return []
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", "")]
    return [name.partition(".")[0] for name in names]


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.stem)
def test_code_with_an_optional_package_says_how_to_install_it(page):
    assert without_installation(page.read_text(encoding="utf-8")) == set()


def test_a_missing_installation_is_noticed():
    code = "# A\n\n{}\n\n## B\n\n```python\nimport torch.nn\nfrom sentence_transformers import X\nimport numpy as np\n```\n"
    assert without_installation(code.format("")) == {"torch", "sentence_transformers"}
    assert without_installation(code.format("`pip install '.[torch]'`")) == set()
    assert without_installation("## B\nimport tensorflow\nimport this as prose\nfrom a page of text\n") == {"tensorflow"}


def test_every_recipe_is_in_the_list_of_recipes():
    text = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
    assert [path.name for path in sorted(ROOT.glob("configs/*.py")) if f"(../configs/{path.name})" not in text] == []


def test_the_readme_is_short():
    """Words outside code blocks, tables, pictures and addresses, split at white space."""
    text = re.sub(r"^```.*?^```$", "", PAGES[0].read_text(encoding="utf-8"), flags=re.M | re.S)
    text = re.sub(r"!\[.*?\]\(.*?\)|\]\(.*?\)", " ", re.sub(r"^\|.*$", "", text, flags=re.M))
    assert len(re.findall(r"\w\S*", text)) <= 700


def test_the_names_of_the_api_reference_exist_and_have_docstrings():
    named = re.findall(r"^\.\. auto\w+:: (\S+)$", (ROOT / "docs/python.md").read_text(encoding="utf-8"), re.M)
    roots = {name for name in jax_sentemb.__all__ if not name.startswith("__")}
    assert roots <= {name.rpartition(".")[2] for name in named}
    for name in named:
        assert pkgutil.resolve_name(name).__doc__, name


def recommended(usable, weights="", readout="", ordered=False, length=32, has_texts=False):
    """Return the advice of `check` for a corpus of `usable` sentences."""
    summary = CorpusSummary("wikipedia.txt", "text", usable, length, ordered, 64, weights, "", 30522, readout)
    return advise(summary._replace(has_texts=has_texts))


@pytest.mark.parametrize("name", ["index", "choosing"])
def test_pages_name_the_recipes_that_check_recommends(name):
    """The rows are: existing encoder, on texts, on running text; BERT with few sentences, with many; no model."""
    text = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    assert f"fewer than {SMALL:,} sentences" in text
    rows = re.findall(r"^\| (?:an existing|a BERT(?: \||, )|no model)[^\[]*\[`?(\w+)`?\]\(.*$", text, re.M)
    assert rows == [
        recommended(1000, "encoder", "mean").recipe,
        recommended(1000, "encoder", "mean", has_texts=True).recipe,
        recommended(1000, "encoder", "mean", ordered=True).recipe,
        recommended(SMALL - 1, "bert").recipe,
        recommended(SMALL, "bert").recipe,
        recommended(1000).recipe,
    ]


def test_the_tutorial_trains_as_check_recommends():
    commands = "".join(text for _, text in blocks(ROOT / "docs/tutorial.md", ("console",))).replace("\\\n", " ")
    line = re.search(r"^\$ jax-sentemb (train .*--config\.data\.files=wikipedia\.txt.*)$", commands, re.M)
    assert line
    advice = recommended(500, "experiments/pretraining/mini-2", ordered=None, length=64)
    assert parse(shlex.split(line[1]))[0] == parse(shlex.split(advice.command)[1:])[0]
