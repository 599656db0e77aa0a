"""`/v1/audio/transcriptions`, `/v1/audio/translations` and `/v1/models`, as OpenAI has them.

docs/openai.md says what of them is served. A request is one task: reading the form, decoding the
file in a thread, transcribing it, writing the answer. All of it stops when the client leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import secrets
import time
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from engine.api import EngineBusy, InvalidRequest, Task
from streamer.access.refusal import no_room
from streamer.audio.error import AudioError
from streamer.audio.file_source import Recording
from streamer.protocols.model_names import names
from streamer.protocols.openai import format as write
from streamer.protocols.openai.body import open_form
from streamer.protocols.openai.error import ApiError, check_model, served_model
from streamer.protocols.openai.form import TranscriptionRequest, parse_form
from streamer.recording.collector import Collector
from streamer.service import Service
from streamer.transport.connection import race
from streamer.transport.upload import watch
from streamer.wire import seconds

logger = logging.getLogger(__name__)


def routes(service: Service) -> list[BaseRoute]:
    """Serve transcriptions and translations of whole files, and the list of models."""
    started = int(time.time())
    return [
        Route("/v1/audio/transcriptions", _Endpoint(service, Task.TRANSCRIBE), methods=["POST"]),
        Route("/v1/audio/translations", _Endpoint(service, Task.TRANSLATE), methods=["POST"]),
        Route("/v1/models", functools.partial(_list_models, service, started)),
        Route("/v1/models/{name:path}", functools.partial(_show_model, service, started)),
    ]


class _Endpoint:
    """An ASGI application: it has to keep the upload open for as long as it writes."""

    def __init__(self, service: Service, task: Task) -> None:
        self._service = service
        self._task = task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Answer(send, self._service.config.send_timeout_s)
        error = await self._serve(Request(scope, receive), answer)
        if error is not None:
            with contextlib.suppress(TimeoutError):
                await answer.fail(error)

    async def _serve(self, request: Request, answer: _Answer) -> ApiError | None:
        """Serve a request; return what was wrong with it."""
        try:
            info = served_model(self._service)
            if (refusal := self._service.recording_refusal()) is not None:
                return ApiError.refused(refusal)
            async with open_form(request, self._service.config.max_upload_bytes) as form:
                wanted = parse_form(form, info, self._task)
                await race(self._transcribe(wanted, answer), watch(request))
        except ApiError as error:
            return error
        except AudioError as error:
            return ApiError(str(error), code="invalid_audio", param="file")
        except InvalidRequest as error:
            return ApiError(str(error), code="invalid_value")
        except EngineBusy as error:
            return ApiError.refused(no_room("busy", str(error)))
        except ClientDisconnect:
            logger.debug("request %s: the client left", answer.request_id)
        except TimeoutError:
            logger.info("request %s: dropped, its client does not read", answer.request_id)
        except Exception:
            logger.exception("request %s failed", answer.request_id)
            return ApiError(
                f"internal error in request {answer.request_id}",
                code="internal_error",
                kind="server_error",
                status=HTTPStatus.INTERNAL_SERVER_ERROR,
            )
        return None

    async def _transcribe(self, wanted: TranscriptionRequest, answer: _Answer) -> None:
        started = time.monotonic()
        recording = Recording(wanted.file, wanted.raw)
        collector = Collector()
        async with (
            contextlib.aclosing(recording.blocks()) as blocks,
            self._service.recording(blocks, wanted.settings) as windows,
        ):
            async for window in windows:
                delta = collector.add(window)
                if wanted.streams and delta:
                    await answer.stream(write.write_delta(delta))
        duration = recording.duration
        if wanted.streams:
            await answer.stream(
                write.write_done(collector, duration, has_logprobs=wanted.has_logprobs)
            )
            await answer.end()
        else:
            await answer.send(_response(wanted, collector, duration))
        logger.info(
            "request %s: %.1f s of audio in %.1f s",
            answer.request_id,
            seconds(duration),
            time.monotonic() - started,
        )


class _Answer:
    """What goes back to one client: a whole response, or server-sent events as they come."""

    def __init__(self, send: Send, timeout_s: float) -> None:
        self.request_id = "req_" + secrets.token_hex(12)
        self._send = send
        self._timeout_s = timeout_s  # that a client may leave unread what it was sent
        self._is_streaming = False

    async def send(self, response: Response) -> None:
        """Send a whole response."""
        response.headers["x-request-id"] = self.request_id
        headers, body = response.raw_headers, bytes(response.body)
        await self._start(response.status_code, list(headers))
        await self._body(body, is_last=True)

    async def stream(self, event: bytes) -> None:
        """Send an event; the first one opens the stream."""
        if not self._is_streaming:
            self._is_streaming = True
            await self._start(
                HTTPStatus.OK,
                [
                    (b"content-type", b"text/event-stream; charset=utf-8"),
                    (b"cache-control", b"no-cache"),
                    (b"x-accel-buffering", b"no"),  # nginx would hold the events back
                    (b"x-request-id", self.request_id.encode()),
                ],
            )
        await self._body(event, is_last=False)

    async def end(self) -> None:
        """Close the stream of events."""
        await self._body(b"", is_last=True)

    async def fail(self, error: ApiError) -> None:
        """Send what was wrong, in a response or as the last event."""
        if self._is_streaming:
            await self.stream(b"event: error\n" + write.write_event({"error": error.fields}))
            await self.end()
            return
        await self.send(error.response())

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _body(self, body: bytes, *, is_last: bool) -> None:
        async with asyncio.timeout(self._timeout_s):
            await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})


def _response(wanted: TranscriptionRequest, collector: Collector, duration: int) -> Response:
    plain = "text/plain; charset=utf-8"
    match wanted.response_format:
        case "text":
            return Response(write.write_text(collector), media_type=plain)
        case "srt":
            return Response(write.write_srt(collector.passages), media_type=plain)
        case "vtt":
            return Response(write.write_vtt(collector.passages), media_type=plain)
        case "verbose_json":
            body = write.write_verbose(
                collector,
                duration,
                wanted.task,
                has_segments=wanted.has_segments,
                has_words=wanted.has_words,
            )
        case _:
            body = write.write_json(collector, duration, has_logprobs=wanted.has_logprobs)
    return Response(write.encode(body), media_type="application/json")


async def _list_models(service: Service, created: int, _request: Request) -> Response:
    try:
        data = [_describe(name, created) for name in names(served_model(service))]
    except ApiError as error:
        return error.response()
    return JSONResponse({"object": "list", "data": data})


async def _show_model(service: Service, created: int, request: Request) -> Response:
    name = request.path_params["name"]
    try:
        check_model(name, served_model(service))
    except ApiError as error:
        return error.response()
    return JSONResponse(_describe(name, created))


def _describe(name: str, created: int) -> dict[str, object]:
    return {"id": name, "object": "model", "created": created, "owned_by": "wordwire"}
