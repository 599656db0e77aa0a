"""How many sessions this machine can serve: measured before the first one comes.

Windows of faint noise are decoded side by side. A model writes about as much for them as for
speech, so they cost about the same (base on 2 cores: 10 tokens for 4 s of noise, 14 of speech).
"""

from __future__ import annotations

import asyncio
import logging
import time

import numpy as np

from engine.api import SAMPLE_RATE, Engine, EngineBusy, StreamOptions, Window

logger = logging.getLogger(__name__)

WINDOW_LENGTH = 4 * SAMPLE_RATE  # the mean window of a session that slides at sentence ends
PERIOD_S = 0.5  # a session at the limit still gets a window this often: it marks one each 0.6 s
LAST_ROUND_S = 2.0  # a round that takes longer is the last one
MAX_WINDOWS = 512  # in one round
MIN_GAIN = 1.1  # a round twice as large that is not so much faster is the last one


async def measure_capacity(engine: Engine) -> float:
    """Measure how many sessions the engine can serve at once.

    Rounds double until they bring no more windows a second.

    Returns:
        Sessions, at one window each PERIOD_S.
    """
    num_windows, best = 1, 0.0
    while num_windows <= MAX_WINDOWS:
        start = time.monotonic()
        decodes = (_decode(engine, seed) for seed in range(num_windows))
        failures = [
            failure
            for failure in await asyncio.gather(*decodes, return_exceptions=True)
            if failure is not None
        ]
        if any(isinstance(failure, EngineBusy) for failure in failures):
            break
        if failures:
            raise failures[0]
        elapsed_s = max(time.monotonic() - start, 1e-6)
        rate = num_windows / elapsed_s
        has_gained = rate > best * MIN_GAIN
        best = max(best, rate)
        if elapsed_s > LAST_ROUND_S or not has_gained:
            break
        num_windows *= 2
    logger.info("measured %.1f windows a second", best)
    return best * PERIOD_S


async def _decode(engine: Engine, seed: int) -> None:
    audio = np.random.default_rng(seed).normal(0, 1e-3, WINDOW_LENGTH).astype(np.float32)
    options = StreamOptions(language=engine.info.languages[0], temperatures=(0.0,))
    async with engine.stream(options) as stream:
        await stream.decode(Window(start=0, audio=audio, is_final=True, word_times=True))
