"""The words: every key that is used exists, every text that exists is used, placeholders and presets fit."""

from __future__ import annotations

import json
import re
import string
from pathlib import Path

import pytest

from app import presets
from app.params import PARAMS
from app.teaching import teaching_groups
from app.words import catalogue, sections

ROOT = Path(__file__).resolve().parents[2]
OWN = ("home", "advantages", "clip", "kl", "reduction")
CODE = [
    *(ROOT / "pages" / f"{page}.py" for page in OWN),
    *(ROOT / "app").glob("*.py"),
    *(path for page in OWN for path in (ROOT / "app" / "views" / page).glob("*.py")),
    *(path for page in OWN[1:] for path in (ROOT / "app" / "figures").glob(f"{page}*.py")),
    *(path for page in OWN for path in (ROOT / "app" / "explain").glob(f"{page}*.py")),
]


def test_every_key_in_the_code_is_in_the_catalogue():
    used = {key for path in CODE for key in re.findall(r"\bt\(\s*\"([a-z_.0-9-]+)\"", path.read_text())}
    assert used
    assert sorted(used - set(catalogue())) == []


def test_every_setting_choice_and_readout_has_its_words():
    own = [name for name in PARAMS if f"param.{name}.label" in catalogue()]
    for name in own:
        missing = [c for c in PARAMS[name].choices if f"param.{name}.{c}" not in catalogue()]
        assert name == "recipe" or missing == [], name
        if PARAMS[name].optional:
            assert f"param.{name}.none" in catalogue()
            assert f"param.{name}.unset" in catalogue()
    readouts = {key for path in CODE for key in re.findall(r"Readout\(\s*\"([a-z_0-9]+)\"", path.read_text())}
    assert sorted(f"readout.{key}" for key in readouts if f"readout.{key}" not in catalogue()) == []


def test_texts_have_only_named_placeholders():
    for key, text in catalogue().items():
        if not key.startswith("hover.") and not key.endswith(".help"):  # those are used as they stand
            assert all(name is None or name.isidentifier() for _, name, _, _ in string.Formatter().parse(text)), key


@pytest.mark.parametrize("page", OWN)
def test_every_section_of_a_page_is_used_and_short(page):
    code = (
        "".join(path.read_text() for path in CODE)
        + json.dumps(list(PARAMS["reduce"].choices))
        + "all-right all-wrong unscored"
    )
    for name, text in sections(page).items():
        stems = [name[: dash.start()] for dash in re.finditer("-", name)]  # "parts-rank" may be f"parts-{span}"
        assert name in code or any(f'"{stem}-{{' in code for stem in stems), name
        assert 1 <= len(re.findall(r"[.!?](?=\s|$)", text)) <= 5, (name, text)


def test_every_group_is_offered_with_title_and_story():
    for name in teaching_groups():
        assert f"group.{name}" in catalogue()
        assert sections("groups")[name]
        assert name in presets.names("home")


@pytest.mark.parametrize("page", OWN)
def test_presets_of_a_page_name_the_same_settings_within_a_view(page):
    """Otherwise a setting left over from one preset would make two of them look chosen."""
    by_view: dict[object, set[frozenset]] = {}
    for preset in presets.presets(page).values():
        view = next((v for k, v in preset["set"].items() if k.endswith("_view")), None)
        by_view.setdefault(view, set()).add(frozenset(preset["set"]))
    assert all(len(keys) == 1 for keys in by_view.values()) or page == "reduction", by_view


def test_no_text_uses_a_dollar_that_markdown_would_read_as_latex():
    for page in (*OWN, "groups"):
        assert all(text.count("$") == 0 for text in sections(page).values())
