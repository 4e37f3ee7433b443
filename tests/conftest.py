"""Fixtures for every test; nothing here imports torch, so that a test without tensors stays quick."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.support import BACKENDS, Backend

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("repeatable")


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each array library and precision that the core promises."""
    return request.param
