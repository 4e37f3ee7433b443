"""Diagnosis beside the curves: what grpo_core finds in the run that is followed, in words, with its evidence."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from app.figures.live_panels import PANELS
from app.live.changes import settings_at
from app.live_reader import Look, Reader, Row
from app.numbers import plain
from app.words import prose, t
from grpo_core import Group
from grpo_core.diagnosis import ALIASES, FOUND, Finding, Reading, diagnose
from grpo_core.live.groups import event_group
from grpo_core.live.store import RunStoreError

SIGNS = {"bad": ("red", "error"), "warning": ("orange", "warning"), "note": ("gray", "info")}
MARKS = {"bad": "down", "warning": "entropy"}
"""The palette's colour of the sign beside a panel's title."""
STATUS = {"found": "flag", "cannot tell": "help", "clear": "check"}
ON_THE_MAIN_CURVE = ("reward", "evaluation")
"""What is seen on the large chart; everything else is seen on the panels or in the groups."""
PAUSE = 1.0  # seconds between two diagnoses of a run that goes on
MOST_KNOWN = 8  # runs whose diagnosis is kept
READ = tuple({alias for aliases in ALIASES.values() for alias in aliases})


def findings_of(source: Reader, look: Look | None) -> list[Finding]:
    """Return what the diagnosis says of a run: made once for all viewers, once a second at most while it goes on."""
    if look is None or not look.step:
        return []
    known = _KNOWN.get((source.store.url, look.run.id))
    if known is None or (known.version != look.version and (not look.run.active or known.age() > PAUSE)):
        known = _Known(look.version, time.monotonic(), _diagnosed(source, look))
        _KNOWN[(source.store.url, look.run.id)] = known
        while len(_KNOWN) > MOST_KNOWN:
            _KNOWN.popitem(last=False)
    return known.findings


@dataclass(frozen=True)
class _Known:
    """A diagnosis, of which state of the run and when it was made."""

    version: int
    made: float
    findings: list[Finding]

    def age(self) -> float:
        """Return how many seconds old it is."""
        return time.monotonic() - self.made


_KNOWN: OrderedDict[tuple[str, str], _Known] = OrderedDict()


def _diagnosed(source: Reader, look: Look) -> list[Finding]:
    return diagnose(rows_of(look), _newest_groups(source, look), settings=settings_at(look).to_dict())


def rows_of(look: Look) -> list[Row]:
    """Return a run's curves and evaluations as log rows: one for each point of the curves, one for each evaluation."""
    columns = {name: look.curves[name] for name in ("step", *READ) if name in look.curves}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return rows + [{name: row[name] for name in ("step", *READ) if name in row} for row in look.evaluations]


def _newest_groups(source: Reader, look: Look) -> list[Group]:
    try:
        return [event_group(group) for group in source.groups(look.run.id, look.step)["groups"]]
    except (RunStoreError, ValueError, KeyError):
        return []


def marks(findings: Sequence[Finding]) -> dict[str, str]:
    """Return the panels that a finding is about, with the palette's colour of the worst one's sign."""
    found: dict[str, str] = {}
    for finding in reversed([f for f in findings if f.status == FOUND and f.severity in MARKS]):
        found |= {name: MARKS[finding.severity] for name, panel in PANELS.items() if panel.shows(finding.metric)}
    return found


def on_the_main_curve(finding: Finding) -> bool:
    """Return whether a finding is seen on the large chart."""
    return any(finding.metric in ALIASES[name] for name in ON_THE_MAIN_CURVE)


def beside(findings: Sequence[Finding], *, main: bool) -> None:
    """Draw what was found on the large chart, or on the others, under it."""
    with st.container(gap="xsmall", key=f"live-findings-{'main' if main else 'panels'}"):
        for finding in findings:
            if finding.status == FOUND and on_the_main_curve(finding) == main:
                _finding(finding)


def _finding(finding: Finding) -> None:
    """Draw one finding: what, and the numbers that show it; causes and remedies are a press away."""
    color, icon = SIGNS[finding.severity]
    values, name = written(finding.evidence), finding.name
    title = f":{color}[:material/{icon}:] **{prose('diagnosis', f'{name}.title')}**"
    symptom = prose("diagnosis", f"{name}.symptom", **values)
    with st.container(key=f"live-finding-{name}", gap=None):
        with st.popover(title, type="tertiary", key=f"live-finding-why-{name}", help=t("live.finding.why")):
            st.markdown(f":{color}-badge[{prose('diagnosis', f'severity.{finding.severity}')}] {symptom}")
            st.markdown(f"**{t('live.finding.cause')}** {prose('diagnosis', f'{name}.cause', **values)}")
            st.markdown(f"**{t('live.finding.try')}** {prose('diagnosis', f'{name}.try', **values)}")
        if finding.severity in MARKS:
            st.markdown(symptom)


def written(evidence: Mapping[str, Reading]) -> dict[str, str]:
    """Return the numbers of a finding as its texts want them: shares in percent."""
    found: dict[str, str] = {}
    for role, reading in evidence.items():
        value = f"{reading.value:.0%}".replace("%", " %") if reading.is_share else plain(reading.value)
        found |= {role: value, f"{role}_step": str(reading.last)}
    return found


def checks(findings: Sequence[Finding]) -> None:
    """Draw the list of everything that was looked at: found, clear, or not to be told and why."""
    counts = {status: sum(finding.status == status for finding in findings) for status in STATUS}
    title = t("live.finding.checks", found=counts["found"], clear=counts["clear"], unknown=counts["cannot tell"])
    with st.expander(title, icon=":material/checklist:", key="live-checks"):
        st.markdown("\n".join(f"- {_check(finding)}" for finding in findings))


def _check(finding: Finding) -> str:
    icon = f":material/{STATUS[finding.status]}:"
    if finding.status == FOUND:
        return f"{icon} **{prose('diagnosis', f'{finding.name}.title')}**"
    rule = prose("diagnosis", f"rule.{finding.rule}")
    if not finding.missing:
        return f"{icon} {rule}"
    if finding.missing == ("points",):
        return f"{icon} {rule}. {prose('diagnosis', 'cannot_tell.points')}"
    missing = ", ".join(prose("diagnosis", f"metric.{name}") for name in finding.missing)
    return f"{icon} {rule}. {prose('diagnosis', 'cannot_tell.metrics', missing=missing)}"
