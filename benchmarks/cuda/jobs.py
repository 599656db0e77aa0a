"""A window of English as benchmarks of the text decode it."""

from __future__ import annotations

from benchmarks.churn import Job
from engine.api import Samples
from engine.batching.request import MAX_TOKENS
from engine.decoding.tokenizer import Tokenizer


def make_job(tokenizer: Tokenizer, sound: Samples) -> Job:
    """Ask for a transcript with timestamps, without a prompt."""
    assert tokenizer.transcribe is not None
    prefix = (tokenizer.sot, tokenizer.languages["en"], tokenizer.transcribe)
    return Job(sound, prefix, 0, MAX_TOKENS)
