"""Audio in the containers that browsers and recorders write."""

from __future__ import annotations

import io
from fractions import Fraction

import av
import numpy as np

from engine.api import Samples


def encode(container: str, codec: str, *channels: Samples, rate: int) -> bytes:
    """Write one or two channels as a recorder would: of unknown length, where it can be."""
    file = io.BytesIO()
    options = {"live": "1"} if container == "webm" else {}
    with av.open(file, "w", format=container, options=options) as output:
        layout = {1: "mono", 2: "stereo"}[len(channels)]
        stream = output.add_stream(codec, rate=rate, layout=layout)
        frame = av.AudioFrame.from_ndarray(np.stack(channels), format="fltp", layout=layout)
        frame.sample_rate, frame.time_base, frame.pts = rate, Fraction(1, rate), 0
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
        file.close = lambda: None  # type: ignore[method-assign]  # closing the container closes it
    return file.getvalue()
