"""Teacher forcing: what would the model have said at one place of a given text?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.api import Task, Window
from engine.local import LocalEngine
from engine.model.attention import DecoderRow
from engine.model.folded_tail import choose_positions
from engine.model.mel import LogMel
from engine.model.sdpa import SdpaAttention

PAGES = 30  # of 50 encoder positions
MARGIN = 25  # positions; EngineConfig.tail_margin_s


class TeacherForcing:
    """Reads a given text with an engine's model. Use it while the engine is idle."""

    def __init__(self, engine: LocalEngine, factor: int | None) -> None:
        self._engine = engine
        self._factor = factor
        self._log_mel = LogMel(engine.model.config.num_mels)
        self._attention = SdpaAttention(
            engine.model.config,
            num_self_pages=28,
            self_page_size=16,
            num_cross_pages=PAGES,
            cross_page_size=50,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )

    @torch.inference_mode()
    def read_logits(self, window: Window, language: str, tokens: Sequence[int]) -> Tensor:
        """Return the logits after some sampled tokens: (V,), masked by the rules."""
        model, tokenizer, rules = self._engine.model, self._engine.tokenizer, self._engine.rules
        kept = choose_positions(len(window.audio), factor=self._factor, margin=MARGIN)
        attention = self._attention
        attention.plan_encoder([kept])
        mel = self._log_mel([torch.from_numpy(window.audio)])
        x = model.encode(model.embed_audio(mel, [kept]), attention)
        attention.store_cross([tuple(range(PAGES))], model.project_cross(x))
        prefix = tokenizer.start_sequence(language, Task.TRANSCRIBE)
        read = [*prefix, *tokens]
        attention.plan_decoder(
            [DecoderRow(len(read), 0, tuple(range(28)), tuple(range(PAGES)), kept)]
        )
        x = model.decode(torch.tensor(read), torch.arange(len(read)), attention)
        state = rules.follow(rules.start(1), torch.tensor(list(tokens), dtype=torch.int64))
        last = state.take(torch.tensor([len(tokens)]))
        return rules.mask(model.compute_logits(x[-1:]), last)[0]

    def measure_gap(
        self, window: Window, language: str, a: Sequence[int], b: Sequence[int], at: int
    ) -> float:
        """Return how far apart two texts' tokens are where they part, in log-probability.

        Args:
            at: the first place that differs; a text that is no longer than that has ended there.
        """
        logits = self.read_logits(window, language, a[:at])
        ended = self._engine.tokenizer.eot
        x, y = (text[at] if at < len(text) else ended for text in (a, b))
        return abs(float(logits[x] - logits[y]))
