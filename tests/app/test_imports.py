"""The explorer pages start quickly: none of them loads torch or transformers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import sys
from streamlit.testing.v1 import AppTest
at = AppTest.from_file("app/main.py", default_timeout=60).run()
for page in ("advantages", "clip", "kl", "reduction"):
    at.switch_page(f"../pages/{page}.py").run()
assert not at.exception
print(sorted({"torch", "transformers"} & set(sys.modules)))
"""


def test_no_explorer_page_loads_torch():
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[-2] == "[]"
