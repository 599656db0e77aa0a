"""The text of telephone calls, for their readers: a log each, replayed then followed.

The audio of a call comes in on one socket and its text goes out on others, which may come late,
come back, or stay away. So each call has a log of what will not change, kept for a while after the
call, and beside it the newest partial of each channel. All of it is bounded: a reader that falls
behind gets every final and only the newest partials.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping

from streamer import protocol
from streamer.access.keys import current_key
from streamer.protocols.twilio.messages import Start
from streamer.transcription import events

MAX_LOGGED_MESSAGES = 20_000  # messages of one call: a day of talk


class CallLog:
    """One call."""

    def __init__(self, call: str, owner: str = "") -> None:
        self.call = call
        self.owner = owner  # name of the key that the call came in with, or is waited for
        self.is_known = False  # a stream of it has begun
        self.num_live = 0  # streams that are open
        self._log: deque[str] = deque(maxlen=MAX_LOGGED_MESSAGES)
        self._num_logged = 0
        # newest partial of each stream and channel that no final has replaced
        self._partials: dict[tuple[str, int], str] = {}
        self._readers: set[asyncio.Event] = set()

    @property
    def state(self) -> str:
        if not self.is_known:
            return "waiting"
        return "live" if self.num_live else "ended"

    def describe(self) -> str:
        """Write what a reader is told first: how the call stands, and how much is kept of it."""
        return _write(
            {
                "type": "call",
                "call": self.call,
                "state": self.state,
                "first": self._num_logged - len(self._log),
                "next": self._num_logged,
            }
        )

    @property
    def has_readers(self) -> bool:
        return bool(self._readers)

    def append(self, kind: str, stream: str, values: Mapping[str, object]) -> str:
        """Log a message; returns it as written."""
        record = {"type": kind, "call": self.call, "stream": stream, **values}
        text = _write({**record, "seq": self._num_logged})
        self._log.append(text)
        self._num_logged += 1
        self._wake()
        return text

    def publish(self, event: events.Event, start: Start) -> str | None:
        """Take what a session said; returns a final as it was logged.

        Who speaks when is in the finals' times, so the beginning and end of speech are left out.
        """
        key = (start.stream, event.channel)
        if not isinstance(event, events.Partial | events.Final):
            return None
        message = protocol.from_event(event, with_words=True)
        values: dict[str, object] = json.loads(protocol.encode(message))
        kind = str(values.pop("type"))
        del values["seq"]
        values["track"] = start.tracks[event.channel]
        if isinstance(event, events.Final):
            self._partials.pop(key, None)
            return self.append(kind, start.stream, values) if event.text else None
        record = {"type": kind, "call": self.call, "stream": start.stream, **values}
        self._partials[key] = _write(record)
        self._wake()
        return None

    def end_stream(self, stream: str) -> None:
        """Drop the partials of a stream that says no more, and tell the readers."""
        for key in [key for key in self._partials if key[0] == stream]:
            del self._partials[key]
        self._wake()

    async def follow(self, after: int, *, with_partials: bool) -> AsyncGenerator[str, None]:
        """Yield the log from a sequence number on, then what comes, until the call has ended."""
        wake = asyncio.Event()
        self._readers.add(wake)
        shown: dict[tuple[str, int], str] = {}
        position = max(0, after)
        try:
            while True:
                wake.clear()
                first = self._num_logged - len(self._log)
                position = max(position, first)
                entries = [self._log[i - first] for i in range(position, self._num_logged)]
                position += len(entries)
                for entry in entries:
                    yield entry
                if with_partials and not wake.is_set():
                    fresh = [(k, v) for k, v in self._partials.items() if shown.get(k) != v]
                    shown = dict(self._partials)
                    for _, partial in fresh:
                        yield partial
                if not wake.is_set():
                    if self.state == "ended":
                        return
                    await wake.wait()
        finally:
            self._readers.discard(wake)

    def _wake(self) -> None:
        for reader in self._readers:
            reader.set()


class CallLogs:
    """The calls of a service: those that run, and those that ended a short while ago."""

    def __init__(self, grace_s: float, max_calls: int) -> None:
        """Begin without any call.

        Args:
            grace_s: how long a call is kept after it ended, or waited for before it begins.
            max_calls: how many are kept; the one that ended first goes first.
        """
        self._grace_s = grace_s
        self._max_calls = max_calls
        # by owner and name, in the order in which they were last used: what another key knows the
        # name of is not its own
        self._calls: dict[tuple[str, str], CallLog] = {}
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}

    @contextlib.contextmanager
    def stream(self, start: Start) -> Iterator[CallLog]:
        """Return the log of the call that a stream belongs to, for as long as the stream lives."""
        log = self._get(start.call)
        log.is_known = True
        log.num_live += 1
        values = {"tracks": list(start.tracks), "parameters": dict(start.parameters)}
        log.append("stream_started", start.stream, values)
        try:
            yield log
        finally:
            log.num_live -= 1
            log.end_stream(start.stream)
            self._expire_later(log)

    @contextlib.contextmanager
    def reader(self, call: str) -> Iterator[CallLog | None]:
        """Return the log of a call, known or awaited; None where too many are kept already.

        It is one of the key that the current task serves, as a stream's is.
        """
        log = self._get(call) if _name(call) in self._calls or self._has_room() else None
        try:
            yield log
        finally:
            if log is not None:
                self._expire_later(log)

    @property
    def grace_s(self) -> float:
        return self._grace_s

    def _get(self, call: str) -> CallLog:
        name = _name(call)
        if name not in self._calls:
            self._has_room()
        log = self._calls.pop(name, None) or CallLog(call, current_key.get().name)
        self._calls[name] = log
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        return log

    def _has_room(self) -> bool:
        """Drop calls that ended until one more can be kept; a running call is never dropped."""
        ended = [log for log in self._calls.values() if log.state == "ended"]
        while len(self._calls) >= self._max_calls and ended:
            self._forget(ended.pop(0))
        return len(self._calls) < self._max_calls

    def _expire_later(self, log: CallLog) -> None:
        name = log.owner, log.call
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        if log.num_live or log.has_readers or self._calls.get(name) is not log:
            return
        loop = asyncio.get_running_loop()
        self._timers[name] = loop.call_later(self._grace_s, self._forget, log)

    def _forget(self, log: CallLog) -> None:
        name = log.owner, log.call
        if self._calls.get(name) is log:
            del self._calls[name]
        self._timers.pop(name, None)


def _name(call: str) -> tuple[str, str]:
    return current_key.get().name, call


def _write(record: Mapping[str, object]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
