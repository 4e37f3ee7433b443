"""Python to take away: each snippet runs as it stands with grpo_core and prints the number that the page shows."""

from __future__ import annotations

from typing import Any

from app.lens import Lens


def _list(values: Any) -> str:
    return "[" + ", ".join("None" if v is None else repr(float(v)) for v in values) + "]"


def advantages(lens: Lens) -> str:
    """Return the advantages of the group."""
    s = lens.spec
    return f"""from grpo_core import AdvantageSpec, as_rewards, compute_advantages

rewards = as_rewards({_list(lens.group.rewards)})
spec = AdvantageSpec(estimator={s.estimator!r}, ddof={s.ddof}, eps={s.eps!r}, scale={s.scale!r})
result = compute_advantages(rewards, spec)
print(result.advantages)"""


def binary(q: float) -> str:
    """Return the advantages of a success and a failure at success rate q."""
    return f"""import numpy as np
from grpo_core import binary_advantages

success, failure = binary_advantages(np.array([{q!r}]))
print(success[0], failure[0])"""


def mixed(p: float, size: int) -> str:
    """Return the probability of a mixed group."""
    return f"""from grpo_core import mixed_group_probability

print(float(mixed_group_probability({p!r}, {size})))"""
