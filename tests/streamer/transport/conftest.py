"""A service with a key, and one without."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from streamer.config import ServerConfig
from tests.support.engines import CountingEngine
from tests.support.gate import KEY
from tests.support.running_service import Running, running


@pytest.fixture
async def guarded() -> AsyncIterator[Running]:
    config = ServerConfig(port=0, api_keys=(KEY,), drain_timeout_s=2.0, max_failed_attempts=1000)
    async with running(CountingEngine, config) as service:
        yield service


@pytest.fixture
async def open_service() -> AsyncIterator[Running]:
    async with running() as service:
        yield service
