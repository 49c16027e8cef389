"""The models that the scripts choose from by ``--model``: values, start, and words for the axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sdesens import SDE
from sdesens.models import (
    CEV,
    CIR,
    SABR,
    BlackScholes,
    GeometricBrownianMotion,
    Heston,
    LocalVolatility,
    MertonJumpDiffusion,
    NeuralSDE,
    OrnsteinUhlenbeck,
    Vasicek,
)


@dataclass(frozen=True)
class Component:
    """A component of the state: its letter, its name and its unit."""

    letter: str
    name: str = ""
    unit: str = ""

    @property
    def in_unit(self) -> str:
        """The unit behind a label; empty if there is none."""
        return f" ({self.unit})" if self.unit else ""

    @property
    def label(self) -> str:
        """As it stands at an axis."""
        return f"{self.name} ${self.letter}_t${self.in_unit}".strip()


@dataclass(frozen=True)
class Choice:
    """A model by name.

    Attributes:
        title: what it is called in print.
        make: makes it.
        start: the state at time 0.
        components: what the state is made of.
        parameters: parameters with a derivative, as they are drawn; their letters by name.
        horizon: until when, in units of time.
        years: whether time is in years.
        asset: the component that payoffs are written on, None if there is no such.
        vega: the input that stands for volatility, a parameter or a component, and its letter.
        solved: whether it has drift and diffusion, which sensitivities along a path need.
        compiled: whether the fused engine can compile it, without which many paths take too long.
    """

    title: str
    make: Callable[[], SDE]
    start: tuple[float, ...]
    components: tuple[Component, ...]
    parameters: dict[str, str]
    horizon: float = 1.0
    years: bool = True
    asset: str | None = None
    vega: tuple[str, str] | None = None
    solved: bool = True
    compiled: bool = True

    @property
    def time(self) -> str:
        """Label of the axis of time."""
        return "time $t$ (years)" if self.years else "time $t$"

    def samples(self, count: int) -> Tensor:
        """So many copies of the start, ``(B, d)``."""
        return torch.tensor([self.start], dtype=torch.float64).repeat(count, 1)

    def entry(self, wrt: str, shape: Sequence[int]) -> tuple[int, ...] | None:
        """The first entry of an input of several, None of a single number."""
        return (0,) * len(shape) if math.prod(shape) > 1 else None

    def letters(self, wrt: str) -> list[str]:
        """An input in the model's letters; of the start there is one for each component."""
        if wrt == "x0":
            return [f"{component.letter}_0" for component in self.components]
        return [self.parameters[wrt]]

    def derivative(self, wrt: str) -> str:
        """``dX_t/dx0`` of the first component in itself, or ``dX_t/dθ``, in the model's letters."""
        return f"$d{self.components[0].letter}_t / d{self.letters(wrt)[0]}$"


SPOT = Component("S", "spot", "EUR")
RATE = Component("r", "short rate", "1/year")
SMILE_AT = torch.linspace(50, 200, 31, dtype=torch.float64)


def _local_volatility() -> SDE:
    vols = 0.15 + 2e-5 * (SMILE_AT - 100) ** 2
    return LocalVolatility(0.03, [0.0, 0.5, 1.0, 2.0], SMILE_AT, vols.expand(4, -1), shift=0.05)


CHOICES: dict[str, Choice] = {
    "ou": Choice(
        "Ornstein–Uhlenbeck",
        lambda: OrnsteinUhlenbeck(1.0, 0.5, 0.3), (1.5,), (Component("X"),),
        {"kappa": r"\kappa", "mean": r"\mu", "sigma": r"\sigma"}, horizon=4.0, years=False,
    ),
    "gbm": Choice(
        "geometric Brownian motion",
        lambda: GeometricBrownianMotion(0.05, 0.2), (100.0,), (Component("X"),),
        {"mu": r"\mu", "sigma": r"\sigma"}, years=False,
    ),
    "black-scholes": Choice(
        "Black–Scholes",
        lambda: BlackScholes(0.05, 0.2), (100.0,), (SPOT,),
        {"sigma": r"\sigma", "rate": "r"}, asset="spot", vega=("sigma", r"\sigma"),
    ),
    "heston": Choice(
        "Heston",
        lambda: Heston(0.03, 1.5, 0.04, 0.3, -0.7), (100.0, 0.04),
        (SPOT, Component("v", "variance", "1/year")),
        {"xi": r"\xi", "kappa": r"\kappa", "theta": r"\theta", "rho": r"\rho", "rate": "r"},
        asset="spot", vega=("variance", "v_0"),
    ),
    "cir": Choice(
        "CIR",
        lambda: CIR(1.5, 0.04, 0.2), (0.05,), (RATE,),
        {"xi": r"\xi", "kappa": r"\kappa", "theta": r"\theta"}, horizon=2.0,
    ),
    "vasicek": Choice(
        "Vasicek",
        lambda: Vasicek(0.5, 0.03, 0.01), (0.02,), (RATE,),
        {"kappa": r"\kappa", "mean": r"\mu", "sigma": r"\sigma"}, horizon=4.0,
    ),
    "sabr": Choice(
        "SABR",
        lambda: SABR(0.9, 0.4, -0.3), (1.0, 0.2),
        (Component("F", "forward", "EUR"), Component(r"\alpha", "volatility")),
        {"nu": r"\nu", "beta": r"\beta", "rho": r"\rho"},
        asset="forward", vega=("volatility", r"\alpha_0"),
    ),
    "cev": Choice(
        "CEV",
        lambda: CEV(0.05, 2.0, 0.5), (100.0,), (SPOT,),
        {"sigma": r"\sigma", "beta": r"\beta", "rate": "r"}, asset="spot",
        vega=("sigma", r"\sigma"),
    ),
    "merton": Choice(
        "Merton",
        lambda: MertonJumpDiffusion(0.05, 0.2, 0.75, -0.1, 0.15), (100.0, 1.0),
        (SPOT, Component("L", "likelihood")),
        {"sigma": r"\sigma", "intensity": r"\lambda", "rate": "r"}, asset="spot",
        vega=("sigma", r"\sigma"), solved=False,
    ),
    "local-volatility": Choice(
        "local volatility",
        _local_volatility, (100.0,), (SPOT,),
        {"shift": r"\sigma", "rate": "r"}, compiled=False,
    ),
    "neural": Choice(
        "neural SDE",
        lambda: NeuralSDE(1, 4, seed=2), (0.3,), (Component("X"),),
        {"noise_scale": "s", "outer_bias": "c", "inner": "U", "outer": "V"}, years=False,
    ),
}  # fmt: skip

SOLVED = tuple(name for name, choice in CHOICES.items() if choice.solved)
COMPILED = tuple(name for name in SOLVED if CHOICES[name].compiled)
PRICED = tuple(name for name, choice in CHOICES.items() if choice.asset)
