"""Where two losses differ, choice by choice, read from the data that defines them; and how to take some over."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from grpo_core.advantages import AdvantageSpec
from grpo_core.objective import Objective
from grpo_core.surrogates import SURROGATES

_DIVIDED = ("group", "best_of_group")
_KL = ("kl_estimator", "kl_ratio_weighted", "kl_log_ratio_cap", "kl_value_cap")


@dataclass(frozen=True)
class Difference:
    """One choice that differs: a field of `part` ("objective", "advantage", "sampling"), or an option of a surrogate.

    `idle` says why it changes nothing here, or is "": "beta" (no KL term on either side), "surrogate" (neither one
    reads it), "aggregation", "estimator", "scale", "accounting" (matters only when a step has several micro-batches or
    ranks), "extreme" (a bound that ratios rarely reach), "sampling" (acts before there is a group).
    """

    part: str
    name: str
    first: Any
    second: Any
    idle: str = ""


def objective_differences(first: Objective, second: Objective) -> list[Difference]:
    """Return the choices in which two objectives differ, in the order of their fields.

    >>> [d.name for d in objective_differences(Objective(), Objective(epsilon_high=0.28, aggregation="token_mean"))]
    ['epsilon_high', 'aggregation']
    """
    ours, theirs = _flat(first), _flat(second)
    names = [*ours, *(name for name in theirs if name not in ours)]
    return [
        Difference("objective", name, ours.get(name), theirs.get(name), _objective_idle(name, first, second))
        for name in names
        if ours.get(name) != theirs.get(name)
    ]


def advantage_differences(first: AdvantageSpec, second: AdvantageSpec) -> list[Difference]:
    """Return the choices in which two advantage definitions differ.

    >>> [(d.name, d.idle) for d in advantage_differences(AdvantageSpec(), AdvantageSpec(scale="none", ddof=0))]
    [('ddof', ''), ('scale', '')]
    """
    return [
        dataclasses.replace(each, idle=_advantage_idle(each.name, first, second))
        for each in _differences("advantage", first, second)
    ]


def sampling_differences(first: Any, second: Any) -> list[Difference]:
    """Return in what two recipes' `sampling` differ: that acts before there is a group, not on its loss."""
    return [dataclasses.replace(each, idle="sampling") for each in _differences("sampling", first, second)]


def take(first: Objective, second: Objective, names: Collection[str]) -> Objective:
    """Return `first` with the choices `names` of `second`; a surrogate brings its own options along.

    >>> take(Objective(), Objective(beta=0.1, epsilon_high=0.28), ["epsilon_high"]) == Objective(epsilon_high=0.28)
    True
    """
    fields = {field.name for field in dataclasses.fields(Objective)} - {"options"}
    changes = {name: getattr(second, name) for name in names if name in fields}
    surrogate = changes.get("surrogate", first.surrogate)
    options = dict(second.options if surrogate != first.surrogate else first.options)
    theirs = second.surrogate_parameters() if surrogate == second.surrogate else {}
    options |= {name: theirs[name] for name in names if name in theirs and name not in fields}
    return first.replace(**changes, options=options)


def take_advantage(first: AdvantageSpec, second: AdvantageSpec, names: Collection[str]) -> AdvantageSpec:
    """Return `first` with the choices `names` of `second`."""
    fields = {field.name for field in dataclasses.fields(AdvantageSpec)}
    return dataclasses.replace(first, **{name: getattr(second, name) for name in names if name in fields})


def choice_names() -> tuple[str, ...]:
    """Return every name that a difference in an objective or an advantage definition can have."""
    fields = [f.name for kind in (Objective, AdvantageSpec) for f in dataclasses.fields(kind) if f.name != "options"]
    options = [name for surrogate in SURROGATES.values() for name in surrogate.parameters]
    return tuple(dict.fromkeys([*fields, *options]))


def _differences(part: str, first: Any, second: Any) -> Iterator[Difference]:
    for field in dataclasses.fields(first):
        ours, theirs = getattr(first, field.name), getattr(second, field.name)
        if ours != theirs:
            yield Difference(part, field.name, ours, theirs)


def _flat(objective: Objective) -> dict[str, Any]:
    """Return an objective's choices with its surrogate's own options among them."""
    fields = [field.name for field in dataclasses.fields(objective) if field.name != "options"]
    flat = {name: getattr(objective, name) for name in fields}
    return {**flat, **{k: v for k, v in objective.surrogate_parameters().items() if k not in flat}}


def _objective_idle(name: str, first: Objective, second: Objective) -> str:
    both = (first, second)
    if name in _KL and not any(o.beta > 0 for o in both):
        return "beta"
    if name in ("epsilon_low", "epsilon_high", "delta"):
        return "" if any(name in SURROGATES[o.surrogate].parameters for o in both) else "surrogate"
    if name == "constant" and not any(o.aggregation == "constant" for o in both):
        return "aggregation"
    return {"scope": "accounting", "log_ratio_cap": "extreme", "kl_log_ratio_cap": "extreme"}.get(name, "")


def _advantage_idle(name: str, first: AdvantageSpec, second: AdvantageSpec) -> str:
    divided = [a for a in (first, second) if a.estimator in _DIVIDED]
    if name == "scale":
        return "" if divided else "estimator"
    if name in ("ddof", "eps"):
        return "" if any(a.scale != "none" for a in divided) else "scale" if divided else "estimator"
    return ""
