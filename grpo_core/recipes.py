"""Named algorithms as data: what a paper defines, and what a trainer computes under that name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from grpo_core.advantages import AdvantageSpec, Whitening
from grpo_core.messages import InputError, Message
from grpo_core.objective import Objective


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How groups are made: their size, the sampling temperature, updates on each batch, and dynamic sampling.

    `inner_epochs` is mu, the updates made on one batch of completions; `dynamic` whether groups without signal are
    replaced by sampling more prompts (DAPO).
    """

    group_size: int
    temperature: float = 1.0
    inner_epochs: int = 1
    dynamic: bool = False


@dataclass(frozen=True)
class Source:
    """Where a recipe is defined: a paper with its equation, or a trainer with its version."""

    kind: str  # "paper" | "trainer"
    title: str
    where: str

    def __str__(self) -> str:
        return f"{self.title}, {self.where}"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One algorithm: objective, advantage and sampling as data, with the source that defines them.

    `constant_from`: "max_completion_length" where the aggregation's constant is the run's length limit (fill it in with
    `with_constant`), else None. `training`: further hyperparameters that the source names. `note`: what sets the recipe
    apart, in a sentence or two.
    """

    name: str
    title: str
    objective: Objective
    advantage: AdvantageSpec
    sampling: Sampling
    source: Source
    constant_from: str | None = None
    training: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    def with_constant(self, max_completion_length: float) -> Objective:
        """Return the objective with the run's length limit filled in, where the recipe asks for it."""
        if self.constant_from is None:
            return self.objective
        return self.objective.replace(constant=float(max_completion_length))


_LENGTH_LIMIT = 512.0  # a stand-in (TRL's default max_completion_length) until with_constant fills in the run's own

# What each trainer's configuration means before a recipe changes anything.
_TRL_OBJECTIVE = Objective(kl_ratio_weighted=True)
_TRL_ADVANTAGE = AdvantageSpec(ddof=1, eps=1e-4)
_VERL_OBJECTIVE = Objective(
    delta=3.0,  # dual clip: clip_ratio_c
    log_ratio_cap=20.0,
    kl_log_ratio_cap=20.0,
    kl_value_cap=10.0,
    aggregation="token_mean",
    scope="global",
)
_VERL_ADVANTAGE = AdvantageSpec(ddof=1, eps=1e-6)
_VERL_WHITENING = Whitening(ddof=1, eps=1e-8)
_RLHF_OBJECTIVE = Objective(
    log_ratio_cap=20.0,
    kl_estimator="k1",
    kl_log_ratio_cap=20.0,  # beyond the cap on the value: it only keeps exp, and so k3's gradient, finite
    kl_value_cap=10.0,
    aggregation="token_mean",
    scope="global",
)
_RLHF_WHITENING = Whitening(ddof=0, eps=1e-8, floor=True)
_PAPER_ADVANTAGE = AdvantageSpec(ddof=0, eps=0.0)
_CENTRED = AdvantageSpec(scale="none")


def _paper(name: str, title: str, paper: str, where: str, **parts: Any) -> Recipe:
    parts.setdefault("advantage", _PAPER_ADVANTAGE)
    parts.setdefault("sampling", Sampling(group_size=8))
    return Recipe(name=f"{name}_paper", title=f"{title} (paper)", source=Source("paper", paper, where), **parts)


def _trl(loss_type: str, title: str, note: str, changes: Mapping[str, Any], **parts: Any) -> Recipe:
    parts.setdefault("advantage", _TRL_ADVANTAGE)
    parts.setdefault("source", Source("trainer", "TRL 1.16.0", f"GRPOTrainer, loss_type {loss_type!r}"))
    return Recipe(
        name=f"trl_{loss_type}",
        title=f"{title} (TRL)",
        objective=_TRL_OBJECTIVE.replace(**changes),
        sampling=Sampling(group_size=8),
        note=note,
        **parts,
    )


def _verl(name: str, title: str, note: str, changes: Mapping[str, Any], *, where: str, **parts: Any) -> Recipe:
    parts.setdefault("advantage", _VERL_ADVANTAGE)
    return Recipe(
        name=f"verl_{name}",
        title=f"{title} (verl)",
        objective=_VERL_OBJECTIVE.replace(**changes),
        sampling=Sampling(group_size=8),
        source=Source("trainer", "verl 0.9.1", where),
        note=note,
        **parts,
    )


def _openrlhf(name: str, title: str, note: str, advantage: AdvantageSpec, **changes: Any) -> Recipe:
    return Recipe(
        name=f"openrlhf_{name}",
        title=f"{title} (OpenRLHF)",
        objective=_RLHF_OBJECTIVE.replace(**changes),
        advantage=advantage,
        sampling=Sampling(group_size=8),
        source=Source("trainer", "OpenRLHF 0.11.2", f"advantage estimator {name!r}"),
        note=note,
    )


_LENGTH = "max_completion_length"

_PAPERS = (
    _paper(
        "grpo",
        "GRPO",
        "DeepSeekMath, arXiv:2402.03300",
        "eq. 3 and 4, sec. 4.1.2; settings sec. 4.2",
        objective=Objective(beta=0.04),
        sampling=Sampling(group_size=64),
        training={"learning_rate": 1e-6, "max_completion_length": 1024, "batch_size": 1024, "updates_per_batch": 1},
        note="Clipped ratio, k3 in the loss, mean over tokens and then over completions. No eps beside the std.",
    ),
    _paper(
        "r1",
        "GRPO as in R1-Zero",
        "DeepSeek-R1, arXiv:2501.12948",
        "training details",
        objective=Objective(beta=0.001, epsilon_low=1.0, epsilon_high=10.0),
        sampling=Sampling(group_size=16, inner_epochs=1),
        training={"learning_rate": 3e-6, "max_completion_length": 32768, "batch_size": 512},
        note="The clip ratio is 10, so that hardly anything is clipped from above and nothing from below.",
    ),
    _paper(
        "dr_grpo",
        "Dr. GRPO",
        "Understanding R1-Zero-Like Training, arXiv:2503.20783",
        "sec. 3.2",
        objective=Objective(aggregation="constant", constant=_LENGTH_LIMIT),
        advantage=_CENTRED,
        constant_from=_LENGTH,
        training={"learning_rate": 1e-6, "max_completion_length": 3000},
        note="No division by the std, no division by the completion's own length.",
    ),
    _paper(
        "dapo",
        "DAPO",
        "DAPO, arXiv:2503.14476",
        "eq. 8 to 13",
        objective=Objective(epsilon_high=0.28, aggregation="token_mean", scope="global"),
        sampling=Sampling(group_size=16, dynamic=True, inner_epochs=16),
        training={"learning_rate": 1e-6, "max_completion_length": 20480, "overlong_cache": 4096, "batch_size": 512},
        note="Higher upper clip, every token alike, groups without signal sampled again, no KL.",
    ),
    _paper(
        "gspo",
        "GSPO",
        "GSPO, arXiv:2507.18071",
        "eq. 5 to 7, clip range sec. 5.1",
        objective=Objective(ratio_level="sequence", epsilon_low=3e-4, epsilon_high=4e-4),
        sampling=Sampling(group_size=16, inner_epochs=4),
        note="One ratio for each completion, the geometric mean of its token ratios; the clip range is far smaller.",
    ),
    _paper(
        "rloo",
        "RLOO",
        "Back to Basics, arXiv:2402.14740",
        "the leave-one-out estimator",
        objective=Objective(surrogate="policy_gradient", aggregation="sequence_sum"),
        advantage=AdvantageSpec(estimator="leave_one_out"),
        sampling=Sampling(group_size=4),
        note="REINFORCE on the whole completion, with the other completions' mean reward as baseline.",
    ),
    _paper(
        "reinforce_plus_plus",
        "REINFORCE++",
        "REINFORCE++, arXiv:2501.03262",
        "global normalisation",
        objective=Objective(aggregation="token_mean", scope="global"),
        advantage=AdvantageSpec(estimator="reward", whitening=_VERL_WHITENING),
        sampling=Sampling(group_size=1),
        note="No group at all: the reward is centred and scaled over the whole batch.",
    ),
    _paper(
        "cispo",
        "CISPO",
        "MiniMax-M1, arXiv:2506.13585",
        "the CISPO objective",
        objective=Objective(
            surrogate="cispo",
            options={"weight_low": 0.0, "weight_high": 1.28},
            aggregation="token_mean",
            scope="global",
        ),
        note="The weight is capped, not the term, so a clipped token keeps pulling. The paper names no cap.",
    ),
    _paper(
        "gmpo",
        "GMPO",
        "GMPO, arXiv:2507.20673",
        "the GMPO objective",
        objective=Objective(surrogate="gmpo", options={"log_epsilon_low": 0.4, "log_epsilon_high": 0.4}),
        note="Token ratios are clipped in the log and meet in a geometric mean.",
    ),
    _paper(
        "sapo",
        "SAPO",
        "SAPO, arXiv:2511.20347",
        "the soft gate",
        objective=Objective(surrogate="sapo", options={"tau_positive": 1.0, "tau_negative": 1.05}),
        note="A smooth gate instead of a corner; negative advantages fade a little faster.",
    ),
    _paper(
        "opo",
        "OPO",
        "OPO, arXiv:2505.23585",
        "the optimal reward baseline",
        objective=Objective(surrogate="policy_gradient", aggregation="token_mean", scope="global"),
        advantage=AdvantageSpec(estimator="length_weighted"),
        note="Exactly on-policy, with the length-weighted mean reward as baseline.",
    ),
    _paper(
        "remax",
        "ReMax",
        "ReMax, arXiv:2310.10505",
        "algorithm 1",
        objective=Objective(surrogate="policy_gradient", aggregation="sequence_sum"),
        advantage=AdvantageSpec(estimator="greedy_baseline"),
        sampling=Sampling(group_size=1),
        note="The greedy completion's reward is the baseline: one more completion for each prompt.",
    ),
    _paper(
        "gpg",
        "GPG",
        "GPG, arXiv:2504.02546",
        "the GPG objective",
        objective=Objective(surrogate="policy_gradient", aggregation="token_mean", scope="global"),
        advantage=AdvantageSpec(estimator="nonzero_scaled"),
        note="Policy gradient without ratio or clip; the batch is rescaled by the share that carries reward.",
    ),
    _paper(
        "kl_cov",
        "KL-Cov",
        "The Entropy Mechanism, arXiv:2505.22617",
        "the KL-Cov objective",
        objective=Objective(surrogate="kl_cov", aggregation="token_mean", scope="global"),
        note="Tokens whose probability and advantage rise together are held back, to keep entropy.",
    ),
    _paper(
        "gdpo",
        "GDPO",
        "GDPO, arXiv:2601.05242",
        "decoupled normalisation",
        objective=Objective(aggregation="token_mean", scope="global"),
        advantage=AdvantageSpec(reward_aggregation="normalize_then_sum"),
        note="Each reward function is normalised in its group before the sum, so that none drowns another.",
    ),
)

_TRL = (
    _trl("grpo", "GRPO", "Mean over completions of each completion's token mean.", {}),
    _trl(
        "bnpo",
        "BNPO",
        "Token mean over the micro-batch, so that it depends on how the batch is cut.",
        {"aggregation": "token_mean"},
    ),
    _trl(
        "dr_grpo",
        "Dr. GRPO",
        "Divides by the length limit. The std still divides the advantage unless scale_rewards is 'none'.",
        {"aggregation": "constant", "constant": _LENGTH_LIMIT},
        constant_from=_LENGTH,
    ),
    _trl(
        "dapo",
        "DAPO, the default",
        "Token mean over the whole optimizer step. Clip range, KL and sampling are TRL's defaults, not the paper's.",
        {"aggregation": "token_mean", "scope": "global"},
    ),
    _trl(
        "cispo",
        "CISPO",
        "The cap is epsilon_high itself: with the default 0.2 every weight is 0.2. The documentation advises 5.",
        {
            "surrogate": "cispo",
            "options": {"weight_low": 0.0, "weight_high": 0.2},
            "aggregation": "token_mean",
            "scope": "global",
        },
    ),
    _trl("sapo", "SAPO", "The soft gate, averaged like loss_type 'grpo'.", {"surrogate": "sapo"}),
    _trl(
        "vespo",
        "VESPO",
        "A smooth weight on the whole completion's ratio.",
        {"surrogate": "vespo", "aggregation": "token_mean", "scope": "global"},
    ),
    _trl(
        "luspo",
        "LUSPO",
        "Sequence ratio; each completion's sum, so that a long completion weighs more (arXiv:2602.05261).",
        {"ratio_level": "sequence", "aggregation": "sequence_sum"},
    ),
    _trl(
        "gspo",
        "GSPO",
        "importance_sampling_level 'sequence' with the paper's clip range.",
        {"ratio_level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4},
        source=Source("trainer", "TRL 1.16.0", "GRPOTrainer, importance_sampling_level 'sequence', loss_type 'grpo'"),
    ),
    _trl(
        "gmpo",
        "GMPO",
        "Geometric mean of ratios clipped in the log at epsilon.",
        {"surrogate": "gmpo", "options": {"log_epsilon_low": 0.2, "log_epsilon_high": 0.2}, "kl_ratio_weighted": False},
        source=Source("trainer", "TRL 1.16.0", "experimental GMPOTrainer"),
    ),
    _trl(
        "rloo",
        "RLOO",
        "Leave-one-out baseline with a clipped ratio of the whole completion.",
        {"ratio_level": "trajectory", "aggregation": "sequence_mean", "kl_ratio_weighted": False},
        advantage=AdvantageSpec(estimator="leave_one_out"),
        source=Source("trainer", "TRL 1.16.0", "RLOOTrainer"),
    ),
)

_NO_CLIP = {"delta": None}
_VERL = (
    _verl(
        "grpo",
        "GRPO",
        "Dual clip at 3 and a token mean over the whole step are the defaults.",
        {},
        where="adv_estimator 'grpo', loss_mode 'vanilla'",
    ),
    _verl(
        "dr_grpo",
        "Dr. GRPO",
        "norm_adv_by_std_in_grpo False with loss_agg_mode 'seq-mean-token-sum-norm'.",
        {"aggregation": "constant", "constant": _LENGTH_LIMIT},
        where="adv_estimator 'grpo', seq-mean-token-sum-norm",
        advantage=_CENTRED,
        constant_from=_LENGTH,
    ),
    _verl(
        "rloo",
        "RLOO",
        "Leave-one-out baseline under the clipped loss.",
        {},
        where="adv_estimator 'rloo'",
        advantage=AdvantageSpec(estimator="leave_one_out"),
    ),
    _verl(
        "reinforce_plus_plus",
        "REINFORCE++",
        "The reward, whitened over the batch's tokens.",
        {},
        where="adv_estimator 'reinforce_plus_plus'",
        advantage=AdvantageSpec(estimator="reward", whitening=_VERL_WHITENING),
    ),
    _verl(
        "reinforce_plus_plus_baseline",
        "REINFORCE++ with group baseline",
        "Minus the group's mean, then whitened over the batch's tokens.",
        {},
        where="adv_estimator 'reinforce_plus_plus_baseline'",
        advantage=AdvantageSpec(scale="none", whitening=_VERL_WHITENING),
    ),
    _verl(
        "remax",
        "ReMax",
        "Minus the greedy completion's reward.",
        {},
        where="adv_estimator 'remax'",
        advantage=AdvantageSpec(estimator="greedy_baseline"),
    ),
    _verl(
        "opo",
        "OPO",
        "Minus the length-weighted mean of the group.",
        {},
        where="adv_estimator 'opo'",
        advantage=AdvantageSpec(estimator="length_weighted"),
    ),
    _verl(
        "grpo_passk",
        "pass@k",
        "Only the best completion is pushed, by its lead over the second best.",
        {},
        where="adv_estimator 'grpo_passk'",
        advantage=AdvantageSpec(estimator="best_of_group", eps=1e-6),
    ),
    _verl(
        "gdpo",
        "GDPO",
        "Each reward normalised in its group, the sum whitened over tokens.",
        {},
        where="adv_estimator 'gdpo'",
        advantage=AdvantageSpec(eps=1e-6, reward_aggregation="normalize_then_sum", whitening=_VERL_WHITENING),
    ),
    _verl(
        "gpg",
        "GPG",
        "No ratio, no clip; the batch is rescaled by the share that carries reward.",
        {"surrogate": "policy_gradient", **_NO_CLIP},
        where="adv_estimator and loss_mode 'gpg'",
        advantage=AdvantageSpec(estimator="nonzero_scaled"),
    ),
    _verl(
        "gspo",
        "GSPO",
        "Sequence ratio with the gradient through each token, no dual clip.",
        {
            "ratio_level": "sequence",
            "log_ratio_cap": 10.0,
            "aggregation": "sequence_mean",
            **_NO_CLIP,
        },
        where="loss_mode 'gspo'",
    ),
    _verl(
        "sapo",
        "SAPO",
        "The soft gate, always averaged over tokens and then completions.",
        {"surrogate": "sapo", "aggregation": "sequence_mean", **_NO_CLIP},
        where="loss_mode 'sapo'",
    ),
    _verl(
        "cispo",
        "CISPO",
        "The weight stays within 1 - epsilon_low and 1 + epsilon_high: not TRL's cap.",
        {"surrogate": "cispo", "options": {"weight_low": 0.8, "weight_high": 1.2}, **_NO_CLIP},
        where="loss_mode 'cispo'",
    ),
    _verl(
        "geo_mean",
        "GMPO",
        "Geometric mean of ratios clipped in the log; a plain mean over completions.",
        {
            "surrogate": "gmpo",
            "options": {"log_epsilon_low": 0.2, "log_epsilon_high": 0.2},
            "aggregation": "sequence_mean",
            "scope": "batch",
            **_NO_CLIP,
        },
        where="loss_mode 'geo_mean'",
    ),
    _verl(
        "dppo_tv",
        "DPPO, total variation",
        "A token is dropped once its probability has moved too far.",
        {"surrogate": "dppo_tv", **_NO_CLIP},
        where="loss_mode 'dppo_tv'",
    ),
    _verl(
        "dppo_kl",
        "DPPO, binary KL",
        "A token is dropped once its binary KL is too large.",
        {"surrogate": "dppo_kl", **_NO_CLIP},
        where="loss_mode 'dppo_kl'",
    ),
    _verl(
        "kl_cov",
        "KL-Cov",
        "A penalty on the tokens of largest covariance, no clip.",
        {"surrogate": "kl_cov", **_NO_CLIP},
        where="loss_mode 'kl_cov'",
    ),
    _verl(
        "clip_cov",
        "Clip-Cov",
        "A random few tokens of high covariance are dropped.",
        {"surrogate": "clip_cov", **_NO_CLIP},
        where="loss_mode 'clip_cov'",
    ),
    _verl(
        "dro",
        "DRO",
        "Policy gradient with a quadratic penalty on the log-ratio; dro_beta must be set.",
        {"surrogate": "dro", **_NO_CLIP},
        where="loss_mode 'dro'",
    ),
)

_OPENRLHF = (
    _openrlhf("group_norm", "GRPO", "Sample std with eps 1e-9.", AdvantageSpec(ddof=1, eps=1e-9)),
    _openrlhf(
        "dr_grpo", "Dr. GRPO", "Minus the mean only; the loss still divides by the tokens of the step.", _CENTRED
    ),
    _openrlhf("rloo", "RLOO", "Leave-one-out under the clipped loss.", AdvantageSpec(estimator="leave_one_out")),
    _openrlhf(
        "reinforce_baseline",
        "REINFORCE++ with group baseline",
        "Minus the group's mean, then whitened over the batch's tokens.",
        AdvantageSpec(scale="none", whitening=_RLHF_WHITENING),
    ),
    _openrlhf(
        "reinforce",
        "REINFORCE++",
        "The reward, whitened over the batch's tokens.",
        AdvantageSpec(estimator="reward", whitening=_RLHF_WHITENING),
    ),
    _openrlhf(
        "flash_reinforce",
        "Batch-mean REINFORCE",
        "Minus the mean of the whole batch, not whitened.",
        AdvantageSpec(estimator="batch_mean"),
    ),
)

RECIPES: Mapping[str, Recipe] = MappingProxyType({r.name: r for r in (*_PAPERS, *_TRL, *_VERL, *_OPENRLHF)})
"""Every named algorithm."""


def get_recipe(name: str) -> Recipe:
    """Return the recipe of that name; ValueError that suggests the nearest name otherwise."""
    if name in RECIPES:
        return RECIPES[name]
    near = difflib.get_close_matches(str(name).lower(), RECIPES, n=1, cutoff=0.4)
    known = Message("known recipes: {names}", names=", ".join(RECIPES))
    hint = Message("did you mean {name!r}?", name=near[0]) if near else known
    raise InputError("there is no recipe {name!r}; {hint}", name=name, hint=hint)
