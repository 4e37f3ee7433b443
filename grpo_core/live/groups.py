"""Groups as events carry them: plain data a JSON line, the run store and the core can all read.

A group of a step event holds, with one entry a completion unless said otherwise:

    prompt, answer   texts, one each
    completions      texts
    rewards          what trained; None where the verifier could not say
    reward_parts     {"accuracy": [...], "format": [...]}
    mean, std, kind  of the group's rewards, one each; kind is grpo_core.group_kind's
    advantages       as the update used them
    step_ends        lists of the last token of every step, from 0; only under process supervision, as
    step_rewards     lists of what every step was paid. advantages are then means over the tokens
    lengths, finish  tokens (EOS included); "eos" or "length" (cut off at max_new_tokens: truncated)

and, in the heavy part, one entry a token (EOS included):

    tokens           texts
    old_logp         log-probability when the token was sampled
    logp             log-probability after this step's update (equal to old_logp when the probe is off)
    ref_logp         under the start weights, or None when the probe is off and beta is 0
    entropy          of the distribution the token was sampled from, in nats
    token_advantages as the update used them; only under process supervision
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo_core import Group

HEAVY = ("tokens", "old_logp", "logp", "ref_logp", "entropy", "token_advantages")
"""The per-token entries of a group: kept in the store, left out of a plain JSON line."""


def light_group(group: Mapping[str, Any]) -> dict[str, Any]:
    """Give a group without its per-token entries."""
    return {name: value for name, value in group.items() if name not in HEAVY}


def split_event(event: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Split an event into its light part and, when it has groups, what belongs to that step's groups.

    The ratio picture goes with the groups: like them it is read for one step at a time.
    """
    parts = ("groups", "ratio_histogram")
    light = {name: value for name, value in event.items() if name not in parts}
    if "groups" not in event:
        return light, None
    return light, {"step": event["step"], **{name: event[name] for name in parts if name in event}}


def to_json(data: Mapping[str, Any]) -> str:
    """Write an event as JSON that every reader accepts: a number that is not finite becomes null."""
    try:
        return json.dumps(data, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(data), separators=(",", ":"))


def _finite(value: Any) -> Any:
    """Replace numbers that are not finite by None, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def event_group(group: Mapping[str, Any], *, source: str = "live") -> "Group":
    """Turn a group of an event or of the store into the core's Group, ready for the formula pages."""
    from grpo_core import Group

    return Group(
        prompt=group["prompt"],
        answer=group.get("answer"),
        tokens=_rows(group["tokens"]),
        rewards=tuple(group["rewards"]),
        logp=_rows(group["logp"]),
        old_logp=_rows(group["old_logp"]),
        ref_logp=_rows(group["ref_logp"]) if group.get("ref_logp") is not None else None,
        finish=tuple(group["finish"]),
        reward_parts={name: tuple(values) for name, values in group["reward_parts"].items()},
        source=source,
    )


def _rows(ragged: Sequence[Sequence[Any]]) -> tuple[tuple[Any, ...], ...]:
    """Give ragged lists as tuples."""
    return tuple(tuple(row) for row in ragged)
