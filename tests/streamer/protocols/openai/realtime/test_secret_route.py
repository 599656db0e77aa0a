"""Secrets that browsers open Realtime sessions with."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest
import websockets

from streamer.config import ServerConfig
from tests.support.realtime import (
    config,
    openai,
)
from tests.support.running_service import Running, running


async def test_client_secrets_open_the_session_they_are_for() -> None:
    key = "a-key-of-enough-characters"
    settings = ServerConfig(port=0, drain_timeout_s=2.0, api_keys=(key,), calibrate=False)
    async with running(config=settings) as service:
        async with openai.AsyncOpenAI(base_url=service.http + "/v1", api_key=key) as client:
            made = await client.realtime.client_secrets.create(
                expires_after={"anchor": "created_at", "seconds": 60},
                session=config(
                    transcription={"model": "gpt-4o-transcribe", "language": "de"},
                    turn_detection=None,
                ),
            )
        assert made.value.startswith("ek_") and 50 < made.expires_at - time.time() <= 60
        assert made.session.audio.input.transcription.language == "de"
        # as a browser does, which can set no headers
        protocols = ["realtime", "openai-insecure-api-key." + made.value]
        address = service.ws + "/v1/realtime?intent=transcription"
        for _ in range(2):
            async with websockets.connect(
                address, subprotocols=[websockets.Subprotocol(name) for name in protocols]
            ) as socket:
                assert socket.subprotocol == "realtime"
                source = json.loads(await socket.recv())["session"]["audio"]["input"]
                assert source["transcription"]["language"] == "de"
                assert source["turn_detection"] is None
        async with openai.AsyncOpenAI(base_url=service.http + "/v1", api_key=made.value) as page:
            with pytest.raises(openai.PermissionDeniedError):
                await page.realtime.client_secrets.create()
        with pytest.raises(websockets.InvalidStatus) as caught:
            await websockets.connect(
                address,
                subprotocols=[
                    websockets.Subprotocol("realtime"),
                    websockets.Subprotocol("openai-insecure-api-key.ek_forged.forged"),
                ],
            )
        assert caught.value.response.status_code == 401


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"expires_after": {"anchor": "created_at", "seconds": 5}}, "expires_after.seconds"),
        ({"expires_after": {"anchor": "created_at", "seconds": "60"}}, "expires_after.seconds"),
        ({"expires_after": 60}, "expires_after.seconds"),
        ({"expires_after": {"anchor": "now", "seconds": 60}}, "expires_after.anchor"),
        ({"session": []}, "session"),
        ({"session": {"type": "realtime"}}, "session.type"),
    ],
)
async def test_wrong_secrets_are_refused(service: Running, body: Any, param: str) -> None:
    async with httpx.AsyncClient(base_url=service.http) as http:
        answer = await http.post("/v1/realtime/client_secrets", json=body)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == param


async def test_the_beta_way_to_a_secret(service: Running) -> None:
    async with httpx.AsyncClient(base_url=service.http) as http:
        session = {"input_audio_format": "g711_alaw", "turn_detection": None}
        answer = await http.post("/v1/realtime/transcription_sessions", json=session)
    body = answer.json()
    assert body["input_audio_format"] == "g711_alaw"
    assert body["client_secret"]["value"].startswith("ek_")
