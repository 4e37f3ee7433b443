"""verl's and OpenRLHF's own functions, loaded from their released packages without what those packages depend on.

Both need a cluster's worth of libraries to be imported (Ray, DeepSpeed, vLLM, tensordict). Their loss and advantage
functions use none of them: the files are executed as they are, with empty modules in the place of those imports.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RELEASES = {"verl": "0.9.1", "openrlhf": "0.11.2"}
FOLDER_VARIABLE = "GRPO_LAB_TRAINERS"
"""Names a folder that holds the unpacked packages; without it, an installed package is looked for."""


def package_folder(name: str) -> Path | None:
    """Return the folder of the package `name`, unpacked or installed, or None; nothing is imported."""
    if os.environ.get(FOLDER_VARIABLE):
        found = sorted(Path(os.environ[FOLDER_VARIABLE]).glob(f"**/{name}/__init__.py"))
        return found[0].parent if found else None
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


class _Anything(types.ModuleType):
    """A module in which every name is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _package(name: str, folder: Path) -> types.ModuleType:
    """Return a package whose submodules come from `folder` and whose __init__ is not run."""
    module = types.ModuleType(name)
    module.__path__ = [str(folder)]
    return module


@contextlib.contextmanager
def _modules(root: str, real: dict[str, Path], empty: tuple[str, ...]) -> Iterator[None]:
    """Put packages and empty modules in place while the files of `root` are executed, then take them away again."""
    before = dict(sys.modules)
    sys.modules.update({name: _package(name, folder) for name, folder in real.items()})
    sys.modules.update({name: _Anything(name) for name in empty})
    try:
        yield
    finally:
        for name in [n for n in sys.modules if n.split(".")[0] == root or n in empty]:
            sys.modules.pop(name)
        sys.modules.update({name: before[name] for name in before if name not in sys.modules})


def load_verl(folder: Path) -> Any:
    """Return verl's trainer/ppo/core_algos.py as a module; `ActorConfig` in it is a plain settings object."""
    real = {
        name: folder.joinpath(*name.split(".")[1:])
        for name in ("verl", "verl.utils", "verl.trainer", "verl.trainer.ppo")
    }
    empty = ("omegaconf", "tensordict", "verl.trainer.config", "verl.workers", "verl.workers.config")
    with _modules("verl", real, (*empty, "verl.utils.device")):
        sys.modules["verl.workers.config"].ActorConfig = Settings
        sys.modules["verl.trainer.config"].AlgoConfig = AlgorithmSettings
        sys.modules["verl.utils.device"].get_device_name = lambda: "cpu"
        groupwise = importlib.import_module("verl.utils.groupwise")
        sys.modules["verl.utils"].as_torch_index = groupwise.as_torch_index
        sys.modules["verl.utils"].group_mean_std = groupwise.group_mean_std
        return importlib.import_module("verl.trainer.ppo.core_algos")


class Settings(types.SimpleNamespace):
    """What verl reads from its configuration objects: attributes, and `get` with a default."""

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


class AlgorithmSettings(Settings):
    """The settings of an advantage estimator (verl tells the two kinds apart by class)."""


@contextlib.contextmanager
def _not_compiled() -> Iterator[None]:
    """Let `@torch.compile` return the function itself: loading the compiler takes seconds and warns."""
    import torch

    compiler = torch.compile
    torch.compile = lambda function: function
    try:
        yield
    finally:
        torch.compile = compiler


def load_openrlhf(folder: Path) -> tuple[Any, Any, Any]:
    """Return OpenRLHF's models/loss.py, models/utils.py and trainer/ppo_utils/experience_maker.py as modules."""
    parts = ("openrlhf", "openrlhf.models", "openrlhf.trainer", "openrlhf.trainer.ppo_utils", "openrlhf.trainer.ray")
    real = {name: folder.joinpath(*name.split(".")[1:]) for name in (*parts, "openrlhf.utils")}
    empty = (
        "deepspeed",
        "ray",
        "openrlhf.trainer.ray.launcher",
        "openrlhf.trainer.ppo_utils.experience",
        "openrlhf.utils.logging_utils",
        "openrlhf.utils.seqlen_balancing",
    )
    with _modules("openrlhf", real, empty), _not_compiled():
        sys.modules["openrlhf.utils.logging_utils"].init_logger = lambda name: None
        names = ("openrlhf.models.loss", "openrlhf.models.utils", "openrlhf.trainer.ppo_utils.experience_maker")
        loss, utils, maker = (importlib.import_module(name) for name in names)
        return loss, utils, maker
