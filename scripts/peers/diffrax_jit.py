"""diffrax under jit with forward mode.

``UnsafeBrownianPath`` draws each step by itself and is its fastest noise; ``VirtualBrownianTree``
is the one its documentation recommends.
"""

from __future__ import annotations

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import diffrax
import jax
import jax.numpy as jnp
from clock import report

ROUNDS = int(sys.argv[1])
PATHS, STEPS = 16384, 100
KEYS = jax.random.split(jax.random.key(0), PATHS)


def solve(drift, diffusion, y0, noise, steps, saveat):
    """The solution by Euler with ``steps`` equal steps up to 1."""
    terms = diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(diffusion, noise))
    return diffrax.diffeqsolve(
        terms, diffrax.Euler(), 0.0, 1.0, dt0=1.0 / steps, y0=y0, saveat=saveat,
        stepsize_controller=diffrax.ConstantStepSize(), adjoint=diffrax.DirectAdjoint(),
        max_steps=steps + 1,
    ).ys  # fmt: skip


def gbm(x0):
    """Undiscounted call on geometric Brownian motion."""

    def end(key):
        noise = diffrax.UnsafeBrownianPath(shape=(), key=key)
        drift, diffusion = (lambda t, y, args: 0.05 * y), (lambda t, y, args: 0.2 * y)
        return solve(drift, diffusion, x0, noise, STEPS, diffrax.SaveAt(t1=True))[0]

    return jnp.mean(jnp.maximum(jax.vmap(end)(KEYS) - 100.0, 0.0))


def heston(theta):
    """Discounted call; ``theta`` is S0, v0, r, kappa, theta, xi, rho."""
    s0, v0, r, kappa, level, xi, rho = theta

    def root(v):
        return jnp.where(v > 0, jnp.sqrt(jnp.where(v > 0, v, 1.0)), 0.0)

    def drift(t, y, args):
        return jnp.stack([r * y[0], kappa * (level - y[1])])

    def diffusion(t, y, args):
        s, v = y[0], root(y[1])
        rest = jnp.sqrt(1 - rho**2)
        return jnp.stack([jnp.stack([v * s, 0.0 * v]), jnp.stack([xi * rho * v, xi * rest * v])])

    def end(key):
        noise = diffrax.UnsafeBrownianPath(shape=(2,), key=key)
        return solve(drift, diffusion, jnp.stack([s0, v0]), noise, STEPS, diffrax.SaveAt(t1=True))[
            0, 0
        ]

    return jnp.exp(-r) * jnp.mean(jnp.maximum(jax.vmap(end)(KEYS) - 100.0, 0.0))


def one_path(name: str, noise) -> None:
    """OU, 100 times, every derivative in x0."""
    times = jnp.linspace(0.0, 1.0, 100)

    def path(x0):
        drift, diffusion = (lambda t, y, args: -y), (lambda t, y, args: jnp.ones_like(y))
        return solve(drift, diffusion, x0, noise(), 99, diffrax.SaveAt(ts=times))

    call = jax.jit(lambda x: jax.jvp(path, (x,), (jnp.ones_like(x),)))
    x0 = jnp.zeros(())
    values = {"value": 0.0, "derivatives": [float(call(x0)[1][-1])]}
    report(name, lambda: jax.block_until_ready(call(x0)), 1e6, 50 * ROUNDS, values)


def main() -> None:
    """Time every job."""
    scale = 1e9 / (PATHS * STEPS)
    x0, theta = jnp.float32(100.0), jnp.array([100.0, 0.04, 0.03, 1.5, 0.04, 0.3, -0.7])
    forward = jax.jit(lambda x: jax.jvp(gbm, (x,), (jnp.ones_like(x),)))
    price, delta = map(float, forward(x0))
    values = {"value": price, "derivatives": [delta]}
    report("gbm jvp", lambda: jax.block_until_ready(forward(x0)), scale, ROUNDS, values)
    seven = jax.jit(
        lambda t: jax.vmap(lambda u: jax.jvp(heston, (t,), (u,)), out_axes=(None, 0))(jnp.eye(7))
    )
    value, slopes = seven(theta)
    values = {"value": float(value), "derivatives": [float(d) for d in slopes]}
    report("heston jvp", lambda: jax.block_until_ready(seven(theta)), scale, ROUNDS, values)
    jax.config.update("jax_enable_x64", True)
    key = jax.random.key(0)
    one_path("ou jvp, unsafe path", lambda: diffrax.UnsafeBrownianPath(shape=(), key=key))
    one_path(
        "ou jvp, virtual tree",
        lambda: diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-3, shape=(), key=key),
    )


if __name__ == "__main__":
    main()
