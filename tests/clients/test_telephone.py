from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from clients import telephone
from streamer.protocols.twilio.messages import Media, Start, Stop, parse


def test_mulaw_is_decoded_to_the_same_audio() -> None:
    rng = np.random.default_rng(0)
    loud = rng.uniform(-0.99, 0.99, 4000).astype(np.float32)
    quiet = rng.uniform(-0.001, 0.001, 4000).astype(np.float32)
    for samples in (loud, quiet):
        data = telephone.encode_mulaw(samples)
        assert len(data) == len(samples)
        codes = np.frombuffer(data, np.uint8)
        # by ITU-T G.711: inverted, sign, three bits of segment, four of step
        bits = (~codes).astype(int)
        exponent, mantissa = (bits >> 4) & 7, bits & 15
        magnitude = (((mantissa << 3) + 132) << exponent) - 132
        value = np.where(bits & 128, -magnitude, magnitude) / 32768
        step = (8 << exponent) / 32768
        assert np.all(np.abs(value - samples) <= step)


@pytest.mark.parametrize(("value", "code"), [(0.0, 0xFF), (1.0, 0x80), (-1.0, 0x00), (9.0, 0x80)])
def test_mulaw_at_its_ends(value: float, code: int) -> None:
    assert telephone.encode_mulaw(np.array([value], np.float32)) == bytes([code])


def test_the_service_reads_what_is_written() -> None:
    connected, start = telephone.opening("CA1", "MZ1", telephone.TRACKS, {"language": "de"})
    assert json.loads(connected)["event"] == "connected"
    assert parse(start) == Start("CA1", "MZ1", telephone.TRACKS, "mulaw", 8000, {"language": "de"})
    messages = list(telephone.media("MZ1", telephone.TRACKS, [(b"a", b"b"), (b"c", b"d")]))
    assert [parse(message) for message in messages] == [
        Media("inbound", 1, 0, b"a"),
        Media("outbound", 1, 0, b"b"),
        Media("inbound", 2, 20, b"c"),
        Media("outbound", 2, 20, b"d"),
    ]
    assert parse(telephone.closing("CA1", "MZ1")) == Stop()
    assert base64.b64decode(json.loads(messages[0])["media"]["payload"]) == b"a"


def test_a_bad_network_delays_within_its_reach_and_loses_its_share() -> None:
    sent = [str(number) for number in range(2000)]
    late = list(telephone.disturb(sent, reach=8, loss=0.0, seed=1))
    assert sorted(late, key=int) == sent
    assert late != sent
    for position, message in enumerate(late):
        assert abs(position - int(message)) <= 9
    kept = list(telephone.disturb(sent, reach=0, loss=0.1, seed=1))
    assert kept == [message for message in sent if message in set(kept)]
    assert 1700 < len(kept) < 1900
