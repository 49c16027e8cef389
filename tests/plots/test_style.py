import os
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.style
import pytest
from matplotlib.figure import Figure

from sdesens.plots._style import series
from tests.plots.drawn import plots

ROOT = Path(__file__).parents[2]


def test_the_style_rules_inside_its_context_alone():
    before = mpl.rcParams["mathtext.fontset"]
    with plots.style():
        assert mpl.rcParams["mathtext.fontset"] == "stix"
        assert mpl.rcParams["axes.prop_cycle"].by_key()["color"] == list(plots.PALETTE)
    assert mpl.rcParams["mathtext.fontset"] == before


def test_the_sheet_can_be_used_by_its_name():
    with matplotlib.style.context("sdesens.plots.paper"):
        assert mpl.rcParams["axes.spines.top"] is False


def test_the_colours_can_be_told_apart_by_their_line_in_grey():
    """What is near in lightness differs in line and marker."""
    looks = [series(k) for k in range(len(plots.PALETTE))]
    pairs = [(look["linestyle"], look["marker"]) for look in looks]
    assert len(set(pairs)) == len(pairs)
    assert len({look["color"] for look in looks}) == len(looks)


def test_a_figure_made_here_is_in_the_style_and_one_given_is_in_its_own(sens, ax):
    own = plots.path_fan(sens)
    assert not own.spines["top"].get_visible()
    given = plots.path_fan(sens, ax=ax)
    assert given.spines["top"].get_visible()
    fonts = [a.get_legend().get_texts()[0].get_fontfamily() for a in (own, given)]
    assert fonts == [["serif"], ["sans-serif"]]


def test_a_figure_made_here_stays_in_the_style_when_it_is_drawn_on_again(sens):
    own = plots.path_fan(sens)
    plots.path_fan(sens, ax=own)
    assert own.get_legend().get_texts()[0].get_fontfamily() == ["serif"]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_figure_is_saved_in_every_format(sens, tmp_path, suffix):
    with plots.style():
        above, below = Figure(figsize=(5, 6)).subplots(2, 1)
        plots.path_fan(sens, ax=above)
        plots.tangent_fan(sens, wrt="kappa", ax=below)
        above.figure.savefig(tmp_path / f"fan.{suffix}")
    assert (tmp_path / f"fan.{suffix}").stat().st_size > 1000


def test_matplotlib_is_imported_with_plots_and_pyplot_never():
    program = """
import sys, sdesens, sdesens.montecarlo, sdesens.pricing
assert "matplotlib" not in sys.modules
import sdesens.plots
assert "matplotlib" in sys.modules
assert "matplotlib.pyplot" not in sys.modules
"""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], check=True, env=env, cwd=ROOT)
