"""Training settings with their sources, and a recipe as equations and as data."""

from __future__ import annotations

import json
import re
from typing import Any

import pandas as pd
import streamlit as st

from app.lens import Lens
from app.numbers import MISSING, short
from app.recipe_words import recipe_title
from app.snippets_loss import code
from app.widgets import Question, Table
from app.words import CONTENT, cached, prose, said, t
from grpo_core import RECIPES, AdvantageSpec, Objective, Recipe
from grpo_core.equations import RATIO, WEIGHT, advantage_equation, kl_equation, loss_equation, surrogate_equation

COLUMNS = {
    "source": 214, "learning_rate": 92, "beta": 56, "group_size": 44, "max_completion_length": 88, "batch_size": 58,
    "inner_epochs": 70, "clip": 80, "loss": 116, "scale": 84, "temperature": 62,
}  # fmt: skip
"""Each column with its width in pixels: together they fit a page of 1280."""


@cached
def rows() -> tuple[dict[str, str], ...]:
    """Return one row of settings, as text, for each source that names any: papers first, then TRL by version."""
    papers = [_recipe_row(recipe) for recipe in RECIPES.values() if recipe.training]
    defaults = json.loads((CONTENT / "trl_defaults.json").read_text(encoding="utf-8"))
    return (*papers, *(_trl_row(entry) for entry in defaults))


def _recipe_row(recipe: Recipe) -> dict[str, str]:
    o, training = recipe.objective, recipe.training
    same = o.epsilon_low == o.epsilon_high
    return {
        "source": f"{_name(recipe)}, {_number_of(recipe.source.title)}",
        "learning_rate": _number(training.get("learning_rate")),
        "beta": short(o.beta),
        "group_size": str(recipe.sampling.group_size),
        "max_completion_length": _number(training.get("max_completion_length")),
        "batch_size": _number(training.get("batch_size")),
        "inner_epochs": str(recipe.sampling.inner_epochs),
        "clip": short(o.epsilon_low) if same else f"{short(o.epsilon_low)} / {short(o.epsilon_high)}",
        "loss": t(f"param.reduce.{o.aggregation}"),
        "scale": t(f"param.scale.{recipe.advantage.scale}"),
        "temperature": short(recipe.sampling.temperature),
    }


def _name(recipe: Recipe) -> str:
    """Return a recipe's title without the "(paper)" behind it: the source says that."""
    return re.sub(r"\s*[(（][^()（）]*[)）]$", "", recipe_title(recipe.name))


def _number_of(title: str) -> str:
    """Return a paper's arXiv number, or its title where it has none."""
    found = re.search(r"arXiv:([0-9.]+[0-9])", title)
    return found[1] if found else title


def _trl_row(entry: dict[str, Any]) -> dict[str, str]:
    return {
        "source": t("settings.trl", version=entry["version"]),
        "learning_rate": _number(entry["learning_rate"]),
        "beta": short(entry["beta"]),
        "group_size": str(entry["group_size"]),
        "max_completion_length": str(entry["max_completion_length"]),
        "batch_size": MISSING,
        "inner_epochs": str(entry["inner_epochs"]),
        "clip": said(entry["clip"]),
        "loss": t(f"param.reduce.{entry['loss']}"),
        "scale": t(f"param.scale.{entry['scale']}"),
        "temperature": short(entry["temperature"]),
    }


def _number(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:g}".replace("e-0", "e-") if value < 1 else f"{value:.0f}"


def frame() -> pd.DataFrame:
    """Return the table as a data frame of text."""
    return pd.DataFrame([[row[name] for name in COLUMNS] for row in rows()], columns=list(COLUMNS))


def column_config() -> dict[str, Any]:
    """Return each column's title, width and help."""
    return {
        name: st.column_config.TextColumn(t(f"settings.{name}"), width=width, help=t(f"settings.{name}.help"))
        for name, width in COLUMNS.items()
    }


def table() -> Table:
    """Return the table as data."""
    return Table(tuple(COLUMNS), [tuple(row[name] for name in COLUMNS) for row in rows()])


def equations(lens: Lens) -> list[tuple[str, str]]:
    """Return the current loss as named equations."""
    o = lens.objective
    kl = [("kl", r"k = " + kl_equation(o))] if o.beta > 0 else []
    return [
        ("advantage", advantage_equation(lens.spec)),
        ("ratio", RATIO[o.ratio_level]),
        ("surrogate", surrogate_equation(o)),
        *kl,
        ("weight", WEIGHT[o.aggregation]),
        ("loss", loss_equation(o)),
    ]


def recipe_data(recipe: Recipe) -> str:
    """Return a recipe as code: what differs from the defaults."""
    lines = [code(recipe.objective, Objective()), code(recipe.advantage, AdvantageSpec()), repr(recipe.sampling)]
    lines += [f"training = {dict(recipe.training)}"] if recipe.training else []
    return "\n".join(lines)


def question() -> Question:
    """Ask how many prompts DeepSeekMath's batch holds."""
    recipe = RECIPES["grpo_paper"]
    batch, size = recipe.training["batch_size"], recipe.sampling.group_size
    numbers = {"batch": f"{batch:.0f}", "size": str(size)}
    worked = prose("loss", "worked-prompts", answer=short(batch / size), **numbers)
    return Question(prose("loss", "ask-prompts", **numbers), batch / size, worked)


def snippet() -> str:
    """Return code that prints the settings of every recipe that names some."""
    return """from grpo_core import RECIPES

for recipe in RECIPES.values():
    if recipe.training:
        print(recipe.title, dict(recipe.training), recipe.sampling, recipe.source, sep="\\n  ")"""
