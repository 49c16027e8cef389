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
# # 3. Pathwise greeks
#
# A price is a mean over paths, $V = E[F(X)]$, and a greek is its derivative. If the derivative may
# be taken under the mean, the derivative of each path gives the greek from the same paths as the
# price, with an error bar. This notebook does that by hand for Black and Scholes, says what the
# error bar means, compares with bumping, and ends with Heston's model, where the obvious way has
# an infinite variance.

# %%
# %matplotlib inline
import os
import textwrap

import matplotlib as mpl
import torch
from matplotlib.figure import Figure

import sdesens
from sdesens import plots
from sdesens.models import BlackScholes, Heston
from sdesens.montecarlo import Estimate
from sdesens.pricing import Asian, Call, closed_form_greeks

QUICK = bool(os.environ.get("SDESENS_QUICK"))
mpl.style.use("sdesens.plots.paper")
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)

# %% [markdown]
# ## By hand
#
# Under Black and Scholes $S_T = S_0 \exp((r - \sigma^2/2)T + \sigma W_T)$, and a call is worth $V
# = e^{-rT} E[(S_T - K)^+]$. The payoff has a slope of $1\{S_T > K\}$ everywhere but at $K$, which
# no path hits, and it is Lipschitz, so
#
# $$\frac{\partial V}{\partial\theta} = e^{-rT}\,E\Big[1\{S_T > K\}\,\frac{\partial S_T}{\partial\theta}\Big], \qquad \frac{\partial S_T}{\partial S_0} = \frac{S_T}{S_0}, \quad \frac{\partial S_T}{\partial\sigma} = S_T\,(W_T - \sigma T)$$
#
# (Broadie and Glasserman, *Estimating security price derivatives using simulation*, Management
# Science 42, 1996). The tangents are those of notebook 2. A mean of $n$ independent numbers has
# the standard error (their standard deviation)$/\sqrt n$.

# %%
S0, K, r, sigma, T = 100.0, 100.0, 0.05, 0.2, 1.0
n = 20_000 if QUICK else 100_000
W = sdesens.BrownianPath(0, T, (n, 1), 1, seed=0)(0.0, T)[:, 0]
S = S0 * torch.exp((r - sigma**2 / 2) * T + sigma * W)
discount = torch.exp(torch.tensor(-r * T))
in_the_money = (S > K).double()


by_hand = {
    "price": Estimate.of(discount * (S - K).clamp(min=0)),
    "spot": Estimate.of(discount * in_the_money * S / S0),
    "sigma": Estimate.of(discount * in_the_money * S * (W - sigma * T)),
}


def show(found, digits=4):
    return f"{found.value:.{digits}f} ± {found.stderr:.{digits}f}"


for name, found in by_hand.items():
    print(f"{name:6} {show(found)}")

# %% [markdown]
# ## By `greeks`
#
# The same and the other derivatives in one call. `steps=1` is enough as Black and Scholes has an
# exact step. `closed_form_greeks` differentiates the formula.

# %%
model, call = BlackScholes(rate=r, sigma=sigma), Call(strike=K, maturity=T)
report = sdesens.greeks(model, call, [S0], paths=n, steps=1, seed=0)
print(report)


def beside(report, known):
    """Every number beside its exact value, and how many standard errors they are apart."""
    print(f"{'':12} {'estimate':>10} {'stderr':>9} {'exact':>10} {'deviation':>10}")
    for name, exact in known.items():
        found = report["price"] if not name else report[name[0]]
        deviation = (found.value - exact) / found.stderr
        label = f"d/d {name[0]}" if name else "price"
        print(f"{label:12} {found.value:10.4f} {found.stderr:9.4f} {exact:10.4f} {deviation:10.1f}")
        assert abs(deviation) < 4


# %%
exact = closed_form_greeks(model, call, [S0])
beside(report, exact)
for name, found in by_hand.items():
    assert abs(report[name].value - found.value) < 1e-9 * abs(found.value)

# %% [markdown]
# The numbers made by hand come out again to rounding, as seed 0 is the same noise.
#
# **Reading the report.** Its first line says what was valued, by which scheme and noise. Then each
# number with its standard error and the estimator. `pathwise` is what was done above. Inputs have
# the names of the model: `report["sigma"]`. The names of the trade are there too, with theta minus
# the derivative in the maturity, and intervals at any level:

# %%
print("delta   ", show(report.delta))
print("vega    ", show(report.vega))
print("rho     ", show(report.rho))
print("theta   ", show(report.theta))
low, high = report.interval("spot", level=0.95)
print(f"95% of the delta: {low:.4f} to {high:.4f}")

# %% [markdown]
# Why is there no gamma? The slope of a call jumps at the strike, so its derivative is 0 on every
# path, and a second pathwise derivative would be exactly 0. `greeks` refuses it, and `order=2`
# takes another estimator:

# %%
second = {"paths": n, "steps": 1, "wrt": "spot", "order": 2}
try:
    sdesens.greeks(model, call, [S0], estimator="pathwise", **second)
except sdesens.UnsupportedError as refusal:
    print(textwrap.fill(f"UnsupportedError: {refusal}", 96))
else:
    raise AssertionError
gamma = sdesens.greeks(model, call, [S0], **second)
exact_gamma = closed_form_greeks(model, call, [S0], wrt="spot", order=2)["spot", "spot"]
print(
    f"\ngamma {show(gamma.gamma, 6)} by {gamma.estimators['spot', 'spot']!r}, exact {exact_gamma:.6f}"
)
assert abs(gamma.gamma.value - exact_gamma) < 4 * gamma.gamma.stderr

# %% [markdown]
# Notebook 4 is about these.
#
# ## What the error bar means
#
# Over many seeds the estimate scatters around the truth with the standard error that a single run
# reports, and the 95% interval misses the truth in 5% of the runs. Four times the paths halve the
# error.

# %%
seeds = 25 if QUICK else 100
counts = (250, 1000, 4000) if QUICK else (250, 1000, 4000, 16_000, 64_000)
exact_delta = exact["spot",]
true_errors, reported, inside, runs = [], [], 0, 0
for n in counts:
    deltas = [
        sdesens.greeks(model, call, [S0], paths=n, steps=1, seed=seed, wrt="spot")
        for seed in range(seeds)
    ]
    errors = torch.tensor([d.delta.value - exact_delta for d in deltas])
    rms = errors.square().mean().sqrt().item()
    true_errors.append(Estimate(rms, rms / (2 * seeds) ** 0.5))
    reported.append(sum(d.delta.stderr for d in deltas) / seeds)
    intervals = [d.interval("spot") for d in deltas]
    inside += sum(low < exact_delta < high for low, high in intervals)
    runs += seeds
print(f"of {runs} intervals at 95%, {inside / runs:.1%} hold the exact delta")
assert abs(inside / runs - 0.95) < 4 * (0.95 * 0.05 / runs) ** 0.5

ax = plots.convergence(
    counts,
    {"root mean square error over seeds": true_errors, "standard error reported": reported},
    slopes=(-0.5,),
    fit=False,
    xlabel="number of paths $n$",
    ylabel="error of the delta",
)
ax.figure

# %% [markdown]
# A profile over the spot, with few paths so that the band can be seen. All spots share one noise,
# so the errors of neighbours are alike.

# %%
spots = torch.linspace(70, 130, 9 if QUICK else 25)
reports = [
    sdesens.greeks(model, call, [spot.item()], paths=1000, steps=1, seed=4, wrt=("spot", "sigma"))
    for spot in spots
]
figure = Figure(figsize=(7.2, 3.0))
left, right = figure.subplots(1, 2)
for ax, name, label in ((left, "spot", "delta"), (right, "sigma", "vega")):
    plots.greek_profile(
        spots,
        [report[name] for report in reports],
        closed_form=lambda spot, name=name: closed_form_greeks(model, call, [spot], wrt=name)[
            name,
        ],
        label="1000 paths",
        ylabel=label,
        ax=ax,
    )
left.set_title("(a) delta")
right.set_title("(b) vega")
figure

# %% [markdown]
# ## Bump and revalue
#
# The older way is to value the option twice, a little up and a little down,
#
# $$\frac{V(S_0 + h) - V(S_0 - h)}{2h}.$$
#
# With fresh noise for each value the difference of two means with error $\varepsilon$ is divided
# by $2h$: an error of $\varepsilon/(\sqrt2\,h)$, without bound as $h$ falls ([Quantitative Finance
# 18208](https://quant.stackexchange.com/q/18208)). With the *same* noise for both (common random
# numbers) the errors cancel, and as $h \to 0$ each path gives its pathwise derivative. What is
# left is a bias of the order $h^2$, and a cost of two valuations for each input.


# %%
def value(spot, W):
    """Discounted payoffs; noise (R, n), R repetitions of n paths."""
    return discount * (spot * torch.exp((r - sigma**2 / 2) * T + sigma * W) - K).clamp(min=0)


repeats, paths = (100, 500) if QUICK else (400, 2000)
noise = sdesens.BrownianPath(0, T, (repeats * paths, 2), 1, seed=9)(0.0, T)
W, fresh = noise.T.reshape(2, repeats, paths)


def bumped(h, other):
    """Estimates of the delta, one for each repetition."""
    return ((value(S0 + h, W) - value(S0 - h, other)) / (2 * h)).mean(1)


pathwise = (discount * (value(S0, W) > 0) * (value(S0, W) / discount + K) / S0).mean(1)
h = 0.01
print(f"standard deviation of the delta of {paths} paths, bump {h}:")
print(f"  fresh noise            {bumped(h, fresh).std():.4f}")
print(f"  common random numbers  {bumped(h, W).std():.4f}")
print(f"  pathwise               {pathwise.std():.4f}")
assert (bumped(h, W).mean() - pathwise.mean()).abs() < 1e-4
assert bumped(h, fresh).std() > 100 * bumped(h, W).std()

# %%
bumps = (0.001, 0.01, 0.1, 1.0, 3.0, 10.0, 30.0)


def rms_error(deltas):
    return (deltas - exact_delta).square().mean().sqrt().item()


ax = plots.convergence(
    bumps,
    {
        "fresh noise": [rms_error(bumped(h, fresh)) for h in bumps],
        "common random numbers": [rms_error(bumped(h, W)) for h in bumps],
        "pathwise, no bump": [rms_error(pathwise)] * len(bumps),
    },
    slopes=(-1,),
    fit=False,
    xlabel="bump $h$ of a spot of 100",
    ylabel="root mean square error of the delta",
)
ax.get_legend().get_texts()[-1].set_text("$h^{-1}$")
ax.figure

# %% [markdown]
# sdesens always has common random numbers: the noise is a function of the seed. That makes a bump
# a good check of any derivative, here of the vega:

# %%
h = 1e-3
runs = {"paths": 20_000, "steps": 1, "seed": 0, "wrt": "sigma"}
up, down, at = (
    sdesens.greeks(BlackScholes(rate=r, sigma=s), call, [S0], **runs)
    for s in (sigma + h, sigma - h, sigma)
)
by_bump = (up["price"].value - down["price"].value) / (2 * h)
print(f"vega by bump {by_bump:.4f}, pathwise {show(at.vega)}")
assert abs(by_bump - at.vega.value) < 0.1 * at.vega.stderr

# %% [markdown]
# ## Smaller errors from the same paths
#
# *Antithetic* pairs run each path on $W$ and on $-W$; a pair counts as one sample. A *control
# variate* is a payoff with a known value that moves with ours: for an Asian option on the
# arithmetic average, the one on the geometric average, whose formula is known. Both are applied to
# the price and to every derivative, and the standard errors say what was won.

# %%
asian = Asian(strike=K, maturity=T, dates=12)
geometric = Asian(strike=K, maturity=T, dates=12, average="geometric")
common = {"paths": 10_000 if QUICK else 40_000, "steps": 12, "wrt": ("spot", "sigma")}
ways = {
    "plain": {},
    "antithetic": {"antithetic": True},
    "control": {"control": geometric},
}
asians = {name: sdesens.greeks(model, asian, [S0], **common, **way) for name, way in ways.items()}
print(f"{'':12} {'price':>20} {'delta':>20} {'vega':>20}")
for name, found in asians.items():
    cells = [show(found[key]) for key in ("price", "spot", "sigma")]
    print(f"{name:12}", *(f"{cell:>20}" for cell in cells))
assert asians["control"]["price"].stderr < 0.1 * asians["plain"]["price"].stderr
for name in ("price", "spot", "sigma"):
    gap = asians["control"][name].value - asians["plain"][name].value
    assert abs(gap) < 4 * asians["plain"][name].stderr

# %% [markdown]
# ## Heston: a derivative with infinite variance
#
# In Heston's model the variance is a square-root process,
#
# $$dS = (r - q)\,S\,dt + \sqrt v\,S\,dW_1, \qquad dv = \kappa(\theta - v)\,dt + \xi\sqrt v\,dW_2, \qquad d\langle W_1, W_2\rangle = \rho\,dt.$$
#
# One Euler step of $v$ of size $h$, $v' = v + \kappa(\theta - v)h + \xi\sqrt{v h}\,Z$, has the
# derivative
#
# $$\frac{\partial v'}{\partial v} = 1 - \kappa h + \frac{\xi \sqrt h\,Z}{2\sqrt v},$$
#
# whose mean square contains $\xi^2 h/(4v)$. After a step $v$ is normal, with a density that is
# positive at 0, and then $E[1/v;\, v > 0] = \infty$. The pathwise derivative of the Euler scheme
# exists, is exact for the discrete path, and has an infinite variance: $P(1/\sqrt v > x) = P(v <
# x^{-2})$ falls like $x^{-2}$ only. How soon that is felt depends on how often $v$ comes near 0.
# The parameters of the example in the NAG Library's documentation of S30NDF have $4\kappa\theta <
# \xi^2$: very often.

# %%
heston = Heston(rate=0.025, kappa=1.5768, theta=0.0398, xi=0.5751, rho=-0.5711, dividend=0.01)
today = [100.0, 0.0175]
kappa, theta, xi = (heston.get_parameter(name).item() for name in ("kappa", "theta", "xi"))
print(f"4 kappa theta = {4 * kappa * theta:.3f}, xi^2 = {xi**2:.3f}")

B = 5000 if QUICK else 100_000
euler = sdesens.sensitivities(
    heston,
    torch.tensor([today]).expand(B, 2),
    [0.0, 1.0],
    method="euler",
    dt=1 / 50,
    seed=0,
    engine="fused",
)
spot_end, tangent = euler.x[-1, :, 0], euler.dx0[-1, :, 0, 1]
derivative = torch.exp(torch.tensor(-0.025)) * (spot_end > K) * tangent
squares = derivative.square().sort(descending=True).values
print(f"d/dv0 of {B} Euler paths: {show(Estimate.of(derivative), 1)}")
print(f"largest single path: {derivative.abs().max():.0f}")
print(
    f"the {B // 1000} largest of {B} paths hold {squares[: B // 1000].sum() / squares.sum():.1%}",
    end=" ",
)
print("of the sum of squares")

# %% [markdown]
# The exact value is 53.0. Nor does the error bar help: an infinite variance has no estimate. What
# works, and is the default of `greeks` for Heston:
#
# 1. the *quadratic-exponential* step for $v$ (Andersen, *Journal of Computational Finance* 11,
#    2008), matched to the mean and variance of the true transition, differentiated as it stands;
# 2. the *conditional expectation*: given the path of $v$, the spot is log-normal, and the mean of
#    the payoff over the remaining Brownian motion is Black's formula, which is smooth (Romano and
#    Touzi, *Mathematical Finance* 7, 1997).

# %%
settings = {"paths": 20_000 if QUICK else 200_000, "steps": 50, "seed": 0}
report = sdesens.greeks(heston, call, today, **settings)
beside(report, closed_form_greeks(heston, call, today))

# %% [markdown]
# Beside it the numbers that NAG prints:

# %%
published = {
    "price": 6.5961,
    "spot": 0.6616,
    "variance": 53.0023,
    "rate": 59.5669,
    "kappa": 0.8097,
    "theta": 60.3297,
    "xi": -1.9804,
    "rho": 0.3217,
    "dividend": -66.1630,
}
for name, number in published.items():
    found = report[name]
    print(f"{name:9} {show(found):>18}   NAG {number:9.4f}")
    assert abs(found.value - number) < 4 * found.stderr

# %% [markdown]
# The two estimators against the number of paths. Standard errors of the conditional expectation
# fall with slope $-1/2$; those of the Euler derivative jump up whenever a path comes near zero.

# %%
sizes = (1000, 4000, 16_000) if QUICK else (1000, 4000, 16_000, 64_000, 256_000)
schemes = {
    "Euler, pathwise": {"scheme": "euler", "estimator": "pathwise"},
    "quadratic-exponential, conditional": {},
}
errors = {
    name: [
        sdesens.greeks(heston, call, today, paths=n, steps=50, wrt="variance", **options)[
            "variance"
        ].stderr
        for n in sizes
    ]
    for name, options in schemes.items()
}
for name, found in errors.items():
    print(f"{name:35}", *(f"{stderr:8.3f}" for stderr in found))
ratio = errors["quadratic-exponential, conditional"]
assert abs(ratio[0] / ratio[-1] / (sizes[-1] / sizes[0]) ** 0.5 - 1) < 0.2

# %% [markdown]
# To see how heavy the tail is, take single paths by both schemes. The model has its
# quadratic-exponential step as a method; forward mode carries the derivative through fifty of
# them.

# %%
normals = sdesens.BrownianPath(0, 50, (B, 2), 50, seed=0)


def spot_by_qe(v0):
    h = torch.tensor(1 / 50)
    spot, v = torch.full_like(v0, 100.0), v0
    for k in range(50):
        spot, v = heston.step_qe(k * h, h, normals(k, k + 1).T, spot, v)
    return spot


v0 = torch.full((B,), 0.0175)
with torch.no_grad():
    spot_end, tangent = torch.func.jvp(spot_by_qe, (v0,), (torch.ones(B),))
by_qe = torch.exp(torch.tensor(-0.025)) * (spot_end > K) * tangent
print(f"d/dv0 of {B} quadratic-exponential paths: {show(Estimate.of(by_qe), 1)}")
assert abs(Estimate.of(by_qe).value - 53.0) < 4 * Estimate.of(by_qe).stderr

x = torch.logspace(1, 5, 80)
figure = Figure(figsize=(7.2, 3.2))
left, right = figure.subplots(1, 2)
for label, sample, line in (("Euler", derivative, "-"), ("quadratic-exponential", by_qe, "--")):
    tail = torch.stack([(sample.abs() > level).double().mean() for level in x])
    left.loglog(x[tail > 0], tail[tail > 0], ls=line, label=label)
left.loglog(x[30:], 0.3 * (x[30:] / x[30]) ** -2, color="0.35", ls=":", lw=0.9, label="$x^{-2}$")
left.set(xlabel="$x$", ylabel="share of paths beyond $x$", ylim=(0.3 / B, 2))
left.set_title(r"(a) $|\partial F/\partial v_0|$ of single paths")
left.legend(loc="lower left")
plots.convergence(
    sizes, errors, slopes=(-0.5,), fit=False, xlabel="paths $n$", ylabel="standard error", ax=right
)
right.set_title(r"(b) standard error of $\partial V/\partial v_0$")
figure

# %% [markdown]
# In (a) a distribution has a finite variance only if its tail falls faster than $x^{-2}$. Euler's
# falls more slowly over all that these paths can show: where the variance stays near zero, one
# step after the other multiplies by a heavy-tailed factor. (The root of the variance in the spot
# leaves even the quadratic-exponential derivative a divergence, but a logarithmic one, out of
# sight. The conditional expectation has none.) In (b) it leaves standard errors that can be
# believed.
#
# **What to keep.** For a Lipschitz payoff the derivative of each path, averaged, is the greek; its
# error bar is that of a mean and falls like $1/\sqrt n$. Common random numbers make bumps converge
# to it. A variance that is infinite does not announce itself: look at the tail, or use a scheme
# and an estimator that have none.
