"""Metrics and groups to findings: what is wrong with a run, how that shows, and what cannot be told.

A finding has no words of its own: its name and its numbers fill the texts that belong to them. Rules are data; each is
a pure function of the metrics it needs. A rule whose metrics are missing, or too few, says "cannot tell" and why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from grpo_core.answers import extract_answer, same_answer
from grpo_core.groups import Group

FOUND, CLEAR, CANNOT_TELL = "found", "clear", "cannot tell"
SEVERITIES = ("bad", "warning", "note")
"""bad: the run does not do what it is for; warning: look at it; note: no defect, but worth knowing."""

ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "reward": ("reward", "reward_mean", "critic/score/mean", "critic/rewards/mean"),
        "evaluation": ("sampled_accuracy", "accuracy", "eval_accuracy", "eval_reward", "eval_rewards/accuracy/mean"),
        "accuracy": ("rewards/accuracy/mean", "rewards/accuracy_reward/mean"),
        "format": ("rewards/format/mean", "rewards/format_reward/mean"),
        "dead_groups": ("frac_reward_zero_std",),
        "all_right": ("groups/all-right",),
        "all_wrong": ("groups/all-wrong",),
        "mixed": ("groups/mixed",),
        "unscored": ("completions/unscored_ratio",),
        "length": ("completions/mean_length", "response_length/mean", "completion_length"),
        "truncated": ("completions/clipped_ratio", "response_length/clip_ratio"),
        "entropy": ("entropy", "actor/entropy", "actor/entropy_loss"),
        "kl": ("kl", "actor/kl_loss", "actor/reward_kl_penalty"),
        "kl_old": ("kl_old", "actor/ppo_kl"),
        "clip": ("clip_ratio/region_mean", "clip_ratio", "actor/pg_clipfrac"),
        "loss": ("loss", "actor/pg_loss"),
        "grad_norm": ("grad_norm", "actor/grad_norm"),
        "learning_rate": ("learning_rate", "actor/lr"),
    }
)
"""What a metric is called here, and in logs of this trainer, TRL and verl; the first that is there counts."""


SHARES = ("dead_groups", "unscored", "truncated", "clip", "evaluation", "accuracy", "format", "groups")
"""What is a share between 0 and 1: to be written in percent."""


@dataclass(frozen=True)
class Reading:
    """A number and where it stands: the mean (or the value) of a metric over the steps first..last.

    `name` is a key of ALIASES, or "groups" for a share of the completions looked at; `metric` what the log calls it.
    """

    name: str
    metric: str
    first: int
    last: int
    value: float

    @property
    def is_share(self) -> bool:
        """Whether the value is to be written in percent."""
        return self.name in SHARES


@dataclass(frozen=True)
class Finding:
    """What one rule says of a run.

    `status` "found", "clear" or "cannot tell". Of a found one: `name` the symptom, key of the texts on symptom, cause
    and remedy; `severity` "bad", "warning" or "note"; `metric` the curve it is seen on, by its name in the log;
    `evidence` readings by role, with the numbers of the texts. `missing`: the metrics (or "points") that were wanting.
    """

    rule: str
    status: str
    name: str = ""
    severity: str = ""
    metric: str = ""
    evidence: Mapping[str, Reading] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers of the texts: {role} is a reading's value, {role_step} the last step that it covers."""
        found: dict[str, float] = {}
        for role, reading in self.evidence.items():
            found |= {role: reading.value, f"{role}_step": float(reading.last)}
        return found


@dataclass(frozen=True)
class Series:
    """One metric over the steps at which it was logged: `steps` and `values`, both (N,)."""

    name: str
    metric: str
    steps: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def over(self, low: float, high: float) -> Reading:
        """Return the mean over a part of the points, given as shares of their number; at least one point."""
        start = min(int(low * len(self)), len(self) - 1)
        end = max(start + 1, math.ceil(high * len(self)))
        return self._reading(start, end, float(self.values[start:end].mean()))

    @cached_property
    def early(self) -> Reading:
        """The mean over the first tenth."""
        return self.over(0.0, 0.1)

    @cached_property
    def late(self) -> Reading:
        """The mean over the last fifth."""
        return self.over(0.8, 1.0)

    @cached_property
    def peak(self) -> Reading:
        """The largest mean over a tenth of the points, so that one lucky batch is no peak."""
        width = max(1, len(self) // 10)
        means = np.convolve(self.values, np.full(width, 1.0 / width), mode="valid")
        start = int(means.argmax())
        return self._reading(start, start + width, float(means[start]))

    @cached_property
    def noise(self) -> float:
        """The spread around the curve: from the median step between neighbours, which a jump or two cannot stretch."""
        steps = np.abs(np.diff(self.values))
        return float(np.median(steps)) / (0.6745 * math.sqrt(2.0)) if len(steps) else 0.0

    @cached_property
    def largest(self) -> Reading:
        """The largest single value."""
        i = int(self.values.argmax())
        return self._reading(i, i + 1, float(self.values[i]))

    def median(self, low: float = 0.0, high: float = 1.0) -> Reading:
        """Return the median over a part of the points."""
        start, end = int(low * len(self)), max(1, math.ceil(high * len(self)))
        return self._reading(start, end, float(np.median(self.values[start:end])))

    def upto(self, step: int) -> Series:
        """Return the part up to a step, that one included."""
        kept = self.steps <= step
        return Series(self.name, self.metric, self.steps[kept], self.values[kept])

    def _reading(self, start: int, end: int, value: float) -> Reading:
        return Reading(self.name, self.metric, int(self.steps[start]), int(self.steps[end - 1]), value)


@dataclass(frozen=True)
class Evidence:
    """All that a diagnosis may look at: log rows as dictionaries, groups, and the run's settings where they are known.

    Rows without a step are counted instead. A metric that is not finite somewhere keeps its finite values; `broken`
    says where it was not.
    """

    rows: Sequence[Mapping[str, Any]]
    groups: Sequence[Group] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def series(self, name: str) -> Series | None:
        """Return the metric of that name (a key of ALIASES), None if no row has it."""
        return self._all.get(name)

    @cached_property
    def broken(self) -> dict[str, int]:
        """The first step at which loss or gradient norm was not a finite number, by name."""
        found: dict[str, int] = {}
        for name in ("loss", "grad_norm"):
            for alias in ALIASES[name]:
                points = self._points(alias)
                bad = [step for step, value in points if not math.isfinite(value)]
                if bad:
                    found.setdefault(name, bad[0])
        return found

    @cached_property
    def _all(self) -> dict[str, Series]:
        found = {}
        for name, aliases in ALIASES.items():
            for alias in aliases:
                points = [(step, value) for step, value in self._points(alias) if math.isfinite(value)]
                if points:
                    steps, values = zip(*points, strict=True)
                    found[name] = Series(name, alias, np.asarray(steps), np.asarray(values, dtype=float))
                    break
        return found

    def _points(self, metric: str) -> list[tuple[int, float]]:
        return [
            (_step(row, i), float(row[metric]))
            for i, row in enumerate(self.rows)
            if isinstance(row.get(metric), int | float) and not isinstance(row.get(metric), bool)
        ]


def _step(row: Mapping[str, Any], position: int) -> int:
    for name in ("step", "global_step", "training/global_step"):
        if isinstance(row.get(name), int | float):
            return int(row[name])
    return position + 1


Found = tuple[str, str, str, dict[str, Reading]]
"""What a rule finds: name, severity, the metric (a key of ALIASES) it is seen on, readings by role."""


@dataclass(frozen=True)
class Rule:
    """One symptom as data: what it needs to know, its limits, and the function that looks.

    `names`: the findings it can make. `needs`: keys of ALIASES without which it cannot tell, or "groups". `points`: how
    many values each of them needs.
    """

    name: str
    names: tuple[str, ...]
    needs: tuple[str, ...]
    find: Callable[[Evidence, Mapping[str, float]], Found | None]
    limits: Mapping[str, float] = field(default_factory=dict)
    points: int = 10


def diagnose(
    rows: Sequence[Mapping[str, Any]],
    groups: Sequence[Group] = (),
    *,
    settings: Mapping[str, Any] | None = None,
) -> list[Finding]:
    """Return what every rule says of a run: found ones first, the worst on top, then what cannot be told, then clear.

    `rows`: one dictionary for each log line, in order, with the step and numbers by metric (ALIASES lists the names
    that are understood). `groups`: completions to look at, usually those of the newest steps. `settings`: what is known
    of the run's settings, by RunConfig's names (inner_epochs, beta); what is not there counts as unknown.
    """
    evidence = Evidence(list(rows), list(groups), dict(settings or {}))
    return sorted((apply(rule, evidence) for rule in RULES), key=_rank)


def _rank(finding: Finding) -> tuple[int, int]:
    order = (FOUND, CANNOT_TELL, CLEAR).index(finding.status)
    return order, SEVERITIES.index(finding.severity) if finding.severity else 0


def apply(rule: Rule, evidence: Evidence) -> Finding:
    """Return what one rule says: found, clear, or cannot tell with what is missing."""
    missing = tuple(name for name in rule.needs if not _there(name, evidence))
    if missing:
        return Finding(rule.name, CANNOT_TELL, missing=missing)
    if any(name != "groups" and len(evidence.series(name) or ()) < rule.points for name in rule.needs):
        return Finding(rule.name, CANNOT_TELL, missing=("points",))
    found = rule.find(evidence, rule.limits)
    if found is None:
        return Finding(rule.name, CLEAR)
    name, severity, metric, readings = found
    seen = evidence.series(metric)
    return Finding(rule.name, FOUND, name, severity, seen.metric if seen else metric, readings)


def _there(name: str, evidence: Evidence) -> bool:
    return bool(evidence.groups) if name == "groups" else evidence.series(name) is not None


def _series(evidence: Evidence, *names: str) -> list[Series]:
    """Return metrics that a rule needs; apply has made sure that they are there."""
    found = [evidence.series(name) for name in names]
    return [series for series in found if series is not None]


# --- groups and their signal ------------------------------------------------------------------------------------------


def _no_signal(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """Most groups have equal rewards: because all is right, because all is wrong, or it is not known why."""
    (dead,) = _series(evidence, "dead_groups")
    if dead.late.value < limits["share"]:
        return None
    readings = {"dead": dead.late, "early": dead.early}
    right, wrong = evidence.series("all_right"), evidence.series("all_wrong")
    if right is None or wrong is None:
        return "groups_without_signal", "warning", "dead_groups", readings
    if right.late.value >= wrong.late.value:
        return "groups_all_right", "note", "dead_groups", readings
    return "groups_all_wrong", "bad", "dead_groups", readings


def _unscored(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """Completions that the verifier could not judge."""
    (unscored,) = _series(evidence, "unscored")
    share = unscored.late
    if share.value < limits["some"]:
        return None
    severity = "bad" if share.value >= limits["many"] else "warning"
    return "unscored_completions", severity, "unscored", {"share": share}


# --- reward against what it stands for --------------------------------------------------------------------------------


def _reward_hacking(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """The reward rises while an independent evaluation falls back, or never moves."""
    reward, judged = _series(evidence, "reward", "evaluation")
    gain = reward.late.value - reward.early.value
    best = judged.peak
    readings = {
        "reward_early": reward.early, "reward": reward.late,
        "evaluation_early": judged.early, "evaluation_best": best, "evaluation": judged.late,
    }  # fmt: skip
    fallen = best.value - judged.late.value >= limits["fall"]
    if fallen and gain > 0 and reward.late.value >= reward.upto(best.last).late.value - limits["slack"]:
        return "reward_hacking", "bad", "evaluation", readings
    still = judged.late.value - judged.early.value < limits["still"]
    # A share of right answers is at most 1; a reward on that scale that is far above it is paid for something else.
    apart = float(reward.values.min()) >= 0.0 and float(reward.values.max()) <= 1.0
    apart = apart and reward.late.value - judged.late.value >= limits["apart"]
    if still and (gain >= limits["gain"] or apart):
        return "reward_without_progress", "warning", "evaluation", readings
    return None


def _format_only(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """The right format was learnt and the answers are no better."""
    form, right = _series(evidence, "format", "accuracy")
    learnt = form.late.value >= limits["format"] and form.late.value - form.early.value >= limits["gain"]
    if not learnt or right.late.value >= limits["accuracy"]:
        return None
    readings = {"format_early": form.early, "format": form.late, "accuracy_early": right.early, "accuracy": right.late}
    return "format_without_accuracy", "warning", "format", readings


def _collapse(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """The reward was high once and fell; with a large move in each update the learning rate is the suspect."""
    (reward,) = _series(evidence, "reward")
    fall = reward.peak.value - reward.late.value
    if fall < max(limits["fall"] * abs(reward.peak.value), limits["noise"] * reward.noise):
        return None
    readings = {"best": reward.peak, "reward": reward.late}
    moved = evidence.series("kl_old")
    if moved is not None and moved.largest.value >= limits["move"]:
        return "learning_rate_too_high", "bad", "reward", {**readings, "move": moved.largest}
    return "reward_collapse", "bad", "reward", readings


def _no_progress(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """The reward ends where it began."""
    (reward,) = _series(evidence, "reward")
    early = reward.early
    allowed = max(limits["change"], limits["noise"] * reward.noise)
    if max(abs(reward.late.value - early.value), reward.peak.value - early.value) > allowed:
        return None
    if early.value >= limits["high"]:
        return None
    return "reward_flat", "warning", "reward", {"early": early, "reward": reward.late}


# --- the policy -------------------------------------------------------------------------------------------------------


def _entropy(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """Entropy fell to a small part of what it was: spent on a solved task, or gone before the task was solved."""
    (entropy,) = _series(evidence, "entropy")
    if entropy.late.value > limits["left"] * entropy.early.value or entropy.early.value <= 0:
        return None
    readings = {"early": entropy.early, "entropy": entropy.late}
    solved = evidence.series("evaluation") or evidence.series("accuracy")
    if solved is None:
        return "entropy_collapse_unjudged", "warning", "entropy", readings
    readings["accuracy"] = solved.late
    if solved.late.value >= limits["solved"]:
        return "entropy_spent", "note", "entropy", readings
    return "entropy_collapse", "bad", "entropy", readings


def _kl_growth(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """The policy moves away from the reference and the reward gains nothing by it."""
    kl, reward = _series(evidence, "kl", "reward")
    middle, gained = kl.over(0.4, 0.6), reward.late.value - reward.over(0.4, 0.6).value
    grown = kl.late.value >= limits["growth"] * max(middle.value, 0.0) and kl.late.value >= limits["least"]
    if not grown or gained >= limits["gain"] * max(abs(reward.peak.value), 1e-9):
        return None
    readings = {"middle": middle, "kl": kl.late, "reward_middle": reward.over(0.4, 0.6), "reward": reward.late}
    return "kl_growth", "warning", "kl", readings


def _held_back(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """A large beta, a policy that stays by the reference, and a reward that hardly rises."""
    kl, reward = _series(evidence, "kl", "reward")
    beta = evidence.settings.get("beta")
    if not isinstance(beta, int | float) or beta < limits["beta"] or kl.late.value > limits["near"]:
        return None
    if reward.late.value - reward.early.value >= limits["gain"]:
        return None
    return "kl_holds_back", "warning", "kl", {"kl": kl.late, "reward_early": reward.early, "reward": reward.late}


def _truncation(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """Completions that end at the length limit and not by themselves."""
    (cut,) = _series(evidence, "truncated")
    if cut.late.value < limits["some"]:
        return None
    severity = "bad" if cut.late.value >= limits["many"] else "warning"
    return "truncation", severity, "truncated", {"early": cut.early, "truncated": cut.late}


def _length(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """Completions get longer over the second half and the reward does not rise with them."""
    length, reward = _series(evidence, "length", "reward")
    before, gained = length.over(0.4, 0.6), reward.late.value - reward.over(0.4, 0.6).value
    if length.late.value < limits["growth"] * before.value or gained >= limits["gain"] * abs(reward.peak.value):
        return None
    readings = {"middle": before, "length": length.late, "reward_middle": reward.over(0.4, 0.6), "reward": reward.late}
    return "longer_without_better", "warning", "length", readings


# --- the update -------------------------------------------------------------------------------------------------------


def _clip(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """Clip fraction: must be 0 with one update on each batch, and should not stay high with several."""
    (clip,) = _series(evidence, "clip")
    if evidence.settings.get("inner_epochs") == 1 and clip.largest.value > limits["zero"]:
        return "clip_without_reuse", "bad", "clip", {"clip": clip.largest}
    typical = clip.median(0.5)
    if typical.value < limits["pinned"]:
        return None
    return "clip_pinned", "warning", "clip", {"clip": typical, "largest": clip.largest}


def _move(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """One step changes the policy so much that the next batch comes from quite another one."""
    (moved,) = _series(evidence, "kl_old")
    typical = moved.median()
    if typical.value < limits["typical"] and moved.peak.value < limits["peak"]:
        return None
    return "large_updates", "warning", "kl_old", {"move": moved.peak, "typical": typical}


def _zero_loss(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """The loss stays at 0 and the gradient does not: that is how it should be."""
    loss, norm = _series(evidence, "loss", "grad_norm")
    if np.abs(loss.values).max() > limits["loss"] or norm.median().value <= 0:
        return None
    return "zero_loss", "note", "loss", {"loss": loss.largest, "grad_norm": norm.median()}


def _no_gradient(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """The gradient is exactly 0 although groups have a signal."""
    norm, dead = _series(evidence, "grad_norm", "dead_groups")
    if norm.largest.value > 0 or dead.values.mean() >= 1.0:
        return None
    return "no_gradient", "bad", "grad_norm", {"grad_norm": norm.largest, "dead": dead.over(0.0, 1.0)}


def _spikes(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """A single gradient is many times the usual one."""
    (norm,) = _series(evidence, "grad_norm")
    usual = norm.median()
    if usual.value <= 0 or norm.largest.value < limits["times"] * usual.value:
        return None
    return "gradient_spike", "note", "grad_norm", {"largest": norm.largest, "usual": usual}


def _not_finite(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """Loss or gradient norm is not a number."""
    for name, step in evidence.broken.items():
        return "not_finite", "bad", name, {"where": Reading(name, name, step, step, float(step))}
    return None


def _rate_zero(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """The learning rate is 0 all along."""
    (rate,) = _series(evidence, "learning_rate")
    return ("learning_rate_zero", "bad", "learning_rate", {"rate": rate.largest}) if rate.largest.value == 0 else None


# --- texts ------------------------------------------------------------------------------------------------------------


def _share(count: float, total: int) -> Reading:
    """A share of what was looked at; which steps the groups are from is not known here: 0."""
    return Reading("groups", "groups", 0, 0, count / total if total else 0.0)


def _same_texts(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """Groups whose completions are all the same text."""
    sizes = [group for group in evidence.groups if group.size > 1]
    same = sum(len(set(group.completions)) == 1 for group in sizes)
    share = _share(same, len(sizes))
    return ("same_completions", "note", "groups", {"share": share}) if share.value >= limits["share"] else None


def _unpaid(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """Completions that end in the right number and got no more than the least paid one."""
    known = [group for group in evidence.groups if group.answer]
    rows = [(text, group, r) for group in known for text, r in zip(group.completions, group.rewards, strict=True)]
    unpaid = sum(_right_for_nothing(text, group, reward) for text, group, reward in rows)
    share = _share(unpaid, len(rows))
    return ("right_but_unpaid", "warning", "groups", {"share": share}) if share.value >= limits["share"] else None


def _right_for_nothing(text: str, group: Group, reward: float | None) -> bool:
    scored = [value for value in group.rewards if value is not None]
    if reward is None or reward > min(scored) or reward >= 1.0:
        return False
    answer = extract_answer(text, modes=("answer_tag", "boxed", "last_number")).answer
    return answer is not None and same_answer(answer, group.answer or "")


def _empty(evidence: Evidence, limits: Mapping[str, float]) -> Found | None:
    """Completions that say nothing."""
    texts = [tokens for group in evidence.groups for tokens in group.tokens]
    share = _share(sum(len(tokens) <= 1 for tokens in texts), len(texts))
    return ("empty_completions", "warning", "groups", {"share": share}) if share.value >= limits["share"] else None


RULES: tuple[Rule, ...] = (
    Rule("not_finite", ("not_finite",), (), _not_finite),
    Rule("no_gradient", ("no_gradient",), ("grad_norm", "dead_groups"), _no_gradient),
    Rule("learning_rate_zero", ("learning_rate_zero",), ("learning_rate",), _rate_zero, points=1),
    Rule(
        "reward_hacking",
        ("reward_hacking", "reward_without_progress"),
        ("reward", "evaluation"),
        _reward_hacking,
        {"fall": 0.15, "slack": 0.05, "gain": 0.2, "still": 0.1, "apart": 0.4},
        points=5,
    ),
    Rule(
        "collapse",
        ("learning_rate_too_high", "reward_collapse"),
        ("reward",),
        _collapse,
        {"fall": 0.25, "noise": 3.0, "move": 0.05},
    ),
    Rule(
        "no_progress",
        ("reward_flat",),
        ("reward",),
        _no_progress,
        {"change": 0.02, "noise": 2.0, "high": 0.9},
        points=30,
    ),
    Rule(
        "format_only",
        ("format_without_accuracy",),
        ("format", "accuracy"),
        _format_only,
        {"format": 0.85, "gain": 0.2, "accuracy": 0.5},
    ),
    Rule(
        "no_signal",
        ("groups_all_right", "groups_all_wrong", "groups_without_signal"),
        ("dead_groups",),
        _no_signal,
        {"share": 0.6},
    ),
    Rule("unscored", ("unscored_completions",), ("unscored",), _unscored, {"some": 0.05, "many": 0.3}, points=1),
    Rule(
        "entropy",
        ("entropy_collapse", "entropy_spent", "entropy_collapse_unjudged"),
        ("entropy",),
        _entropy,
        {"left": 0.15, "solved": 0.85},
    ),
    Rule(
        "kl_growth",
        ("kl_growth",),
        ("kl", "reward"),
        _kl_growth,
        {"growth": 1.5, "least": 0.05, "gain": 0.02},
        points=20,
    ),
    Rule(
        "held_back",
        ("kl_holds_back",),
        ("kl", "reward"),
        _held_back,
        {"beta": 0.2, "near": 0.2, "gain": 0.2},
        points=20,
    ),
    Rule("truncation", ("truncation",), ("truncated",), _truncation, {"some": 0.1, "many": 0.5}),
    Rule(
        "length", ("longer_without_better",), ("length", "reward"), _length, {"growth": 1.25, "gain": 0.02}, points=20
    ),
    Rule("clip", ("clip_without_reuse", "clip_pinned"), ("clip",), _clip, {"zero": 0.0, "pinned": 0.1}, points=1),
    Rule("large_updates", ("large_updates",), ("kl_old",), _move, {"typical": 0.02, "peak": 0.1}),
    Rule("gradient_spike", ("gradient_spike",), ("grad_norm",), _spikes, {"times": 20.0}),
    Rule("zero_loss", ("zero_loss",), ("loss", "grad_norm"), _zero_loss, {"loss": 1e-4}),
    Rule("same_completions", ("same_completions",), ("groups",), _same_texts, {"share": 0.8}),
    Rule("right_but_unpaid", ("right_but_unpaid",), ("groups",), _unpaid, {"share": 0.1}),
    Rule("empty_completions", ("empty_completions",), ("groups",), _empty, {"share": 0.1}),
)
"""Every rule, in the order of what to look at first."""
