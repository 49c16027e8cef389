"""The two ways of recording give one program's numbers, and refuse the same functions."""

import pytest
import torch

from sdesens.fused import record as module
from sdesens.fused.evaluate import evaluate_expressions
from sdesens.fused.program import Program
from sdesens.fused.rules import UnrecordableError, expressions
from sdesens.fused.trace import TooLargeError


def in_place(x):
    out = torch.zeros_like(x)
    out[:1] = x[1:2].exp()
    out += x
    return [out.cumsum(0)]


def nested(x):
    def slope(x):
        return torch.func.jvp(lambda x: torch.where(x > 0.2, x.sin(), x**3), (x,), (x,))[1]

    return [torch.func.jvp(slope, (x,), (torch.ones_like(x),))[1]]


def zeros_without_memory(x):
    # Forward mode scales the zero tangent of 1.0, and torch crashes on that if a mode sees it.
    return [torch.func.jvp(lambda x: torch.sub(x * x, 1.0, alpha=2), (x,), (x,))[1]]


def two_outputs(x):
    a, b = torch.stack([x, x * 2]).unbind(0)
    return [a.softmax(0), torch.special.ndtri(b.sigmoid())]


def constant(x):
    return [torch.full_like(x, 3.0), torch.ones(2, dtype=x.dtype)]


FUNCTIONS = [in_place, nested, zeros_without_memory, two_outputs, constant]
X = torch.tensor([0.3, 0.1], dtype=torch.float64)


def values(function, monkeypatch, *, by_graph):
    if by_graph:

        def refuse(*_):
            raise RuntimeError

        monkeypatch.setattr(module.Tracer, "run", refuse)
    else:
        monkeypatch.setattr(module, "_by_graph", None)
    program = Program()
    inputs = [expressions([program.input("state", k) for k in range(2)], (2,))]
    outputs = module.record(function, [X + 1.0], inputs, program)
    flat = [e for out in outputs for e in out]
    return evaluate_expressions(program, flat, {"state": X})


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("by_graph", [False, True])
def test_what_is_recorded_has_the_numbers_of_torch(function, by_graph, monkeypatch):
    found = values(function, monkeypatch, by_graph=by_graph)
    torch.testing.assert_close(found, torch.cat(function(X)), rtol=1e-13, atol=1e-13)


def reads_a_value(x):
    return [x if x.sum() > 0 else -x]


def leaves_torch(x):
    return [torch.func.jvp(lambda x: torch.from_numpy(x.numpy() * 2), (x,), (x,))[1]]


@pytest.mark.parametrize("function", [reads_a_value, leaves_torch], ids=lambda f: f.__name__)
def test_a_function_that_looks_at_its_values_is_refused(function):
    program = Program()
    inputs = [expressions([program.input("state", k) for k in range(2)], (2,))]
    with pytest.raises(UnrecordableError):
        module.record(function, [X], inputs, program)


def test_torch_is_whole_after_a_refusal():
    program = Program()
    inputs = [expressions([program.input("state", k) for k in range(2)], (2,))]

    def refused(x):
        return [torch.func.jvp(reads_a_value, (x,), (x,))[1][0]]

    with pytest.raises(UnrecordableError):
        module.record(refused, [X], inputs, program)
    slope = torch.func.jvp(torch.sin, (X,), (torch.ones_like(X),))[1]
    assert torch.equal(slope, X.cos())


def test_a_program_too_large_is_refused_without_another_try(monkeypatch):
    monkeypatch.setattr("sdesens.fused.trace.MAX_NODES", 20)
    monkeypatch.setattr(module, "_by_graph", None)
    program = Program()
    inputs = [expressions([program.input("state", k) for k in range(2)], (2,))]

    def large(x):
        return [torch.stack([(x * k).sin() for k in range(50)]).sum(0)]

    with pytest.raises(TooLargeError, match="more than 20"):
        module.record(large, [X], inputs, program)
