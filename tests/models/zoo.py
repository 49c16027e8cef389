"""One of every model, and its own schemes stepped in plain torch on given normals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sdesens._parameters import Places
from sdesens.models import (
    CEV,
    CIR,
    SABR,
    BlackScholes,
    GeometricBrownianMotion,
    Heston,
    LocalVolatility,
    MertonJumpDiffusion,
    MultiAssetBlackScholes,
    NeuralSDE,
    OrnsteinUhlenbeck,
    Vasicek,
)
from sdesens.sde import SDE

SPOTS = torch.linspace(50, 200, 31, dtype=torch.float64)

MODELS: dict[str, tuple[SDE, list[float]]] = {
    "black-scholes": (BlackScholes(0.05, 0.2, 0.01), [100.0]),
    "gbm": (GeometricBrownianMotion(0.05, 0.2), [1.2]),
    "ou": (OrnsteinUhlenbeck(1.3, 0.2, 0.4), [0.7]),
    "vasicek": (Vasicek(0.5, 0.03, 0.01), [0.02]),
    "cir": (CIR(1.5, 0.04, 0.3), [0.05]),
    "cir, hard": (CIR(0.5, 0.04, 1.0), [0.04]),
    "heston": (Heston(0.03, 1.5, 0.04, 0.3, -0.7, 0.01), [100.0, 0.05]),
    "heston, hard": (Heston(0.025, 1.5768, 0.0398, 0.5751, -0.5711), [100.0, 0.0175]),
    "sabr": (SABR(0.6, 0.4, -0.3), [1.1, 0.3]),
    "cev": (CEV(0.05, 0.3, 0.5, 0.01), [1.3]),
    "assets": (
        MultiAssetBlackScholes(0.05, [0.2, 0.3, 0.4], [0.5, 0.1, -0.2], [0.0, 0.01, 0.02]),
        [100.0, 90.0, 1.5],
    ),
    "assets, one dividend": (MultiAssetBlackScholes(0.05, [0.2, 0.3], [0.5], 0.01), [100.0, 9.0]),
    "merton": (MertonJumpDiffusion(0.05, 0.2, 0.75, -0.1, 0.15, 0.01), [100.0, 1.0]),
    "local volatility": (
        LocalVolatility(
            0.03, [0.0, 0.5, 1.0, 2.0], SPOTS, (0.2 + 1e-5 * (SPOTS - 100) ** 2).expand(4, -1)
        ),
        [100.0],
    ),
    "neural": (NeuralSDE(2, 4, seed=2), [0.3, -0.2]),
}
EQUATIONS = {k: v for k, v in MODELS.items() if not v[0].runs_by_schemes_alone}
SCHEMES = [(name, scheme) for name, (model, _) in MODELS.items() for scheme in model.schemes]


def number(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def channels(model: SDE, scheme: str) -> int:
    """Normals a step."""
    y = torch.ones(1, model.dim, dtype=torch.float64)
    if scheme in model.scheme_channels:
        return model.scheme_channels[scheme]
    return model.g(number(0.0), y).shape[-1]


def draw(model: SDE, scheme: str, steps: int, paths: int, seed: int = 0) -> Tensor:
    """Normals ``(steps, m, paths)``, float64."""
    generator = torch.Generator().manual_seed(seed)
    shape = (steps, channels(model, scheme), paths)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def step(model: SDE, scheme: str, dt: Tensor, z: Tensor, y: Tensor) -> Tensor:
    """One step of ``y (P, d)`` on ``z (m, P)``; ``"euler"`` too."""
    t = torch.zeros_like(dt)
    if scheme == "euler":
        g, moved = model.g(t, y), dt.sqrt() * z.T
        noise = g * moved if model.noise_type == "diagonal" else (g @ moved.unsqueeze(-1))[..., 0]
        return y + model.f(t, y) * dt + noise
    parts = model.components(y)
    return model.join(getattr(model, f"step_{scheme}")(t, dt, z, *parts), parts)


def walk(model: SDE, scheme: str, x0: Any, z: Tensor, maturity: Any = 1.0) -> Tensor:
    """The end ``(P, d)`` of paths from ``x0 (d,)`` on ``z (steps, m, P)``, without a graph."""
    with torch.no_grad():
        return traced_walk(model, scheme, x0, z, maturity)


def traced_walk(model: SDE, scheme: str, x0: Any, z: Tensor, maturity: Any = 1.0) -> Tensor:
    """:func:`walk`, differentiable in everything."""
    y = torch.as_tensor(x0, dtype=torch.float64).expand(z.shape[-1], -1)
    dt = torch.as_tensor(maturity, dtype=torch.float64) / z.shape[0]
    for normals in z:
        y = step(model, scheme, dt, normals, y)
    return y


class Inputs:
    """A walk as a function of everything it depends on, one flat tensor."""

    def __init__(self, model: SDE, scheme: str, x0: Sequence[float], z: Tensor) -> None:
        self.model, self.scheme, self.z = model, scheme, z
        self.named = {n: p.detach() for n, p in model.named_parameters()}
        self.sizes = [len(x0), *(p.numel() for p in self.named.values()), 1]
        parts = [number(x0), *(p.flatten() for p in self.named.values()), number([1.0])]
        self.at = torch.cat(parts)
        entries = [[n] * p.numel() for n, p in self.named.items()]
        self.labels = ["x0"] * len(x0) + [n for row in entries for n in row] + ["maturity"]

    def __call__(self, at: Tensor) -> Tensor:
        """The end of the walk, ``(P, d)``."""
        x0, *parameters, maturity = at.split(self.sizes)
        values = {
            name: part.reshape(like.shape)
            for (name, like), part in zip(self.named.items(), parameters, strict=True)
        }
        with Places(self.model, list(values)).holding(values):
            return traced_walk(self.model, self.scheme, x0, self.z, maturity[0])

    def along(self, k: int, at: Tensor) -> Tensor:
        """The derivative in entry ``k``."""
        unit = torch.zeros_like(self.at)
        unit[k] = 1.0
        return torch.func.jvp(self, (at,), (unit,))[1]

    def twice(self, j: int, k: int) -> Tensor:
        """The second derivative in entries ``j`` and ``k``."""
        unit = torch.zeros_like(self.at)
        unit[j] = 1.0
        return torch.func.jvp(lambda at: self.along(k, at), (self.at,), (unit,))[1]


def assert_mean(samples: Tensor, value: float, bound: float = 4.0) -> None:
    """The mean of samples is ``value`` within ``bound`` standard errors."""
    error = (samples.std() / samples.numel() ** 0.5).item()
    z = abs(samples.mean().item() - value) / max(error, 1e-14 * abs(value) + 1e-300)
    assert z < bound, f"{samples.mean().item()} ± {error}, expected {value}: {z:.1f} errors"


def assert_variance(samples: Tensor, mean: float, value: float) -> None:
    """The variance about the known mean is ``value``, within 4 standard errors."""
    assert_mean((samples - mean) ** 2, value)
