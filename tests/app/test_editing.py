"""Edits of a group by hand."""

from __future__ import annotations

import pytest

from app import editing
from app.params import PARAMS
from app.teaching import teaching_groups

FOUR = teaching_groups()["one-of-four"]


@pytest.mark.parametrize(
    ("text", "reward"), [("1", 1.0), (" −0.5 ", -0.5), ("unscored", None), ("None", None), ("1e-3", 1e-3)]
)
def test_a_cell_is_a_number_or_unscored(text, reward):
    assert editing.parse_reward(text) == reward


@pytest.mark.parametrize("text", ["", " ", "x", "nan", "inf", "1e7", "1,2", "0x10"])
def test_a_bad_cell_says_what_to_type(text):
    with pytest.raises(ValueError, match="last value stays"):
        editing.parse_reward(text)


def test_a_bad_cell_in_a_line_is_named():
    with pytest.raises(ValueError, match=r"Reward 2\..*abc"):
        editing.parse_rewards("1, abc, 0")


def test_a_line_is_read_back_as_written():
    assert editing.parse_rewards(editing.write_rewards((1.0, None, 0.25))) == (1.0, None, 0.25)


def test_growing_repeats_completions_with_reward_0_and_shrinking_drops_the_last():
    grown = editing.resized(FOUR, 6)
    assert grown.size == 6
    assert grown.tokens[4] == FOUR.tokens[0]
    assert grown.rewards == (*FOUR.rewards, 0.0, 0.0)
    assert editing.resized(grown, 4) == FOUR


@pytest.mark.parametrize("length", [0, 1, 5, 8, 30])
def test_a_length_is_exact_and_keeps_the_end(length):
    changed = editing.with_length(FOUR, 0, length, source=FOUR)
    assert len(changed.tokens[0]) == length
    assert changed.tokens[1:] == FOUR.tokens[1:]
    if length:
        assert changed.tokens[0][-1] == ("<eos>" if length > 0 else None)
        assert changed.logp[0][-1] == FOUR.logp[0][-1]


def test_a_length_dragged_down_and_up_again_gives_the_same_group():
    down = editing.with_length(FOUR, 0, 0, source=FOUR)
    assert down.tokens[0] == ()
    assert editing.with_length(down, 0, 8, source=FOUR) == FOUR


def test_an_empty_completion_can_grow():
    empty = teaching_groups()["cut-and-empty"]
    assert len(editing.with_length(empty, 1, 3, source=empty).tokens[1]) == 3


STEPS = (((1.0, 3), (0.0, 6)), ((1.0, 4),))


@pytest.mark.parametrize(
    ("what", "at", "value", "expected"),
    [
        ("reward", (0, 1), -2.5, (((1.0, 3), (-2.5, 6)), ((1.0, 4),))),
        ("end", (0, 0), 5, (((1.0, 5), (0.0, 6)), ((1.0, 4),))),
        ("end", (0, 0), 150, (((1.0, 5), (0.0, 6)), ((1.0, 4),))),  # it stays before the next step's end
        ("end", (0, 1), 1, (((1.0, 3), (0.0, 4)), ((1.0, 4),))),  # and after the one before it
        ("end", (1, 0), 200, (((1.0, 3), (0.0, 6)), ((1.0, 200),))),
        ("count", (1,), 3, (((1.0, 3), (0.0, 6)), ((1.0, 4), (1.0, 6), (1.0, 8)))),
        ("count", (0,), 1, (((1.0, 3),), ((1.0, 4),))),
        ("size", (), 3, (*STEPS, ((1.0, 4),))),
        ("size", (), 1, STEPS[:1]),
    ],
)
def test_steps_are_edited_one_thing_at_a_time(what, at, value, expected):
    changed = editing.with_step(STEPS, what, list(at), value)
    assert changed == expected
    assert PARAMS["steps"].parse(PARAMS["steps"].write(changed)) == changed


def test_steps_never_go_beyond_the_longest_completion():
    full = editing.with_step((((1.0, 199),),), "count", [0], 8)
    assert full == (((1.0, 199), (1.0, 200)),)
