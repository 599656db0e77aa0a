from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from clients.resume_buffer import KEPT_S, Keeper
from streamer.protocol import Done, Final, Partial, Ready, ServerMessage, Start, Word

SECOND = 32_000  # bytes of 16 kHz s16le


def _final(start: float, end: float, *, channel: int = 0, segment: int = 0) -> Final:
    words = [Word(" a", start, end, 1.0)]
    return Final(channel, segment, "a", start, end, "en", True, 0.0, words)


def _partial(start: float, end: float, *, channel: int = 0, segment: int = 0) -> Partial:
    return Partial(channel, segment, "", "a", start, end, "en", 0.0)


def _placed(keeper: Keeper, message: ServerMessage) -> ServerMessage:
    placed = keeper.place(message)
    assert placed is not None
    return placed


@given(
    sizes=st.lists(st.integers(1, 5000), max_size=30),
    share=st.floats(0, 1),
)
def test_sound_after_a_byte_is_what_was_added(sizes: list[int], share: float) -> None:
    keeper, sound = Keeper(Start()), b""
    for number, size in enumerate(sizes):
        piece = bytes([number % 256]) * size
        keeper.add(piece)
        sound += piece
    byte = int(share * len(sound))
    assert b"".join(keeper.after(byte)) == sound[byte:]


def test_sound_before_a_final_is_dropped() -> None:
    keeper = Keeper(Start())
    for _ in range(4):
        keeper.add(b"a" * SECOND)
    keeper.place(_final(0.0, 2.5))
    keeper.add(b"b" * SECOND)
    # whole pieces only: half a second before the end of the final stays
    assert b"".join(keeper.after(2 * SECOND)) == b"a" * (2 * SECOND) + b"b" * SECOND


def test_sound_without_text_is_kept_for_a_bounded_time() -> None:
    keeper = Keeper(Start())
    for _ in range(int(KEPT_S) + 10):
        keeper.add(b"a" * SECOND)
    kept = b"".join(keeper.after(0)).lstrip(b"\0")
    assert len(kept) == int(KEPT_S) * SECOND


def test_forgotten_sound_is_sent_as_silence_so_that_times_stay() -> None:
    keeper = Keeper(Start())
    keeper.place(_final(0.0, 1.0))
    keeper.add(b"a" * SECOND)
    keeper.add(b"b" * SECOND)
    assert b"".join(keeper.after(0)) == bytes(SECOND) + b"b" * SECOND


def test_a_new_session_begins_where_text_was_final_and_its_times_go_on() -> None:
    keeper = Keeper(Start())
    keeper.add(bytes(10 * SECOND))
    keeper.place(_final(0.5, 2.0, segment=0))
    keeper.place(_partial(3.0, 5.0, segment=1))
    keeper.restart()
    assert keeper.base == 3 * SECOND  # the open segment's start: all of it is heard again
    final = _placed(keeper, _final(0.25, 1.0, segment=0))
    assert isinstance(final, Final) and final.words is not None
    assert (final.start, final.end, final.words[0].start) == (3.25, 4.0, 3.25)
    assert final.segment == 2


def test_a_new_session_without_an_open_segment_begins_at_the_last_final() -> None:
    keeper = Keeper(Start())
    keeper.add(bytes(10 * SECOND))
    keeper.place(_final(0.5, 2.0))
    keeper.restart()
    assert keeper.base == 2 * SECOND


def test_a_session_that_was_ended_is_continued_where_it_says() -> None:
    keeper = Keeper(Start())
    keeper.add(bytes(10 * SECOND))
    keeper.place(_final(0.5, 2.0))
    keeper.restart(Done(duration=7.0, segments=1))
    assert keeper.base == 7 * SECOND
    done = _placed(keeper, Done(duration=3.0, segments=0))
    assert isinstance(done, Done) and (done.duration, done.segments) == (10.0, 1)


def test_a_channel_that_is_heard_again_says_nothing_twice() -> None:
    keeper = Keeper(Start(channels=2))
    keeper.add(bytes(20 * SECOND))
    keeper.place(_partial(1.0, 3.0, channel=0))
    keeper.place(_final(1.5, 4.0, channel=1))
    keeper.restart()
    assert keeper.base == 2 * SECOND  # one second of two channels
    assert keeper.place(_final(0.5, 3.0, channel=1)) is None
    assert keeper.place(_final(0.0, 2.0, channel=0)) is not None
    assert keeper.place(_final(3.5, 5.0, channel=1, segment=1)) is not None


def test_other_messages_pass_as_they_are() -> None:
    ready = Ready("id", "base", "pcm_s16le", 16_000, 1)
    assert Keeper(Start()).place(ready) is ready
    final = dataclasses.replace(_final(0, 1), words=None)
    assert Keeper(Start()).place(final) == final


def test_a_container_is_kept_whatever_is_final() -> None:
    keeper = Keeper(Start(encoding="container"))
    keeper.add(b"a" * 100)
    keeper.place(_final(0.0, 2.0))
    keeper.add(b"b" * 100)
    assert not keeper.can_restart
    assert b"".join(keeper.after(0)) == b"a" * 100 + b"b" * 100
