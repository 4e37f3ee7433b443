"""The words about recipes. The core's own are English; another language has `recipe.<name>.title` and `.note`."""

from __future__ import annotations

from app.words import spoken
from grpo_core import RECIPES, get_recipe


def recipe_title(name: str) -> str:
    """Return a recipe's title; of one that only another version has, its name."""
    return spoken(f"recipe.{name}.title") or (get_recipe(name).title if name in RECIPES else name)


def recipe_note(name: str) -> str:
    """Return the sentence about a recipe."""
    return spoken(f"recipe.{name}.note") or get_recipe(name).note
