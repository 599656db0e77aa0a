"""Captions in a terminal: finals scroll up, the open segments are redrawn below them."""

from __future__ import annotations

import shutil
import unicodedata
from typing import TextIO

from streamer.protocol import Final, Partial

DIM, RESET = "\x1b[2m", "\x1b[0m"
CLEAR_DOWN = "\x1b[J"
MAX_OPEN_LINES = 6  # of an open segment; older lines return with the final


class Display:
    """Shows one stream of messages.

    On a terminal, the open segment is redrawn in place, its volatile part dim, with a status line
    below. Elsewhere only finals are written, one per line, or nothing at all if it is silent.
    """

    def __init__(
        self,
        out: TextIO,
        *,
        is_terminal: bool,
        show_channels: bool = False,
        is_silent: bool = False,
    ) -> None:
        self._out = out
        self._is_silent = is_silent
        self._is_terminal = is_terminal
        self._show_channels = show_channels
        self._partials: dict[int, Partial] = {}  # the open segment of each channel
        self._status = ""
        self._num_lines = 0  # of the region that is redrawn

    def partial(self, partial: Partial) -> None:
        """Show the open segment as transcribed so far."""
        self._partials[partial.channel] = partial
        self._redraw()

    def final(self, final: Final) -> None:
        """Write a final above the open segments."""
        self._partials.pop(final.channel, None)
        text = final.text.strip()
        if not self._is_terminal:
            if text and not self._is_silent:
                self._out.write(f"{self._label(final.channel)}{text}\n")
                self._out.flush()
            return
        line = f"{self._label(final.channel)}{text}\n" if text else ""
        self._out.write(self._erase() + line)
        self._redraw()

    def status(self, text: str) -> None:
        """Replace the status line, such as the progress in a file."""
        if self._is_terminal and text != self._status:
            self._status = text
            self._redraw()

    def note(self, text: str) -> None:
        """Write a line for the person at the terminal, such as a warning."""
        if self._is_terminal:
            self._out.write(f"{self._erase()}{text}\n")
            self._redraw()

    def close(self) -> None:
        """Erase the redrawn region; call this before anything else writes."""
        if self._is_terminal:
            self._out.write(self._erase())
            self._out.flush()
        self._partials.clear()
        self._status = ""

    def _label(self, channel: int) -> str:
        return f"[{channel}] " if self._show_channels else ""

    def _erase(self) -> str:
        if self._num_lines == 0:
            return ""
        up = f"\x1b[{self._num_lines - 1}A" if self._num_lines > 1 else ""
        self._num_lines = 0
        return f"\r{up}{CLEAR_DOWN}"

    def _redraw(self) -> None:
        if not self._is_terminal:
            return
        width = max(20, shutil.get_terminal_size().columns - 1)
        lines: list[str] = []
        for channel in sorted(self._partials):
            partial = self._partials[channel]
            settled = self._label(channel) + partial.settled.lstrip()
            volatile = partial.volatile if partial.settled else partial.volatile.lstrip()
            lines += render(settled, volatile, width)[-MAX_OPEN_LINES:]
        if self._status:
            lines.append(f"{DIM}{_cut(self._status, width)}{RESET}")
        erase = self._erase()
        self._num_lines = len(lines)
        self._out.write(erase + "\n".join(lines))
        self._out.flush()


def render(settled: str, volatile: str, width: int) -> list[str]:
    """Break text into lines of at most `width` columns, with the volatile part dim."""
    text = settled + volatile
    lines: list[str] = []
    start = 0
    while start < len(text):
        end = _line_end(text, start, width)
        fixed, soft = text[start : min(end, len(settled))], text[max(start, len(settled)) : end]
        line = fixed + (f"{DIM}{soft}{RESET}" if soft else "")
        lines.append(line)
        start = end
        while start < len(text) and text[start] == " ":
            start += 1
    return lines


def _line_end(text: str, start: int, width: int) -> int:
    columns = 0
    last_space: int | None = None
    for i in range(start, len(text)):
        columns += _columns(text[i])
        if columns > width:
            return (
                last_space if last_space is not None and last_space > start else max(i, start + 1)
            )
        if text[i] == " ":
            last_space = i
    return len(text)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
