"""How a page is shown, as opposed to what it shows: parts left out, the view locked, large for a projector, language.

A link carries it as `hide=controls,check`, `lock=1`, `present=1` and `lang=zh`. Hiding and locking belong to the page
that the link opens; presentation and language stay while the reader moves on. The link that opens a session decides its
language, after that the reader does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.words import ENGLISH, LANGUAGES, plain_text, t

PARTS = ("controls", "views", "bar", "cases", "formula", "notice", "check", "take", "menu")
"""What a link can leave out: the controls' column, the choice of picture, group and recipe, telling cases, formula,
what to notice, the question, what can be taken away, and the menu of pages."""
NAMES = ("hide", "lock", "present", "lang")
_ON = {"1": True, "true": True, "0": False, "false": False}


@dataclass(frozen=True)
class Frame:
    """What is left out, whether the view can be changed, whether everything is drawn large, and in which language."""

    hide: tuple[str, ...] = ()
    lock: bool = False
    present: bool = False
    language: str = ENGLISH

    def hides(self, part: str) -> bool:
        """Return whether a part is left out; a locked view has no use for what would change it."""
        return part in self.hide or (self.lock and part in ("views", "bar", "cases", "menu"))

    def opened(self) -> Frame:
        """Return the frame of the next page: as large, in the same language, with everything to see and to touch."""
        return Frame(present=self.present, language=self.language)


def to_query(frame: Frame) -> dict[str, str]:
    """Return the parameters of a frame; what is as usual is left out."""
    query = {"hide": ",".join(frame.hide)} if frame.hide else {}
    query |= {name: "1" for name in ("lock", "present") if getattr(frame, name)}
    return query if frame.language == ENGLISH else {**query, "lang": frame.language}


def from_query(query: Mapping[str, str], before: Frame) -> tuple[Frame, list[str]]:
    """Return the frame that a link asks for, and a note for everything in it that is not known.

    `before`: the frame that the reader comes from; without a word about presentation it stays as it was there.
    """
    notes: list[str] = []
    hide = tuple(_part(part, notes) for part in query.get("hide", "")[:200].split(",") if part)
    frame = replace(before.opened(), hide=tuple(dict.fromkeys(part for part in hide if part)))
    for name in ("lock", "present"):
        if name in query and query[name] not in _ON:
            notes.append(t("link.value", name=name, text=plain_text(query[name]), accepted=t("accept.on_off")))
        elif name in query:
            frame = replace(frame, **{name: _ON[query[name]]})
    if query.get("lang", ENGLISH) not in LANGUAGES:
        accepted = t("accept.one_of", choices=", ".join(LANGUAGES))
        notes.append(t("link.value", name="lang", text=plain_text(query["lang"]), accepted=accepted))
    return frame, notes


def _part(part: str, notes: list[str]) -> str:
    if part in PARTS:
        return part
    accepted = t("accept.one_of", choices=", ".join(PARTS))
    notes.append(t("link.value", name="hide", text=plain_text(part), accepted=accepted))
    return ""
