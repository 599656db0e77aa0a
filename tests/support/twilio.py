"""What Twilio sends for a call of two tracks."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from clients.telephone import encode_mulaw
from tests.support.audio import babble, quiet


def start(call: str = "CA1", *, body: dict[str, Any] | None = None, **parameters: str) -> str:
    """Write the message that opens a stream.

    Args:
        body: replaces what its `start` has.
    """
    return json.dumps(
        {
            "event": "start",
            "sequenceNumber": "1",
            "streamSid": "MZ1",
            "start": {
                "streamSid": "MZ1",
                "accountSid": "AC1",
                "callSid": call,
                "tracks": ["inbound", "outbound"],
                "customParameters": parameters,
                "mediaFormat": {
                    "encoding": "audio/x-mulaw",
                    "sampleRate": 8000,
                    "channels": 1,
                },
                **(body or {}),
            },
        }
    )


def media(track: str, audio: bytes) -> list[str]:
    """Write the audio of a track, 20 ms of mu-law a message."""
    return [
        json.dumps(
            {
                "event": "media",
                "sequenceNumber": str(i + 2),
                "streamSid": "MZ1",
                "media": {
                    "track": track,
                    "chunk": str(i + 1),
                    "timestamp": str(i * 20),
                    "payload": base64.b64encode(audio[i * 160 : (i + 1) * 160]).decode(),
                },
            }
        )
        for i in range(len(audio) // 160)
    ]


INBOUND = encode_mulaw(np.concatenate([babble(2.0), quiet(4.0)])[::2])
OUTBOUND = encode_mulaw(np.concatenate([quiet(2.5), babble(2.0, seed=3), quiet(1.5)])[::2])
FRAMES = [
    frame
    for pair in zip(media("inbound", INBOUND), media("outbound", OUTBOUND), strict=True)
    for frame in pair
]
CONNECTED = json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"})
STOP = json.dumps({"event": "stop", "sequenceNumber": "9", "streamSid": "MZ1", "stop": {}})
