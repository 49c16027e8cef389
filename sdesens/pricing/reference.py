"""The value of a payoff and its derivatives where a model knows it in closed form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sdesens._parameters import Places, known_parameters
from sdesens.errors import UnsupportedError
from sdesens.fused.system import Direction
from sdesens.pricing.payoffs import Payoff
from sdesens.pricing.report import Name
from sdesens.pricing.scenario import Scenario

_STEPS = 1000  # of a grid on which nothing is run


def closed_form_greeks(
    model: Any,
    payoff: Payoff,
    x0: Tensor | Sequence[float],
    *,
    wrt: str | Sequence[str] = "all",
    order: int = 1,
) -> dict[Name, float]:
    """The value and its derivatives by ``model.closed_form`` and autograd, no paths simulated.

    Args:
        model: with a method ``closed_form(payoff, x0, maturity)``.
        payoff, x0, wrt, order: as in :func:`sdesens.greeks`.

    Returns:
        Numbers under the names of :class:`~sdesens.pricing.Report`: ``()`` the price, ``("spot",)``
        a first derivative, ``("spot", "sigma")`` a second.

    Raises:
        UnsupportedError: if the model has no closed form for the payoff.

    Example:
        >>> from sdesens.models import BlackScholes
        >>> from sdesens.pricing import Call, closed_form_greeks
        >>> greeks = closed_form_greeks(BlackScholes(0.05, 0.2), Call(100.0, 1.0), [100.0], order=2)
        >>> round(greeks["spot", "spot"], 6)
        0.018762
    """
    scenario = Scenario.of(
        model, payoff, x0, steps=_STEPS, scheme="auto", dtype=torch.float64, on_grid=False
    )
    directions = scenario.directions(wrt)
    known = closed_form_derivatives(scenario, order, directions)
    return {tuple(scenario.label(d) for d in key): value for key, value in known.items()}


def closed_form_derivatives(
    scenario: Scenario, order: int, directions: Sequence[Direction]
) -> dict[tuple[Direction, ...], float]:
    """The same by direction."""
    method: Callable[..., Tensor | None] | None = getattr(scenario.model, "closed_form", None)
    holder, payoff = scenario.holder, scenario.payoff
    names = list(dict.fromkeys(n for n, _ in directions if n in known_parameters(holder)))
    places = Places(holder, names)
    leaves = {
        name: value.detach().clone().requires_grad_()
        for name, value in zip(names, places.values(), strict=True)
    }
    leaves["x0"] = scenario.problem.x0[0].detach().double().requires_grad_()
    leaves["maturity"] = torch.tensor(payoff.maturity, dtype=torch.float64).requires_grad_()
    with places.holding({name: leaves[name] for name in names}), torch.enable_grad():
        price = None
        if method is not None:
            price = method(payoff, leaves["x0"], leaves["maturity"])
        if price is None:
            raise UnsupportedError(
                f"{type(scenario.model).__name__} has no closed form for {payoff}."
            )
        out: dict[tuple[Direction, ...], float] = {(): price.item()}
        first = _gradient(price, leaves, graph=order == 2)
        for k, (name, entry) in enumerate(directions):
            slope = first[name].reshape(-1)[entry]
            out[(directions[k],)] = slope.item()
            if order == 2:
                second = _gradient(slope, leaves, graph=True)
                for other, place in directions[k:]:
                    value = second[other].reshape(-1)[place].item()
                    out[directions[k], (other, place)] = value
    return out


def _gradient(value: Tensor, leaves: dict[str, Tensor], *, graph: bool) -> dict[str, Tensor]:
    if not value.requires_grad:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    grads = torch.autograd.grad(
        value, list(leaves.values()), create_graph=graph, retain_graph=True, allow_unused=True
    )
    return {
        name: torch.zeros_like(leaf) if grad is None else grad
        for (name, leaf), grad in zip(leaves.items(), grads, strict=True)
    }
