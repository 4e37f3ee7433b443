"""English and Chinese: both say everything, with the same numbers in it; the choice is in the link and stays."""

from __future__ import annotations

import re
import string

import pytest
from babel.messages.pofile import read_po
from streamlit.testing.v1 import AppTest

from app import link, words
from app.frame import Frame, from_query, to_query
from app.params import PARAMS, Param
from app.recipe_words import recipe_note, recipe_title
from app.words import CONTENT, ENGLISH, LANGUAGES, catalogue, formula, language, said, sections
from grpo_core import RECIPES

OTHERS = tuple(name for name in LANGUAGES if name != ENGLISH)
PROSE = tuple(sorted(path.stem for path in (CONTENT / ENGLISH).glob("*.md")))
PAGES = (
    "home", "questions", "advantages", "clip", "kl", "reduction", "loss", "gradients", "ppo", "sampling", "rewards",
    "live",
)  # fmt: skip
VIEWS = {
    "advantages": ("adv_view",), "clip": ("clip_view", "levels_view"), "kl": ("kl_view",), "reduction": ("red_view",),
    "loss": ("loss_view",), "gradients": ("grad_view",), "ppo": ("ppo_view", "critic_view", "trust_view", "dpo_view"),
    "sampling": ("samp_view",), "rewards": ("rew_view",),
}  # fmt: skip
NOTATION = {"GB", "PPO:", "GRPO:", "--"}  # what \text holds in a formula that is not a word
CJK = re.compile(r"[\u4e00-\u9fff]")
ENGLISH_PROSE = re.compile(r"(?:\b[A-Za-z][a-z]*\b[ ,]+){4,}\b[a-z]+\b")  # five words in a row


def fields(text: str) -> list[str]:
    """Return what is put into a text: {names}, and Plotly's %{expressions}."""
    return sorted(set(re.findall(r"%?\{[^{}]*\}", text)))


# The words themselves


@pytest.mark.parametrize("name", OTHERS)
def test_a_language_has_every_label_and_no_other(name):
    own = {key for key in catalogue(name) if not key.startswith(("recipe.", "said."))}
    assert sorted(set(catalogue()) - own) == []
    assert sorted(own - set(catalogue())) == []
    recipes = {key for key in catalogue(name) if key.startswith("recipe.")}
    assert recipes == {f"recipe.{recipe}.{part}" for recipe in RECIPES for part in ("title", "note")}


@pytest.mark.parametrize("name", OTHERS)
def test_a_label_has_the_same_fields_in_every_language(name):
    own = catalogue(name)
    wrong = {key: own[key] for key, text in catalogue().items() if fields(text) != fields(own[key])}
    assert wrong == {}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("page", PROSE)
def test_a_page_has_the_same_sections_with_the_same_fields_in_every_language(name, page):
    own = sections(page, name)
    assert list(own) == list(sections(page))
    assert {key: own[key] for key, text in sections(page).items() if fields(text) != fields(own[key])} == {}


def test_chinese_texts_are_chinese():
    texts = {f"{page} {key}": text for page in PROSE for key, text in sections(page, "zh").items()}
    for key, text in {**texts, **catalogue("zh")}.items():
        assert not ENGLISH_PROSE.search(text), (key, text)
    plain = {key: re.sub(r"\{\w+\}", "", text) for key, text in texts.items() if not CJK.search(text)}
    assert {key: text for key, text in plain.items() if re.search(r"[A-Za-z]{5}", text)} == {}  # "top-p 0.8" may stay


def test_labels_in_another_file_are_refused(tmp_path, monkeypatch):
    assert [str(path) for path in CONTENT.rglob("labels*.json")] == []
    (tmp_path / ENGLISH).mkdir()
    (tmp_path / ENGLISH / "labels_new.json").write_text("{}")
    monkeypatch.setattr(words, "CONTENT", tmp_path)
    with pytest.raises(ValueError, match=r"messages\.po, not into labels_new\.json"):
        catalogue.__wrapped__()


@pytest.mark.parametrize("name", LANGUAGES)
def test_no_key_is_defined_twice(name):
    keys = re.findall(r'^msgid "(.+)"$', (CONTENT / name / "messages.po").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(keys) == len(catalogue(name))
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("name", OTHERS)
def test_a_translation_is_of_the_english_as_it_is_now(name):
    """Above each translated label stands the English that it translates: "#. text"."""
    with (CONTENT / name / "messages.po").open("rb") as file:
        of = {message.id: " ".join(message.auto_comments) for message in read_po(file) if message.id}
    stale = {key: text for key, text in catalogue().items() if of[key].split() != text.split()}
    assert stale == {}, "their English has changed: translate them anew and put the new English above them"


def test_a_label_is_english_where_a_language_lacks_it(monkeypatch):
    monkeypatch.setattr(words, "catalogue", lambda name=ENGLISH: {"a.key": "text {n}"} if name == ENGLISH else {})
    monkeypatch.setattr(words, "_source", [lambda: "zh"])
    assert words.t("a.key", n=3) == "text 3"


# Words of the core


def test_every_recipe_has_a_chinese_title_and_note(speak):
    english = {name: recipe_title(name) for name in RECIPES}
    assert english == {name: recipe.title for name, recipe in RECIPES.items()}
    speak("zh")
    assert len({recipe_title(name) for name in RECIPES}) == len(RECIPES)
    assert all(CJK.search(recipe_note(name)) for name in RECIPES)


def test_words_of_a_formula_are_translated_and_numbers_stay(speak):
    latex = r"\text{mixed} &= \text{6 groups}\; \mathrm{clip}(r) \textbf{pull} \text{ exactly}"
    assert formula(latex) == latex
    speak("zh")
    assert formula(latex) == r"\text{混合} &= \text{6 种组}\; \mathrm{clip}(r) \textbf{推力} \text{ 恰好}"
    assert said("words without a label") == "words without a label"


# Pages in both languages


def shown(at: AppTest) -> list[str]:
    """Return the prose and the labels on a page."""
    kinds = ("markdown", "caption", "info", "warning", "error", "success", "title", "header", "subheader")
    texts = [element.value for kind in kinds for element in at.get(kind) if element.value]
    widgets = ("text_input", "selectbox", "checkbox", "toggle", "button", "metric", "expander", "number_input")
    texts += [element.label for kind in widgets for element in at.get(kind)]
    return [re.sub(r"`[^`]*`|\\?<[^>]*>", "", text) for text in texts if "<style>" not in text]


def speaks_chinese(at: AppTest) -> None:
    """Everything on the page is Chinese: prose, labels, the words in formulas."""
    assert CJK.search(at.title[0].value) or at.title[0].value == "KL"
    for text in shown(at):
        if "arXiv" not in text:  # titles of papers stay as they are
            assert not ENGLISH_PROSE.search(text), text
    prose = "".join(shown(at))
    letters = len(re.findall(r"[A-Za-z]", prose))
    assert len(CJK.findall(prose)) > 0.5 * letters, prose
    for element in at.latex:
        left = {word.strip() for word in re.findall(r"\\text(?:bf)?\{([^{}]*[A-Za-z]{2}[^{}]*)\}", element.value)}
        assert {word for word in left if not CJK.search(word)} <= NOTATION, element.value


def extreme(param: Param, *, high: bool) -> str | None:
    """Return the smallest or largest value of a setting as a link writes it."""
    end = (param.high if param.ceiling is None else param.ceiling) if high else param.low
    if not high and param.floor is not None:
        end = param.floor
    if param.kind in ("number", "whole"):
        return param.write(end)
    if param.kind == "numbers" and param.default is not None:
        return param.write((end,) * len(param.default))
    return None


def extremes(*, high: bool) -> dict[str, str]:
    """Return every setting at one of its ends."""
    own = {name: extreme(param, high=high) for name, param in PARAMS.items()}
    own["horizon"] = "50"  # longer completions take the trust region's curve seconds
    return {name: text for name, text in own.items() if text is not None}


def views(page: str) -> list[dict[str, str]]:
    """Return the settings that open each picture of a page."""
    first, *inner = VIEWS.get(page, ("",))
    found = [{first: choice} for choice in PARAMS[first].choices] if first else [{}]
    return found + [{first: name.split("_")[0], name: choice} for name in inner for choice in PARAMS[name].choices]


@pytest.mark.parametrize("name", LANGUAGES)
@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens_in_every_language(open_page, page, name):
    for view in views(page):
        at = open_page(page, {**view, **({} if name == ENGLISH else {"lang": name})})
        assert not at.exception, (view, [e.value for e in at.exception])
        assert not at.warning
        if name == "zh":
            speaks_chinese(at)
        else:
            assert not any(CJK.search(text) for text in shown(at))


@pytest.mark.parametrize("name", LANGUAGES)
@pytest.mark.parametrize("page", [page for page in PAGES if page != "live"])
@pytest.mark.parametrize("high", [False, True])
def test_every_page_opens_with_every_setting_at_its_end(open_page, page, name, high):
    for view in views(page):
        at = open_page(page, {**extremes(high=high), **view, **({} if name == ENGLISH else {"lang": name})})
        assert not at.exception, (view, [e.value for e in at.exception])
        if name == "zh":
            speaks_chinese(at)


@pytest.mark.parametrize("group", ["all-wrong", "one-unscored", "cut-and-empty", "off-policy", "lengths-10-100"])
def test_other_groups_are_told_in_chinese(open_page, group):
    for page in ("home", "advantages", "reduction", "loss"):
        at = open_page(page, {"g": group, "lang": "zh"})
        assert not at.exception
        speaks_chinese(at)


# The choice


def test_the_language_is_in_the_link_and_english_is_left_out():
    assert to_query(Frame()) == {}
    assert to_query(Frame(language="zh", present=True)) == {"present": "1", "lang": "zh"}
    assert Frame(language="zh", lock=True).opened() == Frame(language="zh")


def test_an_unknown_language_is_english_with_a_note(open_page):
    frame, notes = from_query({"lang": "<b>xx</b>"}, Frame())
    assert frame == Frame()
    assert len(notes) == 1
    assert "<" not in notes[0]
    at = open_page("clip", {"lang": "xx"})
    assert not at.exception
    assert len(at.warning) == 1
    assert at.title[0].value == "Ratio and clip"


def test_a_link_opens_its_language_and_the_reader_takes_it_along(open_page, speak):
    speak("zh")
    at = open_page("clip", {"lang": "zh", "r": "2"})
    assert at.title[0].value == "比率与裁剪"
    assert at.session_state["grpo_lab"].frame.language == "zh"
    at.query_params.clear()
    at.switch_page("../pages/kl.py").run()
    speaks_chinese(at)
    assert at.session_state["grpo_lab"].frame.language == "zh"
    assert at.session_state["grpo_lab"].view.chosen == {"r": 2.0}


def test_switching_changes_the_words_and_nothing_else(open_page, speak):
    at = open_page("advantages", {"adv_view": "rates", "p": "0.3"})
    at.segmented_control(key="choice-adv_view").set_value("bars").run()
    at.text_input(key="rewards-line").set_value("0, 1, unscored, 0.25").run()
    before = at.session_state["grpo_lab"].view
    numbers = [m.value for m in at.metric][:2]
    at.segmented_control(key="language").set_value("zh").run()
    speak("zh")
    assert not at.exception
    speaks_chinese(at)
    assert at.session_state["grpo_lab"].view == before
    assert [m.value for m in at.metric][:2] == numbers
    at.segmented_control(key="language").set_value("en").run()
    speak("en")
    assert at.title[0].value == "Advantages"
    assert at.session_state["grpo_lab"].view == before


def test_words_in_memory_are_kept_apart_by_language(monkeypatch):
    made = []

    @words.cached
    def title(page: str) -> str:
        made.append(page)
        return words.t(f"page.{page}")

    for name in ("en", "zh", "en", "zh"):
        monkeypatch.setattr(words, "_source", [lambda name=name: name])
        assert title("clip") == catalogue(name)["page.clip"]
    assert made == ["clip", "clip"]
    assert language() == "zh"


def test_a_link_does_not_take_the_language_for_a_setting():
    _, notes = link.from_query({"lang": "zh"})
    assert notes == []


def test_labels_are_templates_that_can_be_filled():
    for name in LANGUAGES:
        for key, text in catalogue(name).items():
            if not key.startswith("hover.") and not key.endswith(".help"):
                assert all(
                    field is None or field.isidentifier() for _, field, _, _ in string.Formatter().parse(text)
                ), key
