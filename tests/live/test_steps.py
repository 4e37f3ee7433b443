"""The step verifier, and the advantages of process supervision in a real update."""

import random

import numpy as np
import pytest
import torch

from grpo_core import AdvantageSpec
from grpo_core.live.steps import Steps, padded, step_advantages, verify_steps
from grpo_core.live.tasks import Problem, shell_game

PROBLEM = Problem("2:12,13,24,15,45=", "4", "11155")  # only the steps matter here


def tokens(text, *, eos=True):
    """Split as the built-in tokenizer does: a tag is one token, anything else one a character."""
    parts, rest = [], text
    while rest:
        end = rest.index(">") + 1 if rest[0] == "<" else 1
        parts.append(rest[:end])
        rest = rest[end:]
    return [*parts, *["<eos>"] * eos]


def test_every_digit_of_the_thought_is_a_step_and_the_completion_the_last():
    found = verify_steps(tokens("<think>11255</think><answer>5</answer>"), PROBLEM, 0.0)
    assert found == Steps([1, 2, 3, 4, 5, 10], [1.0, 1.0, 0.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize(
    "text", ["4", "<answer>5</answer>", "5<think>11155</think>", "<think></think><answer>5</answer>"]
)
def test_without_a_thought_there_is_one_step(text):
    assert verify_steps(tokens(text), PROBLEM, 0.25) == Steps([len(tokens(text)) - 1], [0.25])


def test_a_thought_that_goes_on_or_breaks_off():
    found = verify_steps(tokens("<think>1115555</think>"), PROBLEM, 0.0)
    assert found.rewards == [1.0] * 5 + [0.0] * 3
    found = verify_steps(tokens("<think>11<think>155</think>"), PROBLEM, 1.0)
    assert found == Steps([1, 2, 8], [1.0, 1.0, 1.0])
    cut = verify_steps(tokens("<think>1115", eos=False), PROBLEM, 0.0)
    assert cut == Steps([1, 2, 3, 4], [1.0, 1.0, 1.0, 0.0])  # the last token's step is the completion's


def test_an_unscored_completion_has_its_digits_only():
    assert verify_steps(tokens("<think>21"), PROBLEM, None) == Steps([1, 2], [0.0, 1.0])
    assert verify_steps(tokens("4"), PROBLEM, None) == Steps([], [])


def test_tokens_of_several_characters():
    found = verify_steps(["<th", "ink>", "11", "15", "5</", "think>", "5"], PROBLEM, 1.0)
    assert found == Steps([2, 3, 4, 6], [1.0, 1.0, 1.0, 1.0])
    assert verify_steps(["<think>", "12", "155", "."], PROBLEM, 1.0) == Steps([1, 2, 3], [0.0, 1.0, 1.0])


def test_a_task_without_worked_steps_has_the_completion_only():
    assert verify_steps(tokens("<think>11155</think>"), Problem("p", "5", ""), 1.0) == Steps([7], [1.0])


def test_right_thoughts_are_right_in_every_step():
    rng = random.Random(1)
    for _ in range(50):
        problem = shell_game(rng, swaps=rng.choice((3, 5, 6)))
        text = f"<think>{problem.steps}</think><answer>{problem.answer}</answer>"
        found = verify_steps(tokens(text), problem, 1.0)
        assert found.rewards == [1.0] * (len(problem.steps) + 1)
        assert found.ends == sorted(set(found.ends))
        assert found.ends[-1] == len(tokens(text)) - 1


def test_advantages_by_hand():
    # One group: steps 1, 0 | 0: mean 1/3, population std sqrt(2)/3: (2, -1 | -1) / sqrt(2).
    steps = [Steps([0, 2], [1.0, 0.0]), Steps([1], [0.0]), Steps([0], [1.0]), Steps([], [])]
    rows = step_advantages(steps, [3, 2, 1, 2], 2, AdvantageSpec(ddof=0, eps=0.0))
    root = np.sqrt(2.0)
    np.testing.assert_allclose(rows[0], [1 / root, -1 / root, -1 / root], rtol=1e-14)
    np.testing.assert_allclose(rows[1], [-1 / root] * 2, rtol=1e-14)
    assert [row.tolist() for row in rows[2:]] == [[0.0], [0.0, 0.0]]  # a single step has nothing to be compared with
    centred = step_advantages(steps, [3, 2, 1, 2], 2, AdvantageSpec(scale="none"))
    np.testing.assert_allclose(centred[0], [1 / 3, -1 / 3, -1 / 3], rtol=1e-14)
    table = padded(rows, torch.ones(4, 3))
    assert table.shape == (4, 3)
    np.testing.assert_allclose(table[1], [-1 / root, -1 / root, 0.0], rtol=1e-6)
