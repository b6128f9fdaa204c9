"""Configuration of the documentation site, which `make docs` builds with Sphinx.

The source folder is the repository, so a link means the same on the site and on GitHub. docs/toc.yml is the navigation.

Sphinx, not Zensical: in the trial, Zensical 0.0.73 built the site although a page of the navigation, a picture or a linked file was
missing, and its API reference needs mkdocstrings, which depends on the unmaintained MkDocs 1.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # this checkout, not an installed copy

project = "jax_sentemb"
author = "the jax_sentemb developers"
copyright = "The jax_sentemb developers"
extensions = [
    "myst_nb",
    "sphinx_external_toc",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
include_patterns = [
    "*.md",
    "docs/**",
    "benchmarks/README.md",
    "experiments/data.md",
    "experiments/**/README.md",
    "experiments/arguments/results.md",
    "tests/README.md",
    "tests/data/README.md",
]
exclude_patterns = [
    "README.md",  # the first page of the repository; docs/index.md is that of the site
    ".*",
    "build",
    "runs",
]
external_toc_path = "docs/toc.yml"

myst_heading_anchors = 4  # as GitHub makes them
nb_execution_mode = "off"  # the stored results are shown; tests/test_notebooks.py runs the notebooks

default_role = "code"  # `name` in a docstring
smartquotes = False  # quotes are part of settings and values
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True  # a default that is a function by its name, which also makes its signature readable
maximum_signature_line_length = 88

html_theme = "sphinx_book_theme"
html_title = "jax_sentemb"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["root"]  # the first page of the site leads to docs/index.html
html_theme_options = {
    "repository_url": "https://github.com/jax-sentemb/jax_sentemb",
    "use_repository_button": True,
    "show_navbar_depth": 1,
    "navbar_persistent": [],  # the search field is in the side bar
}
