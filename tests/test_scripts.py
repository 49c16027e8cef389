"""The scripts that draw: run from within, on ``--quick``, and two as a user would."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest
import torch

from sdesens.montecarlo import Estimate

ROOT = Path(__file__).parents[1]
SCRIPTS = ("plot_paths", "plot_modes", "plot_greeks", "plot_convergence", "plot_estimators")


@pytest.fixture
def load(monkeypatch, tmp_path):
    """Imports a script by its name; it runs in a folder of its own."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.chdir(tmp_path)
    yield importlib.import_module
    assert plt.get_fignums() == []


def assert_picture(path):
    """A picture of what its suffix says, with something on it."""
    data = path.read_bytes()
    match path.suffix:
        case ".png":
            assert data.startswith(b"\x89PNG\r\n\x1a\n")
        case ".pdf":
            assert data.startswith(b"%PDF-")
            assert b"%%EOF" in data[-16:]
        case ".svg":
            assert ElementTree.fromstring(data).tag == "{http://www.w3.org/2000/svg}svg"
    assert len(data) > 5000


@pytest.mark.parametrize(
    ("script", "suffix", "arguments"),
    [
        ("plot_paths", "png", []),
        ("plot_paths", "svg", ["--model", "neural", "--parameter", "outer"]),
        ("plot_modes", "svg", ["--method", "srk"]),
        ("plot_greeks", "pdf", []),
        ("plot_convergence", "png", []),
        ("plot_estimators", "svg", ["--greeks", "delta"]),
    ],
)
def test_a_script_draws_what_it_is_asked_for(load, tmp_path, capsys, script, suffix, arguments):
    out = tmp_path / f"picture.{suffix}"
    load(script).main(["--quick", "--out", str(out), *arguments])
    assert_picture(out)
    told = capsys.readouterr()
    assert told.out == f"picture: {out}\n"
    assert "%|" in told.err  # a bar


def test_greeks_that_are_not_known_in_closed_form_are_drawn_alone(load):
    module, choice = load("plot_greeks"), load("_models").CHOICES["cev"]
    payoff, spots = module.PAYOFFS["call"](100.0, 1.0), [90.0, 100.0, 110.0]
    assert module.in_closed_form(choice.make(), payoff, choice, spots) is None
    profile = {greek: [Estimate(1.0, 0.1)] * 3 for greek in ("delta", "gamma", "vega")}
    assert len(module.draw(profile, None, choice, spots, "CEV").axes) == 3
    known = dict.fromkeys(profile, [1.0] * len(module.between(spots)))
    assert len(module.draw(profile, known, choice, spots, "CEV").axes) == 6


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_picture_has_the_same_bytes(load, tmp_path, suffix):
    one, two = tmp_path / f"one.{suffix}", tmp_path / f"two.{suffix}"
    for out in (one, two):
        load("plot_modes").main(["--quick", "--model", "ou", "--out", str(out)])
    assert one.read_bytes() == two.read_bytes()


def test_the_pictures_of_the_docs_are_those_of_the_commands_beside_them():
    """One for each script; what it draws is compared where it was drawn, by eye."""
    page = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    command = r"^python scripts/(\w+)\.py --model \S+ --out docs/(\S+)\n```\n\n!\[.*\]\((.*)\)$"
    found = re.findall(command, page, flags=re.M)
    assert [script for script, _, _ in found] == list(SCRIPTS)
    assert all(out == picture == f"figures/{script}.svg" for script, out, picture in found)
    assert {path.stem for path in (ROOT / "docs" / "figures").iterdir()} == set(SCRIPTS)


def test_a_picture_goes_to_a_folder_that_is_made_for_it(load, tmp_path):
    load("plot_modes").main(["--quick", "--model", "ou"])
    assert_picture(tmp_path / "out" / "plot_modes_ou.png")


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "heson"], "argument --model: 'heson' is none of"),
        (
            ["--out", "picture.jpg"],
            "argument --out: 'picture.jpg' does not end in .png, .svg, .pdf",
        ),
        (["--out", "no/where.png"], "argument --out: there is no folder 'no'; make it first"),
        (["--seed", "-1"], "argument --seed: -1 is less than 0"),
        (["--seed", "x"], "argument --seed: 'x' is not a whole number"),
        (["--pats", "3"], "unrecognized arguments: --pats 3"),
    ],
)
def test_a_bad_argument_is_one_line(load, tmp_path, capsys, script, arguments, message):
    assert_refused(load(script), arguments, message, capsys)
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def assert_refused(module, arguments, message, capsys):
    with pytest.raises(SystemExit) as error:
        module.main(arguments)
    assert error.value.code == 2
    told = capsys.readouterr().err
    (line,) = [line for line in told.splitlines() if "error" in line]
    assert line.startswith(f"{module.__name__}.py: error: ")
    assert message in line
    assert line.endswith("(--help shows examples)")
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("plot_paths", ["--parameter", "kapa"], "'kapa' is none of xi, kappa, theta, rho, rate of"),
        ("plot_paths", ["--paths", "1"], "argument --paths: 1 is less than 2"),
        ("plot_paths", ["--model", "merton"], "'merton' is none of"),
        ("plot_modes", ["--method", "eulr", "--quick"], "argument --method: method must be one of"),
        ("plot_greeks", ["--payoff", "asian"], "argument --payoff: invalid choice: 'asian'"),
        ("plot_greeks", ["--model", "ou"], "'ou' is none of black-scholes, heston"),
        (
            "plot_convergence",
            ["--model", "heston", "--methods", "milstein", "--quick"],
            "argument --methods: method 'milstein' does not solve ito SDEs with general noise",
        ),
        ("plot_estimators", ["--payoffs", "swap"], "argument --payoffs: invalid choice: 'swap'"),
    ],
)
def test_what_a_model_or_a_payoff_does_not_have_is_refused(
    load, capsys, script, arguments, message
):
    assert_refused(load(script), arguments, message, capsys)


def test_a_misspelt_model_is_offered_the_nearest(load, capsys):
    assert_refused(load("plot_paths"), ["--model", "heson"], "Did you mean 'heston'?", capsys)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_shows_examples(load, capsys, script):
    with pytest.raises(SystemExit) as done:
        load(script).main(["--help"])
    assert done.value.code == 0
    told = capsys.readouterr().out
    assert "--out FILE" in told
    examples = told.partition("examples:\n")[2].splitlines()
    assert len(examples) >= 3
    assert all(line.startswith(f"  python scripts/{script}.py") for line in examples)


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_arguments_of_the_examples_are_known(load, tmp_path, monkeypatch, script):
    """They are read as they stand: a line that is shown must not be refused."""
    module = load(script)
    (tmp_path / "out").mkdir()

    def read(self, argv):
        self.parse_args(argv)
        raise StopIteration

    monkeypatch.setattr(module.Command, "read", read)
    for example in module.EXAMPLES:
        with pytest.raises(StopIteration):
            module.main(example.split())


def test_the_table_of_models_fits_the_models(load):
    table = load("_models")
    for choice in table.CHOICES.values():
        model = choice.make()
        assert choice.samples(3).shape == (3, model.dim)
        assert len(choice.components) == len(model.state)
        names = dict(model.named_parameters())
        assert set(choice.parameters) <= set(names)
        assert all(bool((names[name] != 0).all()) for name in choice.parameters)
        if choice.solved:
            drift = model.f(torch.tensor(0.0, dtype=torch.float64), choice.samples(2))
            assert bool(torch.isfinite(drift).all())
        if choice.asset:
            assert choice.asset == next(iter(model.state))
            assert choice.vega[0] in {*names, *model.state}


def test_a_script_runs_as_a_user_runs_it(tmp_path):
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "scripts" / "plot_paths.py")]
    run = {"cwd": tmp_path, "env": env, "capture_output": True, "text": True}
    done = subprocess.run([*command, "--quick", "--model", "ou"], check=False, **run)
    assert done.returncode == 0, done.stderr
    assert_picture(tmp_path / "out" / "plot_paths_ou.png")
    refused = subprocess.run([*command, "--model", "no"], check=False, **run)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert "'no' is none of ou, gbm" in line
