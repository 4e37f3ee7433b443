"""Where the KL to the reference enters: token by token in the reward (PPO), or beside the policy term (GRPO)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpo_core._arrays import Array, as_data, check_same_shape, namespace, number, stop_gradient
from grpo_core.kl import categorical_kl
from grpo_core.messages import InputError
from grpo_core.policies import Outcomes


def shaped_rewards(reward: float, logp: Array, ref_logp: Array, *, beta: float) -> Array:
    r"""Return one completion's token rewards with the KL inside, -beta (logp - ref_logp), the reward on the last: (T,).

    `logp` (T,) is that of the policy which sampled the completion, in nats. Both it and `ref_logp` are constants here:
    a reward has no gradient. The sum is reward - beta k1 of the whole completion.
    Raises ValueError for shapes that differ, an empty completion and a negative beta.
    Source: DeepSeekMath arXiv:2402.03300 eq. 2, after arXiv:2203.02155.

    >>> shaped_rewards(1.0, [-1.0, -0.5], [-1.5, -0.5], beta=0.1).round(6).tolist()
    [-0.05, 1.0]
    """
    logp, ref_logp = stop_gradient(as_data(logp, "logp")), stop_gradient(as_data(ref_logp, "ref_logp"))
    check_same_shape(logp, ref_logp, "logp", "ref_logp")
    if logp.ndim != 1 or logp.shape[0] == 0:
        raise InputError(
            "logp must hold one completion of at least one token, got shape {shape}", shape=tuple(logp.shape)
        )
    xp = namespace(logp, ref_logp)
    penalty = -number(beta, "beta", low=0.0) * (logp - ref_logp)
    return xp.concat([penalty[:-1], penalty[-1:] + number(reward, "reward")])


@dataclass(frozen=True)
class SequenceKL:
    """The KL between two policies over whole completions, taken apart prefix by prefix, in nats.

    `sequence`: the KL over outcomes. `reach` (S,): the probability that the current policy arrives at each prefix.
    `conditional` (S,): the KL of the next token there. `terms` (S,): their products, which add up to `sequence`.
    """

    sequence: float
    reach: np.ndarray
    conditional: np.ndarray

    @property
    def terms(self) -> np.ndarray:
        """Each prefix's part of the sum, (S,); 0 where it is never reached, even if its own KL is infinite."""
        reached = self.reach > 0
        return np.where(reached, self.reach * np.where(reached, self.conditional, 0.0), 0.0)


def sequence_kl(current: Outcomes, reference: Outcomes) -> SequenceKL:
    r"""Return KL(current, reference) over completions and its parts: sum over prefixes of reach times next-token KL.

    The prefixes are weighted by the *current* policy, which is why averaging token KLs over its own samples gives the
    KL of sequences, and over other samples something else.
    Raises ValueError when the two policies list different outcomes.
    """
    if current.tokens != reference.tokens:
        raise InputError(
            "reference must list the same outcomes as current: build both from the same tokens and max_length"
        )
    reach = np.zeros(len(current.choices))
    rows, columns = np.nonzero(current.mask)
    np.add.at(reach, current.states[rows, columns], current.probs[rows])
    whole = float(categorical_kl(current.probs, reference.probs))
    return SequenceKL(whole, reach, np.asarray(categorical_kl(current.choices, reference.choices)))
