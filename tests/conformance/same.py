"""Compare a recording with a fresh one: the same structure and names, numbers equal up to rounding."""

from __future__ import annotations

from typing import Any

import pytest


def assert_same(fresh: Any, recorded: Any, where: str = "") -> None:
    """Assert that two JSON-like values are equal, numbers to 1e-7 (another processor rounds differently)."""
    if isinstance(recorded, dict):
        assert fresh.keys() == recorded.keys(), where
        for key, value in recorded.items():
            assert_same(fresh[key], value, f"{where}.{key}")
    elif isinstance(recorded, list):
        assert len(fresh) == len(recorded), where
        for i, value in enumerate(recorded):
            assert_same(fresh[i], value, f"{where}[{i}]")
    elif isinstance(recorded, float):
        assert fresh == pytest.approx(recorded, rel=1e-7, abs=1e-9), where
    else:
        assert fresh == recorded, where
