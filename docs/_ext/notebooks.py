"""The notebooks of the repository, whichever there are, as the tutorials of the site.

They are copied to ``docs/tutorials``, which git ignores. Links in a notebook are written for the
repository, where ``notebooks/`` lies beside ``docs/``; in a copy they lead to the same pages, and
those to files that the site does not have become plain text.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from sphinx.application import Sphinx

MARK = "<!-- the notebooks -->"
_TO_DOCS = re.compile(r"\]\(\.\./docs/")
_ELSEWHERE = re.compile(r"(?<!!)\[([^\]]*)\]\(\.\./(?!docs/)[^)]*\)")


def relocated(source: str) -> str:
    """A notebook as the site has it: links to ``../docs/`` lead to ``../``; its code is Python."""
    notebook = json.loads(source)
    language = notebook["metadata"].setdefault("language_info", {"name": "python"})
    language.setdefault("pygments_lexer", "ipython3")
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = _ELSEWHERE.sub(r"\1", "".join(cell["source"]))
            cell["source"] = _TO_DOCS.sub("](../", text)
    return json.dumps(notebook, indent=1)


def copy(notebooks: Path, tutorials: Path) -> None:
    """Make ``tutorials`` hold what ``notebooks`` does; what is unchanged is left alone."""
    there = {path.name: path for path in sorted(notebooks.glob("*.ipynb"))}
    tutorials.mkdir(exist_ok=True)
    for path in tutorials.glob("*.ipynb"):
        if path.name not in there:
            path.unlink()
    for name, path in there.items():
        wanted, target = relocated(path.read_text(encoding="utf-8")), tutorials / name
        if not target.exists() or target.read_text(encoding="utf-8") != wanted:
            aside = target.with_suffix(f".{os.getpid()}.tmp")  # builds may run side by side
            aside.write_text(wanted, encoding="utf-8")
            aside.replace(target)


def toctree(tutorials: Path) -> str:
    """A table of contents of the notebooks in ``tutorials``, or what is said if there are none."""
    names = sorted(path.stem for path in tutorials.glob("*.ipynb"))
    if not names:
        return "There are no notebooks in this checkout."
    return "\n".join(
        ["```{toctree}", ":maxdepth: 1", "", *(f"tutorials/{n}" for n in names), "```"]
    )


def copy_all(app: Sphinx, config: object) -> None:
    """Copy them before sources are looked for."""
    source = Path(app.srcdir)
    copy(source.parent / "notebooks", source / "tutorials")


def list_them(app: Sphinx, docname: str, content: list[str]) -> None:
    """Put the table of contents where it is marked."""
    if docname == "tutorials":
        content[0] = content[0].replace(MARK, toctree(Path(app.srcdir) / "tutorials"))


def outdated(app: Sphinx, env: object, added: set, changed: set, removed: set) -> list[str]:
    """The page of tutorials is read anew when a notebook came or went."""
    moved = any(name.startswith("tutorials/") for name in added | removed)
    return ["tutorials"] if moved else []


def setup(app: Sphinx) -> dict[str, bool]:
    """Copy the notebooks of the repository and list them."""
    app.connect("config-inited", copy_all)
    app.connect("source-read", list_them)
    app.connect("env-get-outdated", outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
