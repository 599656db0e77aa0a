from __future__ import annotations

import json

import pytest

from engine.api import ModelInfo
from streamer.audio.pcm import AudioFormat
from streamer.protocols.wyoming.messages import Audio, Transcribe, WyomingEvent, describe, encode
from streamer.wire import ClientFault


def test_lengths_stand_before_what_they_measure() -> None:
    data = encode(WyomingEvent("transcript", {"text": "höre"}, b"\x00\x01"))
    line, rest = data.split(b"\n", 1)
    head = json.loads(line)
    assert head["type"] == "transcript"
    body, payload = rest[: head["data_length"]], rest[head["data_length"] :]
    assert json.loads(body) == {"text": "höre"}
    assert (payload, head["payload_length"]) == (b"\x00\x01", 2)


def test_an_event_without_data_is_a_line() -> None:
    assert encode(WyomingEvent("transcript-stop")) == b'{"type": "transcript-stop"}\n'


def test_options_become_settings() -> None:
    settings = Transcribe(
        language="German",
        vad_sensitivity="relaxed",
        transcript_names=["Küche"],
        transcript_terms=["Licht"],
    ).settings
    assert settings.language == "de"
    assert settings.silence_ms == 1000
    assert settings.hotwords == ("Küche", "Licht")
    assert Transcribe().settings.language is None


def test_only_mono_of_16_bits_is_taken() -> None:
    assert Audio(22_050, 2, 1).format == AudioFormat("pcm_s16le", 22_050, 1)
    for audio in (Audio(16_000, 4, 1), Audio(16_000, 2, 2), Audio(4_000, 2, 1)):
        with pytest.raises(ClientFault, match="expected"):
            _ = audio.format


def test_the_model_and_its_languages_are_described() -> None:
    info = describe(ModelInfo("base", ("en", "de"), "cpu", "float32"))
    assert info.type == "info"
    programs = info.data["asr"]
    assert isinstance(programs, list)
    assert programs[0]["models"][0]["languages"] == ["en", "de"]
