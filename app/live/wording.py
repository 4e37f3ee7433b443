"""Settings and their values in words, as the comparison, the list of runs and the line name them."""

from __future__ import annotations

from typing import Any

from app import live_form
from app.recipe_words import recipe_title
from app.words import known, t


def label(name: str) -> str:
    """Return what a setting is called in the form."""
    return t(f"live.set.{name}") if known(f"live.set.{name}") else name


def setting_words(name: str, value: Any) -> str:
    """Return a setting with its value in words."""
    key = next((key for key in (f"live.cmd.{name}", f"live.set.{name}") if known(key)), None)
    return t("live.cmd.set", name=t(key) if key else name, value=words_of(name, value))


def words_of(name: str, value: Any) -> str:
    """Return a setting's value in words."""
    special = {"task": live_form.task_name, "recipe": recipe_title}
    return special[name](str(value)) if name in special else live_form.value_words(name, value)
