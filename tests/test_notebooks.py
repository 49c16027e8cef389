"""The tutorials run, and what is committed with outputs is the source that stands beside it."""

import ast
import re
from pathlib import Path
from typing import Any

import jupytext
import matplotlib as mpl
import nbformat
import pytest
from matplotlib.figure import Figure

FOLDER = Path(__file__).parents[1] / "notebooks"
SOURCES = sorted(FOLDER.glob("*.py"))
# Home, temporary and system folders, drives, and addresses of objects.
OF_ONE_MACHINE = re.compile(
    r"/(?:home|root|Users|tmp|work|usr|opt|mnt|var)/|[A-Z]:\\|\b0x[0-9a-f]{6}"
)

every_notebook = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)


def committed(source: Path) -> Any:
    return nbformat.read(source.with_suffix(".ipynb"), as_version=4)


def run_cell(code: str, names: dict[str, Any], where: str) -> Any:
    """Run a cell as Jupyter does; the value of a last line that is an expression."""
    tree = ast.parse(code)
    *most, last = tree.body
    shown = isinstance(last, ast.Expr)
    exec(compile(ast.Module(most if shown else tree.body, []), where, "exec"), names)
    return eval(compile(ast.Expression(last.value), where, "eval"), names) if shown else None


def without_magics(code: str) -> str:
    return re.sub(r"^%", "# %", code, flags=re.M)


@every_notebook
def test_a_notebook_runs_and_what_its_cells_show_is_committed(source, monkeypatch, capsys):
    """In its quick setting; figures are drawn."""
    monkeypatch.setenv("SDESENS_QUICK", "1")
    names: dict[str, Any] = {"__name__": source.stem}
    with mpl.rc_context():
        for k, cell in enumerate(committed(source).cells):
            if cell.cell_type != "code":
                continue
            value = run_cell(without_magics(cell.source), names, f"{source.name}, cell {k}")
            if isinstance(value, Figure):
                value.canvas.draw()
            printed = capsys.readouterr().out  # of this cell: read even where a value is shown
            if value is not None or printed:
                assert cell.outputs, f"cell {k} shows something, and has no output"
    assert "QUICK" in names


@every_notebook
def test_the_committed_notebook_is_its_source(source):
    made = [(cell.cell_type, cell.source) for cell in committed(source).cells]
    assert made == [(cell.cell_type, cell.source) for cell in jupytext.read(source).cells], (
        f"{source.stem}.ipynb is not in step with its source: run make notebooks."
    )


@every_notebook
def test_the_committed_notebook_was_run_once_from_top_to_bottom_without_errors(source):
    code = [cell for cell in committed(source).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    for output in (output for cell in code for output in cell.outputs):
        assert output.output_type != "error"
        assert output.get("name") != "stderr"


@every_notebook
def test_the_committed_notebook_says_nothing_of_the_machine_it_was_run_on(source):
    notebook = committed(source)
    for cell in notebook.cells:
        assert not cell.metadata
        for output in cell.get("outputs", []):
            text = output.get("text", "") + str(output.get("data", {}).get("text/plain", ""))
            assert not OF_ONE_MACHINE.findall(text), text
    assert set(notebook.metadata) == {"jupytext", "kernelspec", "language_info"}
    assert "version" not in notebook.metadata["language_info"]


def test_every_notebook_has_its_source():
    assert [n.stem for n in sorted(FOLDER.glob("*.ipynb"))] == [s.stem for s in SOURCES]
