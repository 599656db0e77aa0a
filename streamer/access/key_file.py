"""Where keys come from: the environment and a file that is read again when it changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from streamer.access.keys import (
    Access,
    KeyFileError,
    KeyLimits,
    KeyRing,
    TokenSigner,
    parse_key_file,
    parse_keys,
)
from streamer.config import ServerConfig

logger = logging.getLogger(__name__)

POLL_S = 2.0  # between two looks at the file


class KeySource:
    """Reads the keys that a configuration names."""

    def __init__(self, config: ServerConfig) -> None:
        self._secrets = config.api_keys
        self._path = Path(config.api_key_file) if config.api_key_file else None
        self._limits = KeyLimits(
            config.key_max_sessions or None, config.key_audio_s_per_minute or None
        )
        # called when other keys are in force; set by the gate, which closes what a lost key opened
        self.on_reload: Callable[[], None] = lambda: None
        self._stamp: tuple[int, int, int] | None = None  # of the file as it was read last
        self.access = Access(
            self._read(),
            TokenSigner(config.token_secret),
            is_required=bool(config.api_keys or config.api_key_file),
        )

    def reload(self) -> None:
        """Read the keys again; a file that cannot be used leaves those in force."""
        try:
            self.access.ring = self._read()
        except KeyFileError as error:
            logger.error("the keys stay as they are: %s", error)
        else:
            logger.info("%d keys in force", len(self.access.ring))
            self.on_reload()

    def reload_if_changed(self) -> None:
        if self._path is not None and self._look() != self._stamp:
            self.reload()

    def _read(self) -> KeyRing:
        keys = parse_keys(self._secrets, self._limits)
        if self._path is not None:
            self._stamp = self._look()
            try:
                keys += parse_key_file(self._path.read_text(), self._limits)
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
                raise KeyFileError(f"cannot read {self._path}: {reason}") from None
            except KeyFileError as error:
                raise KeyFileError(f"{self._path}: {error}") from None
        return KeyRing(keys)

    def _look(self) -> tuple[int, int, int] | None:
        assert self._path is not None
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
