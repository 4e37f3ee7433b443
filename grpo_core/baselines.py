"""Baselines other than the group's mean, and whitening over a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from grpo_core._arrays import Array, as_data, namespace, number
from grpo_core._moments import check_ddof, filled, moments, reward_array, std_of


@dataclass(frozen=True, kw_only=True)
class Whitening:
    """Centring and scaling over all tokens of a batch: (A - mean) / sqrt(variance + eps), each token counted once.

    `floor` True takes sqrt(max(variance, eps)) instead. verl 0.9.1: ddof 1; OpenRLHF 0.11.2: ddof 0 and a floor.
    """

    ddof: int = 1
    eps: float = 1e-8
    floor: bool = False

    def __post_init__(self) -> None:
        check_ddof(self.ddof)
        number(self.eps, "eps", low=0.0)


def length_weighted_advantages(rewards: Array, lengths: Array) -> Array:
    r"""Return OPO's advantages: r_i - sum_j l_j r_j / sum_j l_j, the baseline weighted by the completions' lengths l.

    `rewards` and `lengths` (..., G); unscored completions take no part and get 0, as does a group of equal scores.
    Source: OPO arXiv:2505.23585; verl 0.9.1 'opo'.
    """
    scores = moments(reward_array(rewards))
    xp = namespace(scores.centred, lengths)
    weights = xp.where(scores.scored, as_data(lengths, "lengths"), xp.zeros_like(scores.centred))
    total = xp.sum(weights, axis=-1, keepdims=True)
    # The centred rewards differ from the rewards by a constant, which cancels: equal scores stay exactly 0.
    baseline = xp.sum(weights * scores.centred, axis=-1, keepdims=True) / xp.where(
        total > 0, total, xp.ones_like(total)
    )
    return xp.where(scores.scored, scores.centred - baseline, xp.zeros_like(baseline))


def nonzero_scaled_advantages(rewards: Array) -> Array:
    r"""Return GPG's advantages: alpha (r_i - mean), alpha = completions / completions whose reward is not 0.

    `rewards` (..., G); alpha is over the whole array's scored completions. Groups without signal stay at exactly 0.
    Source: GPG arXiv:2504.02546; verl 0.9.1 'gpg' (its f_norm is 1).
    """
    rewards = reward_array(rewards)
    scores = moments(rewards)
    xp = namespace(rewards)
    nonzero = xp.sum(xp.astype(scores.scored & (rewards != 0), rewards.dtype))
    return scores.centred * (xp.sum(scores.count) / xp.clip(nonzero, 1.0, None))


def best_of_group_advantages(rewards: Array, *, ddof: int = 1, eps: float = 1e-6, scale: str = "group") -> Array:
    r"""Return pass@k advantages: the best completion gets (best - second best) / (std + eps), every other 0.

    `rewards` (..., G); `scale` "none" leaves the difference undivided. A tie for the best, and a group with fewer than
    two scored completions, give 0. Source: arXiv:2503.19595; verl 0.9.1 'grpo_passk'.
    """
    rewards = reward_array(rewards)
    xp = namespace(rewards)
    scores = moments(rewards)
    ranked = xp.where(scores.scored, rewards, xp.full_like(rewards, -math.inf))
    best = xp.max(ranked, axis=-1, keepdims=True)
    is_best = scores.scored & (ranked == best)
    unique = xp.sum(xp.astype(is_best, rewards.dtype), axis=-1, keepdims=True) == 1
    second = xp.max(xp.where(is_best, xp.full_like(ranked, -math.inf), ranked), axis=-1, keepdims=True)
    winner = is_best & unique & (second > -math.inf)
    lead = filled(rewards) - xp.where(second > -math.inf, second, xp.zeros_like(second))
    gap = xp.where(winner, lead, xp.zeros_like(lead))
    divisor = std_of(scores, check_ddof(ddof)) + number(eps, "eps", low=0.0)
    # Equal scores have no gap and, without eps, no divisor either: 0, not 0/0.
    return gap if scale == "none" else gap / xp.where(divisor > 0, divisor, xp.ones_like(divisor))


def whitening_moments(advantages: Array, lengths: Array, scored: Array, *, whitening: Whitening) -> tuple[Array, Array]:
    r"""Return the mean that whitening subtracts and what it divides by, as scalars: moments over the batch's tokens.

    mean = sum_i l_i A_i / sum_i l_i and sqrt(variance + eps), each completion counted with its tokens l_i.
    `advantages`, `lengths` and `scored` (..., G), over the whole array. Source: verl 0.9.1 `masked_whiten`.
    """
    xp = namespace(advantages, lengths)
    weights = xp.where(scored, as_data(lengths, "lengths"), xp.zeros_like(advantages))
    tokens = xp.clip(xp.sum(weights), 1.0, None)
    mean = xp.sum(weights * advantages) / tokens
    variance = xp.sum(weights * (advantages - mean) ** 2) / xp.clip(tokens - whitening.ddof, 1.0, None)
    floor = whitening.eps
    under_root = xp.clip(variance, floor, None) if whitening.floor else variance + floor
    return mean, xp.sqrt(xp.where(under_root > 0, under_root, xp.ones_like(under_root)))


def whiten(advantages: Array, lengths: Array, scored: Array, *, whitening: Whitening) -> Array:
    r"""Return (A - mean) / sqrt(variance + eps), moments over the batch's tokens: a long completion counts more.

    `advantages`, `lengths` and `scored` (..., G), over the whole array; completions that are not scored stay 0.
    """
    mean, divisor = whitening_moments(advantages, lengths, scored, whitening=whitening)
    whitened = (advantages - mean) / divisor
    xp = namespace(whitened)
    return xp.where(scored, whitened, xp.zeros_like(whitened))
