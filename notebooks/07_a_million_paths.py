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
# # 7. A million paths
#
# A million paths of Heston's model, with the price and its nine first derivatives, take seconds on
# one core and no more memory than a thousand. At the end of this notebook you know how: what is
# compiled and what is not, how far the error falls and where it stops, why the same bits come from
# one thread or a cluster, and what is left of a run that was killed.
#
# It needs Dask beside sdesens: `pip install 'sdesens[dask]'`.

# %%
# %matplotlib inline
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import timeit
import warnings
from pathlib import Path

import matplotlib as mpl
import psutil
import torch
import torchsde
from distributed import Client, LocalCluster
from matplotlib.figure import Figure

import sdesens
from sdesens import montecarlo, plots
from sdesens.models import Heston
from sdesens.montecarlo import Estimate
from sdesens.pricing import Call, closed_form_greeks

QUICK = bool(os.environ.get("SDESENS_QUICK"))
mpl.style.use("sdesens.plots.paper")
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)

kept_in = tempfile.TemporaryDirectory()
folder = Path(kept_in.name)  # for all that is kept on disk; removed at the end


def shown(kind, message):
    """A message in lines, without the places of this machine."""
    text = str(message).replace(str(folder), "FOLDER")
    print(textwrap.fill(f"{kind.__name__}: {text}", 96))


# %% [markdown]
# ## One pass
#
# Heston's model, with $2\kappa\theta > \xi^2$, so that the variance stays off zero and derivatives
# by Euler steps have a variance too (notebook 3 is about the other case):
#
# $$dS = rS\,dt + \sqrt v\,S\,dW_1, \qquad dv = \kappa(\theta - v)\,dt + \xi\sqrt v\,dW_2, \qquad d\langle W_1, W_2\rangle = \rho\,dt.$$
#
# In PyTorch each operation of a step is a call, which reads its inputs from memory and writes its
# output there. The fused engine takes a step and its tangents apart into scalar operations, a few
# dozen here, and compiles them into one function. A block of paths draws its normal numbers into
# the cache and then keeps state and tangents in registers from step to step. The numbers are those
# of the tangent mode, up to rounding, as it does the same operations on the same noise.

# %%
heston = Heston(rate=0.03, kappa=2.0, theta=0.04, xi=0.25, rho=-0.7)
today = [100.0, 0.05]
steps, dt = 50, 1 / 50
ts = torch.linspace(0, 1, steps + 1)
x0 = torch.tensor([today])

begin = time.perf_counter()
solve = sdesens.fuse(heston, x0, ts, method="euler", dt=dt)
print(f"fuse, once: {time.perf_counter() - begin:.1f} s")


def seconds(run, repeats=3):
    """The best time of several."""
    return min(timeit.repeat(run, number=1, repeat=repeats))


def tangent(engine="torchsde"):
    return sdesens.sensitivities(heston, x0, ts, method="euler", dt=dt, seed=5, engine=engine)


ways = {
    "tangent mode": tangent,
    'engine="fused"': lambda: tangent("fused"),
    "fuse": lambda: solve(x0, seed=5),
}
reference = tangent()
for name, way in ways.items():
    found = way()
    apart = max((found.x - reference.x).abs().max(), (found.dx0 - reference.dx0).abs().max())
    print(f"{name:15} {1e6 * seconds(way, 20):7.0f} µs, largest difference {apart:.1e}")
    assert apart < 1e-10 * reference.dx0.abs().max()

# %% [markdown]
# One path of 50 steps and its Jacobian at each. `sensitivities` makes its checks at every call;
# `fuse` makes them once.
#
# ## Many paths, and a second opinion
#
# `montecarlo.run` goes on to the payoff and keeps nothing of a path but what it adds to the sums.
# Beside it the way that is open without it: torchsde on a batch, and one backward pass. (Written
# as torchsde likes it, with `f_and_g_prod`, which spares the matrices of general noise.)


# %%
class Plain(torch.nn.Module):
    """Heston for torchsde; the parameters are tensors."""

    sde_type, noise_type = "ito", "general"

    def __init__(self, rate, kappa, theta, xi, rho):
        super().__init__()
        self.rate, self.kappa, self.theta, self.xi, self.rho = rate, kappa, theta, xi, rho

    def f_and_g_prod(self, t, y, dW):
        S, v = y.unbind(1)
        root = sdesens.autodiff.positive_sqrt(v)
        noise = self.rho * dW[:, 0] + (1 - self.rho**2).sqrt() * dW[:, 1]
        drift = torch.stack((self.rate * S, self.kappa * (self.theta - v)), 1)
        return drift, torch.stack((root * S * dW[:, 0], self.xi * root * noise), 1)


NAMES = ("rate", "kappa", "theta", "xi", "rho")
POINT = (*today, *(heston.get_parameter(name).item() for name in NAMES))


def by_autograd(bm, dtype):
    """The price and its seven derivatives, of the paths of ``bm``."""
    S0, v0, *parameters = point = [torch.tensor(p, dtype=dtype, requires_grad=True) for p in POINT]
    start = torch.stack((S0, v0)).expand(bm.shape[0], 2)
    times = torch.tensor([0.0, 1.0], dtype=dtype)
    end = torchsde.sdeint(Plain(*parameters), start, times, bm=bm, method="euler", dt=dt)[-1]
    price = (-parameters[0]).exp() * torch.relu(end[:, 0] - 100.0).mean()
    return torch.stack([price.detach(), *torch.autograd.grad(price, point)])


def call(end):
    return torch.exp(-heston.rate * end.time) * torch.relu(end.spot - 100.0)


INPUTS = ("spot", "variance", *NAMES)


def by_run(paths, dtype):
    return montecarlo.run(
        heston, today, call, maturity=1.0, steps=steps, paths=paths, wrt=INPUTS, dtype=dtype
    )


n = 1024 if QUICK else 4096
noise = sdesens.BrownianPath(0, 1, (n, 2), steps, seed=0)
ours, theirs = by_run(n, torch.float64), by_autograd(noise, torch.float64)
print(f"{'':15} {'montecarlo.run':>16} {'autograd':>16}")
for name, other in zip(("price", *INPUTS), theirs.tolist(), strict=True):
    found = ours["value"] if name == "price" else ours["value", name]
    print(f"{name:15} {found.value:16.10f} {other:16.10f}")
    assert abs(found.value - other) < 1e-9 * max(1, abs(other))

# %% [markdown]
# The same to the last digits shown: both ran the paths of seed 0. Now the time of a step of a path,
# in float32. Every call of `run` first records the model anew, whatever the number of paths, so
# that the time of few paths is taken off that of many. torchsde gets its own Brownian motion and as
# many paths as suit it.

# %%
many, batch = (2**18, 2**12) if QUICK else (2**22, 2**16)
by_run(2, torch.float32)  # compiles
fixed = seconds(lambda: by_run(2, torch.float32))
fused = (seconds(lambda: by_run(many, torch.float32)) - fixed) / (many * steps)


def with_own_noise():
    size = {"size": (batch, 2), "dtype": torch.float32}
    by_autograd(torchsde.BrownianInterval(0.0, 1.0, dt=dt, **size), torch.float32)


plain = seconds(with_own_noise) / (batch * steps)
print(f"recording the model, a call {fixed:6.2f} s")
print(f"sdesens, a path-step        {1e9 * fused:6.1f} ns")
print(f"torchsde and autograd       {1e9 * plain:6.1f} ns, {plain / fused:.0f} times as long")

# %% [markdown]
# More peers, each in the fastest form that was found for it, are in the
# [benchmarks](../docs/benchmarks.md).
#
# ## A million
#
# The price of a call, and its derivative in the state, in each parameter and in the maturity.
# `greeks` takes the quadratic-exponential step and the conditional expectation for Heston (notebook
# 3), under ten times the work of the price alone by Euler steps. `closed_form_greeks` differentiates Heston's formula
# (*Review of Financial Studies* 6, 1993).

# %%
option = Call(strike=100.0, maturity=1.0)
exact = closed_form_greeks(heston, option, today)
million = 20_000 if QUICK else 1_000_000


def greeks(paths, **settings):
    return sdesens.greeks(heston, option, today, **{"paths": paths, "steps": steps} | settings)


def beside(report):
    """Every number beside its exact value; the deviation is in standard errors."""
    print(f"{'':14} {'estimate':>11} {'stderr':>9} {'exact':>11} {'deviation':>10}")
    for key, known in exact.items():
        found = report.entries[key]
        deviation = (found.value - known) / found.stderr
        label = f"d/d {key[0]}" if key else "price"
        print(f"{label:14} {found.value:11.5f} {found.stderr:9.5f} {known:11.5f} {deviation:10.1f}")
        yield deviation


greeks(2)  # compiles
begin = time.perf_counter()
report = greeks(million)
print(f"{million:,} paths, {steps} steps, one thread: {time.perf_counter() - begin:.1f} s\n")
deviations = list(beside(report))
assert max(map(abs, deviations)) < 4

# %% [markdown]
# **Memory.** While a call runs, another thread looks how much memory the process holds.


# %%
def with_peak(run):
    """What ``run()`` returns, and by how many MiB the process grew at most."""
    process, done, seen = psutil.Process(), threading.Event(), [0]
    before = process.memory_info().rss

    def watch():
        while not done.wait(0.001):
            seen.append(process.memory_info().rss - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        return run(), max(seen) / 2**20
    finally:
        done.set()
        watcher.join()


two = {"workers": 2, "executor": "threads"}
_, small = with_peak(lambda: greeks(million, **two))
ten_million, large = with_peak(lambda: greeks(10 * million, **two))
rows = 2 * (1 + len(exact))  # two components, and their tangents
would_be = 10 * million * rows * 8 / 2**20
print(f"{million:>10,} paths: {small:5.1f} MiB")
print(
    f"{10 * million:>10,} paths: {large:5.1f} MiB; one step of them all, kept: {would_be:.0f} MiB"
)
assert large < 32

# %% [markdown]
# What a run holds is a block of 256 paths for each worker, and the sums.
#
# With ten times the paths the error bars are $\sqrt{10}$ times shorter:

# %%
print(f"{'':14} {'exact':>10}   stderr, and with ten times the paths")
for key, known in exact.items():
    few, more = report.entries[key], ten_million.entries[key]
    label = f"d/d {key[0]}" if key else "price"
    print(f"{label:14} {known:10.5f}   {few.stderr:.5f}   {more.stderr:.5f}")
    assert abs(few.stderr / more.stderr / 10**0.5 - 1) < 0.1

# %% [markdown]
# ## What is not free
#
# **Precision.** float32 halves the time, since a vector holds twice as many numbers, and has seven
# digits. Sums over paths are float64 in any case. To see the rounding alone, put the same float32
# noise through both.


# %%
class InFloat64(sdesens.BrownianPath):
    """The increments of a float32 path, in float64."""

    def __call__(self, *times, **what):
        return super().__call__(*times, **what).double()


float32 = {"shape": (n, 2), "steps": steps, "seed": 0, "dtype": torch.float32}
single = by_autograd(sdesens.BrownianPath(0, 1, **float32), torch.float32).double()
double = by_autograd(InFloat64(0, 1, **float32), torch.float64)
print(f"{n} paths {'rounding':>12} {'stderr':>12} {'of a million':>14}")
for name, a, b in zip(("price", *INPUTS), single.tolist(), double.tolist(), strict=True):
    stderr = (ours["value"] if name == "price" else ours["value", name]).stderr
    at_a_million = stderr * (n / 1e6) ** 0.5
    print(f"{name:10} {abs(a - b):12.1e} {stderr:12.1e} {at_a_million:14.1e}")
    assert abs(a - b) < 0.1 * at_a_million

fixed = seconds(lambda: by_run(2, torch.float64))
slower = (seconds(lambda: by_run(many, torch.float64)) - fixed) / (many * steps)
print(f"\na path-step: float64 {1e9 * slower:.1f} ns, float32 {1e9 * fused:.1f} ns")

# %% [markdown]
# So the rounding of float32 is far below the noise here, even of a million paths. float32 is the
# default of `montecarlo.run`, float64 that of `greeks`.
#
# **Compiling** a kernel takes some seconds, once: torch keeps it on disk, and strikes, parameters,
# steps and seeds are its arguments.
#
# **What cannot be recorded.** A step or a payoff that looks at a value in Python, or calls another
# library, is not a list of scalar operations. It runs in torch, operation by operation, to the same
# numbers, and says so:


# %%
def looks(end):
    """The same call, but it asks whether a path is in the money."""
    gain = end.spot - 100.0
    if bool((gain > 0).any()):
        return torch.exp(-heston.rate * end.time) * torch.relu(gain)
    return 0.0 * gain


terms = {"maturity": 1.0, "steps": steps, "paths": n, "wrt": INPUTS, "dtype": torch.float64}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    begin = time.perf_counter()
    uncompiled = montecarlo.run(heston, today, looks, **terms)
    slow = time.perf_counter() - begin
(warning,) = caught
shown(warning.category, warning.message)
assert warning.category is sdesens.UncompiledWarning
apart = max(
    abs(uncompiled["value", name].value - ours["value", name].value) / ours["value", name].stderr
    for name in INPUTS
)
print(f"\n{n} paths: {slow:.2f} s, compiled {seconds(lambda: by_run(n, torch.float64)):.2f} s")
print(f"apart by {apart:.0e} standard errors")
assert apart < 1e-8

# %% [markdown]
# `fuse` refuses what it cannot compile, and says why. What the rules are is told in [how the fused
# engine works](../docs/fused.md).
#
# ## Shards
#
# Paths are cut into *shards*. The noise of path $p$ is a function of the seed and of $p$, step and
# channel (Philox4x32-10; Salmon and others, *Parallel random numbers: as easy as 1, 2, 3*, SC11,
# 2011). So a shard is a pure function of the job and of its index: it needs no state of a generator
# from the shard before. It returns a count, means and sums of products of deviations, and these are
# merged in the order of the index (Chan, Golub and LeVeque, COMPSTAT 1982), whoever comes first.
# Floating point addition is not associative, so the fixed order is what makes the bits equal.

# %%
sharded = {"paths": 40_000 if QUICK else 400_000, "shard_size": 4096}
start = time.perf_counter()
alone = greeks(**sharded)
print(f"{'serial':26} {time.perf_counter() - start:5.1f} s")


def by(name, **settings):
    start = time.perf_counter()
    found = greeks(**sharded, **settings)
    print(f"{name:26} {time.perf_counter() - start:5.1f} s   same bits: {found == alone}")
    assert found.entries == alone.entries


by("two threads", executor="threads", workers=2)
by("two processes, started", executor="processes", workers=2)
if not QUICK:
    by("two processes, warm", executor="processes", workers=2)

# %% [markdown]
# Equality of the reports is that of every value and every standard error, bit by bit. Now a Dask
# cluster, made here, of two processes that listen on 127.0.0.1 and nowhere else. (`executor="dask"`
# makes one like it for a single run; `"tcp://host:8786"` takes one that is there.)


# %%
def listening(pids):
    """Addresses and ports on which processes listen."""
    return {
        connection.laddr
        for pid in pids
        for connection in psutil.Process(pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }


here = os.getpid()
before = listening([here])
cluster = LocalCluster(
    n_workers=1 if QUICK else 2,
    threads_per_worker=1,
    host="127.0.0.1",
    dashboard_address="127.0.0.1:0",
)
client = Client(cluster, set_as_default=False)
try:
    opened = listening([here, *client.run(os.getpid).values()]) - before
    print("the cluster listens on", {address.ip for address in opened})
    assert {address.ip for address in opened} == {"127.0.0.1"}
    by("a Dask cluster", executor=client)
finally:
    client.close()
    cluster.close()
assert not listening([here]) & opened

# %% [markdown]
# A worker in another process first runs a few paths and compares versions and bits with those of
# its driver; a processor with other vector instructions rounds otherwise, and is refused by
# `WorkerMismatchError` rather than mixed in. What the bits do depend on is `shard_size`, as it
# decides what is added up first:

# %%
other = greeks(sharded["paths"], shard_size=5000)
relative = max(
    abs(other.entries[key].value / found.value - 1) for key, found in alone.entries.items()
)
print(f"other shards: equal is {other == alone}, relative difference {relative:.0e}")
assert relative < 1e-9

# %% [markdown]
# ## Killed, and resumed
#
# `checkpoint=` keeps each finished shard in a file. The same job in a process of its own, and as
# soon as half of its shards are on disk it gets SIGKILL, which no program can catch.

# %%
JOB = """
import sys, sdesens
from sdesens.models import Heston
from sdesens.pricing import Call
sdesens.greeks(Heston(rate=0.03, kappa=2.0, theta=0.04, xi=0.25, rho=-0.7), Call(100.0, 1.0),
               [100.0, 0.05], steps=50, paths=int(sys.argv[2]), shard_size=int(sys.argv[3]),
               checkpoint=sys.argv[1])
"""
kept = {"paths": 2**19 - 7, "shard_size": 2**13}
if QUICK:
    kept = {"paths": 2**18 - 7, "shard_size": 2**13}
shards = -(-kept["paths"] // kept["shard_size"])


def files():
    """The shards on disk, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in sorted(folder.glob("*/*-*.json"))}


process = subprocess.Popen(
    [sys.executable, "-c", JOB, str(folder), str(kept["paths"]), str(kept["shard_size"])]
)
while len(files()) < shards / 2 and process.poll() is None:
    time.sleep(0.001)
process.kill()
print("ended by", signal.Signals(-process.wait()).name)
survived = files()
print(f"{len(survived)} of {shards} shards are on disk")
assert shards / 2 <= len(survived) < shards

# %% [markdown]
# What lies there: a folder with the name of the job, in it a specification and a file for each
# shard. All of it is JSON, written aside, flushed to the disk and renamed, so that a file is whole
# or not there. Nothing is unpickled when they are read.

# %%
(job,) = folder.iterdir()
print(", ".join(path.name for path in sorted(job.iterdir())[-2:]))
specification = json.loads((job / "specification.json").read_text())["specification"]
for name in ("model", "x0", "payoff", "scheme", "steps", "dtype", "seed", "shard_size"):
    print(f"    {name:11} {specification[name]}")
first = job / "00-00000000.json"
print(first.name)
for name, value in json.loads(first.read_text()).items():
    print(f"    {name:14} {textwrap.shorten(str(value), 70, placeholder=' ...')}")

# %% [markdown]
# The same call again computes what is missing. What comes out is what one run without a folder
# gives, to the bit.

# %%
undisturbed = greeks(**kept)
resumed = greeks(**kept, checkpoint=folder)
now = files()
untouched = sum(now[path] == written for path, written in survived.items())
print(f"{untouched} shards taken from disk, {len(now) - untouched} computed")
print("same bits as undisturbed:", resumed == undisturbed)
assert resumed.entries == undisturbed.entries
assert untouched == len(survived) and len(now) == shards

# %% [markdown]
# **More paths** are the same job. The run goes on where the first ended; only the last shard of
# that one, which was not full, is computed again.

# %%
more = kept | {"paths": 2**18 + 2**15 if QUICK else 2**20}
longer = greeks(**more, checkpoint=folder)
later = files()
untouched = sum(later[path] == written for path, written in now.items())
print(f"{untouched} of {shards} shards taken from disk, {len(later) - untouched} computed")
assert untouched == shards - 1
assert longer.entries == greeks(**more).entries

# %% [markdown]
# **Another strike** is another job. Its name is a hash of all that its numbers depend on: program,
# parameters, seed, shard size, versions, and the bits of a few paths. So it does not find the
# shards of this one; it gets its own folder beside it. If files are put into the wrong folder by
# hand, they are not used, and a folder whose specification was edited is refused.

# %%
small = {"steps": steps, "paths": 2 * kept["shard_size"], "shard_size": kept["shard_size"]}


def at_110():
    return sdesens.greeks(heston, Call(110.0, 1.0), today, **small, checkpoint=folder)


dear = at_110()
(other_job,) = set(folder.iterdir()) - {job}
print("folders:", len(list(folder.iterdir())))

(other_job / first.name).write_text(first.read_text())  # a shard of the strike of 100
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    again = at_110()
shown(caught[0].category, caught[0].message)
assert [w.category for w in caught] == [sdesens.CheckpointWarning]
assert again.entries == dear.entries

described = (other_job / "specification.json").read_text()
(other_job / "specification.json").write_text(described.replace("strike=110", "strike=100"))
try:
    at_110()
except sdesens.CheckpointError as refusal:
    print()
    shown(sdesens.CheckpointError, refusal)
else:
    raise AssertionError

# %% [markdown]
# **A damaged file** is noticed by its hash. Here one is cut off, and in another a single digit is
# changed, which is still good JSON. Both shards are computed again, to the very text that was there.

# %%
cut, changed = job / "00-00000003.json", job / "00-00000005.json"
texts = {path: path.read_text() for path in (cut, changed)}
cut.write_text(texts[cut][:100])
document = json.loads(texts[changed])
document["mean"][0] += 1e-9
changed.write_text(json.dumps(document))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    mended = greeks(**kept, checkpoint=folder)
for warning in caught:
    shown(warning.category, warning.message)
assert [w.category for w in caught] == [sdesens.CheckpointWarning] * 2
assert mended.entries == undisturbed.entries
assert {path: path.read_text() for path in texts} == texts

# %% [markdown]
# A hash finds damage, not malice: who can write there can compute it too. More on that, and on
# disks that are full, in [scaling out](../docs/scaling.md).
#
# ## How the error falls
#
# Since a folder goes on, an estimate can be looked at on its way, for nothing but the time to
# record the model. A run in small shards, and the report after the first of them, the first two,
# four and so on:

# %%
size = 1024
total, factor = (2**16, 4) if QUICK else (2**20, 2)
in_small_shards = {"shard_size": size, "seed": 1}
on_the_way = in_small_shards | {"checkpoint": folder / f"{steps} steps"}
greeks(total, **on_the_way)
counts = [size]
while counts[-1] < total:
    counts.append(factor * counts[-1])
reports = [greeks(count, **on_the_way) for count in counts]

figure = Figure(figsize=(7.2, 3.0))
axes = figure.subplots(1, 2)
for ax, key, label in (
    (axes[0], (), "price"),
    (axes[1], ("kappa",), r"$\partial V/\partial\kappa$"),
):
    found = [report.entries[key] for report in reports]
    known = [exact[key]] * len(counts)
    plots.greek_profile(
        counts, found, closed_form=known, xlabel="paths $n$", ylabel=label, label="so far", ax=ax
    )
    ax.set_xscale("log")
    assert abs(found[-1].value - known[0]) < 4 * found[-1].stderr
axes[0].set_title("(a) price")
axes[1].set_title(r"(b) derivative in $\kappa$")
figure

# %% [markdown]
# The errors of such a sequence are one sample of a random walk. For their size we need repetitions.
# Shards are independent, and their files hold their means, in the order of the report: group the
# shards of one run by $g$, and each group is a run of $1024\,g$ paths. The root mean square error
# over the groups against the closed form, for 50 steps and for 4:


# %%
def rms_errors(run_steps, key):
    """Root mean square errors of groups of shards, with their standard errors."""
    inside = folder / f"{run_steps} steps"
    report = greeks(total, steps=run_steps, checkpoint=inside, **in_small_shards)
    place = list(report).index(key)
    parts = [json.loads(path.read_text()) for path in sorted(inside.glob("*/*-*.json"))]
    means = torch.tensor([part["mean"][place] for part in parts])
    assert len(means) == total // size
    assert abs(means.mean().item() - report.entries[key].value) < 1e-12
    out = []
    for count in counts[:-2]:
        errors = means.reshape(-1, count // size).mean(1) - exact[key]
        rms = errors.square().mean().sqrt().item()
        out.append(Estimate(rms, rms / (2 * len(errors)) ** 0.5))
    return report.entries[key], out


fine, fine_errors = rms_errors(50, ("kappa",))
coarse, coarse_errors = rms_errors(4, ("kappa",))
print(f"exact    {exact['kappa',]:.5f}")
print(f"50 steps {fine.value:.5f} ± {fine.stderr:.5f}")
print(f" 4 steps {coarse.value:.5f} ± {coarse.stderr:.5f}")
assert abs(coarse.value - exact["kappa",]) > 4 * coarse.stderr
for count, error in zip(counts, fine_errors, strict=False):
    assert abs(error.value - fine.stderr * (total / count) ** 0.5) < 4 * error.stderr

ax = plots.convergence(
    counts[:-2],
    {"50 steps": fine_errors, "4 steps": coarse_errors},
    slopes=(-0.5,),
    fit=False,
    xlabel="number of paths $n$",
    ylabel=r"error of $\partial V/\partial\kappa$",
)
ax.figure

# %% [markdown]
# With 50 steps the error falls like $n^{-1/2}$ all the way: at each $n$ it is what the standard
# error of a run says. With 4 steps it falls until it meets the bias of the scheme, and stays there,
# while the standard error that is reported keeps falling. Before paths are added, halve the step
# and see whether the number moves.
#
# ## Until it is accurate
#
# `target_stderr=` runs until the standard errors are as small as asked; `paths` is then the most.
# When that is looked at depends on the samples alone, not on who was faster, so the bits are the
# same with any number of workers.

# %%
goal = 0.05 if QUICK else 0.01
accurate = {"target_stderr": goal, "shard_size": 2**14}
reached = greeks(10**8, **accurate)
print(
    f"{reached.paths:,} paths, price {reached['price'].value:.4f} ± {reached['price'].stderr:.4f}"
)
assert reached["price"].stderr <= goal
assert reached.entries == greeks(10**8, **accurate, **two).entries

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    greeks(10_000, **accurate)
shown(caught[0].category, caught[0].message)
assert [w.category for w in caught] == [sdesens.AccuracyWarning]

# %% [markdown]
# ## A worker that fails
#
# Over hours something dies: memory runs out, a machine is rebooted. Here the payoff itself kills
# the process that it runs in, the first time that it sees a spot above 150. The shards that were
# under way are tried again.

# %%
marker = folder / "was-here"


def kills_once(end):
    if bool((end.spot > 150.0).any()) and os.getpid() != here and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.relu(end.spot - 100.0)


eager = {"maturity": 1.0, "steps": 4, "paths": 4000, "shard_size": 500, "wrt": (), "seed": 2}
warnings.simplefilter("ignore", sdesens.UncompiledWarning)  # these payoffs look at values
calm = montecarlo.run(heston, today, kills_once, **eager)
survivor = montecarlo.run(heston, today, kills_once, workers=2, **eager)
print("a worker was killed:", marker.exists())
print("same bits:", survivor["value"] == calm["value"])
assert marker.exists() and survivor["value"] == calm["value"]

# %% [markdown]
# A fault of the job itself does not go away by trying. The shard is tried `retries=2` times more,
# then named, with the last error of its worker. What was finished is kept.


# %%
def from_a_table(end):
    highest = end.spot.max().item()
    if highest > 175.0:
        raise LookupError(f"the table ends at 175, a path is at {highest:.1f}")
    return torch.relu(end.spot - 100.0)


try:
    montecarlo.run(heston, today, from_a_table, workers=2, checkpoint=folder, **eager)
except sdesens.ShardError as error:
    failure = error
    shown(sdesens.ShardError, failure)
else:
    raise AssertionError

# %% [markdown]
# The error carries the index of the shard, and so of its paths. They can be run again alone, by any
# mode, as their noise depends on nothing else:

# %%
first_path = failure.shard * eager["shard_size"]
noise = sdesens.BrownianPath(
    0, 1, (500, 2), 4, seed=eager["seed"], dtype=torch.float32, first_path=first_path
)
start = torch.tensor(today, dtype=torch.float32).expand(500, 2)
again = sdesens.sensitivities(heston, start, [0.0, 1.0], method="euler", dt=0.25, bm=noise)
highest, place = again.x[-1, :, 0].max(0)
print(f"path {first_path + place} ends at {highest:.1f}")
assert f"a path is at {highest:.1f}" in str(failure)
kept_in.cleanup()

# %% [markdown]
# **What to keep.** A compiled pass that keeps nothing of a path makes a million of them a matter of
# seconds. Noise that is a function of indices makes shards pure, and a fixed order of merging makes
# their sum the same anywhere, today or after a crash. An error bar falls like $n^{-1/2}$ for as long
# as you pay for it; the bias of the step does not, so look at both.
