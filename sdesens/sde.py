"""Models: :class:`SDE`, written by component, and one view of every object torchsde accepts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sdesens._checks import check_choice, did_you_mean, numbers
from sdesens.errors import UnsupportedError

SDE_TYPES = ("ito", "stratonovich")
NOISE_TYPES = ("diagonal", "scalar", "additive", "general")
FUNCTIONS = ("f", "g", "f_and_g", "g_prod", "f_and_g_prod")
_NAMES = {
    "drift": "f",
    "diffusion": "g",
    "drift_and_diffusion": "f_and_g",
    "diffusion_prod": "g_prod",
    "drift_and_diffusion_prod": "f_and_g_prod",
}

Number = Tensor | float


class SDE(nn.Module):
    r"""A stochastic differential equation written as its textbook equation, by component.

    A subclass names its state and gives ``drift`` and ``diffusion``; the torchsde view
    (``f(t, y)``, ``g(t, y)`` on ``(batch, d)`` tensors) follows, so a model also runs in
    ``torchsde.sdeint`` as it is.

    Class attributes:
        state: names of the components, ``("spot", "variance")``, or a dict of name to size,
            ``{"spots": 50}``, where a component is a block of like ones. May be set on the
            instance.
        noise_type: ``"diagonal"``, ``"scalar"``, ``"additive"`` or ``"general"``.
        sde_type: ``"ito"`` or ``"stratonovich"``.

    Shapes: a component is a tensor ``(P,)``, paths last; a block of ``n`` is ``(n, P)``. ``t`` is a
    scalar tensor.

    * ``drift(t, *components)`` returns one entry per component.
    * ``diffusion(t, *components)`` returns, for diagonal noise, one entry per component;
      for scalar noise too (its one channel); otherwise one row per component, a row being a tuple
      of one entry per Brownian channel, or one tensor with the channels just before the paths:
      ``(m, P)``, for a block ``(n, m, P)``.

    A model may bring one-step maps of its own for :func:`sdesens.montecarlo.run`: ``schemes`` names
    them, and the method ``step_<name>(t, dt, normals, *components)`` returns the components at
    ``t + dt``, with independent standard ``normals`` of shape ``(m, P)``. There are as many normals
    as the diffusion has channels, unless ``scheme_channels`` gives another number for the scheme. A
    model that jumps has no drift and diffusion to give: without both it runs by its own schemes
    alone, and every solver of torchsde is refused.

    What such a scheme is known to do may be declared, for estimators that rely on it (all empty by
    default; nothing is inferred, and a wrong declaration gives wrong numbers):

    * ``conditionally_lognormal``: for a scheme, ``(component, channel)``: the component S moves as
      ``S' = S exp(a + b z)`` with the normal z of that channel, where a and b depend on the other
      components and the other normals alone, and no other component depends on z. A method
      ``exponent_<scheme>``, of the arguments of the step, may return a and b²; else they are found
      by differentiating the step, which costs more.
    * ``conditionally_normal``: likewise ``X' = a + b z``, where a and b may also depend on X. The
      scheme may be ``"euler"``, whose normals are the increments over ``sqrt(dt)``.
    * ``likelihood``: name of a component that starts at 1 and stays at 1, and whose derivatives are
      those of the probability of what the path has drawn so far, over it (its score). Every payoff
      must be multiplied by it before it is differentiated.

    Where its components may start may be declared too: ``starts`` names those that must be
    ``"positive"`` or ``"nonnegative"``. A valuation from elsewhere is refused.

    An entry is a number or a tensor that broadcasts to its component. A model of one component may
    return the entry itself.

    A model may add the derivative of both along a tangent in closed form:
    ``drift_tangent(t, *components, *tangents)`` and ``diffusion_tangent``, returning what ``drift``
    and ``diffusion`` return. Tangents have the shapes of the components, possibly behind one more
    leading axis of directions, so write with operations that broadcast. Keyword arguments named as
    parameters, with default None, extend a closed form to parameters: each is the tangent of that
    parameter, in its shape. Without closed forms (or with ``drift_tangent = None``) the exact
    forward-mode derivative is taken. A closed form is held against it at the start of the first
    path and at its end.

    A model that knows values of payoffs may say so by ``closed_form(payoff, x0, maturity)``: the
    discounted value of a :class:`~sdesens.pricing.Payoff`, a float64 number, or None where it does
    not know it. ``x0`` is ``(d,)``, and ``maturity`` a scalar that stands for the payoff's, whose
    dates move along in proportion. It is differentiated, any number of times, in both, in the
    model's parameters and in those of the payoff; :func:`sdesens.pricing.closed_form_greeks` and
    control variates use it.

    Example:
        >>> import torch, sdesens
        >>> class Vasicek(sdesens.SDE):
        ...     state, noise_type, sde_type = ("rate",), "additive", "ito"
        ...     def __init__(self, speed, level, sigma):
        ...         super().__init__()
        ...         self.speed = self.parameter(speed)
        ...         self.level = self.parameter(level)
        ...         self.sigma = self.parameter(sigma)
        ...     def drift(self, t, rate):
        ...         return self.speed * (self.level - rate)
        ...     def diffusion(self, t, rate):
        ...         return self.sigma
        >>> model = Vasicek(0.5, 0.03, 0.01)
        >>> x0 = torch.full((2, 1), 0.02, dtype=torch.float64)
        >>> sens = sdesens.sensitivities(model, x0, [0.0, 0.5, 1.0], method="euler", dt=0.5, seed=1)
        >>> sens.dx0[:, 0, 0, 0]
        tensor([1.0000, 0.7500, 0.5625], dtype=torch.float64)
    """

    state: Sequence[str] | Mapping[str, int]
    noise_type: str
    sde_type: str
    schemes: Sequence[str] = ()
    scheme_channels: Mapping[str, int] = {}
    conditionally_lognormal: Mapping[str, tuple[str, int]] = {}
    conditionally_normal: Mapping[str, tuple[str, int]] = {}
    likelihood: str | None = None
    starts: Mapping[str, str] = {}

    @staticmethod
    def parameter(value: Number | Sequence[Any]) -> nn.Parameter:
        """``value`` as a parameter; a Python number or list becomes float64, a tensor is copied.

        float64 scalars do not promote a float32 state, and a float32 one would round 0.1 in a
        float64 state.
        """
        if isinstance(value, Tensor):
            if value.requires_grad:
                raise ValueError(
                    "a model's parameter must not carry a graph. Pass value.detach() and ask for "
                    "its derivative by wrt=."
                )
            return nn.Parameter(value.clone())
        return nn.Parameter(numbers("a model's parameter", value).clone())

    if TYPE_CHECKING:
        # To a type checker these are attributes, so that a model may name its own components.
        drift: Callable[..., Any]
        diffusion: Callable[..., Any]
        drift_tangent: Callable[..., Any] | None
        diffusion_tangent: Callable[..., Any] | None
    else:

        def drift(self, t: Tensor, *components: Tensor) -> Any:
            """Drift at time ``t``, one entry per component."""
            _refuse_solvers(self)
            raise NotImplementedError(f"{type(self).__name__} must define drift(t, *components).")

        def diffusion(self, t: Tensor, *components: Tensor) -> Any:
            """Diffusion at time ``t``, one entry (diagonal noise) or row per component."""
            _refuse_solvers(self)
            raise NotImplementedError(
                f"{type(self).__name__} must define diffusion(t, *components)."
            )

    @property
    def runs_by_schemes_alone(self) -> bool:
        """Whether the model has schemes of its own, and neither drift nor diffusion."""
        here = type(self)
        has_neither = here.drift is SDE.drift and here.diffusion is SDE.diffusion
        return bool(self.schemes) and has_neither

    def check_step(self, dt: float) -> None:
        """Raise if a model's own schemes cannot take a step as wide as ``dt``.

        Asked before a model that runs by its schemes alone is run. Here all widths are fine.
        """

    def closed_form(self, payoff: Any, x0: Tensor, maturity: Tensor) -> Tensor | None:
        """The value of ``payoff`` from ``x0``, or None where it is not known. Here it never is."""
        return None

    def has_closed_form_tangent(self, parameters: Sequence[str] = ()) -> bool:
        """Whether both closed forms are there and take a tangent of each of ``parameters``."""
        for name in ("drift_tangent", "diffusion_tangent"):
            method = getattr(self, name, None)
            if method is None:
                return False
            known = inspect.signature(method).parameters
            if any(p not in known for p in parameters):
                return False
        return True

    @cached_property
    def sizes(self) -> tuple[int | None, ...]:
        """Size of each component's block, None for a plain component."""
        if isinstance(self.state, Mapping):
            return tuple(self.state.values())
        return (None,) * len(self.state)

    @property
    def dim(self) -> int:
        """State dimension ``d``."""
        return sum(1 if n is None else n for n in self.sizes)

    def components(self, y: Tensor) -> tuple[Tensor, ...]:
        """Split ``y`` of shape ``(..., P, d)`` into components ``(..., P)`` or ``(..., n, P)``."""
        if self.sizes == (None,):
            return (y.select(-1, 0),)
        last, start, out = y.mT, 0, []
        for n in self.sizes:
            out.append(last[..., start, :] if n is None else last[..., start : start + n, :])
            start += 1 if n is None else n
        return tuple(out)

    def join(self, entries: Any, like: Sequence[Tensor]) -> Tensor:
        """Entries shaped like the components ``like``, joined to ``(..., P, d)``."""
        entries = self.per_component(entries, "entry")
        return self.stack([fill(e, c.shape, c) for e, c in zip(entries, like, strict=True)])

    def stack(self, parts: Sequence[Tensor]) -> Tensor:
        """Components ``(..., P)`` or ``(..., n, P)`` as one tensor ``(..., P, d)``."""
        if self.sizes == (None,):
            return parts[0].unsqueeze(-1)
        rows = [p.unsqueeze(-2) if n is None else p for p, n in zip(parts, self.sizes, strict=True)]
        return torch.cat(rows, dim=-2).mT

    def join_rows(self, rows: Any, like: Sequence[Tensor], channels: int | None = None) -> Tensor:
        """Rows of entries per channel, joined to ``(..., P, d, m)``.

        ``channels`` is ``m``, needed only if every row is a number.
        """
        rows = self.per_component(rows, "row")
        if self.noise_type == "scalar":
            rows = [row if isinstance(row, (tuple, list)) else (row,) for row in rows]
        lengths = {len(row) for row in rows if isinstance(row, (tuple, list))}
        if len(lengths) > 1:
            raise ValueError(
                f"{type(self).__name__} must return rows of equal length, one entry for each "
                f"Brownian channel, got lengths {sorted(lengths)}."
            )
        for row in rows:
            if isinstance(row, (tuple, list)):
                channels = len(row)
            elif isinstance(row, Tensor) and row.dim() >= 2:
                channels = max(channels or 1, row.shape[-2])
        parts = []
        for row, c, n in zip(rows, like, self.sizes, strict=True):
            if isinstance(row, (tuple, list)):
                part = torch.stack([fill(e, c.shape, c) for e in row], dim=-2)
            else:
                shape = torch.Size((*c.shape[:-1], channels or 1, c.shape[-1]))
                part = fill(row, shape, c)
            parts.append(part.unsqueeze(-3) if n is None else part)
        return torch.cat(parts, dim=-3).movedim(-1, -3)

    def per_component(self, entries: Any, what: str) -> Sequence[Any]:
        """What ``drift`` or ``diffusion`` returned, as a sequence with one ``what`` a component."""
        count = len(self.sizes)
        if count == 1 and not isinstance(entries, (tuple, list)):
            return (entries,)
        if not isinstance(entries, (tuple, list)) or len(entries) != count:
            came = (
                f"{len(entries)}" if isinstance(entries, (tuple, list)) else type(entries).__name__
            )
            raise ValueError(
                f"{type(self).__name__} must return one {what} for each of its components "
                f"{tuple(self.state)}, got {came}."
            )
        return entries

    def f(self, t: Tensor, y: Tensor) -> Tensor:
        """Drift for torchsde: ``y`` of shape ``(batch, d)`` to ``(batch, d)``."""
        components = self.components(y)
        return self.join(self.drift(t, *components), components)

    def g(self, t: Tensor, y: Tensor) -> Tensor:
        """Diffusion for torchsde: ``(batch, d)``, or ``(batch, d, m)`` unless noise is diagonal."""
        components = self.components(y)
        join = self.join if self.noise_type == "diagonal" else self.join_rows
        return join(self.diffusion(t, *components), components)

    def f_tangent(self, t: Tensor, y: Tensor, dy: Tensor, **parameters: Number) -> Tensor:
        """Closed-form derivative of ``f`` along ``dy``, ``(batch, d)`` or ``(R, batch, d)``."""
        components, tangents = self.components(y), self.components(dy)
        drift_tangent: Any = self.drift_tangent
        return self.join(drift_tangent(t, *components, *tangents, **parameters), tangents)

    def g_tangent(
        self, t: Tensor, y: Tensor, dy: Tensor, channels: int | None = None, **parameters: Number
    ) -> Tensor:
        """Closed-form derivative of ``g`` along ``dy``, which may lead with ``R`` directions.

        ``channels`` is the number of Brownian channels, which a diffusion tangent of plain zeros
        does not tell.
        """
        components, tangents = self.components(y), self.components(dy)
        diffusion_tangent: Any = self.diffusion_tangent
        out = diffusion_tangent(t, *components, *tangents, **parameters)
        if self.noise_type == "diagonal":
            return self.join(out, tangents)
        return self.join_rows(out, tangents, channels)


def _refuse_solvers(sde: SDE) -> None:
    """Raise if ``sde`` is no equation for a solver, naming what it runs by."""
    if sde.runs_by_schemes_alone:
        raise UnsupportedError(
            f"{type(sde).__name__} has no drift and diffusion that a solver could use (a jump is "
            f"neither); it moves by its own schemes {list(sde.schemes)} in montecarlo.run. Pass "
            f"scheme={sde.schemes[0]!r} there."
        )


def column(value: Any) -> Any:
    """A parameter with axes ``(n, ...)`` behind which paths can broadcast; a number as it is."""
    return value.unsqueeze(-1) if isinstance(value, Tensor) and value.dim() else value


def fill(entry: Any, shape: torch.Size, like: Tensor) -> Tensor:
    """``entry``, a number or a tensor, broadcast to ``shape`` in the dtype of ``like``."""
    if not isinstance(entry, Tensor):
        return like.new_full(shape, float(entry))
    if entry.shape == shape and entry.dtype == like.dtype:
        return entry
    try:
        return entry.to(like.dtype).expand(shape)
    except RuntimeError:
        raise ValueError(
            f"an entry must be a number or a tensor that broadcasts to {tuple(shape)}, paths last; "
            f"got a tensor of shape {tuple(entry.shape)}."
        ) from None


class View:
    """The functions of any torchsde-style object under their standard names.

    ``f``, ``g`` and ``f_and_g`` are always there, made from what the object has where it lacks
    them; ``g_prod`` and ``f_and_g_prod`` only where the object brings its own.
    """

    f: Callable[..., Tensor]
    g: Callable[..., Tensor]
    f_and_g: Callable[..., tuple[Tensor, Tensor]]

    def __init__(self, functions: Mapping[str, Callable], noise_type: str, sde_type: str) -> None:
        self.noise_type, self.sde_type = noise_type, sde_type
        self.functions = dict(functions)
        for name, function in functions.items():
            setattr(self, name, function)

    def wrapped(self, wrap: Callable[[str, Callable], Callable]) -> View:
        """The view with every function ``F`` replaced by ``wrap(name, F)``."""
        functions = {name: wrap(name, function) for name, function in self.functions.items()}
        return View(functions, self.noise_type, self.sde_type)


def view(sde: Any, names: Mapping[str, str] | None = None, channels: int | None = None) -> View:
    """The :class:`View` of ``sde``; ``names`` as in ``torchsde.sdeint``.

    ``channels`` is the number of Brownian channels, needed to make ``g`` out of ``g_prod`` when the
    noise is neither diagonal nor scalar.

    Raises:
        TypeError, ValueError: if a needed attribute or function is missing or unknown.
    """
    for attribute, choices in (("noise_type", NOISE_TYPES), ("sde_type", SDE_TYPES)):
        if not hasattr(sde, attribute):
            raise TypeError(
                f"sde must have an attribute {attribute!r}, one of {list(choices)}, "
                f"got a {type(sde).__name__} without it."
            )
        check_choice(f"sde.{attribute}", getattr(sde, attribute), choices)
    found = _find(sde, names)
    noise_type, sde_type = sde.noise_type, sde.sde_type
    functions = dict(found)
    if "f_and_g" in found:
        joint = found["f_and_g"]
        functions.setdefault("f", lambda t, y: joint(t, y)[0])
        functions.setdefault("g", lambda t, y: joint(t, y)[1])
    if "f_and_g_prod" in found:
        product = found["f_and_g_prod"]
        channels = channels or _channels_of(noise_type)
        functions.setdefault(
            "f", lambda t, y: product(t, y, y.new_zeros(y.shape[0], channels or y.shape[1]))[0]
        )
        functions.setdefault("g_prod", lambda t, y, v: product(t, y, v)[1])
    if "g" not in functions and "g_prod" in functions:
        functions["g"] = _matrix_of(functions["g_prod"], noise_type, channels)
    missing = [name for name in ("f", "g") if name not in functions]
    if missing:
        has = ", ".join(found) or "none of them"
        raise TypeError(
            f"sde must give drift and diffusion: f and g, f_and_g, or f_and_g_prod (or f with "
            f"g_prod); {type(sde).__name__} has {has}. Rename other methods by names="
            f"{{'drift': ..., 'diffusion': ...}}."
        )
    f, g = functions["f"], functions["g"]
    functions.setdefault("f_and_g", lambda t, y: (f(t, y), g(t, y)))
    return View(functions, noise_type, sde_type)


def _find(sde: Any, names: Mapping[str, str] | None) -> dict[str, Callable]:
    rename = {}
    for key, attribute in (names or {}).items():
        if key == "prior_drift":
            continue  # only logqp reads it
        if key not in _NAMES:
            raise ValueError(
                f"names has the unknown key {key!r}; known are {list(_NAMES)}."
                f"{did_you_mean(key, tuple(_NAMES))}"
            )
        if not hasattr(sde, attribute):
            raise ValueError(
                f"names[{key!r}] is {attribute!r}, but {type(sde).__name__} has no such method."
            )
        rename[_NAMES[key]] = attribute
    attributes = {name: rename.get(name, name) for name in FUNCTIONS}
    return {n: getattr(sde, a) for n, a in attributes.items() if callable(getattr(sde, a, None))}


def _channels_of(noise_type: str) -> int | None:
    return 1 if noise_type == "scalar" else None


def _matrix_of(g_prod: Callable, noise_type: str, channels: int | None) -> Callable:
    """``g`` out of ``g_prod``, which is linear in the noise: its columns on unit vectors."""
    if noise_type == "diagonal":
        return lambda t, y: g_prod(t, y, torch.ones_like(y))
    count = channels or _channels_of(noise_type)
    if count is None:
        raise ValueError(
            f"the number of Brownian channels cannot be told from g_prod alone for {noise_type} "
            f"noise. Pass bm=, whose shape (B, m) gives it, or define g."
        )

    def g(t: Tensor, y: Tensor) -> Tensor:
        unit = torch.eye(count, dtype=y.dtype, device=y.device)
        return torch.stack([g_prod(t, y, e.expand(y.shape[0], -1)) for e in unit], dim=-1)

    return g
