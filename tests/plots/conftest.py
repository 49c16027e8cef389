import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.figure import Figure

from sdesens import Sensitivities

T, B, D = 7, 200, 2


@pytest.fixture(autouse=True)
def pyplot_is_not_touched():
    """No figure of pyplot's is made, and rcParams are what they were."""
    before = mpl.rcParams.copy()
    yield
    assert plt.get_fignums() == []
    assert mpl.rcParams.copy() == before


@pytest.fixture
def ax():
    return Figure().add_subplot()


@pytest.fixture
def sens():
    """A result with unstructured numbers, of two components and two parameters."""
    return made()


def made(d: int = D, samples: int = B, seed: int | None = 0) -> Sensitivities:
    generator = torch.Generator().manual_seed(3)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    return Sensitivities(
        ts=torch.linspace(0, 2, T, dtype=torch.float64) ** 2,
        x=numbers(T, samples, d) + 5,
        dparams={"kappa": numbers(T, samples, d), "mix": numbers(T, samples, d, 2, 3)},
        mode="tangent",
        method="euler",
        dt=0.1,
        seed=seed,
        _dx0=numbers(T, samples, d, d),
    )


@pytest.fixture
def make():
    return made
