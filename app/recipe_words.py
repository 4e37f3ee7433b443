"""The words about recipes. The core's own are English; another language has `recipe.<name>.title` and `.note`."""

from __future__ import annotations

from app.words import spoken
from grpo_core import get_recipe


def recipe_title(name: str) -> str:
    """Return a recipe's title."""
    return spoken(f"recipe.{name}.title") or get_recipe(name).title


def recipe_note(name: str) -> str:
    """Return the sentence about a recipe."""
    return spoken(f"recipe.{name}.note") or get_recipe(name).note
