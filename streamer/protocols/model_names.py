"""The model names that clients of OpenAI and vLLM send, and what they stand for here."""

from __future__ import annotations

from engine.api import ModelInfo

# what OpenAI calls its own; each gets the one model that is served
ALIASES = (
    "whisper-1",
    "gpt-transcribe",
    "gpt-live-transcribe",
    "gpt-realtime-whisper",
    "gpt-4o-transcribe",
    "gpt-4o-mini-transcribe",
    "gpt-4o-mini-transcribe-2025-12-15",
)
# these write while people speak; the others, as at OpenAI, once a turn is over
LIVE_ALIASES = frozenset({"gpt-realtime-whisper", "gpt-live-transcribe"})


def is_served(name: str, info: ModelInfo) -> bool:
    """Return whether a client may ask for this model.

    Names of the same weights at other services count: "openai/whisper-base", "whisper-base" and
    "Systran/faster-whisper-base" all mean "base".
    """
    return name in ALIASES or name == info.name or _short(name) == _short(info.name)


def names(info: ModelInfo) -> tuple[str, ...]:
    """Return every name that a list of models shows, the served one first."""
    return (info.name, *ALIASES)


def _short(name: str) -> str:
    name = name.rstrip("/").rpartition("/")[2]
    for prefix in ("faster-", "distil-faster-"):
        name = name.removeprefix(prefix)
    return name.removeprefix("whisper-")
