"""Which part may load what: the core runs where torch is not installed, the trainer where streamlit is not."""

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import grpo_core

ROOT = Path(__file__).resolve().parents[2]


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter holds after `statement`."""
    code = f"import sys; {statement}; print(*{{name.split('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def core_modules() -> list[str]:
    names = [m.name for m in pkgutil.walk_packages(grpo_core.__path__, "grpo_core.")]
    return [name for name in names if not name.startswith("grpo_core.live")]


def test_the_core_loads_neither_torch_nor_streamlit():
    loaded = loaded_by("import " + ", ".join(["grpo_core", *core_modules()]))
    assert "numpy" in loaded
    assert not loaded & {"torch", "streamlit", "transformers", "plotly", "sqlalchemy"}


def test_using_the_core_on_numpy_does_not_load_torch_either():
    loaded = loaded_by("import grpo_core; grpo_core.group_advantages([1, 0]); grpo_core.kl_estimate([0.0], [0.1])")
    assert "torch" not in loaded


@pytest.mark.skipif(not (ROOT / "grpo_core" / "live").is_dir(), reason="the trainer is not here yet")
def test_the_trainer_never_imports_streamlit():
    for path in (ROOT / "grpo_core").rglob("*.py"):
        assert not imports(path) & {"streamlit", "app", "pages"}, path


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    plain = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    return plain | {
        node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module
    }


def test_pages_never_import_torch():
    for path in (*(ROOT / "pages").rglob("*.py"), *(ROOT / "app").rglob("*.py")):
        assert not imports(path) & {"torch", "transformers"}, path


def test_everything_public_exists_and_is_documented():
    for name in grpo_core.__all__:
        value = getattr(grpo_core, name)
        assert not callable(value) or value.__doc__, name
