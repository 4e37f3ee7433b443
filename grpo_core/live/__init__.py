"""The live trainer: a small language model that learns by GRPO while you watch.

Importing this package is cheap. Torch and transformers load when a trainer is first asked for.
"""

from typing import Any

from grpo_core.live.config import RunConfig

__all__ = ["RunConfig", "RunStore", "train"]


def __getattr__(name: str) -> Any:
    """Load the heavier parts (SQLAlchemy for the store, torch for the trainer) on first use."""
    if name == "RunStore":
        from grpo_core.live.store import RunStore

        return RunStore
    if name == "train":
        from grpo_core.live.trainer import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
