"""Every bad argument is a clear error before any long work, in every mode."""

import math

import pytest
import torch
import torchsde

import sdesens
from sdesens.models import GeometricBrownianMotion, Heston
from tests.problems import MODES

ALL = (*MODES, "auto")
TS = torch.linspace(0, 1, 5, dtype=torch.float64)
X0 = torch.full((3, 1), 100.0, dtype=torch.float64)


def gbm():
    return GeometricBrownianMotion(0.05, 0.2)


def path(t1=1.0, shape=(3, 1), steps=4, dtype=torch.float64, **more):
    return sdesens.BrownianPath(0.0, t1, shape, steps, dtype=dtype, **more)


BAD = {
    "x0 no tensor": ({"x0": [[1.0]]}, TypeError, r"x0 must be a torch.Tensor, got list"),
    "x0 a number": ({"x0": torch.tensor(1.0)}, ValueError, r"\(B, d\), got \(\).*unsqueeze"),
    "x0 a vector": ({"x0": torch.ones(3)}, ValueError, r"x0 must have shape \(B, d\), got \(3,\)"),
    "x0 a cube": ({"x0": torch.ones(1, 1, 1)}, ValueError, r"got \(1, 1, 1\)"),
    "x0 too wide": ({"x0": torch.ones(3, 2).double()}, ValueError, r"\(B, 1\) for the components"),
    "x0 of no dimension": ({"x0": torch.ones(3, 0)}, ValueError, r"\(B, 1\)|one state dimension"),
    "x0 integer": ({"x0": torch.ones(3, 1).long()}, TypeError, r"floating dtype.*x0.double\(\)"),
    "x0 half": (
        {"x0": torch.ones(3, 1).half()},
        TypeError,
        "float32 or float64, got torch.float16",
    ),
    "x0 complex": ({"x0": torch.ones(3, 1) + 0j}, TypeError, "floating dtype"),
    "x0 NaN": (
        {"x0": torch.tensor([[1.0], [math.nan]]).double()},
        ValueError,
        r"x0 must be finite, got nan at index \[1, 0\]",
    ),
    "x0 infinite": ({"x0": X0 * math.inf}, ValueError, r"got inf at index \[0, 0\] \(3 non-finite"),
    "mode unknown": ({"mode": "vjpp"}, ValueError, r"mode must be one of .*Did you mean 'vjp'"),
    "mode none": ({"mode": None}, ValueError, "mode must be one of .* got None"),
    "wrt unknown": ({"wrt": "sigmma"}, ValueError, r"'sigmma'.*Did you mean 'sigma'"),
    "ts decreases": ({"ts": TS.flip(0)}, ValueError, r"increase strictly, got ts\[0\]=1.0"),
    "ts repeats": ({"ts": [0.0, 1.0, 1.0]}, ValueError, r"ts\[1\]=1.0 and ts\[2\]=1.0.*repeated"),
    "ts empty": ({"ts": []}, ValueError, r"T >= 1, got \(0,\)"),
    "ts a matrix": ({"ts": TS[None]}, ValueError, r"shape \(T,\) with T >= 1, got \(1, 5\)"),
    "ts a number": ({"ts": 1.0}, TypeError, "1-d tensor or a sequence of numbers, got float"),
    "ts words": ({"ts": ["a", "b"]}, TypeError, "sequence of numbers, got list"),
    "ts NaN": ({"ts": [0.0, math.nan]}, ValueError, r"ts must be finite, got nan at index \[1\]"),
    "ts infinite": ({"ts": [0.0, math.inf]}, ValueError, "ts must be finite, got inf"),
    "ts half": ({"ts": TS.half()}, TypeError, "float32, float64 or integer, got torch.float16"),
    "ts complex": ({"ts": TS + 0j}, TypeError, "got torch.complex128"),
    "ts bool": ({"ts": torch.tensor([False, True])}, TypeError, "got torch.bool"),
    "ts with grad": ({"ts": TS.clone().requires_grad_()}, ValueError, "ts must not require grad"),
    "dt zero": ({"dt": 0.0}, ValueError, "dt must be positive and finite, got 0.0"),
    "dt negative": ({"dt": -0.1}, ValueError, "dt must be positive and finite, got -0.1"),
    "dt NaN": ({"dt": math.nan}, ValueError, "dt must be positive and finite, got nan"),
    "dt infinite": ({"dt": math.inf}, ValueError, "dt must be positive and finite, got inf"),
    "dt a word": ({"dt": "small"}, TypeError, "dt must be a number, got str"),
    "dt two numbers": ({"dt": torch.ones(2)}, TypeError, "dt must be a number, got Tensor"),
    "dt too small": (
        {"ts": TS + 1e6, "dt": 1e-12},
        ValueError,
        r"below the resolution of ts: t \+ dt == t at t=1000001.0 in torch.float64.*larger dt",
    ),
    "dt too small for float32": (
        {"ts": (TS + 1e4).float(), "dt": 1e-4},
        ValueError,
        r"t \+ dt == t at t=10001.0 in torch.float32.*ts in float64",
    ),
    "seed negative": ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
    "seed too large": ({"seed": 2**64}, ValueError, r"seed must be in \[0, 2\*\*64\)"),
    "seed a float": ({"seed": 1.5}, TypeError, "seed must be an int, got 1.5"),
    "chunk zero": ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1, got 0"),
    "chunk a float": ({"chunk_size": 2.0}, TypeError, "chunk_size must be an int, got 2.0"),
    "adaptive": ({"adaptive": True}, sdesens.UnsupportedError, "adaptive=True .*fixed dt="),
    "logqp": ({"logqp": True}, sdesens.UnsupportedError, "logqp=True .*log-ratio"),
    "method unknown": ({"method": "eular"}, ValueError, "method must be one of.*mean 'euler'"),
    "method of the other calculus": (
        {"method": "heun"},
        sdesens.UnsupportedError,
        r"'heun' does not solve ito SDEs with diagonal noise; these do: \['euler', 'mils",
    ),
    "option misspelt": (
        {"method": "milstein", "options": {"gradfree": True}},
        ValueError,
        "option of method 'milstein' must be one of .*Did you mean 'grad_free'",
    ),
    "option of another method": (
        {"options": {"grad_free": True}},
        ValueError,
        "option of method 'euler'",
    ),
    "bm and seed": ({"bm": path(), "seed": 1}, ValueError, "bm and seed were both given"),
    "bm a tensor": ({"bm": X0}, TypeError, "BrownianPath or another BaseBrownian, got Tensor"),
    "bm a function": ({"bm": lambda a, b: a}, TypeError, "BrownianPath or another BaseBrownian"),
    "bm of another batch": (
        {"bm": path(shape=(2, 1))},
        ValueError,
        r"shape \(B, m\) = \(3, 1\) .*got \(2, 1\)",
    ),
    "bm of more channels": ({"bm": path(shape=(3, 2))}, ValueError, r"\(3, 1\) .*got \(3, 2\)"),
    "bm of another dtype": (
        {"bm": path(dtype=torch.float32)},
        TypeError,
        "bm must have the dtype and device of x0.*got torch.float32",
    ),
    "bm too short": ({"bm": path(t1=0.5)}, sdesens.OffGridError, "outside the grid.*as long as ts"),
    "bm on another grid": (
        {"bm": path(steps=3)},
        sdesens.OffGridError,
        r"0.25 is not a node.*nearest nodes are 0.0 and 0.33",
    ),
    "bm too short of torchsde": (
        {"bm": torchsde.BrownianInterval(0.0, 0.5, size=(3, 1), dtype=torch.float64)},
        ValueError,
        "bm does not reach time 1.0",
    ),
    "bm too late of torchsde": (
        {"bm": torchsde.BrownianInterval(0.5, 1.0, size=(3, 1), dtype=torch.float64)},
        ValueError,
        "bm does not reach time 0.0",
    ),
    "bm without the area of srk": (
        {"method": "srk", "bm": path()},
        ValueError,
        r"'srk' needs a bm with Lévy area .*got 'none'.*levy_area='space-time'",
    ),
}


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize(("arguments", "error", "words"), BAD.values(), ids=BAD.keys())
def test_it_is_refused(mode, arguments, error, words):
    good = {"x0": X0, "ts": TS, "mode": mode, "method": "euler", "dt": 0.25}
    if "x0" in arguments and isinstance(arguments["x0"], torch.Tensor):
        good["ts"] = [0.0, 1.0]
    with pytest.raises(error, match=words):
        sdesens.sensitivities(gbm(), **(good | arguments))


COMPARED = [
    k for k, (a, _, _) in BAD.items() if not {"mode", "chunk_size", "adaptive", "logqp"} & set(a)
]


@pytest.mark.parametrize(("arguments", "error", "words"), [BAD[k] for k in COMPARED], ids=COMPARED)
def test_compare_modes_refuses_it_too(arguments, error, words):
    good = {"x0": X0, "ts": TS, "method": "euler", "dt": 0.25}
    with pytest.raises(error, match=words):
        sdesens.compare_modes(gbm(), **(good | arguments))


@pytest.mark.parametrize("word", ["metod", "step", "chunk", "engin"])
def test_a_misspelt_keyword_is_an_error(word):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{word}'"):
        sdesens.sensitivities(gbm(), X0, TS, **{word: 1})  # pyright: ignore


def test_a_start_and_a_bm_on_different_devices_are_refused():
    bm = path()
    bm._device = torch.device("meta")
    with pytest.raises(TypeError, match=r"dtype and device of x0, .* on cpu, got .* on meta"):
        sdesens.sensitivities(gbm(), X0, TS, method="euler", dt=0.25, bm=bm)


def test_times_on_another_device_are_refused():
    with pytest.raises(ValueError, match=r"ts is on meta, x0 on cpu\. Move ts"):
        sdesens.sensitivities(gbm(), X0, TS.to("meta"), method="euler", dt=0.25)


# --- drift and diffusion --------------------------------------------------------------------------


class Counted:
    """A model for torchsde that counts its calls and has two dimensions."""

    sde_type = "ito"

    def __init__(self, f=None, g=None, noise_type="diagonal"):
        self.noise_type, self.calls = noise_type, 0
        self._f, self._g = f or (lambda t, y: -y), g or (lambda t, y: torch.ones_like(y))

    def f(self, t, y):
        self.calls += 1
        return self._f(t, y)

    def g(self, t, y):
        return self._g(t, y)


def in_place(y):
    y *= 0.9
    return -y


WRONG = {
    "drift too narrow": (
        {"f": lambda t, y: y[:, :1]},
        ValueError,
        r"drift must have shape \(B, d\), here \(3, 2\), got \(3, 1\)",
    ),
    "drift without batch": ({"f": lambda t, y: y[0]}, ValueError, r"drift .* got \(2,\)"),
    "drift of a single sample": ({"f": lambda t, y: y[:1]}, ValueError, r"drift .* got \(1, 2\)"),
    "drift a number": ({"f": lambda t, y: 1.0}, TypeError, "drift must return a tensor, got float"),
    "drift None": ({"f": lambda t, y: None}, TypeError, "drift must return a tensor, got NoneType"),
    "drift of another dtype": (
        {"f": lambda t, y: y.float()},
        TypeError,
        "drift must have the dtype .*torch.float64 on cpu, got torch.float32",
    ),
    "drift on another device": (
        {"f": lambda t, y: y.to("meta")},
        TypeError,
        "got torch.float64 on meta",
    ),
    "drift in place": (
        {"f": lambda t, y: in_place(y)},
        ValueError,
        "edits its input y in place.*Work on a copy",
    ),
    "diffusion a matrix though diagonal": (
        {"g": lambda t, y: torch.diag_embed(y)},
        ValueError,
        r"\(B, d\) for diagonal noise, here \(3, 2\), got \(3, 2, 2\)",
    ),
    "diffusion a vector though general": (
        {"noise_type": "general"},
        ValueError,
        r"diffusion must have shape \(B, d, m\), .*got \(3, 2\)",
    ),
    "diffusion of another batch": (
        {"noise_type": "general", "g": lambda t, y: torch.ones(1, 2, 4).double()},
        ValueError,
        r"got \(1, 2, 4\)",
    ),
    "diffusion transposed": (
        {"noise_type": "general", "g": lambda t, y: torch.ones(3, 4, 2).double()},
        ValueError,
        r"got \(3, 4, 2\)",
    ),
    "diffusion of two channels though scalar": (
        {"noise_type": "scalar", "g": lambda t, y: torch.ones(3, 2, 2).double()},
        ValueError,
        "scalar noise has one channel.*noise_type='general'",
    ),
    "diffusion of another dtype": (
        {"g": lambda t, y: y.float()},
        TypeError,
        "diffusion must have the dtype",
    ),
    "diffusion in place": (
        {"g": lambda t, y: in_place(y)},
        ValueError,
        "edits its input y in place",
    ),
}


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize(("model", "error", "words"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_drift_or_diffusion_is_refused_before_the_first_step(mode, model, error, words):
    sde, x0 = Counted(**model), torch.ones(3, 2, dtype=torch.float64)
    with pytest.raises(error, match=words):
        sdesens.sensitivities(sde, x0, TS, mode=mode, method="euler", dt=1e-3, seed=0)
    assert sde.calls <= 2
    assert torch.equal(x0, torch.ones_like(x0))


@pytest.mark.parametrize("mode", ALL)
def test_coupled_samples_are_refused_and_the_causes_named(mode):
    norm = torch.nn.BatchNorm1d(2, affine=False, dtype=torch.float64)
    x0 = torch.tensor([[0.1, 0.2], [0.3, -0.4], [0.5, 0.9]], dtype=torch.float64)
    arguments = {"mode": mode, "method": "euler", "dt": 0.25, "seed": 0}
    for f in (lambda t, y: norm(y), lambda t, y: y.mean(0) - y):
        with pytest.raises(sdesens.CoupledSamplesError, match=r"model\.eval\(\).*compare_modes"):
            sdesens.sensitivities(Counted(f=f), x0, TS, **arguments)
    norm.eval()
    sens = sdesens.sensitivities(Counted(f=lambda t, y: norm(y)), x0, TS, **arguments)
    assert sens.x.isfinite().all()
    # One sample alone has no other to be coupled to: the drift of the mean is zero.
    alone = sdesens.sensitivities(Counted(f=lambda t, y: y.mean(0) - y), x0[:1], TS, **arguments)
    assert torch.equal(alone.derivatives()["x0"][-1, 0], torch.eye(2, dtype=torch.float64))


def test_coupled_diffusions_are_refused_as_well():
    x0 = torch.tensor([[0.1], [0.3], [0.5]], dtype=torch.float64)
    sde = Counted(g=lambda t, y: y.mean(0) + y)
    with pytest.raises(sdesens.CoupledSamplesError, match="moving one sample"):
        sdesens.sensitivities(sde, x0, TS, method="euler", dt=0.25, seed=0)


def test_dropout_in_training_mode_is_refused():
    x0 = torch.ones(40, 2, dtype=torch.float64)
    sde = Counted(f=lambda t, y: torch.nn.functional.dropout(y, 0.5))
    with pytest.raises(ValueError, match=r"model\.eval\(\)"):
        sdesens.sensitivities(sde, x0, TS, mode="vjp", method="euler", dt=0.25, seed=0)


def test_general_noise_wants_a_bm_of_its_channels():
    model = Heston(0.03, 1.5, 0.04, 0.3, -0.7)
    x0 = torch.tensor([[100.0, 0.04]] * 3, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"\(B, m\) = \(3, 2\) .*got \(3, 1\)"):
        sdesens.sensitivities(model, x0, TS, method="euler", dt=0.25, bm=path())
