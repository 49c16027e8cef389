"""How the site is built: ``make docs``. Nothing is fetched, no page loads anything from afar."""

import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]
os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")

import sdesens  # noqa: E402

project = "sdesens"
author = "The sdesens developers"
copyright = author
version = release = sdesens.__version__

extensions = [
    "myst_nb",
    "mathml",
    "notebooks",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb", ".ipynb": "myst-nb"}
exclude_patterns = ["_build", "_ext", "**.ipynb_checkpoints"]
highlight_language = "none"  # an indented formula is no code; blocks of Python say so

# --- Tutorials: notebooks/, shown with the outputs they were committed with -----------------------
nb_execution_mode = "off"
nb_merge_streams = True

# --- Markdown -------------------------------------------------------------------------------------
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

# --- Reference: what the docstrings say -----------------------------------------------------------
if importlib.util.find_spec("sdesens.plots") is None:  # its page has nothing to show
    exclude_patterns.append("api/plots.rst")
    suppress_warnings = ["toc.excluded"]
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_use_type_comments = False
autosummary_generate = False
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # they are in the signature
napoleon_custom_sections = [("Class attributes", "Attributes")]
python_maximum_signature_line_length = 80
python_display_short_literal_types = True
toc_object_entries_show_parents = "hide"

# No inventory is downloaded, so names of others cannot be resolved. None of ours is listed here.
nitpick_ignore_regex = [
    (
        "py:.*",
        r"(torch|torchsde|numpy|matplotlib|concurrent|collections|contextlib|os|typing|types)\..*",
    ),
    ("py:.*", r"(Tensor|np\.ndarray|nn\.(Module|Parameter)|Executor)"),
    ("py:.*", r"(bool|int|float|str|dict|list|tuple|object|None|Any|Callable|Sequence)"),
    ("py:exc", r"(ValueError|TypeError|ArithmeticError|ImportError|AttributeError|UserWarning)"),
]

# --- HTML -----------------------------------------------------------------------------------------
html_theme = "furo"
html_title = f"sdesens {version}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False


def prose(app, what, name, obj, options, lines):
    """A sentence about an attribute may have a colon; napoleon would read a type before it."""
    if what in ("attribute", "property", "data") and lines:
        lines[:0] = ["..", ""]  # a comment, in which napoleon finds no type


def setup(app):
    app.connect("autodoc-process-docstring", prose, priority=400)  # before napoleon
