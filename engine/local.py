"""An engine in this process: a thread that decodes, behind `engine.api`."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from engine.api import (
    EngineBusy,
    EngineError,
    Hypothesis,
    ModelInfo,
    StreamOptions,
    Window,
)
from engine.batching.counters import Counters
from engine.batching.draft import Draft, move_draft
from engine.batching.finish import Finisher
from engine.batching.heap import release_heap
from engine.batching.loop import Loop
from engine.batching.request import (
    Request,
    Result,
    StreamState,
    check_options,
    check_window,
    limit_tokens,
    shift_in_steps,
    write_prefix,
)
from engine.batching.sequence import Sequence
from engine.build import build_components, read_spec
from engine.config import EngineConfig
from engine.decoding.language import StreamLanguage
from engine.decoding.prompt import PromptWriter
from engine.model.folded_tail import choose_positions


class LocalEngine:
    """A loaded model and the thread that runs it. Implements `engine.api.Engine`."""

    def __init__(self, config: EngineConfig) -> None:
        """Load a model; use `load_engine`, which also starts the thread.

        Raises:
            ModelError: the model is missing or broken.
        """
        spec = read_spec(config)
        self._spec = spec
        self.tokenizer = spec.tokenizer
        self.counters = Counters()
        parts = build_components(spec, self.counters)
        self.model, self.rules, self.runner = parts.model, parts.rules, parts.runner
        self._scheduler = parts.scheduler
        finisher = Finisher(config, spec.tokenizer, parts.runner, self.counters)
        self._loop = Loop(
            parts.scheduler,
            parts.runner,
            parts.encoder,
            finisher.finish,
            self.counters,
            tidy=release_heap,
        )
        self._ids = itertools.count()
        self._num_streams = 0

    @property
    def info(self) -> ModelInfo:
        spec = self._spec
        languages = tuple(self.tokenizer.languages) or ("en",)
        return ModelInfo(spec.config.model, languages, spec.device.type, spec.precision.name)

    @property
    def num_pages(self) -> int:
        """Pages of K/V in both pools."""
        return self._scheduler.num_pages

    @property
    def num_free_pages(self) -> int:
        return self._scheduler.num_free_pages

    @property
    def num_streams(self) -> int:
        """Streams open now."""
        return self._num_streams

    @property
    def num_waiting(self) -> int:
        """Windows that wait to be encoded."""
        return self._scheduler.num_waiting

    @property
    def num_running(self) -> int:
        """Windows that are being decoded."""
        return self._scheduler.num_running

    @property
    def is_up(self) -> bool:
        """Whether its thread decodes. Implements `engine.api.Watched`, with `num_restarts`."""
        return not self._loop.has_died

    @property
    def num_restarts(self) -> int:
        """Of itself, none: that takes another process."""
        return 0

    def statistics(self) -> Mapping[str, float]:
        """Return the counters, and what is held now. Implements `engine.api.Measured`."""
        return {
            **self.counters.totals(),
            "streams": self.num_streams,
            "waiting_windows": self.num_waiting,
            "running_windows": self.num_running,
            "max_batch": self._scheduler.max_batch,
            "max_encode_batch": self._scheduler.max_encode_batch,
            "pages": self.num_pages,
            "free_pages": self.num_free_pages,
        }

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        """Stop the thread. Decodes in flight end with StreamLost."""
        self._loop.close()

    def stream(self, options: StreamOptions) -> AbstractAsyncContextManager[LocalStream]:
        check_options(options, self.tokenizer)
        max_streams = self._spec.max_streams
        if self._num_streams >= max_streams:
            raise EngineBusy(f"{max_streams} streams are open already")
        return self._open(options)

    @asynccontextmanager
    async def _open(self, options: StreamOptions) -> AsyncIterator[LocalStream]:
        language = options.language if self.tokenizer.languages else "en"
        prompts = PromptWriter(
            self.tokenizer, options.hotwords, self._spec.model.max_target_positions
        )
        state = StreamState(next(self._ids), options, StreamLanguage(language), prompts)
        self._num_streams += 1
        try:
            yield LocalStream(self, state)
        finally:
            self._num_streams -= 1

    async def decode(self, state: StreamState, window: Window) -> Hypothesis:
        """Decode a window of a stream; cancelling it frees all that it holds."""
        check_window(window)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Hypothesis] = loop.create_future()

        def resolve(outcome: Result) -> None:
            if future.done():  # cancelled meanwhile
                return
            if isinstance(outcome, EngineError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        def on_done(outcome: Result) -> None:
            # an event loop that was closed meanwhile awaits nothing, and must not stop the engine
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(resolve, outcome)

        request = self._make_request(state, window, on_done)
        self._loop.submit(request)
        try:
            return await future
        finally:
            if future.cancelled():
                self._loop.abort(request)

    def _make_request(
        self, state: StreamState, window: Window, on_done: Callable[[Result], None]
    ) -> Request:
        spec, tokenizer = self._spec, self.tokenizer
        config = spec.model
        detected_language = state.language.fixed
        language = None if detected_language is None else detected_language.language
        prefix = write_prefix(state.prompts, window.prompt, state.options.task, language, tokenizer)
        sequence = Sequence(
            id=next(self._ids),
            stream_id=state.id,
            is_final=window.is_final,
            deadline=window.deadline,
            kept=choose_positions(
                len(window.audio),
                factor=spec.fold,
                margin=spec.margin,
                num_positions=config.max_source_positions,
            ),
            prefix=prefix,
            max_tokens=min(
                limit_tokens(len(window.audio)), config.max_target_positions - len(prefix)
            ),
            sot_index=prefix.index(tokenizer.sot),
            needs_language=detected_language is None,
            word_times=window.word_times,
            temperature=state.options.temperatures[0],
            # of its place alone, so that the same stream always gives the same text
            seed=window.start // 160 * 31 + len(window.audio),
        )
        memory = state.last_hypothesis
        if spec.config.use_drafts and memory is not None and window.start >= memory.start:
            moved = move_draft(
                memory.tokens,
                shift_in_steps(window.start - memory.start),
                tokenizer.timestamp_begin,
                config.vocab_size - tokenizer.timestamp_begin,
            )
            sequence.draft = Draft(moved, tokenizer.timestamp_begin)
        return Request(state, window, sequence, on_done, detected_language)


class LocalStream:
    """A stream of a LocalEngine. Implements `engine.api.Stream`."""

    def __init__(self, engine: LocalEngine, state: StreamState) -> None:
        self._engine = engine
        self._state = state

    async def decode(self, window: Window) -> Hypothesis:
        return await self._engine.decode(self._state, window)


def load_engine(config: EngineConfig) -> LocalEngine:
    """Load a model and start its thread. Blocks for seconds; `close` the result.

    Raises:
        ModelError: the model is missing or broken.
    """
    engine = LocalEngine(config)
    engine.start()
    return engine
