"""The key promises, with a real model: an engine's death and a shutdown lose nothing."""

from __future__ import annotations

import asyncio
import difflib
import itertools
import re
import signal

import numpy as np
import pytest

from tests.faults.speaker import Heard, speak
from tests.faults.victim import victim
from tests.support.audio import pcm16, quiet
from tests.support.recordings import Recording

COMMAND = ("-m", "wordwire", "serve")
OPTIONS = ("--model=tiny.en", "--no-calibrate", "--max-sessions=8")
LOST_RUN = 3  # words in a row: more than another reading of what was said

# a machine that is slow, or shared, decodes some of it for a minute
pytestmark = [pytest.mark.model, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def talk(read_clips: list[Recording]) -> bytes:
    """Several people, one after another, about half a minute of them."""
    pieces, length = [], 0.0
    for clip in read_clips:
        if length < 25 and clip.duration_s < 9:
            pieces += [clip.read(), quiet(0.9)]
            length += clip.duration_s + 0.9
    return pcm16(np.concatenate(pieces))


def words_in(heard: Heard) -> list[str]:
    return re.findall(r"[a-z0-9']+", " ".join(heard.words).lower())


def longest_loss(expected: list[str], found: list[str]) -> int:
    """Count the longest run of expected words that nothing was found for."""
    matcher = difflib.SequenceMatcher(None, expected, found, autojunk=False)
    return max(
        [0]
        + [
            (last - first) - (end - start)
            for tag, first, last, start, end in matcher.get_opcodes()
            if tag != "equal"
        ]
    )


async def test_killing_the_engine_costs_no_words(talk: bytes) -> None:
    async with victim(*OPTIONS, command=COMMAND) as service:
        undisturbed = words_in(await speak(service.ws, talk, pace=1))
        assert len(undisturbed) > 40
        speaking = [asyncio.create_task(speak(service.ws, talk, pace=1)) for _ in range(2)]
        for number, pause_s in enumerate((3.0, 12.0)):
            await asyncio.sleep(pause_s)
            await service.wait_up(num_restarts=number)
            service.engine.send_signal(signal.SIGKILL)
        for heard in await asyncio.gather(*speaking):
            assert heard.close_code == 1000
            found = words_in(heard)
            assert longest_loss(undisturbed, found) < LOST_RUN, (undisturbed, found)
        assert (await service.metrics())["wordwire_engine_restarts"] == 2


async def test_a_stop_under_eight_live_streams_delivers_all_and_exits_0(talk: bytes) -> None:
    async with victim(*OPTIONS, command=COMMAND) as service:
        said_s = 8.0
        said = talk[: int(said_s * 32_000)]
        expected = words_in(await speak(service.ws, said, pace=1))
        assert len(expected) > 10
        speaking = [
            asyncio.create_task(speak(service.ws, talk, pace=1, ends=False)) for _ in range(8)
        ]
        await asyncio.sleep(said_s + 0.3)
        code, elapsed_s = await service.stop()
        everyone = await asyncio.gather(*speaking)
        print(f"exit code {code} after {elapsed_s:.1f} s")
        assert code == 0 and elapsed_s < 10, (code, elapsed_s)
        for heard in everyone:
            assert heard.messages[-1]["type"] == "done" and heard.close_code == 1012
            # at least what was said up to there; the stop came a moment later
            found = words_in(heard)
            assert longest_loss(expected[:-2], found) < LOST_RUN, (expected, found)
        for one, other in itertools.pairwise(everyone):
            assert abs(len(words_in(one)) - len(words_in(other))) <= LOST_RUN
