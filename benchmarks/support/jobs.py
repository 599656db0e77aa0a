"""Windows to decode, given to a runner so that its sequences come and go at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np

from engine.api import SAMPLE_RATE, Samples
from engine.batching.device_encoder import InFlight
from engine.batching.draft import Draft
from engine.batching.loop import ModelRunner
from engine.batching.request import MAX_TOKENS
from engine.batching.scheduler import ADMIT_ALL, ADMIT_NONE, Encode, Scheduler
from engine.batching.sequence import Sequence
from engine.decoding.tokenizer import Tokenizer
from engine.model.folded_tail import choose_positions

MARGIN = 25  # positions; EngineConfig.tail_margin_s


@dataclass(frozen=True, slots=True)
class Job:
    """A window to decode, and what a client would say of it."""

    sound: Samples
    prefix: tuple[int, ...]
    sot_index: int
    max_tokens: int
    draft: tuple[int, ...] = ()
    temperature: float = 0.0
    aborts_after: int | None = None  # passes; None: it is decoded to its end


def make_job(tokenizer: Tokenizer, sound: Samples) -> Job:
    """Ask for an English transcript with timestamps, without a prompt."""
    assert tokenizer.transcribe is not None
    prefix = (tokenizer.sot, tokenizer.languages["en"], tokenizer.transcribe)
    return Job(sound, prefix, 0, MAX_TOKENS)


def make_jobs(
    count: int,
    tokenizer: Tokenizer,
    seed: int,
    *,
    longest_s: float = 30.0,
    longest_text: int = 60,
    longest_prompt: int = 60,
) -> list[Job]:
    """Draw windows of noise with prompts, drafts and limits of all lengths."""
    draw = random.Random(seed)
    noise = np.random.default_rng(seed).standard_normal(30 * SAMPLE_RATE).astype(np.float32)
    start = [tokenizer.sot, *list(tokenizer.languages.values())[:1], tokenizer.transcribe]
    jobs = []
    for _ in range(count):
        length = int(SAMPLE_RATE * draw.uniform(0.3, longest_s))
        at = draw.randrange(len(noise) - length + 1)
        prompt = [draw.randrange(1000, 20000) for _ in range(draw.randrange(longest_prompt + 1))]
        if draw.random() < 0.5:
            prompt = []
        before = [tokenizer.start_of_prev, *prompt] if prompt else []
        prefix = [t for t in (*before, *start) if t is not None]
        jobs.append(
            Job(
                noise[at : at + length] * draw.uniform(0.01, 0.3),
                tuple(prefix),
                len(before),
                draw.randrange(1, longest_text + 1),
                aborts_after=draw.randrange(1, 8) if draw.random() < 0.1 else None,
            )
        )
    return jobs


def run_jobs(
    jobs: Rows[Job],
    runner: ModelRunner,
    scheduler: Scheduler,
    tokenizer: Tokenizer,
    *,
    fold: int | None,
    at_once: int,
    seed: int = 1,
    eagerness: float = 0.7,
    on_turn: Callable[[], None] = lambda: None,
) -> list[Sequence]:
    """Run all jobs, which join at random moments, and return their sequences in the jobs' order.

    Args:
        eagerness: the chance that a free place is taken at once.
    """
    draw = random.Random(seed)
    made: list[Sequence] = []
    sounds: dict[int, Samples] = {}
    open_jobs: dict[int, Job] = {}
    by_id: dict[int, Sequence] = {}
    encoding: InFlight | None = None
    while len(made) < len(jobs) or open_jobs:
        while len(made) < len(jobs) and len(open_jobs) < at_once:
            if open_jobs and draw.random() > eagerness:
                break
            job = jobs[len(made)]
            sequence = _make_sequence(job, len(made), tokenizer, fold)
            made.append(sequence)
            by_id[sequence.id], open_jobs[sequence.id] = sequence, job
            sounds[sequence.id] = job.sound
            scheduler.add(sequence)
        is_free = encoding is None or encoding.is_over()
        work = scheduler.next(ADMIT_ALL if is_free else ADMIT_NONE)
        if isinstance(work, Encode):
            encoding = runner.encode(work.sequences, [sounds.pop(s.id) for s in work.sequences])
        elif work is not None:
            runner.step(work.sequences)
        for id, job in list(open_jobs.items()):
            sequence = by_id[id]
            aborts = job.aborts_after is not None and sequence.num_steps >= job.aborts_after
            if sequence.is_stopped or aborts:
                del open_jobs[id]
                scheduler.release(sequence)
                runner.forget(sequence)
        on_turn()
    return made


def _make_sequence(job: Job, id: int, tokenizer: Tokenizer, fold: int | None) -> Sequence:
    sequence = Sequence(
        id=id,
        stream_id=id,
        is_final=False,
        deadline=0.0,
        kept=choose_positions(len(job.sound), factor=fold, margin=MARGIN),
        prefix=list(job.prefix),
        max_tokens=job.max_tokens,
        sot_index=job.sot_index,
        temperature=job.temperature,
    )
    if job.draft:
        sequence.draft = Draft(job.draft, tokenizer.timestamp_begin)
    return sequence
