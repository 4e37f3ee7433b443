"""The completions on the bench: where they come from, how they are edited, and how they become the current group."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import streamlit as st

from app import link, state, widgets
from app.bench import MAX_CHARACTERS, MAX_TEXTS, Bench, bench_cases
from app.words import t, told
from grpo_core import Group
from grpo_core.rewards import RewardReport, reward_parts

_TOKEN = re.compile(r"\s*(?:</?(?:think|answer)>|\\?[^\W぀-ヿ㐀-鿿가-힣]+|[^\s])|\s+")


def split(text: str) -> tuple[str, ...]:
    """Return a text in pieces that join to it again: words, signs, tags and single East Asian characters."""
    return tuple(_TOKEN.findall(text))


def current() -> tuple[Bench, str]:
    """Return what is on the bench, and a problem with the link if its completions could not be used."""
    case, packed = bench_cases()[state.get("bench")], state.get("bench_x")
    if packed is None:
        return case, ""
    try:
        return unpacked(packed), ""
    except ValueError as error:
        return case, told(error)


def packed(bench: Bench) -> str:
    """Return a bench as text for a link."""
    return link.pack([bench.prompt, bench.gold, *bench.texts])


def unpacked(text: str) -> Bench:
    """Return the bench that `packed` wrote. ValueError for anything else."""
    data = link.unpack(text)
    if not isinstance(data, list) or not all(isinstance(item, str) for item in data):
        raise ValueError(t("bench.not_texts"))
    return bounded(Bench(data[0], data[1], tuple(data[2:])) if len(data) > 2 else Bench("", "", ()))


def bounded(bench: Bench) -> Bench:
    """Return a bench that the page can show; ValueError otherwise."""
    if not 1 <= len(bench.texts) <= MAX_TEXTS:
        raise ValueError(t("bench.count", limit=MAX_TEXTS))
    if max(map(len, (bench.prompt, bench.gold, *bench.texts))) > MAX_CHARACTERS:
        raise ValueError(t("bench.long", limit=MAX_CHARACTERS))
    return bench


def show(bench: Bench) -> None:
    """Put completions on the bench."""
    same = bench == bench_cases()[state.get("bench")]
    state.put({"bench_x": None if same else packed(bounded(bench))})


def pasted(text: str) -> tuple[str, ...]:
    """Return the completions in a pasted text: a JSON list of texts, or texts with a line of --- between them."""
    try:
        data = link.sendable(json.loads(text))
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, list) and data and all(isinstance(item, str) for item in data):
        return tuple(data)
    return tuple(part.strip("\n") for part in re.split(r"^-{3,}[ \t]*$", text, flags=re.MULTILINE))


def take_group() -> None:
    """Put the current group's completions on the bench."""
    group = state.group()
    texts = tuple(re.sub(r"<(?:eos|\|endoftext\|)>$", "", text) for text in group.completions[:MAX_TEXTS])
    _attempt(Bench(group.prompt, group.answer or "", texts))


def as_group(bench: Bench, reports: list[RewardReport]) -> Group:
    """Return the bench as a group with its rewards and their parts.

    Where a text is that of the current group's completion, its tokens and log-probabilities are kept. A new text was
    written by nobody: its tokens get one log-probability under all policies, so that every ratio is 1.
    """
    rows = [_row(text) for text in bench.texts]
    tokens, logp, old, ref = (tuple(row[k] for row in rows) for k in range(4))
    return Group(
        prompt=bench.prompt,
        answer=bench.gold or None,
        tokens=tokens,
        rewards=tuple(report.reward for report in reports),
        logp=logp,
        old_logp=old,
        ref_logp=ref,
        reward_parts=reward_parts(reports),
    )


def _row(text: str) -> tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    group = state.group()
    for i, completion in enumerate(group.completions):
        if text and completion in (text, text + "<eos>") and group.ref_logp is not None:
            return group.tokens[i], group.logp[i], (group.old_logp or group.logp)[i], group.ref_logp[i]
    tokens = split(text)
    flat = (-1.0,) * len(tokens)
    return tokens, flat, flat, flat


def editor(bench: Bench) -> None:
    """Draw the prompt, the gold answer and every completion as text to edit."""
    prompt, gold, more = st.columns([5, 2.4, 1.6], vertical_alignment="bottom", gap="medium")
    with prompt:
        _line(bench, "prompt", limit=500)
    with gold:
        _line(bench, "gold", limit=200)
    with more:
        menu(bench)
    if len(state.get("bench_x") or "") > link.MAX_LINK:
        st.caption(t("bench.left_out"))
    per_row = 4 if len(bench.texts) > 2 else 2
    for start in range(0, len(bench.texts), per_row):
        columns = st.columns(per_row, gap="small")
        for i, column in zip(range(start, min(start + per_row, len(bench.texts))), columns, strict=False):
            with column:
                _area(bench, i)


def _line(bench: Bench, name: str, *, limit: int) -> None:
    key = f"bench-{name}"
    widgets.fill(key, getattr(bench, name))
    st.text_input(
        t(f"bench.{name}"),
        key=key,
        help=t(f"bench.{name}_help"),
        max_chars=max(limit, len(getattr(bench, name))),
        disabled=state.locked(),
        on_change=lambda: _attempt(replace(bench, **{name: st.session_state[key]})),
    )


def _area(bench: Bench, index: int) -> None:
    key = f"bench-text-{index}"
    widgets.fill(key, bench.texts[index])

    def take() -> None:
        texts = list(bench.texts)
        texts[index] = st.session_state[key]
        _attempt(replace(bench, texts=tuple(texts)))

    st.text_area(
        t("control.completion", number=index + 1),
        key=key,
        height=118,
        max_chars=MAX_CHARACTERS,
        disabled=state.locked(),
        on_change=take,
    )


def menu(bench: Bench) -> None:
    """Draw what else can be done with the completions: add, remove, paste, take over the group's."""
    with st.popover(t("bench.menu"), icon=":material/edit_note:", width="stretch", disabled=state.locked()):
        add, remove = st.columns(2)
        with add:
            _button(
                "add", ":material/add:", replace(bench, texts=(*bench.texts, "")), off=len(bench.texts) >= MAX_TEXTS
            )
        with remove:
            _button("remove", ":material/remove:", replace(bench, texts=bench.texts[:-1]), off=len(bench.texts) <= 1)
        st.button(
            t("bench.from_group"), icon=":material/download:", key="bench-from", width="stretch", on_click=take_group
        )
        st.text_area(t("bench.paste"), key="bench-paste", height=110, help=t("bench.paste_help"))
        st.button(
            t("bench.use_paste"),
            icon=":material/content_paste:",
            key="bench-use-paste",
            width="stretch",
            on_click=lambda: _attempt(replace(bench, texts=pasted(st.session_state["bench-paste"]))),
        )


def _button(name: str, icon: str, wanted: Bench, *, off: bool) -> None:
    st.button(
        t(f"bench.{name}"),
        icon=icon,
        key=f"bench-{name}",
        width="stretch",
        disabled=off,
        on_click=lambda: _attempt(wanted),
    )


def _attempt(bench: Bench) -> None:
    """Show a bench; one that cannot be shown leaves a message and changes nothing."""
    errors = state.lab().errors
    try:
        show(bench)
    except ValueError as error:
        errors["bench"] = ("", told(error))
        return
    errors.pop("bench", None)
