"""Log lines are whole, and a full disk does not stop the service."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from streamer.operations import logs


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield logging.getLogger("streamer.something")
    root.setLevel(level)
    root.handlers[:] = handlers


def test_json_lines_can_be_read_back(logger: logging.Logger) -> None:
    stream = io.StringIO()
    logs.set_up("info", "json", stream)
    logger.info("session %s: %d\nsegments", "ä", 3)
    try:
        raise ValueError("expected one")
    except ValueError:
        logger.exception("it failed")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["message"] == "session ä: 3\nsegments"
    assert first["level"] == "info" and first["time"].endswith("Z")
    assert "ValueError: expected one" in second["traceback"]


def test_text_lines_name_time_level_and_logger(logger: logging.Logger) -> None:
    stream = io.StringIO()
    logs.set_up("warning", "text", stream)
    logger.info("not this")
    logger.warning("but this")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("WARNING streamer.something: but this")


def test_a_full_disk_loses_lines_and_says_so_later(logger: logging.Logger) -> None:
    class Disk(io.StringIO):
        is_full = False

        def write(self, text: str) -> int:
            if self.is_full:
                raise OSError(28, "No space left on device")
            return super().write(text)

    disk = Disk()
    logs.set_up("info", "text", disk)
    logger.info("one")
    disk.is_full = True
    logger.info("two")
    logger.info("three")
    disk.is_full = False
    logger.info("four")
    text = disk.getvalue()
    assert "one" in text and "two" not in text and "four" in text
    assert "2 log lines could not be written" in text


def test_the_device_that_is_always_full(logger: logging.Logger) -> None:
    with open("/dev/full", "w") as full:
        logs.set_up("info", "text", full)
        for _ in range(1000):
            logger.info("a line that goes nowhere")
        handler = logging.getLogger().handlers[-1]
        assert isinstance(handler, logs.Handler) and handler.num_lost == 1000
        # what is left in the file's buffer cannot be written either
        with pytest.raises(OSError):
            full.close()
