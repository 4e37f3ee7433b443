"""Find a Chromium for the browser tests, or get one: `python -m tools.browser` prints its path.

In this order: CHROMIUM_PATH, one found on the machine, Playwright's own, the system's package manager.
"""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
)
PACKAGE_COMMANDS = (
    ("apt-get", (("apt-get", "update", "-qq"), ("apt-get", "install", "-y", "-qq", "chromium"))),
    ("dnf", (("dnf", "install", "-y", "-q", "chromium"),)),
    ("pacman", (("pacman", "-S", "--noconfirm", "chromium"),)),
    ("apk", (("apk", "add", "--quiet", "chromium"),)),
)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Flags for a test browser: they also let it start as root and keep it from calling home."""

HELP = """No browser could be found or installed, so the browser tests cannot run. Do one of these, then try again:
  - install Chromium or Chrome with your system's package manager
  - python -m playwright install chromium
  - set CHROMIUM_PATH to a Chromium or Chrome you have"""


@functools.cache
def find() -> str | None:
    """Return the path of a browser that starts, or None."""
    return next((path for path in _candidates() if path and _starts(path)), None)


def _candidates() -> Iterator[str | None]:
    """Yield paths in order of preference; Playwright is only started when nothing was found on the machine."""
    if named := os.environ.get("CHROMIUM_PATH"):
        yield named
        return
    yield from map(shutil.which, NAMES)
    yield from PLACES
    yield _playwright_path()


def _starts(path: str) -> bool:
    if not pathlib.Path(path).exists():
        return False
    if sys.platform == "win32":  # chrome.exe --version opens a window there
        return True
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _playwright_path() -> str | None:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        return playwright.chromium.executable_path


def _run(command: tuple[str, ...], seconds: float = 600.0) -> bool:
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, timeout=seconds).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _install_with_package_manager() -> bool:
    for manager, commands in PACKAGE_COMMANDS:
        if shutil.which(manager):
            as_root = () if os.geteuid() == 0 else ("sudo", "-n")
            return all(_run((*as_root, *command)) for command in commands)
    return False


def ensure() -> str:
    """Return the path of a browser, installing one if need be; SystemExit that says what to do when none can be had."""
    if found := find():
        return found
    print("No browser found; asking Playwright for its own ...", file=sys.stderr)
    got = _run((sys.executable, "-m", "playwright", "install", "chromium"), seconds=300.0)
    find.cache_clear()
    if got and (found := find()):
        return found
    print("... then the system's package manager ...", file=sys.stderr)
    if sys.platform != "win32":
        _install_with_package_manager()
    find.cache_clear()
    if found := find():
        return found
    raise SystemExit(HELP)


if __name__ == "__main__":
    print(f"Browser for the tests: {ensure()}")
