"""Sample tokens on the device by the rules of `engine.decoding.rules`, and link step to step.

What a sequence needs from one step to the next stays in its slot: the token sampled last, where
that stands, and what the rules know of it. So a step can start before the host has read the one
before it.
"""

from __future__ import annotations

import triton
import triton.language as tl

SLOT_FIELDS = (
    8  # the token sampled last, its position, the rules' state (4), the limit of positions
)
SCAN_FIELDS = 8  # of a chunk of words
STATE_FIELDS = 4  # of a token: the rules' state before the next one is sampled


@triton.jit
def prepare_kernel(rows, given, slots, tokens, positions, states, probes, time_begin):
    """Write out what the tokens of one row are, where they stand, and the rules' states."""
    row = tl.program_id(0)
    count = tl.load(rows + row * 8 + 2)
    if count > 0:
        slot = slots + tl.load(rows + row * 8) * 8
        first = tl.load(rows + row * 8 + 1)
        first_sampled = tl.load(rows + row * 8 + 3)
        starts = tl.load(rows + row * 8 + 4) == 0
        probe = tl.load(rows + row * 8 + 6)
        # a sequence that starts has sampled nothing yet
        said = tl.load(slot)
        is_first = tl.where(starts, 1, tl.load(slot + 2))
        last_is_time = tl.where(starts, 0, tl.load(slot + 3))
        previous_is_time = tl.where(starts, 1, tl.load(slot + 4))
        last_time = tl.where(starts, time_begin - 1, tl.load(slot + 5))
        # one that the host does not yet know to have ended must stay in its own pages
        limit = tl.where(starts, tl.load(rows + row * 8 + 5), tl.load(slot + 6))
        base = tl.minimum(tl.where(starts, 0, tl.load(slot + 1)), limit - count)
        for i in range(count):
            token = tl.load(given + first + i)
            token = tl.where(token < 0, said, token)
            if i > first_sampled:
                is_time = (token >= time_begin).to(tl.int32)
                previous_is_time = last_is_time | is_first
                is_first = is_first * 0
                last_is_time = is_time
                last_time = tl.where(is_time > 0, token, last_time)
            tl.store(tokens + first + i, token.to(tl.int64))
            tl.store(positions + first + i, (base + i).to(tl.int64))
            tl.store(probes + first + i, (probe == i).to(tl.int32))
            state = states + (first + i) * 4
            tl.store(state, is_first)
            tl.store(state + 1, last_is_time)
            tl.store(state + 2, previous_is_time)
            tl.store(state + 3, last_time)


@triton.jit
def scan_kernel(
    logits,
    never,
    temperatures,
    seeds,
    positions,
    scans,
    V,
    stride,
    eot,
    NUM_CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Look through one chunk of the words: (N, NUM_CHUNKS, SCAN_FIELDS) float32.

    The highest and where it is, and the sum of the exponentials; the same two of the logits before
    any rule; the highest with noise, and where it is.
    """
    row = tl.program_id(1)
    chunk = tl.program_id(0)
    o = chunk * BLOCK + tl.arange(0, BLOCK)
    inside = o < eot
    raw = tl.load(logits + row.to(tl.int64) * stride + o, mask=inside, other=float("-inf"))
    x = raw + tl.load(never + o, mask=inside, other=0.0)
    peak = tl.max(x, axis=0)
    token = tl.min(tl.where(x == peak, o, V), axis=0)
    mass = tl.sum(tl.exp(x - tl.where(peak == float("-inf"), 0.0, peak)), axis=0)
    raw_peak = tl.max(raw, axis=0)
    raw_mass = tl.sum(tl.exp(raw - raw_peak), axis=0)
    scan = scans + (row * NUM_CHUNKS + chunk) * 8
    tl.store(scan, peak)
    tl.store(scan + 1, token.to(tl.float32, bitcast=True))
    tl.store(scan + 2, mass)
    tl.store(scan + 3, raw_peak)
    tl.store(scan + 4, raw_mass)
    temperature = tl.load(temperatures + row)
    if temperature > 0:
        # adding Gumbel noise and taking the highest draws from the softmax
        seed = tl.load(seeds + row) * 512 + tl.load(positions + row).to(tl.int32)
        noisy = x + temperature * draw_gumbel(seed, o)
        top = tl.max(noisy, axis=0)
        place = tl.min(tl.where(noisy == top, o, V), axis=0)
        tl.store(scan + 5, top)
        tl.store(scan + 6, place.to(tl.float32, bitcast=True))


@triton.jit
def draw_gumbel(seed, o):
    uniform = tl.minimum(tl.maximum(tl.rand(seed, o), 1e-20), 1.0 - 5.9604645e-08)
    return -tl.log(-tl.log(uniform))


@triton.jit
def sample_kernel(
    logits,
    never,
    scans,
    states,
    probes,
    temperatures,
    seeds,
    positions,
    results,
    V,
    stride,
    eot,
    time_begin,
    no_speech,
    MAX_INITIAL: tl.constexpr,
    NUM_CHUNKS: tl.constexpr,
    CHUNK_BLOCK: tl.constexpr,
    SPECIAL_BLOCK: tl.constexpr,
    TIME_BLOCK: tl.constexpr,
):
    """Choose one row's token; results: (N, 3) int32, token, log-probability, no-speech."""
    row = tl.program_id(0)
    line = logits + row.to(tl.int64) * stride
    is_first = tl.load(states + row * 4) > 0
    last_is_time = tl.load(states + row * 4 + 1) > 0
    previous_is_time = tl.load(states + row * 4 + 2) > 0
    last_time = tl.load(states + row * 4 + 3)

    c = tl.arange(0, CHUNK_BLOCK)
    is_chunk = c < NUM_CHUNKS
    scan = scans + (row * NUM_CHUNKS + c) * 8
    peaks = tl.load(scan, mask=is_chunk, other=float("-inf"))
    places = tl.load(scan + 1, mask=is_chunk, other=0.0).to(tl.int32, bitcast=True)
    masses = tl.load(scan + 2, mask=is_chunk, other=0.0)
    text_peak = tl.max(peaks, axis=0)
    text_token = tl.min(tl.where(peaks == text_peak, places, V), axis=0)
    text_total = text_peak + tl.log(tl.sum(masses * tl.exp(peaks - text_peak), axis=0))

    s = eot + tl.arange(0, SPECIAL_BLOCK)
    raw_special = tl.load(line + s, mask=s < time_begin, other=float("-inf"))
    special = raw_special + tl.load(never + s, mask=s < time_begin, other=0.0)
    special_peak = tl.max(special, axis=0)
    special_token = tl.min(tl.where(special == special_peak, s, V), axis=0)
    special_total = special_peak + tl.log(tl.sum(tl.exp(special - special_peak), axis=0))

    closes = last_is_time & previous_is_time
    opens = last_is_time & (previous_is_time == 0)
    earliest = last_time + tl.where(opens, 0, 1)
    t = time_begin + tl.arange(0, TIME_BLOCK)
    allowed = (t < V) & (t >= earliest) & (closes == 0)
    allowed = allowed & ((is_first == 0) | (t <= time_begin + MAX_INITIAL))
    raw_times = tl.load(line + t, mask=t < V, other=float("-inf"))
    times = raw_times + tl.load(never + t, mask=t < V, other=0.0)
    times = tl.where(allowed, times, float("-inf"))
    time_peak = tl.max(times, axis=0)
    time_token = tl.min(tl.where(times == time_peak, t, V), axis=0)
    # where no timestamp is allowed the peak is -inf, and so must be the sum
    time_shift = tl.where(time_peak == float("-inf"), 0.0, time_peak)
    time_total = time_shift + tl.log(tl.sum(tl.exp(times - time_shift), axis=0))

    may_text = (opens == 0) & (is_first == 0)
    may_special = is_first == 0
    text_best = tl.where(may_text, text_peak, float("-inf"))
    special_best = tl.where(may_special, special_peak, float("-inf"))
    # a timestamp is due when all of them together are more probable than any other token
    is_due = time_total > tl.maximum(text_best, special_best)
    may_text = may_text & (is_due == 0)
    may_special = may_special & (is_due == 0)
    text_best = tl.where(may_text, text_peak, float("-inf"))
    special_best = tl.where(may_special, special_peak, float("-inf"))

    token = text_token
    best = text_best
    token = tl.where(special_best > best, special_token, token)
    best = tl.maximum(special_best, best)
    token = tl.where(time_peak > best, time_token, token)
    best = tl.maximum(time_peak, best)
    text_total = tl.where(may_text, text_total, float("-inf"))
    special_total = tl.where(may_special, special_total, float("-inf"))
    highest = tl.maximum(tl.maximum(text_total, special_total), time_total)
    total = tl.exp(text_total - highest) + tl.exp(special_total - highest)
    total = highest + tl.log(total + tl.exp(time_total - highest))

    temperature = tl.load(temperatures + row)
    if temperature > 0:
        seed = tl.load(seeds + row) * 512 + tl.load(positions + row).to(tl.int32)
        drawn = tl.load(scan + 5, mask=is_chunk, other=float("-inf"))
        drawn_places = tl.load(scan + 6, mask=is_chunk, other=0.0).to(tl.int32, bitcast=True)
        top = tl.max(drawn, axis=0)
        token = tl.min(tl.where(drawn == top, drawn_places, V), axis=0)
        top = tl.where(may_text, top, float("-inf"))
        noisy = special + temperature * draw_gumbel(seed, s)
        peak = tl.where(may_special, tl.max(noisy, axis=0), float("-inf"))
        token = tl.where(peak > top, tl.min(tl.where(noisy == peak, s, V), axis=0), token)
        top = tl.maximum(peak, top)
        noisy = times + temperature * draw_gumbel(seed, t)
        peak = tl.max(noisy, axis=0)
        token = tl.where(peak > top, tl.min(tl.where(noisy == peak, t, V), axis=0), token)
        best = tl.load(line + token) + tl.load(never + token)

    silence = tl.full([], 0.0, tl.float32)
    if tl.load(probes + row) > 0:
        # of all tokens, without any rule
        raw_peaks = tl.load(scan + 3, mask=is_chunk, other=float("-inf"))
        raw_masses = tl.load(scan + 4, mask=is_chunk, other=0.0)
        top = tl.maximum(tl.max(raw_peaks, axis=0), tl.max(raw_special, axis=0))
        top = tl.maximum(top, tl.max(raw_times, axis=0))
        sums = tl.sum(raw_masses * tl.exp(raw_peaks - top), axis=0)
        sums += tl.sum(tl.exp(raw_special - top), axis=0) + tl.sum(tl.exp(raw_times - top), axis=0)
        silence = tl.exp(tl.load(line + no_speech) - top) / sums

    tl.store(results + row * 3, token)
    tl.store(results + row * 3 + 1, (best - total).to(tl.int32, bitcast=True))
    tl.store(results + row * 3 + 2, silence.to(tl.int32, bitcast=True))


@triton.jit
def accept_kernel(rows, tokens, positions, states, results, slots, eot, time_begin):
    """Keep what greedy decoding gives, up to the first token that the draft got wrong."""
    row = tl.program_id(0)
    count = tl.load(rows + row * 8 + 2)
    if count > 0:
        slot = slots + tl.load(rows + row * 8) * 8
        first = tl.load(rows + row * 8 + 1)
        at = tl.load(rows + row * 8 + 3)
        base = tl.load(positions + first).to(tl.int32)
        if tl.load(rows + row * 8 + 4) == 0:
            tl.store(slot + 6, tl.load(rows + row * 8 + 5))
        if at >= count:  # only the start of transcript was read
            tl.store(slot + 1, base + count)
            tl.store(slot + 2, 1)
            tl.store(slot + 3, 0)
            tl.store(slot + 4, 1)
            tl.store(slot + 5, time_begin - 1)
        else:
            chosen = tl.load(results + (first + at) * 3)
            going = at + 1 < count
            while going:
                proposed = tl.load(tokens + first + at + 1).to(tl.int32)
                going = (proposed == chosen) & (chosen != eot)
                if going:
                    at += 1
                    chosen = tl.load(results + (first + at) * 3)
                    going = at + 1 < count
            state = states + (first + at) * 4
            is_time = (chosen >= time_begin).to(tl.int32)
            tl.store(slot, chosen)
            tl.store(slot + 1, base + at + 1)
            tl.store(slot + 2, 0)
            tl.store(slot + 3, is_time)
            tl.store(slot + 4, tl.load(state + 1) | tl.load(state))
            tl.store(slot + 5, tl.where(is_time > 0, chosen, tl.load(state + 3)))
