"""How log lines look: text for people, or one JSON object a line for collectors.

What people said is never logged, by any module; this one only writes.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import IO

TEXT_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class Handler(logging.StreamHandler[IO[str]]):
    """Writes lines, and goes on without them where they cannot be written.

    A full disk or a closed pipe must not stop captions; the lines lost are counted and told of as
    soon as writing works again.
    """

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(stream)
        self.num_lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        lost = self.num_lost
        super().emit(record)
        if lost and self.num_lost == lost:
            self.num_lost = 0
            super().emit(
                logging.makeLogRecord(
                    {
                        "name": __name__,
                        "levelno": logging.WARNING,
                        "levelname": "WARNING",
                        "msg": "%d log lines could not be written",
                        "args": (lost,),
                    }
                )
            )

    def handleError(self, record: logging.LogRecord) -> None:
        if isinstance(sys.exception(), OSError):
            self.num_lost += 1
        else:
            super().handleError(record)


def set_up(level: str, log_format: str, stream: IO[str] | None = None) -> None:
    """Write log lines to a stream, stderr where none is given; call it once, in `__main__`.

    Args:
        level: debug, info, warning or error.
        log_format: text or json.
    """
    handler = Handler(stream or sys.stderr)
    handler.setFormatter(
        JsonFormatter() if log_format == "json" else logging.Formatter(TEXT_FORMAT)
    )
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
