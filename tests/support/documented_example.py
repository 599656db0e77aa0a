"""The example clients of the pages in docs/, run as a user would run them."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def example_of(page: str) -> str:
    """Return the first Python block of a page."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert found, f"docs/{page} shows no client"
    return found[1]


async def run_python(
    code: str, *arguments: str, path: str = "", cwd: Path | None = None, timeout_s: float = 60.0
) -> str:
    """Run code in an interpreter of its own; return what it printed.

    Args:
        path: goes in front of the module search path.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        *arguments,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, error = await process.communicate()
    except TimeoutError:
        process.kill()
        out, error = await process.communicate()
        raise AssertionError(f"still running: {out.decode()} {error.decode()}") from None
    assert process.returncode == 0, error.decode()
    return out.decode()
