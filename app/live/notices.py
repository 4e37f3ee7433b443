"""What went wrong in a run without ending it, in words: a checkpoint that could not be written."""

from __future__ import annotations

import streamlit as st

from app.live_reader import Look, Reader
from app.widgets import literal
from app.words import t, told
from grpo_core.live.checkpoints import checkpoints_of

CHECKPOINT = "checkpoint"


def show(source: Reader, look: Look) -> None:
    """Say that checkpoints could not be written, until a newer one has been."""
    failed = [row for row in look.notices if row.get("name") == CHECKPOINT]
    if not failed:
        return
    kept = look.once("kept", lambda: newest_checkpoint(source, look.run.id))
    step = int(failed[-1]["step"])
    if kept is not None and kept >= step:
        return
    words = t("live.notice.checkpoint", step=step, reason=literal(told(failed[-1].get("reason", ""))))
    if len(failed) > 1:
        words += " " + t("live.notice.times", count=len(failed), step=failed[0]["step"])
    words += " " + (t("live.notice.no_checkpoint") if kept is None else t("live.notice.kept", step=kept))
    st.warning(f"{words} {t('live.notice.checkpoint_try')}", icon=":material/save:")


def newest_checkpoint(source: Reader, run_id: str) -> int | None:
    """Return the step of a run's newest checkpoint, None if it has none."""
    found = checkpoints_of(source.store.folder, run_id)
    newest = found.newest() if found is not None else None
    return None if newest is None else newest.step
