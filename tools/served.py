"""A Streamlit app that runs for as long as a block does: what the screenshots and the page benchmarks look at."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from tools.run import ROOT, free_port, wait_until_ready

FIRST_PORT = 8700


@contextlib.contextmanager
def served(script: str = "app/main.py", *, runs: str | None = None) -> Iterator[str]:
    """Run a script of the project on a free port and yield its address. `runs`: the folder of the live runs."""
    port = free_port(FIRST_PORT)
    options = ["--server.port", str(port), "--server.address", "127.0.0.1", "--server.headless", "true"]
    command = [sys.executable, "-m", "streamlit", "run", script, *options, "--server.fileWatcherType", "none"]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GRPO_LAB_RUNS": runs or folder}
        log = pathlib.Path(folder) / "streamlit.log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
        try:
            url = f"http://127.0.0.1:{port}"
            if not wait_until_ready(url, process):
                raise RuntimeError(f"{script} did not start:\n{log.read_text(errors='replace')[-3000:]}")
            yield url
        finally:
            process.terminate()
            process.wait(timeout=20)
