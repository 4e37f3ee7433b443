"""A group from pasted text or an uploaded file: JSON, or a table with one row a token or one row a completion.

Nothing in it is trusted: sizes are bounded, every cell is read as a number or as plain text, and what is wrong is named
with its row. What a table leaves out gets a stated default, which becomes a note.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from app import link
from app.editing import parse_reward
from app.words import plain_text, t, told
from grpo_core import Group

MAX_CHARACTERS = 2_000_000
DEFAULT_LOGP = -1.0
"""Log-probability (nats) of a token for which none is given."""
ROWS = ("logp", "old_logp", "ref_logp")
TOKEN_COLUMNS = ("completion", "token", "logp", "old_logp", "ref_logp", "mask", "reward", "finish")
COMPLETION_COLUMNS = ("text", "length", "logp", "old_logp", "ref_logp", "reward", "finish")
NO = ("0", "0.0", "false", "no", "f", "n")


def read_group(text: str) -> tuple[Group, list[str]]:
    """Return the group that the text describes, and a note for everything that it left open.

    ValueError says in the reader's language what is wrong, where, and what is accepted.
    """
    text = text.lstrip("\ufeff").strip()
    if not text:
        raise ValueError(t("paste.empty"))
    if len(text) > MAX_CHARACTERS:
        raise ValueError(t("paste.too_long", limit=MAX_CHARACTERS))
    notes: list[str] = []
    data = _json(text, notes) if text[0] in "{[" else _table(text, notes)
    return link.bounded(Group.from_json(data)), notes


def to_table(group: Group) -> str:
    """Return the group as a table with one row a token, as `read_group` reads it back."""
    out = io.StringIO()
    writer = csv.writer(out)
    rows = [name for name in (*ROWS, "mask") if getattr(group, name) is not None]
    writer.writerow(["completion", "token", *rows, "reward", "finish"])
    for i, tokens in enumerate(group.tokens):
        last = ["unscored" if group.rewards[i] is None else repr(group.rewards[i]), (group.finish or ())[i]]
        for k, token in enumerate(tokens):
            cells = [getattr(group, name)[i][k] for name in rows]
            writer.writerow([i + 1, token, *(int(x) if isinstance(x, bool) else repr(x) for x in cells), *last])
        if not tokens:  # a row without a token keeps an empty completion in its place
            writer.writerow([i + 1, "", *[""] * len(rows), *last])
    return out.getvalue()


# JSON


def _json(text: str, notes: list[str]) -> Mapping[str, Any]:
    try:
        data = link.sendable(json.loads(text))
    except (ValueError, RecursionError) as error:
        where = getattr(error, "lineno", 1)
        raise ValueError(t("paste.json", line=where)) from None
    if isinstance(data, Mapping) and "completions" not in data:
        return data
    outer = dict(data) if isinstance(data, Mapping) else {}
    completions = outer.pop("completions", data)
    if not isinstance(completions, Sequence) or not all(isinstance(one, Mapping) for one in completions):
        raise ValueError(t("paste.completions"))
    entries = [_entry(dict(one), number) for number, one in enumerate(completions, start=1)]
    return {"prompt": "", **outer, **_joined(entries, notes)}


def _entry(one: dict[str, Any], number: int) -> dict[str, Any]:
    """Return one completion in the common form: tokens, reward, and rows of log-probabilities where they are given."""
    unknown = sorted(set(one) - {"tokens", "text", "reward", "finish", "mask", *ROWS})
    if unknown:
        columns = ", ".join(("tokens", "text", "reward", *ROWS, "mask", "finish"))
        raise ValueError(t("paste.unknown", names=plain_text(", ".join(map(str, unknown))), accepted=columns))
    if not isinstance(one.get("tokens") or [], list):
        raise ValueError(t("paste.row", row=number, problem=t("paste.token_list")))
    if "reward" not in one:
        raise ValueError(t("paste.row", row=number, problem=t("paste.no_reward")))
    text = one.pop("text", None)
    if one.get("tokens") is None:
        one["tokens"] = _words(str(text or ""))
        one["split"] = True
    return one


# Tables


def _table(text: str, notes: list[str]) -> Mapping[str, Any]:
    first = text.splitlines()[0]
    delimiter = max("\t;,", key=first.count)
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:  # a cell of more than 131,072 characters: a quote was never closed
        raise ValueError(t("paste.cell")) from None
    header = [name.strip().lower().replace(" ", "_") for name in rows[0]]
    by_token = "token" in header
    accepted = TOKEN_COLUMNS if by_token else COMPLETION_COLUMNS
    if "reward" not in header:
        raise ValueError(t("paste.header", accepted=", ".join(TOKEN_COLUMNS), other=", ".join(COMPLETION_COLUMNS)))
    unread = [name for name in header if name not in accepted]
    if unread:
        notes.append(t("paste.unread", names=plain_text(", ".join(unread[:12])), accepted=", ".join(accepted)))
    records = [(n, _record(header, row, n)) for n, row in enumerate(rows[1:], start=2) if any(map(str.strip, row))]
    if not records:
        raise ValueError(t("paste.no_rows"))
    entries = _by_token(records) if by_token else [_completion(record, n) for n, record in records]
    return {"prompt": "", **_joined(entries, notes)}


def _record(header: Sequence[str], row: Sequence[str], number: int) -> dict[str, str]:
    if len(row) != len(header):
        raise ValueError(t("paste.row", row=number, problem=t("paste.cells", got=len(row), wanted=len(header))))
    return dict(zip(header, row, strict=True))


def _by_token(records: Sequence[tuple[int, dict[str, str]]]) -> list[dict[str, Any]]:
    """Return completions from a table with one row a token, in the order in which they begin."""
    found: dict[str, list[tuple[int, dict[str, str]]]] = {}
    for item in records:
        found.setdefault(item[1].get("completion", "1").strip(), []).append(item)
    entries = []
    for rows in found.values():
        number, head = rows[0]
        entry: dict[str, Any] = {"reward": _reward(head["reward"], number)}
        rows = [(n, row) for n, row in rows if row["token"] != ""]
        entry["tokens"] = [_inert_token(row["token"]) for _, row in rows]
        for name in ROWS:
            if all(row.get(name, "").strip() for _, row in rows) and name in head:
                entry[name] = [_number(row[name], n, name) for n, row in rows]
        if "mask" in head:
            entry["mask"] = [row["mask"].strip().lower() not in NO for _, row in rows]
        if head.get("finish", "").strip():
            entry["finish"] = head["finish"].strip()
        entries.append(entry)
    return entries


def _inert_token(text: str) -> str:
    """Return the token without the apostrophe that protects a spreadsheet from it (see widgets.Table)."""
    return text[1:] if re.match(r"'[=+\-@\t\r]", text) else text


def _completion(record: Mapping[str, str], number: int) -> dict[str, Any]:
    """Return a completion from a table with one row a completion: its text, or as many unnamed tokens as `length`."""
    entry: dict[str, Any] = {"reward": _reward(record["reward"], number), "split": True}
    if record.get("length", "").strip():
        length = _number(record["length"], number, "length")
        if not 0 <= length <= link.MAX_TOKENS or length != int(length):
            raise ValueError(t("paste.row", row=number, problem=t("paste.length", text=plain_text(record["length"]))))
        entry["tokens"] = ["·"] * int(length)
    else:
        entry["tokens"] = _words(record.get("text", ""))
    for name in ROWS:
        if record.get(name, "").strip():
            entry[name] = [_number(record[name], number, name)] * len(entry["tokens"])
    if record.get("finish", "").strip():
        entry["finish"] = record["finish"].strip()
    return entry


def _words(text: str) -> list[str]:
    """Return a text as words, each with the space before it."""
    return re.findall(r"\s*\S+", text)


def _reward(text: str, row: int) -> float | None:
    try:
        return parse_reward(text)
    except ValueError as error:
        raise ValueError(t("paste.row", row=row, problem=told(error))) from None


def _number(text: str, row: int, name: str) -> float:
    try:
        value = float(text.strip().replace("\N{MINUS SIGN}", "-"))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(t("paste.row", row=row, problem=t("paste.number", name=name, text=plain_text(text))))
    return value


# Both


def _joined(entries: Sequence[Mapping[str, Any]], notes: list[str]) -> dict[str, Any]:
    """Return completions as the fields of a group, with what nobody gave filled in and noted."""
    group: dict[str, Any] = {
        "tokens": [entry["tokens"] for entry in entries], "rewards": [entry["reward"] for entry in entries],
    }  # fmt: skip
    if any(entry.get("split") for entry in entries):
        notes.append(t("paste.split"))
    if not all("logp" in entry or not entry["tokens"] for entry in entries):
        notes.append(t("paste.no_logp", value=f"{DEFAULT_LOGP:g}"))
    group["logp"] = [entry.get("logp", [DEFAULT_LOGP] * len(entry["tokens"])) for entry in entries]
    for name in ("old_logp", "ref_logp"):
        if any(name in entry for entry in entries):
            group[name] = [entry.get(name, own) for entry, own in zip(entries, group["logp"], strict=True)]
    if any("mask" in entry for entry in entries):
        group["mask"] = [entry.get("mask", [True] * len(entry["tokens"])) for entry in entries]
    if any("finish" in entry for entry in entries):
        group["finish"] = [entry.get("finish", "unknown") for entry in entries]
    return group
