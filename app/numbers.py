"""Numbers as text: for read-outs and pictures (a real minus sign), for LaTeX, for tables and for prose."""

from __future__ import annotations

import math
from typing import Any

MINUS = "\N{MINUS SIGN}"
MISSING = "\N{EN DASH}"


def plain(value: Any, digits: int = 3) -> str:
    """Return a number with `digits` decimals, or in scientific form where those would mislead.

    >>> plain(0.25), plain(-1.5, 2), plain(20959.156), plain(3.2e-7), plain(None)
    ('0.250', '−1.50', '20959', '3.2e−7', '–')
    """
    if value is None or math.isnan(value):
        return MISSING
    return _text(float(value), digits).replace("-", MINUS)


def signed(value: Any, digits: int = 3) -> str:
    """Return a number with its sign, zero included as 0.

    >>> signed(1.5), signed(-0.5), signed(0.0), signed(-1e-17)
    ('+1.500', '−0.500', '0.000', '0.000')
    """
    text = plain(value, digits)
    return "+" + text if value is not None and value > 0 and text != plain(0.0, digits) else text


def _text(value: float, digits: int) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    size = abs(value)
    if size >= 1e6 or (0 < size < 0.5 * 10**-digits and size > 1e-12):
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    if size >= 1000:
        return f"{value:.0f}"
    return f"{0.0 if size <= 1e-12 else value:.{digits}f}"


def short(value: Any) -> str:
    """Return a number as a person would write it: no trailing zeros, six significant digits.

    >>> short(0.2), short(1.0), short(1e-4), short(None)
    ('0.2', '1', '0.0001', '–')
    """
    return MISSING if value is None else f"{float(value):.6g}".replace("-", MINUS)


def latex(value: Any, digits: int = 3, *, sign: bool = False) -> str:
    r"""Return a number for a LaTeX formula.

    >>> latex(-0.5), latex(1.5, sign=True), latex(5.2e21), latex(float("inf"))
    ('-0.500', '+1.500', '5.2\\times 10^{21}', '\\infty')
    """
    text = (signed if sign else plain)(value, digits).replace(MINUS, "-").replace("∞", r"\infty")
    if "e" in text:
        mantissa, exponent = text.split("e")
        return rf"{mantissa}\times 10^{{{exponent}}}"
    return r"\text{--}" if text == MISSING else text


def bracketed(value: Any, digits: int = 3) -> str:
    """Return a number for LaTeX, in parentheses if it is negative."""
    text = latex(value, digits)
    return f"({text})" if text.startswith("-") else text


def cell(value: Any) -> str:
    """Return a number as its owner would type it into a cell: exact, shortest, empty for None."""
    return "" if value is None else repr(float(value)).removesuffix(".0")


def finite(data: Any) -> Any:
    """Return JSON data with None in the place of what is no finite number: a gap in a picture.

    >>> finite({"y": [1.0, float("inf")]})
    {'y': [1.0, None]}
    """
    if isinstance(data, dict):
        return {name: finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
