"""Decide whether a hypothesis is the text of speech, or the model's invention.

Several signals together, never a list of phrases.
"""

from __future__ import annotations

from engine.api import Hypothesis

NO_SPEECH = 0.6  # whisper/transcribe.py
LOW_LOGPROB = -1.0  # whisper/transcribe.py
VERY_LOW_LOGPROB = -1.5
HIGH_COMPRESSION = 2.4  # whisper/transcribe.py


def doubt(hypothesis: Hypothesis) -> str | None:
    """Name the reason to withhold this text, or return None to show it."""
    if hypothesis.no_speech_probability > NO_SPEECH and hypothesis.avg_logprob < LOW_LOGPROB:
        return "no_speech"
    if hypothesis.avg_logprob < VERY_LOW_LOGPROB:
        return "low_probability"
    if hypothesis.compression_ratio > HIGH_COMPRESSION or hypothesis.is_truncated:
        return "repetition"
    return None
