"""Python to take away: each snippet runs as it stands with grpo_core and prints the number that the page shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app import snippets_loss
from app.lens import Distributions, Lens, Parts
from grpo_core import AdvantageSpec


def _list(values: Any) -> str:
    return "[" + ", ".join("None" if v is None else repr(float(v)) for v in values) + "]"


def advantages(lens: Lens) -> str:
    """Return the advantages of the group."""
    s = lens.spec
    if s.estimator not in ("group", "leave_one_out") or s.whitening is not None or lens.group.reward_parts:
        return _any_advantages(lens)
    return f"""from grpo_core import AdvantageSpec, as_rewards, compute_advantages

rewards = as_rewards({_list(lens.group.rewards)})
spec = AdvantageSpec(estimator={s.estimator!r}, ddof={s.ddof}, eps={s.eps!r}, scale={s.scale!r})
result = compute_advantages(rewards, spec)
print(result.advantages)"""


def _any_advantages(lens: Lens) -> str:
    """Return the advantages of an estimator that needs more than the rewards: lengths, parts, the greedy reward."""
    return f"""{snippets_loss.imports(lens)}

group = Group.from_json({snippets_loss.group_json(lens)!r})
spec = {snippets_loss.code(lens.spec, AdvantageSpec())}
print(group.advantages(spec, greedy_reward={float(lens.values["greedy"])!r}).advantages)"""


def binary(q: float) -> str:
    """Return the advantages of a success and a failure at success rate q."""
    return f"""import numpy as np
from grpo_core import binary_advantages

success, failure = binary_advantages(np.array([{q!r}]))
print(success[0], failure[0])"""


def mixed(p: float, size: int, unscored: float = 0.0) -> str:
    """Return the probability of a mixed group, of every kind if some completions are unscored."""
    if unscored:
        return f"""from grpo_core import kind_probabilities

for kind, chance in kind_probabilities({p!r}, {size}, unscored={unscored!r}).items():
    print(kind, float(chance))"""
    return f"""from grpo_core import mixed_group_probability

print(float(mixed_group_probability({p!r}, {size})))"""


def clip(probe: Any, clip_range: Mapping[str, Any]) -> str:
    """Return objective and slope at one ratio."""
    options = ", ".join(f"{name}={value!r}" for name, value in clip_range.items())
    return f"""import numpy as np
from grpo_core import clipped_slope, clipped_surrogate

ratio, advantage = np.array([{probe.ratio!r}]), np.array([{float(probe.advantage)!r}])
print(clipped_surrogate(ratio, advantage, {options})[0])
print(clipped_slope(ratio, advantage, {options})[0])"""


def drift(token: float, tokens: int) -> str:
    """Return the three ratios of a completion whose tokens all have the same ratio."""
    return f"""import numpy as np
from grpo_core import importance_ratio

logp = np.full((1, {tokens}), np.log({token!r}))  # current minus old, in nats
mask = np.ones((1, {tokens}), dtype=bool)
for level in ("token", "sequence", "trajectory"):
    print(level, importance_ratio(logp, 0 * logp, mask, level=level)[0, 0])"""


def graph(advantage: float) -> str:
    """Return the two slopes at ratio 1, by automatic differentiation."""
    return f"""import torch
from grpo_core import clipped_surrogate, importance_ratio

advantage = torch.tensor([[{float(advantage)!r}]], dtype=torch.float64)
mask = torch.ones((1, 1), dtype=torch.bool)

frozen = torch.tensor([[-1.0]], dtype=torch.float64, requires_grad=True)
clipped_surrogate(importance_ratio(frozen, frozen.detach(), mask), advantage).sum().backward()

shared = torch.tensor([[-1.0]], dtype=torch.float64, requires_grad=True)
torch.exp(shared - shared).mul(advantage).sum().backward()  # the mistake, written out

print(frozen.grad.item(), shared.grad.item())"""


def kl(d: float) -> str:
    """Return the three estimates at one log-ratio."""
    return f"""import numpy as np
from grpo_core import kl_estimate

logp, ref_logp = np.array([0.0]), np.array([{d!r}])  # only their difference matters
for estimator in ("k1", "k2", "k3"):
    print(estimator, kl_estimate(logp, ref_logp, estimator=estimator)[0])"""


def expectation(both: Distributions) -> str:
    """Return the exact divergence and each estimator's expectation."""
    return f"""import numpy as np
from grpo_core import categorical_kl, kl_estimate

p = np.array({_list(both.current)})  # current policy
q = np.array({_list(both.reference)})  # reference policy
print("exact", categorical_kl(p, q))
seen = p > 0
with np.errstate(divide="ignore"):
    for estimator in ("k1", "k2", "k3"):
        k = kl_estimate(np.log(p[seen]), np.log(q[seen]), estimator=estimator)
        print(estimator, float((p[seen] * k).sum()))"""


def reduction(lens: Lens) -> str:
    """Return the loss from token losses and weights."""
    lengths, o = list(lens.trained), lens.objective  # tokens that do not train have no weight, so they are left out
    constant = f", constant={float(o.constant)!r}" if o.aggregation == "constant" and o.constant else ""
    mask = np.asarray(lens.terms.mask)
    terms = [[round(float(v), 6) for v in row[own]] for row, own in zip(lens.terms.per_token, mask, strict=True)]
    return f"""import numpy as np
from grpo_core import token_weights, weighted_sum

lengths = {lengths}
token_losses = {terms}
mask = np.arange(max(*lengths, 1))[None, :] < np.array(lengths)[:, None]
terms = np.zeros(mask.shape)
for row, losses in zip(terms, token_losses):
    row[: len(losses)] = losses
weights = token_weights(mask, mode={o.aggregation!r}{constant})
print(weighted_sum(terms, weights))"""


def parts(lens: Lens, split: Parts) -> str:
    """Return the loss when each micro-batch, each rank, or the whole batch divides by its own tokens."""
    part = [k for k, rows in enumerate(split.members) for _ in rows]
    terms = [[round(float(v), 6) for v in lens.row(lens.terms.per_token, i)] for i in range(lens.group.size)]
    mask = [[bool(v) for v in lens.row(lens.terms.mask, i)] for i in range(lens.group.size)]
    return f"""import numpy as np
from grpo_core import mean_of_means_weights, token_weights, weighted_sum

token_losses = {terms}
trains = {mask}
micro_batch = {part}  # of each completion
rank = {[k // split.each for k in part]}
shape = (len(trains), max(map(len, trains)) or 1)
terms, mask = np.zeros(shape), np.zeros(shape, dtype=bool)
for i, (losses, own) in enumerate(zip(token_losses, trains)):
    terms[i, : len(losses)], mask[i, : len(own)] = losses, own
print("mean of micro-batches", weighted_sum(terms, mean_of_means_weights(mask, micro_batch)))
print("mean of ranks        ", weighted_sum(terms, mean_of_means_weights(mask, rank)))
print("true token mean      ", weighted_sum(terms, token_weights(mask, mode="token_mean")))"""


def loss(lens: Lens) -> str:
    """Return the loss of the whole group."""
    return snippets_loss.loss(lens)
