"""Python to take away from the Ratio and clip page."""

from __future__ import annotations

from typing import Any

import numpy as np

from app import lens as lenses
from app.explain.clip_epochs import Epochs
from app.explain.clip_levels import Identity, Pulls
from app.explain.clip_regions import plain_range
from app.explain.clip_surrogates import Drawn
from app.figures.clip_regions import Side
from app.lens import Lens
from app.snippets_loss import code
from grpo_core import Objective


def _array(values: Any) -> str:
    return "np.array(" + repr(np.asarray(values).tolist()) + ")"


def _surrogate_only(objective: Objective) -> Objective:
    """Return what a curve depends on, without choices that one token does not see."""
    return Objective(
        surrogate=objective.surrogate, options=dict(objective.options), epsilon_low=objective.epsilon_low,
        epsilon_high=objective.epsilon_high, delta=objective.delta,
    )  # fmt: skip


def surrogate(one: Drawn) -> str:
    """Return a surrogate's value, its gradient and the slope of its value at the probe."""
    return f"""import numpy as np
from grpo_core import Objective
from grpo_core.surrogate_curves import surrogate_curve

objective = {code(_surrogate_only(one.objective), Objective())}
ratio, advantage, old_logp = (np.array([x]) for x in ({one.at.ratio!r}, {one.at.advantage!r}, {one.at.old_logp!r}))
at = surrogate_curve(ratio, advantage, old_logp, objective)
print(at.objective[0], at.gradient[0], at.value_slope[0])  # J, dJ/dlogp as trained, dJ/dlog r of the value"""


def regions(lens: Lens) -> str:
    """Return the tokens in each region of the clip."""
    options = ", ".join(f"{name}={value!r}" for name, value in lenses.clip_range(lens.values).items())
    mask = lens.terms.mask
    advantages = np.asarray(lens.batch.advantages).reshape(len(mask), -1)
    return f"""import numpy as np
from grpo_core.clip_regions import clip_regions

ratio = {_array(np.where(mask, lens.terms.ratio, 1.0).round(6))}
advantages = {_array(advantages.round(6))}
mask = {_array(mask)}
found = clip_regions(ratio, advantages, mask, {options})
for (sign, side), count in found.counts.items():
    print(sign, side, count, "without gradient:", found.saturated[sign, side])"""


def minmax(lens: Lens, side: Side) -> str:
    """Return min and max at the probe, with their slopes."""
    options = ", ".join(f"{name}={value!r}" for name, value in plain_range(lens).items())
    return f"""import numpy as np
from grpo_core import clipped_slope, clipped_surrogate
from grpo_core.clip_regions import max_slope, max_surrogate

ratio, advantage = np.array([{float(lens.values["r"])!r}]), np.array([{float(side.right.advantage)!r}])
print(clipped_surrogate(ratio, advantage, {options})[0], clipped_slope(ratio, advantage, {options})[0])
print(max_surrogate(ratio, advantage, {options})[0], max_slope(ratio, advantage, {options})[0])  # the mistake"""


def epochs(lens: Lens, both: Epochs) -> str:
    """Return the ratios and the KL after each update."""
    return f"""import numpy as np
from grpo_core import Objective
from grpo_core.inner_epochs import inner_epochs

probs = {_array(both.probs)}  # each completion once, and everything that was not drawn
advantages = {_array(both.advantages)}
objective = {code(_surrogate_only(lens.objective), Objective())}
steps = {{"epochs": {both.updates}, "learning_rate": {float(lens.values["lr"])!r}}}
done = inner_epochs(np.log(probs), np.arange(len(advantages)), advantages, objective, **steps)
print(done.clip_ratios.mean(), done.ratios[-1], done.kl[-1])"""


def pulls(own: Pulls) -> str:
    """Return the pull on one token under GSPO and under Dr. GRPO, times G and divided by the advantage."""
    return f"""import numpy as np
from grpo_core import GroupBatch, Objective
from grpo_core.token_gradients import token_gradients

logp = np.full((1, {own.length}), np.log({own.token!r}))  # current minus old, in nats
batch = GroupBatch(logp, 0 * logp, None, logp < 1, np.ones(1))
gspo = Objective(ratio_level="sequence", epsilon_low=1.0, epsilon_high=1e6)  # no clip
dr_grpo = Objective(aggregation="constant", constant={own.constant!r}, epsilon_low=1.0, epsilon_high=1e6)
for objective in (gspo, dr_grpo):
    print(-token_gradients(batch, objective).policy[0, 0])"""


def identity(one: Identity) -> str:
    """Return the expectations under each ratio."""
    return f"""import numpy as np
from grpo_core import sequence_outcomes
from grpo_core.importance import reweighted_rewards

old, new = {_array(one.old)}, {_array(one.new)}  # probability of a right step
options = {{"tokens": ["right", "EOS"], "max_length": len(old), "sharing": "position"}}
old, new = (sequence_outcomes(np.log(np.stack([p, 1 - p], axis=1)), **options) for p in (old, new))
rewards = [float("EOS" not in tokens) for tokens in old.tokens]
for name, value in reweighted_rewards(old, new, rewards).items():
    print(name, value)"""
