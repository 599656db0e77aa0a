from __future__ import annotations

import pytest

from streamer.audio.pcm import AudioFormat
from streamer.protocols.deepgram.options import MIN_ENDPOINT_MS, parse_language, parse_options
from streamer.wire import ClientFault


def query(**values: str | list[str]) -> dict[str, list[str]]:
    return {name: [v] if isinstance(v, str) else v for name, v in values.items()}


def test_nothing_given_is_a_container_without_interims() -> None:
    options = parse_options({})
    assert options.audio_format is None
    assert not options.interim_results
    assert not options.settings.partials
    assert not options.punctuate
    assert options.settings.language is None
    assert options.settings.word_times


@pytest.mark.parametrize(
    ("encoding", "ours"),
    [
        ("linear16", "pcm_s16le"),
        ("linear32", "pcm_f32le"),
        ("mulaw", "mulaw"),
        ("alaw", "alaw"),
    ],
)
def test_raw_encodings_have_a_format(encoding: str, ours: str) -> None:
    options = parse_options(query(encoding=encoding, sample_rate="8000", channels="2"))
    assert options.audio_format == AudioFormat(ours, 8000, 2)


@pytest.mark.parametrize("encoding", ["flac", "ogg-opus", ""])
def test_formats_that_describe_themselves_are_containers(encoding: str) -> None:
    assert parse_options(query(encoding=encoding, sample_rate="48000")).audio_format is None


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (query(encoding="linear16"), "sample_rate"),
        (query(encoding="linear16", sample_rate="abc"), "sample_rate"),
        (query(encoding="linear16", sample_rate="4000"), "sample_rate"),
        (query(encoding="linear16", sample_rate="16000", channels="3"), "channels"),
        (query(encoding="amr-nb", sample_rate="8000"), "encoding"),
        (query(encoding="g729", sample_rate="8000"), "encoding"),
        (query(redact="pci"), "redact"),
        (query(callback="https://example.org/hook"), "callback"),
        (query(search="word"), "search"),
        (query(replace="a:b"), "replace"),
        (query(interim_results="maybe"), "interim_results"),
        (query(endpointing="-5"), "endpointing"),
        (query(endpointing="soon"), "endpointing"),
        (query(utterance_end_ms="1e3"), "utterance_end_ms"),
        (query(utterance_end_ms="9" * 5000), "utterance_end_ms"),
        (query(language="english please"), "language"),
        (query(keyterm=[f"word{i}" for i in range(101)]), "keyterm"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(values: dict[str, list[str]], named: str) -> None:
    with pytest.raises(ClientFault) as caught:
        parse_options(values)
    assert named in caught.value.message
    assert caught.value.is_fatal


def test_features_switched_off_are_not_refused() -> None:
    options = parse_options(query(redact="false", diarize="false", callback=""))
    assert options.ignored == ()


def test_features_without_effect_are_named() -> None:
    options = parse_options(
        query(diarize="true", numerals="true", model="nova-3", tag="a", made_up="1")
    )
    assert options.ignored == ("diarize", "numerals", "made_up")
    assert options.model == "nova-3"


@pytest.mark.parametrize(
    ("text", "silence_ms", "has_endpointing"),
    [
        ("", 750, True),
        ("true", 750, True),
        ("false", 750, False),
        ("10", MIN_ENDPOINT_MS, True),
        ("800", 800, True),
    ],
)
def test_endpointing_is_a_pause(text: str, silence_ms: int, has_endpointing: bool) -> None:
    options = parse_options(query(endpointing=text))
    assert options.settings.silence_ms == silence_ms
    assert options.has_endpointing is has_endpointing


def test_smart_format_punctuates() -> None:
    assert parse_options(query(smart_format="true")).punctuate
    assert parse_options(query(punctuate="true")).punctuate


def test_keyterms_and_keywords_are_hotwords() -> None:
    options = parse_options(
        query(keyterm=["Wordwire", "tretinoin cream"], keywords=["snuffle:5", "a:b", "Wordwire"])
    )
    assert options.settings.hotwords == ("Wordwire", "tretinoin cream", "snuffle", "a:b")


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("en", "en"),
        ("en-US", "en"),
        ("pt_BR", "pt"),
        ("zh-Hant", "zh"),
        ("multi", None),
        ("", None),
        ("nb", "no"),
    ],
)
def test_language_tags_become_whispers_codes(tag: str, code: str | None) -> None:
    assert parse_language(tag) == code


def test_multichannel_keeps_channels_apart() -> None:
    assert not parse_options(query(multichannel="true", channels="2")).mixes_channels
    assert parse_options(query(channels="2")).mixes_channels
