"""The one error of audio that cannot be read."""

from __future__ import annotations


class AudioError(Exception):
    """The bytes are not the audio that they should be; the message is fit for the client."""


class UndeclaredAudio(AudioError):
    """The bytes are not the raw samples that were declared: nothing behind them can be taken."""
