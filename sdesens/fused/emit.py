"""The C++ source of a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import torch

from sdesens.fused.operations import OPERATIONS
from sdesens.fused.program import INPUTS, Level, Program

_CONSTANTS = {"zero": "0.0", "one": "1.0", "minus_one": "-1.0"}
_ARRAYS = {
    "number": "number",
    "parameter": "parameter",
    "time": "time",
    "time_tangent": "rate",
    "flag": "flag",
    "state": "x",
    "noise": "z",
}


@dataclass(frozen=True)
class Stepper:
    """What is advanced: the program of one step and of the end of a path.

    Attributes:
        program: the expressions.
        step: for each slot of the state its expression after the step.
        outputs: what is asked for at the end, as expressions of the last state.
        counters: for each noise input the channel word of its counter.
        flags: number of flags a step.
    """

    program: Program
    step: Sequence[int]
    outputs: Sequence[int]
    counters: Sequence[int]
    flags: int = 0


def source(stepper: Stepper, dtype: torch.dtype) -> str:
    """C++ that defines ``run`` (see driver.h) for ``stepper`` in this dtype."""
    double = dtype is torch.float64
    here = files("sdesens.fused")
    parts = [
        f"#define REAL {'double' if double else 'float'}\n#define IS_DOUBLE {int(double)}\n",
        here.joinpath("vector.h").read_text(),
        _Emitter(stepper).code(),
        here.joinpath("driver.h").read_text(),
    ]
    return "\n".join(parts)


class _Emitter:
    """The generated functions. Values that paths share lie in arrays, ``run`` and ``value``."""

    def __init__(self, stepper: Stepper) -> None:
        self.stepper, self.program = stepper, stepper.program
        step, end = self.program.needed(stepper.step), self.program.needed(stepper.outputs)
        self.run_places = self._places(sorted({*step, *end}), Level.RUN)
        self.step_places = self._places(step, Level.STEP)
        self.last_places = self._places(end, Level.STEP)
        self.step_needed, self.end_needed = step, end

    def _places(self, needed: Sequence[int], level: Level) -> dict[int, int]:
        nodes = self.program.nodes
        found = [e for e in needed if nodes[e].level == level and nodes[e].op not in _CONSTANTS]
        return {e: k for k, e in enumerate(found)}

    def _constants(self) -> dict[int, str]:
        return {k: _CONSTANTS[self.program.nodes[k].op] for k in range(len(_CONSTANTS))}

    def code(self) -> str:
        stepper = self.stepper
        counters = ", ".join(f"{c}u" for c in stepper.counters) or "0u"
        constants = {
            "SLOTS": len(stepper.step),
            "NOISE": len(stepper.counters),
            "FLAGS": stepper.flags,
            "RUN_VALUES": len(self.run_places),
            "STEP_VALUES": len(self.step_places),
            "LAST_VALUES": len(self.last_places),
            "OUTPUTS": len(stepper.outputs),
        }
        lines = [f"constexpr int {name} = {value};" for name, value in constants.items()]
        lines.append(f"constexpr uint32_t COUNTERS[] = {{{counters}}};")
        run, steps, last = self.run_places, self.step_places, self.last_places
        lines += self._shared("run_values(const double* number, const double* parameter", run, {})
        arguments = "const double* run, const double* time, const double* rate, const double* flag"
        lines += self._shared(f"step_values({arguments}", steps, run)
        lines += self._shared(f"last_values({arguments}", last, run)
        arguments = "const Real* run, const Real* value"
        head = f"step({arguments}, const F* z, F* x"
        lines += self._on_paths(head, "x", self.step_needed, stepper.step, steps)
        head = f"finish({arguments}, const F* x, F* y"
        lines += self._on_paths(head, "y", self.end_needed, stepper.outputs, last)
        return "namespace {\n\n" + "\n".join(lines) + "\n\n}  // namespace\n"

    def _shared(self, head: str, places: dict[int, int], above: dict[int, int]) -> list[str]:
        """A function that fills an array with expressions of numbers."""
        names = self._constants() | {e: f"run[{k}]" for e, k in above.items()}
        names |= {e: f"out[{k}]" for e, k in places.items()}
        body = [f"  {names[e]} = {self._shared_value(e, names)};" for e in places]
        return [f"inline void {head}, double* out) {{", *body, "}"]

    def _shared_value(self, expression: int, names: dict[int, str]) -> str:
        node = self.program.nodes[expression]
        if node.op in INPUTS:
            return f"{_ARRAYS[node.op]}[{node.args[0]}]"
        args = [
            f"({names[a]} != 0.0)" if self.program.is_condition(a) else names[a] for a in node.args
        ]
        return OPERATIONS[node.op].cpp.format(*args)

    def _on_paths(
        self,
        head: str,
        to: str,
        needed: Sequence[int],
        outputs: Sequence[int],
        places: dict[int, int],
    ) -> list[str]:
        """A function of vectors of paths."""
        nodes = self.program.nodes
        names = self._constants() | {e: f"run[{k}]" for e, k in self.run_places.items()}
        names |= {e: f"value[{k}]" for e, k in places.items()}
        inside = [e for e in needed if nodes[e].level is Level.PATH]
        names |= {e: f"v{e}" for e in inside}
        shared = self._shared_denominators(inside)
        body = []
        for e in inside:
            type_ = "Mask" if self.program.is_condition(e) else "F"
            body.append(f"  const {type_} v{e} = {self._path_value(e, names, shared)};")
            if e in shared:
                body.append(f"  const F inverse{e} = all(1.0) / v{e};")
        body += [f"  {to}[{k}] = {self._vector(e, names)};" for k, e in enumerate(outputs)]
        return [f"inline void {head}) {{", *body, "}"]

    def _shared_denominators(self, inside: Sequence[int]) -> set[int]:
        """Vectors by which several others are divided: better inverted once."""
        nodes = self.program.nodes
        divisors = Counter(nodes[e].args[1] for e in inside if nodes[e].op == "div")
        return {e for e, n in divisors.items() if n > 1 and nodes[e].level is Level.PATH}

    def _path_value(self, expression: int, names: dict[int, str], shared: set[int]) -> str:
        node = self.program.nodes[expression]
        if node.op in INPUTS:
            return f"{_ARRAYS[node.op]}[{node.args[0]}]"
        if node.op == "div" and node.args[1] in shared:
            return f"{self._vector(node.args[0], names)} * inverse{node.args[1]}"
        if node.op == "where" and self.program.nodes[node.args[0]].level is not Level.PATH:
            condition = f"({names[node.args[0]]} != 0)"
            then, otherwise = (self._vector(a, names) for a in node.args[1:])
            return f"{condition} ? {then} : {otherwise}"
        args = [self._vector(a, names) for a in node.args]
        return OPERATIONS[node.op].cpp.format(*args)

    def _vector(self, expression: int, names: dict[int, str]) -> str:
        if self.program.nodes[expression].level is Level.PATH:
            return names[expression]
        if self.program.is_condition(expression):
            return f"all_if({names[expression]} != 0)"
        return f"all({names[expression]})"
