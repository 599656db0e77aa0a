from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.batching.draft import Draft, move_draft

T = 1000  # the token of 0.00 s


def follow(draft: Draft, tokens: list[int]) -> None:
    for token in tokens:
        draft.observe(token)


def test_all_of_it_is_proposed_at_first() -> None:
    assert Draft([T, 1, 2, 3], T).propose(100) == [T, 1, 2, 3]
    assert Draft([T, 1, 2, 3], T).propose(2) == [T, 1]


def test_it_goes_on_where_the_text_followed_it() -> None:
    draft = Draft([T, 1, 2, 3, 4], T)
    follow(draft, [T, 1, 2])
    assert draft.propose(100) == [3, 4]


def test_a_replaced_token_is_skipped() -> None:
    draft = Draft([1, 2, 3, 4, 5], T)
    follow(draft, [1, 9])
    assert draft.propose(100) == [3, 4, 5]


def test_a_dropped_token_is_skipped() -> None:
    draft = Draft([1, 2, 3, 4, 5], T)
    follow(draft, [1, 3])
    assert draft.propose(100) == [4, 5]


def test_it_finds_its_place_after_tokens_were_added() -> None:
    draft = Draft([1, 2, 3, 4, 5], T)
    follow(draft, [1, 8, 9, 2])
    assert draft.propose(100) == [3, 4, 5]


def test_a_moved_timestamp_opens_the_next_segment_too() -> None:
    draft = Draft([T, 1, T + 50, T + 50, 2], T)
    follow(draft, [T, 1, T + 52])
    assert draft.propose(100) == [T + 52, 2]


def test_nothing_is_left_at_the_end() -> None:
    draft = Draft([1, 2], T)
    follow(draft, [1, 2, 3])
    assert draft.propose(100) == []


@given(st.lists(st.integers(0, 5)), st.lists(st.integers(0, 5)), st.integers(0, 8))
def test_it_survives_any_text(tokens: list[int], said: list[int], limit: int) -> None:
    draft = Draft(tokens, 4)
    for token in said:
        draft.observe(token)
        assert len(draft.propose(limit)) <= limit


def test_moving_shifts_timestamps() -> None:
    moved = move_draft([T, 1, T + 100, T + 100, 2, T + 150], 50, T, 1501)
    assert moved == [T, 1, T + 50, T + 50, 2, T + 100]


def test_moving_drops_segments_before_the_window() -> None:
    moved = move_draft([T, 1, T + 100, T + 120, 2, T + 150], 110, T, 1501)
    assert moved == [T + 10, 2, T + 40]


def test_moving_by_nothing_changes_nothing() -> None:
    assert move_draft([T + 3, 1, T + 9], 0, T, 1501) == [T + 3, 1, T + 9]


def test_moving_beyond_the_text_leaves_nothing_but_a_time() -> None:
    assert [t for t in move_draft([T, 1, T + 100], 500, T, 1501) if t < T] == []
