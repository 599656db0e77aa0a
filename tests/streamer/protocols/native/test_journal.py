from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamer.protocols.native.journal import Journal

OPEN = (0, 0)


def _texts(journal: Journal, seq: int) -> list[str]:
    return [entry.text for entry in journal.after(seq)]


def test_messages_are_numbered_in_order() -> None:
    journal = Journal()
    for text in "abc":
        journal.append(text)
    assert [(entry.seq, entry.text) for entry in journal.after(0)] == [(1, "b"), (2, "c")]
    assert journal.next_seq == 3


def test_a_partial_replaces_the_one_before_it_of_its_segment() -> None:
    journal = Journal()
    journal.append("p1", partial_of=OPEN)
    journal.append("other", partial_of=(1, 0))
    journal.append("p2", partial_of=OPEN)
    assert _texts(journal, -1) == ["other", "p2"]
    journal.close_segment(OPEN)
    journal.append("final")
    assert _texts(journal, -1) == ["other", "final"]
    assert journal.has_all_after(-1)


def test_what_was_sent_is_forgotten_unless_the_client_may_come_back() -> None:
    journal = Journal()
    journal.append("a")
    journal.append("b")
    journal.mark_sent(0)
    assert _texts(journal, -1) == ["b"]
    assert not journal.has_all_after(-1) and journal.has_all_after(0)


def test_what_was_sent_is_kept_up_to_a_bound() -> None:
    journal = Journal(max_bytes=10)
    journal.keep_sent = True
    for _ in range(5):
        journal.append("1234")
        journal.mark_sent(journal.next_seq - 1)
    assert journal.num_bytes <= 10 and _texts(journal, -1) == ["1234", "1234"]
    assert not journal.has_all_after(1) and journal.has_all_after(2)


def test_what_was_not_sent_is_never_forgotten() -> None:
    journal = Journal(max_bytes=10)
    for _ in range(5):
        journal.append("1234")
    journal.mark_sent(-1)
    assert journal.num_unsent_bytes == 20 and len(journal.after(-1)) == 5


def test_a_number_from_the_future_is_not_trusted() -> None:
    assert not Journal().has_all_after(0)


@given(st.lists(st.sampled_from(["partial", "final", "send"]), max_size=60))
def test_every_final_reaches_a_client_that_reads_in_any_rhythm(steps: list[str]) -> None:
    journal, read, finals, cursor = Journal(), [], 0, -1
    for step in [*steps, "send"]:
        if step == "partial":
            journal.append("p", partial_of=OPEN)
        elif step == "final":
            journal.close_segment(OPEN)
            journal.append(f"f{finals}")
            finals += 1
        else:
            for entry in journal.after(cursor):
                read.append(entry.text)
                cursor = entry.seq
            journal.mark_sent(cursor)
    assert [text for text in read if text != "p"] == [f"f{i}" for i in range(finals)]
    assert journal.num_bytes == 0
