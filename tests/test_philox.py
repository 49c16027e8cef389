import itertools
import math

import pytest
import torch
from scipy import stats

from sdesens import _philox
from sdesens._philox import AREA, INCREMENT, SPACE_TIME, normals, philox4x32

ONES = 0xFFFFFFFF
DTYPES = (torch.float32, torch.float64)


def word(value):
    return torch.tensor(value, dtype=torch.int64)


def words(a, b, c, d):
    return word(a), word(b), word(c), word(d)


# Random123, examples/kat_vectors, philox4x32 10.
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_published_known_answers_are_met(counter, key, expected):
    out = philox4x32(words(*counter), key[0] | key[1] << 32)
    assert tuple(int(w) for w in out) == expected


def test_counters_broadcast_and_words_stay_below_2_to_the_32():
    c0 = torch.arange(1000)[:, None]
    c2 = torch.arange(7)
    out = torch.stack(philox4x32((c0, word(1), c2, word(3)), 2**64 - 1))
    assert out.shape == (4, 1000, 7)
    assert int(out.min()) >= 0
    assert int(out.max()) < 2**32
    single = philox4x32(words(999, 1, 6, 3), 2**64 - 1)
    assert [int(w) for w in single] == out[:, 999, 6].tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_moments_are_those_of_the_normal_law_within_5_standard_errors(dtype):
    """Six moments; a false alarm in 3e-6 of all seeds."""
    z = normals(1, range(1000), range(1000), 1, dtype=dtype).double().flatten()
    n = z.numel()
    for power in range(1, 7):
        mean = math.prod(range(power - 1, 0, -2)) if power % 2 == 0 else 0
        second = math.prod(range(2 * power - 1, 0, -2))
        error = math.sqrt((second - mean**2) / n)
        assert abs(z.pow(power).mean().item() - mean) < 5 * error


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_distribution_passes_kolmogorov_and_smirnov(dtype):
    """A false alarm in 1e-6 of all seeds."""
    z = normals(2, range(500), range(400), 1, dtype=dtype).flatten()
    assert stats.kstest(z.double().numpy(), "norm").pvalue > 1e-6


@pytest.mark.parametrize("dtype", DTYPES)
def test_beyond_four_standard_deviations_there_is_as_much_as_there_should_be(dtype):
    """Poisson count; two sides of 5e-7."""
    z = normals(3, range(2000), range(1000), 1, dtype=dtype)
    count = int((z.abs() > 4).sum())
    low, high = stats.poisson(2e6 * 2 * stats.norm.sf(4)).ppf([5e-7, 1 - 5e-7])
    assert low <= count <= high


def test_float64_reaches_tails_that_32_bits_cannot():
    smallest = _philox._box_muller_64(words(0, 0, 0, 0))[0].item()
    assert smallest == pytest.approx(math.sqrt(2 * 53 * math.log(2)), rel=1e-15)
    assert smallest > math.sqrt(2 * 32 * math.log(2)) + 1.9  # the cut of a 32-bit uniform


def test_float64_uses_53_bits_of_radius_and_of_angle():
    base = _philox._box_muller_64(words(0, 0, 1 << 30, 0))
    radius = _philox._box_muller_64(words(0, 1 << 11, 1 << 30, 0))
    angle = _philox._box_muller_64(words(0, 0, 1 << 30, 1 << 11))
    assert radius[1] != base[1]
    assert angle[0] != base[0]


@pytest.mark.parametrize("corner", [0, 1, ONES - 1, ONES])
def test_no_word_gives_an_infinite_or_undefined_normal(corner):
    for others in itertools.product((0, ONES), repeat=3):
        x, y, z = others
        for four in ((corner, x, y, z), (x, corner, y, z), (x, y, corner, z), (x, y, z, corner)):
            for map_to_normals in (_philox._box_muller_32, _philox._box_muller_64):
                for number in map_to_normals(words(*four)):
                    assert torch.isfinite(number)


def test_float32_reaches_to_its_own_cut_and_no_further():
    largest = _philox._box_muller_32(words(0, 0, 0, 0))[0]
    assert largest.dtype == torch.float32
    assert largest.item() == pytest.approx(math.sqrt(2 * 32 * math.log(2)), rel=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transform", [torch.Tensor.clone, torch.square], ids=["z", "z^2"])
def test_path_step_channel_seed_and_stream_are_independent(dtype, transform):
    """Correlations of 2e5 pairs within 5 standard errors: 3e-6 false alarms altogether."""
    z = normals(4, range(501), range(401), 2, dtype=dtype)
    others = {
        "path": (z[:, 1:], z[:, :-1]),
        "step": (z[1:], z[:-1]),
        "two steps": (z[2:], z[:-2]),
        "channel": (z[..., 0], z[..., 1]),
        "seed": (z, normals(5, range(501), range(401), 2, dtype=dtype)),
        "high seed": (z, normals(4 + 2**32, range(501), range(401), 2, dtype=dtype)),
        "stream": (z, normals(4, range(501), range(401), 2, dtype=dtype, stream=SPACE_TIME)),
        "area": (z, normals(4, range(501), range(401), 2, dtype=dtype, stream=AREA)),
    }
    for name, pair in others.items():
        a, b = (transform(side).double().flatten() for side in pair)
        correlation = torch.corrcoef(torch.stack((a, b)))[0, 1].item()
        assert abs(correlation) < 5 / math.sqrt(a.numel()), name


def test_no_two_numbers_of_different_streams_seeds_or_channels_are_equal():
    z = [normals(6, range(50), range(20), 5, stream=s) for s in (INCREMENT, SPACE_TIME, AREA)]
    z += [normals(6 + 2**32, range(50), range(20), 5), normals(7, range(50), range(20), 5)]
    everything = torch.stack(z).flatten()
    assert everything.unique().numel() == everything.numel()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_number_does_not_depend_on_the_block_it_is_made_in(dtype):
    whole = normals(8, range(20), range(23), 3, dtype=dtype)
    for first, last in [(0, 1), (1, 2), (3, 9), (4, 8), (5, 23), (22, 23), (7, 7)]:
        assert torch.equal(
            normals(8, range(20), range(first, last), 3, dtype=dtype), whole[first:last]
        )
    part = normals(8, range(11, 13), range(6, 11), 2, dtype=dtype)
    assert torch.equal(part, whole[6:11, 11:13, :2])


@pytest.mark.parametrize("dtype", DTYPES)
def test_seeds_that_differ_in_their_high_word_alone_differ(dtype):
    a = normals(5, range(4), range(4), 1, dtype=dtype)
    assert not (a == normals(5 + 2**32, range(4), range(4), 1, dtype=dtype)).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_paths_beyond_2_to_the_32_have_numbers_of_their_own(dtype):
    low = normals(5, range(3), range(4), 1, dtype=dtype)
    high = normals(5, range(2**32, 2**32 + 3), range(4), 1, dtype=dtype)
    assert not (low == high).any()


def test_empty_ranges_give_empty_tensors():
    assert normals(0, range(0), range(5), 2).shape == (5, 0, 2)
    assert normals(0, range(5), range(3, 3), 2).shape == (0, 5, 2)
    assert normals(0, range(5), range(5), 0).shape == (5, 5, 0)
