"""What is particular to the vjp mode."""

import pytest
import torch
import torchsde
from torch import Tensor, nn

import sdesens
from sdesens.models import NeuralSDE
from sdesens.pathwise import vjp as vjp_module


def neural() -> tuple[NeuralSDE, Tensor, Tensor, dict]:
    model = NeuralSDE(dim=3, width=6)
    x0 = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)
    ts = torch.linspace(0, 1, 6, dtype=torch.float64)
    bm = sdesens.BrownianPath(0, 1, (4, 3), 10, seed=2, dtype=torch.float64)
    return model, x0, ts, {"method": "euler", "dt": 0.1, "bm": bm}


def test_it_equals_one_batched_vjp_of_the_whole_solve_with_an_identity_over_times_and_outputs():
    model, x0, ts, arguments = neural()
    leaf = x0.clone().requires_grad_()
    path = torchsde.sdeint(model, leaf, ts, **arguments)
    assert isinstance(path, Tensor)
    T, B, d = path.shape
    identity = torch.eye(T * d, dtype=torch.float64).reshape(T * d, T, 1, d).expand(-1, -1, B, -1)
    (whole,) = torch.autograd.grad(path, leaf, identity, is_grads_batched=True)
    whole = whole.reshape(T, d, B, d).transpose(1, 2)
    found = sdesens.sensitivities(model, x0, ts, mode="vjp", **arguments)
    torch.testing.assert_close(found.dx0, whole, rtol=1e-13, atol=1e-14)


def test_its_derivative_in_parameters_equals_one_backward_pass_for_each_output():
    model, x0, ts, arguments = neural()
    found = sdesens.sensitivities(model, x0, ts, mode="vjp", wrt="inner", **arguments)
    path = torchsde.sdeint(model, x0, ts, **arguments)
    assert isinstance(path, Tensor)
    for t, b, i in [(1, 0, 0), (3, 2, 1), (5, 3, 2)]:
        (one,) = torch.autograd.grad(path[t, b, i], model.inner, retain_graph=True)
        torch.testing.assert_close(found.dparams["inner"][t, b, i], one, rtol=1e-13, atol=1e-14)


class Switching(nn.Module):
    """Control flow on the time, which vmap cannot follow."""

    sde_type, noise_type = "ito", "diagonal"

    def __init__(self) -> None:
        super().__init__()
        self.early = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def f(self, t: Tensor, y: Tensor) -> Tensor:
        return -self.early * y.sin() if t < 0.45 else -2 * y

    def g(self, t: Tensor, y: Tensor) -> Tensor:
        return 0.1 * y


@pytest.mark.parametrize(
    ("model", "wrt", "way"),
    [
        (NeuralSDE(dim=3, width=6), ("x0",), "_steps_together"),
        (NeuralSDE(dim=3, width=6), ("x0", "inner"), "_steps_and_paths_together"),
        (Switching(), ("x0",), "_step_by_step"),
        (Switching(), ("x0", "early"), "_step_by_step"),
    ],
    ids=["state", "parameters", "control flow", "control flow and parameters"],
)
def test_steps_are_taken_together_where_the_model_allows(monkeypatch, model, wrt, way):
    """The slower ways give the same numbers, so only this would tell that a fast one broke."""
    taken = []
    ways = ("_steps_together", "_steps_and_paths_together", "_step_by_step")

    def recording(name, original):
        def wrapped(self, start, stop):
            result = original(self, start, stop)
            taken.append(name)
            return result

        return wrapped

    for name in ways:
        original = getattr(vjp_module._Linearisation, name)
        monkeypatch.setattr(vjp_module._Linearisation, name, recording(name, original))
    _, x0, ts, arguments = neural()
    sdesens.sensitivities(model, x0, ts, mode="vjp", wrt=wrt, **arguments)
    assert taken == [way]
