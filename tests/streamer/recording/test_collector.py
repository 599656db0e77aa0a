from __future__ import annotations

import pytest

from engine.api import Hypothesis, Segment, Word
from streamer.recording.collector import Collector

S = 16_000


def window(number: int, *texts: str, language: str = "en") -> Hypothesis:
    start = number * 10 * S
    segments = tuple(
        Segment(text, start, start + S, False, (Word(text, start, start + S, 0.5),))
        for text in texts
    )
    return Hypothesis(start, start + 10 * S, segments, language, 1.0, tokens=(1, 2, 3))


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        ([" One.", " Two."], "One. Two."),
        (["One.", "Two."], "One. Two."),  # a window's first word may lack its space
        ([" One,", " ", "", " two."], "One, two."),
        (["你好。", "世界"], "你好。世界"),
        ([" Hello", " world "], "Hello world"),
    ],
)
def test_windows_join_with_one_space_where_the_script_has_spaces(
    texts: list[str], whole: str
) -> None:
    collector = Collector()
    added = [collector.add(window(number, text)) for number, text in enumerate(texts)]
    assert collector.text == "".join(added) == whole


def test_windows_without_text_leave_no_passage_and_no_language() -> None:
    collector = Collector()
    for each in (window(0, " ", language="de"), window(1), window(2, " One.", " Two.")):
        collector.add(each)
    assert [passage.segment.text for passage in collector.passages] == [" One.", " Two."]
    assert {passage.window.start for passage in collector.passages} == {20 * S}
    assert (collector.language, collector.num_tokens) == ("en", 9)
    assert [word.text for word in collector.words] == [" One.", " Two."]
