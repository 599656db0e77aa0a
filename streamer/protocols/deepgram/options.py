"""What a Deepgram client asks for in the URL of `/v1/listen`, in the service's own terms.

Follows the query parameters of Deepgram's live and pre-recorded API. A parameter that only
changes how the text looks, and that Whisper cannot serve, is named in `ignored`; one whose absence
would break a promise (redacted numbers, results sent elsewhere) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from streamer.audio.pcm import AudioFormat
from streamer.protocols.language_names import read_language
from streamer.schema import RangeError
from streamer.transcription.settings import SessionSettings
from streamer.wire import ClientFault

ENCODINGS: Mapping[str, str] = {
    "linear16": "pcm_s16le",
    "linear32": "pcm_f32le",
    "mulaw": "mulaw",
    "alaw": "alaw",
}
# encodings that name a codec or a file format: the stream itself says its rate and channels
CONTAINERS = frozenset({"flac", "ogg-opus", "containerized"})
OPUS = "opus"  # bare packets, one to a message
MIN_ENDPOINT_MS = 300  # shorter pauses lie inside phrases, and Whisper writes phrases
MAX_ENDPOINT_MS = 10_000  # SessionSettings.silence_ms
MAX_DIGITS = 7  # of a number in the query; Python refuses to read some thousands of them
MAX_HOTWORDS = 100  # as many keyterms as Deepgram takes

# what would be lost without a word if these were ignored
REFUSED_PARAMETERS: Mapping[str, str] = {
    "redact": "text is not redacted here",
    "callback": "results go to the socket only",
    "search": "phrases are not searched for",
    "replace": "words are not replaced",
}
# of no consequence to the text: bookkeeping at Deepgram
UNREPORTED_PARAMETERS = frozenset(
    {"model", "tier", "version", "tag", "extra", "mip_opt_out", "callback_method", "alternatives"}
)
REMEDY = "leave encoding out to send a file, or name the encoding that is sent"


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """One request, read from its query."""

    model: str  # as the client named it; every name is served by the loaded model
    audio_format: AudioFormat | None  # None for a container and for Opus packets
    is_container: bool  # the bytes are a file, or a format that describes itself
    channels: int  # of the audio, as declared
    mixes_channels: bool  # they share one transcript
    settings: SessionSettings
    interim_results: bool
    has_endpointing: bool  # False: no result is speech_final
    utterance_end_ms: int | None  # gap after a word that UtteranceEnd reports
    vad_events: bool
    punctuate: bool  # False: lower case without punctuation, as Deepgram's default
    is_multilingual: bool  # language=multi: results name their languages
    detect_language: bool
    utterances: bool  # pre-recorded: list the utterances
    ignored: tuple[str, ...]  # parameters without effect, by name


def parse_options(query: Mapping[str, list[str]]) -> ListenOptions:
    """Read the query parameters, each name with all its values.

    Raises:
        ClientFault: fatal; a value that does not read, or a parameter that is refused.
    """
    for name, reason in REFUSED_PARAMETERS.items():
        if any(value not in ("", "false") for value in query.get(name, [])):
            raise _refusal("unsupported", f"{name}: {reason}", name)
    multichannel = _flag(query, "multichannel")
    audio_format = _audio_format(query)
    endpointing = _last(query, "endpointing")
    has_endpointing = endpointing != "false"
    silence_ms = SessionSettings().silence_ms
    if endpointing not in ("", "false", "true"):
        silence_ms = _integer(query, "endpointing", 0, MAX_ENDPOINT_MS)
        silence_ms = max(silence_ms, MIN_ENDPOINT_MS)
    utterance_end_ms = None
    if _last(query, "utterance_end_ms") not in ("", "false"):
        utterance_end_ms = _integer(query, "utterance_end_ms", 0, 60_000)
    interim_results = _flag(query, "interim_results")
    language = _last(query, "language")
    keyterms = _strings(query, "keyterm") + [_keyword(text) for text in _strings(query, "keywords")]
    return ListenOptions(
        model=_last(query, "model") or "general",
        audio_format=audio_format,
        is_container=audio_format is None and _last(query, "encoding") != OPUS,
        channels=_integer(query, "channels", 1, 2),
        mixes_channels=not multichannel,
        settings=SessionSettings(
            language=parse_language(language),
            hotwords=parse_hotwords(keyterms),
            word_times=True,
            partials=interim_results,
            silence_ms=silence_ms,
        ),
        interim_results=interim_results,
        has_endpointing=has_endpointing,
        utterance_end_ms=utterance_end_ms,
        vad_events=_flag(query, "vad_events"),
        punctuate=_flag(query, "punctuate") or _flag(query, "smart_format"),
        is_multilingual=language == "multi",
        detect_language=_last(query, "detect_language") not in ("", "false"),
        utterances=_flag(query, "utterances"),
        ignored=_ignored(query),
    )


def parse_language(tag: str) -> str | None:
    """Turn a BCP-47 tag into Whisper's code: "en-US" is "en"; "" and "multi" detect.

    Raises:
        ClientFault: fatal; it is not a language tag.
    """
    if tag in ("", "multi", "auto"):
        return None
    match = re.fullmatch(r"([A-Za-z]{2,3})([-_][A-Za-z0-9]{2,8})*", tag)
    if match is None:
        raise _refusal(
            "invalid_language", f"language: expected a tag like en-US, got {tag!r:.40}", "language"
        )
    return read_language(match[1])


def parse_hotwords(terms: list[str]) -> tuple[str, ...]:
    """Check words to listen for.

    Raises:
        ClientFault: fatal; there are too many.
    """
    words = tuple(dict.fromkeys(term.strip() for term in terms if term.strip()))
    if len(words) > MAX_HOTWORDS:
        raise _refusal(
            "too_many_keyterms",
            f"keyterm: expected at most {MAX_HOTWORDS}, got {len(words)}",
            "keyterm",
        )
    return words


def _audio_format(query: Mapping[str, list[str]]) -> AudioFormat | None:
    encoding = _last(query, "encoding")
    if encoding in ("", OPUS) or encoding in CONTAINERS:
        return None
    if encoding not in ENCODINGS:
        known = ", ".join([*ENCODINGS, OPUS, *sorted(CONTAINERS)])
        raise _refusal(
            "unsupported", f"encoding: expected one of {known}, got {encoding!r}", "encoding"
        )
    if _last(query, "sample_rate") == "":
        raise _refusal(
            "missing_field",
            f"sample_rate: expected a number with {encoding}, got nothing",
            "sample_rate",
        )
    try:
        return AudioFormat(
            encoding=ENCODINGS[encoding],
            sample_rate=_integer(query, "sample_rate", 1, 1_000_000),
            channels=_integer(query, "channels", 1, 2),
            remedy=REMEDY,
        )
    except RangeError as error:
        raise _refusal("invalid_field", str(error), error.field) from None


def _keyword(text: str) -> str:
    # "snuffleupagus:5": the number after the colon is an intensifier, which Whisper has not
    return re.sub(r":-?\d+(\.\d+)?$", "", text)


def _ignored(query: Mapping[str, list[str]]) -> tuple[str, ...]:
    return tuple(
        name
        for name in query
        if name not in UNREPORTED_PARAMETERS
        and name not in _READ
        and any(value not in ("", "false") for value in query[name])
    )


def _last(query: Mapping[str, list[str]], name: str) -> str:
    values = query.get(name) or [""]
    value = values[-1].strip()
    return value.lower() if value.lower() in ("true", "false") else value


def _flag(query: Mapping[str, list[str]], name: str) -> bool:
    value = _last(query, name)
    if value not in ("", "true", "false", "0", "1"):
        raise _refusal("invalid_field", f"{name}: expected true or false, got {value!r}", name)
    return value in ("true", "1")


def _strings(query: Mapping[str, list[str]], name: str) -> list[str]:
    return list(query.get(name, []))


def _integer(query: Mapping[str, list[str]], name: str, low: int, high: int) -> int:
    text = _last(query, name) or "1"  # channels is the only one that may be missing
    is_number = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
    if not is_number or not low <= int(text) <= high:
        raise _refusal(
            "invalid_field",
            f"{name}: expected a number from {low} to {high}, got {text!r:.40}",
            name,
        )
    return int(text)


def _refusal(code: str, message: str, field: str) -> ClientFault:
    return ClientFault(code, message, field=field, is_fatal=True)


_READ = frozenset(
    {
        "encoding",
        "sample_rate",
        "channels",
        "multichannel",
        "interim_results",
        "endpointing",
        "utterance_end_ms",
        "vad_events",
        "punctuate",
        "smart_format",
        "language",
        "detect_language",
        "keyterm",
        "keywords",
        "utterances",
        *REFUSED_PARAMETERS,
    }
)
