"""The real app in a real browser: one server and one browser for all tests, a fresh context for each."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect, sync_playwright

from grpo_core.live.store import RunStore
from tests.runs import put_away
from tools.browser import FLAGS, HELP, find

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 90_000  # milliseconds that a page element may take on a busy machine
expect.set_options(timeout=PATIENCE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try a browser test again when it fails: a busy machine makes Streamlit lose a message now and then.

    A fault of ours fails every time; what was tried again is in pytest's summary.
    """
    for item in items:
        if item.path.is_relative_to(ROOT / "tests" / "browser"):
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=2))


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory) -> Path:
    """The run store of the app under test: a folder of its own."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def store(runs_folder) -> Iterator[RunStore]:
    """The store of the app under test; no run is left going on or waiting."""
    store = RunStore(runs_folder)
    yield store
    put_away(store)


@pytest.fixture(scope="session")
def app_url(runs_folder) -> Iterator[str]:
    """The address of the app, running in a process of its own for as long as the tests last."""
    port = _free_port()
    log = runs_folder / "streamlit.log"
    command = [sys.executable, "-m", "streamlit", "run", "app/main.py", "--server.port", str(port)]
    options = ["--server.address", "127.0.0.1", "--server.headless", "true", "--server.fileWatcherType", "none"]
    environment = {**os.environ, "GRPO_LAB_RUNS": str(runs_folder)}
    with log.open("wb") as out:
        process = subprocess.Popen([*command, *options], cwd=ROOT, env=environment, stdout=out, stderr=out)
    try:
        _wait(process, f"http://127.0.0.1:{port}/_stcore/health", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(process: subprocess.Popen, url: str, log: Path) -> None:
    for _ in range(240):
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.25)
    raise RuntimeError(f"the app did not start:\n{log.read_text(errors='replace')[-3000:]}")


@pytest.fixture(scope="session")
def browser_path() -> str:
    """The browser that tools.browser finds: CHROMIUM_PATH, one on the machine, or Playwright's own."""
    path = os.environ.get("CHROMIUM_PATH") or find()
    if path is None:
        pytest.fail(HELP)
    return path


@pytest.fixture(scope="session")
def playwright_driver(browser_path) -> Iterator[Playwright]:
    """Playwright, started once; after the search for a browser, which may start it too."""
    with sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="session")
def browser(playwright_driver, browser_path) -> Iterator[Browser]:
    """The browser, started once."""
    launched = playwright_driver.chromium.launch(executable_path=browser_path, args=list(FLAGS))
    yield launched
    launched.close()


@pytest.fixture
def new_context(browser) -> Iterator[Callable[..., BrowserContext]]:
    """Return a function that makes a fresh browser profile: nothing is remembered from other tests."""
    made: list[BrowserContext] = []

    def fresh(**options: Any) -> BrowserContext:
        made.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}))
        made[-1].set_default_timeout(PATIENCE)
        return made[-1]

    yield fresh
    for context in made:
        context.close()


@pytest.fixture
def context(new_context) -> BrowserContext:
    """A fresh browser profile."""
    return new_context()


@pytest.fixture
def page(context) -> Page:
    """A tab in the fresh profile."""
    return context.new_page()
