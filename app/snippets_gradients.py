"""Python to take away from the Gradients page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.explain import gradients as explain
from app.explain.gradients import Bandit, Chain
from app.snippets_loss import code
from grpo_core import AdvantageSpec


def _list(values: Sequence[float]) -> str:
    return "[" + ", ".join(repr(float(v)) for v in values) + "]"


def _setup(problem: Bandit, names: str) -> str:
    return f"""import numpy as np
from grpo_core import AdvantageSpec
from grpo_core.policies import {names}

outcomes = softmax_outcomes(np.log({_list(problem.probs)}))
rewards = {_list(problem.rewards)}"""


def report(name: str, problem: Bandit) -> str:
    """Return an estimator's expected gradient, its cosine and its variance."""
    spec = explain.spec_of(name)
    if spec is None:
        baseline = "expected_reward(outcomes, rewards)" if name == "critic" else "0.0"
        head = _setup(problem, "baseline_report, expected_reward, softmax_outcomes")
        call = f"baseline_report(outcomes, rewards, baseline={baseline}, group_size={problem.size})"
    else:
        head = _setup(problem, "gradient_report, softmax_outcomes")
        call = f"gradient_report(outcomes, rewards, {code(spec, AdvantageSpec())}, group_size={problem.size})"
    return f"""{head}
found = {call}
print(found.true)
print(found.expected)
print(found.cosine, found.variance)"""


def sizes(problem: Bandit, largest: int) -> str:
    """Return the factor of the group mean for every group size."""
    return f"""{_setup(problem, "gradient_report, softmax_outcomes")}
spec = AdvantageSpec(scale="none")
for size in range(1, {largest + 1}):
    print(size, gradient_report(outcomes, rewards, spec, group_size=size).scale)"""


def baseline(problem: Bandit, own: float) -> str:
    """Return the variance with a baseline, and the best baseline."""
    return f"""{_setup(problem, "baseline_report, optimal_baseline, softmax_outcomes")}
print(baseline_report(outcomes, rewards, baseline={float(own)!r}).variance)
print(optimal_baseline(outcomes, rewards))"""


def _chain(problem: Chain, names: str) -> str:
    return f"""import numpy as np
from grpo_core import AdvantageSpec
from grpo_core.policies import {names}

stop = np.array({_list(problem.stop)})  # probability of ending at each position
logits = np.stack([np.log1p(-stop), np.log(stop)], axis=1)
outcomes = sequence_outcomes(logits, tokens=["a", "EOS"], max_length={len(problem.stop)}, sharing="position")"""


def lengths(name: str, problem: Chain) -> str:
    """Return the expected gradient under each reduction, position by position."""
    spec = explain.spec_of(name)
    options = f"group_size={problem.size}, aggregation=mode, constant={float(len(problem.stop))!r}"
    if spec is None:
        baseline = "expected_reward(outcomes, rewards)" if name == "critic" else "0.0"
        call = f"baseline_report(outcomes, rewards, baseline={baseline}, {options})"
        names = "baseline_report, expected_reward, sequence_outcomes"
    else:
        call = f"gradient_report(outcomes, rewards, {code(spec, AdvantageSpec())}, {options})"
        names = "gradient_report, sequence_outcomes"
    return f"""{_chain(problem, names)}
rewards = {_list(problem.core_rewards)}  # of {", ".join("".join(tokens) for tokens in problem.outcomes.tokens)}
for mode in {explain.REDUCTIONS!r}:
    found = {call}
    print(mode, found.expected.reshape(-1, 2)[:, 1])"""


def togo(problem: Chain, paid: np.ndarray, gamma: float) -> str:
    """Return the three forms' expected gradients and variances."""
    rows = ",\n    ".join(_list(row) for row in paid)
    return f"""{_chain(problem, "return_reports, sequence_outcomes")}
paid = np.array([
    {rows},
])  # what each token of each outcome is paid
for name, found in return_reports(outcomes, paid, gamma={float(gamma)!r}).items():
    print(name, found.expected.reshape(-1, 2)[:, 1], found.variance)"""
