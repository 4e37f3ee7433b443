"""Diagnosis: every finding on a series made by hand, what stays silent, what cannot be told, and its texts."""

from __future__ import annotations

import math
import string

import numpy as np
import pytest

from app.words import sections
from grpo_core import Group
from grpo_core.diagnosis import ALIASES, CANNOT_TELL, CLEAR, FOUND, RULES, SEVERITIES, diagnose

N = 100
NAMES = {name for rule in RULES for name in rule.names}


def line(start, end, n=N):
    return np.linspace(start, end, n)


def rows(evaluation=None, **metrics):
    """Log rows of N steps, and evaluations every fifth."""
    found = [{"step": i + 1, **{k: float(np.broadcast_to(v, N)[i]) for k, v in metrics.items()}} for i in range(N)]
    if evaluation is not None:
        found += [{"step": i + 1, "sampled_accuracy": float(evaluation[i])} for i in range(0, N, 5)]
    return found


def found(log, groups=(), **settings):
    return {f.name: f for f in diagnose(log, groups, settings=settings) if f.status == FOUND}


def group(texts, rewards, *, answer="4"):
    tokens = tuple((*text, "<eos>") for text in texts)
    return Group("2:13=", tokens, tuple(rewards), tuple((-0.1,) * len(row) for row in tokens), answer=answer)


HEALTHY = {
    "reward": line(0.2, 0.6), "frac_reward_zero_std": 0.2, "groups/all-right": 1.0, "groups/all-wrong": 1.0,
    "groups/mixed": 6.0, "completions/unscored_ratio": 0.0, "completions/mean_length": line(4, 8),
    "completions/clipped_ratio": 0.0, "entropy": line(0.6, 0.4), "kl": line(0.0, 0.1), "kl_old": 1e-4,
    "clip_ratio/region_mean": 0.0, "loss": line(0.01, -0.02), "grad_norm": line(0.5, 0.3), "learning_rate": 1e-4,
    "rewards/accuracy/mean": line(0.2, 0.6), "rewards/format/mean": line(0.5, 0.9),
}  # fmt: skip
GROUPS = [group(["3", "<answer>4</answer>", "5", "<think>1</think>"], [0, 1, 0, 0])]

HUMP = np.concatenate([line(0.2, 0.9, 50), line(0.9, 0.1, 50)])
CASES = {
    "not_finite": ({"loss": np.where(np.arange(N) == 60, math.nan, 0.1)}, {}),
    "no_gradient": ({"grad_norm": 0.0, "reward": 0.2}, {}),
    "learning_rate_zero": ({"learning_rate": 0.0}, {}),
    "reward_hacking": ({"reward": line(0.3, 0.99), "evaluation": HUMP}, {}),
    "reward_without_progress": ({"reward": line(0.5, 0.99), "evaluation": line(0.2, 0.22)}, {}),
    "format_without_accuracy": ({"rewards/format/mean": line(0.4, 1.0), "rewards/accuracy/mean": 0.2}, {}),
    "learning_rate_too_high": ({"reward": HUMP, "kl_old": 0.3}, {}),
    "reward_collapse": ({"reward": HUMP, "kl_old": 0.001}, {}),
    "reward_flat": ({"reward": 0.2 + 0.02 * (-1.0) ** np.arange(N)}, {}),
    "groups_all_right": ({"frac_reward_zero_std": line(0.1, 0.9), "groups/all-right": line(1, 7)}, {}),
    "groups_all_wrong": ({"frac_reward_zero_std": 0.9, "groups/all-wrong": 7.0}, {}),
    "groups_without_signal": ({"frac_reward_zero_std": 0.9, "groups/all-wrong": None}, {}),
    "unscored_completions": ({"completions/unscored_ratio": 0.2}, {}),
    "entropy_collapse": ({"entropy": line(0.6, 0.0), "evaluation": line(0.2, 0.5)}, {}),
    "entropy_spent": ({"entropy": line(0.6, 0.0), "evaluation": line(0.2, 1.0)}, {}),
    "entropy_collapse_unjudged": ({"entropy": line(0.6, 0.0), "evaluation": None, "rewards/accuracy/mean": None}, {}),
    "kl_growth": ({"kl": line(0.0, 2.0), "reward": np.minimum(line(0.2, 2.0), 0.8)}, {}),
    "kl_holds_back": ({"kl": 0.02, "reward": line(0.2, 0.25)}, {"beta": 1.0}),
    "truncation": ({"completions/clipped_ratio": line(0.0, 0.4)}, {}),
    "longer_without_better": ({"completions/mean_length": line(5, 50), "reward": np.minimum(line(0.2, 2), 0.8)}, {}),
    "clip_without_reuse": ({"clip_ratio/region_mean": np.where(np.arange(N) == 3, 0.01, 0.0)}, {"inner_epochs": 1}),
    "clip_pinned": ({"clip_ratio/region_mean": line(0.1, 0.3)}, {"inner_epochs": 8}),
    "large_updates": ({"kl_old": 0.05}, {}),
    "gradient_spike": ({"grad_norm": np.where(np.arange(N) == 40, 30.0, 0.5)}, {}),
    "zero_loss": ({"loss": 1e-9 * (-1.0) ** np.arange(N)}, {}),
    "same_completions": ([group(["4"] * 4, [1] * 4)] * 3, {}),
    "right_but_unpaid": ([group(["the answer is 4", "5", "<answer>4</answer>", "4"], [0, 0, 1, 0])], {}),
    "empty_completions": ([group(["", "", "5", "4"], [0, 0, 0, 1])], {}),
}  # fmt: skip


def log_of(change):
    merged = {"evaluation": line(0.2, 0.6), **HEALTHY, **change}
    return rows(**{name: value for name, value in merged.items() if value is not None})


@pytest.fixture(params=CASES)
def case(request):
    """A healthy run with one thing wrong: name of the symptom, its finding, all findings."""
    change, settings = CASES[request.param]
    if isinstance(change, list):
        every = found(log_of({}), change, **settings)
    else:
        every = found(log_of(change), GROUPS, **settings)
    return request.param, every


def test_every_finding_has_a_case():
    assert set(CASES) == NAMES


def test_a_symptom_is_found(case):
    name, every = case
    finding = every[name]
    assert finding.severity in SEVERITIES
    assert finding.metric
    assert finding.evidence
    for reading in finding.evidence.values():
        assert math.isfinite(reading.value)
        assert reading.first <= reading.last <= N


def test_the_texts_of_a_finding_need_no_other_numbers_than_its_own(case):
    name, every = case
    texts = sections("diagnosis")
    for part in ("title", "symptom", "cause", "try"):
        text = texts[f"{name}.{part}"]
        used = {field for _, field, _, _ in string.Formatter().parse(text) if field is not None}
        assert used <= set(every[name].numbers), (name, part)
        assert text.format(**dict.fromkeys(used, "7"))
        assert "$" not in text
    assert "{" in texts[f"{name}.symptom"] or name == "learning_rate_zero"


def test_rules_and_metrics_have_words_and_no_text_is_left_over():
    expected = {f"{name}.{part}" for name in NAMES for part in ("title", "symptom", "cause", "try")}
    expected |= {f"rule.{rule.name}" for rule in RULES} | {f"metric.{name}" for name in (*ALIASES, "groups")}
    expected |= {f"severity.{name}" for name in SEVERITIES} | {"cannot_tell.metrics", "cannot_tell.points"}
    unnamed = {"metric.all_right", "metric.all_wrong", "metric.mixed"}  # no rule asks for them by name
    assert set(sections("diagnosis")) == expected - unnamed
    needed = {name for rule in RULES for name in rule.needs}
    assert {f"metric.{name}" for name in needed} <= expected - unnamed


def test_a_healthy_run_has_no_findings():
    assert found(log_of({}), GROUPS, inner_epochs=1, beta=0.04) == {}
    assert {f.status for f in diagnose(log_of({}), GROUPS)} == {CLEAR}


def test_findings_come_first_and_the_worst_on_top():
    log = log_of({"reward": line(0.3, 0.99), "evaluation": HUMP, "loss": 0.0, "completions/clipped_ratio": 0.2})
    severities = [f.severity for f in diagnose(log) if f.status == FOUND]
    assert severities == sorted(severities, key=SEVERITIES.index)
    assert set(severities) == set(SEVERITIES)
    statuses = [f.status for f in diagnose(log)]
    assert statuses == sorted(statuses, key=(FOUND, CANNOT_TELL, CLEAR).index)


def test_missing_metrics_cannot_be_told():
    told = {f.rule: f for f in diagnose(rows(reward=line(0.2, 0.6)))}
    assert told["entropy"].status == CANNOT_TELL
    assert told["entropy"].missing == ("entropy",)
    assert told["kl_growth"].missing == ("kl",)
    assert told["reward_hacking"].missing == ("evaluation",)
    assert told["right_but_unpaid"].missing == ("groups",)
    assert told["collapse"].status == CLEAR
    assert {f.status for f in diagnose([])} == {CANNOT_TELL, CLEAR}
    assert [f.rule for f in diagnose([]) if f.status == CLEAR] == ["not_finite"]


def test_a_short_run_cannot_be_told():
    told = {f.rule: f for f in diagnose(log_of({"entropy": line(0.6, 0.0)})[:6])}
    assert told["entropy"].status == CANNOT_TELL
    assert told["entropy"].missing == ("points",)


def test_a_setting_that_is_not_known_makes_no_finding():
    clipped = log_of({"clip_ratio/region_mean": 0.05})
    assert "clip_without_reuse" not in found(clipped)
    assert "clip_without_reuse" not in found(clipped, inner_epochs=4)
    held = log_of({"kl": 0.02, "reward": line(0.2, 0.25)})
    assert "kl_holds_back" not in found(held)
    assert "kl_holds_back" not in found(held, beta=0.04)


def test_evidence_says_where_it_is_from():
    finding = found(log_of({"reward": line(0.3, 0.99), "evaluation": HUMP}))["reward_hacking"]
    best, late = finding.evidence["evaluation_best"], finding.evidence["reward"]
    assert (best.metric, best.name, best.is_share) == ("sampled_accuracy", "evaluation", True)
    assert 40 <= best.first <= best.last <= 60
    assert (late.metric, late.first, late.last, late.is_share) == ("reward", 81, 100, False)
    assert late.value == pytest.approx(np.mean(line(0.3, 0.99)[80:]))
    assert finding.metric == "sampled_accuracy"
    assert finding.numbers["evaluation_best_step"] == best.last


def test_one_lucky_batch_is_no_peak():
    reward = np.full(N, 0.3) + 0.01 * (-1.0) ** np.arange(N)
    reward[50] = 1.0
    assert not {"reward_collapse", "learning_rate_too_high"} & set(found(rows(reward=reward)))


def test_a_reward_that_scatters_has_not_collapsed():
    rng = np.random.default_rng(0)
    for _ in range(50):
        reward = rng.binomial(64, 0.2, size=N) / 64
        assert not {"reward_collapse", "learning_rate_too_high"} & set(found(rows(reward=reward)))


def test_names_of_trl_and_verl_are_understood():
    trl = [{"step": i, "reward": 0.2, "entropy": e, "frac_reward_zero_std": 0.9} for i, e in enumerate(line(0.6, 0.0))]
    assert {"entropy_collapse_unjudged", "groups_without_signal"} <= set(found(trl))
    verl = [{"step": i, "actor/entropy": e, "actor/pg_clipfrac": 0.4} for i, e in enumerate(line(0.6, 0.0))]
    assert found(verl)["entropy_collapse_unjudged"].metric == "actor/entropy"
    assert found(verl)["clip_pinned"].metric == "actor/pg_clipfrac"


def test_rows_without_a_step_are_counted():
    reading = found([{"entropy": e} for e in line(0.6, 0.0)])["entropy_collapse_unjudged"].evidence["entropy"]
    assert (reading.first, reading.last) == (81, 100)


def test_text_and_missing_values_in_a_log_do_no_harm():
    log = [{"step": i, "reward": "?", "entropy": None, "kl": True, "loss": math.inf, "note": []} for i in range(N)]
    assert set(found(log)) == {"not_finite"}
    assert found(log)["not_finite"].evidence["where"].value == 0


def test_unscored_completions_are_not_unpaid():
    assert "right_but_unpaid" not in found([], [group(["4", "4", "5", "5"], [None, None, 0, 0])])
    assert "right_but_unpaid" not in found([], [group(["4", "4"], [None, None])])
    assert "right_but_unpaid" not in found([], [group(["4", "4"], [0, 0], answer=None)])
