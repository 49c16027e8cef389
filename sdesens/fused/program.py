"""Programs of scalar operations: what one path does in one step, and how it depends on what.

A program is a list of expressions, each an input, a number, or an operation on earlier ones. It is
kept small as it grows: an expression that is there already is not made again, and nothing is
multiplied by zero or one, so the zero entries of a diffusion matrix or of a tangent cost nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from sdesens.fused.operations import OPERATIONS


class Level(IntEnum):
    """How often an expression takes a new value: once a run, once a step, or on every path."""

    RUN = 0
    STEP = 1
    PATH = 2


@dataclass(frozen=True)
class Node:
    """An expression: an operation on earlier expressions, or the ``args[0]``-th input of a kind."""

    op: str
    args: tuple[int, ...]
    level: Level


# Inputs by kind. A tangent input stands for the derivative of the input of its name along a
# direction, and is put in by :meth:`Program.substitute`.
INPUTS = {
    "number": Level.RUN,  # a literal of the model's code
    "parameter": Level.RUN,
    "time": Level.STEP,  # see TIMES
    "flag": Level.STEP,  # whether a step ends at a date that something waits for
    "state": Level.PATH,
    "noise": Level.PATH,
    "parameter_tangent": Level.RUN,
    "time_tangent": Level.STEP,
    "state_tangent": Level.PATH,
}
TIMES = ("start", "end", "width")  # of a step; its width is that of the noise

ZERO, ONE, MINUS_ONE = 0, 1, 2


class Program:
    """Expressions by index, the first three being 0, 1 and -1.

    Attributes:
        nodes: all expressions, each after those it is made of.
        numbers: the values of the ``number`` inputs: the literals in the model's code other than
            0, 1 and -1, so that a changed strike is the same program. Equal ones are one, so that
            what is computed twice is found to be the same.
    """

    def __init__(self) -> None:
        self.nodes = [Node(op, (), Level.RUN) for op in ("zero", "one", "minus_one")]
        self.numbers: list[float] = []
        self._literals: dict[bytes, int] = {}
        self._known: dict[tuple[str, tuple[int, ...]], int] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def number(self, value: float) -> int:
        """A literal."""
        if value in (0, 1, -1):
            return (ZERO, ONE, MINUS_ONE)[int(value)]
        key = struct.pack("d", value)
        if key not in self._literals:
            self._literals[key] = len(self.numbers)
            self.numbers.append(float(value))
        return self.input("number", self._literals[key])

    def input(self, kind: str, k: int) -> int:
        """The ``k``-th input of this kind."""
        return self._node(kind, (k,), INPUTS[kind])

    def apply(self, op: str, *args: int) -> int:
        """An operation on expressions, simplified where an argument is 0 or 1."""
        simple = _simplified(self, op, args)
        if simple is not None:
            return simple
        level = max((self.nodes[a].level for a in args), default=Level.RUN)
        return self._node(op, args, level)

    def is_condition(self, expression: int) -> bool:
        """Whether an expression is true or false instead of a number."""
        node = self.nodes[expression]
        return node.op in OPERATIONS and OPERATIONS[node.op].is_condition

    def needed(self, outputs: Iterable[int]) -> list[int]:
        """The expressions that ``outputs`` are made of, themselves included, in order."""
        found, open_ = set(), list(outputs)
        while open_:
            expression = open_.pop()
            if expression not in found:
                found.add(expression)
                node = self.nodes[expression]
                if node.op not in INPUTS:
                    open_.extend(node.args)
        return sorted(found)

    def substitute(self, outputs: Sequence[int], by: Mapping[int, int]) -> list[int]:
        """``outputs`` with some inputs replaced by other expressions."""
        new = dict(by)
        for expression in self.needed(outputs):
            if expression not in new:
                node = self.nodes[expression]
                if node.op in INPUTS or not node.args:
                    new[expression] = expression
                else:
                    new[expression] = self.apply(node.op, *(new[a] for a in node.args))
        return [new[expression] for expression in outputs]

    def _node(self, op: str, args: tuple[int, ...], level: Level) -> int:
        key = (op, args)
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(Node(op, args, level))
        return self._known[key]


def _simplified(  # noqa: PLR0911, PLR0912  (a table)
    program: Program, op: str, args: tuple[int, ...]
) -> int | None:
    """What an operation comes to without computing anything, if it does."""
    match op, args:
        case "add", (0, x) | (x, 0):
            return x
        case "sub", (x, 0):
            return x
        case "sub", (0, x):
            return program.apply("neg", x)
        case "mul", (0, _) | (_, 0):
            return ZERO
        case "mul", (1, x) | (x, 1):
            return x
        case "mul", (2, x) | (x, 2):
            return program.apply("neg", x)
        case "div", (0, _):
            return ZERO
        case "div", (x, 1):
            return x
        case "div", (x, 2):
            return program.apply("neg", x)
        case (("neg" | "sqrt" | "abs"), (0,)):
            return ZERO
        case "neg", (1,):
            return MINUS_ONE
        case "neg", (2,):
            return ONE
        case "neg", (x,) if program.nodes[x].op == "neg":
            return program.nodes[x].args[0]
        case "where", (_, x, y) if x == y:
            return x
    return None
