"""What an engine has done since it started: for metrics, benchmarks and tests."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Written by the engine's thread only; each read is of one number."""

    num_encodes: int = 0  # encoder calls
    num_encoded: int = 0  # windows in them
    num_passes: int = 0  # decoder steps
    num_graph_passes: int = 0  # of those, replays of a CUDA graph: on a GPU, all of them
    num_rows: int = 0  # sequences in them
    num_drafted: int = 0  # tokens proposed by drafts
    num_accepted: int = 0  # of those, tokens kept
    num_sampled: int = 0  # tokens kept, accepted ones and end tokens included
    num_attempts: int = 0  # decodes brought to an end, those at higher temperatures included
    num_failures: int = 0  # encodes or steps that raised
    encode_s: float = 0.0  # time spent in encoder calls
    decode_s: float = 0.0  # time spent in decoder calls

    def totals(self) -> dict[str, float]:
        """Name the counters as metrics do: `num_encodes` is `encodes_total`."""
        found: dict[str, float] = {}
        for name, value in dataclasses.asdict(self).items():
            plain = name.removeprefix("num_")
            found[
                f"{plain.removesuffix('_s')}_seconds_total"
                if plain.endswith("_s")
                else f"{plain}_total"
            ] = value
        return found
