"""JAX by hand: ``jax.lax.scan`` over the steps, normal numbers drawn in the step.

What was fastest of several: threefry keys (``rbg`` takes up to six times as long on a CPU), blocks
of paths one after another in one jitted call, all tangents in one vectorised ``jax.jvp``, and for
Heston a reverse mode that recomputes the step. The one path of ``ou`` draws its noise beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
from jobs import (
    DELTA,
    GBM,
    GBM_MU,
    GBM_SIGMA,
    HESTON,
    OU_X0,
    PATH,
    PRICE,
    SEVEN,
    STRIKE,
    Row,
    Size,
    asked,
    measure,
    report,
)

Price = Callable[[Any, Any], Any]  # (parameters, key) -> price over one block of paths


def call_price(spot: Any, rate: Any) -> Any:
    """Discounted mean payoff."""
    return jnp.exp(-rate) * jnp.maximum(spot - STRIKE, 0).mean()


def positive_sqrt(v: Any) -> Any:
    """``sqrt(max(v, 0))``; the inner ``where`` keeps the derivative finite at 0."""
    return jnp.where(v > 0, jnp.sqrt(jnp.where(v > 0, v, 1.0)), 0.0)


def gbm_price(at: Any, key: Any, size: Size) -> Any:
    """Price of a call on geometric Brownian motion."""
    dt = 1 / size.steps

    def step(x: Any, k: Any) -> Any:
        z = jax.random.normal(jax.random.fold_in(key, k), x.shape)
        return x + x * (GBM_MU * dt + GBM_SIGMA * dt**0.5 * z), None

    x, _ = jax.lax.scan(step, jnp.full(size.block, at[0]), jnp.arange(size.steps))
    return call_price(x, GBM_MU)


def heston_price(at: Any, key: Any, size: Size, recompute: bool = False) -> Any:
    """Price of a call in the Heston model; ``recompute`` spares reverse mode the stored steps."""
    s0, v0, r, kappa, theta, xi, rho = at
    dt, rest = 1 / size.steps, jnp.sqrt(1 - rho**2)

    def step(state: Any, k: Any) -> Any:
        s, v = state
        dw1, dw2 = dt**0.5 * jax.random.normal(jax.random.fold_in(key, k), (2, size.block))
        root = positive_sqrt(v)
        dv = kappa * (theta - v) * dt + xi * root * (rho * dw1 + rest * dw2)
        return (s + s * (r * dt + root * dw1), v + dv), None

    start = jnp.full(size.block, s0), jnp.full(size.block, v0)
    step = jax.checkpoint(step) if recompute else step
    (s, _), _ = jax.lax.scan(step, start, jnp.arange(size.steps))
    return call_price(s, r)


def ou_path(x0: Any, seed: Any, size: Size) -> Any:
    """One path at all times."""
    dt = 1 / size.steps
    dw = dt**0.5 * jax.random.normal(jax.random.key(seed), (size.steps,))

    def step(x: Any, dw: Any) -> Any:
        x = x - x * dt + dw
        return x, x

    _, path = jax.lax.scan(step, x0, dw)
    return jnp.append(x0, path)


def value(price: Price, at: Any, key: Any) -> Any:
    """The price alone."""
    return price(at, key)[None]


def forward(price: Price, at: Any, key: Any) -> Any:
    """The price and its derivatives along all unit vectors, by forward mode."""

    def along(direction: Any) -> Any:
        return jax.jvp(lambda at: price(at, key), (at,), (direction,))

    primal, slopes = jax.vmap(along, out_axes=(None, 0))(jnp.eye(len(at)))
    return jnp.append(primal, slopes)


def reverse(price: Price, at: Any, key: Any) -> Any:
    """The price and its derivatives, by reverse mode."""
    return jnp.append(*jax.value_and_grad(price)(at, key))


def averaged(mode: Callable[..., Any], price: Price, at: dict[str, float], size: Size) -> Any:
    """What is timed: one jitted call of ``mode`` on all blocks of paths, one after another."""

    @jax.jit
    def run(at: Any, seed: Any) -> Any:
        keys = jax.random.split(jax.random.key(seed), size.paths // size.block)
        return jax.lax.map(partial(mode, price, at), keys).mean(0)

    point = jnp.array(list(at.values()))
    return lambda seed: [jax.block_until_ready(run(point, seed))]


def tangent(path: Callable[[Any, Any, Size], Any], size: Size) -> Any:
    """What is timed for ``ou``: one jitted call of ``jax.jvp`` of the path in its start."""

    @jax.jit
    def run(x0: Any, seed: Any) -> Any:
        return jax.jvp(lambda x0: path(x0, seed, size), (x0,), (jnp.ones_like(x0),))

    x0 = jnp.array(OU_X0)
    return lambda seed: jax.block_until_ready(run(x0, seed))


def gbm(size: Size) -> list[Row]:
    """Rows of ``gbm``."""
    price = partial(gbm_price, size=size)
    return [
        measure("JAX scan", PRICE, averaged(value, price, GBM, size), size),
        measure("JAX scan, jvp", DELTA, averaged(forward, price, GBM, size), size),
        measure("JAX scan, reverse", DELTA, averaged(reverse, price, GBM, size), size),
    ]


def heston(size: Size) -> list[Row]:
    """Rows of ``heston``."""
    price = partial(heston_price, size=size)
    lean = partial(price, recompute=True)
    return [
        measure("JAX scan", PRICE, averaged(value, price, HESTON, size), size),
        measure("JAX scan, jvp", SEVEN, averaged(forward, price, HESTON, size), size),
        measure("JAX scan, reverse", SEVEN, averaged(reverse, lean, HESTON, size), size),
    ]


def ou(size: Size) -> list[Row]:
    """Rows of ``ou``, in double precision."""
    jax.config.update("jax_enable_x64", True)
    return [measure("JAX scan, jvp", PATH, tangent(ou_path, size), size, "float64")]


if __name__ == "__main__":
    size = asked()
    report({"gbm": gbm, "heston": heston, "ou": ou}[size.job](size), ["jax", "jaxlib"])
