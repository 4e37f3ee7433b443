"""Start the app on a free port and open it in a browser: what `make run` does. Extra arguments go to Streamlit."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIRST_PORT = 8501


def free_port(first: int = FIRST_PORT, tries: int = 50) -> int:
    """Return the first port from `first` on that nothing listens on."""
    for port in range(first, first + tries):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise SystemExit(f"no free port between {first} and {first + tries - 1}; name one: ARGS='--server.port 9000'")


def wait_until_ready(url: str, process: subprocess.Popen[bytes], seconds: float = 60.0) -> bool:
    """Wait for the app's health check; False when the process ended or the time is over."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    return False


def can_open_browser() -> bool:
    """Say whether there is a screen to open a browser on."""
    if os.environ.get("CI") or os.environ.get("GRPO_LAB_NO_BROWSER"):
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def main(arguments: list[str]) -> int:
    """Run the app until it ends."""
    named = any(argument.startswith("--server.port") for argument in arguments)
    port = None if named else free_port()
    command = [sys.executable, "-m", "streamlit", "run", "app/main.py", *arguments]
    process = subprocess.Popen([*command, "--server.port", str(port)] if port else command, cwd=ROOT)
    try:
        if port and can_open_browser() and wait_until_ready(f"http://localhost:{port}", process):
            webbrowser.open(f"http://localhost:{port}")
        return process.wait()
    except KeyboardInterrupt:
        return process.wait()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
