"""The notebooks of the repository, whichever there are, as the tutorials of the site.

``docs/tutorials`` is a link to ``notebooks/``. Links in a notebook are written for the repository,
where that folder lies beside ``docs/``.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

MARK = "<!-- the notebooks -->"
_TO_DOCS = re.compile(r"\]\(\.\./docs/")


def toctree(folder: Path) -> str:
    """A table of contents of the notebooks in ``folder``, or what is said if there are none."""
    names = sorted(path.stem for path in folder.glob("*.ipynb"))
    if not names:
        return "There are no notebooks in this checkout."
    return "\n".join(["```{toctree}", ":maxdepth: 1", "", *(f"tutorials/{n}" for n in names), "```"])


def read(app: Sphinx, docname: str, content: list[str]) -> None:
    """Put the contents where they are marked, and let a link to ``../docs/`` lead to the page."""
    if docname == "tutorials":
        content[0] = content[0].replace(MARK, toctree(Path(app.srcdir) / "tutorials"))
    elif docname.startswith("tutorials/"):
        content[0] = _TO_DOCS.sub("](../", content[0])


def outdated(app: Sphinx, env: object, added: set, changed: set, removed: set) -> list[str]:
    """The page of tutorials is read anew when a notebook came or went."""
    moved = any(name.startswith("tutorials/") for name in added | removed)
    return ["tutorials"] if moved else []


def setup(app: Sphinx) -> dict[str, bool]:
    """Read every source through :func:`read`."""
    app.connect("source-read", read)
    app.connect("env-get-outdated", outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
