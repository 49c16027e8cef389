"""A model, a payoff and a grid, checked, from which estimators make their simulations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from sdesens._checks import check_choice, check_count, numbers
from sdesens.errors import UnsupportedError
from sdesens.fused.system import Direction, Motion
from sdesens.montecarlo.arguments import check_functionals, component_names, distinct, problem_of
from sdesens.montecarlo.functionals import Functional, Integral
from sdesens.montecarlo.laws import Conditioning, conditioning
from sdesens.montecarlo.simulation import Simulation, State
from sdesens.pricing.payoffs import Asset, Payoff
from sdesens.pricing.report import GREEKS, key_of, names_of, said_of
from sdesens.problem import Problem
from sdesens.sde import SDE

_NAMES = ("spot", "spots", "forward")  # what a payoff is written on unless it says so
_DISCOUNT = "integral_of_the_rate"

Amount = Callable[[State], Tensor]


class Holder(nn.Module):
    """Model and payoff, so that a derivative can be taken in the numbers of both."""

    def __init__(self, model: nn.Module, payoff: Payoff) -> None:
        super().__init__()
        self.model, self.payoff = model, payoff


@dataclass(frozen=True)
class Scenario:
    """What is to be valued.

    Attributes:
        problem: the model with its start and its scheme.
        payoff: what is paid.
        asset: the component it is written on.
        steps: number of equal steps up to the payoff's maturity.
        scheme: how a step is made.
        holder: model and payoff.
    """

    problem: Problem
    payoff: Payoff
    asset: Asset | None
    steps: int
    scheme: str
    holder: Holder

    @classmethod
    def of(
        cls,
        model: Any,
        payoff: Any,
        x0: Tensor | Sequence[float],
        *,
        steps: int,
        scheme: str,
        dtype: torch.dtype,
        on_grid: bool = True,
    ) -> Scenario:
        """Check the arguments of a valuation; ``on_grid``: also that its dates are nodes."""
        if not isinstance(model, nn.Module):
            raise TypeError(
                f"model must be an SDE of sdesens or another torch.nn.Module that torchsde takes, "
                f"got {type(model).__name__}."
            )
        if not isinstance(payoff, Payoff):
            raise TypeError(
                f"payoff must be a payoff of sdesens.pricing, got {type(payoff).__name__}. Make "
                f"one of a function by sdesens.pricing.payoff(fn, dates, lipschitz=...)."
            )
        steps = check_count("steps", steps)
        if scheme == "auto":
            scheme = next(iter(getattr(model, "schemes", ())), "euler")
        x0 = _with_likelihood(model, x0)
        problem = problem_of(model, x0, payoff.maturity, steps, scheme, dtype=dtype)
        asset = _asset_of(model, payoff, problem.x0)
        scenario = cls(problem, payoff, asset, steps, scheme, Holder(model, payoff))
        scenario._check_start()
        if on_grid:
            _check_dates(payoff, steps)
            check_functionals(scenario.functionals, model, problem.x0, payoff.maturity, steps)
        scenario.simulation().output_names()  # the payoff is run once, on two paths
        return scenario

    @property
    def model(self) -> Any:
        """The model."""
        return self.problem.sde

    @property
    def maturity(self) -> float:
        """When the payoff is paid."""
        return self.payoff.maturity

    @cached_property
    def conditioning(self) -> Conditioning | None:
        """In which channel the asset is (log-)normal in a step, if it is."""
        if self.asset is None or self.asset.size is not None:
            return None
        found = conditioning(self.model, self.scheme)
        if found is None or list(self.model.state)[found.column] != self.asset.name:
            return None
        return found

    @property
    def functionals(self) -> dict[str, Functional]:
        """What the payoff gathers along the path."""
        return {} if self.asset is None else self.payoff.functionals(self.asset)

    def simulation(
        self,
        functionals: Mapping[str, Functional] | None = None,
        amount: Amount | None = None,
    ) -> Simulation:
        """The simulation of the discounted amount, by default that of the payoff."""
        functionals = dict(self.functionals if functionals is None else functionals)
        if self.has_short_rate:
            functionals[_DISCOUNT] = Integral("rate")
        amount = self.payoff.cash if amount is None else amount
        needed = any(f.uses_law for f in functionals.values())
        if needed and self.conditioning is None:
            raise ValueError(
                f"{type(self.payoff).__name__} is watched between the dates, for which the law of "
                f"a step must be known; {type(self.model).__name__} does not say it of the scheme "
                f"{self.scheme!r}. Watch it at dates=, or declare conditionally_lognormal or "
                f"conditionally_normal on the model."
            )

        def paid(end: State) -> Tensor:
            value = amount(self._with_asset(end))
            if isinstance(value, Tensor):
                value = self.discount(end) * value
                if getattr(self.model, "likelihood", None):
                    value = value * getattr(end, self.model.likelihood)
            return value

        return Simulation(
            self.problem, self.maturity, self.steps, self.scheme, paid, functionals, (),
            self.conditioning if needed else None, self.holder,
        )  # fmt: skip

    @cached_property
    def bare(self) -> Motion:
        """The model alone, with nothing gathered."""
        return self.simulation({}, lambda end: end.y[:, 0]).motion()

    def first_step(self, noise: Tensor) -> Tensor:
        """The state after a step from the start with this noise, ``(P, M)`` to ``(P, D)``."""
        motion = self.bare
        h = torch.tensor(self.maturity / self.steps, dtype=noise.dtype)
        flags = noise.new_zeros(motion.flags)
        return motion.step(h * 0, h, h, motion.y.expand(noise.shape[0], -1), noise, flags)

    @property
    def has_short_rate(self) -> bool:
        """Whether the rate that discounts is a component of the state."""
        model = self.model
        return isinstance(model, SDE) and "rate" in model.state and not hasattr(model, "rate")

    def discount(self, end: State) -> Tensor | float:
        """The discount factor: of the model's rate, of the path of its short rate, or one."""
        if self.has_short_rate:
            return torch.exp(-getattr(end, _DISCOUNT))
        rate = getattr(self.model, "rate", None)
        return torch.exp(-rate * end.time) if isinstance(rate, Tensor) else 1.0

    def _with_asset(self, end: State) -> State:
        if self.asset is None:
            return end
        return State(**{**vars(end), "asset": getattr(end, self.asset.name)})

    def _check_start(self) -> None:
        model, law = self.model, self.conditioning
        starts = dict(model.starts) if isinstance(model, SDE) else {}
        components = component_names(model, self.problem.x0.shape[1])
        if law is not None and law.lognormal:  # a model of the user's may not have said so
            starts[components[law.column]] = "positive"
        for name, start in zip(components, self.problem.x0[0].tolist(), strict=True):
            where = starts.get(name, starts.get(name.partition("[")[0]))
            if (where == "positive" and start <= 0) or (where == "nonnegative" and start < 0):
                range_ = "above 0" if where == "positive" else "at 0 or above"
                raise ValueError(
                    f"x0 must start {name!r} {range_}, got {start:g} for {type(model).__name__}."
                )

    # --- inputs of the derivatives ---------------------------------------------------------------

    @cached_property
    def inputs(self) -> dict[str, list[Direction]]:
        """What can be differentiated in: by the name a user gives it, its entries."""
        d, model = self.problem.x0.shape[1], self.model
        hidden = getattr(model, "likelihood", None)
        out: dict[str, list[Direction]] = {}
        start = [k for k, name in enumerate(component_names(model, d)) if name != hidden]
        out["x0"] = [("x0", k) for k in start]
        for k in start:
            out[component_names(model, d)[k]] = [("x0", k)]
        if isinstance(model, SDE):
            first = 0
            for name, size in zip(model.state, model.sizes, strict=True):
                if size is not None:
                    out[name] = [("x0", first + k) for k in range(size)]
                first += 1 if size is None else size
        for part in ("model", "payoff"):
            module = getattr(self.holder, part)
            known = dict(module.named_parameters())
            for name in distinct(known):
                if name in out or name == "maturity":
                    raise ValueError(
                        f"{name!r} names two inputs, one of them a parameter of "
                        f"{type(module).__name__}. Rename that parameter."
                    )
                out[name] = [(f"{part}.{name}", k) for k in range(known[name].numel())]
        out["maturity"] = [("maturity", 0)]
        return out

    def directions(self, wrt: str | Sequence[str]) -> list[Direction]:
        """The entries of every input of ``wrt``, each once."""
        if wrt == "all":
            own = [name for name, entries in self.inputs.items() if entries and (
                entries[0][0].startswith("model."))]  # fmt: skip
            wrt = ("x0", *own, "maturity")
        if not isinstance(wrt, Iterable):
            raise TypeError(f"wrt must be a name or names, got {wrt!r}.")
        wrt = (wrt,) if isinstance(wrt, str) else tuple(wrt)
        out: list[Direction] = []
        for name in wrt:
            if name not in self.inputs and name in GREEKS:
                raise ValueError(f"wrt takes inputs, got {name!r}. {self._asked_for(name)}")
            check_choice("wrt", name, self.inputs)
            for direction in self.inputs[name]:
                if direction in out:
                    raise ValueError(f"wrt names {name!r} more than once: {list(wrt)}.")
                out.append(direction)
        if getattr(self.model, "is_singular", False) and any(n == "model.rho" for n, _ in out):
            raise UnsupportedError(
                f"nothing has a derivative in 'rho' where the correlation of "
                f"{type(self.model).__name__} is singular (1 or -1). Leave it out: wrt="
                f"{tuple(dict.fromkeys(n for n in wrt if n != 'rho'))}."
            )
        return out

    def _asked_for(self, greek: str) -> str:
        """What to ask for to have ``greek``."""
        names = names_of(greek, None if self.asset is None else self.asset.name)
        said = said_of(greek, names)
        missing = [name for name in names if name not in self.inputs]
        if missing:
            return f"{said}, which is no input here; the inputs: {list(self.inputs)}."
        wrt = key_of(tuple(dict.fromkeys(names)))
        order = ", order=2" if len(names) == 2 else ""
        return f"{said}: wrt={wrt!r}{order}; the report has .{greek}."

    def label(self, direction: Direction) -> str:
        """The name of a single entry, ``"sigma[1]"`` for one of several."""
        name, entry = direction
        if name == "x0":
            return component_names(self.model, self.problem.x0.shape[1])[entry]
        if name == "maturity":
            return name
        short = name.partition(".")[2]
        shape = self.holder.get_parameter(name).shape
        if not shape:
            return short
        at = torch.unravel_index(torch.tensor(entry), shape)
        return short + str([int(i) for i in at])


def _check_dates(payoff: Payoff, steps: int) -> None:
    """Raise unless the payoff's dates are nodes of the grid; with a number of steps that does."""

    def off_grid(steps: int) -> list[float]:
        nodes = [(t, t / payoff.maturity * steps) for t in getattr(payoff, "dates", None) or ()]
        return [t for t, node in nodes if abs(node - round(node)) > 1e-6]

    wrong = off_grid(steps)
    if wrong:
        fitting = next((n for n in range(steps, 20 * steps + 1000) if not off_grid(n)), None)
        cure = f"Use steps={fitting}" if fitting else "Use another number of steps"
        nearest = round(wrong[0] / payoff.maturity * steps) * payoff.maturity / steps
        raise ValueError(
            f"{payoff} is watched at {wrong[0]:g}, which is not on the grid of {steps} steps up to "
            f"{payoff.maturity:g}; the nearest node is {nearest:g}. {cure}, or change the dates."
        )


def _with_likelihood(model: Any, x0: Tensor | Sequence[float]) -> Tensor | Sequence[float]:
    """``x0`` with the start of the likelihood, which is no number of the user's."""
    if not getattr(model, "likelihood", None):
        return x0
    start = x0 if isinstance(x0, Tensor) else numbers("x0", x0)
    if start.shape == (model.dim - 1,):
        start = start if start.is_floating_point() else start.double()
        start = torch.cat([start, start.new_ones(1)])
    return start


def _asset_of(model: Any, payoff: Payoff, x0: Tensor) -> Asset | None:
    if payoff.assets is None:
        return None
    if not isinstance(model, SDE):
        if x0.shape[1] != 1 and payoff.of is None:
            raise ValueError(
                f"{type(payoff).__name__} must be told the component it is written on: "
                f"{type(model).__name__} is no SDE of sdesens and its components have no names. "
                f"Write it as an sdesens.SDE."
            )
        raise TypeError(
            f"model must be an SDE of sdesens, whose components have names, got "
            f"{type(model).__name__}."
        )
    name = payoff.of
    hidden = getattr(model, "likelihood", None)
    state = [n for n in model.state if n != hidden]
    if name is None:
        name = next((n for n in _NAMES if n in state), state[0] if len(state) == 1 else None)
    if name is None:
        raise ValueError(
            f"{type(payoff).__name__} must be told by of= which of the components {state} of "
            f"{type(model).__name__} it is written on."
        )
    check_choice("of", name, state)
    size = dict(zip(model.state, model.sizes, strict=True))[name]
    if payoff.assets != "any" and (size is None) != (payoff.assets == "one"):
        what = "one asset" if payoff.assets == "one" else "a block of several assets"
        has = "a plain component" if size is None else f"a block of {size}"
        fitting = (
            "Basket, BestOf, WorstOf, Exchange" if size else "Call, Digital, Barrier and others"
        )
        raise ValueError(
            f"{type(payoff).__name__} is written on {what}, but {name!r} of "
            f"{type(model).__name__} is {has}. For that there are {fitting}, and any function by "
            f"sdesens.pricing.payoff."
        )
    return Asset(name, size)
