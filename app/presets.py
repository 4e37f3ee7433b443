"""The telling cases of each page, as data: which teaching group, which settings. content/presets*.json hold them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from app import link, state
from app.params import PARAMS
from app.words import CONTENT


@cache
def _pages() -> Mapping[str, Mapping[str, Any]]:
    files = sorted(CONTENT.glob("presets*.json"))
    return {page: data for file in files for page, data in json.loads(file.read_text(encoding="utf-8")).items()}


def declared(page: str) -> Mapping[str, Any]:
    """Return a page's presets as they stand in their file, settings as text."""
    return _pages()[page]


@cache
def presets(page: str) -> Mapping[str, Mapping[str, Any]]:
    """Return a page's presets by name: {"group": id} and {"set": {setting: value}}, each optional."""
    return {name: {**preset, "set": _values(preset.get("set", {}))} for name, preset in _pages().get(page, {}).items()}


def _values(settings: Mapping[str, str]) -> dict[str, Any]:
    return {name: PARAMS[name].parse(text) for name, text in settings.items()}


def names(page: str) -> list[str]:
    """Return the names of a page's presets, in order."""
    return list(presets(page))


def apply(page: str, name: str) -> None:
    """Show a preset: its group, if it names one, and its settings."""
    preset = presets(page)[name]
    if "group" in preset:
        state.choose_group(preset["group"], preset["set"])
    else:
        state.put(preset["set"])


def current(page: str) -> str | None:
    """Return the preset that the view shows, if it shows one."""
    view = state.view()
    return next((name for name, preset in presets(page).items() if _shows(view, preset)), None)


def _shows(view: link.View, preset: Mapping[str, Any]) -> bool:
    if "group" in preset and (view.base != preset["group"] or link.is_edited(view)):
        return False
    return all(link.value_of(view.chosen, name) == value for name, value in preset["set"].items())
