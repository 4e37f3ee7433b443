"""What the tests share: one small adapter for each array library, and gradients computed two independent ways."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Backend:
    """An array library at one precision: how to make its arrays, and how exact they can be."""

    name: str
    library: str
    dtype: str
    rtol: float
    atol: float

    @property
    def xp(self) -> Any:
        return importlib.import_module(self.library)

    @property
    def differentiates(self) -> bool:
        return self.library == "torch"

    def array(self, values: Any) -> Any:
        data = np.asarray(values, dtype=self.dtype)
        if self.library == "torch":
            return self.xp.tensor(data.tolist(), dtype=getattr(self.xp, self.dtype))
        return self.xp.asarray(data)

    def mask(self, values: Any) -> Any:
        data = np.asarray(values, dtype=bool)
        return self.xp.tensor(data.tolist()) if self.library == "torch" else self.xp.asarray(data)

    def check(self, result: Any, expected: Any) -> None:
        """Assert that `result` is this library's, at this precision, and has the expected values."""
        assert type(result).__module__.split(".")[0] == self.library, type(result)
        assert str(result.dtype).endswith(self.dtype), result.dtype
        np.testing.assert_allclose(to_numpy(result), np.asarray(expected), rtol=self.rtol, atol=self.atol)


BACKENDS = (
    Backend("numpy-float64", "numpy", "float64", 1e-12, 1e-13),
    Backend("torch-float64", "torch", "float64", 1e-12, 1e-13),
    Backend("torch-float32", "torch", "float32", 2e-6, 1e-6),
    Backend("array-api-strict", "array_api_strict", "float64", 1e-12, 1e-13),
)


def to_numpy(array: Any) -> np.ndarray:
    """Return any library's array (with or without a gradient) as NumPy."""
    if hasattr(array, "detach"):
        return array.detach().cpu().numpy()
    return np.asarray(array)


def torch_gradient(function: Callable[[Any], Any], at: Any) -> np.ndarray:
    """Return the gradient of a scalar function of one float64 tensor, by autograd."""
    import torch

    x = torch.tensor(np.asarray(at, dtype=np.float64), requires_grad=True)
    function(x).backward()
    return np.zeros(x.shape) if x.grad is None else x.grad.numpy()


def difference_gradient(function: Callable[[np.ndarray], Any], at: Any, step: float = 1e-6) -> np.ndarray:
    """Return the gradient of a scalar function of one NumPy array, by central differences."""
    at = np.asarray(at, dtype=np.float64)
    gradient = np.zeros_like(at)
    for index in np.ndindex(*at.shape):
        moved = np.zeros_like(at)
        moved[index] = step
        gradient[index] = (float(function(at + moved)) - float(function(at - moved))) / (2 * step)
    return gradient
