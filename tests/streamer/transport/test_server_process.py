"""The listening process: its socket and its pings. How it stops is tested from outside."""

from __future__ import annotations

import socket

import pytest
from websockets.asyncio.client import connect
from websockets.frames import Frame, Opcode

from streamer.config import ServerConfig
from streamer.transport import server_process as server
from tests.support.running_service import running
from tests.support.waiting import until


def test_clients_can_connect_before_the_application_runs() -> None:
    with server.listen(ServerConfig(port=0)) as listener:
        with socket.create_connection(listener.getsockname(), timeout=20):
            pass


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(OSError):
        server.listen(ServerConfig(host="192.0.2.1", port=0))


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux only")
def test_peers_that_are_gone_are_noticed_by_the_kernel() -> None:
    with server.listen(ServerConfig(port=0)) as listener:
        with socket.create_connection(listener.getsockname(), timeout=20):
            listener.setblocking(True)
            accepted, _ = listener.accept()
            with accepted:
                found = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert found == server.PEER_TIMEOUT_MS


async def test_quiet_sockets_are_pinged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server.PING_INTERVAL_S < 30  # proxies drop what is quiet for 30 s
    monkeypatch.setattr(server, "PING_INTERVAL_S", 0.1)
    async with running() as service:
        async with connect(f"{service.ws}/v1/stream") as client:
            answers = []
            send_frame = client.protocol.send_frame

            def note(frame: Frame) -> None:
                if frame.opcode is Opcode.PONG:
                    answers.append(frame)
                send_frame(frame)

            monkeypatch.setattr(client.protocol, "send_frame", note)
            await until(lambda: len(answers) >= 3)
