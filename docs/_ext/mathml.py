"""Formulas as MathML, written at build time by docutils: no script, no font, no network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)

# Letters are read as they stand (κ, Φ); these signs docutils knows by their TeX names alone.
SIGNS = str.maketrans(
    {
        "∞": r"\infty ",
        "·": r"\cdot ",
        "⟨": r"\langle ",
        "⟩": r"\rangle ",
        "²": "^2",
        "³": "^3",
        "±": r"\pm ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "≈": r"\approx ",
        "∈": r"\in ",
        "∘": r"\circ ",
        "→": r"\to ",
        "×": r"\times ",
        "∫": r"\int ",
        "∑": r"\sum ",
        "⊗": r"\otimes ",
    }
)
# What TeX reads and docutils does not.
REWRITES = (
    (re.compile(r"(\\[dt]?frac)\s*(\d)\s*(\d)"), r"\1{\2}{\3}"),  # it takes 12 for one number
    (re.compile(r"\\(begin|end)\{(?:align|equation|gather)\*?\}"), r"\\\1{aligned}"),
    (re.compile(r"\\([bB]igg?)(?![a-zA-Z])"), r"\\\1l"),
    (re.compile(r"\\(text(?:tt|sf|it)|mbox)\b"), r"\\text"),
)


def mathml(source: str, *, block: bool) -> str:
    """The MathML of a formula; several lines are aligned at ``&``."""
    tex = source.translate(SIGNS).strip()
    for pattern, replacement in REWRITES:
        tex = pattern.sub(replacement, tex)
    return tex2mathml(tex, as_block=block)


def _formula(self: Any, node: nodes.Element, *, block: bool) -> str:
    try:
        return mathml(node.astext(), block=block)
    except (MathError, AttributeError) as error:  # the latter for a bracket that nothing opens
        LOGGER.warning("formula %r: %s", node.astext(), error, location=node)
        return f"<code>{self.encode(node.astext())}</code>"


def visit_inline(self: Any, node: nodes.math) -> None:
    """A formula in the text."""
    self.body.append(_formula(self, node, block=False))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    """A formula on a line of its own."""
    identity = f' id="{node["ids"][0]}"' if node["ids"] else ""
    self.body.append(f'<div class="math"{identity}>{_formula(self, node, block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer; ``html_math_renderer = "mathml"`` selects it."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
