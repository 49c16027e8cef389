"""diffrax: a jitted ``diffeqsolve`` with Euler.

What was fastest of several: all paths of a block as one state and steps by ``StepTo``;
``UnsafeBrownianPath`` with ``ForwardMode`` (a twentieth of the time of ``VirtualBrownianTree``).
diffrax refuses reverse mode on an ``UnsafeBrownianPath``, so that rows in reverse mode pay for the
tree, and run one block only. The rows "vmap" solve path by path under ``jax.vmap``, as diffrax's
documentation does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import diffrax  # pyright: ignore[reportMissingImports]
import jax  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
import lineax  # pyright: ignore[reportMissingImports]
from jax_scan import averaged, call_price, forward, positive_sqrt, reverse, tangent, value
from jobs import (
    DELTA,
    GBM,
    GBM_MU,
    GBM_SIGMA,
    HESTON,
    PATH,
    PRICE,
    SEVEN,
    Row,
    Size,
    asked,
    measure,
    report,
)


def solve(
    drift: Callable[..., Any],
    diffusion: Callable[..., Any],
    start: Any,
    channels: tuple[int, ...],
    key: Any,
    size: Size,
    reversible: bool = False,
    saveat: Any = None,
) -> Any:
    """Euler on the grid; ``reversible`` is for reverse mode."""
    ts = jnp.linspace(0.0, 1.0, size.steps + 1)
    if reversible:
        adjoint = diffrax.DirectAdjoint()
        bm = diffrax.VirtualBrownianTree(0.0, 1.0, 0.5 / size.steps, channels, key)
    else:
        adjoint, bm = diffrax.ForwardMode(), diffrax.UnsafeBrownianPath(channels, key)
    return diffrax.diffeqsolve(
        diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(diffusion, bm)),
        diffrax.Euler(),
        t0=0.0,
        t1=1.0,
        dt0=None,
        y0=start,
        stepsize_controller=diffrax.StepTo(ts),
        saveat=diffrax.SaveAt(t1=True) if saveat is None else saveat,
        adjoint=adjoint,
        max_steps=size.steps,
    ).ys


def gbm_price(at: Any, key: Any, size: Size, reversible: bool = False) -> Any:
    """Price of a call on geometric Brownian motion, a block of paths as one state."""

    def diffusion(t: Any, x: Any, args: Any) -> Any:
        return lineax.DiagonalLinearOperator(GBM_SIGMA * x)

    start, channels = jnp.full(size.block, at[0]), (size.block,)
    xs = solve(lambda t, x, args: GBM_MU * x, diffusion, start, channels, key, size, reversible)
    return call_price(xs[-1], GBM_MU)


def gbm_price_by_path(at: Any, key: Any, size: Size) -> Any:
    """The same, path by path under ``jax.vmap``."""

    def one(key: Any) -> Any:
        return solve(
            lambda t, x, args: GBM_MU * x, lambda t, x, args: GBM_SIGMA * x, at[0], (), key, size
        )

    return call_price(jax.vmap(one)(jax.random.split(key, size.block)), GBM_MU)


def heston_price(at: Any, key: Any, size: Size, reversible: bool = False) -> Any:
    """Price of a call in the Heston model, a block of paths as one state."""
    s0, v0, r, kappa, theta, xi, rho = at
    rest = jnp.sqrt(1 - rho**2)
    channels = (2, size.block)

    def drift(t: Any, state: Any, args: Any) -> Any:
        s, v = state
        return r * s, kappa * (theta - v)

    def diffusion(t: Any, state: Any, args: Any) -> Any:
        s, v = state
        root = positive_sqrt(v)
        return lineax.FunctionLinearOperator(
            lambda w: (root * s * w[0], xi * root * (rho * w[0] + rest * w[1])),
            jax.ShapeDtypeStruct(channels, s.dtype),
        )

    start = jnp.full(size.block, s0), jnp.full(size.block, v0)
    spot, _ = solve(drift, diffusion, start, channels, key, size, reversible)
    return call_price(spot[-1], r)


def ou_path(x0: Any, seed: Any, size: Size) -> Any:
    """One path at all times."""
    saveat = diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, size.steps + 1))

    def diffusion(t: Any, x: Any, args: Any) -> Any:
        return jnp.ones_like(x)

    key = jax.random.key(seed)
    return solve(lambda t, x, args: -x, diffusion, x0, (), key, size, saveat=saveat)


def gbm(size: Size) -> list[Row]:
    """Rows of ``gbm``."""
    price, by_path = partial(gbm_price, size=size), partial(gbm_price_by_path, size=size)
    one = replace(size, paths=size.block)
    back = partial(price, reversible=True)
    return [
        measure("diffrax", PRICE, averaged(value, price, GBM, size), size),
        measure("diffrax, jvp", DELTA, averaged(forward, price, GBM, size), size),
        measure("diffrax, vmap, jvp", DELTA, averaged(forward, by_path, GBM, size), size),
        measure("diffrax, reverse", DELTA, averaged(reverse, back, GBM, one), one),
    ]


def heston(size: Size) -> list[Row]:
    """Rows of ``heston``."""
    price = partial(heston_price, size=size)
    one = replace(size, paths=size.block)
    back = partial(price, reversible=True)
    return [
        measure("diffrax", PRICE, averaged(value, price, HESTON, size), size),
        measure("diffrax, jvp", SEVEN, averaged(forward, price, HESTON, size), size),
        measure("diffrax, reverse", SEVEN, averaged(reverse, back, HESTON, one), one),
    ]


def ou(size: Size) -> list[Row]:
    """Rows of ``ou``, in double precision."""
    jax.config.update("jax_enable_x64", True)
    return [measure("diffrax, jvp", PATH, tangent(ou_path, size), size, "float64")]


if __name__ == "__main__":
    size = asked()
    report({"gbm": gbm, "heston": heston, "ou": ou}[size.job](size), ["diffrax", "jax"])
