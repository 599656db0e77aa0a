"""An asyncio client of `/v1/stream` that survives broken connections. Public as `wordwire.connect`.

async with connect("ws://localhost:8000", Start(language="en")) as stream:
    await stream.send(pcm)       # again and again, from one task
    await stream.end()
    async for message in stream:  # in another task, until `Done`
        ...
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from clients.handshake import DEFAULT_URL, ClientError, NoServer, Refused, open_socket
from clients.resume_buffer import Keeper
from clients.retry import Retries
from streamer import protocol
from streamer.protocol import Done, Error, Ready, ServerMessage, Start

LOADING_S, LOADING_POLL_S = 120.0, 1.0  # a server that has just started loads its model first
MAX_UNSENT_S = 60.0  # of audio that `send` keeps without a connection
# trying again would not help: a fault of the client, or a message that is too big
UNRECOVERABLE_CODES = frozenset({1007, 1008, 1009})


class Stream:
    """A session. Send from one task and iterate in another, or iterate after `end`.

    Audio is kept until its text is final. When the connection breaks, the iteration reconnects. It
    resumes the session, or begins another one behind the last final, and nothing is lost.
    """

    def __init__(
        self,
        url: str,
        start: Start,
        key: str | None,
        *,
        is_lasting: bool,
        on_wait: Callable[[str, float], None],
    ) -> None:
        self._url = url
        self._start = dataclasses.replace(start, resumable=is_lasting)
        self._key = key
        self._is_lasting = is_lasting  # reconnects after a broken connection
        self._on_wait = on_wait
        self._keeper = Keeper(start)
        self._socket: ClientConnection | None = None
        self._session: str | None = None
        self._seq = -1  # of the last message that arrived
        self._sent = 0  # byte of the recording up to which everything is on the socket
        self._is_ended = self._is_end_sent = False
        self._sending = asyncio.Lock()
        self._is_flowing = asyncio.Event()  # the server accepts audio on this connection
        self._retries = Retries()

    async def send(self, audio: bytes) -> None:
        """Send audio in the encoding of the start; waits while the server is behind.

        Without a connection, up to a minute of audio is kept; then this waits.
        """
        self._keeper.add(audio)
        if not self._is_flowing.is_set():
            if self._keeper.seconds_after(self._sent) < MAX_UNSENT_S:
                return
            await self._is_flowing.wait()
        await self._flush()

    async def update(
        self,
        *,
        language: str | None = None,
        prompt: str | None = None,
        hotwords: list[str] | None = None,
    ) -> None:
        """Change the given settings from the next segment on; None keeps a setting."""
        start = self._start
        # if the session has to be begun again, it begins with these settings
        self._start = dataclasses.replace(
            start,
            language=start.language if language is None else language,
            prompt=start.prompt if prompt is None else prompt,
            hotwords=start.hotwords if hotwords is None else hotwords,
        )
        await self._send_message(protocol.Update(language, prompt, hotwords))

    async def finalize(self) -> None:
        """Close the open segment now."""
        await self._send_message(protocol.Finalize())

    async def end(self) -> None:
        """End the audio. The rest of the text follows, then `Done`."""
        self._is_ended = True
        if self._is_flowing.is_set():
            await self._flush()

    def __aiter__(self) -> AsyncIterator[ServerMessage]:
        return self._messages()

    async def open(self) -> None:
        """Connect for the first time; `connect` does this."""
        deadline = time.monotonic() + LOADING_S
        while self._socket is None:
            try:
                self._socket = await open_socket(self._url, self._key)
            except Refused as error:
                if error.code != "loading" or time.monotonic() > deadline:
                    raise
                self._on_wait(str(error), LOADING_POLL_S)
                await asyncio.sleep(LOADING_POLL_S)
        with contextlib.suppress(ConnectionClosed):  # the iteration raises why
            await self._socket.send(protocol.encode_start(self._start))
        self._is_flowing.set()

    async def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            await self._socket.close()

    # --- messages --------------------------------------------------------------------------------

    async def _messages(self) -> AsyncIterator[ServerMessage]:
        """Yield the server's messages, `Done` last.

        Raises:
            Refused: the server ended the session.
            ClientError: the connection broke and could not be restored.
        """
        flushing: asyncio.Task[None] | None = None
        try:
            while True:
                assert self._socket is not None, "opened"
                reason = "the server closed the connection before it was done"
                try:
                    async for text in self._socket:
                        message = protocol.parse_server(text) if isinstance(text, str) else None
                        if message is None:
                            continue
                        if isinstance(message, Ready) and not self._is_flowing.is_set():
                            self._go_on(message)
                            # while reading goes on: a server that cannot write stops reading
                            flushing = asyncio.create_task(self._flush())
                        placed = await self._receive(message)
                        if placed is not None:
                            yield placed
                        if isinstance(message, Done) and self._is_ended:
                            return
                except ConnectionClosed as error:
                    reason = f"the connection broke: {_reason(error)}"
                if flushing is not None:
                    await asyncio.gather(flushing, return_exceptions=True)
                code = self._socket.close_code or 0
                if not self._is_lasting or code in UNRECOVERABLE_CODES or 4000 <= code < 5000:
                    raise ClientError(reason)
                await self._reconnect(reason)
        finally:
            if flushing is not None:
                flushing.cancel()
                await asyncio.gather(flushing, return_exceptions=True)

    async def _receive(self, message: ServerMessage) -> ServerMessage | None:
        if not isinstance(message, Ready):
            self._seq = max(self._seq, message.seq)
        match message:
            case Ready():
                self._session = message.session
                self._retries.ready(time.monotonic())
            case Error(code="unknown_session"):
                await self._begin_again()
                return None
            case Error(fatal=True) if self._session is None or message.retry_after_s is None:
                raise Refused(message.message, message.code, message.retry_after_s)
            case Done() if not self._is_ended:
                # the server stops; audio after its end belongs in the next session
                self._forget_session(message)
                return None
        return self._keeper.place(message)

    def _go_on(self, ready: Ready) -> None:
        """Continue from the last byte that the server received."""
        self._sent = self._keeper.base + ready.received_bytes
        self._is_end_sent = False
        self._is_flowing.set()

    async def _begin_again(self) -> None:
        """Open another session on this connection, since the old one is gone."""
        self._forget_session(None)
        assert self._socket is not None
        with contextlib.suppress(ConnectionClosed):
            await self._socket.send(protocol.encode_start(self._start))

    def _forget_session(self, done: Done | None) -> None:
        if not self._keeper.can_restart:
            raise ClientError(
                "the session is gone, and a container cannot be resumed in the middle"
            )
        self._keeper.restart(done)
        self._session, self._seq = None, -1

    async def _reconnect(self, reason: str) -> None:
        """Reconnect, and resume the session.

        Raises:
            ClientError: the server refuses, or stays away for too long.
        """
        self._is_flowing.clear()
        self._retries.broke(time.monotonic())
        wait_s = 0.0
        while True:
            delay_s = self._retries.next_delay(time.monotonic(), wait_s)
            if delay_s is None:
                raise ClientError(reason)
            self._on_wait(reason, delay_s)
            await asyncio.sleep(delay_s)
            try:
                self._socket = await open_socket(self._url, self._key)
            except NoServer as error:
                reason = str(error)
                continue
            except Refused as error:
                if error.retry_after_s is None:
                    raise
                reason, wait_s = str(error), error.retry_after_s
                continue
            if self._session is None:
                self._seq = -1
                opening = protocol.encode_start(self._start)
            else:
                opening = protocol.encode(protocol.Resume(self._session, self._seq))
            with contextlib.suppress(ConnectionClosed):
                await self._socket.send(opening)
            return

    # --- sending ---------------------------------------------------------------------------------

    async def _flush(self) -> None:
        """Send the audio that the server does not have, then the end if it was reached."""
        async with self._sending:
            assert self._socket is not None
            # the iteration notices a broken connection
            with contextlib.suppress(ConnectionClosed):
                while self._sent < self._keeper.total:
                    for piece in self._keeper.after(self._sent):
                        await self._socket.send(piece)
                        self._sent += len(piece)
                if self._is_ended and not self._is_end_sent:
                    await self._socket.send(protocol.encode(protocol.End()))
                    self._is_end_sent = True

    async def _send_message(self, message: protocol.ClientMessage) -> None:
        await self._flush()
        async with self._sending:
            assert self._socket is not None
            with contextlib.suppress(ConnectionClosed):
                await self._socket.send(protocol.encode(message))


@contextlib.asynccontextmanager
async def connect(
    url: str = DEFAULT_URL,
    start: Start | None = None,
    *,
    key: str | None = None,
    is_lasting: bool = True,
    on_wait: Callable[[str, float], None] | None = None,
) -> AsyncIterator[Stream]:
    """Open a session; leaving the context closes it.

    Args:
        url: of the server: ws, wss, http or https; the path may be omitted.
        start: the settings; by default, 16 kHz mono s16le and detected language.
        key: if the server asks for one.
        is_lasting: reconnect after a broken connection, without losing a word.
        on_wait: called with the reason and the seconds until the next attempt to reconnect.

    Raises:
        NoServer: no server answers.
        Refused: no room, no valid key, no such path, or the model failed to load.
    """
    stream = Stream(
        url,
        start or Start(),
        key,
        is_lasting=is_lasting,
        on_wait=on_wait or (lambda _reason, _delay_s: None),
    )
    await stream.open()
    try:
        yield stream
    finally:
        await stream.close()


def _reason(error: ConnectionClosed) -> str:
    if error.rcvd is None:
        return "no closing message"
    return f"{error.rcvd.code} {error.rcvd.reason}".strip()
