"""Streams that were lost: how long to wait for another."""

from __future__ import annotations

import asyncio

import pytest

from streamer.session import engine_retry as retry
from streamer.session.engine_retry import MAX_LOSSES, RETRY_S, may_retry


async def test_each_further_loss_is_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(retry.asyncio, "sleep", note)
    assert [await may_retry(n) for n in range(1, MAX_LOSSES + 1)] == [True] * MAX_LOSSES
    assert waits == pytest.approx([RETRY_S * n for n in range(1, MAX_LOSSES + 1)])


async def test_too_many_losses_end_it_at_once() -> None:
    async with asyncio.timeout(RETRY_S / 2):
        assert not await may_retry(MAX_LOSSES + 1)
