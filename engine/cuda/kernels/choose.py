"""Choosing tokens on the device: the rules of `engine.rules`, and how a pass follows the last.

What a sequence needs from one pass to the next stays in its slot: the token it says next, where
that stands, and what the rules know of it. So a pass can start before the host has read the one
before it.
"""

# Triton compiles these functions; their arguments are not Python values
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="misc,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

# fields of a slot, int32
SLOT_FIELDS = 8
NEXT, POSITION, IS_FIRST, LAST_IS_TIME, PREVIOUS_IS_TIME, LAST_TIME, LIMIT = range(7)
# fields of a row of a pass, int32
ROW_FIELDS = 8
SLOT, FIRST, COUNT, FIRST_SAMPLED, START, ROW_LIMIT, PROBE = range(7)
KEEP = -1  # as START, which is else 0: go on where the slot stands; as a token: what it says next
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
def choose_kernel(
    logits,
    never,
    states,
    probes,
    temperatures,
    seeds,
    results,
    V,
    eot,
    time_begin,
    no_speech,
    MAX_INITIAL: tl.constexpr,
    BLOCK: tl.constexpr,
    SPECIAL_BLOCK: tl.constexpr,
    TIME_BLOCK: tl.constexpr,
):
    """Choose one row's token; results: (N, 3) int32, token, log-probability, no-speech."""
    row = tl.program_id(0)
    line = logits + row.to(tl.int64) * V
    is_first = tl.load(states + row * 4) > 0
    last_is_time = tl.load(states + row * 4 + 1) > 0
    previous_is_time = tl.load(states + row * 4 + 2) > 0
    last_time = tl.load(states + row * 4 + 3)

    i = tl.arange(0, BLOCK)
    peak = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    place = tl.zeros((BLOCK,), dtype=tl.int32)
    for start in range(0, eot, BLOCK):
        inside = start + i < eot
        x = tl.load(line + start + i, mask=inside, other=float("-inf"))
        x += tl.load(never + start + i, mask=inside, other=0.0)
        place = tl.where(x > peak, start + i, place)
        peak = tl.maximum(x, peak)
    text_peak = tl.max(peak, axis=0)
    text_token = tl.min(tl.where(peak == text_peak, place, V), axis=0)
    text_mass = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, eot, BLOCK):
        inside = start + i < eot
        x = tl.load(line + start + i, mask=inside, other=float("-inf"))
        x += tl.load(never + start + i, mask=inside, other=0.0)
        text_mass += tl.exp(x - text_peak)
    text_total = text_peak + tl.log(tl.sum(text_mass, axis=0))

    s = eot + tl.arange(0, SPECIAL_BLOCK)
    special = tl.load(line + s, mask=s < time_begin, other=float("-inf"))
    special += tl.load(never + s, mask=s < time_begin, other=0.0)
    special_peak = tl.max(special, axis=0)
    special_token = tl.min(tl.where(special == special_peak, s, V), axis=0)
    special_total = special_peak + tl.log(tl.sum(tl.exp(special - special_peak), axis=0))

    closes = last_is_time & previous_is_time
    opens = last_is_time & (previous_is_time == 0)
    earliest = last_time + tl.where(opens, 0, 1)
    t = time_begin + tl.arange(0, TIME_BLOCK)
    allowed = (t < V) & (t >= earliest) & (closes == 0)
    allowed = allowed & ((is_first == 0) | (t <= time_begin + MAX_INITIAL))
    times = tl.load(line + t, mask=t < V, other=float("-inf"))
    times += tl.load(never + t, mask=t < V, other=0.0)
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
    total = highest + tl.log(
        tl.exp(text_total - highest)
        + tl.exp(special_total - highest)
        + tl.exp(time_total - highest)
    )

    temperature = tl.load(temperatures + row)
    if temperature > 0:
        # adding Gumbel noise and taking the highest draws from the softmax
        seed = tl.load(seeds + row)
        peak = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
        place = tl.zeros((BLOCK,), dtype=tl.int32)
        for start in range(0, V, BLOCK):
            o = start + i
            x = tl.load(line + o, mask=o < V, other=float("-inf"))
            x += tl.load(never + o, mask=o < V, other=0.0)
            is_time = o >= time_begin
            may = ((o < eot) & may_text) | ((o >= eot) & (is_time == 0) & may_special)
            may_time = is_time & (o >= earliest) & (closes == 0)
            may_time = may_time & ((is_first == 0) | (o <= time_begin + MAX_INITIAL))
            x = tl.where(may | may_time, x, float("-inf"))
            uniform = tl.maximum(tl.rand(seed, o), 1e-20)
            uniform = tl.minimum(uniform, 1.0 - 5.9604645e-08)
            x -= temperature * tl.log(-tl.log(uniform))
            place = tl.where(x > peak, o, place)
            peak = tl.maximum(x, peak)
        top = tl.max(peak, axis=0)
        token = tl.min(tl.where(peak == top, place, V), axis=0)
        best = tl.load(line + token) + tl.load(never + token)

    silence = 0.0
    if tl.load(probes + row) > 0:
        # of all tokens, without any rule
        peak = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
        for start in range(0, V, BLOCK):
            x = tl.load(line + start + i, mask=start + i < V, other=float("-inf"))
            peak = tl.maximum(x, peak)
        top = tl.max(peak, axis=0)
        sums = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, V, BLOCK):
            x = tl.load(line + start + i, mask=start + i < V, other=float("-inf"))
            sums += tl.exp(x - top)
        silence = tl.exp(tl.load(line + no_speech) - top) / tl.sum(sums, axis=0)

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
