"""A place to send a reader to: a page in a declared state, as a view and as the link that opens it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app import link, presets
from app.lens import Lens, look
from app.link import View
from app.params import PARAMS
from app.teaching import FIRST, teaching_groups
from grpo_core import Group


@dataclass(frozen=True)
class Place:
    """A page with settings (as text, as in a link) and a group: a teaching group, with `edit` put into its fields."""

    page: str
    settings: Mapping[str, str] = field(default_factory=dict)
    group: str = FIRST
    edit: Mapping[str, Any] = field(default_factory=dict)

    def view(self) -> View:
        """Return the view. ValueError if a setting or the group is not one that the app knows."""
        base = teaching_groups()[self.group]
        edited = Group.from_json({**base.to_json(), **self.edit}) if self.edit else base
        view, notes = link.from_query({"g": self.group, **self.settings})
        if notes:
            raise ValueError(f"{self.page}: {' '.join(notes)}")
        return View(view.chosen, self.group, edited)

    def query(self) -> dict[str, str]:
        """Return the link's parameters. The group is always named: a link without a word would change nothing."""
        return {"g": self.group, **link.to_query(self.view())}

    def href(self) -> str:
        """Return the link relative to the app's own address."""
        return f"{'' if self.page == 'home' else self.page}?{link.encode(self.query())}"

    def lens(self) -> Lens:
        """Return every number that the page shows there."""
        view = self.view()
        return look(view.group, {name: link.value_of(view.chosen, name) for name in PARAMS})


def place(entry: Mapping[str, Any]) -> Place:
    """Return the place that an entry of a content file declares.

    `page` is needed; `preset` takes over one of the page's telling cases; `group`, `set` and `edit` add to it or
    replace parts of it. KeyError for a page or a telling case that does not exist.
    """
    page = entry["page"]
    case = presets.declared(page)[entry["preset"]] if "preset" in entry else {}
    return Place(
        page,
        {**case.get("set", {}), **entry.get("set", {})},
        entry.get("group", case.get("group", FIRST)),
        entry.get("edit", {}),
    )
