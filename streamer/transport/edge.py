"""The edge of a connection: whatever ends it early becomes one fault, logged once.

Every protocol runs its clients through `serve`, and says in its own way what the fault is.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from engine.api import EngineBusy, InvalidRequest
from streamer import wire
from streamer.access.refusal import RETRY_AFTER_S
from streamer.audio.error import AudioError
from streamer.transport.connection import Disconnected, MessageTooBig, SlowReader
from streamer.wire import ClientFault

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a connection ends early, for each protocol to write in its own way."""

    close_code: int
    code: str  # a stable name for programs
    message: str  # fit for the client
    field: str | None = None  # of the client's message, where the fault is about one
    retry_after_s: float | None = None


class Adapter(Protocol):
    """One client of one protocol, from the accepted socket to the close."""

    @property
    def name(self) -> str:
        """Return what the log calls it now."""

    async def run(self) -> None:
        """Serve the client to the close; raise what ends it early."""

    async def fail(self, fault: Fault) -> None:
        """Tell the client why its connection ends, and close it."""


async def serve(adapter: Adapter, close: Callable[[int, str], Awaitable[None]]) -> None:
    """Serve one client; never raise for what it does.

    Args:
        close: the socket, with a code and a reason, where the client cannot be told any more.
    """
    try:
        fault = await attempt(adapter.run(), adapter.name)
        if fault is not None:
            await adapter.fail(fault)
    except Disconnected:
        logger.debug("%s: the client is gone", adapter.name)
    except SlowReader:
        logger.info("%s: dropped, its client does not read", adapter.name)
        await close(wire.CLOSE_PROTOCOL_ERROR, "slow reader")


async def attempt(work: Awaitable[None], name: str) -> Fault | None:
    """Wait for the work on a connection; return what ended it early, or None.

    Raises:
        Disconnected, SlowReader: there is no client to tell.
    """
    try:
        await work
    except (Disconnected, SlowReader):
        raise
    except Exception as error:
        fault = _fault_of(error)
        if fault.close_code == wire.CLOSE_INTERNAL:
            logger.exception("%s failed", name)
        else:
            logger.debug("%s: %s", name, fault.code)
        return fault
    return None


def _fault_of(error: Exception) -> Fault:
    match error:
        case ClientFault():
            return Fault(wire.CLOSE_PROTOCOL_ERROR, error.code, error.message, error.field)
        case MessageTooBig():
            return Fault(wire.CLOSE_TOO_BIG, "too_big", str(error))
        case AudioError():
            return Fault(wire.CLOSE_PROTOCOL_ERROR, "invalid_audio", str(error))
        case InvalidRequest():
            return Fault(wire.CLOSE_PROTOCOL_ERROR, "invalid_request", str(error))
        case EngineBusy():
            return Fault(wire.CLOSE_BUSY, "busy", str(error), retry_after_s=RETRY_AFTER_S)
        case _:
            # what a bug says is not for clients
            return Fault(wire.CLOSE_INTERNAL, "internal", "internal error")
