"""docs/coverage.md: every idea names the views that show it, and every link leads where it says.

Each telling case is opened by its own page's tests; here it is enough that the link restores its state exactly.
"""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest

from app import link
from app.live.page import PARTS
from grpo_core.live.scenarios import SCENARIOS
from tests.app.driving import ROOT
from tools import coverage

ROWS = (
    *(f"A{n}" for n in range(1, 13)), *(f"C{n}" for n in range(1, 8)), *(f"K{n}" for n in range(1, 8)),
    *(f"R{n}" for n in range(1, 7)), "D1", "D2", "G1", *(f"P{n}" for n in range(1, 6)), "I1", "I2", "W1", "W2", "H1",
    *(f"L{n}" for n in range(1, 5)), *(f"T{n}" for n in range(1, 5)),
)  # fmt: skip


def test_the_file_is_up_to_date():
    assert coverage.TARGET.read_text(encoding="utf-8") == coverage.document(), "run python -m tools.coverage"


def test_every_idea_has_a_row_and_no_row_is_empty():
    assert tuple(coverage.rows()) == ROWS
    for name, row in coverage.rows().items():
        shown = [*coverage.places(row), *coverage.live_links(row)]
        assert bool(shown) != ("open" in row), name


@pytest.mark.parametrize("name", ROWS)
def test_no_link_is_dead(name):
    row = coverage.rows()[name]
    for words, found in coverage.places(row):
        assert (ROOT / "pages" / f"{found.page}.py").exists(), words
        query = {key: value[0] for key, value in parse_qs(found.href().partition("?")[2]).items()}
        view, notes = link.from_query(query)
        assert notes == [], words
        assert view == found.view(), words
    for words, query in coverage.live_links(row):
        assert query["part"] in PARTS, words
        assert query.get("scenario", "thinking_emerges") in SCENARIOS, words
