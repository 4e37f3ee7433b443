"""A view as a link and back: settings that differ from their defaults, and the group if it was edited.

Links come from strangers: everything is checked, sizes are bounded before and after decompression, and whatever is
unknown or out of range becomes a note and falls back.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from app import editing, frame
from app.params import DEFAULT_RECIPE, PARAMS, default
from app.teaching import FIRST, teaching_groups
from app.words import plain_text, t, told
from grpo_core import Group

MAX_PACKED = 40_000  # characters of a packed group that are looked at
MAX_UNPACKED = 400_000  # bytes that it may unpack to
MAX_LINK = 8_000  # characters of a packed group that still go into a link
LEFT_OUT = "large"  # stands in the place of a packed group that does not fit
MAX_COMPLETIONS = 64
MAX_TOKENS = 20_000
LIVE = ("run", "step", "part", "scenario", "panels", "runs", "axis", "under")
RESERVED = ("embed", "embed_options", *LIVE, *frame.NAMES)
"""Parameters that are no settings of the explorer: Streamlit's own, the live page's, the frame's."""


@dataclass(frozen=True)
class View:
    """What a link restores: settings that were chosen, the teaching group it starts from, and the group itself."""

    chosen: Mapping[str, Any] = field(default_factory=dict)
    base: str = FIRST
    group: Group = field(default_factory=lambda: teaching_groups()[FIRST])


def value_of(chosen: Mapping[str, Any], name: str) -> Any:
    """Return a setting: what was chosen, or else the default under the chosen recipe."""
    return chosen[name] if name in chosen else default(name, chosen.get("recipe", DEFAULT_RECIPE))


def to_query(view: View) -> dict[str, str]:
    """Return the query parameters of a view; defaults are left out, and of a group too large for a link the data."""
    query = {} if view.base in ("", FIRST) else {"g": view.base}
    if is_edited(view):
        packed = pack(_difference(view))
        query["gx"] = packed if len(packed) <= MAX_LINK else LEFT_OUT
    for name, param in PARAMS.items():
        if name in view.chosen and len(text := param.write(view.chosen[name])) <= MAX_LINK:
            query[name] = text
    return query


def encode(query: Mapping[str, str]) -> str:
    """Return query parameters as the text after the question mark; commas stay readable."""
    return "&".join(f"{name}={quote(value, safe=',.-_~')}" for name, value in query.items())


def is_edited(view: View) -> bool:
    """Return whether the group is no longer the teaching group it started from."""
    return view.base == "" or view.group != teaching_groups()[view.base]


def too_large(view: View) -> bool:
    """Return whether the group does not fit into a link."""
    return is_edited(view) and len(pack(_difference(view))) > MAX_LINK


def from_query(query: Mapping[str, str], before: View | None = None) -> tuple[View, list[str]]:
    """Return the view that query parameters describe, and a note for everything that could not be used.

    `before`: the view that the reader comes from; a group too large for a link is still there.
    """
    notes: list[str] = []
    chosen = _settings(query, notes)
    if query.get("gx") == LEFT_OUT and before is not None and too_large(before):
        base, group = before.base, before.group
    else:
        base, group = _group(query, notes)
    unknown = [name for name in query if name not in PARAMS and name not in ("g", "gx", *RESERVED)]
    if unknown:
        notes.append(t("link.unknown", names=", ".join(plain_text(name) for name in unknown[:5])))
    return View(chosen, base, group), notes


def _settings(query: Mapping[str, str], notes: list[str]) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for name, param in PARAMS.items():
        if name not in query:
            continue
        try:
            value = param.parse(query[name][: param.longest])
        except ValueError as accepted:
            notes.append(t("link.value", name=name, text=plain_text(query[name]), accepted=str(accepted)))
            continue
        if value != value_of(chosen, name):  # "recipe" comes first, so that its defaults are known here
            chosen[name] = value
    return chosen


def _group(query: Mapping[str, str], notes: list[str]) -> tuple[str, Group]:
    base = query.get("g", FIRST)
    if base not in teaching_groups():
        notes.append(t("link.group", name=plain_text(base)))
        base = FIRST
    group = teaching_groups()[base]
    if "gx" not in query:
        return base, group
    if query["gx"] == LEFT_OUT:
        notes.append(t("link.was_left_out"))
        return base, group
    try:
        return _edited(base, group, unpack(query["gx"]))
    except ValueError as error:
        notes.append(t("link.packed", problem=told(error)))
        return base, group


def _edited(base: str, group: Group, data: Any) -> tuple[str, Group]:
    if not isinstance(data, dict):
        raise ValueError(t("link.not_a_group"))
    whole = bool(data.pop("whole", False))
    dropped = data.pop("without", [])
    if not isinstance(dropped, list):
        raise ValueError(t("link.not_a_group"))
    fields = {} if whole else {k: v for k, v in group.to_json().items() if k not in dropped}
    result = bounded(Group.from_json({**fields, **data}))
    return ("" if whole else base), result


def bounded(group: Group) -> Group:
    """Return the group if the explorer can show it; ValueError otherwise."""
    tokens = sum(len(row) for row in group.tokens)
    if group.size > MAX_COMPLETIONS or tokens > MAX_TOKENS:
        raise ValueError(t("link.large", completions=MAX_COMPLETIONS, tokens=MAX_TOKENS))
    rewards = [r for row in (group.rewards, *group.reward_parts.values()) for r in row if r is not None]
    logps = [x for rows in (group.logp, group.old_logp, group.ref_logp) for row in rows or () for x in row]
    if max(map(abs, rewards), default=0.0) > editing.MAX_REWARD or min(logps, default=0.0) < editing.MIN_LOGP:
        raise ValueError(t("link.numbers", reward=f"{editing.MAX_REWARD:,.0f}", logp=f"{-editing.MIN_LOGP:,.0f}"))
    return group


def sendable(data: Any) -> Any:
    """Return JSON data with a question mark for half a surrogate pair, which no browser can be sent."""
    return json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))


def _difference(view: View) -> dict[str, Any]:
    """Return the group as JSON data, without the fields that its teaching group has as well."""
    data = view.group.to_json()
    if view.base == "":
        return {"whole": True, **data}
    base = teaching_groups()[view.base].to_json()
    changed = {k: v for k, v in data.items() if base.get(k) != v}
    without = [k for k in base if k not in data]
    return {**changed, "without": without} if without else changed


def pack(data: Any) -> str:
    """Return JSON data compressed and safe for a link."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def unpack(packed: str) -> Any:
    """Return what `pack` compressed. ValueError for anything else, and before a small text unpacks to a huge one."""
    if len(packed) > MAX_PACKED:
        raise ValueError(t("link.too_long"))
    try:
        raw = base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True)
        stream = zlib.decompressobj()
        text = stream.decompress(raw, MAX_UNPACKED)
        if stream.unconsumed_tail or not stream.eof:
            raise ValueError(t("link.broken"))
        return sendable(json.loads(text))
    except (binascii.Error, zlib.error, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(t("link.broken")) from error
