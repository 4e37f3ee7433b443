"""How often a viewer looks at a run that goes on: the more of them there are, the more seldom each.

Every look costs this process some milliseconds, and where cores are few those are the training's. So a room of fifty
costs little more than a handful: each session takes its tempo from how many there are when its page is drawn.
"""

from __future__ import annotations

from streamlit import runtime

FEW = 6  # sessions that look as often as one alone
LONGEST = 10.0  # seconds that a viewer waits for news at most


def every(base: float) -> float:
    """Return the seconds between two looks of this session, `base` while there are few."""
    return slowed(base, sessions())


def slowed(base: float, viewers: int) -> float:
    """Return the seconds between two looks of one among so many viewers.

    >>> slowed(0.5, 1), slowed(0.5, 12), slowed(0.5, 60), slowed(5.0, 500)
    (0.5, 1.0, 5.0, 10.0)
    """
    return max(base, min(LONGEST, base * max(1.0, viewers / FEW)))


def sessions() -> int:
    """Return how many browsers are connected to this process; 1 where there is no server, or it does not say."""
    manager = getattr(runtime.get_instance(), "_session_mgr", None) if runtime.exists() else None
    return 1 if manager is None else max(1, manager.num_active_sessions())
