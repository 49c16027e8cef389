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
# # 5. Dedup, per-sample and custom gradients
#
# A drift may look up a table, run a network over the batch, or solve an equation with SciPy. The
# derivative of such a step has to be arranged by hand, and four ways to do so are copied from answer
# to answer. Two of them are shape errors. Two return wrong numbers, one as it stands and one as
# soon as its error is mended. Here each runs as people write it and is then put right. At the end
# you will know how to evaluate a costly function once for each distinct value, how to get a
# gradient for each sample without paying for $N^2$ of them, and how to give code that autograd
# cannot trace a derivative that can be differentiated again, inside an SDE.

# %%
# %matplotlib inline
import functools
import math
import os
import textwrap
import time
import timeit

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.optimize import brentq
from torch import nn

import sdesens
from sdesens import plots
from sdesens.autodiff import (
    check_gradient,
    custom_gradient,
    isolate_samples,
    per_sample_grad,
    per_sample_jacobian,
    per_sample_param_grad,
    positive_sqrt,
    truncated_mixture_log_normalizer,
    truncated_mixture_weights,
    unique_map,
)

QUICK = bool(os.environ.get("SDESENS_QUICK"))
mpl.style.use("sdesens.plots.paper")
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


def numbers(tensor, digits=4):
    return "  ".join(f"{x:10.{digits}f}" for x in tensor.detach().reshape(-1).tolist())


def refused(call, *args, **options):
    """Print the error that the call raises."""
    try:
        call(*args, **options)
    except Exception as error:
        print(textwrap.fill(f"{type(error).__name__}: {error}", 96))
    else:
        raise AssertionError("no error")


def seconds(function, repeats=3):
    return min(timeit.repeat(function, number=1, repeat=repeats))


# %% [markdown]
# ## The same value many times
#
# `x` has repeated entries and `fn` is costly. Evaluating it on `torch.unique(x)` and gathering is
# right for the values. But `torch.unique` has no derivative; it was declared to have none when it
# was written ([PyTorch 5503](https://github.com/pytorch/pytorch/pull/5503)).

# %%
x = torch.tensor([2.0, 1.0, 2.0], requires_grad=True)
w = torch.tensor([1.0, 10.0, 100.0])  # of the loss, the sum of w x^2

values, inverse = torch.unique(x, return_inverse=True)
refused(torch.autograd.grad, (w * (values**2)[inverse]).sum(), x)

# %% [markdown]
# So one writes a backward pass. The first snippet in circulation counts the gradients into their
# groups with `torch.bincount`.


# %%
class Counted(torch.autograd.Function):
    """x^2 on the distinct values, with a backward pass by bincount."""

    @staticmethod
    def forward(ctx, x):
        values, inverse = torch.unique(x, return_inverse=True)
        ctx.save_for_backward(values, inverse)
        return (values**2)[inverse]

    @staticmethod
    def backward(ctx, grad):
        values, inverse = ctx.saved_tensors
        return (2 * values * torch.bincount(grad))[inverse]


refused(torch.autograd.grad, (w * Counted.apply(x)).sum(), x)

# %% [markdown]
# `bincount` counts integers; floating numbers go in as `weights=`. Mended so, it runs. Another
# form gathers a representative: `first` holds where in `x` each distinct value stands.


# %%
class Mended(Counted):
    @staticmethod
    def backward(ctx, grad):
        values, inverse = ctx.saved_tensors
        return (2 * values * torch.bincount(inverse, weights=grad))[inverse]


evaluated = []


def square(u):
    evaluated.append(len(u))
    return u**2


first = torch.tensor([1, 0])
by = {
    "bincount, mended": Mended.apply(x),
    "a representative": (x[first] ** 2)[inverse],
    "unique_map": unique_map(square, x),
    "plain": x**2,
}
for name, y in by.items():
    by[name] = torch.autograd.grad((w * y).sum(), x, create_graph=True)[0]
    print(f"{name:18}{numbers(by[name], 1)}")
assert by["bincount, mended"].tolist() == [404.0, 20.0, 404.0]
assert by["a representative"].tolist() == [404.0, 20.0, 0.0]
assert torch.equal(by["unique_map"], by["plain"])

(twice,) = torch.autograd.grad(by["unique_map"].sum(), x)
print(f"second derivative {numbers(twice, 1)}     evaluated on {evaluated} values")
assert torch.equal(twice, 2 * w)
assert evaluated == [2]

# %% [markdown]
# Two entries that are equal are still two variables. With $y_i = f(x_i)$ and the gradient $g_i$ at
# $y_i$,
#
# $$\frac{\partial L}{\partial x_i} = g_i\,f'(x_i), \qquad \text{and not} \qquad f'(x_i) \sum_{j:\,x_j = x_i} g_j.$$
#
# The sum is the derivative in the distinct value, all its copies moving together: 404. It answers
# another question, and the representative puts that answer on one of them. What may be shared is
# $f'$, once for each distinct value, and this is what `unique_map` does, for every order of
# derivative. With `dim=0` it does so for rows.
#
# What it saves, for the distribution function of a noncentral chi-square, the law of a CIR step,
# as a series of 32 terms (some microseconds an element); forward and backward:


# %%
def costly(u):
    total = torch.zeros_like(u)
    for j in range(32):
        shape = torch.full_like(u, 0.6 + j)
        total = total + 2.5**j / math.factorial(j) * torch.special.gammainc(shape, 2 * u)
    return math.exp(-2.5) * total


def weighted_gradient(fn, points):
    return torch.autograd.grad(fn(points), points, weights)[0]


n = 4_000 if QUICK else 100_000
generator = torch.Generator().manual_seed(0)
weights = torch.rand(n, generator=generator)
shares = (1e-3, 1e-2, 1e-1, 0.3, 1.0)
taken = {"plain": [], "unique_map": []}
for share in shares:
    pool = torch.rand(int(share * n), generator=generator)
    points = pool[torch.randperm(n, generator=generator) % len(pool)].requires_grad_()
    ways = {"plain": costly, "unique_map": functools.partial(unique_map, costly)}
    for name, fn in ways.items():
        taken[name].append(seconds(functools.partial(weighted_gradient, fn, points)))
    assert torch.allclose(*(weighted_gradient(fn, points) for fn in ways.values()), rtol=1e-12)

ax = plots.convergence(
    shares, taken, fit=False, xlabel=f"distinct share of {n:,} elements", ylabel="time (s)"
)
ax.figure

# %% [markdown]
# The time follows the number of distinct values, down to the cost of a sort, and where nothing
# repeats little is lost.
#
# ## A gradient for each sample
#
# A network maps $N$ rows to $N$ numbers, and the gradient of each number in its own row is wanted.
# The next two snippets ask for it with an identity matrix.

# %%
torch.manual_seed(0)
N, F = 5, 16
net = nn.Sequential(nn.Linear(F, 64), nn.Tanh(), nn.Linear(64, 1))
rows = torch.randn(N, F, requires_grad=True)

y, pull = torch.func.vjp(net, rows)
refused(pull, torch.eye(N))
refused(torch.autograd.grad, net(rows), rows, torch.eye(N))

# %% [markdown]
# A cotangent has the shape of the output, $(N, 1)$. The identity is $N$ cotangents at once, each to
# be pulled back on its own, and neither call was told so. (PyTorch checks the shape since
# [17893](https://github.com/pytorch/pytorch/issues/17893); before that there was a number.) By hand:
# a batch of $N$ cotangents of the right shape, under `is_grads_batched=True`.

# %%
cotangents = torch.eye(N)[:, :, None]  # (N, N, 1)
(full,) = torch.autograd.grad(net(rows), rows, cotangents, is_grads_batched=True)
own = full[range(N), range(N)]
print("the full Jacobian", tuple(full.shape), "of which the diagonal is kept", tuple(own.shape))
assert torch.count_nonzero(full) == torch.count_nonzero(own)

# %% [markdown]
# It is right, and of $N$ blocks in a row all but one are zero, as no sample sees another. But then
# a cotangent of ones asks for all of them in one pass: row $i$ of the gradient of $\sum_j y_j$ has
# one term. That is `per_sample_grad`; it calls `fn` once. What $N^2$ costs:


# %%
def by_identity(net, rows):
    eye = torch.eye(len(rows))[:, :, None]
    (full,) = torch.autograd.grad(net(rows), rows, eye, is_grads_batched=True)
    return full[range(len(rows)), range(len(rows))]


print("   N       full Jacobian    per-sample     time, full / per-sample")
for N in (64, 256) if QUICK else (64, 256, 512):
    rows = torch.randn(N, F, requires_grad=True)
    ways = [functools.partial(fn, net, rows) for fn in (by_identity, per_sample_grad)]
    ratio = seconds(ways[0]) / seconds(ways[1])
    print(f"{N:4} {8 * N * N * F / 1e6:12.2f} MB {8 * N * F / 1e6:10.3f} MB {ratio:16.0f}")
    assert torch.allclose(ways[0](), ways[1](), rtol=1e-10)
print(f"{4096:4} {8 * 4096**2 * F / 1e6:12.2f} MB {8 * 4096 * F / 1e6:10.3f} MB")

# %% [markdown]
# Several outputs a sample take one pass each (`per_sample_jacobian`), never one for each output of
# the batch. Gradients in the *parameters*, one set for each sample, are another matter: parameters
# are shared, and the gradient of a sum is the sum over samples. `per_sample_param_grad` maps
# `torch.func.grad` over them. A mean in place of one number a sample would scale every gradient by
# $1/N$ and look right; it is refused.

# %%
small = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
J = per_sample_jacobian(lambda x: torch.stack([x.prod(1), x.sum(1)], dim=1), small)
assert J.tolist() == [[[2.0, 1.0], [1.0, 1.0]], [[4.0, 3.0], [1.0, 1.0]]]

params = {name: p.detach() for name, p in net.named_parameters()}


def losses(params, rows):
    return torch.func.functional_call(net, params, (rows,)).square()


rows = rows.detach()
each = per_sample_param_grad(losses, params, rows)
together = torch.autograd.grad(net(rows).square().sum(), list(net.parameters()))
for (name, gradient), total in zip(each.items(), together, strict=True):
    assert torch.allclose(gradient.sum(0), total, rtol=1e-9, atol=1e-12), name
refused(per_sample_grad, lambda rows: net(rows).square().mean(), rows)

# %% [markdown]
# ## Samples that see each other
#
# The argument with the ones needs samples that are apart. Batch normalisation in training mode
# couples them: $y_i = (x_i - \bar x)/s$ with mean and deviation of the batch. The outputs have mean
# zero whatever $x$ is, so the gradient of their sum is zero, in every row, without an error.

# %%
norm = nn.BatchNorm1d(1, affine=False)
batch = torch.tensor([[0.0], [1.0], [5.0]], requires_grad=True)

(of_sum,) = torch.autograd.grad(norm(batch).sum(), batch)
eye = torch.eye(3)[:, :, None]
(J,) = torch.autograd.grad(norm(batch), batch, eye, is_grads_batched=True)
print(f"gradient of the sum   {numbers(of_sum)}")
print("true Jacobian", *(f"{'':22}{numbers(row)}" for row in J), sep="\n")
assert of_sum.abs().max() < 1e-15

s = (batch.var(correction=0) + norm.eps).sqrt()
xh = (batch - batch.mean()) / s
assert torch.allclose(J[..., 0], (torch.eye(3) - 1 / 3 - xh @ xh.T / 3) / s, rtol=1e-12)

# %% [markdown]
# The last assertion holds the Jacobian to its formula, $J_{ij} = (\delta_{ij} - \frac13 - \frac13
# \hat x_i \hat x_j)/s$. What is "the gradient of sample $i$" here? There are two answers, and
# `coupling=` is where to give one: `"exact"`, the diagonal, samples held except the one; or
# `"frozen"`, the statistics held as well. The default is `"none"`, which is the sum of the rows
# and believes you; `check=True` looks, for two more passes.

# %%
refused(per_sample_grad, norm, batch, check=True)
exact = per_sample_grad(norm, batch, coupling="exact")
frozen = per_sample_grad(norm, batch, coupling="frozen")
print(f"exact                 {numbers(exact)}")
print(f"frozen                {numbers(frozen)}")
assert torch.allclose(exact[:, 0], J[..., 0].diagonal(), rtol=1e-12)
assert torch.allclose(frozen, 1 / s.expand(3, 1), rtol=1e-12)

# %% [markdown]
# Where this matters: the gradient penalty of Wasserstein critics is $(\|\partial f_i/\partial
# x_i\| - 1)^2$, a norm for each input alone, and Gulrajani et al. (*NeurIPS* 2017) give up batch
# normalisation in the critic for that reason. The penalty is trained, so the gradient needs one of
# its own. `isolate_samples(fn)` is `fn` with the same values, in whose derivatives no sample sees
# another; the rest of the code stays as it was.

# %%
torch.manual_seed(1)
critic = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 1))
points = torch.randn(6, 2, requires_grad=True)
weight = critic[0].weight


def penalty(fn):
    (gradient,) = torch.autograd.grad(fn(points).sum(), points, create_graph=True)
    return (gradient.norm(dim=1) - 1).square().mean()


def by_definition():
    return (by_identity(critic, points).norm(dim=1) - 1).square().mean()


shifted = []
for h in (1e-5, -2e-5):
    weight.data[0, 0] += h
    shifted.append(by_definition().item())
weight.data[0, 0] += 1e-5
difference = (shifted[0] - shifted[1]) / 2e-5
print("                       penalty    derivative in a weight")
for name, fn in (("gradient of the sum", critic), ("isolate_samples", isolate_samples(critic))):
    value = penalty(fn)
    (slope,) = torch.autograd.grad(value, weight)
    print(f"{name:20} {value.item():9.4f} {round(slope[0, 0].item(), 6) + 0.0:18.6f}")
print(f"{'by definition':20} {by_definition():9.4f} {difference:18.6f}")
assert torch.allclose(value, by_definition(), rtol=1e-12)
assert abs(slope[0, 0].item() - difference) < 1e-7
assert abs(penalty(critic).item() - 1) < 1e-9

# %% [markdown]
# The sum is constant once more (a linear map of normalised features), its gradient zero, the
# penalty 1 and its derivative 0: it would train nothing.
#
# ## Weights with a common denominator
#
# A Gaussian mixture that is cut to an interval $[l, u]$ gets new weights,
#
# $$w_k = \frac{p_k}{Z}, \qquad Z = \sum_j p_j m_j, \qquad m_j = \Phi(b_j) - \Phi(a_j), \quad a_j = \frac{l - \mu_j}{s_j},\; b_j = \frac{u - \mu_j}{s_j}.$$
#
# The fourth snippet is its backward pass.


# %%
def phi(x):
    return torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


class Alone(torch.autograd.Function):
    """p / Z on [0, 1], each weight differentiated by its own component."""

    @staticmethod
    def forward(ctx, mean, std, p):
        a, b = (0 - mean) / std, (1 - mean) / std
        mass = torch.special.ndtr(b) - torch.special.ndtr(a)
        Z = (p * mass).sum()
        ctx.save_for_backward(std, p, a, b, mass, Z)
        return p / Z

    @staticmethod
    def backward(ctx, grad):
        std, p, a, b, mass, Z = ctx.saved_tensors
        d_mean, d_std = (phi(a) - phi(b)) / std, (a * phi(a) - b * phi(b)) / std
        common = -grad * p / Z**2
        return common * p * d_mean / std, common * p * d_std / std, grad / Z + common * mass


mean = torch.tensor([-1.0, 2.0], requires_grad=True)
std = torch.tensor([0.5, 1.0], requires_grad=True)
p = torch.tensor([0.3, 0.7], requires_grad=True)
upstream = torch.tensor([1.0, -2.0])

as_written = torch.autograd.grad(Alone.apply(mean, std, p), (mean, std, p), upstream)
ours = truncated_mixture_weights(mean, std, p, 0.0, 1.0)
right = torch.autograd.grad(ours, (mean, std, p), upstream)
print(f"{'':10}{'as written':>22}{'truncated_mixture_weights':>30}")
for name, wrong, good in zip(("d/dmean", "d/dstd", "d/dp"), as_written, right, strict=True):
    print(f"{name:10}{numbers(wrong)}        {numbers(good)}")
assert torch.allclose(Alone.apply(mean, std, p), ours, rtol=1e-12)
assert as_written[0][0] < 0 < right[0][0]

# %% [markdown]
# The values are right, and the first derivative has the wrong sign. All components share $Z$, so
# every weight depends on every mean:
#
# $$\frac{\partial L}{\partial \mu_j} = -\frac{1}{Z^2} \Big(\sum_k g_k\,p_k\Big)\,p_j\,\frac{\varphi(a_j) - \varphi(b_j)}{s_j}.$$
#
# The snippet has $g_j p_j$ where the sum belongs, and divides by $s_j$ a second time. With both
# changed it is right, for first derivatives:

# %%
low, high = (0 - mean) / std, (1 - mean) / std
Z = (p * (torch.special.ndtr(high) - torch.special.ndtr(low))).sum()
by_hand = -(upstream * p).sum() / Z**2 * p * (phi(low) - phi(high)) / std
assert torch.allclose(by_hand, right[0], rtol=1e-12)

# %% [markdown]
# Nobody need write that sum: composed of torch operations the weights have every derivative. What
# is hard is the tail. On $[c, c + 1]$ the standard normal's $\Phi(b) - \Phi(a)$ loses its digits as
# both tend to 1, and beyond $c = 8.3$ it is zero. `truncated_mixture_log_normalizer` holds there,
# and the weights do as long as $1/Z$ is a number. The derivative of $\log Z$ in the mean is the mean
# of the cut normal, which quadrature gives independently; on $[10, 11]$:

# %%
zero, one = torch.zeros(1, requires_grad=True), torch.ones(1)
nodes, gauss = np.polynomial.legendre.leggauss(60)
u = torch.from_numpy((nodes + 1) / 2)


def cut_mean(c):
    """E[x | c < x < c + 1] of N(0, 1)."""
    density = torch.from_numpy(gauss) * torch.exp(-c * u - u**2 / 2)
    return c + ((u * density).sum() / density.sum()).item()


def log_mass(c):
    return (torch.special.ndtr(c + 1 - zero) - torch.special.ndtr(c - zero)).log().sum()


def log_normalizer(c):
    return truncated_mixture_log_normalizer(zero, one, one, c, c + 1)


print("             log Z           d/dmean")
for name, fn in (("naive", log_mass), ("sdesens", log_normalizer)):
    log_Z = fn(10.0)
    (d_mean,) = torch.autograd.grad(log_Z, zero)
    print(f"{name:12} {log_Z.item():<15.9f} {d_mean.item():.9f}")
print(f"{'quadrature':28} {cut_mean(10.0):.9f}\n")
assert abs(log_Z.item() + 53.231310226) < 1e-9

refused(truncated_mixture_weights, zero, one, one, 40.0, 41.0)


# %%
fixed = [t.detach() for t in (std, p)]
cut = functools.partial(truncated_mixture_weights, lower=0.0, upper=1.0)


def loss(fn, m):
    return (upstream * fn(torch.stack([m, mean[1].detach()]), *fixed)).sum()


def slopes(fn, points):
    points = points.clone().requires_grad_()
    return torch.autograd.grad(sum(loss(fn, m) for m in points), points)[0]


def tail_error(fn, ends):
    found = [torch.autograd.grad(fn(c), zero)[0].item() / cut_mean(c) - 1 for c in ends.tolist()]
    return torch.tensor(found).abs().clamp(min=torch.finfo(torch.float64).eps / 2)


means, h = torch.linspace(-2, 3, 201), 1e-5
some, ends = means[5::20], torch.linspace(0, 40, 81 if QUICK else 401)
bumped = torch.stack([(loss(cut, m + h) - loss(cut, m - h)) / (2 * h) for m in some])
by_mass, by_library = tail_error(log_mass, ends), tail_error(log_normalizer, ends)
assert torch.allclose(bumped, slopes(cut, some), rtol=1e-6, atol=1e-6)
assert by_library.max() < 1e-12
assert by_mass[ends > 8.3].isnan().all()

figure = Figure(figsize=(7.2, 3.0))
left, right_ax = figure.subplots(1, 2)
left.plot(means, slopes(cut, means), label="truncated_mixture_weights")
left.plot(means, slopes(Alone.apply, means), label="each weight on its own")
left.plot(some, bumped, "o", color="black", mfc="none", label="central difference")
left.set(xlabel=r"$\mu_1$", ylabel=r"$\partial L / \partial \mu_1$", title="(a) mixture on [0, 1]")
left.set_ylim(-9, 11)
left.legend(loc="upper right")
right_ax.semilogy(ends, by_library, label="truncated_mixture_log_normalizer")
right_ax.semilogy(ends, by_mass, label=r"$\log(\Phi(b) - \Phi(a))$")
right_ax.text(9, 0.1, "NaN from $c = 8.3$", va="center")
right_ax.set(xlabel="$c$", ylabel="relative error", title="(b) N(0, 1) on $[c, c + 1]$")
right_ax.set_ylim(1e-17, 10)
right_ax.legend(loc="center right")
figure

# %% [markdown]
# ## Code that autograd cannot trace
#
# The root $x(a)$ of $x^3 + x = a$, by SciPy's `brentq`. Differentiating the equation gives $x' =
# 1/(3x^2 + 1)$, so a backward pass is one line. A common way to write it keeps the root on `ctx`:


# %%
def find_root(a):
    equations = (lambda x, a=a: x**3 + x - a for a in a.flatten().tolist())
    roots = [brentq(equation, -100, 100, xtol=1e-14) for equation in equations]
    return torch.tensor(roots).reshape(a.shape)


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.x = find_root(a.detach())
        return ctx.x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad / (3 * ctx.x**2 + 1)


root = custom_gradient(find_root, vjp=lambda a, x, grad: grad / (3 * x**2 + 1))


def two_derivatives(fn, a):
    """Of fn(a)^2."""
    a = a.clone().requires_grad_()
    (first,) = torch.autograd.grad((fn(a) ** 2).sum(), a, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), a)
    return first.detach(), second


a = torch.tensor(2.0)
for name, fn, known in (("kept on ctx", Kept.apply, 0.125), ("custom_gradient", root, -0.0625)):
    first, second = two_derivatives(fn, a)
    print(f"{name:17} first {first.item():.4f}   second {second.item():+.4f}")
    assert abs(first.item() - 0.5) < 1e-12
    assert abs(second.item() - known) < 1e-12

# %% [markdown]
# The second derivative of $x^2$ is $2 x'^2 + 2 x x''$. For autograd `ctx.x` is a number without a
# history, so $x'$ has no derivative and the second term is lost, without an error (PyTorch's
# tutorial [Double Backward with Custom
# Functions](https://docs.pytorch.org/tutorials/intermediate/custom_function_double_backward_tutorial.html)
# warns of it). `custom_gradient` hands a rule the inputs *and the outputs* as tensors with their
# history: `vjp(*inputs, *outputs, *grad_outputs)`. The rule above then differentiates as it should.

# %%
grid = torch.linspace(-4, 4, 161)
dots, h = grid[8::16], 1e-3
x_up, x_at, x_down = (find_root(dots + k * h) ** 2 for k in (1, 0, -1))
differences = ((x_up - x_down) / (2 * h), (x_up - 2 * x_at + x_down) / h**2)
assert torch.allclose(two_derivatives(root, dots)[1], differences[1], rtol=0, atol=1e-4)

figure = Figure(figsize=(7.2, 2.9))
panels = figure.subplots(1, 2)
titles = ("(a) first derivative of $x(a)^2$", "(b) second derivative")
for k, ax in enumerate(panels):
    ax.plot(grid, two_derivatives(root, grid)[k], label="custom_gradient")
    ax.plot(grid, two_derivatives(Kept.apply, grid)[k], label="kept on ctx")
    ax.plot(dots, differences[k], "o", color="black", mfc="none", label="central difference")
    ax.set(xlabel="$a$", title=titles[k])
panels[1].legend()
figure

# %% [markdown]
# From the one rule comes the other mode, since a derivative is linear in its last argument; and
# `vmap`, by a loop over `forward`.

# %%
a = torch.tensor([2.0, -1.0, 10.0])
exact = 1 / (3 * find_root(a) ** 2 + 1)
_, by_jvp = torch.func.jvp(root, (a,), (torch.ones(3),))
by_vmap = torch.func.vmap(torch.func.grad(root))(a)
leaf = a.clone().requires_grad_()
(batched,) = torch.autograd.grad(root(leaf), leaf, torch.eye(3), is_grads_batched=True)
hessians = torch.func.vmap(torch.func.hessian(root))(torch.tensor([2.0]))
for found in (by_jvp, by_vmap, batched.diagonal()):
    assert torch.allclose(found, exact, rtol=1e-12)
print(f"x'(a)  {numbers(exact)}\nx''(2) {numbers(hessians, 5)}")
assert abs(hessians.item() + 0.09375) < 1e-12

refused(torch.func.vmap(Kept.apply), a)

# %% [markdown]
# A rule may leave torch as well. Then it has numbers and no history: first derivatives work
# (looped, under `is_grads_batched`), and what would be wrong is refused.

# %%
in_numpy = custom_gradient(
    find_root, vjp=lambda a, x, grad: grad.numpy() / (3 * x.numpy() ** 2 + 1)
)
(batched,) = torch.autograd.grad(in_numpy(leaf), leaf, torch.eye(3), is_grads_batched=True)
assert torch.allclose(batched.diagonal(), exact, rtol=1e-12)
refused(two_derivatives, in_numpy, a)

# %% [markdown]
# Is a rule right? `check_gradient` holds it against central differences: in reverse mode, batched,
# in forward mode, and the second derivative. Differences are taken in float64, whatever comes in;
# in float32 they are rounding, and right rules fail with the wrong ones.

# %%
for name, op in (("in torch", root), ("in NumPy", in_numpy)):
    report = check_gradient(op, a)
    print(f"{name}: passed {', '.join(report.passed)}; refused {', '.join(report.refused) or '-'}")
assert check_gradient(root, a).passed == ("reverse", "batched", "forward", "second")
slip = custom_gradient(find_root, vjp=lambda a, x, grad: grad / (3 * x**2 - 1))
refused(check_gradient, slip, torch.tensor([2.0]))

up, down = (torch.tensor(4.0 + h).float().sqrt().item() for h in (1e-6, -1e-6))
print(f"\nsqrt'(4) = 0.25, by a difference in float32 {(up - down) / 2e-6:.4f}")

# %% [markdown]
# One operator of this kind needs no rule, only care. Behind `where` the square root of a variance
# that an Euler step has carried below zero is differentiated all the same, and 0 times inf is NaN
# ([JAX's FAQ](https://docs.jax.dev/en/latest/faq.html#gradients-contain-nan-where-using-where)
# explains it). `positive_sqrt` has the slope 0 there.

# %%
v = torch.tensor([-0.01, 0.0, 0.04], requires_grad=True)
for name, fn in (
    ("where", lambda v: torch.where(v > 0, v.sqrt(), 0.0)),
    ("clamp", lambda v: v.clamp(min=0).sqrt()),
    ("positive_sqrt", positive_sqrt),
):
    (gradient,) = torch.autograd.grad(fn(v).sum(), v)
    print(f"{name:14}{numbers(gradient, 1)}")
assert gradient.tolist() == [0.0, 0.0, 2.5]

# %% [markdown]
# ## Inside an SDE
#
# Langevin's equation for the potential $U = x^4/4$ is $dX = -X^3\,dt + \sqrt2\,dW$, and Euler's
# method explodes if it starts far out. A cure is to replace $U$ by its Moreau envelope, whose
# gradient has slope at most 1: $x - \mathrm{prox}(x)$, with $p = \mathrm{prox}(x)$ the solution of
# $p + p^3 = x$ (Durmus, Moulines and Pereyra, *SIAM Journal on Imaging Sciences* 11, 2018). That is
# the root above, here with `brentq` inside the drift.


# %%
class Langevin:
    sde_type, noise_type = "ito", "diagonal"

    def __init__(self, prox=None):
        self.prox = prox

    def f(self, t, x):
        return -(x**3) if self.prox is None else self.prox(x) - x

    def g(self, t, x):
        return math.sqrt(2) * torch.ones_like(x)


dt, ts = 0.1, torch.linspace(0, 2, 21)
start = torch.tensor([[10.0], [0.3]])
settings = {"method": "euler", "dt": dt, "seed": 0}
refused(sdesens.sensitivities, Langevin(), start, ts, **settings)
found = sdesens.compare_modes(Langevin(root), start, ts, **settings)
print(f"\n{found}")
assert found.agree

# %% [markdown]
# The modes need different things of the operator: `vjp` pulls back under `vmap`, `jvp` and
# `tangent` push forward. One rule has served all three. A second derivative of the path, when $x_0$
# requires grad, needs the rule's own derivative. It follows the recursion $H_{k+1} = H_k + (x''(X)
# J^2 + (x'(X) - 1) H_k)\,\Delta t$:

# %%
moving = start.clone().requires_grad_()
sens = sdesens.sensitivities(Langevin(root), moving, ts, **settings)
(second,) = torch.autograd.grad(sens.dx0[-1].sum(), moving)

J, H = torch.ones(2, 1), torch.zeros(2, 1)
for x in sens.x[:-1].detach():
    r = find_root(x)
    d1, d2 = 1 / (3 * r**2 + 1), -6 * r / (3 * r**2 + 1) ** 3
    J, H = J + (d1 - 1) * J * dt, H + (d2 * J**2 + (d1 - 1) * H) * dt
print(f"dX/dx0    {numbers(sens.dx0[-1])}\nd2X/dx0^2 {numbers(second, 6)}")
assert torch.allclose(sens.dx0[-1, :, :, 0], J, rtol=1e-12)
assert torch.allclose(second, H, rtol=1e-10)

# %% [markdown]
# With the rule in NumPy the forward modes are refused by name and `vjp` still runs. With
# `find_root` bare in the drift nothing is refused, as part of the derivative is there, and it is
# wrong. `compare_modes` finds that.

# %%
for name, prox in (("rule in NumPy", in_numpy), ("bare", lambda x: find_root(x.detach()))):
    found = sdesens.compare_modes(Langevin(prox), start, ts, **settings)
    print(f"{name}: modes that ran {', '.join(found.results)}; agree: {found.agree}")
    for mode, reason in found.refused.items():
        print(textwrap.fill(f"{mode}: {reason}", 96))
assert not found.agree

# %% [markdown]
# **Many samples, few values.** Twenty contracts, many paths of each. A path of contract $a$ reverts
# to a level that solves an equation, and the level moves with the season: $x^3 + x = a + \sin 2\pi
# t$. The contract is a second component of the state that does not move, so that $dX_t/da$ is an
# entry of `dx0`. At each step thousands of roots are wanted, and twenty are different.


# %%
class Reverting:
    sde_type, noise_type = "ito", "diagonal"

    def __init__(self, level):
        self.level = level

    def f(self, t, y):
        x, a = y.unbind(1)
        pull = 2 * (self.level(a + torch.sin(2 * math.pi * t)) - x)
        return torch.stack([pull, torch.zeros_like(a)], dim=1)

    def g(self, t, y):
        return torch.tensor([0.3, 0.0]).expand(y.shape)


solved = []  # roots, by call


def counted(a):
    solved.append(a.numel())
    return find_root(a)


level = custom_gradient(counted, vjp=lambda a, x, grad: grad / (3 * x**2 + 1))
B = 200 if QUICK else 4000
contracts = torch.linspace(-1, 2, 20).repeat(B // 20)
start = torch.stack([torch.zeros(B), contracts], dim=1)
settings["dt"], ts = 0.05, torch.linspace(0, 1, 21)
by = {}
print("                roots solved    time (s)")
for name, fn in (("plain", level), ("unique_map", lambda a: unique_map(level, a))):
    solved.clear()
    begin = time.perf_counter()
    by[name] = sdesens.sensitivities(Reverting(fn), start, ts, **settings)
    print(f"{name:12}{sum(solved):16}{time.perf_counter() - begin:12.2f}")
assert torch.allclose(by["plain"].dx0, by["unique_map"].dx0, rtol=0, atol=1e-13)
assert sum(solved) < 50 * 20

found = sdesens.compare_modes(Reverting(lambda a: unique_map(level, a)), start[:40], ts, **settings)
print("modes agree:", found.agree, f"(largest difference {found.worst.difference:.0e})")
assert found.agree

D = torch.zeros(B)
for t in ts[:-1]:
    r = find_root(contracts[:20] + torch.sin(2 * math.pi * t)).repeat(B // 20)
    D = D + 2 * (1 / (3 * r**2 + 1) - D) * 0.05
assert torch.allclose(by["unique_map"].dx0[-1, :, 0, 1], D, rtol=1e-11)

# %% [markdown]
# Each path has its own derivative, as it should, and a recursion by hand gives the same.
# `LocalVolatility` of `sdesens.models` reads its surface in this way, from a SciPy spline, at the
# distinct points.
#
# **What to keep.** Equal entries share $f'$, not gradients. Cotangents of ones give a gradient for
# each sample if, and only if, samples are apart; if they are not, say what is held. A common
# denominator couples all parameters. A rule is written in torch, on the inputs and outputs that it
# is given, and checked to second order before it is used.
