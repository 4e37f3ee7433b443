"""Single choices to try in place of the current ones, as data: an id for the link, and the settings it changes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from grpo_core import SURROGATES
from grpo_core.advantages import ESTIMATORS

_BY_SETTING: Mapping[str, tuple[Any, ...]] = {
    "level": ("token", "sequence", "trajectory"),
    "surrogate": tuple(SURROGATES),
    "reduce": ("sequence_mean", "token_mean", "constant", "sequence_sum", "token_sum"),
    "scale": ("group", "none"),
    "ddof": (0, 1),
    "estimator": tuple(name for name in ESTIMATORS if name != "greedy_baseline"),
    "kl": ("k1", "k2", "k3"),
    "klw": ("plain", "weighted"),
    "cut": ("train", "drop"),
}

ALTERNATIVES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        **{f"{name}:{value}": {name: value} for name, values in _BY_SETTING.items() for value in values},
        "clip:symmetric": {"eps_low": 0.2, "eps_high": 0.2},
        "clip:higher": {"eps_low": 0.2, "eps_high": 0.28},
        "clip:open": {"eps_low": 1.0, "eps_high": 10.0, "delta": None},
        "delta:off": {"delta": None},
        "delta:3": {"delta": 3.0},
        "beta:0": {"beta": 0.0},
        "beta:0.04": {"beta": 0.04},
        "beta:0.4": {"beta": 0.4},
        "eps:0": {"eps": 0.0},
        "eps:1e-4": {"eps": 1e-4},
        "eps:0.1": {"eps": 0.1},
    }
)
"""Every alternative by its id. Those that the current settings already choose are not offered."""
