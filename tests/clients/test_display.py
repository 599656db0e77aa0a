from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.display import DIM, RESET, Display, render
from streamer.protocol import Final, Partial


def _partial(settled: str, volatile: str, channel: int = 0) -> Partial:
    return Partial(channel, 0, settled, volatile, 0.0, 1.0, "en", 0.0)


def _final(text: str, channel: int = 0) -> Final:
    return Final(channel, 0, text, 0.0, 1.0, "en", True, 0.0)


def test_without_a_terminal_only_finals_are_written() -> None:
    out = io.StringIO()
    display = Display(out, is_terminal=False)
    display.partial(_partial("Hello", " wor"))
    display.status("50 %")
    display.final(_final(" Hello world."))
    display.final(_final(""))
    display.close()
    assert out.getvalue() == "Hello world.\n"


def test_a_silent_display_writes_nothing() -> None:
    out = io.StringIO()
    display = Display(out, is_terminal=False, is_silent=True)
    display.final(_final("Hello."))
    assert out.getvalue() == ""


def test_channels_are_labelled_where_there_are_two() -> None:
    out = io.StringIO()
    display = Display(out, is_terminal=False, show_channels=True)
    display.final(_final("Hello.", channel=1))
    assert out.getvalue() == "[1] Hello.\n"


def test_the_volatile_part_is_dim() -> None:
    out = io.StringIO()
    Display(out, is_terminal=True).partial(_partial("Hello", " world"))
    assert out.getvalue() == f"Hello{DIM} world{RESET}"


class Terminal:
    """Knows just enough control sequences to tell what a person sees."""

    def __init__(self) -> None:
        self.lines = [""]
        self.row = 0

    def write(self, text: str) -> None:
        for part in re.findall(r"\x1b\[\d*[AJm]|\r|\n|[^\x1b\r\n]+", text):
            if part == "\r":
                pass  # what follows always clears the line
            elif part == "\n":
                self.row += 1
                if self.row == len(self.lines):
                    self.lines.append("")
            elif part.endswith("A"):
                self.row -= int(part[2:-1])
            elif part.endswith("J"):
                self.lines = self.lines[: self.row] + [""]
            elif not part.endswith("m"):
                self.lines[self.row] += part


def test_a_final_replaces_what_was_open_and_scrolls_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "31")
    out = io.StringIO()
    display = Display(out, is_terminal=True)
    display.status("talk.wav 0:10")
    display.partial(_partial("one two three four five", " six seven eight nine ten"))
    display.partial(_partial("one two three four five six seven", " eight"))
    display.note("(a note)")
    display.final(_final("one two three four five six seven ate."))
    display.partial(_partial("", "next"))
    terminal = Terminal()
    terminal.write(out.getvalue())
    assert terminal.lines == [
        "(a note)",
        "one two three four five six seven ate.",
        "next",
        "talk.wav 0:10",
    ]
    display.close()
    terminal = Terminal()
    terminal.write(out.getvalue())
    assert terminal.lines[-1] == ""


@given(
    settled=st.text("ab 漢é", max_size=80),
    volatile=st.text("ab 漢é", max_size=80),
    width=st.integers(4, 40),
)
def test_lines_hold_all_text_and_fit(settled: str, volatile: str, width: int) -> None:
    lines = render(settled, volatile, width)
    plain = [line.replace(DIM, "").replace(RESET, "") for line in lines]
    assert re.sub(" ", "", "".join(plain)) == re.sub(" ", "", settled + volatile)
    for line in plain:
        assert sum(2 if character == "漢" else 1 for character in line) <= width
