from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from streamer.protocols.twilio import messages as twilio
from streamer.wire import ClientFault
from tests.support import twilio as sent


def start(**body: Any) -> str:
    tracks, parameters = ["outbound", "inbound"], {"language": "de", "n": 5}
    media = {"encoding": "audio/x-mulaw", "sampleRate": "8000", "channels": "1"}
    fields = {"tracks": tracks, "customParameters": parameters, "mediaFormat": media}
    return sent.start(body=fields | body)


def test_start_says_which_call_and_how_it_sounds() -> None:
    assert twilio.parse(start()) == twilio.Start(
        call="CA1",
        stream="MZ1",
        tracks=("inbound", "outbound"),
        encoding="mulaw",
        sample_rate=8000,
        parameters={"language": "de", "n": "5"},
    )


def test_what_is_left_out_has_defaults() -> None:
    bare = json.dumps({"event": "start", "streamSid": "MZ1", "start": {"callSid": "CA1"}})
    message = twilio.parse(bare)
    assert message == twilio.Start("CA1", "MZ1", ("inbound",), "mulaw", 8000, {})


def test_a_clone_with_snake_case_is_read() -> None:
    message = twilio.parse(
        json.dumps(
            {
                "event": "start",
                "stream_id": "s1",
                "start": {
                    "call_control_id": "c1",
                    "media_format": {"encoding": "PCMA", "sample_rate": 8000, "channels": 1},
                },
            }
        )
    )
    assert message == twilio.Start("c1", "s1", ("inbound",), "alaw", 8000, {})


@pytest.mark.parametrize("number", ["7", 7])
def test_media_has_numbers_as_strings_or_not(number: Any) -> None:
    text = json.dumps(
        {
            "event": "media",
            "media": {
                "track": "outbound",
                "chunk": number,
                "timestamp": "120",
                "payload": base64.b64encode(b"\x01\x02").decode(),
            },
        }
    )
    assert twilio.parse(text) == twilio.Media("outbound", 7, 120, b"\x01\x02")


def test_other_events() -> None:
    assert twilio.parse('{"event":"connected","protocol":"Call","version":"1.0.0"}') == (
        twilio.Connected()
    )
    assert twilio.parse('{"event":"stop","stop":{"callSid":"CA1"}}') == twilio.Stop()
    assert twilio.parse('{"event":"mark","mark":{"name":"m"}}') == twilio.Mark("m")
    assert twilio.parse('{"event":"dtmf","dtmf":{"track":"inbound_track","digit":"5"}}') == (
        twilio.Dtmf("inbound", "5")
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("qwerty", "JSON"),
        ("[]", "JSON"),
        ("{}", "event"),
        ('{"event":"hangup"}', "event"),
        ('{"event":"media"}', "media"),
        ('{"event":"media","media":{}}', "payload"),
        ('{"event":"media","media":{"payload":"***"}}', "payload"),
        ('{"event":"media","media":{"payload":"","chunk":"x"}}', "chunk"),
        ('{"event":"media","media":{"payload":"","chunk":true}}', "chunk"),
        ('{"event":"media","media":{"payload":"","chunk":"' + "9" * 30 + '"}}', "chunk"),
        ('{"event":"media","media":{"payload":"","track":"third"}}', "track"),
        ('{"event":"start","start":{}}', "callSid"),
        (start(mediaFormat={"encoding": "audio/x-l16"}), "encoding"),
        (start(callSid="x" * 300), "callSid"),
    ],
)
def test_what_is_wrong_is_named(text: str, named: str) -> None:
    with pytest.raises(ClientFault) as caught:
        twilio.parse(text)
    assert named in caught.value.message
