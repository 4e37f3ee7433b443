"""Mistakes that people really make, built in on purpose, so that a run can show what they do.

shared_graph       the old policy's log-probabilities keep their graph: the ratio is 1 and has no slope
unscored_as_zero   a completion that the verifier could not judge gets reward 0 instead of being left out
mixed_prompts      rows are grouped in the wrong order, so that a group holds completions of different prompts
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from grpo_core import GroupAdvantages


def faulty_rewards(rewards: np.ndarray, fault: str) -> np.ndarray:
    """Give the rewards that train, nan for unscored: as they are, or with 0 in place of nan."""
    return np.nan_to_num(rewards, nan=0.0) if fault == "unscored_as_zero" else rewards


def faulty_advantages(
    rewards: np.ndarray, lengths: np.ndarray, fault: str, advantages: Callable[..., GroupAdvantages]
) -> GroupAdvantages:
    """Advantages of rewards (P, G): each prompt's own, or those of groups that mix prompts. The means and stds that are
    told stay those of each prompt's own completions.
    """
    own = advantages(rewards, lengths)
    if fault != "mixed_prompts":
        return own
    mixed = advantages(_across(rewards), _across(lengths)).advantages
    return replace(own, advantages=mixed.reshape(rewards.shape[::-1]).T)


def _across(values: np.ndarray) -> np.ndarray:
    """(P, G) with one prompt a row, read column by column into rows of G: each row then holds several prompts."""
    return values.T.reshape(values.shape)
