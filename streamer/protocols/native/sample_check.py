"""What is wrong with a client's samples, for it to be told; decoding copes with all of it."""

from __future__ import annotations

import numpy as np

from streamer.audio.pcm import AudioFormat
from streamer.protocol import Start
from streamer.protocols.native.audio_input import CONTAINER
from streamer.wire import ClientFault


class SampleCheck:
    """Looks at the audio of one session as it is taken.

    Attributes:
        is_float: samples may be NaN or infinite, so that `take` has to see every packet.
    """

    def __init__(self, start: Start) -> None:
        self.is_float = start.encoding == "pcm_f32le"
        self._frame_bytes = 1  # a container may end anywhere
        if start.encoding != CONTAINER:
            self._frame_bytes = AudioFormat(start.encoding, channels=start.channels).frame_bytes
        self._split_sample = b""  # until its other half comes

    def take(self, data: bytes) -> ClientFault | None:
        """Return what is wrong with a packet's samples, if anything; decoding silences them."""
        assert self.is_float, "integers are always finite"
        data = self._split_sample + data
        num_whole = len(data) - len(data) % 4
        self._split_sample = data[num_whole:]
        num_bad = int(np.count_nonzero(~np.isfinite(np.frombuffer(data[:num_whole], "<f4"))))
        if num_bad == 0:
            return None
        message = f"expected finite samples, got {num_bad} that are not; they became silence"
        return ClientFault("repaired_audio", message)

    def finish(self, num_bytes: int) -> ClientFault | None:
        """Return what is wrong with the end of that many bytes: a sample that is cut off."""
        rest = num_bytes % self._frame_bytes
        if rest == 0:
            return None
        return ClientFault(
            "odd_bytes",
            f"expected a multiple of {self._frame_bytes} bytes of audio, got {num_bytes}; "
            f"the last {rest} are left out",
        )
