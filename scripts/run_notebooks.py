"""Execute the tutorials and write them with their outputs.

A tutorial is ``notebooks/NAME.py`` in jupytext's percent format, the file to edit;
``notebooks/NAME.ipynb`` is made from it here and never edited. What depends on the machine rather
than on the source (times of execution, versions, random cell ids, standard error) is left out.

    python scripts/run_notebooks.py               # all of them
    python scripts/run_notebooks.py 01 03         # those whose names begin so
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jupytext
import nbclient
import nbformat

FOLDER = Path(__file__).parents[1] / "notebooks"
TIMEOUT = 600  # seconds a cell


def main() -> None:
    """Run the notebooks that were named, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="how the names begin")
    for source in sources(parser.parse_args().names):
        start = time.perf_counter()
        nbformat.write(executed(source), source.with_suffix(".ipynb"))
        print(f"{source.stem}: {time.perf_counter() - start:.1f} s", flush=True)


def sources(beginnings: Sequence[str] = ()) -> list[Path]:
    """The sources in order, all of them or those whose names begin so."""
    every = sorted(FOLDER.glob("*.py"))
    unknown = [name for name in beginnings if not any(s.stem.startswith(name) for s in every)]
    if unknown:
        sys.exit(f"no notebook begins with {unknown}; there are {[s.stem for s in every]}.")
    return [s for s in every if not beginnings or s.stem.startswith(tuple(beginnings))]


def unexecuted(source: Path) -> Any:
    """The notebook of a source, its cells numbered, without outputs."""
    notebook = jupytext.read(source)
    for k, cell in enumerate(notebook.cells):
        cell["id"], cell["metadata"] = f"cell-{k:02d}", {}
    notebook.metadata["jupytext"] = {"formats": "ipynb,py:percent"}
    return notebook


def executed(source: Path) -> Any:
    """The notebook of a source with the outputs of one run."""
    notebook = unexecuted(source)
    client = nbclient.NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        # The kernel listens on this machine alone, and would warn that it does so in the clear.
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(source.parent)}},
    )
    # Without ipywidgets tqdm warns that its bars will be plain.
    client.execute(env=os.environ | {"PYTHONWARNINGS": "ignore:IProgress not found"})
    notebook.metadata["language_info"] = {"name": "python", "file_extension": ".py"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell["outputs"] = list(_kept(cell))
    nbformat.validate(notebook)
    return notebook


def _kept(cell: Any) -> Iterator[Any]:
    """Outputs without standard error, which holds progress bars; a warning there is an error."""
    for output in cell.outputs:
        if output.output_type != "stream" or output.name != "stderr":
            yield output
        elif "Warning" in output.text:
            raise RuntimeError(f"a cell warns:\n{cell.source}\n{output.text}")


if __name__ == "__main__":
    main()
