"""faster-whisper on the same model files as the engine."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from engine.checkpoint.locate import resolve_model


@contextlib.contextmanager
def lay_out(model: str) -> Iterator[str]:
    """Lay a CTranslate2 model out as faster-whisper reads it: model.bin in one piece."""
    files = resolve_model(model)
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "model.bin").open("wb") as out:
            for part in files.weights:
                with part.open("rb") as data:
                    shutil.copyfileobj(data, out)
        for path in files.config.parent.glob("*.[jt][sx]*"):  # config, tokenizer, vocabulary
            shutil.copy(path, Path(folder) / path.name)
        yield folder
