"""Variants that a reader names: each changes one or several settings, and the page says what that cannot tell."""

from __future__ import annotations

import os

import pytest

from app.live import making, variants
from app.live.variants import OFFERED, Variant, key_of, plan_of
from app.words import known, t
from grpo_core.live.config import RunConfig
from grpo_core.live.store import RunStore

QUEUE = "live-compare-queue"


def sound(at):
    assert not at.exception, [e.value for e in at.exception]
    return at


@pytest.fixture
def opened(open_page):
    """Return a function that opens the form of variants."""

    def open_form():
        at = sound(open_page("live", {"part": "compare"}))
        at.segmented_control(key=making.WAY).set_value("variants").run()
        return sound(at)

    return open_form


def texts(elements) -> str:
    return " ".join(element.value for element in elements).replace("\\", "")


def test_the_first_rows_can_be_queued_and_warn_that_two_things_change(opened):
    at = opened()
    assert not at.button(key=QUEUE).disabled
    assert not at.error
    (said,) = [warning.value.replace("\\", "") for warning in at.warning]
    assert all(t(f"live.set.{name}") in said for name in ("group_size", "prompts_per_step"))
    assert t("compare.variants_no_pair") in said


def test_named_variants_are_queued_with_what_each_changes(opened, tmp_path):
    store = RunStore(tmp_path)
    busy = store.create_run(RunConfig())  # nothing starts while this one goes on
    assert store.claim(busy, os.getpid())
    at = opened()
    at.text_input(key=key_of(2, "name")).set_value("<b>wide</b>").run()
    at.button(key="live-variant-add").click().run()
    at.text_input(key=key_of(3, "name")).set_value("quick").run()
    at.multiselect(key=key_of(3, "changes")).set_value(["learning_rate"]).run()
    at.text_input(key=key_of(3, "learning_rate")).set_value("3e-4").run()
    assert "One thing alone differs between: as set – quick" in texts(sound(at).warning)
    at.button(key=QUEUE).click().run()
    waiting = store.waiting_runs()
    assert [run.name for run in waiting] == ["as set", "<b>wide</b>", "quick"]
    assert [dict(run.changed) for run in waiting] == [
        {}, {"group_size": 16, "prompts_per_step": 4}, {"learning_rate": 3e-4},
    ]  # fmt: skip
    assert [(run.config.group_size, run.config.prompts_per_step) for run in waiting] == [(8, 8), (16, 4), (8, 8)]
    assert sound(at).query_params["runs"] == ",".join(run.id for run in waiting)
    assert store.experiments()[0].name == "Variants: as set, <b>wide</b>, quick"
    assert "<b>" not in " ".join(element.value for element in (*at.markdown, *at.caption)).replace("\\<b", "")


def test_a_recipe_brings_its_own_settings_unless_they_are_chosen_too(opened, tmp_path):
    store = RunStore(tmp_path)
    assert store.claim(store.create_run(RunConfig()), os.getpid())
    at = opened()
    at.multiselect(key=key_of(1, "changes")).set_value(["recipe"]).run()
    at.selectbox(key=key_of(1, "recipe")).set_value("dapo_paper").run()
    at.multiselect(key=key_of(2, "changes")).set_value(["recipe", "epsilon_high"]).run()
    at.selectbox(key=key_of(2, "recipe")).set_value("dapo_paper").run()
    at.text_input(key=key_of(2, "epsilon_high")).set_value("0.5").run()
    sound(at).button(key=QUEUE).click().run()
    assert [run.config.epsilon_high for run in store.waiting_runs()] == [0.28, 0.5]


@pytest.mark.parametrize(
    ("setting", "text", "said"), [("learning_rate", "abc", "abc"), ("beta", "-1", "-1"), ("temperature", "", "=''")]
)
def test_a_value_that_is_not_accepted_is_named_with_its_variant_and_what_is(opened, tmp_path, setting, text, said):
    at = opened()
    at.multiselect(key=key_of(2, "changes")).set_value([setting]).run()
    at.text_input(key=key_of(2, setting)).set_value(text).run()
    words = texts(sound(at).error)
    assert words.startswith(t("compare.variant.larger") + ": ")
    assert f"{setting}={said}" in words.replace(f"'{text}'", text) or said in words
    assert "give a number" in words
    assert at.button(key=QUEUE).disabled
    assert RunStore(tmp_path).runs() == []


def test_an_emptied_number_field_is_named():
    rows = [Variant("as set", {}), Variant("wide", {"group_size": None})]
    with pytest.raises(ValueError, match=f"^wide: {t('live.set.group_size')} is empty: give a whole number from 1 to"):
        plan_of(RunConfig(), rows)


def test_variants_need_names_and_settings_of_their_own(opened):
    at = opened()
    at.text_input(key=key_of(2, "name")).set_value("as set").run()
    assert t("compare.variant_names", name="as set") in texts(sound(at).error)
    at.text_input(key=key_of(2, "name")).set_value("").run()  # it is then called by its number
    assert not sound(at).error
    at.multiselect(key=key_of(2, "changes")).set_value([]).run()
    assert t("compare.variant_twice", first="as set", second="Variant 2") in texts(sound(at).error)
    assert at.button(key=QUEUE).disabled


def test_two_to_four_rows(opened):
    at = opened()
    assert at.button(key=key_of(1, "remove")).disabled
    at.button(key="live-variant-add").click().run()
    at.button(key="live-variant-add").click().run()
    assert at.button(key="live-variant-add").disabled
    for row in (3, 4):
        at.multiselect(key=key_of(row, "changes")).set_value(["seed"]).run()
        at.number_input(key=key_of(row, "seed")).set_value(row).run()
    assert "4" in sound(at).button(key=QUEUE).label
    at.button(key=key_of(1, "remove")).click().run()
    at.button(key=key_of(2, "remove")).click().run()
    assert "2" in sound(at).button(key=QUEUE).label
    assert at.button(key=key_of(3, "remove")).disabled


def test_every_setting_that_is_offered_has_words(opened):
    assert all(known(f"live.set.{name}") for name in OFFERED)
    assert not {"steps", "pace", "note", "eval_every"} & set(variants.OFFERED)
