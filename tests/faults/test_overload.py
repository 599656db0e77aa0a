"""Three times as many clients as the machine carries: some are refused, the others served well."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.faults.speaker import PACKET_S, PAUSE_S, SENTENCE_S, speech, words_of
from tests.faults.victim import Victim, victim

NUM_SENTENCES = 2


@dataclass
class Outcome:
    """What one client of the crowd met."""

    retry_after_s: float | None = None  # where it was refused
    words: list[str] = field(default_factory=list)
    final_s: list[float] = field(default_factory=list)  # from the end of a sentence to its text
    num_partials: int = 0


async def _visit(service: Victim, after_s: float = 0.0) -> Outcome:
    outcome, audio = Outcome(), speech(NUM_SENTENCES)
    await asyncio.sleep(after_s)
    try:
        socket = await connect(f"{service.ws}/v1/stream", compression=None, open_timeout=60)
    except InvalidStatus as error:
        assert error.response.status_code == 503
        assert json.loads(error.response.body)["error"]["code"] == "busy"
        outcome.retry_after_s = float(error.response.headers["Retry-After"])
        return outcome
    async with socket:
        await socket.send('{"type":"start","language":"en"}')
        start = time.monotonic()

        async def send() -> None:
            size = int(PACKET_S * 32_000)
            for index, first in enumerate(range(0, len(audio), size)):
                await asyncio.sleep(start + index * PACKET_S - time.monotonic())
                await socket.send(audio[first : first + size])
            await socket.send('{"type":"end"}')

        sending = asyncio.create_task(send())
        async for text in _messages(socket):
            message = json.loads(text)
            if message["type"] == "error":
                # the last place was taken between its handshake and its start
                assert message["code"] == "busy"
                outcome.retry_after_s = message["retry_after_s"]
            if message["type"] == "partial":
                outcome.num_partials += 1
            if message["type"] == "final":
                outcome.words += message["text"].split()
                number = len(outcome.final_s)
                spoken_s = number * (SENTENCE_S + PAUSE_S) + SENTENCE_S
                outcome.final_s.append(time.monotonic() - start - spoken_s)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    assert (socket.close_code == 1013) is (outcome.retry_after_s is not None)
    return outcome


async def _messages(socket: ClientConnection) -> AsyncIterator[str | bytes]:
    with contextlib.suppress(ConnectionClosed):
        async for text in socket:
            yield text


def _p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))]


async def test_a_crowd_is_refused_cleanly_and_who_is_in_waits_no_longer_for_finals() -> None:
    found: list[Crowd] = []
    # a machine that stands still does so in one round; a service that keeps people waiting, in each
    for _ in range(3):
        found.append(await _overrun())
        if found[-1].is_served_well:
            return
    raise AssertionError(found)


@dataclass(frozen=True)
class Crowd:
    """How a crowd fared."""

    limit: int  # sessions that the service found its machine to carry
    num_admitted: int
    alone_s: float  # how late a final was for one alone, and for those of the crowd that were in
    crowded_s: float
    alone_partials: int  # and how much they were told meanwhile
    crowded_partials: float

    @property
    def is_served_well(self) -> bool:
        return (
            3 <= self.limit <= 7
            # finals are early, so the limit may rise meanwhile
            and self.limit <= self.num_admitted <= self.limit + 3
            # on a quiet machine it is below twice; tests share theirs with other work
            and self.crowded_s < 3 * self.alone_s
            # what gave way are the partials
            and self.crowded_partials < self.alone_partials
        )


async def _overrun() -> Crowd:
    """Come three times as many as a service carries, and be refused or heard, each of them."""
    # one window at a time, each in 80 ms: about 6 sessions at two windows a second
    async with victim("--cost-s=0.08", "--width=1") as service:
        limit = int((await service.metrics())["wordwire_session_limit"])
        alone = await _visit(service)
        # spread over a sentence and its pause: people do not all stop to speak at once
        spread = [n * (SENTENCE_S + PAUSE_S) / (3 * limit) for n in range(3 * limit)]
        crowd = await asyncio.gather(*(_visit(service, after_s) for after_s in spread))
        admitted = [each for each in crowd if each.retry_after_s is None]
        assert all(each.retry_after_s is None or each.retry_after_s > 0 for each in crowd)
        for each in (alone, *admitted):
            assert each.words == words_of(NUM_SENTENCES)
        return Crowd(
            limit,
            len(admitted),
            _p95(alone.final_s),
            _p95([delay for each in admitted for delay in each.final_s]),
            alone.num_partials,
            sum(each.num_partials for each in admitted) / len(admitted),
        )


async def test_late_finals_lower_the_limit_for_those_who_come_next() -> None:
    # far too slow for the eight that are let in without a measurement
    options = ("--cost-s=0.5", "--width=1", "--no-calibrate", "--max-sessions=8")
    async with victim(*options, "--final-target-s=0.7") as service:
        crowd = await asyncio.gather(*(_visit(service) for _ in range(8)))
        for each in crowd:
            assert each.words == words_of(NUM_SENTENCES)
        assert (await service.metrics())["wordwire_session_limit"] < 8
