"""Import every module of the product, and run every import statement that stands in a function.

An import inside a function is not met until somebody needs it: a download, a microphone, a GPU. Run
by the interpreter that is to be tried, which needs nothing else:

    python -I tests/packages/imports.py [--path FOLDER ...] [--extra MODULE ...]

Prints each import that fails and exits with 1. Modules of extras may be missing unless named.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

PRODUCT = ("wordwire", "clients", "streamer", "engine")
# what the extras of pyproject.toml bring: cuda, microphone, transformers
OF_EXTRAS = {"triton", "sounddevice", "transformers"}


def main() -> int:
    """Run the command line.

    Returns:
        0, or 1 where an import failed.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--path", action="append", default=[], help="a folder to import from")
    parser.add_argument(
        "--extra", action="append", default=[], help="a module of an extra that must be there"
    )
    arguments = parser.parse_args()
    sys.path[:0] = arguments.path
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": f"{os.devnull}/none"}
    may_be_missing = OF_EXTRAS - set(arguments.extra)
    count, failures = 0, []
    for source, code in list_imports():
        count += 1
        try:
            exec(compile(code, source, "exec"), {})
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in may_be_missing:
                failures.append(f"{source}: {code}: {error}")
        except Exception as error:
            failures.append(f"{source}: {code}: {type(error).__name__}: {error}")
    check_download()
    for failure in failures:
        print(failure)
    print(f"{count} imports, {len(failures)} failed")
    return 1 if failures else 0


def list_imports() -> Iterator[tuple[str, str]]:
    """Yield the statements to run, with where they come from."""
    for name in PRODUCT:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise SystemExit(f"no module {name} on {sys.path}")
        is_package = spec.submodule_search_locations is not None
        root = Path(spec.origin).parent
        for path in sorted(root.rglob("*.py")) if is_package else [Path(spec.origin)]:
            parts = path.relative_to(root.parent if is_package else root).with_suffix("").parts
            module = ".".join(part for part in parts if part != "__init__")
            yield str(path), f"import {module}"
            for node in ast.walk(ast.parse(path.read_text())):
                is_plain = isinstance(node, ast.Import)
                if is_plain or (isinstance(node, ast.ImportFrom) and node.module != "__future__"):
                    yield f"{path}:{node.lineno}", ast.unparse(node)


def check_download() -> None:
    """Ask for a model that is not here, without a network: a clear error, whatever the library."""
    from engine.checkpoint.locate import ModelError, resolve_model

    try:
        resolve_model("small")
    except ModelError as error:
        print(error)
    else:
        raise SystemExit("expected an error for a model that is not on this machine")


if __name__ == "__main__":
    sys.exit(main())
