"""Groups from pasted text: what is read, what is refused with its place, and what a group written out gives back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import pasting
from app.chooser import EXAMPLE
from app.explain import loss
from app.lens import look
from app.params import PARAMS, default
from app.teaching import teaching_groups
from app.words import t
from grpo_core import Group

VALUES = {name: default(name, "grpo_paper") for name in PARAMS}


@pytest.mark.parametrize("name", list(teaching_groups()))
def test_a_group_written_as_a_table_or_as_json_is_read_back(name):
    group = teaching_groups()[name]
    same = group.replace(prompt="", answer=None, reward_parts={})
    back, notes = pasting.read_group(pasting.to_table(group))
    assert back == same
    assert notes == []
    assert pasting.read_group(json.dumps(group.to_json()))[0] == group


tokens = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6).filter(
    lambda text: not text.startswith("'")
)


@given(st.lists(st.lists(tokens, max_size=4), min_size=1, max_size=4))
def test_any_token_survives_the_table(rows):
    group = Group(
        prompt="",
        tokens=tuple(map(tuple, rows)),
        rewards=tuple(float(i) for i in range(len(rows))),
        logp=tuple(tuple(-0.5 for _ in row) for row in rows),
    )
    assert pasting.read_group(pasting.to_table(group))[0] == group


def test_the_table_to_take_away_from_the_loss_page_is_a_group_again():
    group = teaching_groups()["one-unscored"]
    back, notes = pasting.read_group(loss.table(look(group, VALUES)).csv())
    assert back == group.replace(prompt="", answer=None, finish=None)
    assert len(notes) == 1


def test_the_example_on_the_page_is_a_group():
    group, notes = pasting.read_group(EXAMPLE)
    assert group.size == 2
    assert group.rewards == (1.0, 0.0)
    assert group.ref_logp[1] == (-1.55, -0.66)
    assert notes == []


def test_a_row_a_completion_needs_no_tokens_and_says_what_was_assumed():
    group, notes = pasting.read_group("reward\tlength\n1\t3\n0\t5\nunscored\t0")
    assert group.rewards == (1.0, 0.0, None)
    assert group.lengths == (3, 5, 0)
    assert {x for row in group.logp for x in row} == {pasting.DEFAULT_LOGP}
    assert notes == [t("paste.split"), t("paste.no_logp", value="-1")]


def test_texts_are_split_at_spaces_and_stay_text():
    group, _ = pasting.read_group('text;reward\n"<b>so</b> $x$ is 4";1\nno;0')
    assert group.tokens == (("<b>so</b>", " $x$", " is", " 4"), ("no",))


def test_json_may_list_completions():
    completions = [{"tokens": ["4"], "reward": 1, "logp": [-0.1]}, {"text": "no idea", "reward": None}]
    text = json.dumps({"prompt": "2+2?", "completions": completions})
    group, notes = pasting.read_group(text)
    assert group.prompt == "2+2?"
    assert group.tokens == (("4",), ("no", " idea"))
    assert group.rewards == (1.0, None)
    assert len(notes) == 2


def test_columns_that_are_not_read_are_named():
    _, notes = pasting.read_group("completion,token,logp,reward,colour\n1,a,-1,1,red")
    assert len(notes) == 1
    assert "colour" in notes[0]


def test_rows_of_one_completion_need_not_stand_together_and_a_mask_may_be_a_decimal_number():
    group, _ = pasting.read_group("completion,token,mask,reward\n1,a,1.0,1\n2,c,1.0,0\n1,b,0.0,1")
    assert group.tokens == (("a", "b"), ("c",))
    assert group.mask == ((True, False), (True,))


def test_json_without_tokens_is_split_and_half_a_character_is_a_question_mark():
    group, _ = pasting.read_group('[{"tokens": null, "text": "a b", "reward": 1}, {"text": "\\ud800!", "reward": 0}]')
    assert group.tokens == (("a", " b"), ("?!",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "nothing to read"),
        ("hello", "must name the columns"),
        ("1, 0, 0", "must name the columns"),
        ("completion,token,reward", "no rows"),
        ("completion,token,logp,reward\n1,a,-1", "Row 2: it has 3 cells"),
        ("completion,token,logp,reward\n1,a,nan,1", "Row 2: logp must be a finite number"),
        ("completion,token,logp,reward\n1,a,-1,1\n2,b,x,0", "Row 3: logp must be a finite number"),
        ("completion,token,logp,reward\n1,a,0.5,1", "at most 0"),
        ("completion,token,logp,reward\n1,a,-1,inf", "Row 2"),
        ("length,reward\n-1,1", "Row 2: length"),
        ("length,reward\n1e9,1", "Row 2: length"),
        ("length,reward\n20000,1\n20000,0", "larger than the explorer"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[1, 2]", "list of objects"),
        ('[{"tokens": ["a"], "reward": NaN}]', "rewards"),
        ('[{"tokens": ["a"]}]', "Row 1: there is no reward"),
        ('[{"tokens": ["a"], "reward": 1, "evil": 2}]', "unknown fields"),
        ('{"prompt": "x"}', "lacks"),
        ('[{"tokens": 5, "reward": 1}]', "must be a list of texts"),
        ('[{"tokens": ["a"], "reward": 1e300}]', "beyond ±1,000,000"),
        ('[{"tokens": ["a"], "reward": 1, "logp": [-1e5]}]', "below −10,000 nats"),
        ('text,reward\n"' + "x" * 140_000 + ",1", "far too long"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, says):
    with pytest.raises(ValueError, match=says):
        pasting.read_group(text)


def test_a_pasted_group_is_on_every_page_and_a_wrong_one_changes_nothing(open_page):
    at = open_page("advantages")
    at.button(key="open-group").click().run()
    at.text_area(key="paste-text").set_value("completion,token\n1,a").run()
    before = at.session_state["grpo_lab"].view
    at.button(key="paste-take").click().run()
    assert not at.exception
    assert len(at.error) == 1
    assert at.session_state["grpo_lab"].view == before
    at.text_area(key="paste-text").set_value("reward,length\n1,2\n0,2\n0,3").run()
    at.button(key="paste-take").click().run()
    assert not at.exception
    assert at.session_state["grpo_lab"].view.group.rewards == (1.0, 0.0, 0.0)
    assert at.session_state["grpo_lab"].view.base == ""
    at.switch_page("../pages/reduction.py").run()
    assert at.session_state["grpo_lab"].view.group.lengths == (2, 2, 3)
