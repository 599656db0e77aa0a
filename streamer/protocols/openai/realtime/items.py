"""What a session says, as the events of a Realtime client, with the items they belong to.

An item is a turn: with speech detection a segment, without it the audio between two commits. The
text of its deltas only grows, and all of them together are its transcript.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.api import SAMPLE_RATE
from streamer.protocols.openai.format import write_logprobs
from streamer.protocols.openai.realtime.options import RealtimeConfig
from streamer.transcription.events import Event, Final, Partial, SpeechEnded, SpeechStarted
from streamer.transcription.word import follow
from streamer.wire import seconds

Message = dict[str, Any]  # a server event, still without its id

TRANSCRIPTION = "conversation.item.input_audio_transcription"

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Item:
    """A turn whose transcript is not complete."""

    id: str
    start: int = 0  # samples, of the session that says it
    sent: str = ""  # in deltas
    is_committed: bool = False
    is_cleared: bool = False  # the client discarded its audio: no more events for it


class ItemWriter:
    """Writes the events of one connection, over all the sessions that serve it in turn."""

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        self._new_id = new_id or (lambda: "item_" + secrets.token_hex(10))
        self._items: deque[_Item] = deque()  # in the order of their audio, the open one last
        self._previous: str | None = None  # the last committed item
        self._offset = 0  # samples that earlier sessions took
        # where turns began whose audio was discarded while they were open, and that are not over
        self._cleared: deque[int] = deque()
        self._config: RealtimeConfig | None = None
        # whether the client speaks the Beta's dialect
        self.is_old = False

    def begin(self, config: RealtimeConfig, offset: int) -> None:
        """Write for a session from now on.

        Args:
            offset: samples of the connection before it.
        """
        self._config, self._offset = config, offset
        self._items.clear()
        self._cleared.clear()

    def update(self, config: RealtimeConfig) -> None:
        """Heed what may change within a session: what is included."""
        self._config = config

    # --- what the client does --------------------------------------------------------------------

    def append(self) -> None:
        """Note that there is audio; without speech detection, it belongs to an item at once."""
        assert self._config is not None
        if self._config.is_manual and not self.has_uncommitted:
            self._items.append(_Item(self._new_id()))

    @property
    def has_uncommitted(self) -> bool:
        """Without speech detection: there is audio since the last commit."""
        assert self._config is not None
        is_open = bool(self._items) and not self._items[-1].is_committed
        return self._config.is_manual and is_open

    def commit(self) -> list[Message]:
        """Commit the open item, which the client asked for; its text follows."""
        return self._commit(self._items[-1])

    def clear(self, opened_at: int | None) -> None:
        """Throw away what is not committed.

        Args:
            opened_at: where the open turn began, if speech detection found one.
        """
        assert self._config is not None
        if self._config.is_manual:
            if self.has_uncommitted:
                self._items[-1].is_cleared = self._items[-1].is_committed = True
        elif opened_at is not None:
            self._cleared.append(opened_at)
            for item in self._items:
                item.is_cleared = item.is_cleared or item.start >= opened_at

    # --- what the session says -------------------------------------------------------------------

    def translate(self, event: Event) -> list[Message]:
        """Write what a session says as server events."""
        match event:
            case SpeechStarted():
                return self._start(event)
            case Partial():
                return self._hear(event)
            case SpeechEnded():
                return self._stop(event.end)
            case Final():
                return self._complete(event)

    def fail(self, message: str) -> list[Message]:
        """Fail the items that wait for their text: it will not come."""
        error = {
            "type": "server_error",
            "code": "transcription_failed",
            "message": message,
            "param": None,
        }
        return [
            {
                "type": f"{TRANSCRIPTION}.failed",
                "item_id": item.id,
                "content_index": 0,
                "error": error,
            }
            for item in self._items
            if item.is_committed and not item.is_cleared
        ]

    def _start(self, event: SpeechStarted) -> list[Message]:
        assert self._config is not None
        if self._config.is_manual:
            return []
        item = _Item(self._new_id(), event.start)
        # a turn that is too long is cut: what follows the cut is cleared with it
        item.is_cleared = bool(self._cleared) and event.start >= self._cleared[0]
        self._items.append(item)
        if item.is_cleared:
            return []
        return [
            {
                "type": "input_audio_buffer.speech_started",
                "audio_start_ms": self._ms(event.start),
                "item_id": item.id,
            }
        ]

    def _hear(self, event: Partial) -> list[Message]:
        assert self._config is not None
        item = self._items[0]
        if item.is_cleared or not (self._config.is_live or item.is_committed):
            return []
        return self._grow(item, event.settled)

    def _stop(self, end: int) -> list[Message]:
        assert self._config is not None
        item = self._items[0]
        if self._config.is_manual or item.is_cleared:
            return []
        # OpenAI counts the silence that ended the turn as part of it
        end += self._config.settings.silence
        stopped: Message = {
            "type": "input_audio_buffer.speech_stopped",
            "audio_end_ms": self._ms(end),
            "item_id": item.id,
        }
        return [stopped, *self._commit(item)]

    def _complete(self, event: Final) -> list[Message]:
        assert self._config is not None
        if not self._items:
            # the end of a session without speech detection: of audio that was never committed
            return []
        item = self._items.popleft()
        if item.is_cleared:
            if event.is_endpoint and self._cleared:
                self._cleared.popleft()
            return []
        messages: list[Message] = []
        if not item.is_committed:
            if self._config.is_manual:
                return []
            # a turn that is too long is cut while speech goes on
            self._items.appendleft(item)
            messages += self._stop(event.end - self._config.settings.silence)
            self._items.popleft()
        messages += self._grow(item, event.text)
        completed: Message = {
            "type": f"{TRANSCRIPTION}.completed",
            "item_id": item.id,
            "content_index": 0,
            "transcript": item.sent,
            "usage": {"type": "duration", "seconds": seconds(event.end - event.start)},
        }
        if self._config.has_logprobs:
            completed["logprobs"] = write_logprobs(event.words)
        return [*messages, completed]

    def _grow(self, item: _Item, text: str) -> list[Message]:
        """Write what a text has beyond what was sent of it."""
        if not text.startswith(item.sent):
            # text that was sent cannot be taken back: what differs behind it is still said
            logger.error("a final of %d characters contradicts what was sent", len(text))
            text = _continue(item.sent, text)
        delta = text[len(item.sent) :]
        if not delta:
            return []
        item.sent = text
        return [
            {
                "type": f"{TRANSCRIPTION}.delta",
                "item_id": item.id,
                "content_index": 0,
                "delta": delta,
            }
        ]

    def _commit(self, item: _Item) -> list[Message]:
        previous, self._previous = self._previous, item.id
        item.is_committed = True
        content = {
            "id": item.id,
            "object": "realtime.item",
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [{"type": "input_audio", "transcript": None}],
        }
        names = ("created",) if self.is_old else ("added", "done")
        committed: Message = {
            "type": "input_audio_buffer.committed",
            "previous_item_id": previous,
            "item_id": item.id,
        }
        return [
            committed,
            *(
                {
                    "type": f"conversation.item.{name}",
                    "previous_item_id": previous,
                    "item": content,
                }
                for name in names
            ),
        ]

    def _ms(self, position: int) -> int:
        return (self._offset + position) * 1000 // SAMPLE_RATE


def _continue(sent: str, text: str) -> str:
    """Return what was sent, with the words of a text that it does not have."""
    if sent.startswith(text):
        return sent
    num_shared = len(os.path.commonprefix([sent, text]))
    start = text.rfind(" ", 0, num_shared + 1) + 1
    return sent + follow(sent, text[start:])
