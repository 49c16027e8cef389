import pytest
import torch
from torch import nn

import sdesens
from sdesens._parameters import find_parameters, known_parameters, replaced
from sdesens.models import OrnsteinUhlenbeck
from tests.problems import MODES, assert_close

X0 = torch.tensor([[0.3], [1.1]], dtype=torch.float64)
TS = torch.linspace(0, 1, 5, dtype=torch.float64)
EULER = {"method": "euler", "dt": 0.25, "seed": 0}


def number(value):
    return nn.Parameter(torch.tensor(value, dtype=torch.float64))


class Linear(nn.Module):
    """``dX = a b X dt + c dW``; ``a`` and ``b`` may be one tensor under two names."""

    noise_type, sde_type = "diagonal", "ito"
    offset: torch.Tensor

    def __init__(self):
        super().__init__()
        self.a, self.b = number(-0.7), number(0.5)
        self.inner = nn.Linear(1, 1, dtype=torch.float64)
        self.register_buffer("offset", torch.tensor(0.1, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(3))
        self.plain = torch.tensor(0.2, dtype=torch.float64)

    def f(self, t, y):
        return self.a * self.b * y + self.offset + 0 * self.inner(y)

    def g(self, t, y):
        return self.plain.expand_as(y)


class NoModule:
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self):
        self.a = torch.tensor(-0.7, dtype=torch.float64)
        self.words = "not a tensor"

    def f(self, t, y):
        return self.a * y

    def g(self, t, y):
        return torch.ones_like(y)


def test_names_are_those_of_named_parameters_and_of_buffers_and_plain_tensors():
    assert list(known_parameters(Linear())) == [
        "a",
        "b",
        "inner.weight",
        "inner.bias",
        "offset",
        "plain",
    ]


def test_an_object_that_is_no_module_is_searched_for_its_tensors():
    assert list(known_parameters(NoModule())) == ["a"]


def test_tensors_come_in_the_order_asked_for():
    assert list(find_parameters(Linear(), ("inner.bias", "a"))) == ["inner.bias", "a"]


def test_an_unknown_name_is_refused_with_those_there_are_and_the_nearest():
    with pytest.raises(ValueError, match=r"'kapa'.*'x0' nor a parameter of OrnsteinUhlenbeck"):
        sdesens.sensitivities(OrnsteinUhlenbeck(1.0, 0.0, 1.0), X0, TS, wrt=("x0", "kapa"))
    with pytest.raises(ValueError, match=r"'kappa', 'mean', 'sigma'.*Did you mean 'kappa'"):
        sdesens.sensitivities(OrnsteinUhlenbeck(1.0, 0.0, 1.0), X0, TS, wrt="kapa")


def test_an_integer_buffer_is_no_parameter():
    with pytest.raises(ValueError, match="'count'"):
        find_parameters(Linear(), ["count"])


def test_a_replaced_tensor_is_seen_and_then_gone():
    sde = Linear()
    originals = known_parameters(sde)
    other = torch.tensor(5.0, dtype=torch.float64)
    for name in ("a", "inner.weight", "offset", "plain"):
        with replaced(sde, {name: other}):
            assert known_parameters(sde)[name] is other
        assert known_parameters(sde)[name] is originals[name]
    assert list(dict(sde.named_parameters())) == ["a", "b", "inner.weight", "inner.bias"]
    assert isinstance(sde.a, nn.Parameter)


def test_the_originals_are_back_after_an_exception():
    sde = Linear()
    a = sde.a
    with pytest.raises(KeyError), replaced(sde, {"a": torch.zeros(())}):
        raise KeyError
    assert sde.a is a


@pytest.mark.parametrize("mode", MODES)
def test_the_model_is_as_before_after_a_drift_that_raises(mode):
    class Raising(Linear):
        calls = 0

        def f(self, t, y):
            type(self).calls += 1
            if t > 0.6:
                raise RuntimeError("no drift here")
            return super().f(t, y)

    sde = Raising()
    before = dict(sde.named_parameters())
    with pytest.raises(RuntimeError, match="no drift here"):
        sdesens.sensitivities(sde, X0, TS, mode=mode, wrt=("x0", "a"), **EULER)
    after = dict(sde.named_parameters())
    assert list(before) == list(after)
    assert all(before[name] is after[name] for name in before)


@pytest.mark.parametrize("mode", MODES)
def test_a_run_leaves_no_gradient_and_no_change_behind(mode):
    sde = Linear()
    before = {n: (p, p.clone(), p.requires_grad) for n, p in known_parameters(sde).items()}
    sdesens.sensitivities(sde, X0, TS, mode=mode, wrt=("x0", "a", "offset"), **EULER)
    for name, parameter in known_parameters(sde).items():
        old, value, requires_grad = before[name]
        assert parameter is old
        assert torch.equal(parameter, value)
        assert parameter.requires_grad == requires_grad
        assert parameter.grad is None


@pytest.mark.parametrize("mode", MODES)
def test_a_tied_parameter_has_the_derivative_of_all_its_places(mode):
    """``a = b``: the drift is ``a^2 y`` and its derivative in ``a`` is ``2 a y``."""
    sde = Linear()
    sde.a = number(0.6)
    sde.b = sde.a
    sens = sdesens.sensitivities(sde, X0, TS, mode=mode, wrt=("a",), **EULER)
    D = torch.zeros_like(X0)
    for k in range(4):
        assert_close(sens.dparams["a"][k], D, 1e-14)
        D = D + 0.25 * (0.36 * D + 1.2 * sens.x[k])
    assert_close(sens.dparams["a"][4], D, 1e-14)
    other = sdesens.sensitivities(sde, X0, TS, mode=mode, wrt=("b",), **EULER)
    assert torch.equal(sens.dparams["a"], other.dparams["b"])


@pytest.mark.parametrize("mode", MODES)
def test_two_names_of_one_tied_parameter_are_refused(mode):
    sde = Linear()
    sde.b = sde.a
    with pytest.raises(ValueError, match=r"one tensor twice: 'a' and 'b' of Linear are tied"):
        sdesens.sensitivities(sde, X0, TS, mode=mode, wrt=("x0", "a", "b"), **EULER)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["a", "inner.weight", "offset", "plain"])
def test_parameters_buffers_and_plain_tensors_can_be_differentiated_in(mode, name):
    sens = sdesens.sensitivities(Linear(), X0, TS, mode=mode, wrt=name, **EULER)
    with pytest.raises(ValueError, match="Add 'x0' to wrt"):
        _ = sens.dx0
    assert sens.dparams[name].shape[:3] == (5, 2, 1)
    expected = {"a": 0.25 * 0.5 * X0, "offset": torch.full_like(X0, 0.25)}
    if name in expected:
        assert_close(sens.dparams[name][1], expected[name], 1e-14)
    if name == "inner.weight":
        assert not sens.dparams[name].any()
    if name == "plain":
        W = (sens.x[1] - X0 - 0.25 * (-0.35 * X0 + 0.1)) / 0.2
        assert_close(sens.dparams[name][1], W.detach(), 1e-13)


@pytest.mark.parametrize("mode", MODES)
def test_an_object_that_is_no_module_has_derivatives_in_its_tensors(mode):
    sde = NoModule()
    a = sde.a
    sens = sdesens.sensitivities(sde, X0, TS, mode=mode, wrt=("a",), **EULER)
    assert_close(sens.dparams["a"][1], 0.25 * X0, 1e-14)
    assert sde.a is a


@pytest.mark.parametrize("mode", (*MODES, "auto"))
def test_a_parameter_kept_in_a_closure_is_refused(mode):
    class Captured(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.kappa = kappa = number(0.5)
            self.f = lambda t, y: -kappa * y
            self.g = lambda t, y: torch.ones_like(y)

    with pytest.raises(ValueError, match=r"\['kappa'\] would miss.*inside drift and diffusion"):
        sdesens.sensitivities(Captured(), X0, TS, mode=mode, wrt=("x0", "kappa"), **EULER)


def test_something_computed_once_from_a_parameter_is_refused():
    class Cached(Linear):
        def __init__(self):
            super().__init__()
            self.product = self.a * 1.0

        def f(self, t, y):
            return self.product * y + self.b * y

    with pytest.raises(ValueError, match=r"\['a'\] would miss a part: Cached also reaches it"):
        sdesens.sensitivities(Cached(), X0, TS, wrt=("a", "b"), **EULER)
    sens = sdesens.sensitivities(Cached(), X0, TS, wrt=("b",), **EULER)
    assert_close(sens.dparams["b"][1], 0.25 * X0, 1e-14)


@pytest.mark.parametrize(
    ("wrt", "words"),
    [
        ((), "wrt must hold 'x0' and/or names"),
        ((1,), "wrt must hold 'x0' and/or names"),
        (("x0", "x0"), r"names \['x0'\] more than once"),
        (("kappa", "sigma", "kappa"), r"names \['kappa'\] more than once"),
    ],
)
def test_a_bad_wrt_is_refused(wrt, words):
    with pytest.raises(ValueError, match=words):
        sdesens.sensitivities(OrnsteinUhlenbeck(1.0, 0.0, 1.0), X0, TS, wrt=wrt)
