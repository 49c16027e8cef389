"""The undiscounted cores: values, limits, float32, and as recorded programs."""

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from sdesens.fused.evaluate import evaluate_expressions
from sdesens.fused.program import Program
from sdesens.fused.record import record
from sdesens.fused.rules import expressions
from sdesens.pricing import formulas as f

LAWS = {"lognormal": (100.0, 0.3), "normal": (100.0, 30.0)}
PAYOFFS = {
    "call": lambda x, k: max(x - k, 0.0),
    "put": lambda x, k: max(k - x, 0.0),
    "digital_call": lambda x, k: float(x > k),
    "digital_put": lambda x, k: float(x < k),
    "asset_digital_call": lambda x, k: x * (x > k),
    "asset_digital_put": lambda x, k: x * (x < k),
}
NAMES = [f"{law}_{payoff}" for law in LAWS for payoff in PAYOFFS]
F = torch.tensor([60.0, 99.0, 100.0, 100.0, 140.0, 100.0, 120.0], dtype=torch.float64)
S = torch.tensor([0.4, 0.05, 0.2, 0.0, 0.0, 1e-30, 3.0], dtype=torch.float64)


def point(name):
    """Means and deviations of a law, with the degenerate ones among them."""
    return F, S * (100.0 if name.startswith("normal") else 1.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("strike", [70.0, 100.0, 150.0])
def test_a_core_is_the_mean_of_its_payoff(name, strike):
    law, _, payoff = name.partition("_")
    mean, s = LAWS[law]

    def value(z):
        x = mean + s * z
        if law == "lognormal":
            x = mean * torch.tensor(s * z - s * s / 2, dtype=torch.float64).exp().item()
        return float(PAYOFFS[payoff](x, strike)) * norm.pdf(z)

    edge = (strike - mean) / s
    if law == "lognormal":
        edge = torch.tensor(strike / mean, dtype=torch.float64).log().item() / s + s / 2
    mean_payoff = sum(
        quad(value, *ends, epsabs=1e-12)[0] for ends in ((-10, edge), (edge, 0.9 + edge + 9))
    )
    assert abs(getattr(f, name)(mean, strike, s).item() - mean_payoff) < 1e-10


@pytest.mark.parametrize("law", LAWS)
def test_call_minus_put_and_the_digitals_add_up(law):
    mean, s = point(law)
    call, put, above, below, asset_above, asset_below = (
        getattr(f, f"{law}_{p}")(mean, 100.0, s) for p in PAYOFFS
    )
    assert torch.allclose(call - put, mean - 100.0, rtol=0, atol=1e-12)
    assert torch.allclose(above + below, torch.ones_like(mean), rtol=0, atol=1e-15)
    assert torch.allclose(asset_above + asset_below, mean, rtol=0, atol=1e-13)
    assert torch.allclose(asset_above - 100.0 * above, call, rtol=0, atol=1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_without_deviation_it_is_intrinsic_with_slope_one_half_at_the_money(law):
    mean = torch.tensor([90.0, 100.0, 110.0], dtype=torch.float64, requires_grad=True)
    s = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    call = getattr(f, f"{law}_call")(mean, 100.0, s)
    assert call.tolist() == [0.0, 0.0, 10.0]
    delta, vega = torch.autograd.grad(call.sum(), (mean, s))
    assert delta.tolist() == [0.0, 0.5, 1.0]
    assert vega.tolist() == [0.0, 0.0, 0.0]
    assert getattr(f, f"{law}_digital_call")(mean, 100.0, s).tolist() == [0.0, 0.5, 1.0]
    assert getattr(f, f"{law}_digital_put")(mean, 100.0, s).tolist() == [1.0, 0.5, 0.0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_derivatives_up_to_the_second_are_finite(name, dtype):
    for s in (0.0, 1e-30, 1e-12, 1e-3, 0.3, 30.0):
        mean = torch.tensor([1.0, 99.0, 100.0, 101.0, 1e4], dtype=dtype, requires_grad=True)
        # A second derivative at the money of order 1/s overflows float32 where s is smaller.
        if dtype == torch.float32 and s == 1e-30:
            continue
        stdev = torch.full((5,), s, dtype=dtype, requires_grad=True)
        value = getattr(f, name)(mean, 100.0, stdev)
        assert value.dtype == dtype and torch.isfinite(value).all()
        first = torch.autograd.grad(value.sum(), (mean, stdev), create_graph=True)
        assert all(torch.isfinite(g).all() for g in first)
        for g in first:
            if g.requires_grad:
                second = torch.autograd.grad(
                    g.sum(), (mean, stdev), retain_graph=True, allow_unused=True
                )
                assert all(h is None or torch.isfinite(h).all() for h in second)


@pytest.mark.parametrize("name", NAMES)
def test_float32_agrees_with_float64(name):
    mean, s = point(name)
    exact = getattr(f, name)(mean, 100.0, s)
    single = getattr(f, name)(mean.float(), 100.0, s.float())
    assert torch.allclose(single.double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("payoff", PAYOFFS)
def test_a_value_that_is_not_positive_is_no_option_any_more(payoff):
    mean = torch.tensor([0.0, -5.0], dtype=torch.float64, requires_grad=True)
    value = getattr(f, f"lognormal_{payoff}")(mean, 100.0, 0.2)
    assert value.tolist() == [PAYOFFS[payoff](m, 100.0) for m in mean.tolist()]
    (slope,) = torch.autograd.grad(value.sum(), mean)
    assert torch.isfinite(slope).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_nan_is_handed_on(name, which):
    arguments = [100.0, 100.0, 0.2]
    arguments[which] = float("nan")
    assert torch.isnan(getattr(f, name)(*arguments))


@pytest.mark.parametrize("law", LAWS)
def test_a_put_far_out_of_the_money_keeps_its_digits(law):
    put, digital = getattr(f, f"{law}_put"), getattr(f, f"{law}_digital_put")
    mean, s = (1000.0, 0.2) if law == "lognormal" else (340.0, 20.0)
    by_integral = quad(lambda k: digital(mean, k, s).item(), 0, 100.0, points=[90.0, 99.0])[0]
    assert 0 < put(mean, 100.0, s).item() < 1e-20
    assert abs(put(mean, 100.0, s).item() / by_integral - 1) < 1e-10


@pytest.mark.parametrize("name", NAMES)
def test_a_core_and_its_tangent_are_recorded_with_their_values(name):
    def both(mean, s, dmean, ds):
        def core(m, d):
            return getattr(f, name)(m, 100.0, d)

        return torch.func.jvp(core, (mean, s), (dmean, ds))

    program = Program()
    mean, s = point(name)
    n = len(mean)
    kinds = ("state", "state_tangent")
    tables = [
        expressions([program.input(kind, i) for i in range(first, first + n)], mean.shape)
        for kind in kinds
        for first in (0, n)
    ]
    example = [mean, s, torch.ones_like(mean), torch.full_like(s, 0.3)]
    outputs = record(both, [v.flip(0) + 0.1 for v in example], tables, program)
    values = {"state": torch.cat(example[:2]), "state_tangent": torch.cat(example[2:])}
    for out, right in zip(outputs, both(*example), strict=True):
        got = evaluate_expressions(program, out, values)
        assert torch.allclose(got, right, rtol=1e-13, atol=1e-13)
