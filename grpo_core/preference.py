"""From the same regularised objective to preferences: Bradley-Terry, DPO, and the policy that is optimal under a KL."""

from __future__ import annotations

from grpo_core._arrays import Array, as_data, check_same_shape, namespace, number, stop_gradient
from grpo_core.kl import categorical_kl, check_distribution
from grpo_core.messages import InputError


def log_sigmoid(x: Array) -> Array:
    """Return log(1 / (1 + exp(-x))) without overflow on either side; any shape.

    >>> log_sigmoid([0.0, -1000.0]).round(6).tolist()
    [-0.693147, -1000.0]
    """
    x = as_data(x, "x")
    xp = namespace(x)
    return -xp.logaddexp(xp.zeros_like(x), -x)


def preference_probability(reward_w: Array, reward_l: Array) -> Array:
    r"""Return Bradley-Terry's probability that the first completion is preferred, sigma(reward_w - reward_l).

    Any one shape. A number added to both rewards changes nothing: preferences say nothing about the reward's level.
    Source: Bradley and Terry 1952.

    >>> round(float(preference_probability([2.0], [1.0])[0]), 6)
    0.731059
    """
    reward_w, reward_l = as_data(reward_w, "reward_w"), as_data(reward_l, "reward_l")
    check_same_shape(reward_w, reward_l, "reward_w", "reward_l")
    return namespace(reward_w, reward_l).exp(log_sigmoid(reward_w - reward_l))


def label_loss(scores: Array, labels: Array) -> Array:
    r"""Return a reward model's loss on single completions, -[y log sigma(s) + (1 - y) log sigma(-s)], of one shape.

    `scores` are the model's, any real numbers; `labels` y in [0, 1] are what a verifier said. The slope of each is
    sigma(s) - y. Raises ValueError for shapes that differ and labels outside [0, 1].
    Source: outcome reward model, Math-Shepherd arXiv:2312.08935 eq. 1.

    >>> label_loss([0.0, 3.0], [1.0, 0.0]).round(6).tolist()
    [0.693147, 3.048587]
    """
    scores, labels = as_data(scores, "scores"), as_data(labels, "labels")
    check_same_shape(scores, labels, "scores", "labels")
    xp = namespace(scores, labels)
    if not bool(xp.all((labels >= 0.0) & (labels <= 1.0))):
        raise InputError("labels must lie in [0, 1]: 1 for a right completion, 0 for a wrong one")
    return -(labels * log_sigmoid(scores) + (1.0 - labels) * log_sigmoid(-scores))


def implicit_reward(logp: Array, ref_logp: Array, *, beta: float) -> Array:
    r"""Return beta (logp - ref_logp), the reward of which the policy is the optimum, up to one number for each prompt.

    `logp` and `ref_logp` are whole completions' log-probabilities in nats, of one shape; `ref_logp` carries no
    gradient. Raises ValueError for shapes that differ or beta not above 0. Source: DPO arXiv:2305.18290 eq. 5.
    """
    logp, ref_logp = as_data(logp, "logp"), as_data(ref_logp, "ref_logp")
    check_same_shape(logp, ref_logp, "logp", "ref_logp")
    return number(beta, "beta", low=0.0, open_low=True) * (logp - stop_gradient(ref_logp))


def dpo_margin(logp_w: Array, ref_logp_w: Array, logp_l: Array, ref_logp_l: Array, *, beta: float) -> Array:
    r"""Return z = beta [(logp_w - ref_logp_w) - (logp_l - ref_logp_l)], by how much each pair's preferred one wins.

    One entry for each pair of a preferred (w) and a rejected (l) completion of the same prompt, all of one shape, in
    nats. The partition function, which depends on the prompt, cancels between the two.

    >>> dpo_margin([-10.0], [-12.0], [-15.0], [-11.0], beta=0.1).round(12).tolist()
    [0.6]
    """
    won, lost = implicit_reward(logp_w, ref_logp_w, beta=beta), implicit_reward(logp_l, ref_logp_l, beta=beta)
    check_same_shape(won, lost, "logp_w", "logp_l")
    return won - lost


def dpo_loss(logp_w: Array, ref_logp_w: Array, logp_l: Array, ref_logp_l: Array, *, beta: float) -> Array:
    r"""Return DPO's loss of each pair, -log sigma(z), z as in `dpo_margin`: log 2 at the reference policy.

    The data are fixed preferences: nothing is sampled from the policy. Source: DPO arXiv:2305.18290 eq. 7.
    """
    return -log_sigmoid(dpo_margin(logp_w, ref_logp_w, logp_l, ref_logp_l, beta=beta))


def dpo_weight(logp_w: Array, ref_logp_w: Array, logp_l: Array, ref_logp_l: Array, *, beta: float) -> Array:
    r"""Return beta sigma(-z): how hard a pair pulls, the size of d(loss)/d(logp_w) = -d(loss)/d(logp_l).

    Pairs that the implicit reward already ranks right fade out. Source: DPO arXiv:2305.18290 sec. 4.
    """
    margin = dpo_margin(logp_w, ref_logp_w, logp_l, ref_logp_l, beta=beta)
    return float(beta) * namespace(margin).exp(log_sigmoid(-margin))


def kl_optimal_policy(reference: Array, rewards: Array, *, beta: float) -> Array:
    r"""Return argmax_p E_p[r] - beta KL(p, reference) = reference exp(r / beta) / Z, over the last axis.

    `reference` probabilities (..., K), `rewards` (..., K). Where the reference is 0 so is the optimum: the KL would be
    infinite. Raises ValueError for shapes that differ, a reference that is not a distribution, beta not above 0.
    Source: DPO arXiv:2305.18290 eq. 4.

    >>> kl_optimal_policy([0.5, 0.5], [1.0, 0.0], beta=1.0).round(6).tolist()
    [0.731059, 0.268941]
    """
    scores, _ = _tilted(reference, rewards, beta)
    xp = namespace(scores)
    return xp.exp(scores - xp.log(xp.sum(xp.exp(scores), axis=-1, keepdims=True)))


def log_partition(reference: Array, rewards: Array, *, beta: float) -> Array:
    r"""Return log Z = log sum_k reference_k exp(r_k / beta) over the last axis. Arguments as in `kl_optimal_policy`.

    beta log Z is the best value that the regularised objective can reach.
    """
    scores, level = _tilted(reference, rewards, beta)
    xp = namespace(scores)
    return level + xp.log(xp.sum(xp.exp(scores), axis=-1))


def regularised_value(policy: Array, reference: Array, rewards: Array, *, beta: float) -> Array:
    r"""Return E_p[r] - beta KL(p, reference) over the last axis, what PPO, GRPO and DPO all maximise.

    It equals beta log Z - beta KL(p, optimum), so that the optimum is `kl_optimal_policy` and no other.
    `policy`, `reference` (..., K) probabilities, `rewards` (..., K).
    """
    policy, rewards = check_distribution(policy, "policy"), as_data(rewards, "rewards")
    check_same_shape(policy, rewards, "policy", "rewards")
    gain = namespace(policy, rewards).sum(policy * rewards, axis=-1)
    return gain - number(beta, "beta", low=0.0, open_low=True) * categorical_kl(policy, reference)


def _tilted(reference: Array, rewards: Array, beta: float) -> tuple[Array, Array]:
    """Return log(reference) + rewards / beta with the level taken out, at most 0, and the level (...)."""
    beta = number(beta, "beta", low=0.0, open_low=True)
    reference, rewards = check_distribution(reference, "reference"), as_data(rewards, "rewards")
    check_same_shape(reference, rewards, "reference", "rewards")
    xp = namespace(reference, rewards)
    if not bool(xp.all(xp.isfinite(rewards))):
        raise InputError("rewards must be finite")
    possible = reference > 0
    lowest = xp.full_like(rewards, -float("inf"))
    # The best possible reward goes first: divided by a small beta, the others would drown log(reference).
    best = xp.max(xp.where(possible, stop_gradient(rewards), lowest), axis=-1)
    above = xp.where(possible, rewards - best[..., None], xp.zeros_like(rewards)) / beta
    logs = xp.log(xp.where(possible, reference, xp.ones_like(reference))) + above
    return xp.where(possible, logs, lowest), best / beta
