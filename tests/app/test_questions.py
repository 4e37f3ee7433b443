"""The Questions page: answers are short, their numbers are computed, and each link opens the state that it declares."""

from __future__ import annotations

import re
import string
from urllib.parse import parse_qs

import pytest

from app import link
from app.asked import asked, topics
from app.explain.questions import NUMBERS, question, questions
from app.link import View
from app.params import PARAMS
from app.places import Place, place
from app.words import sections

NAMES = tuple(asked())
CONSTANTS = {  # names and constants, not results: what an answer may say without computing it
    "0", "1", "3e-4", "0.2", "0.28", "0.6", "0.1", "10", "8", "k1", "k2", "k3", "0.04", "16", "-1", "−1", "−2",
}  # fmt: skip


def query_of(href: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(href.partition("?")[2], keep_blank_values=True).items()}


def test_there_are_enough_questions_and_every_topic_has_some():
    assert len(NAMES) >= 24
    assert {"group-size", "batch-std", "divide-std", "token-mean", "sum-normalise", "reward-std"} <= set(NAMES)
    assert len({question(name).question for name in NAMES}) == len(NAMES)
    assert all(sum(entry["topic"] == topic for entry in asked().values()) >= 3 for topic in topics())
    assert set(sections("questions")) == {"question", *NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_two_sentences_that_hold_all_computed_numbers(name):
    ask, _, answer = sections("questions")[name].partition("\n\n")
    assert "?" in ask
    assert 1 <= len(re.findall(r"[.!?](?=\s|$)", answer)) <= 3
    assert len(answer) < 520
    wanted = {field for _, field, _, _ in string.Formatter().parse(answer) if field}
    given = set(NUMBERS[name](place(asked()[name]).lens())) if name in NUMBERS else set()
    assert wanted <= given
    assert bool(wanted) == (name in NUMBERS)
    written = set(re.findall(r"[−-]?\d+(?:\.\d+)?(?:e-?\d+)?", re.sub(r"\{\w+\}|`[^`]*`|\bk[123]\b|@\w+", "", answer)))
    assert written <= CONSTANTS


def test_every_number_is_a_number():
    for name in NUMBERS:
        assert not re.search(r"\bnan\b|∞|–(?!\d)|None|\{|\}", question(name).answer), name


@pytest.mark.parametrize("name", NAMES)
def test_the_link_says_the_declared_state_and_nothing_else(name):
    declared = question(name).place
    assert f"g={declared.group}" in declared.href()
    view, notes = link.from_query(query_of(declared.href()))
    assert notes == []
    assert view == declared.view()
    for setting, text in declared.settings.items():
        assert link.value_of(view.chosen, setting) == PARAMS[setting].parse(text)
    assert len(declared.href()) < 250


@pytest.mark.parametrize("name", NAMES)
def test_the_link_opens_its_page_in_that_state(open_page, name):
    declared = question(name).place
    at = open_page(declared.page, query_of(declared.href()))
    assert not at.exception
    assert [box.value for box in (*at.warning, *at.error)] == []
    own = at.session_state["grpo_lab"]
    assert own.view == declared.view()
    assert own.page == ("" if declared.page == "home" else declared.page)


@pytest.mark.parametrize(
    "broken",
    [
        Place("clip", {"r": "abc"}),
        Place("clip", {"no_such_setting": "1"}),
        Place("clip", {}, group="one-of-four", edit={"rewards": [1, 2]}),
        Place("clip", {}, group="no-such-group"),
    ],
)
def test_a_dead_place_is_an_error_and_not_another_view(broken):
    with pytest.raises((ValueError, KeyError)):
        broken.query()


def test_a_telling_case_that_does_not_exist_is_an_error():
    with pytest.raises(KeyError):
        place({"page": "clip", "preset": "no-such-case"})


def test_search_and_topic_narrow_the_list():
    assert {one.id for one in questions(words="CLIP ratio 0")} >= {"clip-zero"}
    assert questions(words="no such words at all") == []
    assert {one.topic for one in questions("kl")} == {"kl"}


def test_the_page_lists_every_question_and_finds_one(open_page):
    at = open_page("questions")
    assert not at.exception
    shown = {heading.value for heading in at.subheader}
    assert shown == {question(name).question for name in NAMES}
    at.text_input(key="question-search").set_value("detach").run()
    assert [heading.value for heading in at.subheader] == [question("exp-detach").question]


def test_a_link_to_one_question_shows_it_first(open_page):
    at = open_page("questions", {"q": "unbounded"})
    assert at.subheader[0].value == question("unbounded").question
    at = open_page("questions", {"q": "no-such-question"})
    assert at.warning[0].value
    assert at.subheader[0].value == question(NAMES[0]).question


def test_a_question_leaves_the_readers_own_view_alone(open_page):
    at = open_page("questions", {"g": "off-policy", "q": "unbounded", "topic": "kl"})
    view = at.session_state["grpo_lab"].view
    assert view == View({"q": "unbounded", "topic": "kl"}, "off-policy", view.group)
