"""Evaluation: greedy and sampled answers, pass@k, intervals, and accuracy by difficulty and length."""

from dataclasses import replace

import pytest

from grpo_core import pass_at_k, wilson_interval
from grpo_core.live.config import RunConfig
from grpo_core.live.engines import make_engine
from grpo_core.live.evaluate import evaluate
from grpo_core.live.tasks import TASKS, exact, judge_exactly
from grpo_core.live.trainer import train

PROBLEMS = TASKS["shell_game"].held_out(60)


@pytest.fixture
def measured(policy):
    def measured(problems=PROBLEMS, **settings):
        return evaluate(policy, make_engine(policy), problems, max_new_tokens=14, **settings)

    return measured


def test_greedy_answers_do_not_depend_on_the_samples(measured):
    once, often = measured(samples=1), measured(samples=8)
    for name in ("accuracy", "accuracy_low", "accuracy_high", "format"):
        assert once[name] == often[name]
    assert "pass_at_k" not in once
    assert (once["samples"], often["samples"]) == (1, 8)


def test_shares_and_intervals_are_those_of_the_answers(policy, measured, draw):
    found = measured(samples=8)
    right = round(found["accuracy"] * len(PROBLEMS))
    assert found["accuracy"] == right / len(PROBLEMS)
    low, high = wilson_interval(right, len(PROBLEMS))
    assert (found["accuracy_low"], found["accuracy_high"]) == pytest.approx((float(low), float(high)))
    assert found["sampled_accuracy_low"] < found["sampled_accuracy"] < found["sampled_accuracy_high"]
    # The start guesses or thinks: eight samples find the answer far more often than one.
    assert found["sampled_accuracy"] < 0.3
    assert found["pass_at_k"] > found["sampled_accuracy"] + 0.2
    assert found["pass_at_k_low"] < found["pass_at_k"] < found["pass_at_k_high"]


def test_answers_that_cannot_be_judged_are_left_out_and_counted(measured):
    def broken(every):
        """The exact verifier, which cannot say of one answer in `every`."""

        def judge(texts, problems):
            scores = judge_exactly(texts, problems)
            return [replace(one, reward=None) if i % every == 0 else one for i, one in enumerate(scores)]

        return judge

    whole = measured(samples=8)
    assert "unscored" not in whole
    found = measured(samples=8, judge=broken(18))  # the greedy answer to every second prompt, and no sample
    assert found["unscored"] == 30
    for name in ("sampled_accuracy", "pass_at_k", "pass_at_k_high"):
        assert found[name] == whole[name]
    kept = measured(PROBLEMS[1::2])
    assert (found["accuracy"], found["accuracy_low"]) == (kept["accuracy"], kept["accuracy_low"])
    nothing = measured(samples=2, judge=broken(1))
    assert nothing["unscored"] == 180
    assert not {"accuracy", "sampled_accuracy", "pass_at_k"} & set(nothing)
    assert nothing["strata"] == []


def test_prompts_with_a_sample_that_cannot_be_judged_are_left_out(measured):
    def judge(texts, problems):
        scores = judge_exactly(texts, problems)
        return [replace(one, reward=None) if i % 10 == 1 else one for i, one in enumerate(scores)]

    found, kept = measured(samples=4, judge=judge), measured(samples=4)
    assert found["accuracy"] == kept["accuracy"]
    some = measured(samples=4, judge=lambda texts, problems: [
        replace(one, reward=0.0) if i % 10 < 5 else one for i, one in enumerate(judge_exactly(texts, problems))
    ])  # fmt: skip
    assert found["sampled_accuracy"] == pytest.approx(2 * some["sampled_accuracy"])
    assert found["pass_at_k"] == pytest.approx(2 * some["pass_at_k"])


def test_pass_at_k_is_the_share_of_problems_that_some_sample_solves(policy, measured, draw):
    from grpo_core.live.rollout import encode

    found = measured(PROBLEMS[:10], samples=3)
    rows = draw(
        encode(policy, [problem.prompt for problem in PROBLEMS[:10]]), group_size=4, max_new_tokens=14,
    ).completions  # fmt: skip
    texts = policy.texts([row[:n] for row, n in zip(rows.tokens.tolist(), rows.lengths.tolist(), strict=True)])
    right = [exact(text, PROBLEMS[i // 4].answer).reward for i, text in enumerate(texts)]
    each = [sum(right[i * 4 + 1 : i * 4 + 4]) for i in range(10)]  # the first of each four is the greedy one there
    assert found["pass_at_k"] == pytest.approx(sum(pass_at_k(3, each, k=3)) / 10)
    assert found["sampled_accuracy"] == pytest.approx(sum(each) / 30)


def test_strata_split_all_answers(measured):
    problems = TASKS["shell_game_mixed"].held_out(80)
    found = measured(problems, samples=2)
    by = {}
    for part in found["strata"]:
        by.setdefault(part["by"], []).append(part)
        assert part["accuracy_low"] <= part["accuracy"] <= part["accuracy_high"]
    assert set(by) == {"moves", "swaps", "length"}
    assert [part["value"] for part in by["swaps"]] == ["3", "4", "5", "6"]
    assert by["length"][0]["value"] == "1-4"
    for name, answers in (("moves", 80), ("swaps", 80), ("length", 160)):
        assert sum(part["answers"] for part in by[name]) == answers
        accuracy = found["sampled_accuracy" if name == "length" else "accuracy"]
        assert sum(part["answers"] * part["accuracy"] for part in by[name]) / answers == pytest.approx(accuracy)
    counts = {len(problem.steps): 0 for problem in problems}
    for problem in problems:
        counts[len(problem.steps)] += 1
    assert [part["answers"] for part in by["swaps"]] == [counts[n] for n in (3, 4, 5, 6)]


def test_samples_of_one_prompt_count_once_in_an_interval(measured):
    for part in measured(PROBLEMS[:5], samples=8)["strata"]:
        if part["by"] == "length" and part["value"] == "1-4":
            low, high = wilson_interval(part["accuracy"] * 5, 5)
            assert part["answers"] > 20
            assert (part["accuracy_low"], part["accuracy_high"]) == pytest.approx((float(low), float(high)))
            return
    pytest.fail("no short completions")


def test_one_length_of_prompts_is_no_stratum(measured):
    assert {part["by"] for part in measured()["strata"]} == {"moves", "length"}


def test_long_answers_are_the_right_ones(measured):
    lengths = {part["value"]: part for part in measured(samples=8)["strata"] if part["by"] == "length"}
    assert lengths["9-16"]["accuracy"] > 0.9
    assert lengths["1-4"]["accuracy"] < 0.3


def test_a_run_evaluates_thoroughly_now_and_then():
    config = RunConfig(steps=9, eval_every=2, eval_prompts=20, eval_samples=3, pace=None, probe=False)
    found = {event["step"]: event for event in train(config) if event["event"] == "eval"}
    assert {step: event["samples"] for step, event in found.items()} == {0: 3, 2: 1, 4: 1, 6: 1, 8: 3, 9: 3}
    assert all(("pass_at_k" in event) == (event["samples"] == 3) for event in found.values())
    assert found[0]["prompts"] == 20
