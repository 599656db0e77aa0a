"""How long is a decoder pass on the GPU: eager, as a graph, and the least that memory allows?"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks.support.random_model import make_config, make_weights
from engine.checkpoint.model_config import ModelConfig
from engine.cuda.batch import KEEP, Row
from engine.cuda.build import build_model
from engine.cuda.decoder_graphs import DecoderGraphs
from engine.cuda.paged_attention import Pools
from engine.cuda.sampler import Sampler
from engine.decoding.rules import Rules
from engine.model.folded_tail import KeptPositions

Result = dict[str, float | int | str]
NUM_SELF = 60  # positions that each sequence has behind it, as in the engine notes' tables
REPEATS = 20


def measure_us(run: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the median time of a piece of device work, in microseconds.

    The device is kept busy until all of it is enqueued, or a graph's launch would count too.
    """
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(1_000_000)  # cycles: half a millisecond
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


def floor_us(config: ModelConfig, batch: int, num_cross: int, bytes_per_s: float) -> float:
    """Return the time to read all that a pass must: weights, K/V of both attentions."""
    C, L = config.d_model, config.decoder_layers
    weights = 2 * (L * 14 * C * C + config.vocab_size * C)
    kv = batch * 4 * L * C * (num_cross + NUM_SELF)
    return (weights + kv) / bytes_per_s * 1e6


def time_passes(
    name: str, batches: list[int], lengths: list[int], bytes_per_s: float
) -> list[Result]:
    """Time passes of one new token a sequence, on a model of random weights.

    Args:
        lengths: positions of cross-attention: 1500 for 30 s.
    """
    device, dtype = torch.device("cuda"), torch.bfloat16
    config = make_config(name)
    model = build_model(config, make_weights(config, dtype, device))
    most = max(batches)
    pools = Pools(
        config,
        num_self_pages=28 * most,
        self_page_size=16,
        num_cross_pages=30 * most,
        cross_page_size=50,
        num_slots=most,
        dtype=dtype,
        device=device,
    )
    for pool in (pools.self_kv, pools.cross_kv):
        for layer in pool:
            layer.normal_()
    rules = Rules(config.vocab_size, 50257, 50364, suppress=[1, 2, 7], device=device)
    sampler = Sampler(rules, 50361, num_slots=most, max_tokens=most, device=device)
    results: list[Result] = []
    tables = np.zeros(tuple(pools.tables.shape), dtype=np.int32)
    for batch in batches:
        graphs = DecoderGraphs(model, pools, sampler, [batch])
        graphs.capture()
        for length in lengths:
            num_pages = -(-length // 50)
            for slot in range(batch):
                pools.write_line(
                    tables[slot],
                    range(slot * 28, slot * 28 + 28),
                    range(slot * 30, slot * 30 + num_pages),
                    KeptPositions(length),
                )
            result: Result = {"model": name, "batch": batch, "positions": length}
            result["floor_us"] = round(floor_us(config, batch, length, bytes_per_s), 1)
            rows = [Row(slot, [KEEP], 0, False, 448) for slot in range(batch)]
            # the slots' own memory: where they stand, and how far they may go
            sampler._slots[:, 1], sampler._slots[:, 6] = NUM_SELF, 448
            graphs.launch(rows, tables).done.wait()
            captured = graphs._captured[batch]
            assert captured.graph is not None
            with torch.inference_mode(), torch.cuda.stream(graphs.stream):
                result["graph_us"] = round(measure_us(captured.graph.replay), 1)
                result["eager_us"] = round(measure_us(partial(graphs._run, captured), 5), 1)
            results.append(result)
            print(result, flush=True)
        del graphs
    return results
