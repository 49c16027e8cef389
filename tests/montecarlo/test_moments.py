import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sdesens.fused.kernel import moments_of
from sdesens.montecarlo import Estimate
from sdesens.montecarlo.moments import merge_all, standard_error


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.floats(-1e6, 1e6))
@settings(deadline=None, max_examples=50)
def test_merged_moments_are_those_of_all_samples(sizes, shift):
    generator = torch.Generator().manual_seed(sum(sizes))
    y = torch.randn(3, sum(sizes) + 2, generator=generator, dtype=torch.float64) + shift
    merged = merge_all(moments_of(part) for part in y.split([2, *sizes], dim=1))
    whole = moments_of(y)
    assert merged.count == y.shape[1]
    size = 1 + abs(shift)  # a mean is rounded to 1e-16 of itself
    assert torch.allclose(merged.mean, whole.mean, rtol=0, atol=1e-13 * size)
    assert torch.allclose(merged.products, whole.products, rtol=1e-9, atol=1e-13 * size)


def test_the_standard_error_is_that_of_a_mean():
    y = torch.arange(10.0, dtype=torch.float64)[None]
    right = np.arange(10.0).std(ddof=1) / np.sqrt(10)
    assert abs(standard_error(moments_of(y)).item() - right) < 1e-15


def test_nothing_cannot_be_merged():
    with pytest.raises(ValueError, match="nothing to merge"):
        merge_all([])


def test_an_estimate_of_samples_is_their_mean_with_its_standard_error():
    samples = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = Estimate.of(samples)
    assert found.value == pytest.approx(np.mean(samples.numpy()), rel=1e-12)
    assert found.stderr == pytest.approx(samples.numpy().std(ddof=1) / np.sqrt(1000), rel=1e-12)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_an_estimate_of_samples_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"samples must have shape \(n,\), n at least 2, got \("):
        Estimate.of(torch.zeros(shape))
