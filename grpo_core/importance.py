"""What each importance ratio corrects: expectations under an old policy, reweighted, against the new policy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from grpo_core.messages import InputError
from grpo_core.policies import Outcomes, expected_reward
from grpo_core.ratios import LEVELS, importance_ratio


def reweighted_rewards(old: Outcomes, new: Outcomes, rewards: Any) -> dict[str, float]:
    r"""Return exact expected rewards: under both policies, and under the old one with each ratio as the weight.

    "old" E_old[R], "new" E_new[R]; "trajectory" E_old[W R], which equals "new" (W the product of the token ratios);
    "sequence" E_old[s R] with the geometric mean s, which equals neither; "token" E_old[mean_t r_t R], the mean of
    completions in which a single token was drawn from the new policy and all the others from the old one, exact where
    all completions are equally long. `old` and `new` list the same outcomes; `rewards` (K,).
    Raises ValueError if the outcomes differ, or an outcome's probability is 0 under the old policy.

    >>> from grpo_core.policies import softmax_outcomes
    >>> a, b = softmax_outcomes(np.log([0.5, 0.5])), softmax_outcomes(np.log([0.8, 0.2]))
    >>> {name: round(value, 6) for name, value in reweighted_rewards(a, b, [1.0, 0.0]).items()}
    {'old': 0.5, 'new': 0.8, 'token': 0.8, 'sequence': 0.8, 'trajectory': 0.8}
    """
    if old.tokens != new.tokens:
        raise InputError("old and new must list the same outcomes; build both with the same tokens and max_length")
    if not np.isfinite(old.logp).all():
        raise InputError("old must give every outcome a positive probability; what it never draws cannot be reweighted")
    paid = np.asarray(rewards, dtype=float)
    found = {"old": expected_reward(old, paid), "new": expected_reward(new, paid)}
    for level in LEVELS:
        ratio = importance_ratio(new.logp, old.logp, old.mask, level=level)
        weight = np.where(old.mask, ratio, 0.0).sum(axis=1) / old.lengths
        found[level] = float(old.probs @ (weight * paid))
    return found
