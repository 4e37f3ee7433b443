"""The app under AppTest: the entry script, opened on one page with given query parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.testing.v1 import AppTest

from app import state, words

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def open_page(tmp_path, monkeypatch) -> Callable[..., AppTest]:
    """Return a function that opens a page by name, with query parameters, and runs it."""
    monkeypatch.setenv("GRPO_LAB_RUNS", str(tmp_path))
    monkeypatch.setenv("GRPO_LAB_STANDBY", "0")  # the browser tests have one; here every page would load torch anew

    def opened(page: str, query: Mapping[str, str] | None = None) -> AppTest:
        at = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=30)
        for name, value in (query or {}).items():
            at.query_params[name] = value
        if page != "home":
            at.switch_page(f"../pages/{page}.py")
        return at.run()

    return opened


@pytest.fixture
def speak(monkeypatch) -> Iterator[None]:
    """Return a function that sets the language outside of a session, where AppTest reads the names of options."""

    def spoken(name: str) -> None:
        source = lambda: state._language() if get_script_run_ctx(suppress_warning=True) else name  # noqa: E731
        monkeypatch.setattr(words, "_source", [source])

    return spoken
