"""Where the clip holds and where it does not: counts by the sign of the advantage and the side of the interval."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_core._arrays import Array, as_data, check_mask, namespace
from grpo_core.surrogates import clip_saturated, clipped_surrogate

SIGNS = ("up", "down")
SIDES = ("below", "inside", "above")


@dataclass(frozen=True)
class ClipRegions:
    """Tokens by sign of the advantage ("up", "down") and side of the clip range ("below", "inside", "above").

    `counts` and `saturated`: {(sign, side): number of tokens}, all of them and those whose gradient is 0. `silent`: the
    tokens without an advantage, which are in no region.
    """

    counts: dict[tuple[str, str], int]
    saturated: dict[tuple[str, str], int]
    silent: int


def clip_regions(
    ratio: Array,
    advantages: Array,
    mask: Array,
    *,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    delta: float | None = None,
) -> ClipRegions:
    """Return how many tokens under `mask` lie in each of the six regions of PPO's clip, and how many of them are flat.

    Bounds belong to the inside, as in `clip_saturated`. `ratio` and `mask` (B, T), `advantages` (B, 1) or (B, T).
    Source: PPO arXiv:1707.06347 figure 1.

    >>> import numpy as np
    >>> r, a = np.array([[1.5, 1.5]]), np.array([[1.0, -1.0]])
    >>> found = clip_regions(r, a, r > 0)
    >>> found.saturated["up", "above"], found.saturated["down", "above"]
    (1, 0)
    """
    mask, ratio = check_mask(mask), as_data(ratio, "ratio")
    flat = clip_saturated(ratio, advantages, epsilon_low=epsilon_low, epsilon_high=epsilon_high, delta=delta)
    signs = {"up": advantages > 0, "down": advantages < 0}
    below, above = ratio < 1.0 - float(epsilon_low), ratio > 1.0 + float(epsilon_high)
    sides = {"below": below, "inside": ~below & ~above, "above": above}
    where = {(sign, side): signs[sign] & sides[side] & mask for sign in SIGNS for side in SIDES}
    return ClipRegions(
        {key: _count(tokens) for key, tokens in where.items()},
        {key: _count(tokens & flat) for key, tokens in where.items()},
        _count((advantages == 0) & mask),
    )


def _count(tokens: Array) -> int:
    return int(namespace(tokens).count_nonzero(tokens))


def max_surrogate(ratio: Array, advantages: Array, *, epsilon_low: float = 0.2, epsilon_high: float = 0.2) -> Array:
    """Return the clipped surrogate with `max` where `min` belongs: max(r A, clip(r) A), a common mistake.

    It drops what is cautious about the clip: A > 0 has no cap above and no gradient below, A < 0 no floor below and no
    gradient above. Shapes broadcast as in `clipped_surrogate`; for comparison only, nothing trains with it.

    >>> import numpy as np
    >>> max_surrogate(np.array([0.5, 1.5]), np.array([1.0, 1.0])).tolist()
    [0.8, 1.5]
    """
    # min(x, y) of A is -max(-x, -y): the larger of both branches is minus the smaller for the opposite advantage.
    return -clipped_surrogate(ratio, -advantages, epsilon_low=epsilon_low, epsilon_high=epsilon_high)


def max_slope(ratio: Array, advantages: Array, *, epsilon_low: float = 0.2, epsilon_high: float = 0.2) -> Array:
    """Return d(max_surrogate)/d(ratio): the advantage where the larger branch is the unclipped one, else 0."""
    flat = clip_saturated(ratio, -advantages, epsilon_low=epsilon_low, epsilon_high=epsilon_high)
    xp = namespace(ratio, advantages)
    return xp.where(flat, xp.zeros_like(ratio * advantages), xp.ones_like(ratio) * advantages)
