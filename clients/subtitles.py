"""Finals as text, JSON, SubRip or WebVTT: pure functions over the messages of the protocol."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamer.protocol import Final, Word

# two lines of 42 characters for at most 7 s are what subtitlers call readable
# (Netflix Timed Text Style Guide, general requirements)
MAX_LINE = 42
MAX_CUE_CHARACTERS = 2 * MAX_LINE
MAX_CUE_S = 7.0
MIN_CUE_S = 0.5  # shorter cues cannot be read; stretched where there is room


@dataclass(frozen=True, slots=True)
class Cue:
    """One subtitle."""

    start: float  # s
    end: float
    text: str  # one or two lines


def to_text(finals: Iterable[Final]) -> str:
    """Return one line for each final that has text."""
    return "".join(f"{final.text.strip()}\n" for final in finals if final.text.strip())


def to_json(finals: Iterable[Final]) -> str:
    """Return the whole transcript and its segments as one JSON object."""
    segments = [final for final in finals if final.text.strip()]
    record = {
        "text": " ".join(final.text.strip() for final in segments),
        "segments": [_segment(final) for final in segments],
    }
    return json.dumps(record, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def to_srt(finals: Iterable[Final]) -> str:
    """Return SubRip: numbered cues, commas in the times."""
    return "\n".join(
        f"{number}\n{_time(cue.start, ',')} --> {_time(cue.end, ',')}\n{cue.text}\n"
        for number, cue in enumerate(to_cues(finals), 1)
    )


def to_vtt(finals: Iterable[Final]) -> str:
    """Return WebVTT."""
    cues = "".join(
        f"\n{_time(cue.start, '.')} --> {_time(cue.end, '.')}\n{_escape(cue.text)}\n"
        for cue in to_cues(finals)
    )
    return "WEBVTT\n" + cues


def to_cues(finals: Iterable[Final]) -> list[Cue]:
    """Cut finals into readable cues, in order of time.

    Cuts fall between words: at their times if the finals carry words, otherwise in proportion to
    the characters. Cues of one channel do not overlap.
    """
    cues = [cue for final in finals for cue in _cut(final)]
    cues.sort(key=lambda cue: (cue.start, cue.end))
    for i, cue in enumerate(cues):
        if cue.end - cue.start < MIN_CUE_S:
            limit = cues[i + 1].start if i + 1 < len(cues) else cue.start + MIN_CUE_S
            end = max(cue.end, min(cue.start + MIN_CUE_S, limit))
            cues[i] = dataclasses.replace(cue, end=round(end, 3))
    return cues


def _cut(final: Final) -> list[Cue]:
    words = final.words or _spread(final)
    cues: list[Cue] = []
    open_words: list[Word] = []
    for word in words:
        text = "".join(part.text for part in [*open_words, word]).strip()
        too_long = len(text) > MAX_CUE_CHARACTERS
        too_late = bool(open_words) and word.end - open_words[0].start > MAX_CUE_S
        if open_words and (too_long or too_late):
            cues.append(_cue(open_words))
            open_words = []
        open_words.append(word)
        # a sentence that fills half a cue ends it, so that the next one starts a new cue
        if word.text.rstrip().endswith((".", "?", "!", "。", "？", "！")) and len(text) >= MAX_LINE:
            cues.append(_cue(open_words))
            open_words = []
    if open_words:
        cues.append(_cue(open_words))
    return [cue for cue in cues if cue.text]


def _spread(final: Final) -> list[Word]:
    """Return words that share the final's time in proportion to their length."""
    text = final.text.strip()
    pieces = [f" {piece}" for piece in text.split()]
    if len(pieces) == 1 and len(text) > MAX_CUE_CHARACTERS:
        pieces = list(text)  # a script without spaces
    total = sum(map(len, pieces)) or 1
    words: list[Word] = []
    position = 0
    for piece in pieces:
        start = final.start + (final.end - final.start) * position / total
        position += len(piece)
        end = final.start + (final.end - final.start) * position / total
        words.append(Word(piece, round(start, 3), round(end, 3), 1.0))
    return words


def _cue(words: Sequence[Word]) -> Cue:
    text = "".join(word.text for word in words).strip()
    return Cue(words[0].start, max(words[-1].end, words[0].start), _wrap(text))


def _wrap(text: str) -> str:
    """Break a cue into two lines of about the same length if one line would be too long."""
    if len(text) <= MAX_LINE:
        return text
    spaces = [i for i, character in enumerate(text) if character == " "]
    if not spaces:
        return f"{text[:MAX_LINE]}\n{text[MAX_LINE:]}"
    middle = min(spaces, key=lambda i: abs(i - len(text) / 2))
    return f"{text[:middle]}\n{text[middle + 1 :]}"


def _segment(final: Final) -> dict[str, object]:
    segment: dict[str, object] = {
        "channel": final.channel,
        "start": final.start,
        "end": final.end,
        "language": final.language,
        "text": final.text.strip(),
    }
    if final.words is not None:
        segment["words"] = [dataclasses.asdict(word) for word in final.words]
    return segment


def _time(seconds: float, point: str) -> str:
    milliseconds = round(seconds * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    whole, milliseconds = divmod(milliseconds, 1000)
    return f"{hours:02}:{minutes:02}:{whole:02}{point}{milliseconds:03}"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
