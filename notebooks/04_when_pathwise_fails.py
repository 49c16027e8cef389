# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 4. When pathwise fails
#
# The derivative of a mean is the mean of the derivatives only if no path jumps. For digitals,
# barriers and second derivatives automatic differentiation returns a number without an error, and
# it is wrong. This notebook shows each case, the estimators that are right, and what they cost.

# %%
# %matplotlib inline
import math
import os
import textwrap

import matplotlib as mpl
import torch
from matplotlib.figure import Figure

import sdesens
from sdesens import montecarlo, plots
from sdesens.models import BlackScholes, Heston, MertonJumpDiffusion
from sdesens.montecarlo import Estimate
from sdesens.pricing import (
    Asian,
    Barrier,
    Call,
    Digital,
    closed_form_greeks,
    payoff,
)

QUICK = bool(os.environ.get("SDESENS_QUICK"))
mpl.style.use("sdesens.plots.paper")
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)

S0, K, r, sigma, T = 100.0, 100.0, 0.05, 0.2, 1.0
n = 20_000 if QUICK else 200_000
Z = sdesens.BrownianPath(0, 1, (n, 1), 1, seed=0)(0.0, 1.0)[:, 0]  # standard normal
discount = math.exp(-r * T)


def spot(S0, sigma=sigma, r=r):
    """S_T of every path."""
    log_S0 = torch.as_tensor(S0).log()
    return torch.exp(log_S0 + (r - sigma**2 / 2) * T + sigma * math.sqrt(T) * Z)


def show(found, digits=4):
    return f"{found.value:.{digits}f} ± {found.stderr:.{digits}f}"


def agree(found, exact):
    assert abs(found.value - exact) < 4 * found.stderr, (found, exact)


# %% [markdown]
# ## Three silent errors
#
# **A digital** pays 1 if $S_T > 110$. Its payoff is flat on either side of the strike, so the
# derivative of every path is 0. The derivative of the probability is not.

# %%
start = torch.tensor(S0, requires_grad=True)
pays = (spot(start) > 110).double()  # a comparison: autograd sees a constant
print("the payoff has a graph:", pays.requires_grad)

model = BlackScholes(rate=r, sigma=sigma)
digital = Digital(strike=110.0, maturity=T)
delta = closed_form_greeks(model, digital, [S0])["spot",]
print(f"exact delta {delta:.6f}")

# %% [markdown]
# **A payoff with a jump and a slope**, $S_T\,1\{S_T > 90\}$ with $r = 0$. Here autograd finds
# something, and it looks plausible. With $b = (\log(S_0/90) - \sigma^2T/2)/(\sigma\sqrt T)$ and $d
# = b + \sigma\sqrt T$ the value is $S_0 N(d)$, and its derivative
#
# $$N(d) + \frac{\varphi(d)}{\sigma\sqrt T},$$
#
# of which autograd sees the first term. The second is the jump of 90 times the density of $S_T$
# there: more paths get over it.

# %%
start = torch.tensor(S0, requires_grad=True)
end = spot(start, r=0.0)
(seen,) = torch.autograd.grad((end * (end > 90)).mean(), start)

d = torch.tensor((math.log(S0 / 90) + sigma**2 * T / 2) / (sigma * math.sqrt(T)))
inside = torch.special.ndtr(d).item()
boundary = (torch.exp(-(d**2) / 2) / math.sqrt(2 * math.pi) / (sigma * math.sqrt(T))).item()
print(f"autograd {seen.item():.4f}")
print(f"exact    {inside + boundary:.6f} = {inside:.6f} + {boundary:.6f}")
assert abs(seen.item() - inside) < 0.02

# %% [markdown]
# **The gamma of a call.** The payoff is Lipschitz and its pathwise delta right, but the slope
# jumps at the strike. Differentiated twice, every path gives 0: delta is $S_T 1\{S_T > K\}/S_0$
# along a path, in which $S_T/S_0$ does not depend on $S_0$ at all.

# %%
start = torch.tensor(S0, requires_grad=True)
value = discount * (spot(start) - K).clamp(min=0).mean()
(first,) = torch.autograd.grad(value, start, create_graph=True)
(twice,) = torch.autograd.grad(first, start)
call = Call(strike=K, maturity=T)
known = closed_form_greeks(model, call, [S0], wrt="spot", order=2)
print(f"delta {first.item():.4f}, exact {known['spot',]:.4f}")
print(f"gamma by autograd twice {twice.item():.1e}, exact {known['spot', 'spot']:.6f}")
assert abs(twice.item()) < 1e-12

# %% [markdown]
# ## A bump does not help
#
# On common noise a bump of $h$ moves a share of the paths of order $h$ over the jump, and each of
# them contributes $1/(2h)$. The mean is right, but the variance grows like $1/h$. Too wide a bump
# is biased, too narrow a one noise.

# %%
print("bump      delta of the digital")
for h in (10.0, 1.0, 0.1, 0.01):
    up, down = ((spot(S0 + sign * h) > 110).double() for sign in (1, -1))
    found = Estimate.of(discount * (up - down) / (2 * h))
    print(f"{h:5}     {show(found, 5)}   exact {delta:.5f}")

# %% [markdown]
# ## Differentiate the density instead
#
# The payoff need not be smooth if the *law* of $S_T$ is. With its density $p$, $V = \int
# F(s)\,p(s; S_0)\,ds$ and
#
# $$\frac{\partial V}{\partial S_0} = \int F\,\frac{\partial_{S_0} p}{p}\,p\,ds = E\Big[F(S_T)\,\frac{\partial \log p(S_T; S_0)}{\partial S_0}\Big] = E\Big[F(S_T)\,\frac{Z}{S_0\,\sigma\sqrt T}\Big],$$
#
# the payoff times a weight that is the same for every payoff (Broadie and Glasserman, 1996). Once
# more, and mixed: the weight for one derivative and the path for the other give gamma.

# %%
weight = Z / (S0 * sigma * math.sqrt(T))
end = spot(S0)
by_weight = Estimate.of(discount * (end > 110) * weight)
print(f"digital: delta {show(by_weight, 5)}, exact {delta:.5f}")
agree(by_weight, delta)

end0 = spot(S0, r=0.0)
jump_and_slope = Estimate.of(end0 * (end0 > 90) * weight)
print(f"S 1{{S>90}}: delta {show(jump_and_slope)}, exact {inside + boundary:.4f}")
agree(jump_and_slope, inside + boundary)

mixed = Estimate.of(discount * (end > K) * end / S0 * (weight - 1 / S0))
print(f"call: gamma {show(mixed, 6)}, exact {known['spot', 'spot']:.6f}")
agree(mixed, known["spot", "spot"])

# %% [markdown]
# ## Many steps: the weight of Bismut, Elworthy and Li
#
# Few models have a density in closed form, but every Euler step has: it is normal. The start $x_0$
# enters the first step only, so the weight is the score of that one, and it is large: of the order
# of $\Delta W_1/(g\,h)$, with a variance like $1/h$. The likelihood ratio gets worse as the grid
# gets finer.
#
# The cure is to spread the work over the whole path. With the tangent process $J$ of notebook 2, a
# change of $x_0$ can be undone gradually by the noise, and
#
# $$\frac{\partial}{\partial x_0} E[F(X_T)] = E\Big[F(X_T)\,\frac1T\int_0^T \frac{J_t}{g(X_t)}\,dW_t\Big]$$
#
# (Elworthy and Li, *Journal of Functional Analysis* 125, 1994; for greeks Fournié et al., *Finance
# and Stochastics* 3, 1999). `sensitivities` has all that it takes. A process without closed forms,
# and the derivative of $P(X_1 > 0.6)$:


# %%
class Sine:
    """dX = (sin X - X) dt + (0.3 cos X + 0.5) dW."""

    sde_type, noise_type = "ito", "diagonal"

    def f(self, t, x):
        return torch.sin(x) - x

    def g(self, t, x):
        return 0.3 * torch.cos(x) + 0.5


B = 20_000 if QUICK else 100_000
level = torch.tensor(0.6)
print("steps      Bismut-Elworthy-Li      likelihood ratio        conditional expectation")
for steps in (10, 40):
    h = 1 / steps
    ts = torch.linspace(0, 1, steps + 1)
    noise = sdesens.BrownianPath(0, 1, (B, 1), steps, seed=1)
    sens = sdesens.sensitivities(
        Sine(), torch.full((B, 1), 0.5), ts, method="euler", dt=h, bm=noise
    )
    x, J = sens.x[..., 0], sens.dx0[..., 0, 0]
    dW = torch.stack([noise(ts[k], ts[k + 1])[:, 0] for k in range(steps)])
    g = 0.3 * torch.cos(x) + 0.5
    over = (x[-1] > level).double()

    bismut = (J[:-1] / g[:-1] * dW).sum(0)

    at, slope = x[0], -0.3 * torch.sin(x[0])  # the score of the first Euler step in x0
    ratio = (1 + (torch.cos(at) - 1) * h) * dW[0] / (g[0] * h)
    ratio = ratio + slope / g[0] * (dW[0] ** 2 / h - 1)

    # P(X_1 > level) given the node before the last, and its derivative along J.
    before = x[-2].clone().requires_grad_()
    mean = before + (torch.sin(before) - before) * h
    spread = (0.3 * torch.cos(before) + 0.5) * h**0.5
    chance = torch.special.ndtr((mean - level) / spread)
    (of_last,) = torch.autograd.grad(chance.sum(), before)

    three = [Estimate.of(over * bismut), Estimate.of(over * ratio), Estimate.of(of_last * J[-2])]
    print(f"{steps:5}", *(f"{show(found):>23}" for found in three))
    for found in three[:2]:
        gap = abs(found.value - three[2].value)
        assert gap < 4 * math.hypot(found.stderr, three[2].stderr) + 0.05 * h**0.5
    assert three[1].stderr > 3 * three[0].stderr

# %% [markdown]
# From 10 to 40 steps the error of the likelihood ratio doubles, and that of Bismut's weight stays.
# The third column is the third remedy.
#
# ## Average the jump away
#
# Given the path up to the node before the last, the last step is normal, and the expectation of
# the payoff over it is a smooth function. Differentiate that, pathwise. One needs the expectation:
# `greeks` has it for its own payoffs in models whose last step is normal or log-normal. And the
# step must be wide enough to smooth anything: as it shrinks, the variance grows like $h^{-1/2}$.
# Best is a model in which all steps can be averaged at once, as Heston's given the path of the
# variance, or Merton's given the jumps.
#
# For barriers watched at dates every date is a jump. **One-step survival** (Glasserman and Staum,
# *Operations Research* 49, 2001) draws each step given that it ends alive, and multiplies the
# payoff by the probability that it does. No path is ever knocked out, nothing jumps, the rest is
# pathwise.

# %%
monthly = sdesens.BrownianPath(0, T, (n, 1), 12, seed=0)


def knocked_out(S0):
    """Discounted payoffs of a call that dies where the spot is at 90 or below on a month's end."""
    path, alive = torch.as_tensor(S0).expand(n), torch.ones(n)
    for k in range(12):
        dW = monthly(k / 12, (k + 1) / 12)[:, 0]
        path = path * torch.exp((r - sigma**2 / 2) / 12 + sigma * dW)
        alive = alive * (path > 90)
    return discount * alive * (path - K).clamp(min=0)


start = torch.tensor(S0, requires_grad=True)
(wrong,) = torch.autograd.grad(knocked_out(start).mean(), start)
by_bump = Estimate.of((knocked_out(S0 + 1) - knocked_out(S0 - 1)) / 2)

barrier = Barrier(strike=K, barrier=90.0, maturity=T, kind="down-and-out", dates=12)
both = ("spot", "sigma")
survival = sdesens.greeks(model, barrier, [S0], paths=n, steps=12, wrt=both, seed=0)
print(f"autograd through the indicators  {wrong.item():.4f}")
print(f"bump of 1 on common noise        {show(by_bump)}")
print(f"greeks, {survival.estimators['spot',]}        {show(survival.delta)}")
assert abs(wrong.item() - survival.delta.value) > 20 * survival.delta.stderr
gap = abs(by_bump.value - survival.delta.value)
assert gap < 4 * math.hypot(by_bump.stderr, survival.delta.stderr)

# %% [markdown]
# ## Side by side
#
# `greeks` has them all, right for the discrete scheme as it is. The standard deviation that one
# path contributes:

# %%
paths = 4000 if QUICK else 50_000
common = {"paths": paths, "steps": 12, "seed": 0}


def by_estimators(what, names, **options):
    return {
        name: sdesens.greeks(model, what, [S0], estimator=name, **common, **options)
        for name in names
    }


jumps = ("bismut", "likelihood-ratio", "conditional")
of_digital = by_estimators(digital, jumps, wrt=both)
of_barrier = by_estimators(barrier, ("bismut", "one-step-survival"), wrt=both)
of_call = by_estimators(call, ("mixed", *jumps), wrt="spot", order=2)

figure = Figure(figsize=(6.4, 5.6))
first, second, third = figure.subplots(3, 1, height_ratios=(3, 3, 2.4))
firsts = {"price": "price", "delta": "spot", "vega": "sigma"}
seconds = {"delta": "spot", "gamma": ("spot", "spot")}
every = ("mixed", "one-step-survival", *jumps)  # an estimator has the same mark in all panels
for ax, reports, rows in (
    (first, of_digital, firsts),
    (second, of_barrier, firsts),
    (third, of_call, seconds),
):
    marked = {name: reports.get(name) for name in every}
    plots.estimator_variances(marked, of=rows, per_path=True, legend=ax is first, ax=ax)
first.set_title("(a) digital, strike 110")
second.set_title("(b) down-and-out call, monthly")
third.set_title("(c) call")
for ax in (first, second):
    ax.set_xlabel("")
figure

# %%
exact = closed_form_greeks(model, digital, [S0], wrt=both)
print("digital                      delta                 vega")
for name, report in of_digital.items():
    print(f"{name:18} {show(report.delta, 5):>20} {show(report.vega):>20}")
    agree(report.delta, exact["spot",])
    agree(report.vega, exact["sigma",])
print("call                         gamma")
for name, report in of_call.items():
    print(f"{name:18} {show(report.gamma, 5):>20}")
    agree(report.gamma, known["spot", "spot"])
for name in ("price", "spot", "sigma"):
    gap = of_barrier["bismut"][name].value - of_barrier["one-step-survival"][name].value
    assert abs(gap) < 4 * of_barrier["bismut"][name].stderr

# %% [markdown]
# How the two weights depend on the grid, for the same digital and the same number of paths:

# %%
grids = (1, 4, 16) if QUICK else (1, 4, 16, 64, 256)
by_grid = {
    name: [
        sdesens.greeks(
            model, digital, [S0], paths=4000, steps=steps, wrt=both, estimator=name
        ).delta.stderr
        for steps in grids
    ]
    for name in ("likelihood-ratio", "bismut")
}
ax = plots.convergence(
    grids,
    by_grid,
    slopes=(0.5,),
    xlabel="number of steps $n$",
    ylabel="standard error of the delta",
)
ax.figure

# %% [markdown]
# ## How `auto` chooses
#
# A payoff says whether it jumps (`jumps`) and at which dates it is not smooth (`rough`), a model
# whether its asset is log-normal given the rest. From these `greeks` takes an estimator for every
# number, and the report names it:

# %%
heston = Heston(rate=0.03, kappa=1.5, theta=0.04, xi=0.3, rho=-0.7)
merton = MertonJumpDiffusion(rate=r, sigma=sigma, intensity=0.75, jump_mean=-0.1, jump_std=0.15)
print(f"{'payoff':24} {'model':20} {'jumps':6} delta by")
for label, what, under, today in (
    ("call", call, model, [S0]),
    ("Asian", Asian(strike=K, maturity=T, dates=12), model, [S0]),
    ("digital", digital, model, [S0]),
    ("barrier, at dates", barrier, model, [S0]),
    ("barrier, all the time", Barrier(strike=K, barrier=90.0, maturity=T), model, [S0]),
    ("call", call, heston, [S0, 0.04]),
    ("digital", digital, heston, [S0, 0.04]),
    ("digital", digital, merton, [S0, 1.0]),
):
    report = sdesens.greeks(under, what, today, paths=1000, steps=12, wrt="spot")
    print(f"{label:24} {report.model:20} {what.jumps!s:6} {report.estimators['spot',]}")

# %% [markdown]
# ## A payoff that is called Lipschitz and is not
#
# Of a function of your own only you can say whether it jumps. `lipschitz=` has no default. If the
# answer is wrong, trial bumps on common noise contradict the pathwise derivative, and nothing is
# returned:

# %%
free = BlackScholes(rate=0.0, sigma=sigma)


def jumpy(x):
    """x (T, P): the values at the dates."""
    return x[0] * (x[0] > 90)


try:
    sdesens.greeks(free, payoff(jumpy, [T], lipschitz=True), [S0], paths=n, steps=1, wrt="spot")
except sdesens.NotLipschitzError as refusal:
    print(textwrap.fill(f"NotLipschitzError: {refusal}", 96))
else:
    raise AssertionError

honest = sdesens.greeks(
    free, payoff(jumpy, [T], lipschitz=False), [S0], paths=n, steps=1, wrt="spot"
)
print(f"\nlipschitz=False: delta {show(honest.delta)} by {honest.estimators['spot',]!r}")
agree(honest.delta, inside + boundary)

# %% [markdown]
# The trial is a test on a few thousand paths: a jump that hardly any of them crosses goes unseen.
# And `montecarlo.run`, which averages any torch function with its pathwise derivative, asks
# nothing. It gives the wrong number of above:

# %%
result = montecarlo.run(
    free,
    [S0],
    lambda end: end.spot * (end.spot > 90),
    maturity=T,
    steps=1,
    paths=n,
    scheme="exact",
    wrt="spot",
)
print(f"montecarlo.run: {show(result['value', 'spot'])}, exact {inside + boundary:.4f}")
assert abs(result["value", "spot"].value - inside) < 0.02

# %% [markdown]
# **What to keep.** Ask of a payoff whether it jumps, and of a second derivative whether the slope
# does. If so: average the jump away if you can (conditional expectation, one-step survival), else
# weigh the payoff (Bismut-Elworthy-Li; for gamma a weight and a pathwise derivative mixed). A
# number near zero with a small error bar may be a jump that nobody saw.
