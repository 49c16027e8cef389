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
# # 1. The derivative of a path at every time
#
# An Ornstein-Uhlenbeck process $dX = -X\,dt + dW$ is solved on 100 times by Euler's method. What
# is $dX_t/dx_0$ at each of them? Asked of PyTorch in the obvious way the answer is one number,
# summed over the times; asked in a loop it is right and slow ([Stack Overflow
# 78658755](https://stackoverflow.com/q/78658755)). This notebook shows why, gives the answer in
# three ways by hand, and then in one line.

# %%
# %matplotlib inline
import os
import textwrap
import timeit

import matplotlib as mpl
import torch
import torchsde
from matplotlib.figure import Figure
from torch import nn

import sdesens
from sdesens import plots
from sdesens.models import NeuralSDE

QUICK = bool(os.environ.get("SDESENS_QUICK"))
mpl.style.use("sdesens.plots.paper")
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)

# %% [markdown]
# ## The question
#
# A drift `f`, a diffusion `g`, a Brownian path, and one call of torchsde. The path has shape `(T,
# B, d)`: times, samples, components.


# %%
class OU(nn.Module):
    """dX = -X dt + dW."""

    sde_type, noise_type = "ito", "diagonal"

    def f(self, t, x):
        return -x

    def g(self, t, x):
        return torch.ones_like(x)


T = 100
ts = torch.linspace(0, 1, T)
dt = 1 / (T - 1)
noise = sdesens.BrownianPath(0, 1, shape=(1, 1), steps=T - 1, seed=0)


def solve(x0):
    return torchsde.sdeint(OU(), x0, ts, bm=noise, method="euler", dt=dt)


x0 = torch.zeros(1, 1, requires_grad=True)
path = solve(x0)
path.shape

# %% [markdown]
# An Euler step is $X_{k+1} = (1 - \Delta t) X_k + \Delta W_k$, so the answer is known:
# $dX_{t_k}/dx_0 = (1 - \Delta t)^k$, a hundred numbers from 1 down to about $e^{-1}$. Reverse mode
# with ones as `grad_outputs` returns a single one.

# %%
exact = (1 - dt) ** torch.arange(T)
(ones,) = torch.autograd.grad(path, x0, torch.ones_like(path), retain_graph=True)
print(f"grad with ones      {ones.item():.10f}")
print(f"sum of the answers  {exact.sum().item():.10f}")
print(f"the last answer     {exact[-1].item():.10f}")
assert torch.isclose(ones.squeeze(), exact.sum(), rtol=1e-12)

# %% [markdown]
# `torch.autograd.grad(y, x, v)` returns the product $v^\top J$ of `grad_outputs` with the Jacobian
# $J = \partial y/\partial x$. Here $J$ is a column of $T$ numbers, and $v = (1, \dots, 1)$ adds
# them up. To read one number, `v` must be 1 at one time and 0 elsewhere. That is what the loop
# does.


# %%
def loop(path, x0):
    grads = [torch.autograd.grad(x.sum(), x0, retain_graph=True)[0] for x in path]
    return torch.stack(grads)[:, 0, 0]


def error(derivative, exact=exact):
    return (derivative - exact).abs().max().item()


print(f"loop, largest error {error(loop(path, x0)):.1e}")
assert error(loop(path, x0)) < 1e-12

# %% [markdown]
# It is right, and the $k$-th backward pass walks back through $k$ steps: $T^2/2$ of them in all,
# one small tensor at a time.
#
# ## Three ways by hand
#
# **Reverse mode, all rows at once.** The loop's vectors $v$ are the rows of the identity.
# `is_grads_batched=True` takes them together, in one backward pass over a batch of $T$ vectors.
# (Without that flag the same call is a shape error.)

# %%
identity = torch.eye(T).reshape(T, T, 1, 1)
(rows,) = torch.autograd.grad(path, x0, identity, is_grads_batched=True)
by_vjp = rows[:, 0, 0]
print(f"batched vjp, largest error {error(by_vjp):.1e}")
assert error(by_vjp) < 1e-12

# %% [markdown]
# **Forward mode.** There are many outputs and only one input, so go the other way: push the
# input's derivative, 1, through the solver. One solve carries $J_t$ along with $X_t$, and all
# times come out on the way.

# %%
_, by_jvp = torch.func.jvp(solve, (torch.zeros(1, 1),), (torch.ones(1, 1),))
print(f"jvp, largest error {error(by_jvp[:, 0, 0]):.1e}")
assert error(by_jvp[:, 0, 0]) < 1e-12

# %% [markdown]
# (The Brownian path matters here: torchsde's own `BrownianInterval` draws its numbers when they
# are asked for, which `torch.func.vmap` and `jacfwd` refuse. The increments of `BrownianPath` are
# a function of the seed.)
#
# **The tangent SDE.** Differentiate the equation itself. With $J_t = dX_t/dx_0$,
#
# $$dJ = f'(X)\,J\,dt + g'(X)\,J\,dW, \qquad J_0 = 1,$$
#
# an SDE driven by the same $W$. Solve it beside the path.

# %%
x, j = torch.zeros(1, 1), torch.ones(1, 1)
by_tangent = [j]
for k in range(T - 1):
    dW = noise(ts[k], ts[k + 1])
    x, j = x - x * dt + dW, j - j * dt + 0 * j * dW  # f' = -1, g' = 0
    by_tangent.append(j)
by_tangent = torch.stack(by_tangent)[:, 0, 0]
print(f"tangent, largest error {error(by_tangent):.1e}")
assert error(by_tangent) < 1e-12

# %% [markdown]
# ## In one line
#
# `sensitivities` has the three as modes. They solve on the same Brownian path and agree to
# rounding.

# %%
start = torch.zeros(1, 1)
settings = {"method": "euler", "dt": dt, "seed": 0}
by_mode = {
    mode: sdesens.sensitivities(OU(), start, ts, mode=mode, **settings)
    for mode in ("vjp", "jvp", "tangent")
}
for mode, sens in by_mode.items():
    print(f"{mode:8} largest error {error(sens.dx0[:, 0, 0, 0]):.1e}, path as before:", end=" ")
    print(torch.equal(sens.x, path.detach()))
    assert error(sens.dx0[:, 0, 0, 0]) < 1e-12

# %% [markdown]
# `seed=0` gives the noise of `BrownianPath(..., seed=0)` above, whatever the global seeds of torch
# and NumPy are, so the path is the same to the last bit.
#
# This $J$ is a known curve since $f$ is linear and $g$ constant. In general the derivative is
# random, one curve for each path of the noise. A process with both $f'$ and $g'$ that vary:


# %%
class Sine(nn.Module):
    """dX = (sin X - X) dt + (0.3 cos X + 0.5) dW."""

    sde_type, noise_type = "ito", "diagonal"

    def f(self, t, x):
        return torch.sin(x) - x

    def g(self, t, x):
        return 0.3 * torch.cos(x) + 0.5


found = sdesens.compare_modes(Sine(), start, ts, **settings)
print(found)
assert found.agree

# %% [markdown]
# `compare_modes` runs every mode and a central difference (two solves on the same noise, with the
# start moved a little up and down) and says where they part. It is the check to run on a model of
# your own.

# %%
above, below = plots.modes(found)
above.figure

# %% [markdown]
# Over many paths the derivative has a distribution of its own at every time.

# %%
B = 200 if QUICK else 2000
many = sdesens.sensitivities(Sine(), torch.full((B, 1), 0.5), ts, **settings)
figure = Figure(figsize=(7.2, 3.0))
left, right = figure.subplots(1, 2)
plots.path_fan(many, ax=left).set_title("(a) path")
plots.tangent_fan(many, ax=right).set_title("(b) its derivative")
figure

# %% [markdown]
# ## Which step?
#
# `ts` says where the answer is wanted, `dt` how the solver steps. They are not the same thing.
# Without `dt` torchsde steps by 0.001, and between steps it interpolates linearly. The derivative
# is always that of the discrete path that was computed.

# %%
print("  dt       steps to 1  dX_1/dx0      (1 - dt)^steps   exp(-1) = 0.367879441")
for step, steps in ((dt, T - 1), (None, 1000), (0.05, 20)):
    sens = sdesens.sensitivities(OU(), start, ts, method="euler", dt=step, seed=0)
    last = sens.dx0[-1].item()
    print(f"  {sens.dt:.6f} {steps:8}    {last:.9f}   {(1 - sens.dt) ** steps:.9f}")
    assert abs(last - (1 - sens.dt) ** steps) < 1e-12

# %% [markdown]
# ## Shapes
#
# For a state of dimension $d$ the derivative at one time of one sample is a $d \times d$ matrix,
# *out by in*: `dx0[t, b, i, j]` is $dX^i_t/dx_0^j$. A linear drift $A X$ has the Euler derivative
# $(I + A\,\Delta t)^k$:


# %%
class Linear(nn.Module):
    """dX = A X dt + dW, two components."""

    sde_type, noise_type = "ito", "diagonal"

    def __init__(self):
        super().__init__()
        self.A = nn.Parameter(torch.tensor([[-1.0, 2.0], [0.0, -0.5]]))

    def f(self, t, x):
        return x @ self.A.T

    def g(self, t, x):
        return torch.ones_like(x)


linear = Linear()
eleven = torch.linspace(0, 1, 11)
sens = sdesens.sensitivities(
    linear, torch.zeros(3, 2), eleven, wrt=("x0", "A"), method="euler", dt=0.1, seed=0
)
print("x       ", tuple(sens.x.shape), "          time, sample, component")
print("dx0     ", tuple(sens.dx0.shape), "       time, sample, out, in")
print("dparams ", tuple(sens.dparams["A"].shape), "    time, sample, out, shape of A")
print(sens.dx0[-1, 0])
power = torch.matrix_power(torch.eye(2) + 0.1 * linear.A.detach(), 10)
assert torch.allclose(sens.dx0[-1], power.expand(3, 2, 2), rtol=0, atol=1e-12)

# %% [markdown]
# A gradient with ones would add up the two outputs as well, and return the sums of the columns:

# %%
two = torch.zeros(1, 2, requires_grad=True)
two_noises = sdesens.BrownianPath(0, 1, (1, 2), 10, seed=0)
end = torchsde.sdeint(linear, two, eleven, bm=two_noises, method="euler", dt=0.1)[-1]
(column_sums,) = torch.autograd.grad(end, two, torch.ones_like(end))
print(column_sums)
assert torch.allclose(column_sums[0], power.sum(0), rtol=0, atol=1e-12)

# %% [markdown]
# ## Memory
#
# With $B$ samples the output has $T B d$ entries, and the identity over all of them $(TBd)^2$: for
# $T = 100$ and $B = 1000$ that is 80 GB. Nearly all of it would be spent on zeros, as a sample
# does not depend on the start of another. Five samples show it:

# %%
B = 5
batch = torch.linspace(-1, 1, B)[:, None].requires_grad_()
noises = sdesens.BrownianPath(0, 1, (B, 1), T - 1, seed=0)
paths = torchsde.sdeint(Sine(), batch, ts, bm=noises, method="euler", dt=dt)

every = torch.eye(T * B).reshape(T * B, T, B, 1)
(full,) = torch.autograd.grad(paths, batch, every, is_grads_batched=True, retain_graph=True)
full = full.reshape(T, B, B)  # time, sample out, sample in
diagonal = full.diagonal(dim1=1, dim2=2)
print("share of the Jacobian that is not zero:", (full != 0).double().mean().item())
assert torch.count_nonzero(full) == torch.count_nonzero(diagonal)

# %% [markdown]
# So let one vector ask for all samples at once: the identity runs over $T d$ only, and the
# gradient comes back with the samples side by side.

# %%
by_time = torch.eye(T)[:, :, None, None].expand(T, T, B, 1)
(rows,) = torch.autograd.grad(paths, batch, by_time, is_grads_batched=True)
assert torch.equal(rows[:, :, 0], diagonal)

numbers = {"T B d": (100 * 1000) ** 2, "T d": 100 * 100 * 1000}
for name, count in numbers.items():
    print(f"grad_outputs over {name:5}, T=100, B=1000: {8 * count / 1e9:7.2f} GB")

# %% [markdown]
# The `vjp` mode goes one step further and never builds the long graph: it linearises the solver's
# steps (all at once under `vmap`) and multiplies the step Jacobians along time. `chunk_size`, the
# number of steps linearised at once, bounds the memory and changes no bit.

# %%
B = 100 if QUICK else 1000
batch = torch.linspace(-1, 1, B)[:, None]
chunked = [
    sdesens.sensitivities(Sine(), batch, ts, mode="vjp", chunk_size=size, **settings).dx0
    for size in (1, 7, None)
]
print(tuple(chunked[0].shape), [torch.equal(chunked[0], other) for other in chunked])
assert all(torch.equal(chunked[0], other) for other in chunked)

# %% [markdown]
# The step from $TBd$ to $Td$ is right only if the samples do not see each other. Should they
# (batch normalisation, a mean over the batch), the sums mix and no error tells. `sensitivities`
# looks first:


# %%
class Herd(OU):
    """Every sample is drawn to the mean of the batch."""

    def f(self, t, x):
        return x.mean(0, keepdim=True) - x


try:
    sdesens.sensitivities(Herd(), torch.zeros(3, 1), ts, **settings)
except sdesens.CoupledSamplesError as refusal:
    print(textwrap.fill(f"CoupledSamplesError: {refusal}", 96))
else:
    raise AssertionError

# %% [markdown]
# ## When the modes differ
#
# They differentiate one discrete path, so where they disagree, the model is at fault: here a part
# of the drift is hidden from reverse mode. `compare_modes` says so and picks none.


# %%
class Hidden(Sine):
    """The sine is computed where autograd does not look."""

    def f(self, t, x):
        with torch.no_grad():
            pull = torch.sin(x)
        return pull - x


found = sdesens.compare_modes(Hidden(), start, ts, **settings)
print(found)
assert not found.agree

# %% [markdown]
# ## Cost
#
# The loop takes $T^2/2$ small steps backwards, the modes of the order of $T$. Measured on one
# core, the fastest of three runs each:


# %%
def seconds(function, repeats=3):
    return min(timeit.repeat(function, number=1, repeat=repeats))


lengths = (25, 50, 100) if QUICK else (25, 50, 100, 200, 400)
taken = {"loop": [], "vjp": [], "jvp": [], "tangent": []}
for n in lengths:
    times = torch.linspace(0, 1, n)
    options = {"method": "euler", "dt": 1 / (n - 1)}
    bm = sdesens.BrownianPath(0, 1, (1, 1), n - 1, seed=0)

    def with_loop(times=times, bm=bm, options=options):
        x0 = torch.zeros(1, 1, requires_grad=True)
        return loop(torchsde.sdeint(Sine(), x0, times, bm=bm, **options), x0)

    taken["loop"].append(seconds(with_loop, 1))
    for mode in ("vjp", "jvp", "tangent"):

        def with_mode(mode=mode, times=times, bm=bm, options=options):
            return sdesens.sensitivities(Sine(), start, times, mode=mode, bm=bm, **options)

        taken[mode].append(seconds(with_mode))

ax = plots.convergence(
    lengths, taken, slopes=(1, 2), xlabel="number of times $n$", ylabel="time (s)"
)
ax.figure

# %% [markdown]
# ## Choosing a mode
#
# | mode | how | cost beside one solve | take it for |
# |---|---|---|---|
# | `tangent` | the tangent SDE beside the state | one more equation for each input entry | few inputs; the default |
# | `vjp` | Jacobians of the steps, chained | hardly grows with the number of parameters | many parameters |
# | `jvp` | forward mode through `torchsde.sdeint` | one direction for each input entry | a third opinion |
#
# `mode="auto"` counts: `vjp` when the entries of the parameters outnumber $T d$, and otherwise
# `tangent` (save for derivative-based Milstein, for which notebook 2 has the reason).

# %%
few, many_weights = NeuralSDE(dim=2, width=2), NeuralSDE(dim=2, width=32)
for model in (few, many_weights):
    names = [name for name, _ in model.named_parameters()]
    entries = sum(p.numel() for p in model.parameters())
    sens = sdesens.sensitivities(
        model, torch.zeros(1, 2), eleven, mode="auto", wrt=names, method="euler", dt=0.1, seed=0
    )
    print(f"{entries:4} parameter entries, T d = {11 * 2}: {sens.mode}")

# %% [markdown]
# A fourth way to the same numbers is `engine="fused"`: noise, state and tangents in one compiled
# pass. It compiles for a moment on the first call, and is made for very many paths.

# %%
fused = sdesens.sensitivities(Sine(), batch, ts, engine="fused", **settings)
print(f"largest difference {(fused.dx0 - chunked[0]).abs().max().item():.1e}")
assert torch.allclose(fused.dx0, chunked[0], rtol=0, atol=1e-12)

# %% [markdown]
# **What to keep.** A gradient with ones sums over all outputs. The derivative at every time is a
# Jacobian with many rows and few columns: carry it forward in time, with the path, instead of
# asking backwards once for each row.
