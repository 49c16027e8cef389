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
        "∂": r"\partial ",
        "∫": r"\int ",
        "∑": r"\sum ",
        "⊗": r"\otimes ",
    }
)
# What TeX reads and docutils does not.
REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(\\[dt]?frac)\s*(\d)\s*(\d)", r"\1{\2}{\3}"),  # it takes 12 for one number
        (r"\\(begin|end)\{(?:align|equation|gather|split)\*?\}", r"\\\1{aligned}"),
        (r"\\([bB]igg?)m?(?![a-zA-Z])", r"\\\1l"),
        (r"\\(?:text(?:tt|sf|it|bf)|mbox|emph)\b", r"\\text"),
        (r"\\(?:mathrel|mathop|mathbin)\b", ""),
        (r"\\(?:nonumber|notag|label\s*\{[^}]*\})", ""),
        (r"\\dots\b", r"\\ldots "),
        (r"\\iff\b", r"\\;\\Longleftrightarrow\\;"),
        (r"\\stackrel\b", r"\\overset"),
        (r"\\bm\b", r"\\boldsymbol"),
        (r"\\[hv]phantom\b", r"\\phantom"),
    )
]


def mathml(source: str, *, block: bool) -> str:
    """The MathML of a formula; several lines are aligned at ``&``."""
    tex = source.translate(SIGNS).strip()
    for pattern, replacement in REWRITES:
        tex = pattern.sub(replacement, tex)
    return tex2mathml(tex, as_block=block)


def _formula(self: Any, node: nodes.Element, *, block: bool) -> str:
    try:
        return mathml(node.astext(), block=block)
    except (MathError, AttributeError, IndexError) as error:  # its others: of half a formula
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
