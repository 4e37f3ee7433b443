"""The paper index is what the recipes say, and every choice has an equation."""

from __future__ import annotations

import pytest

from grpo_core import RECIPES, SURROGATES
from grpo_core.advantages import ESTIMATORS
from grpo_core.aggregation import MODES
from grpo_core.equations import ADVANTAGE, KL, RATIO, SURROGATE, WEIGHT
from grpo_core.kl import ESTIMATORS as KL_ESTIMATORS
from grpo_core.ratios import LEVELS
from tools import paper_index


def test_file_is_up_to_date():
    assert paper_index.TARGET.read_text(encoding="utf-8") == paper_index.document(), "run python -m tools.paper_index"


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_section_with_its_source(name):
    section = paper_index.document().split(f"## `{name}`:")[1].split("\n## ")[0]
    assert str(RECIPES[name].source) in section
    assert "$$" in section


def test_every_choice_has_an_equation():
    assert set(SURROGATES) <= set(SURROGATE)
    assert set(ESTIMATORS) - {"group"} == set(ADVANTAGE)
    assert set(MODES) == set(WEIGHT)
    assert set(LEVELS) == set(RATIO)
    assert {name.removesuffix("+") for name in KL_ESTIMATORS} == set(KL)


@pytest.mark.parametrize("text", [*SURROGATE.values(), *KL.values(), *RATIO.values(), *WEIGHT.values()])
def test_braces_balance(text):
    assert text.count("{") == text.count("}")
