"""The group's tokens as a table of coloured cells, one of which is chosen by mouse or keyboard."""

from __future__ import annotations

import unicodedata
import zlib
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from app import state
from app.components import component
from app.lens import Lens
from app.numbers import plain, signed
from app.widgets import colors
from app.words import t

MOST_CELLS = 1400  # cells on the screen at a time; a long completion shows a part of itself, with a way on
MOST_NUMBERS = 260  # up to here every cell carries its number
LONGEST_TEXT = 32
_SIGNS = {"\n": "⏎", "\r": "␍", "\t": "⇥", " ": "␣"}

Place = tuple[int, int]  # completion and position, from 0


@dataclass(frozen=True)
class Heat:
    """What colours the tokens: `values` (B, T), centred on 0. `share`: they are parts of a whole, shown in percent.

    `scale`: the size that gets the full colour (None: the largest one), so that two tables can share a scale.
    """

    values: np.ndarray
    share: bool = False
    scale: float | None = None

    @property
    def reach(self) -> float:
        """The size that gets the full colour; what overflowed does not count."""
        finite = self.values[np.isfinite(self.values)]
        return self.scale if self.scale is not None else float(np.abs(finite).max()) if finite.size else 0.0

    @property
    def digits(self) -> int:
        """Decimals that show the largest value with two digits, at least three (one for a percentage)."""
        largest = 100 * self.reach if self.share else self.reach
        if largest <= 0:
            return 3
        return int(np.clip(1 - np.floor(np.log10(largest)), 1 if self.share else 3, 6))

    def text(self, value: float) -> str:
        """Return one value as text, with its sign."""
        return signed(100 * value, self.digits) + " %" if self.share else signed(value, self.digits)


def visible(text: str, limit: int = LONGEST_TEXT) -> str:
    """Return a token so that all of it can be seen: spaces and line ends as signs, control characters as boxes."""
    shown = "".join(_SIGNS.get(c) or ("▯" if unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs") else c) for c in text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def token_table(lens: Lens, heat: Heat, selected: Place | None, *, key: str, hint: str) -> None:
    """Draw the table; choosing a token puts it into the view's `tok`."""
    data = table_data(lens, heat, selected, hint=hint)
    data.update(
        seen=state.lab().answered.get(key, 0), file=f"grpo-lab-{key}", colors=_palette(), label=t("tokens.label"),
        words={name: t(f"tokens.{name}") for name in ("earlier", "later", "empty", "saturated", "masked")},
    )  # fmt: skip
    mount = component("token_table", '<div class="token-table"></div>', isolate=False)
    name = f"picture-{key}"
    mount(key=name, data=data, on_pick_change=partial(_picked, name, key))


def _palette() -> dict[str, str]:
    own = colors()
    return {"up": own.up, "down": own.down, "page": own.page, "ink": own.ink}


def _picked(name: str, key: str) -> None:
    pick = st.session_state[name].get("pick")
    if not isinstance(pick, dict):
        return
    state.lab().answered[key] = int(pick.get("at", 0))
    completion, position = int(pick.get("completion", 0)), int(pick.get("position", 0))
    if 0 <= completion < state.group().size and 0 <= position < len(state.group().tokens[completion]):
        state.put({"tok": (float(completion + 1), float(position + 1))}, gesture="tok")


def table_data(lens: Lens, heat: Heat, selected: Place | None, *, hint: str) -> dict[str, Any]:
    """Return what the browser needs: for each completion its cells, or the part of them that holds the selection."""
    group, reach = lens.group, heat.reach
    window = max(20, MOST_CELLS // group.size)
    rows = [_row(lens, heat, i, _start(selected, i, window), window) for i in range(group.size)]
    end = heat.text(reach).lstrip("+") if reach else "0"
    return {
        "rows": rows,
        "selected": list(selected) if selected else None,
        "show": sum(len(row["texts"]) for row in rows) <= MOST_NUMBERS,
        "low": heat.text(-reach) if reach else "0",
        "high": "+" + end if reach else "0",
        "hint": hint,
    }


def _start(selected: Place | None, index: int, window: int) -> int:
    return selected[1] // window * window if selected and selected[0] == index else 0


def _row(lens: Lens, heat: Heat, index: int, start: int, window: int) -> dict[str, Any]:
    tokens = lens.group.tokens[index]
    part = slice(start, min(start + window, len(tokens)))
    texts = [visible(text) for text in tokens[part]]
    values = heat.values[index, part]
    strength = np.clip(np.nan_to_num(values / (heat.reach or 1.0), nan=0.0), -1.0, 1.0)
    flags = lens.terms.saturated[index, part].astype(int) + 2 * (~lens.terms.mask[index, part]).astype(int)
    reward = lens.group.rewards[index]
    score = t("control.unscored") if reward is None else plain(reward, 2)
    return {
        "key": f"{start}:{len(tokens)}:{zlib.crc32(chr(0).join(texts).encode())}",
        "name": t("tokens.completion", number=index + 1),
        "note": t("tokens.note", reward=score, advantage=signed(lens.advantages[index], 2)),
        "texts": texts,
        "levels": np.rint(100 * strength).astype(int).tolist(),
        "numbers": [heat.text(v) for v in values],
        "flags": flags.tolist(),
        "from": start,
        "total": len(tokens),
        "sum": heat.text(float(heat.values[index].sum())),
    }  # fmt: skip


def chosen(lens: Lens, heat: Heat) -> tuple[Place | None, str]:
    """Return the selected token, and a note if the view names one that the group does not have.

    Without a choice it is the token with the largest value; a group without a token has none.
    """
    wanted, note = lens.values["tok"], ""
    if wanted is not None:
        completion, position = (int(x) - 1 for x in wanted[:2])
        if completion < lens.group.size and position < len(lens.group.tokens[completion]):
            return (completion, position), note
        note = t("tokens.missing", completion=completion + 1, position=position + 1)
    return _largest(lens, heat), note


def _largest(lens: Lens, heat: Heat) -> Place | None:
    places = [(i, k) for i, row in enumerate(lens.group.tokens) for k in range(len(row))]
    if not places:
        return None
    rows, columns = np.array(places).T
    sizes = np.nan_to_num(np.abs(heat.values[rows, columns]))
    return places[int(np.flatnonzero(sizes >= sizes.max() * (1 - 1e-9))[0])]  # rounding must not choose among equals


def share(values: np.ndarray) -> np.ndarray:
    """Return values as shares of the sum of all sizes (0 where there is none)."""
    total = float(np.abs(values).sum())
    return values / total if 0 < total < np.inf else np.zeros_like(values)
