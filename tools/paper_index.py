"""Write docs/paper_index.md from the recipes: `python -m tools.paper_index`."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from grpo_core import RECIPES, AdvantageSpec, Objective, Recipe
from grpo_core.equations import RATIO, WEIGHT, advantage_equation, loss_equation, surrogate_equation

TARGET = pathlib.Path(__file__).resolve().parent.parent / "docs" / "paper_index.md"
HEAD = """# Recipes and their sources

Every named algorithm of GRPO Lab with its equations, its source and each choice that differs from the plain default
(`Objective()`, `AdvantageSpec()`). `python -m tools.paper_index` writes this file; a test fails when it is stale.

One name can have several entries: what a paper defines, and what TRL, verl and OpenRLHF compute under that name.
"""


def differences(value: Any, default: Any) -> list[str]:
    """Return "field = value" for each field that differs from `default`."""
    fields = [field.name for field in dataclasses.fields(value)]
    changed = [name for name in fields if getattr(value, name) != getattr(default, name)]
    return [f"{name} = {_shown(getattr(value, name))}" for name in changed]


def _shown(value: Any) -> str:
    if dataclasses.is_dataclass(value):
        return ", ".join(f"{field.name} {getattr(value, field.name)}" for field in dataclasses.fields(value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {number}" for key, number in value.items())
    return str(value)


def entry(recipe: Recipe) -> str:
    """Return one recipe as Markdown."""
    equations = [
        advantage_equation(recipe.advantage),
        RATIO[recipe.objective.ratio_level],
        surrogate_equation(recipe.objective),
        WEIGHT[recipe.objective.aggregation] + r",\quad " + loss_equation(recipe.objective),
    ]
    objective = differences(recipe.objective, Objective())
    if recipe.constant_from:
        objective = [f"constant = {recipe.constant_from}" if c.startswith("constant =") else c for c in objective]
    choices = {
        "objective": objective,
        "advantage": differences(recipe.advantage, AdvantageSpec()),
        "sampling": [f"{k} = {v}" for k, v in dataclasses.asdict(recipe.sampling).items()],
        "training": [f"{k} = {v:g}" for k, v in recipe.training.items()],
    }
    lines = [f"## `{recipe.name}`: {recipe.title}", "", f"Source: {recipe.source}.", "", recipe.note, ""]
    lines += [line for equation in equations for line in (f"$$ {equation} $$", "")]
    lines += [f"- {name}: {'; '.join(values)}" for name, values in choices.items() if values]
    return "\n".join(lines)


def document() -> str:
    """Return the whole page."""
    return HEAD + "\n" + "\n\n".join(entry(recipe) for recipe in RECIPES.values()) + "\n"


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
    print(f"{TARGET.name}: {len(RECIPES)} recipes")
