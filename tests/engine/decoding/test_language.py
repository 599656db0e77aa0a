from __future__ import annotations

from engine.decoding.language import StreamLanguage

S = 16_000


def test_a_given_language_is_fixed() -> None:
    settled = StreamLanguage("de").fixed
    assert settled is not None and settled.language == "de" and settled.probability == 1.0


def test_a_short_window_decides_nothing() -> None:
    language = StreamLanguage(None)
    assert language.observe({"en": 0.95, "de": 0.05}, S, is_final=False).language == "en"
    assert language.fixed is None
    assert language.observe({"en": 0.1, "de": 0.9}, 3 * S, is_final=False).language == "de"
    assert language.fixed is not None and language.fixed.language == "de"


def test_a_fixed_language_does_not_flip() -> None:
    language = StreamLanguage(None)
    language.observe({"en": 0.95, "de": 0.05}, 4 * S, is_final=False)
    assert language.observe({"en": 0.0, "de": 1.0}, 20 * S, is_final=True).language == "en"


def test_doubt_ends_after_enough_audio() -> None:
    language = StreamLanguage(None)
    language.observe({"en": 0.3, "de": 0.25}, 16 * S, is_final=False)
    assert language.fixed is not None
