"""Hand-written ``jax.lax.scan`` with forward and reverse mode; float32 but for the one path."""

from __future__ import annotations

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import jax.numpy as jnp
from clock import report

ROUNDS = int(sys.argv[1])
PATHS, STEPS = 65536, 100
KEY = jax.random.key(0)


def normals(k, shape, dtype=jnp.float32):
    """The noise of step ``k``."""
    return jax.random.normal(jax.random.fold_in(KEY, k), shape, dtype)


def gbm(x0):
    """Undiscounted call on geometric Brownian motion."""
    dt = 1.0 / STEPS

    def step(x, k):
        return x * (1 + 0.05 * dt + 0.2 * dt**0.5 * normals(k, (PATHS,))), None

    x, _ = jax.lax.scan(step, jnp.full((PATHS,), x0), jnp.arange(STEPS))
    return jnp.mean(jnp.maximum(x - 100.0, 0.0))


def heston(theta):
    """Discounted call; ``theta`` is S0, v0, r, kappa, theta, xi, rho."""
    s0, v0, r, kappa, level, xi, rho = theta
    dt = 1.0 / STEPS

    def step(state, k):
        s, v = state
        z = normals(k, (2, PATHS)) * dt**0.5
        positive = v > 0
        root = jnp.where(positive, jnp.sqrt(jnp.where(positive, v, 1.0)), 0.0)
        w2 = rho * z[0] + jnp.sqrt(1 - rho**2) * z[1]
        return (
            s + r * s * dt + root * s * z[0],
            v + kappa * (level - v) * dt + xi * root * w2,
        ), None

    start = jnp.full((PATHS,), s0), jnp.full((PATHS,), v0)
    (s, _), _ = jax.lax.scan(step, start, jnp.arange(STEPS))
    return jnp.exp(-r) * jnp.mean(jnp.maximum(s - 100.0, 0.0))


def main() -> None:
    """Time every job."""
    scale = 1e9 / (PATHS * STEPS)
    x0, theta = jnp.float32(100.0), jnp.array([100.0, 0.04, 0.03, 1.5, 0.04, 0.3, -0.7])
    forward = jax.jit(lambda x: jax.jvp(gbm, (x,), (jnp.ones_like(x),)))
    reverse = jax.jit(jax.value_and_grad(gbm))
    for name, call in (("gbm jvp", forward), ("gbm reverse", reverse)):
        price, delta = map(float, call(x0))
        values = {"value": price, "derivatives": [delta]}
        report(name, lambda call=call: jax.block_until_ready(call(x0)), scale, ROUNDS, values)
    price = jax.jit(heston)
    seven = jax.jit(
        lambda t: jax.vmap(lambda u: jax.jvp(heston, (t,), (u,)), out_axes=(None, 0))(jnp.eye(7))
    )
    back = jax.jit(jax.value_and_grad(heston))
    report(
        "heston price",
        lambda: jax.block_until_ready(price(theta)),
        scale,
        ROUNDS,
        {"value": float(price(theta)), "derivatives": []},
    )
    for name, call in (("heston jvp", seven), ("heston reverse", back)):
        value, slopes = call(theta)
        values = {"value": float(value), "derivatives": [float(d) for d in slopes]}
        report(name, lambda call=call: jax.block_until_ready(call(theta)), scale, ROUNDS, values)
    with jax.enable_x64(True):
        one_path()


def one_path() -> None:
    """OU, 100 times, every derivative in x0."""
    dt = 1.0 / 99

    def path(x0):
        def step(x, k):
            x = x - x * dt + dt**0.5 * normals(k, (), jnp.float64)
            return x, x

        return jax.lax.scan(step, x0, jnp.arange(99))[1]

    call = jax.jit(lambda x: jax.jvp(path, (x,), (jnp.ones_like(x),)))
    x0 = jnp.zeros((), jnp.float64)
    values = {"value": 0.0, "derivatives": [float(call(x0)[1][-1])]}
    report("ou jvp", lambda: jax.block_until_ready(call(x0)), 1e6, 50 * ROUNDS, values)


if __name__ == "__main__":
    main()
