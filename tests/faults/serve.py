"""Serve with a deterministic engine in a process of its own: what the fault tests do harm to.

`python -m tests.faults.serve --port 0 ...` says where it listens, as `wordwire serve` does.
"""

from __future__ import annotations

import argparse
import os
import sys

from engine.process.pending import Limits
from engine.process.remote import RemoteEngine
from engine.process.wire import Recipe
from streamer import options
from streamer.app import create_app
from streamer.config import ServerConfig
from streamer.operations import logs
from streamer.transcription import pace
from streamer.transport import server_process as server
from tests.support.engines import Pace


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cost-s", type=float, default=0.01)
    parser.add_argument("--width", type=int, default=8)
    options.add_options(parser, ServerConfig, "service")
    arguments = parser.parse_args()
    config = options.build(ServerConfig, arguments, os.environ, {})
    logs.set_up(config.log_level, config.log_format)
    server.quiet_uvicorn()
    # a client whose machine stands still for a second has not stopped to speak
    pace.STALL_TIMEOUT_S = 10.0
    speed = Pace(arguments.cost_s, arguments.width, num_free=2)
    recipe = Recipe("tests.support.engines", "make_counting", speed)
    engine = RemoteEngine(recipe, Limits(hang_s=config.engine_hang_s))

    def load() -> RemoteEngine:
        engine.start()
        return engine

    with server.listen(config) as listener:
        app = create_app(load, config)
        port = listener.getsockname()[1]
        print(f"Wordwire at http://127.0.0.1:{port}", file=sys.stderr, flush=True)
        server.Server(app, app.state.service, config).run(sockets=[listener])
    engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
