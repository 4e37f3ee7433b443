"""What every formula needs from its arrays: their namespace, a float dtype, and clear errors about shapes."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import array_api_compat
import numpy as np

from grpo_core.messages import InputError, Message

Array: TypeAlias = Any  # a NumPy, torch or other array-API array; Python has no better name for it


def namespace(*arrays: Array) -> Any:
    """Return the array namespace that `arrays` share. Pass data only, never hyperparameters."""
    return array_api_compat.array_namespace(*arrays)


def as_data(value: Any, name: str) -> Array:
    """Return `value` as a floating-point array: arrays keep their kind, numbers and lists become NumPy float64.

    Raises ValueError naming `name` when it is not numeric.
    """
    if not array_api_compat.is_array_api_obj(value):
        try:
            return np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                "{name} must be numbers of a regular shape, got {value!r:.80}", name=name, value=value
            ) from error
    xp = namespace(value)
    if xp.isdtype(value.dtype, "real floating"):
        return value
    if xp.isdtype(value.dtype, ("integral", "bool")):
        return xp.astype(value, xp.asarray(0.0).dtype)
    raise InputError("{name} must be real numbers, got dtype {dtype}", name=name, dtype=value.dtype)


def stop_gradient(x: Array) -> Array:
    """Return `x` as a constant: torch's detach, and `x` itself where nothing is differentiated."""
    detach = getattr(x, "detach", None)
    return x if detach is None else detach()


def check_mask(mask: Array, name: str = "mask") -> Array:
    """Return `mask` if it is a boolean array of shape (B, T); ValueError otherwise."""
    if not array_api_compat.is_array_api_obj(mask):
        mask = np.asarray(mask)
    xp = namespace(mask)
    if not xp.isdtype(mask.dtype, "bool"):
        raise InputError(
            "{name} must be boolean (True on a completion's own tokens), got dtype {dtype}", name=name, dtype=mask.dtype
        )
    if mask.ndim != 2:
        raise InputError(
            "{name} must have shape (completions, tokens), got {shape}", name=name, shape=tuple(mask.shape)
        )
    return mask


def check_same_shape(first: Array, second: Array, first_name: str, second_name: str) -> None:
    """Raise ValueError unless both arrays have one shape."""
    if tuple(first.shape) != tuple(second.shape):
        raise InputError(
            "{second_name} must have the shape of {first_name}, {wanted}, got {shape}",
            second_name=second_name,
            first_name=first_name,
            wanted=tuple(first.shape),
            shape=tuple(second.shape),
        )


def number(value: Any, name: str, *, low: float = -math.inf, high: float = math.inf, open_low: bool = False) -> float:
    """Return a hyperparameter as a Python float inside [low, high] (or (low, high]); ValueError otherwise.

    A Python float, because a float32 array times np.float64 would become float64 in NumPy.
    """
    try:
        result = float(value)
    except (TypeError, ValueError) as error:
        raise InputError("{name} must be a number, got {value!r}", name=name, value=value) from error
    below = result <= low if open_low else result < low
    if math.isnan(result) or math.isinf(result) or below or result > high:
        raise InputError(
            "{name} must be {accepted}, got {value!r}",
            name=name,
            accepted=_range_text(low, high, open_low),
            value=value,
        )
    return result


def _range_text(low: float, high: float, open_low: bool) -> Message:
    if low == -math.inf and high == math.inf:
        return Message("a finite number")
    if high == math.inf:
        return Message("finite and above {low:g}" if open_low else "finite and at least {low:g}", low=low)
    if open_low:
        return Message("between {low:g} and {high:g}, {low:g} itself excluded", low=low, high=high)
    return Message("between {low:g} and {high:g}", low=low, high=high)


def one_of(value: Any, name: str, accepted: tuple[str, ...]) -> str:
    """Return `value` if it is one of `accepted`; ValueError that lists them otherwise."""
    if value not in accepted:
        raise InputError(
            "{name} must be one of {accepted}; got {value!r}",
            name=name,
            accepted=", ".join(map(repr, accepted)),
            value=value,
        )
    return str(value)


def whole_number(value: Any, name: str, *, low: int) -> int:
    """Return a hyperparameter as an int of at least `low`; ValueError otherwise."""
    if isinstance(value, bool) or int(number(value, name)) != value or value < low:
        raise InputError(
            "{name} must be a whole number of at least {low}, got {value!r}", name=name, low=low, value=value
        )
    return int(value)
