"""TRL's own loss, run on given log-probabilities: GRPOTrainer._compute_loss and its siblings, unchanged.

The trainer's method is called on a plain object that holds only what the method reads. Its forward pass returns fixed
log-probabilities that require a gradient, so that value and gradient are TRL's arithmetic and nothing else.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here needs a model from anywhere
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

DEFAULTS: Mapping[str, Any] = {
    "loss_type": "dapo",
    "level": "token",
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "delta": None,
    "beta": 0.0,
    "bias_correction": True,
    "top_entropy_quantile": 1.0,
    "off_policy_mask_threshold": None,
    "entropy_coef": 0.0,
    "sapo": (1.0, 1.05),
    "vespo": (2.0, 3.0, 3.0, 2.0),
    "max_completion_length": 16,
    "micro_batches": 1,
    "steps_per_generation": 1,
    "processes": 1,
    "rollout_correction": False,
}
"""TRL 1.16's defaults, under the short names that the table of cases uses."""


@dataclass(frozen=True)
class Data:
    """One micro-batch as arrays; `tokens` counts the whole generation batch."""

    logp: np.ndarray
    old_logp: np.ndarray | None
    ref_logp: np.ndarray
    mask: np.ndarray
    advantages: np.ndarray
    entropy: np.ndarray
    tokens: int
    rollout_weights: np.ndarray | None = None
    tool_mask: np.ndarray | None = None


@dataclass(frozen=True)
class Answer:
    """What TRL computed: the loss, its gradient with respect to the log-probabilities, and what it logged."""

    loss: float
    gradient: np.ndarray
    metrics: dict[str, float]


@contextlib.contextmanager
def default_dtype(name: str) -> Iterator[None]:
    """Let Python numbers inside TRL become tensors of this precision (it creates a few on the way)."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, name))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def compute_loss(
    data: Data, settings: Mapping[str, Any], *, precision: str = "float64", trainer: str = "grpo"
) -> Answer:
    """Return what the trainer's `_compute_loss` gives for `data`.

    `precision` is torch's default dtype during the call: "float64" keeps TRL in float64 all the way; "float32" is how
    it runs in a user's process.
    """
    import torch

    settings = {**DEFAULTS, **settings}
    method = _method(trainer)
    with default_dtype(precision):
        logp = torch.tensor(data.logp, dtype=torch.float64, requires_grad=True)
        owner = _owner(settings, logp, torch.tensor(data.entropy, dtype=torch.float64))
        loss = method(owner, None, _inputs(data, settings))
        loss.backward()
    metrics = {name: float(np.mean(values)) for name, values in owner._metrics["train"].items()}
    return Answer(float(loss.detach()), logp.grad.numpy(), metrics)


def _method(trainer: str) -> Any:
    if trainer == "gmpo":
        from trl.experimental.gmpo import GMPOTrainer

        return GMPOTrainer._compute_loss
    from trl import GRPOTrainer, RLOOTrainer

    return (RLOOTrainer if trainer == "rloo" else GRPOTrainer)._compute_loss


def _inputs(data: Data, settings: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    rows, width = data.mask.shape
    mask = torch.tensor(data.mask.astype(np.int64))
    inputs = {
        "prompt_ids": torch.zeros((rows, 1), dtype=torch.int64),
        "prompt_mask": torch.ones((rows, 1), dtype=torch.int64),
        "completion_ids": torch.zeros((rows, width), dtype=torch.int64),
        "completion_mask": mask,
        "advantages": torch.tensor(data.advantages),
        "num_items_in_batch": torch.tensor(data.tokens),
        "ref_per_token_logps": torch.tensor(data.ref_logp),
    }
    if data.old_logp is not None:
        inputs["old_per_token_logps"] = torch.tensor(data.old_logp)
        inputs["old_logps"] = (torch.tensor(data.old_logp) * mask).sum(1)
    if data.tool_mask is not None:
        inputs["tool_mask"] = torch.tensor(data.tool_mask.astype(np.int64))
    if settings["rollout_correction"]:
        inputs["importance_sampling_ratio"] = torch.tensor(data.rollout_weights)
    return inputs


def _owner(settings: Mapping[str, Any], logp: Any, entropy: Any) -> SimpleNamespace:
    """Return the object that stands for the trainer: its settings and one forward pass with a known result."""
    from trl import GRPOTrainer

    sapo, vespo = settings["sapo"], settings["vespo"]
    owner = SimpleNamespace(
        **{name: settings[name] for name in ("loss_type", "epsilon_low", "epsilon_high", "beta", "entropy_coef")},
        **{name: settings[name] for name in ("top_entropy_quantile", "off_policy_mask_threshold")},
        importance_sampling_level=settings["level"],
        max_completion_length=settings["max_completion_length"],
        current_gradient_accumulation_steps=settings["micro_batches"],
        use_vllm=settings["rollout_correction"],
        vllm_importance_sampling_correction=settings["rollout_correction"],
        args=SimpleNamespace(
            use_bias_correction_kl=settings["bias_correction"],
            delta=settings["delta"],
            steps_per_generation=settings["steps_per_generation"],
            **dict(zip(("sapo_temperature_pos", "sapo_temperature_neg"), sapo, strict=True)),
            **dict(zip(("vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg"), vespo, strict=True)),
        ),
        model=SimpleNamespace(training=True),
        accelerator=OneProcess(settings["processes"]),
        aux_loss_enabled=False,
        use_adaptive_entropy=False,
        _entropy_bonus_enabled=settings["entropy_coef"] != 0,
        _metrics=defaultdict(lambda: defaultdict(list)),
        _get_per_token_logps_and_entropies=lambda *_, **__: (logp, entropy, None),
        get_off_policy_mask=GRPOTrainer.get_off_policy_mask,
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
    )
    owner.get_high_entropy_mask = GRPOTrainer.get_high_entropy_mask.__get__(owner)
    return owner


class OneProcess:
    """What an accelerator does for one rank: gathering and reducing return what they are given."""

    sync_gradients = True

    def __init__(self, processes: int) -> None:
        self.num_processes = processes

    def gather(self, tensor: Any) -> Any:
        return tensor

    gather_for_metrics = gather

    def reduce(self, tensor: Any, reduction: str = "sum") -> Any:
        return tensor

    def pad_across_processes(self, tensor: Any, dim: int = 0, pad_index: float = 0) -> Any:
        return tensor
