"""Links: what is written is what is read; what strangers write is bounded, checked and reported."""

from __future__ import annotations

import json
import zlib
from base64 import urlsafe_b64encode
from urllib.parse import parse_qs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import editing, link
from app.link import View
from app.params import PARAMS, RECIPE_BOUND, SHOWN_RECIPES, default
from app.teaching import teaching_groups
from grpo_core import Group


def reopened(view: View) -> View:
    """The view that a fresh browser gets from the link of `view`."""
    text = link.encode(link.to_query(view))
    query = {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}
    result, notes = link.from_query(query)
    assert notes == []
    return result


def test_the_start_needs_no_parameters():
    assert link.to_query(View()) == {}
    assert reopened(View()) == View()


@pytest.mark.parametrize("base", teaching_groups())
def test_every_teaching_group_comes_back(base):
    view = View({}, base, teaching_groups()[base])
    assert reopened(view) == view


def values(param):
    """A strategy for any value of a setting."""
    if param.kind == "choice":
        return st.sampled_from(param.choices)
    if param.kind == "names":
        return st.none() | st.lists(st.sampled_from(param.choices), min_size=1, max_size=6, unique=True).map(tuple)
    if param.kind == "numbers":
        several = st.lists(st.floats(param.low, param.high), min_size=2, max_size=8).map(tuple)
        return st.none() | several if param.optional else several
    if param.kind == "steps":
        rewards = st.floats(param.low, param.high).map(lambda x: round(x, 4))
        ends = st.lists(st.integers(1, 200), min_size=1, max_size=8, unique=True).map(sorted)
        row = ends.flatmap(lambda own: st.tuples(*(st.tuples(rewards, st.just(end)) for end in own)))
        return st.lists(row, min_size=1, max_size=8).map(tuple)
    if param.kind == "packed":
        return st.none() | st.text("abcXYZ019-_", min_size=6, max_size=200)
    low = param.low if param.floor is None else param.floor
    high = param.high if param.ceiling is None else param.ceiling
    number = st.integers(int(low), int(high)) if param.kind == "whole" else st.floats(low, high)
    return st.none() | number if param.optional else number


@given(st.fixed_dictionaries({}, optional={name: values(param) for name, param in PARAMS.items()}))
@settings(deadline=None, max_examples=100)
def test_every_setting_comes_back_exactly(chosen):
    recipe = chosen.get("recipe", PARAMS["recipe"].default)
    kept = {name: value for name, value in chosen.items() if value != default(name, recipe)}
    assert reopened(View(kept)).chosen == kept


rewards = st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=12)


@given(rewards, st.sampled_from(sorted(teaching_groups())), st.integers(0, 40))
@settings(deadline=None, max_examples=60)
def test_every_edit_of_a_group_comes_back_exactly(values_, base, length):
    group = editing.with_rewards(teaching_groups()[base], values_)
    group = editing.with_length(group, 0, length, source=teaching_groups()[base])
    view = View({}, base, group)
    assert reopened(view) == view


hostile = st.text(max_size=20)


@given(hostile, st.lists(hostile, max_size=5))
@settings(deadline=None, max_examples=60)
def test_a_group_with_any_text_comes_back(prompt, tokens):
    group = Group(prompt=prompt, tokens=(tuple(tokens),), rewards=(1.0,), logp=((-0.5,) * len(tokens),))
    view = View({}, "", group)
    assert reopened(view) == view


def test_a_link_of_edited_rewards_is_short():
    view = View({}, "one-of-four", editing.with_rewards(teaching_groups()["one-of-four"], [1, 0.5, 0, None]))
    assert len(link.encode(link.to_query(view))) < 80


def test_a_group_too_large_for_a_link_is_left_out_and_said():
    words = [[f"{i}-{k * 7919 % 104729}" for k in range(300)] for i in range(20)]
    logp = tuple(tuple(-((i * 31 + k * 17) % 997) / 991 for k in range(300)) for i in range(20))
    group = Group(prompt="p", tokens=tuple(map(tuple, words)), rewards=(1.0,) * 20, logp=logp)
    view = View({}, "", group)
    assert link.too_large(view)
    query = link.to_query(view)
    assert query == {"gx": link.LEFT_OUT}
    elsewhere, notes = link.from_query(query)
    assert elsewhere == View()
    assert len(notes) == 1
    assert "too large" in notes[0]
    assert link.from_query({**query, "r": "2"}, view) == (View({"r": 2.0}, "", group), [])


BOMB = urlsafe_b64encode(zlib.compress(b'"' + b"a" * 50_000_000 + b'"', 9)).decode().rstrip("=")
BAD_DATA = (
    [1, 2],
    {"whole": True},
    {"rewards": ["x"]},
    {"rewards": [1]},
    {"rewards": [1e400, 0, 0, 0]},
    {"rewards": [1e300, 0, 0, 0]},
    {"whole": True, "prompt": "", "tokens": [["a"]], "rewards": [1], "logp": [[-1e5]]},
    {"logp": 3},
    {"nope": 1},
    {"without": 5},
    {"without": ["tokens"]},
)
BAD_PACKS = ["", "A", "!!!!", "AAAA", "eJw", BOMB, "A" * 100_000, "é", *map(link.pack, BAD_DATA)]


@pytest.mark.parametrize("packed", BAD_PACKS)
def test_a_damaged_or_hostile_pack_is_a_note(packed):
    view, notes = link.from_query({"gx": packed})
    assert view == View()
    assert len(notes) == 1


@given(st.dictionaries(st.sampled_from([*PARAMS, "g", "gx", "x"]), st.text(max_size=60), max_size=8))
@settings(deadline=None, max_examples=200)
def test_no_link_raises(query):
    view, notes = link.from_query(query)
    for name, value in view.chosen.items():
        assert PARAMS[name].parse(PARAMS[name].write(value)) == value
    assert all(isinstance(note, str) for note in notes)


def test_half_a_character_in_a_link_can_be_sent_to_a_browser():
    data = {"whole": True, "prompt": "\ud800", "tokens": [["a"]], "rewards": [1], "logp": [[-1]]}
    text = urlsafe_b64encode(zlib.compress(json.dumps(data).encode())).decode().rstrip("=")
    view, notes = link.from_query({"gx": text})
    assert view.group.prompt == "?"
    assert not notes
    assert link.from_query(link.to_query(view)) == (view, [])


def test_a_group_larger_than_the_explorer_is_refused():
    group = Group(prompt="p", tokens=(("a",),) * 65, rewards=(1.0,) * 65, logp=((-1.0,),) * 65)
    with pytest.raises(ValueError, match="larger than the explorer"):
        link.bounded(group)


def test_recipes_give_defaults_inside_the_ranges():
    for recipe in SHOWN_RECIPES:
        for name in RECIPE_BOUND:
            value = default(name, recipe)
            assert PARAMS[name].parse(PARAMS[name].write(value)) == value
