"""Behind nginx with TLS, under a path of its own: the sample configuration, for real."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from streamer.config import ServerConfig
from streamer.transport import server_process as server
from tests.faults.speaker import speech, words_of
from tests.support.audio import riff
from tests.support.engines import CountingEngine
from tests.support.running_service import Running, free_port, running

SAMPLE = Path(__file__).parents[2] / "deploy/nginx.conf"
KEY = "a-key-for-the-proxy-tests"

pytestmark = pytest.mark.skipif(
    shutil.which("nginx") is None or shutil.which("openssl") is None,
    reason="nginx or openssl is not installed",
)


@dataclass(frozen=True)
class Proxied:
    """Where nginx listens, and whom it trusts."""

    service: Running
    port: int
    tls: ssl.SSLContext

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"

    def client(self, **headers: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=f"https://{self.host}/stt/", verify=self.tls, headers=headers
        )


@pytest.fixture
async def proxied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxied]:
    # the sample's times by fifteen, so that a test can wait for them
    monkeypatch.setattr(server, "PING_INTERVAL_S", 20 / 15)
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
        f"-addext subjectAltName=DNS:localhost -keyout {key} -out {certificate}".split(),
        check=True,
        capture_output=True,
    )
    config = ServerConfig(
        port=0, api_keys=(KEY,), calibrate=False, drain_timeout_s=2.0, max_failed_attempts=5
    )
    async with running(CountingEngine, config) as service:
        port = free_port()
        text = SAMPLE.read_text()
        for old, new in {
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "captions.example": "localhost",
            "/etc/ssl/wordwire.pem": str(certificate),
            "/etc/ssl/wordwire.key": str(key),
            "/var/log/nginx/wordwire.log": str(tmp_path / "access.log"),
            "127.0.0.1:8000": f"127.0.0.1:{service.port}",
            "75s": "5s",
        }.items():
            assert old in text, old
            text = text.replace(old, new)
        (tmp_path / "nginx.conf").write_text(
            f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\n"
            f"events {{}}\nhttp {{ client_body_temp_path {tmp_path}/body; "
            f"proxy_temp_path {tmp_path}/proxy;\n{text}\n}}\n"
        )
        nginx = await asyncio.create_subprocess_exec(
            "nginx", "-e", str(tmp_path / "error.log"), "-c", str(tmp_path / "nginx.conf")
        )
        tls = ssl.create_default_context(cafile=str(certificate))
        found = Proxied(service, port, tls)
        try:
            async with asyncio.timeout(60), found.client() as client:
                while True:
                    try:
                        assert (await client.get("healthz")).status_code == 200
                        break
                    except httpx.ConnectError:
                        assert nginx.returncode is None, (tmp_path / "error.log").read_text()
                        await asyncio.sleep(0.05)
            yield found
        finally:
            nginx.terminate()
            await nginx.wait()
            # the key never reaches the proxy's log
            assert KEY not in (tmp_path / "access.log").read_text()


async def test_page_files_and_socket_work_under_the_path(proxied: Proxied) -> None:
    async with proxied.client() as client:
        assert (await client.get("")).status_code == 401
        page = await client.get("", params={"key": KEY}, headers={"Accept": "text/html"})
        assert page.status_code == 200 and "secure" in page.headers["set-cookie"].lower()
        assert (await client.get("app.js")).status_code == 200  # by the cookie
        cookie = client.cookies["wordwire"]
    async with connect(
        f"wss://{proxied.host}/stt/v1/stream",
        ssl=proxied.tls,
        origin=Origin(f"https://{proxied.host}"),
        additional_headers={"Cookie": f"wordwire={cookie}"},
    ) as socket_:
        for part in ('{"type":"start","vad_threshold":0}', speech(1), '{"type":"end"}'):
            await socket_.send(part)
        messages = [json.loads(text) async for text in socket_]
    finals = " ".join(m["text"] for m in messages if m["type"] == "final")
    assert finals.split() == words_of(1)


async def test_a_foreign_page_is_refused_through_the_proxy(proxied: Proxied) -> None:
    for page in ("https://evil.example", f"https://localhost:{proxied.port + 1}"):
        with pytest.raises(InvalidStatus) as refused:
            await connect(
                f"wss://{proxied.host}/stt/v1/stream?key={KEY}",
                ssl=proxied.tls,
                origin=Origin(page),
            )
        assert refused.value.response.status_code == 403


async def test_an_address_that_a_client_claims_does_not_count(proxied: Proxied) -> None:
    statuses = []
    for number in range(8):
        claimed = {"X-Forwarded-For": f"192.0.2.{number}", "X-API-Key": f"guess-{number}"}
        async with proxied.client(**claimed) as client:
            statuses.append((await client.get("v1/info")).status_code)
    # one address guesses, whatever it calls itself
    assert statuses[0] == 401 and statuses[-1] == 429


async def test_a_quiet_session_outlives_the_proxys_patience(proxied: Proxied) -> None:
    async with connect(f"wss://{proxied.host}/stt/v1/stream?key={KEY}", ssl=proxied.tls) as quiet:
        await quiet.send('{"type":"start"}')
        assert json.loads(await quiet.recv())["type"] == "ready"
        await asyncio.sleep(7.0)  # the proxy gives up after 5 s without a byte
        await quiet.send('{"type":"end"}')
        assert json.loads(await quiet.recv())["type"] == "done"


async def test_a_recording_is_sent_through_as_it_comes(proxied: Proxied) -> None:
    async with proxied.client(Authorization=f"Bearer {KEY}") as client:
        answer = await client.post(
            "v1/audio/transcriptions",
            files={"file": ("a.wav", riff(speech(2)))},
            data={"model": "whisper-1", "language": "en"},
        )
    assert answer.status_code == 200 and answer.json()["text"].split() == words_of(2)


@pytest.mark.browser
async def test_a_person_with_a_browser_and_a_key_speaks_through_the_proxy(
    proxied: Proxied,
) -> None:
    playwright = pytest.importorskip("playwright.async_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("Chromium is not on this machine")
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=chromium,
            args=[
                "--no-sandbox",
                "--use-fake-device-for-media-stream",
                "--use-fake-ui-for-media-stream",
            ],
        )
        # the browser's own question for a name and a password
        context = await browser.new_context(
            ignore_https_errors=True, http_credentials={"username": "me", "password": KEY}
        )
        page = await context.new_page()
        await page.goto(f"https://{proxied.host}/stt/")
        await page.click("#start")
        await page.wait_for_selector("body[data-state=live]", timeout=60_000)
        assert proxied.service.service.num_sessions == 1
        await browser.close()
