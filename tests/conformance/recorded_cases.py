"""What verl and OpenRLHF computed (recorded/*.json) and how each setting reads as an Objective of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from grpo_core import (
    Accounting,
    GroupBatch,
    Objective,
    compute_advantages,
    get_recipe,
    loss_terms,
    multi_reward_advantages,
)
from grpo_core.token_gradients import token_gradients
from tests.support import to_numpy

RECORDED = Path(__file__).parent / "recorded"


def recording(name: str) -> dict[str, Any]:
    """Return one package's recording."""
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))


VERL = recording("verl")
OPENRLHF = recording("openrlhf")

VERL_AGGREGATIONS: Mapping[str, Mapping[str, Any]] = {
    "token-mean": {"aggregation": "token_mean"},
    "token-sum": {"aggregation": "token_sum"},
    "seq-mean-token-sum": {"aggregation": "sequence_sum"},
    "seq-mean-token-sum-norm": {"aggregation": "constant"},
    "seq-mean-token-mean": {"aggregation": "sequence_mean"},
}
VERL_RECIPES = {"vanilla": "verl_grpo"}
VERL_OPTIONS = {
    "clip_cov_ratio": "share",
    "clip_cov_lb": "covariance_low",
    "clip_cov_ub": "covariance_high",
    "kl_cov_ratio": "share",
    "ppo_kl_coef": "coefficient",
    "dro_beta": "dro_beta",
    "tau_pos": "tau_positive",
    "tau_neg": "tau_negative",
}


def verl_objective(record: Mapping[str, Any]) -> Objective:
    """Return our reading of one of verl's losses: its recipe with the recorded settings filled in."""
    mode, options = record["mode"], record["options"]
    objective = get_recipe(VERL_RECIPES.get(mode, f"verl_{mode}")).objective
    low, high = options.get("clip_ratio_low", 0.2), options.get("clip_ratio_high", 0.2)
    own = {ours: options[theirs] for theirs, ours in VERL_OPTIONS.items() if theirs in options}
    if mode == "cispo":
        own = {"weight_low": 1.0 - low, "weight_high": 1.0 + high}
    if mode == "geo_mean":
        own = {"log_epsilon_low": low, "log_epsilon_high": high}
    if mode.startswith("dppo"):
        own = {"threshold_low": low, "threshold_high": high, "weight_cap": options.get("clip_ratio_c", 3.0)}
    changes: dict[str, Any] = {"options": {**objective.options, **own}}
    if mode in ("vanilla", "gspo", "clip_cov"):
        changes |= {"epsilon_low": low, "epsilon_high": high}
    if mode == "vanilla":
        changes["delta"] = options.get("clip_ratio_c", 3.0)
    if mode in ("vanilla", "gspo"):
        changes |= VERL_AGGREGATIONS[record["aggregation"]]
    if changes.get("aggregation") == "constant":
        changes["constant"] = 40 if record["step"] else len(VERL["batches"]["0"]["mask"][0])
    return objective.replace(**changes)


def openrlhf_objective(record: Mapping[str, Any]) -> Objective:
    """Return our reading of one setting of OpenRLHF's PolicyLoss."""
    options = record["options"]
    changes = {
        "epsilon_low": options.get("clip_eps_low", 0.2),
        "epsilon_high": options.get("clip_eps_high", 0.2),
        "delta": options.get("dual_clip"),
    }
    if options.get("policy_loss_type") == "gspo":
        changes["ratio_level"] = "sequence"
    if "policy_loss_type" in options or not options.get("token_level_loss", True):
        changes["aggregation"] = "sequence_mean"
    return get_recipe("openrlhf_group_norm").objective.replace(**changes)


def step_around(data: Mapping[str, Any], *, ranks: int) -> Accounting:
    """Return the counts of the optimizer step that a recorded micro-batch was a part of."""
    return Accounting(tokens=data["tokens"], sequences=data["sequences"], processes=ranks)


def make_batch(
    data: Mapping[str, Any],
    accounting: Accounting | None = None,
    *,
    convert: Any = np.asarray,
    logp: Any = None,
) -> GroupBatch:
    """Return a recorded micro-batch, alone unless `accounting` says what is around it."""
    mask = np.asarray(data["mask"])
    arrays = {name: convert(np.asarray(data[name])) for name in ("old_logp", "ref_logp", "advantages")}
    return GroupBatch(
        logp=convert(np.asarray(data["logp"])) if logp is None else logp,
        mask=convert(mask),
        uniform=convert(np.full(mask.shape, 0.5)),
        accounting=accounting or Accounting(),
        **arrays,
    )


def differences(
    record: Mapping[str, Any], data: Mapping[str, Any], objective: Objective, accounting: Accounting | None = None
) -> tuple[float, float]:
    """Return the relative difference in value (NumPy, torch) and in gradient (torch, closed form), the larger each."""
    import torch

    by_numpy = float(loss_terms(make_batch(data, accounting), objective).loss)
    logp = torch.tensor(data["logp"], dtype=torch.float64, requires_grad=True)
    loss = loss_terms(make_batch(data, accounting, convert=torch.tensor, logp=logp), objective).loss
    loss.backward()
    value = max(abs(ours - record["value"]) for ours in (by_numpy, float(loss.detach())))
    gradient = np.asarray(record["gradient"])
    closed = token_gradients(make_batch(data, accounting), objective).total
    slope = max(np.abs(ours - gradient).max() for ours in (to_numpy(logp.grad), closed))
    return value / max(abs(record["value"]), 1e-6), float(slope / max(np.abs(gradient).max(), 1e-12))


def loss_differences(package: Mapping[str, Any], record: Mapping[str, Any]) -> tuple[float, float]:
    """Return the differences for one recorded loss."""
    data = package["batches"][record["batch"]]
    read = verl_objective if package["package"] == "verl" else openrlhf_objective
    return differences(record, data, read(record), step_around(data, ranks=2) if record["step"] else None)


def kl_differences(package: Mapping[str, Any], record: Mapping[str, Any]) -> tuple[float, float]:
    """Return the differences for one recorded KL term: our loss with zero advantages and beta 1."""
    names = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}
    base = record["kind"].removesuffix("+")
    estimator = names.get(base, base) + record["kind"][len(base) :]
    recipe = "verl_grpo" if package["package"] == "verl" else "openrlhf_group_norm"
    objective = get_recipe(recipe).objective.replace(beta=1.0, kl_estimator=estimator)
    if package["package"] == "verl" and base != "low_var_kl":
        objective = objective.replace(kl_value_cap=None, kl_log_ratio_cap=None)  # verl clamps its k3 alone
    data = package["batches"][record["batch"]]
    flat = {**data, "advantages": [0.0] * len(data["advantages"])}
    accounting = step_around(data, ranks=1) if package["package"] == "verl" else None
    return differences(record, flat, objective, accounting)


def our_advantages(package: Mapping[str, Any], record: Mapping[str, Any]) -> np.ndarray:
    """Return our advantages per completion for one recorded estimator."""
    data, name = package["batches"][record["batch"]], record["estimator"]
    spec = get_recipe(f"{package['package']}_{name.removesuffix('_vectorized')}").advantage
    shape = (-1, 4)
    lengths = np.asarray(data["mask"]).sum(axis=1).reshape(shape).astype(float)
    rewards = np.asarray(data["rewards"]).reshape(shape)
    if name == "gdpo":
        parts = np.stack([rewards, np.asarray(data["second_rewards"]).reshape(shape)], axis=-1)
        return multi_reward_advantages(parts, spec, weights=[1.0, 0.5], lengths=lengths).advantages.ravel()
    greedy = np.asarray(data["greedy_rewards"]).reshape(shape)[:, 0]
    return compute_advantages(rewards, spec, lengths=lengths, greedy_rewards=greedy).advantages.ravel()


def advantage_difference(package: Mapping[str, Any], record: Mapping[str, Any]) -> float:
    """Return the largest difference of any advantage, relative to the largest."""
    theirs = np.asarray(record["advantages"])
    return float(np.abs(our_advantages(package, record) - theirs).max() / max(np.abs(theirs).max(), 1e-12))
