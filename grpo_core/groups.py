"""Group: one prompt with its completions. GroupBatch: padded arrays of one or more groups, ready for the loss."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from grpo_core._arrays import Array, check_mask, check_same_shape
from grpo_core._moments import as_rewards
from grpo_core.advantages import (
    AdvantageSpec,
    GroupAdvantages,
    compute_advantages,
    group_kind,
    multi_reward_advantages,
)
from grpo_core.messages import InputError

FINISHES = ("eos", "length", "unknown")
MAX_COMPLETIONS = 4096
MAX_TOKENS = 1_000_000


@dataclass(frozen=True)
class Group:
    """One prompt with its G completions, as ragged tuples with one entry for each completion.

    `tokens`: each completion's token strings, its EOS included. `rewards`: numbers, or None if it could not be scored.
    `logp`, `old_logp`, `ref_logp`: log-probabilities (nats) of the tokens under the current, old and reference policy;
    `old_logp` defaults to `logp` (on-policy), `ref_logp` may be None. `mask`: False for tokens that must not train
    (default: all True). `finish`: "eos", "length" (truncated) or "unknown". `reward_parts`: named components of the
    reward, recorded separately. `answer` and `source` are only shown.

    Raises ValueError, naming the field, the completion and the remedy, for anything that does not fit together.
    """

    prompt: str
    tokens: tuple[tuple[str, ...], ...]
    rewards: tuple[float | None, ...]
    logp: tuple[tuple[float, ...], ...]
    old_logp: tuple[tuple[float, ...], ...] | None = None
    ref_logp: tuple[tuple[float, ...], ...] | None = None
    mask: tuple[tuple[bool, ...], ...] | None = None
    finish: tuple[str, ...] | None = None
    answer: str | None = None
    reward_parts: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("prompt", "source"):
            _require(
                isinstance(getattr(self, name), str),
                "{name} must be text, got {value!r:.80}",
                name=name,
                value=getattr(self, name),
            )
        _require(
            self.answer is None or isinstance(self.answer, str),
            "answer must be text, got {answer!r:.80}",
            answer=self.answer,
        )
        tokens = _text_rows(self.tokens)
        object.__setattr__(self, "tokens", tokens)
        lengths = [len(row) for row in tokens]
        object.__setattr__(self, "logp", _number_rows(self.logp, "logp", lengths))
        old = self.logp if self.old_logp is None else self.old_logp
        object.__setattr__(self, "old_logp", _number_rows(old, "old_logp", lengths))
        if self.ref_logp is not None:
            object.__setattr__(self, "ref_logp", _number_rows(self.ref_logp, "ref_logp", lengths))
        object.__setattr__(self, "mask", _mask_rows(self.mask, lengths))
        object.__setattr__(self, "finish", _finishes(self.finish, len(tokens)))
        object.__setattr__(self, "rewards", _scores(self.rewards, "rewards", len(tokens)))
        parts = {str(k): _scores(v, f"reward_parts[{k!r}]", len(tokens)) for k, v in self.reward_parts.items()}
        object.__setattr__(self, "reward_parts", parts)

    @property
    def size(self) -> int:
        """The group size G."""
        return len(self.tokens)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens that train, for each completion."""
        return tuple(sum(row) for row in self.mask or ())

    @property
    def kind(self) -> str:
        """The group's kind: "mixed", "all-right", "all-wrong" or "unscored"."""
        return group_kind(list(self.rewards))

    @property
    def completions(self) -> tuple[str, ...]:
        """The completions as text."""
        return tuple("".join(row) for row in self.tokens)

    @property
    def truncated(self) -> tuple[bool, ...]:
        """Which completions were cut at the length limit."""
        return tuple(reason == "length" for reason in self.finish or ())

    @cached_property
    def reward_array(self) -> np.ndarray:
        """The rewards as float64 (G,), nan for unscored."""
        return as_rewards(list(self.rewards))

    def advantages(self, spec: AdvantageSpec, *, greedy_reward: float | None = None) -> GroupAdvantages:
        """Return the group's advantages under `spec`; the group is a batch of its own.

        Lengths are the group's. "normalize_then_sum" takes `reward_parts` with weight 1 each, or the reward itself if
        it has no parts. `greedy_reward`, of the prompt's greedy completion, is needed by "greedy_baseline" only.
        """
        greedy = None if greedy_reward is None else np.asarray(float(greedy_reward))
        return _advantages(self.reward_array, np.asarray(self.lengths), self._part_array(), spec, greedy)

    def _part_array(self) -> np.ndarray:
        parts = list(self.reward_parts.values()) or [self.rewards]
        return np.stack([as_rewards(list(part)) for part in parts], axis=-1)

    def replace(self, **changes: Any) -> Group:
        """Return a copy with some fields changed; everything is checked again."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Return the group as plain JSON data; fields that hold their default are left out."""
        lists = {name: [list(row) for row in getattr(self, name)] for name in ("tokens", "logp")}
        data: dict[str, Any] = {"prompt": self.prompt, **lists, "rewards": list(self.rewards)}
        if self.old_logp != self.logp:
            data["old_logp"] = [list(row) for row in self.old_logp or ()]
        if self.ref_logp is not None:
            data["ref_logp"] = [list(row) for row in self.ref_logp]
        if not all(all(row) for row in self.mask or ()):
            data["mask"] = [list(row) for row in self.mask or ()]
        if any(reason != "unknown" for reason in self.finish or ()):
            data["finish"] = list(self.finish or ())
        if self.reward_parts:
            data["reward_parts"] = {name: list(values) for name, values in self.reward_parts.items()}
        data.update({k: v for k, v in (("answer", self.answer), ("source", self.source)) if v})
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str) -> Group:
        """Return the group that `data` describes: the form of `to_json`, as a dict or as JSON text.

        Raises ValueError that says what is missing, unknown or wrong.
        """
        if isinstance(data, str):
            try:
                data = json.loads(data)
            except (ValueError, RecursionError) as error:
                raise InputError("the group is not valid JSON: {error}", error=error) from error
        if not isinstance(data, Mapping):
            raise InputError("a group must be a JSON object, got {kind}", kind=type(data).__name__)
        missing = sorted({"prompt", "tokens", "rewards", "logp"} - set(data))
        _require(not missing, "the group lacks {names}", names=", ".join(missing))
        unknown = sorted(set(data) - set(cls.__dataclass_fields__))
        _require(not unknown, "the group has unknown fields: {names}", names=", ".join(map(str, unknown))[:200])
        _require(isinstance(data.get("reward_parts", {}), Mapping), "reward_parts must be an object of lists")
        return cls(**data)


def _require(condition: bool, template: str, /, **values: Any) -> None:
    if not condition:
        raise InputError(template, **values)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _text_rows(rows: Any) -> tuple[tuple[str, ...], ...]:
    _require(_is_list(rows) and len(rows) > 0, "tokens must list at least one completion")
    _require(
        len(rows) <= MAX_COMPLETIONS,
        "tokens must hold at most {max_completions} completions, got {got}",
        max_completions=MAX_COMPLETIONS,
        got=len(rows),
    )
    for i, row in enumerate(rows):
        good = _is_list(row) and all(isinstance(token, str) for token in row)
        _require(good, "tokens[{i}] must be a list of strings, got {row!r:.80}", i=i, row=row)
    total = sum(len(row) for row in rows)
    _require(
        total <= MAX_TOKENS,
        "tokens must hold at most {max_tokens} tokens in all, got {total}",
        max_tokens=MAX_TOKENS,
        total=total,
    )
    return tuple(tuple(row) for row in rows)


def _number_rows(rows: Any, name: str, lengths: list[int]) -> tuple[tuple[float, ...], ...]:
    _require(_is_list(rows) and len(rows) == len(lengths), "{name} must have one list for each completion", name=name)
    return tuple(
        _number_row(row, f"{name}[{i}]", length) for i, (row, length) in enumerate(zip(rows, lengths, strict=True))
    )


def _number_row(row: Any, name: str, length: int) -> tuple[float, ...]:
    _require(
        _is_list(row) and len(row) == length,
        "{name} must have one number for each of the {length} tokens",
        name=name,
        length=length,
    )
    try:
        values = tuple(float(value) for value in row if isinstance(value, Real))
    except OverflowError:  # an int beyond a float's range
        values = ()
    _require(len(values) == length, "{name} must hold numbers, got {row!r:.80}", name=name, row=row)
    bad = [value for value in values if not -math.inf < value <= 1e-6]
    _require(
        not bad, "{name} must hold finite log-probabilities (at most 0, in nats), got {value}", name=name, value=bad[:1]
    )
    return values


def _mask_rows(mask: Any, lengths: list[int]) -> tuple[tuple[bool, ...], ...]:
    if mask is None:
        return tuple((True,) * length for length in lengths)
    _require(_is_list(mask) and len(mask) == len(lengths), "mask must have one list for each completion")
    for i, (row, length) in enumerate(zip(mask, lengths, strict=True)):
        good = _is_list(row) and len(row) == length and all(isinstance(x, bool | np.bool_) for x in row)
        _require(
            good,
            "mask[{i}] must hold true or false for each of the {length} tokens, got {row!r:.80}",
            i=i,
            length=length,
            row=row,
        )
    return tuple(tuple(bool(x) for x in row) for row in mask)


def _finishes(finish: Any, size: int) -> tuple[str, ...]:
    if finish is None:
        return ("unknown",) * size
    good = _is_list(finish) and len(finish) == size and all(reason in FINISHES for reason in finish)
    _require(
        good,
        "finish must hold one of {accepted} for each completion, got {finish!r:.80}",
        accepted=", ".join(FINISHES),
        finish=finish,
    )
    return tuple(finish)


def _scores(values: Any, name: str, size: int) -> tuple[float | None, ...]:
    _require(
        _is_list(values) and len(values) == size,
        "{name} must have one entry for each of the {size} completions",
        name=name,
        size=size,
    )
    _require(
        not any(map(_is_list, values)),
        "{name} must hold one number, or None, for each completion, not lists",
        name=name,
    )
    checked = as_rewards(list(values), name)
    return tuple(None if math.isnan(value) else float(value) for value in checked)


@dataclass(frozen=True)
class Accounting:
    """What a trainer knows beyond one micro-batch, for normalisers that need it.

    `tokens`: tokens that train in the whole generation batch, over all processes (TRL's num_items_in_batch);
    `sequences`: completions of the whole optimizer step over all processes (verl's global batch size);
    `micro_batches`: micro-batches of this optimizer step (gradient accumulation); `generation_steps`: micro-batches
    the generation batch was cut into; `processes`: ranks.
    """

    tokens: float | None = None
    sequences: float | None = None
    micro_batches: int = 1
    generation_steps: int = 1
    processes: int = 1

    def __post_init__(self) -> None:
        for name in ("micro_batches", "generation_steps", "processes"):
            value = getattr(self, name)
            _require(
                isinstance(value, int) and value >= 1,
                "{name} must be a whole number of at least 1, got {value!r}",
                name=name,
                value=value,
            )
        for name in ("tokens", "sequences"):
            count = getattr(self, name)
            _require(count is None or count >= 0, "{name} must not be negative, got {count!r}", name=name, count=count)


@dataclass(frozen=True)
class GroupBatch:
    """Padded arrays of B completions: what a loss is computed from.

    `logp`, `old_logp` (B, T) and `ref_logp` (B, T) or None, in nats; `mask` boolean (B, T); `advantages` (B,) or
    (B, T). `entropy` (B, T), `truncated` boolean (B,) and `accounting` are needed by some objectives only.
    `rollout_weights` (B, T) or (B, 1) multiply the policy term (see masks.rollout_weights); `uniform` (B, T) are random
    numbers in [0, 1) for objectives that draw tokens. NumPy or torch; only `logp` and `entropy` are differentiated.
    """

    logp: Array
    old_logp: Array
    ref_logp: Array | None
    mask: Array
    advantages: Array
    entropy: Array | None = None
    truncated: Array | None = None
    accounting: Accounting = Accounting()
    rollout_weights: Array | None = None
    uniform: Array | None = None

    def __post_init__(self) -> None:
        check_mask(self.mask)
        for name in ("logp", "old_logp", "ref_logp", "entropy", "uniform"):
            if getattr(self, name) is not None:
                check_same_shape(self.mask, getattr(self, name), "mask", name)
        shape, rows = tuple(self.advantages.shape), tuple(self.mask.shape)[:1]
        _require(
            shape in (rows, (*rows, 1), tuple(self.mask.shape)),
            "advantages must be (B,) or (B, T), got {shape}",
            shape=shape,
        )
        _require(
            self.truncated is None or tuple(self.truncated.shape) == rows,
            "truncated must have one entry for each completion",
        )

    @classmethod
    def from_groups(
        cls,
        groups: Sequence[Group],
        spec: AdvantageSpec,
        *,
        xp: Any = np,
        greedy_rewards: Sequence[float] | None = None,
    ) -> GroupBatch:
        """Return one padded float64 batch of all completions, with each group's advantages under `spec`.

        `greedy_rewards`, one for each group, are needed by the estimator "greedy_baseline" only.
        """
        _require(len(groups) > 0, "groups must hold at least one group")
        mask = _padded([row for g in groups for row in g.mask or ()], bool)
        has_ref = all(g.ref_logp is not None for g in groups)
        return cls(
            logp=xp.asarray(_padded([row for g in groups for row in g.logp], float)),
            old_logp=xp.asarray(_padded([row for g in groups for row in g.old_logp or ()], float)),
            ref_logp=xp.asarray(_padded([row for g in groups for row in g.ref_logp or ()], float)) if has_ref else None,
            mask=xp.asarray(mask),
            advantages=xp.asarray(grouped_advantages(groups, spec, greedy_rewards=greedy_rewards)),
            truncated=xp.asarray(np.array([cut for g in groups for cut in g.truncated], dtype=bool)),
        )


def grouped_advantages(
    groups: Sequence[Group], spec: AdvantageSpec, *, greedy_rewards: Sequence[float] | None = None
) -> np.ndarray:
    """Return the advantages (B,) of all completions of `groups`, whatever the groups' sizes.

    Lengths and reward parts are the groups' own, as in `Group.advantages`; `greedy_rewards` has one number a group.
    """
    widest = max(group.size for group in groups)
    rewards, lengths = np.full((len(groups), widest), np.nan), np.zeros((len(groups), widest))
    for i, group in enumerate(groups):
        rewards[i, : group.size], lengths[i, : group.size] = group.reward_array, group.lengths
    greedy = None if greedy_rewards is None else np.asarray(greedy_rewards, dtype=np.float64)
    advantages = _advantages(rewards, lengths, _padded_parts(groups, widest, spec), spec, greedy).advantages
    return np.concatenate([row[: group.size] for row, group in zip(advantages, groups, strict=True)])


def _padded_parts(groups: Sequence[Group], widest: int, spec: AdvantageSpec) -> np.ndarray | None:
    if spec.reward_aggregation != "normalize_then_sum":
        return None
    names = list(groups[0].reward_parts)
    same = all(list(group.reward_parts) == names for group in groups)
    _require(same, "groups must all have the same reward_parts when each is normalised before the sum")
    parts = np.full((len(groups), widest, max(len(names), 1)), np.nan)
    for i, group in enumerate(groups):
        parts[i, : group.size] = group._part_array()
    return parts


def _advantages(
    rewards: np.ndarray,
    lengths: np.ndarray,
    parts: np.ndarray | None,
    spec: AdvantageSpec,
    greedy: np.ndarray | None,
) -> GroupAdvantages:
    if spec.reward_aggregation == "normalize_then_sum" and parts is not None:
        return multi_reward_advantages(parts, spec, lengths=lengths)
    return compute_advantages(rewards, spec, lengths=lengths, greedy_rewards=greedy)


def _padded(rows: Sequence[Sequence[Any]], dtype: Any) -> np.ndarray:
    result = np.zeros((len(rows), max(1, *(len(row) for row in rows))), dtype=dtype)
    for target, row in zip(result, rows, strict=True):
        target[: len(row)] = row
    return result
