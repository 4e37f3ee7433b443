"""What all pictures share: one colour for each meaning, one template for light and dark, and how text is made safe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Figure = dict[str, Any]
Trace = dict[str, Any]

CJK = '"PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "Noto Sans SC", "Noto Sans CJK SC", "Source Han Sans SC"'
FONT = f'"Source Sans", "Source Sans Pro", "Source Sans 3", "Helvetica Neue", Arial, {CJK}, sans-serif'


@dataclass(frozen=True)
class Palette:
    """The colours of one theme. Okabe-Ito, so that colour-blind readers can tell them apart; one meaning each."""

    ink: str  # text and axes
    muted: str  # secondary text
    grid: str
    zero: str
    page: str  # the page's background: the middle of signed heat pictures
    panel: str
    up: str = "#0072B2"  # positive advantage, pushed up, reward
    down: str = "#D55E00"  # negative advantage, pushed down
    current: str = "#009E73"  # current policy, held-out accuracy
    old: str = "#9AA3AB"  # old policy, flat, neutral
    reference: str = "#CC79A7"  # reference policy, KL
    entropy: str = "#E69F00"  # entropy, temperature
    band: str = "#F0E442"  # clip region, at low opacity
    second: str = "#56B4E9"  # the second run of a comparison
    band_opacity: float = 0.28
    up_text: str = "#0B5FA5"  # the same meanings for text, which needs more contrast
    down_text: str = "#B34700"
    reference_text: str = "#A8487F"

    def sign(self, value: float) -> str:
        """Return the colour of a signed number."""
        return self.up if value > 0 else self.down if value < 0 else self.old

    def sign_text(self, value: float) -> str:
        """Return the colour of a signed number's text."""
        return self.up_text if value > 0 else self.down_text if value < 0 else self.muted

    @property
    def signed_scale(self) -> list[list[Any]]:
        """A colour scale for heat pictures that are centred on zero."""
        return [[0.0, self.down], [0.5, self.page], [1.0, self.up]]


LIGHT = Palette(ink="#1B1F24", muted="#5B6670", grid="#E6EAEE", zero="#9AA3AB", page="#FFFFFF", panel="#F4F6F8")
DARK = Palette(
    ink="#E6EAEE", muted="#A3AEB8", grid="#242B32", zero="#5B6670", page="#101418", panel="#181E24",
    band_opacity=0.16, up_text="#6CB6EC", down_text="#F08A4B", reference_text="#E3A3C6",
)  # fmt: skip


def palette(dark: bool) -> Palette:
    """Return the colours of the light or the dark theme."""
    return DARK if dark else LIGHT


def safe(text: Any, limit: int = 40) -> str:
    """Return text for a Plotly label: Plotly reads some HTML, so that an unescaped <think> would vanish."""
    text = str(text).replace("\n", "⏎").replace("\t", "⇥")
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def axis(colors: Palette, title: str = "", **more: Any) -> dict[str, Any]:
    """Return an axis in the house style; `title` names the quantity and its unit."""
    base: dict[str, Any] = {
        "title": {"text": title, "font": {"size": 13, "color": colors.muted}, "standoff": 8},
        "tickfont": {"size": 12, "color": colors.muted},
        "gridcolor": colors.grid,
        "zerolinecolor": colors.zero,
        "zerolinewidth": 1,
        "linecolor": colors.grid,
        "automargin": True,
        "fixedrange": True,
    }
    return {**base, **more}


def layout(colors: Palette, *, height: int, **more: Any) -> dict[str, Any]:
    """Return a layout in the house style: no legend (series carry their names), no frame, room for labels."""
    base: dict[str, Any] = {
        "height": height,
        "autosize": True,
        "margin": {"l": 8, "r": 12, "t": 14, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13, "color": colors.ink},
        "showlegend": False,
        "hovermode": "closest",
        "hoverlabel": {"font": {"family": FONT, "size": 13}},
        "dragmode": False,
        "bargap": 0.35,
        "separators": ".\N{THIN SPACE}",
    }
    return {**base, **more}


def figure(data: Sequence[Trace], layout: dict[str, Any]) -> Figure:
    """Return the figure as a dict. Plotly's own classes check every value, which takes longer than all the rest."""
    return {"data": list(data), "layout": layout}


def line(x: Any, y: Any, color: str, *, width: float = 2.5, dash: str = "solid", **more: Any) -> Trace:
    """Return a line."""
    style = {"color": color, "width": width, "dash": dash}
    return {"type": "scatter", "mode": "lines", "x": floats(x), "y": floats(y), "line": style, **more}


def note(text: str, x: Any, y: Any, color: str, *, size: int = 12, **more: Any) -> dict[str, Any]:
    """Return an annotation without an arrow: a name beside its curve."""
    return {
        "text": text, "x": x, "y": y, "showarrow": False, "font": {"size": size, "color": color}, **more,
    }  # fmt: skip


def band(x0: float, x1: float, color: str, opacity: float, **more: Any) -> dict[str, Any]:
    """Return a vertical band behind a picture."""
    return {
        "type": "rect", "xref": "x", "yref": "paper", "x0": x0, "x1": x1, "y0": 0, "y1": 1, "layer": "below",
        "fillcolor": color, "opacity": opacity, "line": {"width": 0}, **more,
    }  # fmt: skip


def rule(colors: Palette, **more: Any) -> dict[str, Any]:
    """Return a thin dashed line as a shape."""
    return {"type": "line", "layer": "below", "line": {"color": colors.zero, "width": 1, "dash": "dot"}, **more}


def text_on(fill: str, share: float = 1.0, *, page: str = "#FFFFFF") -> str:
    """Return black or white, whichever is easier to read on a page that `fill` covers to a `share` of 0 to 1."""
    light = sum(w * _linear(share * f + (1 - share) * p) for w, f, p in zip(_SEEN, _rgb(fill), _rgb(page), strict=True))
    return "#000000" if (light + 0.05) / 0.05 > 1.05 / (light + 0.05) else "#FFFFFF"


_SEEN = (0.2126, 0.7152, 0.0722)  # how much red, green and blue count for the eye (WCAG)


def _rgb(color: str) -> list[float]:
    return [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def floats(values: Any) -> list[float]:
    """Return values as plain floats, which serialise fastest."""
    return [float(v) for v in values]


_LARGER = {"height": 1.2, "size": 1.3, "width": 1.4, "standoff": 1.3}
_DATA = ("x", "y", "z", "text", "customdata")


def enlarged(spec: Any) -> Any:
    """Return a figure for a projector: larger type and marks, thicker lines, a higher picture.

    Every number under a name that means a size on the screen grows. A bar's own `width` counts categories and stays.
    """
    if isinstance(spec, list | tuple):
        return [enlarged(part) for part in spec]
    if not isinstance(spec, dict):
        return spec
    kept = (*_DATA, "width") if spec.get("type") in ("bar", "box", "violin") else _DATA
    return {name: value if name in kept else _larger(name, value) for name, value in spec.items()}


def _larger(name: str, value: Any) -> Any:
    if name not in _LARGER:
        return enlarged(value)
    if isinstance(value, int | float):
        return value * _LARGER[name]
    if isinstance(value, list | tuple):
        return [_larger(name, part) for part in value]
    return value
