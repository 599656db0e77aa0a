"""Does the whole engine on the GPU return the same text with and without drafts?"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from engine.api import SAMPLE_RATE, Hypothesis, Samples, StreamOptions, Window
from engine.config import EngineConfig
from engine.local import LocalEngine, load_engine


async def follow(engine: LocalEngine, sound: Samples, times: list[float]) -> list[Hypothesis]:
    """Decode a recording's windows as they grow by a second; the last is final, with word times."""
    said = []
    async with engine.stream(StreamOptions()) as stream:
        ends = [*range(SAMPLE_RATE, len(sound), SAMPLE_RATE), len(sound)]
        for end in ends:
            is_final = end == len(sound)
            began = time.perf_counter()
            window = Window(0, sound[:end], is_final=is_final, word_times=is_final)
            said.append(await stream.decode(window))
            times.append(time.perf_counter() - began)
    return said


def compare_drafts(model: str, sounds: list[Samples]) -> dict[str, Any]:
    """Follow recordings with drafts and without, all at once, and compare every text."""
    texts: list[list[Hypothesis]] = []
    result: dict[str, Any] = {}
    for uses_drafts in (True, False):
        engine = load_engine(EngineConfig(model=model, device="cuda", use_drafts=uses_drafts))
        try:
            times: list[float] = []

            async def run(engine: LocalEngine = engine, times: list[float] = times) -> Any:
                return await asyncio.gather(*(follow(engine, sound, times) for sound in sounds))

            began = time.perf_counter()
            said = asyncio.run(run())
            name = "drafts" if uses_drafts else "no drafts"
            result[name] = {
                "seconds": round(time.perf_counter() - began, 2),
                "p50_ms": round(statistics.median(times) * 1000, 1),
                "totals": {k: round(v, 2) for k, v in engine.counters.totals().items()},
                "eager_passes": engine.counters.num_passes - engine.counters.num_graph_passes,
                "pages_leaked": engine.num_pages - engine.num_free_pages,
            }
            texts.append([h for hypotheses in said for h in hypotheses])
            finals = [hypotheses[-1] for hypotheses in said]
            result["languages"] = sorted({h.language for h in finals})
            result["words"] = sum(len(s.words) for h in finals for s in h.segments)
        finally:
            engine.close()
    result["windows"] = len(texts[0])
    # at higher temperatures a text is drawn, and two draws differ
    greedy = [(a, b) for a, b in zip(*texts, strict=True) if a.temperature == b.temperature == 0.0]
    result["greedy"] = len(greedy)
    result["different"] = sum(a.tokens != b.tokens for a, b in greedy)
    return result
