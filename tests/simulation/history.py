"""A history: all that happens to one session, drawn from a seed.

A history is a value. Running it twice gives the same events, and a part of it is a history again,
so one that fails can be made smaller until every line of it is needed.
"""

from __future__ import annotations

import dataclasses
import enum
import random
from dataclasses import dataclass

from engine.api import SAMPLE_RATE
from streamer.transcription.settings import Delay, Endpointing, SessionSettings
from tests.simulation.track import Spoken

MAX_LOST = 5  # decodes in a row; a session gives up after one more (streamer.session.engine_retry)


class Act(enum.Enum):
    """What the client does besides sending audio."""

    FINALIZE = "finalize"
    FORGET = "forget"
    UPDATE = "update"  # to other settings
    PAUSE = "pause"  # sends nothing for a while, then goes on with what follows
    STALL = "stall"  # its packets are held up for a while, then come all at once
    STANDSTILL = "standstill"  # our process stands still for a while: the clock jumps
    BREAK = "break"  # the connection breaks; it comes back after a while and resumes


@dataclass(frozen=True, slots=True)
class Deed:
    """An act, done when so much audio was sent."""

    at: int  # samples
    act: Act
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """How the engine answers one window."""

    cost_s: float
    is_lost: bool = False  # its stream dies instead


@dataclass(frozen=True, slots=True)
class Manner:
    """What the engine does to the text of windows. Shares are of windows or of words, 0 to 1."""

    waver: float = 0.0  # misreads the last two words of windows that end near them
    omit: float = 0.0  # leaves out a word that ends near the end of a window that is not final
    unsure: float = 0.0  # words of low probability
    jitter: int = 0  # samples by which the times of words are wrong
    # words that are taken to last until the next one. Not drawn: `alignment` goes by times, too,
    # and may take a settled word that lasts seconds longer in a later window for another one
    stretch: float = 0.0
    foreign: float = 0.0  # windows that are taken for another language, where none is given


@dataclass(frozen=True, slots=True)
class History:
    """One session from its first sample to its last Final."""

    seed: int
    settings: SessionSettings
    lead: int  # samples of quiet at the start
    words: tuple[Spoken, ...]
    packets: tuple[int, ...]  # sizes in samples, in turn
    speed: float  # seconds of audio that are sent a second
    deeds: tuple[Deed, ...]  # in order
    answers: tuple[Answer, ...]  # in turn
    manner: Manner
    updates: tuple[SessionSettings, ...] = ()  # in turn, at each Act.UPDATE

    @property
    def length(self) -> int:
        """Samples in all."""
        return self.lead + sum(word.length + word.gap for word in self.words)

    def describe(self) -> str:
        """Write it as the expression that builds it, one part a line."""
        lines = [f"seed {self.seed}, {self.length / SAMPLE_RATE:.1f} s of audio"]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in ("words", "deeds", "answers", "updates"):
                lines += [f"  {field.name}:", *(f"    {_plain(item)}" for item in value)]
            elif field.name != "seed":
                lines.append(f"  {field.name}: {_plain(value)}")
        return "\n".join(lines)


def _plain(value: object) -> str:
    """Write a dataclass with the fields that differ from their defaults."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return repr(value)
    said = []
    for field in dataclasses.fields(value):
        each = getattr(value, field.name)
        if each != field.default:
            said.append(f"{field.name}={each if isinstance(each, enum.Enum) else repr(each)}")
    return f"{type(value).__name__}({', '.join(said)})"


def make_history(seed: int) -> History:
    """Draw a history: most are calm in most respects, so that a fault is seen apart from others."""
    rng = random.Random(seed)
    settings = _settings(rng)
    words = _words(rng)
    lead = round(rng.uniform(0.0, 1.5) * SAMPLE_RATE)
    speed = rng.choice([1.0, 1.0, 1.0, 1.02, 4.0, 1000.0])
    history = History(
        seed=seed,
        settings=settings,
        lead=lead,
        words=words,
        packets=_packets(rng),
        speed=speed,
        deeds=(),
        answers=_answers(rng),
        manner=_manner(rng),
        updates=tuple(_update(rng, settings) for _ in range(2)),
    )
    return dataclasses.replace(history, deeds=_deeds(rng, history.length, settings))


def _settings(rng: random.Random) -> SessionSettings:
    return SessionSettings(
        language=rng.choice(["en", "en", None]),
        word_times=rng.random() < 0.7,
        partials=rng.random() < 0.7,
        delay=rng.choice(list(Delay)),
        endpointing=rng.choice([Endpointing.SPEECH] * 3 + [Endpointing.MANUAL]),
        silence_ms=rng.choice([750, 750, 100, 300, 1_500, 4_000]),
        pre_roll_ms=rng.choice([300, 300, 0, 1_000]),
        max_segment_s=rng.choice([30.0, 30.0, 2.0, 5.0, 120.0]),
        vad_threshold=rng.choice([0.5] * 9 + [0.0]),
    )


def _update(rng: random.Random, settings: SessionSettings) -> SessionSettings:
    return dataclasses.replace(
        settings,
        language=rng.choice(["en", None]),
        prompt=rng.choice(["", "Wordwire"]),
        silence_ms=rng.choice([settings.silence_ms, 300, 2_000]),
    )


def _words(rng: random.Random) -> tuple[Spoken, ...]:
    """Say sentences of numbered words; in some histories the same few over and over."""
    repeats = rng.random() < 0.15
    long_pause = rng.choice([0.0, 0.0, 0.02, 0.1])  # share of the pauses
    soft = rng.choice([0.0, 0.0, 0.2])  # share of the words that begin softly
    noise = rng.choice([0.0, 0.0, 0.1])  # share of noises among the words
    longest_noise_s = rng.choice([0.5, 0.5, 6.0, 40.0])
    shortest_gap = rng.choice([320, 960, 1_600])
    words: list[Spoken] = []
    for _ in range(rng.choice([1, 1, 2, 2, 3, 4, 8])):
        length = rng.choice([1, 1, 2, 3, 5, 8, 13, 30])
        for index in range(length):
            is_last = index == length - 1
            text = f"r{rng.randrange(4)}" if repeats else f"w{len(words)}"
            gap = round(rng.uniform(shortest_gap, 2 * shortest_gap))
            if is_last:
                pause_s = rng.uniform(0.1, 2.5)
                if rng.random() < long_pause:
                    pause_s = rng.choice([5.0, 12.0, 33.0, 50.0])
                gap = round(pause_s * SAMPLE_RATE)
            size = round(rng.uniform(0.2, 0.5) * SAMPLE_RATE)
            is_soft, is_noise = rng.random() < soft, rng.random() < noise
            if is_noise:
                size = round(rng.uniform(0.02, longest_noise_s) * SAMPLE_RATE)
            num_soft = round(rng.uniform(0.0, 0.3) * size) if is_soft else 0
            words.append(Spoken("" if is_noise else text + "." * is_last, size, gap, num_soft))
    return tuple(words)


def _packets(rng: random.Random) -> tuple[int, ...]:
    sizes = [1_600, 1_600, 3_200, 3_200, 8_000, 16_000]
    if rng.random() < 0.6:
        return (rng.choice([320, *sizes]),)
    odd = [1, 37, 511, 48_000]
    return tuple(rng.choice([*sizes, *odd]) for _ in range(rng.randint(1, 5))) + (1_600,)


def _answers(rng: random.Random) -> tuple[Answer, ...]:
    base_s = rng.choice([0.0, 0.05, 0.15, 0.15, 0.3, 0.8, 2.0])
    lost = rng.choice([0.0, 0.0, 0.05, 0.3])
    slow = rng.choice([0.0, 0.0, 0.05])
    answers: list[Answer] = []
    num_lost = 0  # in a row
    for _ in range(rng.choice([1, 7, 31])):
        is_lost = rng.random() < lost and num_lost < MAX_LOST
        num_lost = num_lost + 1 if is_lost else 0
        cost_s = base_s * rng.uniform(0.5, 2.0)
        if rng.random() < slow:
            cost_s += rng.choice([1.0, 5.0, 30.0])  # hangs; its process is killed after 30 s
        answers.append(Answer(round(cost_s, 3), is_lost))
    if answers[-1].is_lost or answers[0].is_lost:
        answers.append(Answer(base_s))  # they are taken in turn: no more than MAX_LOST in a row
    return tuple(answers)


def _manner(rng: random.Random) -> Manner:
    return Manner(
        waver=rng.choice([0.0, 0.3, 0.6]),
        omit=rng.choice([0.0, 0.0, 0.5]),
        unsure=rng.choice([0.0, 0.0, 0.2, 0.6]),
        jitter=rng.choice([0, 0, 160, 640]),
        foreign=rng.choice([0.0, 0.0, 0.2]),
    )


def _deeds(rng: random.Random, length: int, settings: SessionSettings) -> tuple[Deed, ...]:
    acts = rng.choice(
        [
            (),
            (Act.FINALIZE,),
            (Act.FINALIZE, Act.FORGET),
            (Act.UPDATE,),
            (Act.PAUSE, Act.STALL, Act.STANDSTILL),
            tuple(Act),
        ]
    )
    if settings.is_manual and Act.FINALIZE not in acts:
        acts += (Act.FINALIZE,)
    if not acts:
        return ()
    deeds = []
    for _ in range(rng.randint(1, 6)):
        act = rng.choice(acts)
        is_timed = act in (Act.PAUSE, Act.STALL, Act.STANDSTILL, Act.BREAK)
        seconds = rng.choice([0.3, 1.5, 4.0, 20.0]) if is_timed else 0.0
        deeds.append(Deed(rng.randrange(length), act, seconds))
    return tuple(sorted(deeds, key=lambda deed: deed.at))
