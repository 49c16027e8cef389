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
# # 6. Your own model
#
# Two models that are in no textbook: a neural SDE, fitted to data by the derivatives of its paths,
# and a local volatility given as a table, with a vega for every entry of it. You will know how to
# write such models, what the library finds wrong with one and what it cannot see, and which checks
# to run before you believe a number.

# %%
# %matplotlib inline
import os
import textwrap

import matplotlib as mpl
import torch
import torchsde
from matplotlib.figure import Figure
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import sdesens
from sdesens import montecarlo, plots
from sdesens.models import BlackScholes
from sdesens.pricing import Barrier, Call, closed_form_greeks

QUICK = bool(os.environ.get("SDESENS_QUICK"))
mpl.style.use("sdesens.plots.paper")
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


def show(found, digits=4):
    return f"{found.value:.{digits}f} ± {found.stderr:.{digits}f}"


def refused(function):
    """What a call is refused with."""
    try:
        function()
    except ValueError as refusal:
        print(textwrap.fill(f"ValueError: {refusal}", 96))
    else:
        raise AssertionError


# %% [markdown]
# ## A neural SDE
#
# Drift and diffusion are two small networks, in a module as torchsde wants it: `f` and `g` take
# `(B, d)` and return `(B, d)`.


# %%
class Neural(nn.Module):
    """dX = f(X) dt + g(X) dW; g is positive."""

    sde_type, noise_type = "ito", "diagonal"

    def __init__(self, width=8):
        super().__init__()
        self.drift = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1))
        self.noise = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1), nn.Softplus())

    def f(self, t, x):
        return self.drift(x)

    def g(self, t, x):
        return self.noise(x)


torch.manual_seed(0)
model = Neural()
names = [name for name, _ in model.named_parameters()]
ts = torch.tensor([0.0, 0.1, 0.2, 0.4, 0.7, 1.0, 1.4, 2.0])
settings = {"method": "euler", "dt": 0.05, "seed": 0}
five = torch.linspace(-1, 1, 5)[:, None]
for wrt in (("x0", "drift.2.bias"), ("x0", *names)):
    sens = sdesens.sensitivities(model, five, ts, mode="auto", wrt=wrt, **settings)
    entries = sum(derivative[0, 0, 0].numel() for derivative in sens.derivatives().values())
    print(f"{entries:2} entries of inputs, T d = {len(ts)}: mode {sens.mode!r}")
    assert sens.mode == ("vjp" if entries > len(ts) else "tangent")

print("dparams['drift.0.weight']", tuple(sens.dparams["drift.0.weight"].shape))

# %% [markdown]
# `dparams` has the derivative of every $X_t$ in every weight: time, sample, component, then the
# shape of the weight. `mode="auto"` counts. The tangent SDE carries one more equation for each
# entry of the inputs, the `vjp` mode one vector for each of the $T d$ outputs of a sample, and the
# fewer wins.
#
# Is it right? `compare_modes` runs all three modes and a central difference, which costs two
# solves for each entry: fine for 39 of them. Its table has a row for each pair of ways and each
# input, the worst first.

# %%
found = sdesens.compare_modes(model, five, ts[:5], wrt=("x0", *names), **settings)
lines = str(found).splitlines()
print("\n".join([*lines[:5], f"... and {len(lines) - 6} more rows", lines[-1]]))
assert found.agree

# %% [markdown]
# **What is refused.** People compute something from a weight once, in the constructor, to save
# time. The derivative would see only the places where the weight itself is used.


# %%
class Normalised(Neural):
    def __init__(self):
        super().__init__()
        self.row = self.drift[2].weight / self.drift[2].weight.norm()  # the cure: do it in f

    def f(self, t, x):
        return torch.tanh(self.drift[0](x)) @ self.row.T + self.drift[2].bias


wrt = "drift.2.weight"
refused(lambda: sdesens.sensitivities(Normalised(), five, ts, wrt=wrt, **settings))

# %% [markdown]
# ## Data
#
# Paths of a particle in a double well, $dX = (X - X^3)\,dt + \tfrac12\,dW$: wells at $\pm1$, an
# unstable point at 0. From each of nine starts there are 400 paths, made with a fine step. What the
# fit is given are their means and mean squares at seven times, $m_i$, each with its standard error
# $s_i$.


# %%
class DoubleWell(nn.Module):
    sde_type, noise_type = "ito", "diagonal"

    def f(self, t, x):
        return x - x**3

    def g(self, t, x):
        return torch.full_like(x, 0.5)


truth = DoubleWell()
starts = torch.linspace(-1.6, 1.6, 9)
each = 100 if QUICK else 400  # paths from each start
x0 = starts.repeat_interleave(each)[:, None]


def solved(model, seed=0, steps=40):
    noise = sdesens.BrownianPath(0, 2, (len(x0), 1), steps, seed=seed)
    return torchsde.sdeint(model, x0, ts, bm=noise, method="euler", dt=2 / steps)


data = solved(truth, seed=1, steps=400)


def moments(x):
    """X and its square: of these, times after 0, starts, paths."""
    x = x[1:, :, 0].unflatten(1, (len(starts), each))
    return torch.stack([x, x**2])


target = moments(data).mean(-1)
stderr = moments(data).std(-1) / each**0.5
print(f"{target.numel()} moments of {len(x0)} paths")

# %% [markdown]
# ## The loss and its gradient
#
# The model is run from the same starts, as many paths, always on the noise of seed 0, so the loss
# is a smooth function of the weights:
#
# $$L(\theta) = \frac1n \sum_{i=1}^n r_i^2, \qquad r_i = \frac{\hat m_i(\theta) - m_i}{s_i}.$$
#
# A model with the law of the data has $L \approx 2$ on fresh noise: a unit of variance from the
# data and one from its own paths. The chain rule leads from `dparams` to the Jacobian of the
# residuals, and with it to the gradient,
#
# $$J_{ik} = \frac{\partial r_i}{\partial\theta_k}, \qquad \frac{\partial L}{\partial\theta} = \frac2n J^\top r,$$
#
# which is what autograd finds by a backward pass through `torchsde.sdeint` on the same path.


# %%
def residuals(x):
    return ((moments(x).mean(-1) - target) / stderr).flatten()


def loss_of(x):
    return residuals(x).square().mean()


def residuals_and_jacobian(model):
    """r, and its derivatives in all weights: residuals, weights."""
    sens = sdesens.sensitivities(model, x0, ts, mode="auto", wrt=names, **settings)
    dx = torch.cat([sens.dparams[name].flatten(3) for name in names], dim=-1)[:, :, 0]
    dx, x = dx[1:].unflatten(1, (len(starts), each)), moments(sens.x)[0, ..., None]
    J = torch.stack([dx.mean(2), (2 * x * dx).mean(2)]) / stderr[..., None]
    return residuals(sens.x), J.flatten(0, 2)


r, J = residuals_and_jacobian(model)
by_dparams = 2 / len(r) * J.T @ r
loss = loss_of(solved(model))
by_autograd = parameters_to_vector(torch.autograd.grad(loss, list(model.parameters())))
gap = (by_dparams - by_autograd).abs().max() / by_autograd.abs().max()
print(f"loss {loss.item():.0f}; the two gradients differ by {gap:.1e}, relative")
assert gap < 1e-10

# %% [markdown]
# ## Training
#
# For the gradient of *one* number the backward pass is the cheaper way, and if that is all you
# want, take it. `dparams` has more: all of $J$. That is what the method of Levenberg and Marquardt
# needs (Marquardt, *SIAM Journal on Applied Mathematics* 11, 1963), which solves
#
# $$(J^\top J + \lambda I)\,\delta = J^\top r, \qquad \theta \leftarrow \theta - \delta,$$
#
# with a $\lambda$ that falls after a step that helped and grows until one does.


# %%
def levenberg_marquardt(model, steps, damping=1000.0):
    for _ in range(steps):
        r, J = residuals_and_jacobian(model)
        theta = parameters_to_vector(model.parameters()).detach()
        better = False
        while not better:
            step = torch.linalg.solve(J.T @ J + damping * torch.eye(len(theta)), J.T @ r)
            vector_to_parameters(theta - step, model.parameters())
            with torch.no_grad():
                better = loss_of(solved(model)) < r.square().mean()
            damping *= 0.3 if better else 4.0


levenberg_marquardt(model, 16)
with torch.no_grad():
    print(f"loss after 16 steps {loss_of(solved(model)):.2f}")

print("mean loss on ten fresh seeds")
fresh = {}
for name, which, steps in (("learned", model, 40), ("true", truth, 40), ("true", truth, 400)):
    with torch.no_grad():
        losses = [loss_of(solved(which, seed, steps)).item() for seed in range(10, 20)]
    fresh[name, steps] = sum(losses) / 10
    print(f"  {name:7} coefficients, dt = {2 / steps:<5}  {fresh[name, steps]:.2f}")
assert max(fresh["learned", 40], fresh["true", 400]) < fresh["true", 40]

# %% [markdown]
# At the same step the learned model fits better than the true coefficients! The data come from a
# fine step, and the model is run with $\Delta t = 0.05$. It has learned what an Euler step of that
# width needs, not the coefficients of the SDE. All derivatives here are those of the discrete path,
# and so is all that is fitted with them.

# %%
grid = torch.linspace(-1.8, 1.8, 145)[:, None]
figure = Figure(figsize=(7.2, 2.8))
for ax, name, title in zip(
    figure.subplots(1, 2), "fg", ("(a) drift $f(x)$", "(b) diffusion $g(x)$"), strict=True
):
    where = ax.twinx()
    where.hist(data[1:].flatten(), bins=45, range=(-1.8, 1.8), density=True, color="0.85")
    where.set(ylim=(0, 2.4), yticks=[])
    where.spines[:].set_visible(False)
    ax.set_zorder(where.get_zorder() + 1)
    ax.patch.set_visible(False)
    for label, which in (("true", truth), ("learned", model)):
        ax.plot(grid, getattr(which, name)(0, grid).detach(), label=label)
    ax.set(title=title, xlabel="$x$", xlim=(-1.8, 1.8), ylim=(-2.6, 2.6) if name == "f" else (0, 1))
    ax.legend(loc="upper right")
figure

# %% [markdown]
# In grey is where the data lie; beyond them a network is a guess. In (b) it is off near $-1$, amid
# the data, and yet the loss is that of the true law: means and mean squares at seven times do not
# tell this $g$ from the true one. What the loss does not see is not learned.
#
# ## Its tangents
#
# Does the model respond to its start as the true one does? From the unstable point, on the same
# noise:

# %%
B = 400 if QUICK else 4000
times = torch.linspace(0, 3, 61)
top = torch.zeros(B, 1)
learned, true = (sdesens.sensitivities(run, top, times, **settings) for run in (model, truth))
for k in (10, 20, 60):
    by = [montecarlo.Estimate.of(sens.dx0[k, :, 0, 0]) for sens in (learned, true)]
    print(f"t = {times[k]:.1f}: mean {show(by[0], 3)} learned, {show(by[1], 3)} true")
    spread = 4 * (by[0].stderr + by[1].stderr)
    assert abs(by[0].value - by[1].value) < 0.1 * by[1].value + spread
(slope,) = torch.func.jvp(lambda x: model.f(0, x), (top[:1],), (torch.ones(1, 1),))[1]
print(f"f'(0): {slope.item():.2f} learned, 1 true")
last = learned.dx0[-1, :, 0, 0].sort(descending=True).values
share = last[: B // 10].sum() / last.sum()
print(f"at t = 3: median {last.median():.2f}; a tenth of the paths hold {share:.0%} of the mean")
assert share > 0.4

figure = Figure(figsize=(7.2, 3.0))
left, right = figure.subplots(1, 2)
plots.path_fan(learned, ax=left, legend=False).set_title("(a) path, from $x_0 = 0$")
plots.tangent_fan(learned, ax=right, legend=False).set_title("(b) its derivative")
right.plot(times, true.dx0[:, :, 0, 0].mean(1), ":", color="C1", lw=2, label="true mean")
right.legend(loc="lower left")
figure

# %% [markdown]
# At first all paths are driven apart. A path that has fallen into a well forgets its start, and so
# the median dies out; the mean is held up by the few paths that are still near the ridge. Early on
# the learned mean is 4% low, which is many standard errors: $f'(0)$ is too small. A loss of moments
# of $X$ does not look at slopes.
#
# Which weights matter, and when? A row is a weight; the colour is the root mean square of
# $p\,dX_t/dp$, in units of $X$.

# %%
weights = sdesens.sensitivities(model, top[: B // 20], times, mode="auto", wrt=names, **settings)
ax = plots.sensitivity_heatmap(weights, model)
ax.figure

# %% [markdown]
# From the ridge the drift decides where a path goes: most of its weights move it more than any of
# the noise.
#
# ## A table of volatilities
#
# In the model of Dupire (*Risk* 7, 1994) the volatility is a function of time and spot, in practice
# a table with an interpolation: $dS = r\,S\,dt + \sigma(t, S)\,S\,dW$. `LocalVolatility` puts
# SciPy's bicubic spline through it. There the table is data, and its only vega is that of a
# parallel shift. To have a vega for every entry, the table must be a *parameter*, and the spline
# must be torch. A spline is linear in the values it goes through,
#
# $$\sigma(t, S) = \sum_{i,j} a_i(t)\,\sigma_{ij}\,b_j(S),$$
#
# with cardinal splines $a_i$ and $b_j$ that are 1 at their node and 0 at the others. Take the
# powers $\phi = (1, u, u^2, u^3, (u - u_m)_+^3, \dots)$ of the scaled variable $u$, with a knot
# $u_m$ at every node but the outer two on each side, and the matrix $\Phi$ of their values at the
# nodes; then $b(S) = \Phi^{-1}\phi(u)$. Beyond the table the surface goes on flat, by the clamp.


# %%
class Cardinal:
    """The cardinal cubic splines (not-a-knot) of some nodes: (...,) to (nodes, ...)."""

    def __init__(self, nodes):
        self.low, self.high = nodes[0], nodes[-1]
        self.knots = self.scaled(nodes)[2:-2]
        self.inverse = torch.linalg.inv(self.powers(nodes))

    def scaled(self, x):
        return (x.clamp(self.low, self.high) - self.low) / (self.high - self.low)

    def powers(self, x):
        u = self.scaled(x)
        cubes = ((u - knot).clamp(min=0) ** 3 for knot in self.knots)
        return torch.stack([torch.ones_like(u), u, u**2, u**3, *cubes])

    def __call__(self, x):
        return self.inverse @ self.powers(x)

    def slope(self, x):
        u = self.scaled(x)
        squares = (3 * (u - knot).clamp(min=0) ** 2 for knot in self.knots)
        powers = torch.stack([torch.zeros_like(u), torch.ones_like(u), 2 * u, 3 * u**2, *squares])
        inside = (x >= self.low) & (x <= self.high)
        return self.inverse @ powers * inside / (self.high - self.low)


# %% [markdown]
# ## Written by component
#
# An `sdesens.SDE` names the components of its state and reads like its equation. Optional are
#
# - the tangents in closed form; a keyword named as a parameter is the tangent of that parameter;
# - one-step maps of its own, `step_<name>`, named in `schemes`: an Euler step of $\log S$ cannot
#   go below 0, and is exact where $\sigma$ is constant;
# - what is known of a scheme: given the past, an Euler step is normal in the spot
#   (`conditionally_normal`). Estimators rely on it, and nothing checks it: it is your word.


# %%
class TableVolatility(sdesens.SDE):
    """dS = r S dt + sigma(t, S) S dW, with a spline through a table that is a parameter."""

    state = ("spot",)
    sde_type, noise_type = "ito", "diagonal"
    schemes = ("log",)

    def __init__(self, rate, times, spots, vols):
        super().__init__()
        self.conditionally_normal = {"euler": ("spot", 0)}
        self.rate, self.vols = self.parameter(rate), self.parameter(vols)
        self.in_time, self.in_spot = Cardinal(times), Cardinal(spots)

    def surface(self, table, t, spot):
        return (self.in_time(t) @ table) @ self.in_spot(spot)

    def drift(self, t, spot):
        return self.rate * spot

    def diffusion(self, t, spot):
        return self.surface(self.vols, t, spot) * spot

    def drift_tangent(self, t, spot, dspot, *, rate=None, vols=None):
        out = self.rate * dspot
        return out if rate is None else out + rate * spot

    def diffusion_tangent(self, t, spot, dspot, *, rate=None, vols=None):
        slope = (self.in_time(t) @ self.vols) @ self.in_spot.slope(spot)
        out = (self.surface(self.vols, t, spot) + slope * spot) * dspot
        return out if vols is None else out + self.surface(vols, t, spot) * spot

    def step_log(self, t, dt, normals, spot):
        sigma = self.surface(self.vols, t, spot)
        return spot * torch.exp((self.rate - sigma**2 / 2) * dt + sigma * dt.sqrt() * normals[0])


if QUICK:
    dates, spots = torch.tensor([0.0, 0.3, 0.7, 1.0]), torch.tensor([50.0, 75, 100, 125, 170])
else:
    dates = torch.linspace(0, 1, 5)
    spots = torch.tensor([50.0, 70, 80, 90, 100, 110, 120, 140, 170])
moneyness = torch.log(spots / 100)
table = 0.2 + (0.25 * moneyness**2 - 0.15 * moneyness) / (1 + dates[:, None])
surface = (0.03, dates, spots, table)
local = TableVolatility(*surface)

# %% [markdown]
# **What checks the closed forms.** They are held against forward mode at the start of the first path
# and at its end. Here the slope of the surface is left out, as one does who thinks of Black and
# Scholes. Below 50 the surface is flat and what was forgotten is 0, so that from 45 the start shows
# nothing; the end does. `compare_modes` looks at whole paths: of its modes only `tangent` uses the
# closed forms.


# %%
class Forgetful(TableVolatility):
    def diffusion_tangent(self, t, spot, dspot, *, rate=None, vols=None):
        out = self.surface(self.vols, t, spot) * dspot
        return out if vols is None else out + self.surface(vols, t, spot) * spot


hundreds = torch.full((4, 1), 100.0)
path = {"ts": [0.0, 0.5, 1.0], "method": "euler", "dt": 0.05, "seed": 0}
refused(lambda: sdesens.sensitivities(Forgetful(*surface), hundreds, **path))
refused(lambda: sdesens.sensitivities(Forgetful(*surface), hundreds - 55, **path))
assert sdesens.compare_modes(local, hundreds, wrt=("x0", "rate", "vols"), **path).agree

# %% [markdown]
# ## Vega by bucket
#
# Now prices and derivatives, of a call, and of an up-and-out call that is watched ten times and
# knocked out at 130. The second jumps: `greeks` takes paths that are made to survive (notebook 4),
# for which it needs the law of a step, and so `scheme="euler"`, of which the model knows it.

# %%
runs = {"wrt": ("spot", "rate", "vols"), "paths": 20_000 if QUICK else 200_000, "steps": 20}
options = {
    "call": (Call(strike=100.0, maturity=1.0), "log"),
    "up-and-out call": (Barrier(100.0, 130.0, 1.0, kind="up-and-out", dates=10), "euler"),
}
reports = {
    name: sdesens.greeks(local, payoff, [100.0], scheme=scheme, **runs)
    for name, (payoff, scheme) in options.items()
}
for name, report in reports.items():
    print(f"{name}, by {report.estimators['spot',]!r}")
    print(f"  price {show(report['price'])}, delta {show(report.delta)}, rho {show(report.rho, 2)}")
assert reports["call"].estimators["spot",] == "pathwise"
assert reports["up-and-out call"].estimators["spot",] == "one-step-survival"

figure = Figure(figsize=(7.2, 5.2))
for ax, (name, report), letter in zip(figure.subplots(2, 1), reports.items(), "ab", strict=True):
    vega, error = report["vols"].value, report["vols"].stderr  # cents for a point of volatility
    largest = vega.abs().max().item()
    mesh = ax.pcolormesh(vega, cmap="coolwarm", vmin=-largest, vmax=largest, ec="white", lw=0.5)
    for i, j in torch.cartesian_prod(*map(torch.arange, vega.shape)).tolist():
        found = vega[i, j].abs() > 2 * error[i, j] and vega[i, j].abs() > 0.005
        color = "white" if vega[i, j].abs() > 0.7 * largest else "black" if found else "0.5"
        text = f"{round(vega[i, j].item(), 2) + 0.0:.2f}\n± {error[i, j]:.2f}"
        ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=6.5, color=color)
    ax.set_xticks(torch.arange(len(spots)) + 0.5, [f"{s:g}" for s in spots])
    ax.set_yticks(torch.arange(len(dates)) + 0.5, [f"{t:g}" for t in dates])
    ax.set(ylabel="time $t_i$ of the node", title=f"({letter}) {name}")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    bar = figure.colorbar(mesh, ax=ax, pad=0.02, label="cents a point")
    bar.outline.set_visible(False)
ax.set_xlabel("spot $S_j$ of the node")
figure

# %% [markdown]
# The change of the value, in cents, for one point of volatility at one node, with its standard
# error; grey is what is not told from 0. The call gains where paths go; small losses beside are the
# splines', which dip below 0 between nodes. The knock-out call gains from volatility below, where
# it helps to reach the strike, and loses from that near the barrier.
#
# ## Do they add up?
#
# The sum of all buckets is the vega of a parallel shift, which a bump of the whole table gives, on
# the same seed:

# %%
h = 1e-4
for name, (payoff, scheme) in options.items():
    bumped = (TableVolatility(0.03, dates, spots, table + move) for move in (h, -h))
    up, down = (
        sdesens.greeks(moved, payoff, [100.0], scheme=scheme, **runs)["price"].value
        for moved in bumped
    )
    bump, total = (up - down) / (2 * h), reports[name]["vols"].value.sum().item()
    print(f"{name:16} sum of buckets {total:9.4f}   bump {bump:9.4f}")
    assert abs(total - bump) < 1e-4 * abs(bump)

# %% [markdown]
# **A flat surface** is the model of Black and Scholes. The step of $\log S$ is then exact, and on
# the same noise the numbers are those of `BlackScholes` to rounding, not only within the errors:

# %%
call, inputs = options["call"][0], ("spot", "sigma")
flat = TableVolatility(0.03, dates, spots, torch.full_like(table, 0.2))
black_scholes = BlackScholes(rate=0.03, sigma=0.2)
found = sdesens.greeks(flat, call, [100.0], **runs)
same = sdesens.greeks(black_scholes, call, [100.0], **(runs | {"wrt": inputs}))
exact = closed_form_greeks(black_scholes, call, [100.0], wrt=inputs)
print("              table    BlackScholes, same noise    closed form")
for name, ours, theirs, known in (
    ("price", found["price"].value, same["price"], exact[()]),
    ("delta", found.delta.value, same.delta, exact["spot",]),
    ("vega", found["vols"].value.sum().item(), same.vega, exact["sigma",]),
):
    print(f"{name:6} {ours:12.7f}    {theirs.value:12.7f} ± {theirs.stderr:.5f}    {known:11.7f}")
    assert abs(ours - theirs.value) < 1e-9 * abs(known)
    assert abs(ours - known) < 4 * theirs.stderr

shares = Cardinal(dates)(torch.linspace(0, 1, 21)[:-1]).mean(1)  # of the spline, by its node
rows, errors = found["vols"].value.sum(1), found["vols"].stderr.sum(1)
print("\nvega by date  ", *(f"{row:6.2f}" for row in rows))
print("by the spline ", *(f"{exact['sigma',] * share:6.2f}" for share in shares))
assert ((rows - exact["sigma",] * shares).abs() < 4 * errors).all()

# %% [markdown]
# It also explains the uneven rows of the figure. Under Black and Scholes the vega comes evenly from
# all times ($S^2\,\partial^2 V/\partial S^2$, discounted, is a martingale), so a row holds the mean of
# $a_i(t)$ over the steps as its share. A bucket is a statement about the interpolation too.
#
# **In `montecarlo.run`** a payoff is any function of the end of a path. The call, written there, has
# the numbers that `greeks` gave:


# %%
def discounted_call(end):
    return torch.exp(-local.rate * end.time) * torch.relu(end.spot - 100.0)


same = runs | {"wrt": "spot", "maturity": 1.0, "scheme": "log", "dtype": torch.float64}
delta = montecarlo.run(local, [100.0], discounted_call, **same)["value", "spot"]
print(f"delta {show(delta)}, by greeks {show(reports['call'].delta)}")
assert abs(delta.value - reports["call"].delta.value) < 1e-10

# %% [markdown]
# ## A checklist
#
# Before you trust a model of your own:
#
# 1. `compare_modes` with every input you mean to use, from where your paths go. It finds `no_grad`,
#    coupled samples, wrong closed forms. What it refuses, mend.
# 2. A limit that is known, on the same noise: to rounding it is a test, within error bars a weak one.
# 3. A central difference on the same seed of the number you will report: the price, the loss.
# 4. Sums that must hold: buckets and parallel bump, put and call.
# 5. Half the step. Derivatives are those of the discrete path, and so is what is fitted by them.
# 6. For what jumps, a second estimator (`estimator="bismut"`, notebook 4), which also tests what you
#    declared of a scheme.
# 7. Where the paths are: beyond that a network or a table extrapolates.
#
# **What to keep.** A model is two functions; the derivative of its paths in every input comes with
# them, and with it Jacobians for a fit, and a vega for every number in a table. What can be checked
# without knowing your model is checked before the first step. The rest is a list of seven.
