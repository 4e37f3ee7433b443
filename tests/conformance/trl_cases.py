"""The table of TRL settings that are compared, and how each reads as an Objective of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grpo_core import Accounting, GroupBatch, Objective, get_recipe, loss_terms
from grpo_core.token_gradients import token_gradients
from tests.conformance.oracle import DEFAULTS, Answer, Data, compute_loss
from tests.support import to_numpy

CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
LOSS_TYPES = (*CLIPPED, "cispo", "sapo", "vespo")
GLOBAL = ("dapo", "cispo", "vespo")


@dataclass(frozen=True)
class Case:
    """One row: a name, TRL's settings, and what is special about the data."""

    name: str
    settings: Mapping[str, Any]
    data: Mapping[str, Any] = field(default_factory=dict)
    trainer: str = "grpo"

    @property
    def loss_type(self) -> str:
        return self.settings["loss_type"] if self.trainer == "grpo" else self.trainer


def _options() -> Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any], tuple[str, ...]]]:
    """Return option -> (settings, data, loss types it applies to)."""
    beta = {"beta": 0.04}
    sequence = {"level": "sequence"}
    return {
        "defaults": ({}, {}, LOSS_TYPES),
        "on-policy, no stored log-probabilities": ({}, {"on_policy": True}, LOSS_TYPES),
        "sequence level": (sequence, {}, LOSS_TYPES),
        "asymmetric clip": ({"epsilon_low": 0.1, "epsilon_high": 0.28}, {}, LOSS_TYPES),
        "asymmetric clip, sequence level": ({"epsilon_low": 0.01, "epsilon_high": 0.02, **sequence}, {}, CLIPPED),
        "epsilon_high 5": ({"epsilon_high": 5.0}, {}, ("cispo",)),
        "delta 3": ({"delta": 3.0}, {}, CLIPPED),
        "delta inside the clip range": ({"delta": 1.1}, {}, CLIPPED),
        "delta 1.5, sequence level": ({"delta": 1.5, **sequence}, {}, CLIPPED),
        "beta with bias correction": (beta, {}, LOSS_TYPES),
        "beta without bias correction": ({**beta, "bias_correction": False}, {}, LOSS_TYPES),
        "beta with bias correction, sequence level": ({**beta, **sequence}, {}, LOSS_TYPES),
        "beta, on-policy": (beta, {"on_policy": True}, LOSS_TYPES),
        "truncated completions masked": (beta, {"truncated": True}, LOSS_TYPES),
        "truncated completions masked, sequence level": (sequence, {"truncated": True}, LOSS_TYPES),
        "every completion masked": (beta, {"all_truncated": True}, LOSS_TYPES),
        "tool tokens masked": (beta, {"tools": True}, LOSS_TYPES),
        "top entropy 0.2": ({"top_entropy_quantile": 0.2, **beta}, {}, LOSS_TYPES),
        "top entropy 0.5, sequence level": ({"top_entropy_quantile": 0.5, **sequence}, {}, LOSS_TYPES),
        "off-policy mask": ({"off_policy_mask_threshold": 0.05, **beta}, {}, LOSS_TYPES),
        "entropy bonus": ({"entropy_coef": 0.01}, {}, LOSS_TYPES),
        "entropy bonus, top entropy 0.5": ({"entropy_coef": 0.01, "top_entropy_quantile": 0.5}, {}, LOSS_TYPES),
        "accumulation 4": ({"micro_batches": 4, "steps_per_generation": 4, **beta}, {}, LOSS_TYPES),
        "accumulation 2 of 8 generation steps": ({"micro_batches": 2, "steps_per_generation": 8}, {}, LOSS_TYPES),
        "accumulation 3, 2 ranks": ({"micro_batches": 3, "steps_per_generation": 3, "processes": 2}, {}, LOSS_TYPES),
        "rollout correction": (
            {"rollout_correction": True, **beta},
            {"rollout": True},
            tuple(t for t in LOSS_TYPES if t != "vespo"),
        ),
        "advantages per token": ({}, {"per_token": True}, tuple(t for t in LOSS_TYPES if t != "vespo")),
        "its own temperatures": ({"sapo": (0.7, 2.0)}, {}, ("sapo",)),
        "its own k and lambda": ({"vespo": (1.0, 0.5, 2.0, 1.5)}, {}, ("vespo",)),
    }


def cases() -> list[Case]:
    """Return every row of the table."""
    rows = [
        Case(name, {"loss_type": loss_type, **settings}, data)
        for name, (settings, data, loss_types) in _options().items()
        for loss_type in loss_types
    ]
    gmpo = [
        Case("defaults", {"loss_type": "grpo"}, {}, "gmpo"),
        Case("wide, asymmetric", {"loss_type": "grpo", "epsilon_low": 0.4, "epsilon_high": 0.6}, {}, "gmpo"),
        Case("beta", {"loss_type": "grpo", "beta": 0.04, "micro_batches": 2}, {}, "gmpo"),
    ]
    rloo = [
        Case("defaults", {"loss_type": "grpo"}, {"gap": 0.1}, "rloo"),
        Case("asymmetric clip", {"loss_type": "grpo", "epsilon_low": 0.1, "epsilon_high": 0.3}, {"gap": 0.1}, "rloo"),
    ]
    return rows + gmpo + rloo


def make_data(case: Case, seed: int, shape: tuple[int, int] = (6, 9)) -> Data:
    """Return one far off-policy micro-batch (ratios from about 0.1 to 8) with what the case asks for."""
    rng = np.random.default_rng([seed, 7])
    lengths = rng.integers(1, shape[1] + 1, shape[0])
    lengths[0] = 1
    mask = np.arange(shape[1])[None] < lengths[:, None]
    if case.data.get("truncated"):
        mask[[2, 4]] = False
    if case.data.get("all_truncated"):
        mask[:] = False
    # TRL holds 0 on masked positions, since the labels there are ignored
    logp, gap, reference = (np.where(mask, x, 0.0) for x in _noise(rng, shape, case.data.get("gap", 0.7)))
    tools = rng.random(shape) < 0.7 if case.data.get("tools") else None
    advantages = rng.normal(size=shape if case.data.get("per_token") else shape[0])
    advantages.flat[-1] = 0.0
    return Data(
        logp=logp,
        old_logp=None if case.data.get("on_policy") else logp - gap,
        ref_logp=logp - reference,
        mask=mask,
        advantages=advantages,
        # float32 numbers, since TRL rounds the entropies to float32 to find their quantile
        entropy=np.where(mask, rng.uniform(0.1, 2.0, shape).astype(np.float32), 0.0).astype(np.float64),
        tokens=int(mask.sum()) * 3 + 1,
        rollout_weights=rng.uniform(0.2, 2.5, shape) if case.data.get("rollout") else None,
        tool_mask=tools,
    )


def _noise(rng: np.random.Generator, shape: tuple[int, int], gap: float) -> tuple[np.ndarray, ...]:
    return -rng.uniform(0.05, 3.0, shape), rng.normal(0.0, gap, shape), rng.normal(0.0, 0.6, shape)


def objective_for(case: Case) -> Objective:
    """Return our reading of the case: the recipe of that name with the case's settings filled in."""
    settings = {**DEFAULTS, **case.settings}
    recipe = get_recipe(f"trl_{case.loss_type}")
    objective = recipe.with_constant(settings["max_completion_length"])
    changes: dict[str, Any] = {
        name: settings[name] for name in ("epsilon_low", "epsilon_high", "beta", "top_entropy_quantile")
    }
    if case.trainer == "grpo":
        changes |= {
            "ratio_level": settings["level"],
            "delta": settings["delta"],
            "kl_ratio_weighted": settings["bias_correction"],
            "off_policy_threshold": settings["off_policy_mask_threshold"],
            "entropy_coefficient": settings["entropy_coef"],
            "entropy_aggregation": "token_mean",
        }
    return objective.replace(**changes, options=_surrogate_options(case, settings, objective))


def _surrogate_options(case: Case, settings: Mapping[str, Any], objective: Objective) -> Mapping[str, Any]:
    if case.loss_type == "cispo":
        return {"weight_low": 0.0, "weight_high": settings["epsilon_high"]}
    if case.loss_type == "sapo":
        return dict(zip(("tau_positive", "tau_negative"), settings["sapo"], strict=True))
    if case.loss_type == "vespo":
        names = ("k_positive", "lambda_positive", "k_negative", "lambda_negative")
        return dict(zip(names, settings["vespo"], strict=True))
    if case.loss_type == "gmpo":
        return {"log_epsilon_low": settings["epsilon_low"], "log_epsilon_high": settings["epsilon_high"]}
    return objective.options


def make_batch(case: Case, data: Data, convert: Any = np.asarray, logp: Any = None) -> GroupBatch:
    """Return the micro-batch as our GroupBatch, with what TRL knows about the step around it."""
    settings = {**DEFAULTS, **case.settings}
    mask = data.mask if data.tool_mask is None else data.mask & data.tool_mask
    logp = convert(data.logp) if logp is None else logp
    return GroupBatch(
        logp=logp,
        old_logp=logp if data.old_logp is None else convert(data.old_logp),
        ref_logp=convert(data.ref_logp) if settings["beta"] else None,
        mask=convert(mask),
        advantages=convert(data.advantages),
        entropy=convert(data.entropy),
        rollout_weights=None if data.rollout_weights is None else convert(data.rollout_weights),
        accounting=Accounting(
            tokens=data.tokens,
            micro_batches=settings["micro_batches"],
            generation_steps=settings["steps_per_generation"],
            processes=settings["processes"],
        ),
    )


def our_answer(case: Case, data: Data) -> tuple[float, float, np.ndarray]:
    """Return our loss by NumPy, our loss by torch, and torch's gradient of it."""
    import torch

    objective = objective_for(case)
    by_numpy = float(loss_terms(make_batch(case, data), objective).loss)
    logp = torch.tensor(data.logp, requires_grad=True)
    loss = loss_terms(make_batch(case, data, torch.tensor, logp), objective).loss
    loss.backward()
    return by_numpy, float(loss.detach()), to_numpy(logp.grad)


def differences(case: Case, *, seeds: int = 4, precision: str = "float64") -> tuple[float, float]:
    """Return the largest relative difference in value and in gradient over a few micro-batches.

    The gradient is compared twice: torch's through our loss, and the closed form that the pages show.
    """
    value, gradient = 0.0, 0.0
    for seed in range(seeds):
        data = make_data(case, seed)
        theirs = compute_loss(data, case.settings, precision=precision, trainer=case.trainer)
        by_numpy, by_torch, slope = our_answer(case, data)
        value = max(value, *(_relative(ours, theirs.loss) for ours in (by_numpy, by_torch)))
        closed = token_gradients(make_batch(case, data), objective_for(case)).total
        gradient = max(gradient, *(gradient_difference(ours, theirs) for ours in (slope, closed)))
    return value, gradient


def _relative(ours: float, theirs: float) -> float:
    return abs(ours - theirs) / max(abs(theirs), 1e-6)


def gradient_difference(slope: np.ndarray, theirs: Answer) -> float:
    """Return the largest difference of any component, relative to the largest component."""
    return float(np.abs(slope - theirs.gradient).max() / max(np.abs(theirs.gradient).max(), 1e-12))
