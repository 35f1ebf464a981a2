"""Sphinx: Markdown by MyST, references generated from the code before each build."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))

import reference  # noqa: E402 - found through the line above

from proreus import __version__  # noqa: E402 - isort wants it behind the tool

reference.write(HERE / "reference" / "generated")

project = "Proreus"
copyright = "the authors of Proreus"  # noqa: A001 - Sphinx's name
release = version = __version__
html_title = f"Proreus {__version__}"
html_theme = "furo"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "explanation/benchmarks"]
nitpicky = False

napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
