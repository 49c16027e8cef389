"""Derivatives of formulas by name, and agreement to the digits that are printed."""

import torch


def leaves(arguments):
    """Arguments as float64 leaves of a graph; what is no float stays."""
    return {
        name: torch.tensor(value, dtype=torch.float64, requires_grad=True)
        if isinstance(value, float)
        else value
        for name, value in arguments.items()
    }


def derivative(function, arguments, *names):
    """The derivative of ``function(**arguments)`` in ``names``, one after the other."""
    inputs = leaves(arguments)
    out = function(**inputs)
    for name in names:
        (out,) = torch.autograd.grad(out, inputs[name], create_graph=True)
    return out.item()


def central(function, arguments, *names, relative=1e-5):
    """The same by central differences of the derivative one order lower."""
    *inner, last = names
    step = relative * max(abs(arguments[last]), 0.1)
    up, down = (
        derivative(function, arguments | {last: arguments[last] + e}, *inner) for e in (step, -step)
    )
    return (up - down) / (2 * step)


def assert_printed(value, printed):
    """``value`` rounds to ``printed``, a string."""
    digits = len(printed.partition(".")[2])
    assert abs(value - float(printed)) <= 0.5 * 10**-digits * (1 + 1e-6), (value, printed)


def assert_all_finite(function, arguments):
    """The value, every first and every second derivative."""
    inputs = leaves(arguments)
    wrt = [v for v in inputs.values() if isinstance(v, torch.Tensor)]
    value = function(**inputs)
    assert torch.isfinite(value).all()
    first = torch.autograd.grad(value, wrt, create_graph=True, allow_unused=True)
    for name, g in zip(inputs, first, strict=False):
        if g is None:
            continue
        assert torch.isfinite(g), (name, g)
        if g.requires_grad:
            second = torch.autograd.grad(g, wrt, retain_graph=True, allow_unused=True)
            for other, h in zip(inputs, second, strict=False):
                assert h is None or torch.isfinite(h), (name, other, h)
