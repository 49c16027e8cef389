"""What ``greeks`` returns: estimates by name, with their standard errors and how they were made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sdesens._checks import check_choice
from sdesens.montecarlo.estimates import Estimate

Name = tuple[str, ...]  # () the price, ("spot",) a first derivative, ("spot", "sigma") a second

# What each greek is the derivative in; None is the asset.
GREEKS: Mapping[str, tuple[str | None, ...]] = {
    "delta": (None,),
    "gamma": (None, None),
    "vega": ("sigma",),
    "rho": ("rate",),
    "theta": ("maturity",),
    "vanna": (None, "sigma"),
    "volga": ("sigma", "sigma"),
}


@dataclass(frozen=True, repr=False)
class Report:
    """The value of a payoff and its derivatives.

    ``report["price"]``, ``report["spot"]``, ``report["spot", "sigma"]`` are
    :class:`~sdesens.montecarlo.Estimate`: a value and its standard error, floats. An input of
    several entries gives tensors in its shape, and each entry is there by itself
    (``report["sigma[1]"]``). The order in a pair does not matter.

    Attributes:
        entries: the estimates of single numbers, by names.
        estimators: by which estimator each was made.
        groups: inputs of several entries: their names and shape.
        asset: the component the payoff is written on, None if on none.
        model: its name.
        payoff: what was valued, in words.
        scheme: the step of the model, or the solver.
        steps: number of steps.
        paths: number of paths; of antithetic pairs both count.
        seed: seed of the noise.
        antithetic: whether in pairs on opposite noise.
    """

    entries: Mapping[Name, Estimate]
    estimators: Mapping[Name, str]
    groups: Mapping[str, tuple[Sequence[str], tuple[int, ...]]]
    asset: str | None
    model: str
    payoff: str
    scheme: str
    steps: int
    paths: int
    seed: int
    antithetic: bool

    def __getitem__(self, key: str | Name) -> Estimate:
        names = name_of(key)
        found = self.entry(names)
        if found is not None:
            return found
        if not names or not all(name in self.groups or self._is_entry(name) for name in names):
            known = {"price", *self.groups, *(name for entry in self.entries for name in entry)}
            for name in names:
                if name in GREEKS and name not in known:
                    of = names_of(name, self.asset)
                    raise ValueError(f"{said_of(name, of)}: its key is {key_of(of)!r}.")
                check_choice("an input", name, sorted(known))
        columns = [self.groups.get(name, ([name], ())) for name in names]
        grid = [()]
        for members, _ in columns:
            grid = [(*row, member) for row in grid for member in members]
        parts = [self.entry(row) for row in grid]
        if any(part is None for part in parts):
            raise KeyError(
                f"{key!r} was not computed: second derivatives need order=2, with all their inputs "
                f"in wrt."
            )
        shape = tuple(n for _, shape in columns for n in shape)
        value, stderr = (
            torch.tensor([getattr(p, what) for p in parts], dtype=torch.float64).reshape(shape)
            for what in ("value", "stderr")
        )
        return Estimate(value, stderr)

    def entry(self, names: Name) -> Estimate | None:
        """The estimate of a single number, in either order of names; None if there is none."""
        return self.entries.get(names, self.entries.get(names[::-1]))

    def _is_entry(self, name: str) -> bool:
        return any(name in entry for entry in self.entries)

    def __iter__(self) -> Iterator[Name]:
        return iter(self.entries)

    # --- greeks by name ---------------------------------------------------------------------------

    @property
    def delta(self) -> Estimate:
        """The derivative in the asset."""
        return self._greek("delta")

    @property
    def gamma(self) -> Estimate:
        """The second derivative in the asset; a matrix for several assets."""
        return self._greek("gamma")

    @property
    def vega(self) -> Estimate:
        """The derivative in the volatility ``sigma``."""
        return self._greek("vega")

    @property
    def rho(self) -> Estimate:
        """The derivative in the ``rate``. (That in a correlation called rho is ``["rho"]``.)"""
        return self._greek("rho")

    @property
    def theta(self) -> Estimate:
        """Minus the derivative in the maturity, a year; dates move along."""
        found = self._greek("theta")
        return Estimate(-found.value, found.stderr)

    @property
    def vanna(self) -> Estimate:
        """The second derivative in the asset and ``sigma``."""
        return self._greek("vanna")

    @property
    def volga(self) -> Estimate:
        """The second derivative in ``sigma``."""
        return self._greek("volga")

    def _greek(self, greek: str) -> Estimate:
        names = names_of(greek, self.asset)
        if not all(name in self.groups or self._is_entry(name) for name in names):
            there = sorted({n for entry in self.entries for n in entry})
            raise AttributeError(
                f"{said_of(greek, names)}, which is no input here; the inputs: {there}. Ask for "
                f"them by report[name]."
            )
        return self[key_of(names)]

    # --- in other forms --------------------------------------------------------------------------

    def interval(self, key: str | tuple[str, str], level: float = 0.95) -> tuple[Any, Any]:
        """The confidence interval of an estimate, by the normal law.

        Example:
            >>> import sdesens
            >>> from sdesens.models import BlackScholes
            >>> from sdesens.pricing import Call
            >>> report = sdesens.greeks(BlackScholes(0.05, 0.2), Call(100.0, 1.0), [100.0],
            ...                         paths=10_000, steps=1)
            >>> low, high = report.interval("spot")
            >>> low < 0.636831 < high
            True
        """
        return self[key].interval(level)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers and strings, fit for JSON."""
        values = {
            _label(name): {
                "value": e.value,
                "stderr": e.stderr,
                "estimator": self.estimators[name],
            }
            for name, e in self.entries.items()
        }
        what = ("model", "payoff", "scheme", "steps", "paths", "seed", "antithetic")
        return {**{name: getattr(self, name) for name in what}, "values": values}

    def to_pandas(self) -> Any:
        """A data frame with a row for each number: value, stderr, 95% interval and estimator.

        Raises:
            ImportError: if pandas is not installed.
        """
        try:
            import pandas  # noqa: PLC0415  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ImportError(
                "to_pandas needs pandas: pip install pandas. to_dict gives the same numbers."
            ) from error
        rows = []
        for name, e in self.entries.items():
            low, high = e.interval()
            rows.append(
                {"value": e.value, "stderr": e.stderr, "low": low, "high": high,
                 "estimator": self.estimators[name]}
            )  # fmt: skip
        return pandas.DataFrame(rows, index=[_label(name) for name in self.entries])

    def __repr__(self) -> str:
        pairs = f" in {self.paths // 2:,} antithetic pairs" if self.antithetic else ""
        head = (
            f"{self.payoff} under {self.model}, scheme {self.scheme}, steps {self.steps}, "
            f"{self.paths:,} paths{pairs}, seed {self.seed}"
        )
        labels = {name: in_words(name) for name in self.entries}
        width = max(len(label) for label in labels.values())
        lines = [head, f"{'':{width}}  {'value':>14}  {'stderr':>9}  estimator"]
        for name, e in self.entries.items():
            lines.append(
                f"{labels[name]:{width}}  {e.value:>14.6g}  {e.stderr:>9.2g}  "
                f"{self.estimators[name]}"
            )
        return "\n".join(lines)


def names_of(greek: str, asset: str | None) -> Name:
    """The inputs that a greek is the derivative in."""
    return tuple(name or asset or "an asset" for name in GREEKS[greek])


def said_of(greek: str, names: Name) -> str:
    """That it is the derivative in them."""
    what = "minus the" if greek == "theta" else "the second" if len(names) == 2 else "the"
    return f"{greek} is {what} derivative in {' and '.join(map(repr, dict.fromkeys(names)))}"


def key_of(names: Name) -> str | Name:
    """How a user asks for them."""
    return names[0] if len(names) == 1 else names


def name_of(key: str | Sequence[str]) -> Name:
    """The name that a user's key means, each of whose inputs may have several entries."""
    return () if key == "price" else (key,) if isinstance(key, str) else tuple(key)


def in_words(name: Name) -> str:
    """``price``, ``d/d spot``, ``d²/d spot d sigma``."""
    return {0: "price", 1: f"d/d {', '.join(name)}"}.get(len(name), f"d²/d {' d '.join(name)}")


def _label(name: Name) -> str:
    return ", ".join(name) or "price"
