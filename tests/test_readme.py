"""What the README shows, run as it stands."""

import re
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch

from sdesens.pricing import closed_form_greeks

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "readme"}
    names["folder"] = tmp_path_factory.mktemp("readme")
    with chdir(names["folder"]):
        for block in re.findall(r"^```python\n(.*?)^```", README, flags=re.S | re.M):
            exec(block, names)
    return names


def test_the_first_example_has_the_shapes_and_the_numbers_that_are_shown(shown):
    sens = shown["sens"]
    assert sens.x.shape == (101, 1, 2)
    assert sens.dx0.shape == (101, 1, 2, 2)
    assert sens.dparams["xi"].shape == (101, 1, 2)
    table = re.search(r"^```\n(Call\(.*?)^```", README, flags=re.S | re.M)
    assert table
    assert str(shown["option"]) == table[1].rstrip()
    known = closed_form_greeks(shown["heston"], shown["Call"](100.0, 1.0), [100.0, 0.04])
    for name, value in known.items():
        estimate = shown["option"].entries[name]
        assert abs(estimate.value - value) < 4 * estimate.stderr, name


def test_the_derivatives_of_a_torchsde_object_have_the_shapes_that_are_shown(shown):
    assert shown["cir"].dx0.shape == (101, 3, 1, 1)
    assert shown["cir"].dparams["kappa"].shape == (101, 3, 1)


def test_the_figure_is_saved(shown):
    assert (shown["folder"] / "tangents.pdf").read_bytes().startswith(b"%PDF-")
    assert shown["ax"].get_ylabel() == "$dr_t / dr_0$"


def test_the_fused_examples_have_their_shapes_and_errors(shown):
    ou, start, ts = shown["ou"], shown["start"], shown["ts"]
    plain = shown["sdesens"].sensitivities(ou, start, ts, method="euler", dt=0.01, seed=0)
    torch.testing.assert_close(shown["fast"].x, plain.x, rtol=0, atol=1e-12)
    assert shown["again"].dx0.shape == (101, 1, 1, 1)
    result = shown["result"]
    assert 0 < result["value"].stderr < 0.01 * result["value"].value
    assert result["value", "kappa"].stderr > 0


def test_the_greeks_have_the_values_that_the_text_says(shown):
    nag = shown["report"]
    assert abs(nag["variance"].value - 53.0023) < 4 * nag["variance"].stderr < 0.6
    assert abs(nag["xi"].value + 1.9804) < 4 * nag["xi"].stderr < 0.15
    assert set(nag.estimators.values()) == {"conditional"}
    assert set(shown["monthly"].estimators.values()) == {"one-step-survival"}


def test_a_second_run_on_the_same_folder_gives_the_same_bits(shown):
    assert shown["second"].entries == shown["first"].entries
    assert shown["first"].paths == 200_000


def test_the_root_has_its_first_and_second_derivative(shown):
    a, y = shown["a"], shown["y"]
    (first,) = torch.autograd.grad((y**2).sum(), a, create_graph=True)
    (second,) = torch.autograd.grad(first[0], a)
    assert first[0].item() == pytest.approx(0.5, abs=1e-12)
    assert second[0].item() == pytest.approx(-0.0625, abs=1e-12)


def test_the_model_written_by_component_has_the_derivative_of_its_closed_form(shown):
    model = shown["GeometricBrownianMotion"](0.05, 0.2)
    x0 = torch.full((2, 1), 100.0, dtype=torch.float64)
    sens = shown["sdesens"].sensitivities(model, x0, [0.0, 1.0], dt=0.1, seed=0)
    torch.testing.assert_close(sens.dx0[..., 0, 0], sens.x[..., 0] / 100, rtol=1e-12, atol=0)


def test_every_page_that_the_readme_links_to_is_there():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    local = [link for link in links if "://" not in link]
    assert local
    missing = [link for link in local if not (Path(__file__).parents[1] / link).exists()]
    assert not missing
