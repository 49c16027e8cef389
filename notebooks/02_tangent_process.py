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
# # 2. The tangent process
#
# The derivative of a path in its start is itself the solution of an SDE, driven by the same
# Brownian motion. This notebook derives that SDE for Itô's and Stratonovich's calculus, shows that
# discretising it equals differentiating the discretised path, shows where that fails, and looks at
# how the derivative grows and how fast its numerical error falls.

# %%
# %matplotlib inline
import os
import textwrap
import warnings

import matplotlib as mpl
import torch
import torchsde
from matplotlib.figure import Figure

import sdesens
from sdesens import plots
from sdesens.models import GeometricBrownianMotion
from sdesens.montecarlo import Estimate

QUICK = bool(os.environ.get("SDESENS_QUICK"))
mpl.style.use("sdesens.plots.paper")
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)

# %% [markdown]
# ## Derivation
#
# Write the SDE as an integral equation, for one dimension and one parameter $\theta$:
#
# $$X_t = x_0 + \int_0^t f(X_s, \theta)\,ds + \int_0^t g(X_s, \theta)\,dW_s.$$
#
# Differentiate both sides in $x_0$. If $f$ and $g$ have bounded, Lipschitz derivatives, the
# derivative may be taken under both integrals (Kunita, *Stochastic Flows and Stochastic
# Differential Equations*, 1990), and for $J_t = \partial X_t/\partial x_0$
#
# $$dJ = f_x(X)\,J\,dt + g_x(X)\,J\,dW, \qquad J_0 = 1.$$
#
# For $D_t = \partial X_t/\partial\theta$ the same steps leave one more term in each integral, and
# no start:
#
# $$dD = (f_x D + f_\theta)\,dt + (g_x D + g_\theta)\,dW, \qquad D_0 = 0.$$
#
# Both are linear in the unknown, with coefficients that are random through $X$. In $d$ dimensions
# $J$ is the matrix of all $\partial X^i/\partial x_0^j$, $f_x$ a Jacobian, and $J_0$ the identity.
# Nothing in the argument asked which integral $\int g\,dW$ is: it holds for Itô's and
# Stratonovich's alike, each in its own calculus.
#
# ## Geometric Brownian motion, twice
#
# For $dX = \mu X\,dt + \sigma X\,dW$ the tangent SDE is $dJ = \mu J\,dt + \sigma J\,dW$, the
# equation of $X$ itself. So $J = X/x_0$, on every path, in both calculi. What differs is what $X$
# is:
#
# | calculus | $X_t / x_0 = J_t$ |
# |---|---|
# | Itô | $\exp((\mu - \sigma^2/2)\,t + \sigma W_t)$ |
# | Stratonovich | $\exp(\mu t + \sigma W_t)$ |
#
# Schemes inherit the identity, since their steps are linear in $x_0$ as well.

# %%
mu, sigma = 0.05, 0.2
steps = 64 if QUICK else 1024
ts = torch.tensor([0.0, 1.0])
noise = sdesens.BrownianPath(0, 1, (4, 1), steps, seed=0)
W = noise(0.0, 1.0)
start = torch.tensor([[50.0], [100.0], [100.0], [200.0]])


class Stratonovich:
    """dX = mu X dt + sigma X o dW."""

    sde_type, noise_type = "stratonovich", "diagonal"

    def f(self, t, x):
        return mu * x

    def g(self, t, x):
        return sigma * x


print("calculus      scheme   |J - X/x0|   J - closed form")
for name, model, method, growth in (
    ("Itô", GeometricBrownianMotion(mu, sigma), "euler", mu - sigma**2 / 2),
    ("Stratonovich", Stratonovich(), "heun", mu),
):
    sens = sdesens.sensitivities(model, start, ts, method=method, dt=1 / steps, bm=noise)
    J = sens.dx0[-1, :, :, 0]
    identity = (J - sens.x[-1] / start).abs().max().item()
    closed = (J - torch.exp(growth + sigma * W)).abs().max().item()
    print(f"{name:13} {method:7}  {identity:.1e}      {closed:.1e}")
    assert identity < 1e-12
    assert closed < (0.05 if QUICK else 0.01)

# %% [markdown]
# The identity holds to rounding, the closed form up to the error of the scheme.
#
# An Itô equation becomes one of Stratonovich when $\tfrac12 g g_x$ is taken off the drift. Does it
# matter whether one converts and then differentiates, or differentiates and then converts? The
# tangent of the corrected drift is $f_x J - \tfrac12 (g_x^2 + g g_{xx}) J$, and the correction of
# the pair $(X, J)$ with diffusion $(g, g_x J)$ is, in its second row, $\tfrac12 (g\,\partial_x +
# g_x J\,\partial_J)(g_x J) = \tfrac12 (g g_{xx} + g_x^2) J$: the same. In numbers, one process in
# both forms, on one path of the noise:


# %%
class Sine:
    """dX = (sin X - X) dt + (0.5 sin X + 1) dW, Itô."""

    sde_type, noise_type = "ito", "diagonal"

    def f(self, t, x):
        return torch.sin(x) - x

    def g(self, t, x):
        return 0.5 * torch.sin(x) + 1


class SineCorrected(Sine):
    """The same process in Stratonovich's form."""

    sde_type = "stratonovich"

    def f(self, t, x):
        return super().f(t, x) - 0.5 * self.g(t, x) * 0.5 * torch.cos(x)


fine = sdesens.BrownianPath(0, 1, (1, 1), 4096, seed=0)
x0 = torch.full((1, 1), 0.3)
print("steps      X by Itô, Strat.    J by Itô, Strat.")
for n in (16, 256, 4096):
    bm = fine.coarsen(4096 // n)
    ito, strat = (
        sdesens.sensitivities(sde, x0, ts, method=method, dt=1 / n, bm=bm)
        for sde, method in ((Sine(), "euler"), (SineCorrected(), "heun"))
    )
    pairs = [(a.x[-1].item(), a.dx0[-1].item()) for a in (ito, strat)]
    print(
        f"{n:5}      {pairs[0][0]:.4f}  {pairs[1][0]:.4f}      {pairs[0][1]:.4f}  {pairs[1][1]:.4f}"
    )
assert all(abs(a - b) < 0.03 for a, b in zip(*pairs, strict=True))

# %% [markdown]
# Derivatives in parameters come by the second equation. For the Itô form of geometric Brownian
# motion $\partial X/\partial\sigma = X (W - \sigma t)$, for Stratonovich's it is $X W$:

# %%
ito = GeometricBrownianMotion(mu, sigma)
options = {"wrt": ("mu", "sigma"), "method": "euler", "dt": 1 / steps, "bm": noise}
sens = sdesens.sensitivities(ito, start, ts, **options)
X = sens.x[-1]
for name, exact in (("mu", X), ("sigma", X * (W - sigma))):
    error = (sens.dparams[name][-1] - exact).abs().max() / exact.abs().max()
    print(f"dX_1/d{name:6} relative error of {steps} Euler steps {error.item():.4f}")
    assert error < 10 / steps**0.5

# %% [markdown]
# ## Differentiate, then discretise, or the other way round
#
# Euler's step is $X' = X + f(X)\,h + g(X)\,\Delta W$. Its derivative along $J$,
#
# $$J' = J + f_x(X)\,J\,h + g_x(X)\,J\,\Delta W,$$
#
# is Euler's step for the tangent SDE. So the two orders give the same numbers. By hand, against
# autograd through torchsde:

# %%
n = 10
h = 1 / n
grid = torch.linspace(0, 1, n + 1)
bm = sdesens.BrownianPath(0, 1, (1, 1), n, seed=0)


def solve(x0, **options):
    return torchsde.sdeint(Sine(), x0, grid, bm=bm, dt=h, **options)


leaf = x0.clone().requires_grad_()
(by_autograd,) = torch.autograd.grad(solve(leaf, method="euler")[-1].sum(), leaf)

x, j = x0, torch.ones_like(x0)
for k in range(n):
    dW = bm(grid[k], grid[k + 1])
    f, fx = torch.sin(x) - x, torch.cos(x) - 1
    g, gx = 0.5 * torch.sin(x) + 1, 0.5 * torch.cos(x)
    x, j = x + f * h + g * dW, j + fx * j * h + gx * j * dW
print(f"autograd through the solver {by_autograd.item():.15f}")
print(f"Euler for the tangent SDE   {j.item():.15f}")
assert abs(by_autograd.item() - j.item()) < 1e-14

# %% [markdown]
# The same is true of every scheme that is built from values of $f$ and $g$ at intermediate points
# (Heun, midpoint, stochastic Runge-Kutta): each value $g(y)$ of the state is accompanied by
# $g_x(y)\,\delta y$, which is both its derivative and the tangent row of the diffusion of the
# pair. The `tangent` mode rests on that. It hands the pair to torchsde's own solver.

# %%
print("scheme                    largest difference of two modes")
for sde, method, options in (
    (Sine(), "euler", None),
    (Sine(), "srk", None),
    (Sine(), "milstein", {"grad_free": True}),
    (SineCorrected(), "heun", None),
    (SineCorrected(), "midpoint", None),
    (SineCorrected(), "reversible_heun", None),
):
    found = sdesens.compare_modes(sde, x0, grid, method=method, dt=h, seed=0, options=options)
    assert found.agree and not found.refused
    worst = max(d.difference for d in found.disagreements if "central" not in d.second)
    print(f"{method:16} {'grad-free' if options else '':9} {worst:.1e}")

# %% [markdown]
# ## Where it fails: a scheme that differentiates $g$ itself
#
# Milstein's scheme adds a term with a derivative in it,
#
# $$X' = X + f h + g\,\Delta W + \tfrac12 g g_x\,(\Delta W^2 - h).$$
#
# Its derivative along $J$ is right for the pair as long as the whole term is differentiated:
#
# $$J' = J + f_x J h + g_x J\,\Delta W + \tfrac12 (g_x^2 + g g_{xx})\,J\,(\Delta W^2 - h).$$
#
# torchsde's Milstein for *diagonal* noise takes component $i$ of $g$ to depend on component $i$ of
# the state alone, and computes its term by the product $g\,\partial g/\partial y$ of a row with
# the Jacobian. For the pair $(g, g_x J)$ this Jacobian is not diagonal: the row of $X$ gains a
# foreign $g_{xx} J \cdot g_x J$, and the row of $J$ loses its $g g_{xx} J$. A right scheme on the
# right system, with a wrong result and no error:


# %%
class Pair:
    """State and tangent of Sine as one system with diagonal noise."""

    sde_type, noise_type = "ito", "diagonal"

    def f(self, t, y):
        x, j = y[:, :1], y[:, 1:]
        return torch.cat([torch.sin(x) - x, (torch.cos(x) - 1) * j], 1)

    def g(self, t, y):
        x, j = y[:, :1], y[:, 1:]
        return torch.cat([0.5 * torch.sin(x) + 1, 0.5 * torch.cos(x) * j], 1)


class Tiled(torchsde.BaseBrownian):
    """The same increment for both components."""

    dtype, device, levy_area_approximation = torch.float64, torch.device("cpu"), "none"
    shape = (1, 2)

    def __call__(self, ta, tb=None, **kwargs):
        return bm(ta, tb, **kwargs).repeat(1, 2)

    def __repr__(self):
        return "Tiled()"


def milstein_by_hand(as_torchsde):
    """J_1 by Milstein's scheme, or with the two faults of a diagonal formula."""
    x, j = x0, torch.ones_like(x0)
    for k in range(n):
        dW = bm(grid[k], grid[k + 1])
        f, fx = torch.sin(x) - x, torch.cos(x) - 1
        g, gx, gxx = 0.5 * torch.sin(x) + 1, 0.5 * torch.cos(x), -0.5 * torch.sin(x)
        of_x = g * gx + (gxx * j * gx * j if as_torchsde else 0)
        of_j = gx**2 * j + (0 if as_torchsde else g * gxx * j)
        square = 0.5 * (dW**2 - h)
        x, j = x + f * h + g * dW + of_x * square, j + fx * j * h + gx * j * dW + of_j * square
    return j.item()


pair0 = torch.cat([x0, torch.ones_like(x0)], 1)
of_pair = torchsde.sdeint(Pair(), pair0, grid, bm=Tiled(), dt=h, method="milstein")[-1, 0, 1].item()
move = 1e-6
ends = [solve(x0 + sign * move, method="milstein")[-1].item() for sign in (1, -1)]
central = (ends[0] - ends[1]) / (2 * move)
print(f"central difference                {central:.6f}")
print(f"Milstein by hand                  {milstein_by_hand(False):.6f}")
print(f"torchsde's Milstein on the pair   {of_pair:.6f}")
print(f"by hand, with the two faults      {milstein_by_hand(True):.6f}")
assert abs(milstein_by_hand(False) - central) < 1e-6
assert abs(milstein_by_hand(True) - of_pair) < 1e-12
assert abs(of_pair - central) > 0.01

# %% [markdown]
# Forward mode meets a second trap. That solver computes $g_x$ through `detach().requires_grad_()`,
# where the tangent of a dual number is lost. `torch.func.jvp` raises; a bare dual level returns a
# wrong number:

# %%
with torch.autograd.forward_ad.dual_level():
    dual = torch.autograd.forward_ad.make_dual(x0, torch.ones_like(x0))
    end = solve(dual, method="milstein")[-1]
    tangent = torch.autograd.forward_ad.unpack_dual(end).tangent
assert tangent is not None
silent = tangent.item()
print(f"dual numbers through Milstein     {silent:.6f}, wrong by {abs(silent - central):.4f}")
try:
    torch.func.jvp(lambda x: solve(x, method="milstein"), (x0,), (torch.ones_like(x0),))
except RuntimeError as refusal:
    print("torch.func.jvp raises:", str(refusal).split(",")[0][:70] + "...")
assert abs(silent - central) > 0.01

# %% [markdown]
# `sensitivities` has both solved. Its `jvp` and `vjp` modes are right for this solver, `tangent`
# refuses it with the cure, and `auto` takes `vjp`:

# %%
settings = {"method": "milstein", "dt": h, "bm": bm}
for mode in ("vjp", "jvp", "auto"):
    sens = sdesens.sensitivities(Sine(), x0, grid, mode=mode, **settings)
    print(f"{mode:5} ({sens.mode})  {sens.dx0[-1].item():.6f}")
    assert abs(sens.dx0[-1].item() - central) < 1e-6
try:
    sdesens.sensitivities(Sine(), x0, grid, mode="tangent", **settings)
except sdesens.UnsupportedError as refusal:
    print(textwrap.fill(f"UnsupportedError: {refusal}", 96))
else:
    raise AssertionError

# %% [markdown]
# A third trap has nothing to do with derivatives, but spoils them as well. With *scalar* noise
# (one Brownian motion for several components) the term is $\partial g/\partial x \cdot g$, and
# torchsde multiplies by the transposed Jacobian. The scheme still converges, with order 1/2 where
# Milstein has 1. `sensitivities` warns:


# %%
class TwoOnOne:
    """Two components on one Brownian motion."""

    sde_type, noise_type = "ito", "scalar"

    def f(self, t, x):
        return torch.sin(x.flip(-1)) - x

    def g(self, t, x):
        a, b = x.unbind(-1)
        return torch.stack([0.8 * torch.cos(b), 0.3 + 0.6 * torch.sin(a)], -1).unsqueeze(-1)


two = torch.tensor([[0.3, -0.5]])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    sdesens.sensitivities(TwoOnOne(), two, grid, mode="vjp", method="milstein", dt=h, seed=0)
print(textwrap.fill(f"{caught[0].category.__name__}: {caught[0].message}", 96))
assert caught[0].category is sdesens.AccuracyWarning

# %% [markdown]
# ## How fast the error of $J$ falls
#
# The pair $(X, J)$ is an SDE, so a scheme has for $J$ the strong order that it has for $X$: 1/2
# for Euler, 1 for Milstein. To see it, solve on one path with many steps, and then on the same
# path coarsened; the error is $E\,|J^{(n)}_1 - J_1|$ over many paths.

# %%
B, finest = (100, 512) if QUICK else (2000, 4096)
counts = (8, 16, 32, 64) if QUICK else (8, 16, 32, 64, 128, 256)
grad_free = {"grad_free": True}


def strong_errors(sde, x0, schemes):
    """Mean distance of X_1 and of J_1 from those on the finest grid, by scheme."""
    x0 = x0.expand(B, -1)
    noise = sdesens.BrownianPath(0, 1, (B, 1), finest, seed=1)
    fixed = {"method": "milstein", "options": grad_free, "dt": 1 / finest, "bm": noise}
    true = sdesens.sensitivities(sde, x0, ts, **fixed)
    out = {}
    for name, options in schemes.items():
        of_x, of_j = [], []
        for n in counts:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", sdesens.AccuracyWarning)
                bm = noise.coarsen(finest // n)
                sens = sdesens.sensitivities(sde, x0, ts, dt=1 / n, bm=bm, **options)
            of_x.append(Estimate.of((sens.x[-1] - true.x[-1]).norm(dim=-1)))
            of_j.append(Estimate.of((sens.dx0[-1] - true.dx0[-1]).flatten(1).norm(dim=-1)))
        out |= {f"$X$, {name}": of_x, f"$J$, {name}": of_j}
    return out


euler = {"method": "euler"}
milstein = {"method": "milstein", "options": grad_free}
one = strong_errors(Sine(), x0, {"Euler": euler, "Milstein": milstein})
scalar = strong_errors(
    TwoOnOne(),
    two,
    {
        "Euler": euler,
        "Milstein": milstein,
        "torchsde's Milstein": {"method": "milstein", "mode": "vjp"},
    },
)
figure = Figure(figsize=(7.2, 3.4))
left, right = figure.subplots(1, 2)
plots.convergence(counts, one, slopes=(-0.5, -1), fit=False, ax=left)
left.set_title("(a) one component")
only_j = {name[5:]: errors for name, errors in scalar.items() if name.startswith("$J$")}
plots.convergence(counts, only_j, slopes=(-0.5, -1), fit=False, ylabel="error of $J$", ax=right)
right.set_title("(b) two components, scalar noise")
figure

# %%
slack = 0.25 if QUICK else 0.1
for name, errors in (one | {f"{name}, scalar noise": e for name, e in scalar.items()}).items():
    order = -plots.fitted_slope(counts, errors).value
    expected = 1 if "Milstein" in name and "torchsde" not in name else 0.5
    print(f"{name:40} order {order:.2f}, expected {expected}")
    assert abs(order - expected) < slack

# %% [markdown]
# (Milstein here is the `grad_free` one, for which the `tangent` mode works.)
#
# ## Growth and decay
#
# Where noise enters additively ($g_x = 0$), $J_t = \exp\int_0^t f_x(X_s)\,ds$ is positive and
# grows or decays at the rate $\lambda = \lim \log J_t / t$, the Lyapunov exponent. If $X$ has a
# stationary density $p$, then $\lambda = \int f_x\,p$. For the double well $f = x - x^3$, $g = 1$,
# the density is $p \propto \exp(x^2 - x^4/2)$, and integration by parts ($f p = \tfrac12 p'$)
# gives $\lambda = -2\int f^2 p < 0$. The drift pushes neighbours apart between the wells, and yet
# derivatives die out: on a common noise paths forget where they began, and merge.


# %%
class Wells:
    """dX = (X - X^3) dt + dW for eight starts on one Brownian motion."""

    sde_type, noise_type = "ito", "scalar"

    def f(self, t, x):
        return x - x**3

    def g(self, t, x):
        return torch.ones_like(x).unsqueeze(-1)


points = torch.linspace(-6, 6, 20001)
density = torch.exp(points**2 - points**4 / 2)
density /= torch.trapezoid(density, points)
exponent = torch.trapezoid((1 - 3 * points**2) * density, points).item()
by_parts = -2 * torch.trapezoid((points - points**3) ** 2 * density, points).item()

horizon, B = (5, 100) if QUICK else (20, 2000)
times = torch.linspace(0, horizon, 10 * horizon + 1)
kept = {"method": "srk", "dt": 0.01}
early = torch.linspace(0, 5, 251)
merging = sdesens.sensitivities(Wells(), torch.linspace(-2, 2, 8)[None], early, seed=5, **kept)
single = sdesens.sensitivities(Wells(), torch.zeros(B, 1), times, seed=0, **kept)
log_J = single.dx0[:, :, 0, 0].log()
rate = Estimate.of(
    (log_J[-1] - log_J[20]) / (times[-1] - times[20])
)  # from t = 2: stationary by then
print(f"Lyapunov exponent by quadrature      {exponent:.4f}, by parts {by_parts:.4f}")
print(f"mean of log J / t over {B:4} paths    {rate.value:.4f} ± {rate.stderr:.4f}")
print(f"largest J at t = {horizon}: {single.dx0[-1].max().item():.1e}")
assert abs(exponent - by_parts) < 1e-8
assert abs(rate.value - exponent) < 4 * rate.stderr

# %%
figure = Figure(figsize=(7.2, 3.2))
left, right = figure.subplots(1, 2)
left.plot(early, merging.x[:, 0], color="0.35", lw=0.7, ls="-")
left.set(xlim=(0, 5), xlabel="time $t$", ylabel="$X_t$", title="(a) eight starts, one noise")
decay = {"color": "#D55E00", "lw": 1.2, "ls": "-.", "zorder": 3}
right.plot(times, torch.exp(exponent * times), label=r"$e^{\lambda t}$", **decay)
plots.tangent_fan(single, scale="log", paths=3, ax=right).set_title("(b) derivatives of many paths")
figure

# %% [markdown]
# With multiplicative noise the typical derivative and the mean one may part. For geometric
# Brownian motion $E[J_t] = e^{\mu t}$ grows while almost every path has $J_t \approx e^{(\mu -
# \sigma^2/2)t} \to 0$ if $\mu < \sigma^2/2$: the mean is carried by few paths.

# %%
wild = GeometricBrownianMotion(mu=0.05, sigma=0.5)
years = torch.linspace(0, 20, 201)
B = 500 if QUICK else 10_000
gbm = sdesens.sensitivities(wild, torch.ones(B, 1), years, method="euler", dt=0.01, seed=3)
J = gbm.dx0[-1, :, 0, 0].sort(descending=True).values
mean = Estimate.of(J)
print(f"E[J_20] = e = {torch.e:.3f}; mean of {B} paths {mean.value:.2f} ± {mean.stderr:.2f}")
print(f"median {J.median().item():.3f}, exp(-1.5) = {torch.exp(torch.tensor(-1.5)).item():.3f}")
print(f"of the mean, the largest 1% of the paths carry {J[: B // 100].sum() / J.sum():.0%}")
assert abs(mean.value - torch.e) < 4 * mean.stderr

# %%
ax = Figure().add_subplot()
ax.plot(years, torch.exp(0.05 * years), label=r"$e^{\mu t}$", **decay | {"ls": ":"})
ax.plot(years, torch.exp(-0.075 * years), label=r"$e^{(\mu-\sigma^2/2)t}$", **decay)
plots.tangent_fan(gbm, scale="log", ax=ax)
ax.figure

# %% [markdown]
# The average of a pathwise derivative over many paths is the subject of the next notebook. A heavy
# tail as here is what makes its error bars wide.
#
# **What to keep.** $J$ solves a linear SDE on the same noise. For schemes made of values of $f$
# and $g$ it makes no difference whether the scheme or the SDE is differentiated; a scheme with
# derivatives of its own needs care.
