"""Scenarios: known effects and failures of GRPO as data, each with what must be seen when it is run.

A scenario is a few runs that differ in one thing (its variants), and expectations: measures of these runs that must lie
in a range. Texts are in the app's content under the scenario's name; what was measured over several seeds is in
scenario_effects.json, written by python -m benchmarks.scenarios --write. This module loads no torch.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any

from grpo_core.live.config import RunConfig

EFFECTS = Path(__file__).parent / "scenario_effects.json"
Row = Mapping[str, Any]
SMOOTH = 10
"""Ends of the training curves are means over this many steps."""
WINDOW = 5
"""A share counts as reached when this many steps in a row have it on average."""


@dataclass(frozen=True)
class Expectation:
    """What must be seen: a measure of one variant, or its difference to another variant's, lies in [low, high]."""

    variant: str
    measure: str
    low: float = -math.inf
    high: float = math.inf
    than: str | None = None

    def value(self, measured: Mapping[str, Mapping[str, float]]) -> float:
        """The number that must lie in the range; `measured` holds the measures of every variant."""
        own = measured[self.variant][self.measure]
        return own if self.than is None else own - measured[self.than][self.measure]

    def holds(self, measured: Mapping[str, Mapping[str, float]]) -> bool:
        """Whether it was seen."""
        return self.low <= self.value(measured) <= self.high

    def __str__(self) -> str:
        than = f" minus that of {self.than}" if self.than else ""
        return f"{self.measure} of {self.variant}{than} in [{self.low:g}, {self.high:g}]"


@dataclass(frozen=True)
class Scenario:
    """One effect: runs that differ in one thing.

    common: settings that all variants share, where they are not those of the default run. variants: name to further
    settings; the first is the one to compare with. watch: the metrics whose curves show the effect. findings: what the
    diagnosis must say of a variant.
    """

    name: str
    variants: Mapping[str, Mapping[str, Any]]
    watch: tuple[str, ...]
    expected: tuple[Expectation, ...]
    common: Mapping[str, Any] = field(default_factory=dict)
    findings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def configs(self, *, seed: int = 0, **settings: Any) -> dict[str, RunConfig]:
        """Give the run of every variant; further settings apply to all of them."""
        return {
            name: RunConfig(**{**self.common, **own, "seed": seed, **settings}) for name, own in self.variants.items()
        }

    @property
    def differs_in(self) -> tuple[str, ...]:
        """The settings in which the variants differ."""
        return tuple(sorted({name for own in self.variants.values() for name in own}))


def measure(rows: Sequence[Row]) -> dict[str, float]:
    """Measure a run by its events (groups are not needed): see MEASURES. What a run does not have is left out.

    A number of steps that was never reached is inf.
    """
    steps = [row for row in rows if row["event"] == "step"]
    evaluations = [row for row in rows if row["event"] == "eval"]
    found = {}
    for name, rule in MEASURES.items():
        try:
            found[name] = float(rule(steps, evaluations))
        except (KeyError, IndexError, ValueError):  # a metric that is not logged, or a run without such events
            continue
    return found


def _first(metric: str, count: int = SMOOTH) -> Callable[..., float]:
    return lambda steps, evaluations: fmean(row[metric] for row in steps[:count])


def _last(metric: str) -> Callable[..., float]:
    return lambda steps, evaluations: fmean(row[metric] for row in steps[-SMOOTH:])


def _largest(metric: str) -> Callable[..., float]:
    return lambda steps, evaluations: max(row[metric] for row in steps)


def _sum(metric: str) -> Callable[..., float]:
    return lambda steps, evaluations: sum(row[metric] for row in steps)


def _until(share: float, cost: Callable[[Row], float]) -> Callable[..., float]:
    """What was spent until the mean accuracy of WINDOW steps reached a share; inf if it never did."""

    def spent(steps: Sequence[Row], evaluations: Sequence[Row]) -> float:
        right = [row["rewards/accuracy/mean"] for row in steps]
        for end in range(WINDOW, len(steps) + 1):
            if fmean(right[end - WINDOW : end]) >= share:
                return sum(cost(row) for row in steps[:end])
        return math.inf

    return spent


MEASURES: Mapping[str, Callable[..., float]] = MappingProxyType(
    {
        "start_accuracy": lambda steps, evaluations: evaluations[0]["sampled_accuracy"],
        "best_accuracy": lambda steps, evaluations: max(row["sampled_accuracy"] for row in evaluations),
        "final_accuracy": lambda steps, evaluations: evaluations[-1]["sampled_accuracy"],
        "final_greedy": lambda steps, evaluations: evaluations[-1]["accuracy"],
        "final_pass_at_k": lambda steps, evaluations: evaluations[-1]["pass_at_k"],
        "start_pass_at_k": lambda steps, evaluations: evaluations[0]["pass_at_k"],
        "start_reward": _first("reward", 3),
        "final_reward": _last("reward"),
        "final_reward_exact": _last("reward_exact"),
        "final_model_accuracy": _last("reward_model/accuracy"),
        "final_training_accuracy": _last("rewards/accuracy/mean"),
        "final_format": _last("rewards/format/mean"),
        "start_length": _first("completions/mean_length", 3),
        "final_length": _last("completions/mean_length"),
        "final_truncated": _last("completions/clipped_ratio"),
        "start_entropy": _first("entropy", 3),
        "final_entropy": _last("entropy"),
        "start_dead_groups": _first("frac_reward_zero_std"),
        "final_dead_groups": _last("frac_reward_zero_std"),
        "first_clip": _first("clip_ratio/region_mean", 1),
        "largest_clip": _largest("clip_ratio/region_mean"),
        "largest_gradient": _largest("grad_norm"),
        "final_kl": _last("kl"),
        "steps_to_half": _until(0.5, lambda row: 1.0),
        "steps_to_most": _until(0.8, lambda row: 1.0),
        "tokens_to_most": _until(0.8, lambda row: row["completion_tokens"]),
        "tokens": _sum("completion_tokens"),
        "groups_drawn": _last("groups/drawn"),
        "trained_mixed": _last("groups/trained_mixed"),
    }
)
"""Measures by name, of the steps and the evaluations of a run: where it began, where it ended, how far it went."""


_E = Expectation
_EXACT = "shell_game"
_STRICT = {"recipe": "trl_grpo", "learning_rate": 6e-4, "max_new_tokens": 20, "steps": 200}
_ITERATIONS = {"recipe": "trl_grpo", "steps": 200, "iteration_steps": 10}
_STALE = {**_ITERATIONS, "reward_source": "learned", "retrain": False}

_ALL = (
    Scenario(
        "thinking_emerges",
        {"default": {}},
        ("reward", "completions/mean_length", "entropy", "frac_reward_zero_std"),
        (
            _E("default", "start_accuracy", high=0.3),
            _E("default", "start_pass_at_k", low=0.6),
            _E("default", "final_greedy", low=0.95),
            _E("default", "final_accuracy", low=0.9),
            _E("default", "start_length", high=5.0),
            _E("default", "final_length", low=9.0),
            _E("default", "final_entropy", high=0.1),
            _E("default", "largest_clip", high=0.0),
        ),
        findings={"default": ("groups_all_right", "entropy_spent")},
    ),
    Scenario(
        "lenient_verifier",
        {"exact": {"task": _EXACT}, "lenient": {"task": "shell_game_lenient"}},
        ("reward", "sampled_accuracy", "rewards/format/mean", "completions/mean_length"),
        (
            _E("lenient", "final_reward", low=0.9),
            _E("lenient", "best_accuracy", low=0.6),
            _E("lenient", "final_accuracy", high=0.2),
            _E("exact", "final_accuracy", low=0.9),
        ),
        common=_STRICT,
        findings={"lenient": ("reward_hacking",)},
    ),
    Scenario(
        "length_bonus",
        {"exact": {"task": _EXACT}, "bonus": {"task": "shell_game_length_bonus"}},
        ("reward", "completions/mean_length", "completions/clipped_ratio", "sampled_accuracy"),
        (
            _E("bonus", "final_reward", low=4.0),
            _E("bonus", "final_length", low=25.0),
            _E("bonus", "final_truncated", low=0.8),
            _E("bonus", "final_accuracy", high=0.2),
            _E("exact", "final_accuracy", low=0.7),
            _E("exact", "final_length", high=14.0),
        ),
        common={"learning_rate": 6e-4, "max_new_tokens": 30, "steps": 200},
        findings={"bonus": ("truncation",)},
    ),
    Scenario(
        "format_reward",
        {
            "exact": {"task": _EXACT},
            "mostly_format": {"task": "shell_game_mostly_format"},
            "format_only": {"task": "shell_game_format"},
        },
        ("reward", "rewards/format/mean", "rewards/accuracy/mean", "completions/mean_length"),
        (
            _E("format_only", "final_reward", low=0.95),
            _E("format_only", "final_accuracy", high=0.3),
            _E("format_only", "final_length", high=5.0),
            _E("mostly_format", "final_reward", low=0.95),
            _E("mostly_format", "final_accuracy", high=0.7),
            _E("exact", "final_accuracy", low=0.9),
        ),
        findings={"format_only": ("reward_without_progress", "format_without_accuracy")},
    ),
    Scenario(
        "learning_rate",
        {
            "usual": {"learning_rate": 1e-4},
            "low": {"learning_rate": 3e-5},
            "high": {"learning_rate": 3e-4},
            "far_too_high": {"learning_rate": 2e-3},
        },
        ("reward", "kl_old", "grad_norm", "entropy"),
        (
            _E("usual", "final_accuracy", low=0.9),
            _E("high", "final_accuracy", low=0.85),
            _E("low", "steps_to_half", low=15.0, than="usual"),
            _E("high", "steps_to_half", high=-5.0, than="usual"),
            _E("far_too_high", "final_accuracy", high=0.4),
        ),
        findings={"far_too_high": ("learning_rate_too_high",)},
    ),
    Scenario(
        "inner_epochs",
        {
            "one": {"inner_epochs": 1},
            "two": {"inner_epochs": 2},
            "four": {"inner_epochs": 4},
            "eight": {"inner_epochs": 8},
        },
        ("clip_ratio/region_mean", "reward", "kl_old"),
        (
            _E("one", "largest_clip", low=0.0, high=0.0),
            _E("two", "largest_clip", low=1e-4, high=0.03),
            _E("four", "largest_clip", low=0.01, high=0.09),
            _E("eight", "largest_clip", low=0.05, high=0.25),
            _E("eight", "steps_to_half", high=-10.0, than="one"),
            _E("eight", "final_accuracy", low=0.9),
        ),
    ),
    Scenario(
        "clipping",
        {"clipped": {}, "unclipped": {"surrogate": "unclipped"}},
        ("reward", "clip_ratio/region_mean", "kl_old", "sampled_accuracy"),
        (
            _E("clipped", "final_accuracy", low=0.8),
            _E("unclipped", "final_accuracy", high=-0.15, than="clipped"),
        ),
        common={"inner_epochs": 16, "learning_rate": 2e-4},
    ),
    Scenario(
        "averaging",
        {
            "constant": {"recipe": "trl_dr_grpo", "scale_rewards": "none"},
            "token_mean": {"recipe": "trl_dapo", "scale_rewards": "none"},
            "sequence_mean": {"recipe": "trl_grpo", "scale_rewards": "none"},
        },
        ("reward", "completions/mean_length"),
        (
            _E("sequence_mean", "steps_to_half", low=5.0, than="token_mean"),
            _E("sequence_mean", "steps_to_half", low=5.0, than="constant"),
            _E("token_mean", "final_accuracy", low=0.85),
            _E("constant", "final_accuracy", low=0.85),
            _E("sequence_mean", "final_accuracy", low=0.85),
        ),
    ),
    Scenario(
        "group_size",
        {"eight": {"group_size": 8}, "two": {"group_size": 2}},
        ("frac_reward_zero_std", "reward", "num_tokens"),
        (
            _E("eight", "start_dead_groups", high=0.3),
            _E("two", "start_dead_groups", low=0.5),
            _E("two", "steps_to_most", low=-10.0, high=30.0, than="eight"),
            _E("two", "tokens_to_most", high=-10000.0, than="eight"),
        ),
    ),
    Scenario(
        "dynamic_sampling",
        {"keep": {}, "refill": {"refills": 8}},
        ("frac_reward_zero_std", "groups/trained_mixed", "groups/drawn", "num_tokens"),
        (
            _E("keep", "start_dead_groups", high=0.3),
            _E("keep", "final_dead_groups", low=0.55),
            _E("refill", "trained_mixed", low=7.5),
            _E("refill", "groups_drawn", low=20.0),
            _E("refill", "tokens", low=60000.0, than="keep"),
            _E("refill", "steps_to_most", low=-10.0, high=15.0, than="keep"),
        ),
    ),
    Scenario(
        "no_skill",
        {"skilled": {"task": _EXACT}, "unskilled": {"task": "shell_game_unskilled"}},
        ("reward", "rewards/format/mean", "rewards/accuracy/mean", "completions/mean_length"),
        (
            _E("skilled", "final_accuracy", low=0.9),
            _E("unskilled", "final_format", low=0.85),
            _E("unskilled", "final_accuracy", high=0.3),
            _E("unskilled", "final_length", high=6.0),
        ),
        findings={"unskilled": ("format_without_accuracy",)},
    ),
    Scenario(
        "strong_kl",
        {"without": {"beta": 0.0}, "strong": {"beta": 1.0}},
        ("reward", "kl", "completions/mean_length"),
        (
            _E("without", "final_accuracy", low=0.9),
            _E("strong", "final_accuracy", high=0.5),
            _E("strong", "final_kl", high=0.06),
            _E("without", "final_kl", low=0.1),
        ),
        findings={"strong": ("kl_holds_back",)},
    ),
    Scenario(
        "shared_graph",
        {"detached": {"fault": "none"}, "shared": {"fault": "shared_graph"}},
        ("grad_norm", "loss", "reward"),
        (
            _E("shared", "largest_gradient", low=0.0, high=0.0),
            _E("shared", "final_accuracy", high=0.3),
            _E("detached", "final_accuracy", low=0.6),
        ),
        common={"steps": 60},
        findings={"shared": ("no_gradient",)},
    ),
    Scenario(
        "unscored_as_zero",
        {"left_out": {"fault": "none"}, "as_zero": {"fault": "unscored_as_zero"}},
        ("reward", "frac_reward_zero_std", "completions/unscored_ratio", "sampled_accuracy"),
        (
            _E("left_out", "final_reward", low=0.9),
            _E("as_zero", "final_reward", high=0.85),
            _E("as_zero", "final_accuracy", low=0.85),
            _E("left_out", "final_dead_groups", low=0.55),
            _E("as_zero", "final_dead_groups", high=0.35),
        ),
        common={"verifier_failures": 0.2},
        findings={"left_out": ("unscored_completions",), "as_zero": ("unscored_completions",)},
    ),
    Scenario(
        "top_p",
        {"whole": {"top_p": 1.0}, "nucleus": {"top_p": 0.8}},
        ("reward", "sampled_accuracy", "entropy"),
        (
            _E("nucleus", "final_reward", low=0.95),
            _E("nucleus", "final_accuracy", high=-0.05, than="whole"),
            _E("whole", "final_accuracy", low=0.9),
        ),
    ),
    Scenario(
        "stale_reward_model",
        {"verifier": {"reward_source": "verifier"}, "learned": {"reward_source": "learned"}},
        ("reward", "reward_exact", "sampled_accuracy", "reward_model/accuracy"),
        (
            _E("learned", "final_reward", low=0.9),
            _E("learned", "best_accuracy", low=0.75),
            _E("learned", "final_reward_exact", high=0.7),
            _E("learned", "final_model_accuracy", high=0.7),
            _E("learned", "final_accuracy", high=0.65),
            _E("verifier", "final_accuracy", low=0.9),
        ),
        common={**_ITERATIONS, "retrain": False},
        findings={"learned": ("reward_hacking",)},
    ),
    Scenario(
        "retrained_reward_model",
        {"stale": {"retrain": False}, "retrained": {"retrain": True}},
        ("reward", "reward_exact", "reward_model/accuracy", "sampled_accuracy"),
        (
            _E("stale", "final_accuracy", high=0.65),
            _E("retrained", "final_accuracy", low=0.2, than="stale"),
            _E("retrained", "final_model_accuracy", low=0.2, than="stale"),
        ),
        common={**_ITERATIONS, "reward_source": "learned"},
    ),
    Scenario(
        "process_supervision",
        {"outcome": {"supervision": "outcome"}, "process": {"supervision": "process"}},
        ("reward", "reward_exact", "sampled_accuracy", "completions/mean_length"),
        (
            _E("outcome", "final_accuracy", high=0.65),
            _E("process", "final_accuracy", low=0.2, than="outcome"),
            _E("process", "final_reward_exact", low=0.2, than="outcome"),
        ),
        common=_STALE,
    ),
)

SCENARIOS: Mapping[str, Scenario] = MappingProxyType({scenario.name: scenario for scenario in _ALL})
"""Every scenario that was seen to show its effect over at least three seeds."""


def check(scenario: Scenario, measured: Mapping[str, Mapping[str, float]]) -> list[Expectation]:
    """Give the expectations that were not seen."""
    return [expected for expected in scenario.expected if not expected.holds(measured)]


def effects() -> dict[str, Any]:
    """What was measured: {"seeds": [...], "measured": {scenario: {variant: {measure: [a value for each seed]}}}}.

    A value is None where a number of steps was never reached.
    """
    found: dict[str, Any] = json.loads(EFFECTS.read_text(encoding="utf-8"))
    return found


def scenario_numbers(name: str) -> dict[str, float]:
    """Give the means over the seeds of everything measured in a scenario, as variant__measure; inf where a number of
    steps was not reached with every seed.
    """
    return {
        f"{variant}__{measured}": math.inf if None in values else fmean(values)
        for variant, found in effects()["measured"][name].items()
        for measured, values in found.items()
    }
