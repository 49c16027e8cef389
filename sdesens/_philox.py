"""Normal numbers as a pure function of (seed, path, step, channel).

Counter-based: nothing is drawn in order, so blocks, threads, shards and devices never change a
number, and any single one can be computed again alone. The generator is Philox4x32-10 of Salmon,
Moraes, Dror and Shaw, *Parallel random numbers: as easy as 1, 2, 3*, SC'11; the map to normals is
that of Box and Muller (1958).

Layout of the counter: ``(path low, path high, step // lanes, channel + stream * 2^28)``; the key
is the 64-bit seed. One Philox call serves ``lanes`` consecutive steps of one channel: four in
float32 (32 bits a uniform), two in float64 (53 bits a uniform).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_MULTIPLIER_0, _MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
CHANNEL_BITS = 28

INCREMENT, SPACE_TIME, AREA, BRIDGE = (
    0,
    1,
    2,
    3,
)  # the streams: independent numbers for one (path, step)
LANES = {torch.float32: 4, torch.float64: 2}

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def word(stream: int, channel: int) -> int:
    """The counter word of a channel of a stream."""
    return channel + (stream << CHANNEL_BITS)


def philox4x32(counter: Words, seed: int, rounds: int = 10) -> Words:
    """Four 32-bit words for each counter, as int64 tensors with values in ``[0, 2^32)``.

    The counter words are int64 tensors with values in ``[0, 2^32)`` that broadcast together.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = seed & _MASK, seed >> 32
    for _ in range(rounds):
        # The products reach 2^64 and wrap in int64; shift and mask still give the right words.
        p0, p1 = c0 * _MULTIPLIER_0, c2 * _MULTIPLIER_1
        c0, c1, c2, c3 = (
            ((p1 >> 32) & _MASK) ^ c1 ^ k0,
            p1 & _MASK,
            ((p0 >> 32) & _MASK) ^ c3 ^ k1,
            p0 & _MASK,
        )
        k0, k1 = (k0 + _WEYL_0) & _MASK, (k1 + _WEYL_1) & _MASK
    return c0, c1, c2, c3


def normals(
    seed: int,
    paths: range,
    steps: range,
    channels: int,
    *,
    stream: int = INCREMENT,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Independent N(0, 1) numbers of shape ``(len(steps), len(paths), channels)``.

    Each depends on ``seed``, its path, its step, its channel, ``stream`` and ``dtype`` alone.
    """
    lanes = LANES[dtype]
    first_block, last_block = steps.start // lanes, -(-steps.stop // lanes)
    path = torch.arange(paths.start, paths.stop, dtype=torch.int64, device=device)[:, None]
    block = torch.arange(first_block, last_block, dtype=torch.int64, device=device)[:, None, None]
    channel = torch.arange(channels, dtype=torch.int64, device=device)
    words = philox4x32((path & _MASK, path >> 32, block, channel + (stream << CHANNEL_BITS)), seed)
    lane_values = _box_muller_32(words) if dtype is torch.float32 else _box_muller_64(words)
    numbers = torch.stack(lane_values, dim=1).flatten(0, 1)
    start = steps.start - first_block * lanes
    return numbers[start : start + len(steps)]


def _box_muller_32(words: Words) -> tuple[Tensor, ...]:
    """Four normals from four words; the radius uniform is at least 2^-32, so none is infinite."""
    a, b, c, d = words
    return *_polar_32(a, b), *_polar_32(c, d)


def _polar_32(radius_word: Tensor, angle_word: Tensor) -> tuple[Tensor, Tensor]:
    radius = (-2.0 * ((radius_word + 1).float() * 2.0**-32).log()).sqrt()
    angle = angle_word.float() * (2.0 * math.pi * 2.0**-32)
    return radius * angle.cos(), radius * angle.sin()


def _box_muller_64(words: Words) -> tuple[Tensor, ...]:
    """Two normals from four words; 53 bits in the radius reach 8.57 standard deviations."""
    a, b, c, d = words
    radius = (-2.0 * (((a << 21 | b >> 11) + 1).double() * 2.0**-53).log()).sqrt()
    angle = (c << 21 | d >> 11).double() * (2.0 * math.pi * 2.0**-53)
    return radius * angle.cos(), radius * angle.sin()
