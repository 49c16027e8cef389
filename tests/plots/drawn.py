"""What the tests of plots share: what ``fill_between`` drew, and ``plots`` without its types."""

from typing import Any

from sdesens import plots as _plots

# To matplotlib's types the data of an artist may be anything; here they are arrays.
plots: Any = _plots


def band(collection: Any) -> tuple[Any, Any]:
    """The lower and the upper edge of what ``fill_between`` drew, each ``(T,)``."""
    vertices = collection.get_paths()[0].vertices
    n = (len(vertices) - 3) // 2  # start, along below, corner, back along above, close
    return vertices[1 : n + 1, 1], vertices[n + 2 : 2 * n + 2, 1][::-1]
