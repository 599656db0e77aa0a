"""Each module answers one question: `python -m benchmarks.NAME`."""

import engine  # noqa: F401 - says how OpenMP waits, before a benchmark loads torch
