"""Widgets that read and write the session's view: live sliders, choices, presets, pictures, read-outs, the link."""

from __future__ import annotations

import csv
import io
import json
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from app import link, presets, redraw, state
from app.components import component
from app.figures.base import Figure, Palette, palette
from app.live_plot import live_plot
from app.numbers import cell, finite
from app.params import PARAMS, Param
from app.words import formula as spoken_formula
from app.words import known, prose, t

Row = dict[str, Any]


def colors() -> Palette:
    """Return the palette of the reader's theme."""
    return palette(st.context.theme.type == "dark")


def label(name: str) -> str:
    """Return a setting's label."""
    return t(f"param.{name}.label")


def help_of(name: str) -> str | None:
    """Return a setting's help text, if it has one."""
    return t(f"param.{name}.help") if known(f"param.{name}.help") else None


# Live sliders


def slider(name: str, *, value: float | None = None, text: str | None = None) -> Row:
    """Return the row of one setting. `value` and `text` replace what an unset optional setting would show."""
    param, current = PARAMS[name], state.get(name)
    shown = current if current is not None else value
    row = _row(name, label(name), current, param)
    row.update(unit=t(f"param.{name}.unit") if known(f"param.{name}.unit") else "", help=help_of(name))
    if current is None:
        row["text"] = text or t(f"param.{name}.unset")
    if param.optional:
        row.update(toggle=t(f"param.{name}.none"), back=value if value is not None else param.high, rest=shown)
    return row


def reward_rows() -> list[Row]:
    """Return a row for each completion's reward, with a button for "unscored"."""
    rewards = state.group().rewards
    scored = [r for r in rewards if r is not None]
    param = Param(name="", kind="number", low=min(0.0, *scored, 0.0), high=max(1.0, *scored, 1.0), step=0.01)
    rows = []
    for i, reward in enumerate(rewards):
        row = _row(f"reward:{i}", t("control.completion", number=i + 1), reward, param)
        row.update(toggle=t("control.unscored"), back=0.0)
        if reward is None:
            row["text"] = t("control.no_score")
        rows.append(row)
    return rows


def length_rows() -> list[Row]:
    """Return a row for each completion's length in tokens."""
    group = state.group()
    longest = max(16, *(len(row) for row in (*group.tokens, *state.base_group().tokens)))
    param = Param(name="", kind="whole", low=0, high=longest, step=1)
    return [
        {**_row(f"length:{i}", t("control.completion", number=i + 1), len(row), param), "unit": t("unit.tokens")}
        for i, row in enumerate(group.tokens)
    ]


def token_rows(completion: int, position: int) -> list[Row]:
    """Return a row for each of one token's log-probabilities: under the current, the old and the reference policy."""
    group, own = state.group(), colors()
    param = Param(name="", kind="number", low=-8.0, high=0.0, step=0.01)
    tints = {"logp": own.current, "old_logp": own.old, "ref_logp": own.reference}
    return [
        {
            **_row(f"token:{name}:{completion}:{position}", t(f"control.{name}"), rows[completion][position], param),
            "unit": t("unit.nats"),
            "text": f"{rows[completion][position]:.3f}",
            "help": t(f"control.{name}_help"),
            "color": tint,
        }
        for name, tint in tints.items()
        if (rows := getattr(group, name)) is not None
    ]


def size_row() -> Row:
    """Return the row for the group size."""
    param = Param(name="", kind="whole", low=1, high=max(16, state.group().size), step=1)
    return {**_row("size", t("control.size"), state.group().size, param), "help": t("control.size_help")}


def events_row() -> Row:
    """Return the row for the number of events of the editable distributions."""
    param = Param(name="", kind="whole", low=2, high=8, step=1)
    row = _row("events", t("control.events"), len(state.get("cur")), param)
    return {**row, "help": t("control.events_help"), "wide": True}


def weight_rows(name: str, probabilities: Sequence[float], weights: Sequence[float] | None = None) -> list[Row]:
    """Return a row for each event's weight in an editable distribution, with the probability it comes to.

    `weights`: what is shown, where that is more than the setting holds (see `state.resized_list`).
    """
    own = colors()
    rows, color = [], {"cur": own.current, "ref": own.reference, "kl_old": own.old}[name]
    for i, (weight, p) in enumerate(zip(weights or state.get(name), probabilities, strict=False)):
        row = _row(f"{name}:{i}", t(f"control.{name}", event=chr(ord("A") + i)), weight, PARAMS[name])
        row.update(color=color, help=t("control.weight_help"))
        row["unit"] = "" if abs(weight - p) < 5e-4 else t("control.normalised", p=f"{p:.3f}")
        rows.append(row)
    return rows


def cell_rows(name: str, titles: Sequence[str], *, color: str | None = None) -> list[Row]:
    """Return a row for each number of a list, as many as there are titles."""
    cells = zip(state.get(name), titles, strict=False)
    rows = [_row(f"{name}:{i}", title, value, PARAMS[name]) for i, (value, title) in enumerate(cells)]
    return [{**row, "color": color} for row in rows] if color else rows


def count_row(names: Sequence[str], title: str) -> Row:
    """Return the row for the number of entries of one list, or of several that are equally long."""
    param = Param(name="", kind="whole", low=2, high=8, step=1)
    return {**_row("count:" + "+".join(names), title, len(state.get(names[0])), param), "wide": True}


def edit_row(name: str, title: str, value: float, param: Param) -> Row:
    """Return the row of something that is not a setting of its own: `state.edit_value` knows what `name` means."""
    return _row(name, title, value, param)


def _row(name: str, title: str, value: float | None, param: Param) -> Row:
    typed, problem = state.lab().errors.get(name, ("", ""))
    return {
        "id": name, "label": title, "value": value, "text": _text(value, param), "low": param.low, "high": param.high,
        "step": param.step, "stops": list(param.stops), "log": param.log, "error": problem, "typed": typed,
    }  # fmt: skip


def _text(value: float | None, param: Param) -> str:
    """Return a value as the slider writes it while it moves; exactly, if it lies between two steps."""
    if value is None or param.stops or param.log or param.kind == "whole":
        return cell(value)
    decimals = len(f"{param.step:.10f}".rstrip("0").split(".")[1])
    return f"{value:.{decimals}f}" if abs(round(value, decimals) - value) < 1e-12 else cell(value)


def controls(key: str, rows: Sequence[Row], *, two: bool = False) -> None:
    """Draw a column of live sliders (or two columns).

    Draw it after the picture: its answer then tells the browser that the picture is on its way.
    """
    words = {"help": t("control.help"), "exact": t("control.exact")}
    data = {
        "rows": list(rows),
        "two": two,
        "words": words,
        "seen": state.lab().answered.get(key, 0),
        "epoch": state.lab().epoch,
    }
    data["locked"] = state.locked()
    state.lab().panels.add(key)
    mount = component("live_controls", '<div class="controls"></div>')
    mount(key=key, data=data, on_edit_change=redraw.then(partial(_edited, key), live=True))


def _edited(key: str) -> None:
    edit = st.session_state[key].get("edit")
    if not isinstance(edit, dict) or not isinstance(edit.get("id"), str):
        return
    own = state.lab()
    own.answered[key], own.edited = int(edit.get("at", 0)), time.monotonic()
    if edit.get("epoch") == own.epoch:
        state.edit_value(edit["id"], edit.get("value"), gesture=edit.get("gesture"))


# Choices, presets, text


def fill(key: str, value: Any) -> None:
    """Give a widget its value before it is drawn, if it does not have it."""
    if key not in st.session_state or st.session_state[key] != value:
        st.session_state[key] = value


def choice(
    name: str,
    options: Sequence[Any] | None = None,
    *,
    hide_label: bool = False,
    names: Mapping[Any, str] | None = None,
) -> None:
    """Draw a setting with a few values as buttons side by side. `names` replaces what some of the values are called."""
    if name.endswith("_view") and hidden("views"):
        return
    key = f"choice-{name}"
    fill(key, state.get(name))
    st.segmented_control(
        label(name),
        list(options or PARAMS[name].choices),
        key=key,
        required=True,
        format_func=lambda value: (names or {}).get(value) or t(f"param.{name}.{value}"),
        help=help_of(name),
        on_change=redraw.then(lambda: state.put({name: st.session_state[key]})),
        label_visibility="collapsed" if hide_label else "visible",
        wrap=True,
        disabled=state.locked(),
    )


def select(
    name: str,
    *,
    format_func: Callable[[Any], str] | None = None,
    options: Sequence[Any] | None = None,
    words: str | None = None,
) -> None:
    """Draw a setting with many values as a list. `words`: where its label and help are, if not under its own name."""
    key = f"choice-{name}"
    fill(key, state.get(name))
    st.selectbox(
        t(f"{words}.label") if words else label(name),
        list(options or PARAMS[name].choices),
        key=key,
        format_func=format_func or (lambda value: t(f"param.{name}.{value}")),
        help=t(f"{words}.help") if words else help_of(name),
        on_change=redraw.then(lambda: state.put({name: st.session_state[key]})),
        disabled=state.locked(),
    )


def preset_pills(page: str, view: str | None = None) -> None:
    """Draw the page's telling cases; the one that the view shows is marked.

    A page with many pictures names the setting that chooses one, `view`: then only the cases of the chosen picture are
    offered.
    """
    key, names = f"preset-{page}", presets.names(page)
    if view is not None:
        key += f"-{state.get(view)}"
        names = [name for name in names if presets.presets(page)[name]["set"].get(view) == state.get(view)]
    if not names or hidden("cases"):
        return
    fill(key, presets.current(page))

    def take() -> None:
        if st.session_state[key] is not None:
            presets.apply(page, st.session_state[key])

    st.pills(
        t("preset.label"),
        names,
        key=key,
        format_func=lambda name: t(f"preset.{page}.{name}" if known(f"preset.{page}.{name}") else f"group.{name}"),
        on_change=redraw.with_everything(take),
        label_visibility="collapsed",
    )


def numbers_line(name: str) -> None:
    """Draw a list of numbers as one line of text to edit."""
    typed, problem = state.lab().errors.get(name, ("", ""))
    fill(f"line-{name}", typed if problem else ", ".join(cell(x) for x in state.get(name)))
    st.text_input(
        label(name),
        key=f"line-{name}",
        help=help_of(name),
        on_change=redraw.then(lambda: state.edit_value(name, st.session_state[f"line-{name}"])),
        disabled=state.locked(),
    )
    if problem:
        st.error(literal(problem), icon=":material/edit:")


def rewards_line() -> None:
    """Draw all rewards as one line of text to edit."""
    from app.editing import write_rewards

    typed, problem = state.lab().errors.get("rewards", ("", ""))
    fill("rewards-line", typed if problem else write_rewards(state.group().rewards))
    st.text_input(
        t("control.rewards"),
        key="rewards-line",
        help=t("control.rewards_help"),
        on_change=redraw.then(lambda: state.type_rewards(st.session_state["rewards-line"])),
        disabled=state.locked(),
    )
    if problem:
        st.error(literal(problem), icon=":material/edit:")


def literal(text: str) -> str:
    """Return untrusted text so that Markdown shows it as it stands: no markup, no LaTeX, no directive."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]()<>#+-.!|~$:&" else c for c in text)


def hidden(part: str) -> bool:
    """Return whether the link leaves a part of the page out (see app.frame)."""
    return state.lab().frame.hides(part)


# Pictures and numbers


def picture(figure: Figure, key: str, *, alt: str) -> None:
    """Draw a figure; it is redrawn in place. `alt` is what a screen reader says about it.

    The figure goes to the browser unchecked: Plotly's validation would take most of a slider update's time. The tests
    validate every picture instead.
    """
    try:
        text = json.dumps(figure, allow_nan=False)
    except ValueError:  # a log-ratio of 1000 nats has an infinite k3; JSON knows no such number
        figure = finite(figure)
        text = json.dumps(figure)
    content = zlib.crc32(text.encode())
    live_plot(figure, key=f"picture-{key}", version=content, alt=alt, name=key)


@dataclass(frozen=True)
class Readout:
    """A number to read off: its label's key, its text, and a help text's key."""

    name: str
    text: str


def readouts(items: Sequence[Readout]) -> None:
    """Draw a row of numbers under the picture."""
    for column, item in zip(st.columns(len(items)), items, strict=True):
        key = f"readout.{item.name}"
        column.metric(t(key), item.text, help=t(f"{key}.help") if known(f"{key}.help") else None)


ROOM_BELOW = r"\rule[-1.3em]{0pt}{0pt}"  # a row of fractions would touch the next one: its depth swallows the gap


def formula(lines: Iterable[str]) -> None:
    """Draw a formula: with symbols, then with the numbers put in, then the result, aligned at the equals sign."""
    if hidden("formula"):
        return
    rows = [row + ROOM_BELOW if r"\frac" in row or r"\sum" in row else row for row in lines]
    latex(r"\begin{aligned}" + r"\\[0.45em] ".join(rows) + r"\end{aligned}")


def latex(text: str) -> None:
    """Draw a formula as it stands, the words in it in the reader's language."""
    st.latex(spoken_formula(text))


def see_also(page: str, preset: str) -> None:
    """Draw a link to a telling case of another page; the reader's group goes along."""
    if hidden("notice") or state.locked():
        return
    settings = presets.declared(page)[preset].get("set", {})
    st.page_link(
        f"../pages/{page}.py",
        label=t(f"see.{page}.{preset}"),
        icon=":material/arrow_forward:",
        query_params={**link.to_query(state.view()), **settings},
    )


def notice(page: str, section: str, **numbers: Any) -> None:
    """Draw what to notice in the current state."""
    if not hidden("notice"):
        st.info(prose(page, section, **numbers), icon=":material/visibility:")


# Check yourself, take away


@dataclass(frozen=True)
class Question:
    """A question about the view. `answer` is computed; `worked` says how, once the reader has tried."""

    text: str
    answer: float
    worked: str
    tolerance: float = 0.01


def check_yourself(page: str, ask: Callable[[], Question]) -> None:
    """Draw a question whose answer the reader types. It is computed only when the box is open."""
    if hidden("check"):
        return
    box = st.expander(t("check.title"), icon=":material/quiz:", key=f"check-{page}", on_change="rerun")
    if not box.open:
        return
    question = ask()
    with box:
        st.markdown(question.text)
        typed = st.number_input(
            t("check.answer"), value=None, step=None, format="%.6g", key=f"answer-{page}", placeholder=t("check.hint")
        )
        if typed is None:
            return
        right = abs(typed - question.answer) <= question.tolerance * max(1.0, abs(question.answer))
        if right:
            st.success(t("check.right") + " " + question.worked, icon=":material/check:")
        else:
            st.warning(t("check.wrong") + " " + question.worked, icon=":material/close:")


@dataclass(frozen=True)
class Table:
    """Data to take away: a header and rows."""

    header: tuple[str, ...]
    rows: Sequence[Sequence[Any]]

    def csv(self) -> str:
        """Return the table as CSV. A cell that a spreadsheet would run as a formula gets a leading apostrophe."""
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(self.header)
        writer.writerows([_inert(value) for value in row] for row in self.rows)
        return out.getvalue()


def _inert(value: Any) -> Any:
    return "'" + value if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def take_away(page: str, key: str | None, python: Callable[[], str], table: Callable[[], Table]) -> None:
    """Draw the Python that gives the number shown, and buttons for data and, if `key` names a chart, the picture."""
    if hidden("take"):
        return
    box = st.expander(t("take.title"), icon=":material/ios_share:", key=f"take-{page}", on_change="rerun")
    if not box.open:
        return
    with box:
        st.caption(t("take.python"))
        st.code(python(), language="python", wrap_lines=True)
        left, right = st.columns(2)
        left.download_button(
            t("take.csv"),
            data=lambda: table().csv(),
            file_name=f"grpo-lab-{page}.csv",
            mime="text/csv",
            on_click="ignore",
            icon=":material/table_view:",
            width="stretch",
        )
        if key is not None:
            with right:
                save_picture(key)


def save_picture(key: str) -> None:
    """Draw the button that saves a picture as PNG: it presses the camera of the chart with that key."""
    mount = component("save_picture", '<button type="button" class="save"></button>')
    mount(key=f"save-{key}", data={"label": t("take.png"), "chart": f"picture-{key}"})


def sync_link() -> None:
    """Write the view into the address bar."""
    mount = component("url_sync", "<span></span>")
    mount(key="url-sync", data={"query": state.query()}, height=1)
