"""What follows when an engine loses a stream: another one after a while, but not for ever."""

from __future__ import annotations

import asyncio

MAX_LOSSES = 5  # in a row before a transcription gives up
RETRY_S = 0.2  # before another stream is opened, times the losses in a row


async def may_retry(num_lost: int) -> bool:
    """Wait until another stream may be opened.

    Args:
        num_lost: streams lost in a row, with the same window or before any other came back.

    Returns:
        False, at once, if that is too many.
    """
    if num_lost > MAX_LOSSES:
        return False
    await asyncio.sleep(RETRY_S * num_lost)
    return True
