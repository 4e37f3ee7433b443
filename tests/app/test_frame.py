"""Links for a class: parts left out, a locked view, and everything large for a projector."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from app import frame, link
from app.figures.base import LIGHT, axis, enlarged, figure, layout, line
from app.frame import PARTS, Frame
from app.params import PARAMS
from app.words import catalogue
from tests.app.driving import pictures


@pytest.mark.parametrize(
    "own", [Frame(), Frame(lock=True), Frame(hide=PARTS), Frame(hide=("check",), lock=True, present=True)]
)
def test_a_frame_comes_back_from_its_link(own):
    assert frame.from_query(frame.to_query(own), Frame()) == (own, [])


def test_presentation_stays_on_the_next_page_and_hiding_does_not():
    before = Frame(hide=("controls",), lock=True, present=True)
    assert frame.from_query({}, before) == (Frame(present=True), [])
    assert frame.from_query({"present": "0"}, before) == (Frame(), [])


@pytest.mark.parametrize("query", [{"hide": "everything"}, {"lock": "yes"}, {"present": "<b>"}, {"hide": "a" * 5000}])
def test_what_is_not_known_becomes_a_note_and_changes_nothing(query):
    own, notes = frame.from_query(query, Frame())
    assert own == Frame()
    assert len(notes) == 1
    assert "<" not in notes[0]


def test_no_setting_has_a_name_of_the_frame():
    assert not set(frame.NAMES) & set(PARAMS)
    assert set(frame.NAMES) <= set(link.RESERVED)
    assert all(f"part.{part}" in catalogue() for part in PARTS if part != "menu")


def page_state(at):
    return at.session_state["grpo_lab"]


def keys(at) -> set[str]:
    """The keys of everything on the page that can be operated."""
    kinds = ("button", "selectbox", "text_input", "button_group")
    return {element.key for kind in kinds for element in at.get(kind) if element.key}


def test_an_unlocked_page_offers_everything(open_page):
    at = open_page("clip")
    assert {"undo", "reset", "present", "choice-group", "choice-recipe", "choice-sign", "choice-clip_view"} <= keys(at)
    assert "unlock" not in keys(at)


@pytest.mark.parametrize("page", ["", "advantages", "clip", "kl", "reduction", "loss", "gradients", "ppo", "sampling"])
def test_a_locked_view_can_be_read_and_not_changed(open_page, page):
    at = open_page(page or "home", {"lock": "1", "g": "off-policy"})
    assert not at.exception
    assert not {"undo", "reset", "present", "choice-group", "choice-recipe"} & keys(at)
    for kind in ("selectbox", "text_input", "button_group"):
        assert all(element.disabled for element in at.get(kind) if (element.key or "").startswith("choice-"))
    assert "unlock" in keys(at)
    before = page_state(at).view
    at.button(key="unlock").click().run()
    assert page_state(at).frame == Frame()
    assert page_state(at).view == before
    assert "unlock" not in keys(at)


def test_a_locked_view_keeps_its_state_whatever_reaches_the_server(open_page):
    """Disabled widgets are the browser's word; the session itself must refuse."""
    at = open_page("advantages", {"lock": "1"})
    before, line_ = page_state(at).view, at.text_input(key="rewards-line")
    line_.proto.disabled = False
    line_.set_value("0, 0, 1, 1").run()
    assert page_state(at).view == before
    at = open_page("advantages")
    at.text_input(key="rewards-line").set_value("0, 0, 1, 1").run()
    assert page_state(at).view != before


@pytest.mark.parametrize(
    ("part", "gone"),
    [("bar", "choice-group"), ("views", "choice-clip_view"), ("cases", "preset-clip-curve")],
)
def test_a_part_can_be_left_out(open_page, part, gone):
    assert gone in keys(open_page("clip"))
    at = open_page("clip", {"hide": part})
    assert gone not in keys(at)
    assert page_state(at).frame == Frame(hide=(part,))


def test_formula_notice_question_and_data_can_be_left_out(open_page):
    whole, bare = open_page("clip"), open_page("clip", {"hide": "formula,notice,check,take"})
    assert whole.latex
    assert whole.info
    assert len(whole.expander) == 2
    assert not bare.latex
    assert not bare.info
    assert len(bare.expander) == 0


def test_controls_that_are_left_out_are_hidden_by_style_and_stay_in_force(open_page):
    at = open_page("clip", {"hide": "controls", "r": "2.5"})
    assert any(".st-key-page-body" in element.proto.body for element in at.get("html"))
    assert page_state(at).view.chosen == {"r": 2.5}
    assert not any(".st-key-page-body" in element.proto.body for element in open_page("clip").get("html"))


def test_an_unknown_part_is_said_on_the_page(open_page):
    at = open_page("clip", {"hide": "walls"})
    assert "walls" in at.warning[0].value.replace("\\", "")


def test_presentation_enlarges_type_and_pictures(open_page):
    small, large = open_page("clip"), open_page("clip", {"present": "1"})
    before, after = (pictures(at)[0] for at in (small, large))
    go.Figure(after)
    assert after["layout"]["height"] > before["layout"]["height"]
    assert after["layout"]["xaxis"]["tickfont"]["size"] > before["layout"]["xaxis"]["tickfont"]["size"]
    assert after["data"][-1]["x"] == before["data"][-1]["x"]
    assert any("font-size" in element.proto.body for element in large.get("html"))
    large.button(key="present").click().run()
    assert pictures(large)[0] == before


def test_enlarging_leaves_data_and_a_bars_own_width_alone():
    bar = {"type": "bar", "x": [1], "y": [2], "width": 0.4, "marker": {"line": {"width": 2}, "size": [3, 4]}}
    spec = figure([line([0, 1], [2, 3], "red", width=2), bar], layout(LIGHT, height=100, xaxis=axis(LIGHT, "size")))
    large = enlarged(spec)
    assert large["data"][0]["x"] == [0, 1]
    assert large["data"][0]["line"]["width"] == pytest.approx(2.8)
    assert large["data"][1]["width"] == 0.4
    assert large["data"][1]["marker"]["size"] == pytest.approx([3.9, 5.2])
    assert large["layout"]["height"] == pytest.approx(120)
    assert large["layout"]["xaxis"]["title"]["text"] == "size"
    assert spec["data"][0]["line"]["width"] == 2
