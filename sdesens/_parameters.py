"""Find a model's parameters by name and put other tensors in their place for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from sdesens._checks import did_you_mean


def find_parameters(sde: Any, names: Sequence[str]) -> dict[str, Tensor]:
    """The floating tensors called ``names`` in ``sde``: parameters, buffers or attributes.

    Names are those of ``nn.Module.named_parameters`` (``"net.0.weight"``); an object that is no
    module is searched for attributes.

    Raises:
        ValueError: for an unknown name, with the names there are.
    """
    known = known_parameters(sde)
    for name in names:
        if name not in known:
            there = ", ".join(repr(n) for n in known) or "none"
            raise ValueError(
                f"wrt has {name!r}, which is neither 'x0' nor a parameter of "
                f"{type(sde).__name__}; its parameters: {there}."
                f"{did_you_mean(name, ('x0', *known))}"
            )
    return {name: known[name] for name in names}


def known_parameters(sde: Any) -> dict[str, Tensor]:
    """Every floating tensor of ``sde`` that a derivative can be taken in, by name."""
    if isinstance(sde, nn.Module):
        named = [*sde.named_parameters(remove_duplicate=False), *sde.named_buffers()]
        plain = [(n, v) for n, v in vars(sde).items() if isinstance(v, Tensor)]
        named += plain
    else:
        named = [(n, v) for n, v in vars(sde).items() if isinstance(v, Tensor)]
    return {n: v for n, v in named if v.is_floating_point()}


class Places:
    """The places in ``sde`` that hold the parameters ``names``, under every name they have.

    Finding them walks the whole model, so it is done once and not for every replacement.
    """

    def __init__(self, sde: Any, names: Sequence[str]) -> None:
        self._places: dict[str, list[tuple[Any, str]]] = {}
        known = known_parameters(sde)
        for name in names:
            same = [n for n, value in known.items() if value is known[name]]
            self._places[name] = [_owner(sde, n) for n in same]

    def values(self) -> list[Tensor]:
        """The tensors that stand there now."""
        return [getattr(*places[0]) for places in self._places.values()]

    @contextmanager
    def holding(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """Put ``tensors`` in the place of the parameters of these names, then restore what was.

        The model itself is changed and restored, so two threads must not do this to one model.
        Nested in another such replacement it restores that one's tensors.
        """
        before = {name: getattr(*self._places[name][0]) for name in tensors}
        try:
            for name, tensor in tensors.items():
                for owner, leaf in self._places[name]:
                    _put(owner, leaf, tensor)
            yield
        finally:
            for name, tensor in before.items():
                for owner, leaf in self._places[name]:
                    _put(owner, leaf, tensor)


def places_of(sde: Any, names: Iterable[str]) -> dict[str, Places]:
    """The places of those ``names`` that are tensors of ``sde``, one by one."""
    known = known_parameters(sde)
    return {name: Places(sde, [name]) for name in names if name in known}


def along(
    places: Mapping[str, Places],
    direction: tuple[str, int],
    function: Callable[..., Tensor],
    point: Sequence[Tensor],
    tangent: Sequence[Tensor],
) -> Tensor:
    """The derivative of ``function`` at ``point`` along ``tangent``, and an entry of a tensor.

    ``direction`` is a name and an entry; a name without a place adds nothing to ``tangent``. Inside
    another derivative the tensor is that one's, so that derivatives nest.
    """
    name, entry = direction
    if name not in places:
        return torch.func.jvp(function, tuple(point), tuple(tangent))[1]
    (theta,) = places[name].values()
    unit = torch.zeros_like(theta).reshape(-1)
    unit = torch.cat([unit[:entry], torch.ones_like(unit[:1]), unit[entry + 1 :]])

    def held(theta: Tensor, *point: Tensor) -> Tensor:
        with places[name].holding({name: theta}):
            return function(*point)

    return torch.func.jvp(held, (theta, *point), (unit.reshape(theta.shape), *tangent))[1]


def replaced(sde: Any, tensors: Mapping[str, Tensor]) -> AbstractContextManager[None]:
    """:meth:`Places.holding`, for a single replacement."""
    find_parameters(sde, tuple(tensors))
    return Places(sde, tuple(tensors)).holding(tensors)


def _owner(sde: Any, name: str) -> tuple[Any, str]:
    path, _, leaf = name.rpartition(".")
    return (attrgetter(path)(sde) if path else sde), leaf


def _put(owner: Any, leaf: str, tensor: Tensor) -> None:
    if isinstance(owner, nn.Module):
        # A module refuses to hold a plain tensor where a parameter was registered.
        for table in (owner._parameters, owner._buffers):
            if leaf in table:
                table[leaf] = tensor  # type: ignore[assignment]
                return
    setattr(owner, leaf, tensor)


def check_not_captured(sde: Any, parameters: Mapping[str, Tensor], evaluate: Any) -> None:
    """Raise if ``evaluate()`` still depends on a parameter that has been replaced.

    A model that keeps a second reference to a parameter, or something computed from it once,
    would show a derivative that is silently too small.
    """
    traced = {n: p for n, p in parameters.items() if p.requires_grad}
    if not traced:
        return
    copies = {name: p.detach().clone() for name, p in traced.items()}
    with torch.enable_grad(), replaced(sde, copies):
        outputs = [out for out in evaluate() if out.requires_grad]
        if not outputs:
            return
        grads = torch.autograd.grad(
            [out.sum() for out in outputs], list(traced.values()), allow_unused=True
        )
    caught = [name for name, grad in zip(traced, grads, strict=True) if grad is not None]
    if caught:
        raise ValueError(
            f"the derivative in {caught} would miss a part: {type(sde).__name__} also reaches "
            f"{'it' if len(caught) == 1 else 'them'} through something computed or stored outside "
            f"the call. Compute from the parameter inside drift and diffusion."
        )
