"""Tell a client of `/v1/stream` what is wrong with its samples; decoding puts up with all of it."""

from __future__ import annotations

import numpy as np

from streamer.audio.pcm import AudioFormat
from streamer.protocol import Start
from streamer.protocols.native.input import CONTAINER
from streamer.wire import ClientFault


class SampleCheck:
    """Looks at the sound of one session as it is taken.

    Attributes:
        num_bytes: of sound taken.
    """

    def __init__(self, start: Start) -> None:
        self.num_bytes = 0
        self._is_float = start.encoding == "pcm_f32le"
        self._frame_bytes = 1  # a container may end anywhere
        if start.encoding != CONTAINER:
            self._frame_bytes = AudioFormat(start.encoding, channels=start.channels).frame_bytes
        self._split_sample = b""  # until its other half comes

    def take(self, data: bytes) -> ClientFault | None:
        """Count a packet; tell of samples in it that are no numbers, which become silence."""
        self.num_bytes += len(data)
        if not self._is_float:
            return None
        data = self._split_sample + data
        num_whole = len(data) - len(data) % 4
        self._split_sample = data[num_whole:]
        num_bad = int(np.count_nonzero(~np.isfinite(np.frombuffer(data[:num_whole], "<f4"))))
        if num_bad == 0:
            return None
        message = f"expected finite samples, got {num_bad} that are not; they became silence"
        return ClientFault("repaired_audio", message)

    def finish(self) -> ClientFault | None:
        """Tell of a sample that is cut off by the end of the sound."""
        rest = self.num_bytes % self._frame_bytes
        if rest == 0:
            return None
        return ClientFault(
            "odd_bytes",
            f"expected a multiple of {self._frame_bytes} bytes of audio, got {self.num_bytes}; "
            f"the last {rest} are left out",
        )
