"""`POST /v1/listen`: Deepgram's pre-recorded API. The file is the body of the request."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import logging
import tempfile
import uuid
from http import HTTPStatus
from typing import IO

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from engine.api import EngineBusy, InvalidRequest
from streamer.audio.error import AudioError
from streamer.audio.file_source import Recording
from streamer.audio.probe import RawFormat
from streamer.protocols.deepgram.file_response import write_response
from streamer.protocols.deepgram.http import (
    PATH,
    check_language,
    error_response,
    refused,
    timestamp,
)
from streamer.protocols.deepgram.messages import describe_model
from streamer.protocols.deepgram.options import ListenOptions, parse_options
from streamer.recording.collector import Collector
from streamer.service import Service
from streamer.transport.connection import race, read_query
from streamer.transport.upload import UploadError, read_body, watch
from streamer.wire import ClientFault

logger = logging.getLogger(__name__)

MAX_MEMORY_BYTES = 1 << 20  # of an upload; the rest waits on disk
# FFmpeg's names of what AudioFormat calls otherwise
RAW_ENCODINGS = {"pcm_s16le": "s16le", "pcm_f32le": "f32le", "mulaw": "mulaw", "alaw": "alaw"}


def routes(service: Service) -> list[BaseRoute]:
    """Serve Deepgram's pre-recorded API."""
    return [Route(PATH, functools.partial(_serve, service), methods=["POST"])]


async def _serve(service: Service, request: Request) -> Response:
    request_id = str(uuid.uuid4())
    fail = functools.partial(error_response, request_id)
    if (refusal := service.recording_refusal()) is not None:
        return refused(request_id, refusal)
    try:
        with tempfile.SpooledTemporaryFile(MAX_MEMORY_BYTES) as file:
            return await _Job(service, request, request_id).run(file)
    except (ClientFault, InvalidRequest) as error:
        code = error.code if isinstance(error, ClientFault) else "invalid_request"
        return fail(HTTPStatus.BAD_REQUEST, code, str(error))
    except AudioError as error:
        return fail(HTTPStatus.BAD_REQUEST, "bad_request", f"failed to process audio: {error}")
    except UploadError as error:
        is_large = error.status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return fail(error.status, "too_large" if is_large else "slow_upload", str(error))
    except EngineBusy as error:
        return fail(HTTPStatus.SERVICE_UNAVAILABLE, "busy", str(error))
    except ClientDisconnect:
        logger.debug("request %s: the client left", request_id)
        return Response(status_code=HTTPStatus.BAD_REQUEST)  # to nobody
    except Exception:
        logger.exception("request %s failed", request_id)
        return fail(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "internal error")


class _Job:
    """One file, from the first byte of the upload to the answer."""

    def __init__(self, service: Service, request: Request, request_id: str) -> None:
        self._service = service
        self._request = request
        self._request_id = request_id
        self._sha256 = hashlib.sha256()
        self._channels: list[Collector] = []
        self._duration = 0  # samples

    async def run(self, file: IO[bytes]) -> Response:
        """Transcribe the request's file.

        Raises:
            ClientFault, InvalidRequest, AudioError: the client's fault.
            UploadError: the file is too large, or stalls.
            ClientDisconnect: the client left; all work has stopped.
        """
        info = self._service.info
        assert info is not None, "a service without a model refuses"
        options = parse_options(read_query(self._request))
        check_language(options, info)
        await self._receive(file)
        await race(self._transcribe(file, options), watch(self._request))
        body = write_response(
            self._channels,
            options,
            describe_model(self._request_id, info),
            sha256=self._sha256.hexdigest(),
            created=timestamp(),
            duration=self._duration,
        )
        return JSONResponse(body, headers={"dg-request-id": self._request_id})

    async def _receive(self, file: IO[bytes]) -> None:
        start = b""
        async for piece in read_body(self._request, self._service.config.max_upload_bytes):
            start = start or piece
            self._sha256.update(piece)
            await asyncio.to_thread(file.write, piece)
        if not start:
            raise ClientFault("no_audio", "expected audio, got an empty body")
        if _is_link(self._request.headers.get("content-type", ""), start):
            raise ClientFault(
                "unsupported", "url: files are not fetched here; send the file as the body"
            )

    async def _transcribe(self, file: IO[bytes], options: ListenOptions) -> None:
        raw, num_channels = _raw_format(options), 1
        while len(self._channels) < num_channels:
            file.seek(0)
            number = None if options.mixes_channels else len(self._channels)
            recording, channel = Recording(file, raw, channel=number), Collector()
            self._channels.append(channel)
            async with (
                contextlib.aclosing(recording.blocks()) as blocks,
                self._service.recording(blocks, options.settings) as windows,
            ):
                async for window in windows:
                    channel.add(window)
            num_channels = 1 if options.mixes_channels else recording.num_channels
            self._duration = max(self._duration, recording.duration)


def _raw_format(options: ListenOptions) -> RawFormat | None:
    """Return what a file without a container holds.

    Raises:
        ClientFault: packets without lengths cannot be told apart in a file.
    """
    if options.audio_format is None:
        if not options.is_container:
            raise ClientFault("unsupported", "encoding: expected ogg-opus for a file, got opus")
        return None
    raw = options.audio_format
    return RawFormat(RAW_ENCODINGS[raw.encoding], raw.sample_rate, raw.channels)


def _is_link(content_type: str, start: bytes) -> bool:
    """Return whether a body names a file instead of being one: `{"url": ...}`."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        return False
    try:
        return isinstance(json.loads(start), dict)
    except (ValueError, RecursionError):
        return start.lstrip().startswith(b"{")
