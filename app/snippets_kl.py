"""Python to take away from the KL page's pictures of gradients, of other samples and of the refresh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.explain.kl import OffPolicy, Refresh, Trap
from app.lens import Distributions


def _list(values: Sequence[float]) -> str:
    return "[" + ", ".join(repr(float(v)) for v in values) + "]"


def _policies(both: Distributions) -> str:
    return f"""p = np.array({_list(both.current)})  # current policy
q = np.array({_list(both.reference)})  # reference policy"""


def rounding(d: float) -> str:
    """Return k3 computed with expm1, and written out in 64 and in 32 bits."""
    return f"""import numpy as np
from grpo_core import kl_estimate
from grpo_core.kl import k3_as_written

d = {d!r}
print(kl_estimate([0.0], [d])[0])
print(k3_as_written(np.array([d]))[0], np.exp(d) - 1 - d)
print(k3_as_written(np.array([d], dtype=np.float32))[0])"""


def why(both: Distributions) -> str:
    """Return the three sums behind k3."""
    return f"""import numpy as np
from grpo_core.kl_gradients import estimator_moments, ratio_terms

{_policies(both)}
k1, k3 = (estimator_moments(p, q, estimator=name) for name in ("k1", "k3"))
for terms in (ratio_terms(p, q), k1.terms, k3.terms):
    print(terms, terms.sum())"""


def trap(one: Trap) -> str:
    """Return both gradients, the estimator's mean gradient, and its cosine with the first."""
    return f"""import numpy as np
from grpo_core import expected_kl, kl_gradient, reverse_kl_gradient
from grpo_core.policies import cosine

{_policies(one.both)}
forward, reverse = kl_gradient(p, q), reverse_kl_gradient(p, q)
mean = expected_kl(p, q, estimator={one.estimator!r}).gradient  # samples frozen
for gradient in (forward, reverse, mean):
    print(gradient)
print(cosine(forward, reverse), cosine(mean, forward))"""


def off_policy(one: OffPolicy) -> str:
    """Return every weighting's mean and mean gradient, and the truth."""
    return f"""import numpy as np
from grpo_core import categorical_kl, expected_kl, kl_gradient
from grpo_core.kl_gradients import WEIGHTINGS

old = np.array({_list(one.old)})  # the policy that sampled
{_policies(one.both)}
print("exact", categorical_kl(p, q), kl_gradient(p, q))
for weighting in WEIGHTINGS:
    found = expected_kl(p, q, old, estimator={one.estimator!r}, weighting=weighting, cap={one.cap!r})
    print(weighting, found.value, found.gradient)"""


def refresh(one: Refresh) -> str:
    """Return where the three runs end."""
    runs: list[Any] = [(beta, every) for beta, every in one.runs]
    return f"""from grpo_core.kl_refresh import penalised_paths

start = {_list(one.start)}
rewards = {_list(one.rewards)}
runs = {runs!r}  # (beta, refresh the reference every N steps)
paths = penalised_paths(start, rewards, runs=runs, learning_rate={one.rate!r}, steps={one.steps})
print("expected reward", paths.reward[:, -1])
print("KL to the first reference", paths.from_start[:, -1])
print("KL to the reference in force", paths.penalty[:, -1])"""
