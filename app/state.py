"""The current group and settings of one browser session, kept equal to the link in its address bar.

The link is the truth when a page is opened, and when the browser goes back or forward. Otherwise the session is, and
`widgets.sync_link` writes the link after every change. (Streamlit's own `bind` cannot be set by a preset: its issue
14670. So the session keeps plain values, and widgets are filled from them.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app import editing, frame, link
from app.frame import Frame
from app.link import View
from app.params import PARAMS, RECIPE_BOUND
from app.teaching import FIRST, teaching_groups
from app.words import ENGLISH, LANGUAGES, follow, t, told
from grpo_core import Group

MAX_UNDO = 100
_KEY = "grpo_lab"


@dataclass
class Lab:
    """Everything a session remembers."""

    view: View = field(default_factory=View)
    undo: list[View] = field(default_factory=list)
    gesture: Any = None  # the edit that the last undo point belongs to: a drag is undone as one
    notes: list[str] = field(default_factory=list)
    errors: dict[str, tuple[str, str]] = field(default_factory=dict)  # widget -> what was typed, what is wrong with it
    page: str | None = None
    written: deque[str] = field(default_factory=lambda: deque(maxlen=500))
    epoch: int = (
        0  # counts jumps (undo, reset, another group): an edit made before a jump and arriving after it is void
    )
    answered: dict[str, int] = field(default_factory=dict)  # controls -> the newest edit that was answered
    panels: set[str] = field(default_factory=set)  # the panels of live sliders that were drawn
    edited: float = 0.0  # when the last edit of a live slider was taken, by the monotonic clock
    frame: Frame = field(default_factory=Frame)


def lab() -> Lab:
    """Return this session's state, made on first use."""
    try:
        return st.session_state[_KEY]
    except KeyError:
        return st.session_state.setdefault(_KEY, Lab())


def start(query: Mapping[str, str]) -> None:
    """Take language and size of the link that starts a session. Call it before anything is said."""
    own = lab()
    if own.page is None and query.get("lang") in LANGUAGES:
        own.frame = replace(own.frame, language=query["lang"])
    if own.page is None and query.get("present") == "1":
        own.frame = replace(own.frame, present=True)


def _language() -> str:
    if get_script_run_ctx(suppress_warning=True) is None:
        return ENGLISH
    return lab().frame.language


follow(_language)


def open_page(page: str, query: Mapping[str, str]) -> None:
    """Take over the link when a session starts, and when Back, Forward or a link of our own changes the page."""
    own = lab()
    text = link.encode({k: v for k, v in query.items() if k not in link.RESERVED})
    first, changed = own.page is None, own.page != page
    own.page = page
    if first or changed:
        own.frame, own.notes = frame.from_query(query, own.frame)
    if changed and not first:
        own.errors.clear()
    if text and (first or changed or text not in own.written):
        view, notes = link.from_query(query, None if first else own.view)
        if view != own.view:
            if not first:
                _remember(own)
            own.view = view
        own.notes = [*own.notes, *notes] if first or changed else notes
    own.written.append(text)


def view() -> View:
    """Return the current view."""
    return lab().view


def group() -> Group:
    """Return the current group, the one that every page shows."""
    return lab().view.group


def base_group() -> Group:
    """Return the group as it was before it was edited by hand (itself, if it is not a teaching group)."""
    own = lab().view
    return teaching_groups()[own.base] if own.base else own.group


def get(name: str) -> Any:
    """Return a setting."""
    return link.value_of(lab().view.chosen, name)


def values() -> dict[str, Any]:
    """Return all settings."""
    chosen = lab().view.chosen
    return {name: link.value_of(chosen, name) for name in PARAMS}


def put(changes: Mapping[str, Any], *, gesture: Any = None) -> None:
    """Change settings. Edits with one `gesture` (a drag) are undone together."""
    own = lab()
    chosen = dict(own.view.chosen)
    if changes.get("recipe", get("recipe")) != get("recipe"):
        chosen = {k: v for k, v in chosen.items() if k not in RECIPE_BOUND}
        chosen["recipe"] = changes["recipe"]
    for name, value in changes.items():
        chosen.pop(name, None)
        if value != link.value_of(chosen, name):
            chosen[name] = value
    _change(View(chosen, own.view.base, own.view.group), gesture)


def choose_group(base: str, changes: Mapping[str, Any] | None = None) -> None:
    """Take up a teaching group, and settings with it."""
    own = lab()
    own.epoch += 1
    _change(View(own.view.chosen, base, teaching_groups()[base]), None)
    if changes:
        own.gesture = "preset"
        put(changes, gesture="preset")
        own.gesture = None


def edit_group(changed: Group, *, gesture: Any = None) -> None:
    """Show an edited form of the current group."""
    own = lab()
    _change(View(own.view.chosen, own.view.base, changed), gesture)


def open_group(opened: Group) -> None:
    """Show a group from elsewhere (a live run, a log). ValueError if it is too large for the explorer.

    Its log-probabilities are rounded to six decimals, so that the group fits into a link and the link shows this group.
    """
    opened = link.bounded(opened)
    rows = {
        name: tuple(tuple(round(x, 6) for x in row) for row in getattr(opened, name))
        for name in ("logp", "old_logp", "ref_logp")
        if getattr(opened, name) is not None
    }
    own = lab()
    _change(View(own.view.chosen, "", opened.replace(**rows)), None)


def undo() -> None:
    """Go back to the view before the last change."""
    own = lab()
    own.epoch += 1
    if own.undo:
        own.view = own.undo.pop()
    own.gesture = None
    own.errors.clear()


def reset() -> None:
    """Go back to the group and settings that the app starts with; this can be undone."""
    lab().epoch += 1
    _change(View(), None)


def restore_group() -> None:
    """Go back to the teaching group as it was before it was edited."""
    own = lab()
    base = own.view.base or FIRST
    _change(View(own.view.chosen, base, teaching_groups()[base]), None)


def query() -> str:
    """Return the current view as the text after the question mark, and remember that it is ours."""
    own = lab()
    text = link.encode(link.to_query(own.view))
    if not own.written or own.written[-1] != text:
        own.written.append(text)
    return link.encode({**link.to_query(own.view), **frame.to_query(own.frame)})


def locked() -> bool:
    """Return whether the view is to be looked at only."""
    return lab().frame.lock


def show(changed: Frame) -> None:
    """Show the page another way: with other parts, open for changes, or large."""
    lab().frame = changed


def type_rewards(text: str) -> None:
    """Take a typed line of rewards; a wrong cell keeps the last good group and leaves a message."""
    own = lab()
    try:
        rewards = editing.parse_rewards(text)
    except ValueError as error:
        own.errors["rewards"] = (text, told(error))
        return
    own.errors.pop("rewards", None)
    edit_group(editing.with_rewards(group(), rewards))


def edit_value(name: str, raw: Any, *, gesture: Any = None) -> None:
    """Take an edit of one live control: a number from its slider, text from its cell, None from its button.

    `name` is a setting, or "reward:i", "length:i" or "size" for the group. A wrong value leaves a message under the
    control and changes nothing.
    """
    own = lab()
    try:
        _take(name, raw, gesture)
    except ValueError as error:
        own.errors[name] = (str(raw), told(error))
        return
    own.errors.pop(name, None)


def _take(name: str, raw: Any, gesture: Any) -> None:
    kind, _, index = name.partition(":")
    gesture = None if gesture is None else (name, gesture)
    text = "off" if raw is None else str(raw)
    if kind == "reward":
        reward = None if raw is None else editing.parse_reward(str(raw))
        edit_group(editing.with_reward(group(), int(index), reward), gesture=gesture)
    elif kind == "length":
        length = int(_ranged(text, 0, editing.MAX_LENGTH))
        edit_group(editing.with_length(group(), int(index), length, source=base_group()), gesture=gesture)
    elif kind == "token":  # "token:logp:2:5" is the log-probability of completion 2, token 5, counted from 0
        row, completion, position = index.split(":")
        value = _ranged(text, editing.MIN_LOGP, 0, whole=False)
        edit_group(editing.with_token(group(), int(completion), int(position), row, value), gesture=gesture)
    elif kind == "step":  # "step:reward:0:2" is the reward of completion 0's step 2, both counted from 0
        what, *at = index.split(":")
        low, high = editing.STEP_RANGES[what]
        value = _ranged(text.replace(chr(0x2212), "-"), low, high, whole=what != "reward")
        put({"steps": editing.with_step(get("steps"), what, [int(x) for x in at], value)}, gesture=gesture)
    elif kind == "size":
        edit_group(editing.resized(group(), int(_ranged(text, 1, editing.MAX_SIZE))), gesture=gesture)
    elif kind == "events":
        size = int(_ranged(text, 2, 8))
        put({name: (get(name) + (0.1,) * size)[:size] for name in ("cur", "ref")}, gesture=gesture)
    elif kind == "count":
        put({name: resized_list(get(name), int(_ranged(text, 2, 8))) for name in index.split("+")}, gesture=gesture)
    elif index and kind in PARAMS:
        parts = list(get(kind))  # a page may show more cells than there are, the last one repeated: `resized_list`
        parts += parts[-1:] * (min(int(index) + 1, 8) - len(parts))
        parts[int(index)] = _setting(kind, text, cell=True)
        put({kind: tuple(parts)}, gesture=gesture)
    else:
        put({name: _setting(name, text)}, gesture=gesture)


def resized_list(values: tuple[float, ...], size: int) -> tuple[float, ...]:
    """Return `size` numbers: the first ones, and the last one repeated where there are too few."""
    return (values + values[-1:] * size)[:size]


def _setting(name: str, text: str, *, cell: bool = False) -> Any:
    """Return the value that was typed: the whole setting, or one `cell` of a list."""
    text = text.strip().replace(chr(0x2212), "-")
    try:
        return PARAMS[name].number(text) if cell else PARAMS[name].parse(text)
    except ValueError as accepted:
        raise ValueError(t("edit.accepted", accepted=str(accepted))) from None


def _ranged(text: str, low: float, high: float, *, whole: bool = True) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high or (whole and value != int(value)):
        key = "accept.whole" if whole else "accept.number"
        raise ValueError(t("edit.accepted", accepted=t(key, low=f"{low:g}", high=f"{high:g}")))
    return value


def _remember(own: Lab) -> None:
    own.undo.append(own.view)
    del own.undo[:-MAX_UNDO]


READING = ("tok",)  # settings that say where the reader looks: free in a locked view too


def _allowed(own: Lab, changed: View) -> bool:
    if not own.frame.lock:
        return True
    fixed = [{k: v for k, v in view.chosen.items() if k not in READING} for view in (own.view, changed)]
    return fixed[0] == fixed[1] and own.view.group == changed.group


def _change(changed: View, gesture: Any) -> None:
    own = lab()
    if changed == own.view or not _allowed(own, changed):
        return
    if gesture is None or gesture != own.gesture:
        _remember(own)
    own.gesture = gesture
    own.view = changed
    own.notes = []
