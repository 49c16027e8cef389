import inspect

import pytest
import torch
import torchsde
from torch import nn
from torch.autograd import forward_ad

import sdesens
from sdesens import SDE
from sdesens.models import GeometricBrownianMotion, Heston, NeuralSDE, OrnsteinUhlenbeck
from sdesens.sde import view
from tests.problems import MODES, Field, assert_close

T = torch.tensor(0.3, dtype=torch.float64)


def make(state, noise_type, drift, diffusion, sde_type="ito"):
    """A model of these functions, ``drift(t, *components)``."""
    members = {
        "state": state,
        "noise_type": noise_type,
        "sde_type": sde_type,
        "drift": lambda self, *a: drift(*a),
        "diffusion": lambda self, *a: diffusion(*a),
    }
    return type("Model", (SDE,), members)()


def tensor(value):
    return torch.tensor(value, dtype=torch.float64)


def batch(P, d):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(P, d, generator=generator, dtype=torch.float64)


# --- the torchsde view of components ---------------------------------------------------------


def test_plain_components_become_columns():
    sde = make(("a", "b"), "diagonal", lambda t, a, b: (a * b, t - b), lambda t, a, b: (b, 2.0))
    y = batch(5, 2)
    a, b = y.unbind(-1)
    assert torch.equal(sde.f(T, y), torch.stack((a * b, T - b), -1))
    assert torch.equal(sde.g(T, y), torch.stack((b, torch.full_like(b, 2.0)), -1))
    assert sde.dim == 2


def test_a_block_is_one_component_with_its_paths_last():
    seen = []

    def drift(t, x):
        seen.append(tuple(x.shape))
        return A @ x

    A = batch(3, 3)
    sde = make({"x": 3}, "diagonal", drift, lambda t, x: x.cumsum(0))
    y = batch(5, 3)
    assert_close(sde.f(T, y), y @ A.mT, 1e-14)
    assert_close(sde.g(T, y), y.cumsum(-1), 1e-14)
    assert seen == [(3, 5)]
    assert sde.dim == 3


def test_blocks_and_plain_components_mix():
    """A dict whose plain component is a block of one."""
    sde = make(
        {"spots": 2, "rate": 1, "others": 2},
        "diagonal",
        lambda t, spots, rate, others: (rate * spots, 0.5, -others.flip(0)),
        lambda t, spots, rate, others: (spots, rate, 0.0),
    )
    y = batch(4, 5)
    expected = torch.cat((y[:, 2:3] * y[:, :2], torch.full((4, 1), 0.5), -y[:, [4, 3]]), -1)
    assert_close(sde.f(T, y), expected, 1e-15)
    assert_close(sde.g(T, y), torch.cat((y[:, :3], torch.zeros(4, 2)), -1), 1e-15)


def test_one_component_may_return_the_entry_itself_or_a_tuple_of_it():
    bare = make(("x",), "diagonal", lambda t, x: -x, lambda t, x: 1.0)
    wrapped = make(("x",), "diagonal", lambda t, x: (-x,), lambda t, x: (1.0,))
    y = batch(4, 1)
    assert torch.equal(bare.f(T, y), -y)
    assert torch.equal(bare.f(T, y), wrapped.f(T, y))
    assert torch.equal(bare.g(T, y), torch.ones_like(y))
    assert torch.equal(bare.g(T, y), wrapped.g(T, y))


def rows_expected(y):
    a, b = y.unbind(-1)
    zero = torch.zeros_like(a)
    return torch.stack((torch.stack((a, b, zero), -1), torch.stack((b, zero + 2, a * b), -1)), -2)


def test_general_rows_as_tuples_of_numbers_and_tensors():
    sde = make(
        ("a", "b"),
        "general",
        lambda t, a, b: (a, b),
        lambda t, a, b: ((a, b, 0.0), (b, 2.0, a * b)),
    )
    y = batch(5, 2)
    assert torch.equal(sde.g(T, y), rows_expected(y))


def test_general_rows_as_tensors_with_channels_before_paths():
    sde = make(
        ("a", "b"),
        "general",
        lambda t, a, b: (a, b),
        lambda t, a, b: (torch.stack((a, b, 0 * a)), torch.stack((b, 2 + 0 * b, a * b))),
    )
    y = batch(5, 2)
    assert torch.equal(sde.g(T, y), rows_expected(y))


def test_rows_of_blocks_as_tuples_and_as_tensors():
    y = batch(5, 4)
    tuples = make(
        {"x": 3, "v": 1},
        "general",
        lambda t, x, v: (x, v),
        lambda t, x, v: ((x, x.flip(0)), (0.0, v)),
    )
    tensors = make(
        {"x": 3, "v": 1},
        "general",
        lambda t, x, v: (x, v),
        lambda t, x, v: (torch.stack((x, x.flip(0)), 1), torch.stack((0 * v, v), 1)),
    )
    x, v = y[:, :3], y[:, 3:]
    expected = torch.cat((torch.stack((x, x.flip(-1)), -1), torch.stack((0 * v, v), -1)), 1)
    assert torch.equal(tuples.g(T, y), expected)
    assert torch.equal(tensors.g(T, y), expected)


def test_a_constant_matrix_is_a_row_tensor_of_a_block():
    B = batch(3, 2)
    sde = make({"x": 3}, "additive", lambda t, x: -x, lambda t, x: B.unsqueeze(-1))
    assert torch.equal(sde.g(T, batch(5, 3)), B.expand(5, 3, 2))


def test_scalar_noise_takes_one_entry_a_component():
    entries = make(("a", "b"), "scalar", lambda t, a, b: (a, b), lambda t, a, b: (b, 0.5))
    rows = make(("a", "b"), "scalar", lambda t, a, b: (a, b), lambda t, a, b: ((b,), (0.5,)))
    y = batch(5, 2)
    expected = torch.stack((y[:, 1], torch.full((5,), 0.5)), -1).unsqueeze(-1)
    assert torch.equal(entries.g(T, y), expected)
    assert torch.equal(rows.g(T, y), expected)


def test_scalar_noise_of_a_block():
    sde = make({"x": 3}, "scalar", lambda t, x: -x, lambda t, x: x**2)
    y = batch(5, 3)
    assert torch.equal(sde.g(T, y), (y**2).unsqueeze(-1))


@pytest.mark.parametrize("noise_type", ["additive", "general"])
def test_one_plain_component_with_several_channels(noise_type):
    sde = make(("x",), noise_type, lambda t, x: -x, lambda t, x: ((1.0, 0.5),))
    assert torch.equal(sde.g(T, batch(3, 1)), torch.tensor([1.0, 0.5]).double().expand(3, 1, 2))


def test_no_paths_are_fine():
    sde = make(("a", "b"), "general", lambda t, a, b: (a, b), lambda t, a, b: ((a, b), (0.0, b)))
    assert sde.f(T, batch(0, 2)).shape == (0, 2)
    assert sde.g(T, batch(0, 2)).shape == (0, 2, 2)


@pytest.mark.parametrize("noise_type", ["diagonal", "scalar", "additive", "general"])
@pytest.mark.parametrize("mode", MODES)
def test_a_component_model_has_the_derivatives_of_the_same_model_for_torchsde(noise_type, mode):
    plain = Field("ito", noise_type)

    def drift(t, a, b):
        return tuple(plain.f(t, torch.stack((a, b), -1)).unbind(-1))

    def diffusion(t, a, b):
        g = plain.g(t, torch.stack((a, b), -1))
        if noise_type == "diagonal":
            return tuple(g.unbind(-1))
        return tuple(tuple(row.unbind(-1)) for row in g.unbind(-2))

    model = make(("a", "b"), noise_type, drift, diffusion)
    model.level = plain.level
    x0, ts = batch(3, 2), [0.0, 0.25, 0.5]
    arguments = {"method": "euler", "dt": 0.125, "seed": 3}
    ours = sdesens.sensitivities(model, x0, ts, mode=mode, **arguments)
    theirs = sdesens.sensitivities(plain, x0, ts, mode=mode, **arguments)
    assert_close(ours.x, theirs.x, 1e-14)
    assert_close(ours.derivatives()["x0"], theirs.derivatives()["x0"], 1e-13)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (lambda a, b: (a,), r"one entry for each of its components \('a', 'b'\), got 1"),
        (lambda a, b: (a, b, a), "got 3"),
        (lambda a, b: a, "got Tensor"),
        (lambda a, b: (a, a[:2]), r"broadcasts to \(5,\), paths last; got .* shape \(2,\)"),
        (lambda a, b: (a, torch.ones(5, 1)), r"broadcasts to \(5,\)"),
    ],
)
def test_a_wrong_drift_is_refused(entries, words):
    sde = make(("a", "b"), "diagonal", lambda t, a, b: entries(a, b), lambda t, a, b: (a, b))
    with pytest.raises(ValueError, match=words):
        sde.f(T, batch(5, 2))


def test_a_wrong_number_of_rows_is_refused():
    sde = make(("a", "b"), "general", lambda t, a, b: (a, b), lambda t, a, b: ((a, b),))
    with pytest.raises(ValueError, match=r"one row for each of its components .* got 1"):
        sde.g(T, batch(5, 2))


def test_rows_of_different_lengths_are_refused():
    sde = make(("a", "b"), "general", lambda t, a, b: (a, b), lambda t, a, b: ((a, b), (a, b, a)))
    with pytest.raises(ValueError, match=r"rows of equal length, .* got lengths \[2, 3\]"):
        sdesens.sensitivities(sde, batch(5, 2), [0.0, 1.0], dt=0.5)


@pytest.mark.parametrize("name", ["drift", "diffusion"])
def test_a_model_without_drift_or_diffusion_says_so(name):
    class Half(SDE):
        state, noise_type, sde_type = ("x",), "diagonal", "ito"

    def other(self, t, x):
        return x

    setattr(Half, "diffusion" if name == "drift" else "drift", other)
    with pytest.raises(NotImplementedError, match=rf"Half must define {name}\(t, \*components\)"):
        sdesens.sensitivities(Half(), batch(2, 1), [0.0, 1.0], dt=0.5)


def test_x0_of_another_dimension_than_the_state_is_refused():
    with pytest.raises(ValueError, match=r"\(B, 2\) for the components \('spot', 'variance'\)"):
        sdesens.sensitivities(Heston(0.03, 1.5, 0.04, 0.3, -0.7), batch(3, 1), [0.0, 1.0])


# --- parameters -------------------------------------------------------------------------------


def test_numbers_become_float64_parameters_and_tensors_are_copied():
    value = torch.tensor([1.0, 2.0])
    model = OrnsteinUhlenbeck(kappa=0.1, mean=0, sigma=value)
    assert model.kappa.dtype == torch.float64
    assert model.kappa.item() == 0.1
    assert model.mean.dtype == torch.float64
    assert model.sigma.dtype == torch.float32
    value[0] = 9.0
    assert model.sigma[0] == 1.0
    assert [n for n, _ in model.named_parameters()] == ["kappa", "mean", "sigma"]


def test_a_parameter_with_a_graph_is_refused():
    value = torch.tensor(1.0, requires_grad=True)
    with pytest.raises(ValueError, match=r"must not carry a graph.*value\.detach\(\)"):
        OrnsteinUhlenbeck(kappa=2 * value, mean=0.0, sigma=1.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "model",
    [
        OrnsteinUhlenbeck(1.0, 0.1, 0.3),
        OrnsteinUhlenbeck(torch.eye(2, dtype=torch.float64), 0.1, torch.eye(2)),
        GeometricBrownianMotion(tensor([0.1, 0.2]), 0.3),
        NeuralSDE(2, 4),
        Heston(0.03, 1.5, 0.04, 0.3, -0.7),
    ],
    ids=["ou", "matrix ou", "gbm", "neural", "heston"],
)
def test_a_float32_state_stays_float32_though_parameters_are_float64(model, mode):
    x0 = torch.full((3, model.dim), 0.5)
    name = next(n for n, _ in model.named_parameters())
    sens = sdesens.sensitivities(
        model, x0, [0.0, 0.5, 1.0], mode=mode, wrt=("x0", name), method="euler", dt=0.1, seed=0
    )
    assert sens.x.dtype == sens.derivatives()["x0"].dtype == torch.float32
    assert sens.dparams[name].dtype == torch.float32
    double = sdesens.sensitivities(
        model, x0, [0.0, 0.5, 1.0], mode="vjp", wrt=("x0", name), method="euler", dt=0.1, seed=0
    )
    for ours, other in zip(sens.derivatives().values(), double.derivatives().values(), strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-5)


# --- closed-form tangents against forward mode --------------------------------------------------

MODELS = {
    "ou": OrnsteinUhlenbeck(1.3, 0.2, 0.4),
    "ou of vectors": OrnsteinUhlenbeck(tensor([1.3, 0.5]), 0.2, tensor([0.4, 0.1])),
    "ou of matrices": OrnsteinUhlenbeck(
        tensor([[1.3, 0.5], [-0.2, 0.7]]), tensor([0.2, 0.1]), tensor([[0.4, 0.1, 0.2], [0, 1, 2]])
    ),
    "ou, one number for all": OrnsteinUhlenbeck(tensor([[1.3, 0.5], [-0.2, 0.7]]), 0.2, 0.3),
    "gbm": GeometricBrownianMotion(0.05, 0.2),
    "gbm of vectors": GeometricBrownianMotion(tensor([0.05, 0.1]), tensor([0.2, 0.3])),
    "gbm of one vector": GeometricBrownianMotion(0.05, tensor([0.2, 0.3])),
    "heston": Heston(0.03, 1.5, 0.04, 0.3, -0.7, 0.01),
    "neural": NeuralSDE(3, 5, seed=2),
}


def forward(function, y, dy):
    with forward_ad.dual_level():
        out = forward_ad.unpack_dual(function(forward_ad.make_dual(y, dy)))
        return torch.zeros_like(out.primal) if out.tangent is None else out.tangent


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_closed_form_tangents_in_the_state_are_those_of_forward_mode(model):
    y, directions = batch(4, model.dim).abs(), batch(8, model.dim).reshape(2, 4, model.dim)
    channels = model.g(T, y).shape[-1]
    f = torch.stack([forward(lambda z: model.f(T, z), y, dy) for dy in directions])
    g = torch.stack([forward(lambda z: model.g(T, z), y, dy) for dy in directions])
    assert_close(model.f_tangent(T, y, directions), f, 1e-13)
    assert_close(model.g_tangent(T, y, directions, channels), g, 1e-13)
    assert_close(model.f_tangent(T, y, directions[0]), f[0], 1e-13)
    assert_close(model.g_tangent(T, y, directions[0], channels), g[0], 1e-13)


PARAMETERS = [
    (model, name)
    for model in MODELS
    for name in inspect.signature(MODELS[model].drift_tangent).parameters  # pyright: ignore
    if name in dict(MODELS[model].named_parameters())
]


@pytest.mark.parametrize(("which", "name"), PARAMETERS)
def test_closed_form_tangents_in_a_parameter_are_those_of_forward_mode(which, name):
    model = MODELS[which]
    y, dy = batch(4, model.dim).abs(), 0.3 * batch(4, model.dim)
    channels = model.g(T, y).shape[-1]
    value = dict(model.named_parameters())[name].detach()
    direction = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype).reshape(value.shape)

    def at(function):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(value, direction)
            out = torch.func.functional_call(
                _Call(model, function), {f"model.{name}": dual}, (forward_ad.make_dual(y, dy),)
            )
            pair = forward_ad.unpack_dual(out)
            return torch.zeros_like(pair.primal) if pair.tangent is None else pair.tangent

    assert_close(model.f_tangent(T, y, dy, **{name: direction}), at("f"), 1e-13)
    assert_close(model.g_tangent(T, y, dy, channels, **{name: direction}), at("g"), 1e-13)


class _Call(nn.Module):
    def __init__(self, model, function):
        super().__init__()
        self.model, self.function = model, function

    def forward(self, y):
        return getattr(self.model, self.function)(T, y)


def test_every_parameter_of_the_textbook_models_has_a_closed_form():
    for model in MODELS.values():
        names = [n for n, _ in model.named_parameters()]
        assert model.has_closed_form_tangent()
        assert model.has_closed_form_tangent(names) == (not isinstance(model, NeuralSDE))


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_every_model_passes_the_comparison_of_modes_in_state_and_all_parameters(model):
    names = [n for n, _ in model.named_parameters()]
    x0 = batch(3, model.dim).abs() + 0.5
    report = sdesens.compare_modes(
        model, x0, [0.0, 0.1, 0.25], wrt=("x0", *names), method="euler", dt=0.05, seed=1
    )
    assert report.agree, report


def test_hestons_tangent_is_finite_at_and_below_zero_variance():
    model = MODELS["heston"]
    y = torch.tensor([[1.0, 0.0], [1.0, -0.01]], dtype=torch.float64)
    g = model.g_tangent(T, y, torch.ones_like(y), 2)
    assert not g.any()


@pytest.mark.parametrize(
    ("make_it", "words"),
    [
        (lambda: OrnsteinUhlenbeck(torch.ones(2), torch.ones(3), 1.0), "agree on the dimension d"),
        (lambda: OrnsteinUhlenbeck(torch.ones(1, 2), 0.0, 1.0), "agree on the dimension d"),
        (lambda: GeometricBrownianMotion(torch.ones(2), torch.ones(3)), r"one shape \(d,\)"),
        (lambda: GeometricBrownianMotion(torch.ones(1, 1), 0.1), r"one shape \(d,\)"),
        (lambda: Heston(0.0, 1.0, 0.04, 0.3, 1.5), r"rho must be in \[-1, 1\], got 1.5"),
    ],
)
def test_models_refuse_parameters_that_do_not_fit(make_it, words):
    with pytest.raises(ValueError, match=words):
        make_it()


# --- running in torchsde, and the objects torchsde takes -----------------------------------------


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_a_model_runs_in_torchsde_as_it_is(model):
    y = batch(4, model.dim).abs()
    ts = torch.linspace(0, 1, 3, dtype=torch.float64)
    m = model.g(T, y).shape[-1]
    bm = sdesens.BrownianPath(0, 1, (4, m), 4, 1, dtype=torch.float64)
    out = torchsde.sdeint(model, y, ts, bm=bm, method="euler", dt=0.25)
    assert isinstance(out, torch.Tensor)
    assert out.shape == (3, 4, model.dim)
    assert out.isfinite().all()


def bare(noise_type, **functions):
    """An object with these functions alone."""
    members = {"noise_type": noise_type, "sde_type": "ito"}
    return type("Bare", (), members | {n: staticmethod(f) for n, f in functions.items()})()


def prod(noise_type, g, v):
    return g * v if noise_type == "diagonal" else (g @ v.unsqueeze(-1)).squeeze(-1)


@pytest.mark.parametrize("form", ["f_and_g", "f, g_prod", "f_and_g_prod", "f, g, f_and_g", "all"])
@pytest.mark.parametrize("noise_type", ["diagonal", "scalar", "general"])
@pytest.mark.parametrize("mode", MODES)
def test_every_form_that_torchsde_takes_gives_the_same_derivatives(mode, noise_type, form):
    field = Field("ito", noise_type)
    every = {
        "f": field.f,
        "g": field.g,
        "f_and_g": lambda t, y: (field.f(t, y), field.g(t, y)),
        "g_prod": lambda t, y, v: prod(noise_type, field.g(t, y), v),
        "f_and_g_prod": lambda t, y, v: (field.f(t, y), prod(noise_type, field.g(t, y), v)),
    }
    names = every.keys() if form == "all" else form.split(", ")
    sde = bare(noise_type, **{name: every[name] for name in names})
    x0, ts = batch(3, 2), torch.tensor([0.0, 0.25, 0.5], dtype=torch.float64)
    bm = sdesens.BrownianPath(0, 0.5, (3, field.channels[noise_type]), 4, 1, dtype=torch.float64)
    arguments = {"method": "euler", "dt": 0.125, "bm": bm, "mode": mode}
    ours = sdesens.sensitivities(sde, x0, ts, **arguments)
    theirs = sdesens.sensitivities(field, x0, ts, **arguments)
    assert_close(ours.x, theirs.x, 1e-14)
    assert_close(ours.derivatives()["x0"], theirs.derivatives()["x0"], 1e-13)


def test_names_say_what_drift_and_diffusion_are_called():
    field = Field("ito", "diagonal")
    sde = bare("diagonal", mu=field.f, vol=field.g)
    names = {"drift": "mu", "diffusion": "vol"}
    v = view(sde, names)
    y = batch(3, 2)
    assert torch.equal(v.f(T, y), field.f(T, y))
    assert torch.equal(v.g(T, y), field.g(T, y))
    ours = sdesens.sensitivities(sde, y, [0.0, 0.5], names=names, dt=0.25, seed=0)
    theirs = sdesens.sensitivities(field, y, [0.0, 0.5], dt=0.25, seed=0)
    assert torch.equal(ours.derivatives()["x0"], theirs.derivatives()["x0"])


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"drfit": "f"}, "unknown key 'drfit'.*Did you mean 'drift'"),
        ({"drift": "mu"}, "names.*'drift'.* is 'mu', but Field has no such method"),
    ],
)
def test_bad_names_are_refused(names, words):
    with pytest.raises(ValueError, match=words):
        sdesens.sensitivities(Field("ito", "diagonal"), batch(2, 2), [0.0, 1.0], names=names)


def test_names_of_a_prior_drift_are_let_through():
    names = {"prior_drift": "h"}
    sde = Field("ito", "diagonal")
    assert sdesens.sensitivities(sde, batch(2, 2), [0.0, 0.1], dt=0.1, names=names).x.shape[0] == 2


@pytest.mark.parametrize("missing", ["noise_type", "sde_type"])
def test_an_object_without_its_types_is_refused(missing):
    members = {"noise_type": "diagonal", "sde_type": "ito", "f": None, "g": None}
    members.pop(missing)
    with pytest.raises(TypeError, match=f"must have an attribute '{missing}', one of"):
        sdesens.sensitivities(type("Odd", (), members)(), batch(2, 2), [0.0, 1.0])


def test_an_unknown_type_is_refused_with_the_nearest():
    sde = Field("ito", "diagonal")
    sde.noise_type = "diagonall"
    with pytest.raises(ValueError, match=r"sde.noise_type must be one of.*mean 'diagonal'"):
        sdesens.sensitivities(sde, batch(2, 2), [0.0, 1.0])


@pytest.mark.parametrize("has", ["f", "g", ""])
def test_an_object_without_drift_or_diffusion_is_refused(has):
    functions = {has: lambda t, y: y} if has else {}
    with pytest.raises(TypeError, match=f"f and g, f_and_g.* has {has or 'none of them'}.*names="):
        sdesens.sensitivities(bare("diagonal", **functions), batch(2, 2), [0.0, 1.0])


def test_g_prod_alone_needs_a_bm_to_tell_its_channels():
    sde = bare("general", f=lambda t, y: y, g_prod=lambda t, y, v: y * v.sum(-1, keepdim=True))
    with pytest.raises(ValueError, match=r"channels cannot be told from g_prod alone.*Pass bm="):
        sdesens.sensitivities(sde, batch(2, 2), [0.0, 1.0], dt=0.5)


class WrongTangent(sdesens.SDE):
    state, sde_type, noise_type = ("x",), "ito", "diagonal"

    def drift(self, t, x):
        return -(x**2)

    def diffusion(self, t, x):
        return 0.1 * x

    def drift_tangent(self, t, x, dx):
        return -x * dx  # a factor 2 is missing

    def diffusion_tangent(self, t, x, dx):
        return 0.1 * dx


class Restated(GeometricBrownianMotion):
    """Changes the drift and inherits the tangent of the old one."""

    def drift(self, t, x):
        return self.mu * x.sin()


class Corrected(Restated):
    drift_tangent = None  # pyright: ignore[reportAssignmentType]


@pytest.mark.parametrize("model", [WrongTangent(), Restated(0.5, 0.2)], ids=["wrong", "inherited"])
def test_a_closed_form_that_is_not_the_derivative_is_refused(model):
    x0 = torch.full((2, 1), 1.2, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"drift_tangent is not the derivative.*tangent = None"):
        sdesens.sensitivities(model, x0, [0.0, 1.0], dt=0.1, seed=0)


class WrongAbove(sdesens.SDE):
    """Its volatility rises from 2 on, which its tangent forgets."""

    state, sde_type, noise_type = ("x",), "ito", "diagonal"

    def drift(self, t, x):
        return x

    def diffusion(self, t, x):
        return 0.1 * torch.relu(x - 2)

    def drift_tangent(self, t, x, dx):
        return dx

    def diffusion_tangent(self, t, x, dx):
        return 0 * dx


def test_a_closed_form_that_is_wrong_where_the_path_ends_is_refused():
    model, x0 = WrongAbove(), torch.full((2, 1), 1.2, dtype=torch.float64)
    sens = sdesens.sensitivities(model, x0 / 2, [0.0, 0.5], dt=0.1, seed=0)
    assert bool((sens.dx0 >= 1).all())  # below 2 the formula is right
    with pytest.raises(ValueError, match=r"diffusion_tangent is not the derivative.*at ts\[-1\]"):
        sdesens.sensitivities(WrongAbove(), x0, [0.0, 1.0], dt=0.1, seed=0)


def test_a_closed_form_set_to_none_leaves_the_derivative_to_autodiff():
    x0 = torch.full((2, 1), 1.2, dtype=torch.float64)
    assert sdesens.compare_modes(Corrected(0.5, 0.2), x0, [0.0, 1.0], dt=0.1, seed=0).agree
