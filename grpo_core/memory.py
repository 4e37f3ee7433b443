"""What the models of PPO, DPO and GRPO take in memory: weights, gradients, optimizer state; no activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from grpo_core._arrays import number, one_of
from grpo_core.messages import InputError

TRAINED = ("policy", "value")
"""The roles that are trained; the others are only asked."""


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Bytes that one parameter takes: weight and, where it is trained, gradient, float32 copy, Adam's moments."""

    weights: float
    gradients: float
    master: float
    adam: float


PRECISIONS: Mapping[str, Precision] = MappingProxyType(
    {
        "mixed": Precision(weights=2, gradients=2, master=4, adam=8),
        "bf16": Precision(weights=2, gradients=2, master=0, adam=4),
        "fp32": Precision(weights=4, gradients=4, master=0, adam=8),
    }
)
"""Mixed precision is ZeRO's 2 + 2 + 12 bytes (arXiv:1910.02054 sec. 3.1). A frozen model takes its weights only."""

METHODS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ppo": ("policy", "reference", "reward", "value"),
        "grpo_model": ("policy", "reference", "reward"),
        "grpo": ("policy", "reference"),
        "grpo_free": ("policy",),
        "dpo": ("policy", "reference"),
    }
)
"""The models a method holds. "grpo_model" asks a reward model, "grpo" a rule; "grpo_free" has no reference (beta 0)."""


@dataclass(frozen=True)
class ModelMemory:
    """What one model takes, in bytes. A frozen model has neither gradients nor optimizer state."""

    role: str
    weights: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        """All of it, in bytes."""
        return self.weights + self.gradients + self.optimizer


def model_memory(role: str, parameters: float, *, precision: str = "mixed") -> ModelMemory:
    """Return what a model of `parameters` parameters takes in its role, in bytes; "policy" and "value" are trained.

    Raises ValueError for a negative number of parameters and for names that are not in PRECISIONS or METHODS.

    >>> model_memory("policy", 7e9).total / 1e9, model_memory("reference", 7e9).total / 1e9
    (112.0, 14.0)
    """
    roles = METHODS["ppo"]
    one_of(role, "role", roles)
    count = number(parameters, "parameters", low=0.0)
    each = PRECISIONS[one_of(precision, "precision", tuple(PRECISIONS))]
    if role not in TRAINED:
        return ModelMemory(role, count * each.weights, 0.0, 0.0)
    return ModelMemory(role, count * each.weights, count * each.gradients, count * (each.master + each.adam))


def training_memory(method: str, parameters: Mapping[str, float], *, precision: str = "mixed") -> list[ModelMemory]:
    """Return what each model of a method takes, in bytes. `parameters` gives each role's number of parameters.

    A role that `parameters` does not name is as large as the policy. Raises ValueError for an unknown method, and for
    `parameters` without a policy.

    >>> [m.role for m in training_memory("grpo_free", {"policy": 7e9})]
    ['policy']
    """
    one_of(method, "method", tuple(METHODS))
    if "policy" not in parameters:
        raise InputError("parameters must name at least 'policy', got {names}", names=sorted(parameters))
    return [
        model_memory(role, parameters.get(role, parameters["policy"]), precision=precision) for role in METHODS[method]
    ]
