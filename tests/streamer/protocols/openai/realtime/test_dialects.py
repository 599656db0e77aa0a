"""Realtime transcription in the shapes of the beta and of today, whatever the address says."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest
import soxr
import websockets

from tests.support.audio import babble, pcm16, quiet
from tests.support.running_service import Running

TALK = np.concatenate([quiet(1.0), babble(2.0), quiet(2.0)])
SOUND = pcm16(soxr.resample(TALK, 16_000, 24_000))

OLD = "transcription_session.update"
NEW = "session.update"


def old(**changes: Any) -> dict[str, Any]:
    return {"type": OLD, "session": {"input_audio_format": "pcm16", **changes}}


def new(**changes: Any) -> dict[str, Any]:
    return {"type": NEW, "session": {"type": "transcription", "audio": {"input": changes}}}


PROMPT = {"model": "whisper-1", "prompt": "Names: Ferry."}
OPENINGS = {
    OLD: old(input_audio_transcription=PROMPT, turn_detection={"type": "server_vad"}),
    NEW: new(
        format={"type": "audio/pcm", "rate": 24_000},
        transcription=PROMPT,
        turn_detection={"type": "server_vad"},
    ),
}
LANGUAGE_ALONE = {
    OLD: {"type": OLD, "session": {"input_audio_transcription": {"language": "de"}}},
    NEW: new(transcription={"language": "de"}),
}
ITEM = {OLD: ["conversation.item.created"],
        NEW: ["conversation.item.added", "conversation.item.done"]}  # fmt: skip


@pytest.mark.parametrize("query", ["", "intent=transcription", "model=whisper-1",
                                   "intent=transcription&model=whisper-1"])  # fmt: skip
@pytest.mark.parametrize("dialect", [OLD, NEW])
async def test_both_dialects_give_the_same_events_at_every_address(
    service: Running, dialect: str, query: str
) -> None:
    async with websockets.connect(f"{service.ws}/v1/realtime?{query}") as socket:
        for message in (OPENINGS[dialect], LANGUAGE_ALONE[dialect]):
            await socket.send(json.dumps(message))
        for first in range(0, len(SOUND), 9_600):
            audio = base64.b64encode(SOUND[first : first + 9_600]).decode()
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        events: list[dict[str, Any]] = []
        async with asyncio.timeout(30):
            while not events or not events[-1]["type"].endswith(".completed"):
                events.append(json.loads(await socket.recv()))
    kinds = [event["type"] for event in events]
    assert kinds[0] == "session.created"
    assert kinds[1:3] == [dialect.replace("update", "updated")] * 2
    assert kinds[3 : 6 + len(ITEM[dialect])] == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        *ITEM[dialect],
    ]
    deltas = events[6 + len(ITEM[dialect]) : -1]
    assert {event["type"].rpartition(".")[2] for event in deltas} == {"delta"}
    assert "".join(event["delta"] for event in deltas) == "w2 w3 w4 w5"
    assert events[-1]["transcript"] == "w2 w3 w4 w5"
    assert not any(kind.startswith("response.") for kind in kinds)
    # the language alone was changed
    session = events[2]["session"]
    told = session.get("input_audio_transcription") or session["audio"]["input"]["transcription"]
    assert (told["language"], told["prompt"]) == ("de", "Names: Ferry.")
    engine: Any = service.service._engine
    assert engine.options[-1].language == "de"
