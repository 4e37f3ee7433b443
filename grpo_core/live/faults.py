"""Mistakes that people really make, built in on purpose, so that a run can show what they do.

shared_graph       the old policy's log-probabilities keep their graph: the ratio is 1 and has no slope
unscored_as_zero   a completion that the verifier could not judge gets reward 0 instead of being left out
"""

import numpy as np

FAULTS = ("none", "shared_graph", "unscored_as_zero")


def faulty_rewards(rewards: np.ndarray, fault: str) -> np.ndarray:
    """Give the rewards that train, nan for unscored: as they are, or with 0 in place of nan."""
    return np.nan_to_num(rewards, nan=0.0) if fault == "unscored_as_zero" else rewards
