"""The scenarios' texts: every scenario has them, and they name only numbers that were measured."""

from __future__ import annotations

import string

import pytest

from app.words import sections
from grpo_core.live.scenarios import SCENARIOS, scenario_numbers

PARTS = ("title", "watch", "why", "effect")


def test_every_scenario_has_its_texts_and_no_text_is_left_over():
    expected = {f"{name}.{part}" for name in SCENARIOS for part in PARTS}
    expected |= {f"{s.name}.variant.{variant}" for s in SCENARIOS.values() for variant in s.variants}
    assert set(sections("scenarios")) == expected


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_text_names_only_numbers_that_were_measured(name):
    numbers = scenario_numbers(name)
    used = {field for _, field, _, _ in string.Formatter().parse(sections("scenarios")[f"{name}.effect"]) if field}
    assert used
    assert used <= set(numbers)
    assert all(0 <= numbers[field] < 1e6 for field in used)
    for part in ("title", "watch", "why"):
        assert "{" not in sections("scenarios")[f"{name}.{part}"]


def test_what_was_not_seen_is_not_claimed():
    """No visible effect: a small beta, dividing by the std, mixing in easy prompts, groups that mix prompts."""
    titles = " ".join(text for key, text in sections("scenarios").items() if key.endswith(".title")).lower()
    assert not any(word in titles for word in ("std", "standard deviation", "easy", "mix"))
    assert not any(name in SCENARIOS for name in ("small_kl", "std_scaling", "easy_prompts", "mixed_prompts"))
