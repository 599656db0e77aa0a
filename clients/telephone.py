"""A telephone call as Twilio Media Streams sends it: mu-law at 8 kHz, in JSON messages. Pure."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

RATE = 8_000  # Hz
CHUNK_MS = 20
CHUNK_BYTES = RATE * CHUNK_MS // 1000
TRACKS = ("inbound", "outbound")
MAX_MAGNITUDE, BIAS = 32_635, 132  # of 16-bit samples (ITU-T G.711)


def encode_mulaw(samples: npt.NDArray[np.float32]) -> bytes:
    """Encode float32 in [-1, 1] as mu-law."""
    pcm = np.clip(samples * 32_768.0, -MAX_MAGNITUDE, MAX_MAGNITUDE).astype(np.int32)
    magnitude = np.abs(pcm) + BIAS
    # the position of the highest bit, 7 to 14, is the segment of G.711
    exponent = np.floor(np.log2(magnitude)).astype(np.int32) - 7
    mantissa = (magnitude >> (exponent + 3)) & 0x0F
    code: npt.NDArray[np.uint8] = (((pcm < 0) << 7) | (exponent << 4) | mantissa).astype(np.uint8)
    return (~code).tobytes()


def opening(
    call: str, stream: str, tracks: Sequence[str], parameters: Mapping[str, str]
) -> list[str]:
    """Return the messages before the audio."""
    start = {
        "streamSid": stream,
        "accountSid": "AC" + "0" * 32,
        "callSid": call,
        "tracks": list(tracks),
        "customParameters": dict(parameters),
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": RATE, "channels": 1},
    }
    return [
        json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}),
        json.dumps({"event": "start", "sequenceNumber": "1", "streamSid": stream, "start": start}),
    ]


def media(stream: str, tracks: Sequence[str], chunks: Iterable[Sequence[bytes]]) -> Iterator[str]:
    """Yield the audio, one message for each track and chunk.

    Args:
        chunks: for every 20 ms, CHUNK_BYTES of mu-law for each track.
    """
    sequence = 1
    for number, parts in enumerate(chunks):
        for track, part in zip(tracks, parts, strict=True):
            sequence += 1
            yield json.dumps(
                {
                    "event": "media",
                    "sequenceNumber": str(sequence),
                    "streamSid": stream,
                    "media": {
                        "track": track,
                        "chunk": str(number + 1),
                        "timestamp": str(number * CHUNK_MS),
                        "payload": base64.b64encode(part).decode(),
                    },
                }
            )


def closing(call: str, stream: str) -> str:
    """Return the last message."""
    stop = {"accountSid": "AC" + "0" * 32, "callSid": call}
    return json.dumps({"event": "stop", "streamSid": stream, "stop": stop})


def disturb(messages: Iterable[str], reach: int, loss: float, seed: int) -> Iterator[str]:
    """Yield messages as they would arrive through a bad network.

    Args:
        reach: how many later messages may arrive before a message.
        loss: share of messages that never arrive.
    """
    rng = random.Random(seed)
    held: list[tuple[float, str]] = []
    for number, message in enumerate(messages):
        if rng.random() < loss:
            continue
        held.append((number + rng.uniform(0, reach), message))
        held.sort()
        while held and held[0][0] <= number:
            yield held.pop(0)[1]
    for _, message in held:
        yield message
