from __future__ import annotations

import io

import pytest
from starlette.datastructures import FormData, UploadFile

from engine.api import ModelInfo, Task
from streamer.protocols.openai.error import ApiError
from streamer.protocols.openai.form import RAW_FORMAT, TranscriptionRequest, parse_form

INFO = ModelInfo("base", ("en", "de"), "cpu", "float32")

NUMBERED = ("timestamp_granularities[0]", "timestamp_granularities[12]")  # as PHP writes lists


def parse(*fields: tuple[str, str], name: str = "a.wav") -> TranscriptionRequest:
    file = UploadFile(io.BytesIO(b"sound"), filename=name)
    form = FormData([("file", file), ("model", "whisper-1"), *fields])
    return parse_form(form, INFO, Task.TRANSCRIBE)


def test_two_fields_are_enough() -> None:
    wanted = parse()
    assert wanted.file.read() == b"sound" and wanted.raw is None
    assert (wanted.response_format, wanted.streams, wanted.task) == ("json", False, "transcribe")
    assert wanted.has_segments and not wanted.has_words and not wanted.has_logprobs
    assert not wanted.settings.word_times and wanted.settings.language is None


def test_lists_come_with_and_without_brackets() -> None:
    for name in ("timestamp_granularities", "timestamp_granularities[]", *NUMBERED):
        wanted = parse((name, "word"), (name, "segment"), ("response_format", "verbose_json"))
        assert wanted.has_segments and wanted.has_words and wanted.settings.word_times


def test_one_possible_language_is_the_language() -> None:
    assert parse(("languages[]", "de")).settings.language == "de"
    assert parse(("languages[]", "de"), ("languages[]", "en")).settings.language is None


@pytest.mark.parametrize("name", ["a.pcm", "A.RAW"])
def test_names_tell_raw_samples(name: str) -> None:
    assert parse(name=name).raw == RAW_FORMAT


@pytest.mark.parametrize(
    "fields",
    [
        [("chunking_strategy", '{"type": "server_vad", "threshold": 0.7}')],
        [("chunking_strategy[type]", "server_vad"), ("chunking_strategy[threshold]", "0.7")],
    ],
)
def test_the_detection_of_speech_may_be_set(fields: list[tuple[str, str]]) -> None:
    assert parse(*fields).settings.vad_threshold == 0.7
    assert parse(("chunking_strategy", "auto")).settings.vad_threshold == 0.5


@pytest.mark.parametrize(
    "value",
    ['{"type": "magic"}', "[]", "{", '{"threshold": "high"}', '{"prefix_padding_ms": 1e999}'],
)
def test_detection_that_cannot_be_is_refused(value: str) -> None:
    with pytest.raises(ApiError):
        parse(("chunking_strategy", value))


def test_a_file_where_text_should_be_is_refused() -> None:
    form = FormData(
        [
            ("file", UploadFile(io.BytesIO(b""))),
            ("model", "whisper-1"),
            ("prompt", UploadFile(io.BytesIO(b""))),
        ]
    )
    with pytest.raises(ApiError) as caught:
        parse_form(form, INFO, Task.TRANSCRIBE)
    assert caught.value.field == "prompt"


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        *(("temperature", value, "temperature") for value in ("1.5", "-1", "nan", "inf", "warm")),
        ("chunking_strategy", '{"threshold": 2}', "chunking_strategy.threshold"),
        ("chunking_strategy[prefix_padding_ms]", "nan", "chunking_strategy.prefix_padding_ms"),
        ("chunking_strategy[prefix_padding_ms]", "-5", "chunking_strategy.prefix_padding_ms"),
        ("chunking_strategy[silence_duration_ms]", "5", "chunking_strategy.silence_duration_ms"),
        ("language", "klingon", "language"),
        ("response_format", "yaml", "response_format"),
        ("stream", "perhaps", "stream"),
    ],
)
def test_every_field_that_is_refused_is_named(name: str, value: str, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse((name, value))
    assert caught.value.field == param


@pytest.mark.parametrize(
    ("written", "code"), [("auto", None), ("de-AT", "de"), ("German", "de"), ("", None)]
)
def test_a_language_is_read_as_in_every_protocol(written: str, code: str | None) -> None:
    assert parse(("language", written)).settings.language == code
