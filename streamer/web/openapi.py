"""The OpenAPI document of the HTTP endpoints, and the page that shows it."""

from __future__ import annotations

import html
import json
from typing import Any

from streamer.protocols.openai.form import FORMATS, GRANULARITIES
from streamer.protocols.openai.realtime.options import LOGPROBS

Json = dict[str, Any]

DESCRIPTION = """\
Speech to text over HTTP. Live audio goes to WebSockets, which OpenAPI cannot describe:
/v1/stream (docs/protocol.md), /v1/realtime (docs/openai.md), /v1/listen (docs/deepgram.md),
/v1/twilio (docs/twilio.md) and /v1/whisperlive (docs/whisperlive.md)."""

NUMBER: Json = {"type": "number"}
INTEGER: Json = {"type": "integer"}
STRING: Json = {"type": "string"}
MODEL: Json = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$"}


def _object(properties: Json, *optional: str) -> Json:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _answer(description: str, schema: Json, **others: Json) -> Json:
    """Describe a response: JSON, and the other types that it may have."""
    content = {"application/json": {"schema": schema}, **others}
    return {"description": description, "content": content}


def _errors(*statuses: int) -> Json:
    reasons = {
        400: "The request cannot be served as it is",
        401: "No valid API key",
        403: "Not allowed for this key, or from this page",
        404: "No such model",
        408: "The upload stalled",
        413: "The upload is too large",
        429: "A limit of this key is reached",
        503: "No room now; try again after Retry-After",
    }
    return {
        str(status): _answer(reasons[status], _ref("Error"))
        for status in (*statuses, 401, 403, 429)
    }


def _form(**more: Json) -> Json:
    fields: Json = {
        "file": {
            "type": "string",
            "format": "binary",
            "description": "WAV, FLAC, Ogg, WebM, MP3, MP4, M4A, AAC and more; "
            "a name that ends in .pcm or .raw means 16-bit PCM, 16 kHz, mono",
        },
        "model": {**STRING, "description": "whisper-1, or a name from /v1/models"},
        "prompt": {**STRING, "description": "text that might have come before: names, style"},
        "response_format": {"enum": list(FORMATS), "default": "json"},
        "temperature": {"type": "number", "minimum": 0, "maximum": 1, "default": 0},
        **more,
    }
    schema = _object(fields, *(name for name in fields if name not in ("file", "model")))
    return {"required": True, "content": {"multipart/form-data": {"schema": schema}}}


def _transcribe(summary: str, *, form: Json) -> Json:
    return {
        "summary": summary,
        "requestBody": form,
        "responses": {
            "200": _answer(
                "The text, in the requested format",
                {"anyOf": [_ref("Verbose"), _ref("Transcription")]},
                **{kind: {"schema": STRING} for kind in ("text/plain", "text/event-stream")},
            ),
            **_errors(400, 404, 408, 413, 503),
        },
    }


TRANSCRIPTION_FIELDS: Json = {
    "language": {**STRING, "description": "ISO 639-1; detected if omitted"},
    "timestamp_granularities[]": _list({"enum": list(GRANULARITIES)}),
    "include[]": _list({"enum": ["logprobs"]}),
    "keywords[]": _list({**STRING, "description": "words to listen for"}),
    "stream": {"type": "boolean", "default": False},
    "chunking_strategy": {**STRING, "description": "auto, or server_vad with its parameters"},
}

USAGE = _object({"type": {"const": "duration"}, "seconds": NUMBER})
SEGMENT = _object(
    {
        "id": INTEGER,
        "seek": INTEGER,
        "start": NUMBER,
        "end": NUMBER,
        "text": STRING,
        "tokens": _list(INTEGER),
        "temperature": NUMBER,
        "avg_logprob": NUMBER,
        "compression_ratio": NUMBER,
        "no_speech_prob": NUMBER,
    }
)
LOGPROB = _object({"token": STRING, "logprob": NUMBER, "bytes": _list(INTEGER)})
SCHEMAS: Json = {
    "Transcription": _object(
        {"text": STRING, "usage": USAGE, "logprobs": _list(LOGPROB)}, "logprobs"
    ),
    "Verbose": _object(
        {
            "task": {"enum": ["transcribe", "translate"]},
            "language": STRING,
            "duration": NUMBER,
            "text": STRING,
            "segments": _list(SEGMENT),
            "words": _list(_object({"word": STRING, "start": NUMBER, "end": NUMBER})),
            "usage": USAGE,
        },
        "segments",
        "words",
    ),
    "Model": _object(
        {"id": STRING, "object": {"const": "model"}, "created": INTEGER, "owned_by": STRING}
    ),
    "Secret": _object({"value": STRING, "expires_at": INTEGER, "session": {"type": "object"}}),
    "Error": _object(
        {
            "error": _object(
                {
                    "message": STRING,
                    "type": STRING,
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
            )
        }
    ),
}
SECRET_REQUEST = _object(
    {
        "expires_after": _object(
            {
                "anchor": {"const": "created_at"},
                "seconds": {"type": "integer", "minimum": 10, "maximum": 7200},
            },
            "seconds",
        ),
        "session": _object(
            {
                "type": {"const": "transcription"},
                "audio": _object({"input": {"type": "object"}}, "input"),
                "include": _list({"enum": [LOGPROBS]}),
            },
            "audio",
            "include",
        ),
    },
    "expires_after",
    "session",
)

DOCUMENT: Json = {
    "openapi": "3.1.0",
    "info": {"title": "Wordwire", "version": "1", "description": DESCRIPTION},
    "security": [{}, {"key": []}],
    "components": {
        "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        "schemas": SCHEMAS,
    },
    "paths": {
        "/v1/audio/transcriptions": {
            "post": _transcribe("Transcribe a file", form=_form(**TRANSCRIPTION_FIELDS))
        },
        "/v1/audio/translations": {
            "post": _transcribe("Translate a file to English", form=_form())
        },
        "/v1/models": {
            "get": {
                "summary": "List the names of the model",
                "responses": {
                    "200": _answer(
                        "The models",
                        _object({"object": {"const": "list"}, "data": _list(_ref("Model"))}),
                    ),
                    **_errors(503),
                },
            }
        },
        "/v1/models/{model}": {
            "get": {
                "summary": "Describe a model",
                "parameters": [{"name": "model", "in": "path", "required": True, "schema": MODEL}],
                "responses": {
                    "200": _answer("The model", _ref("Model")),
                    **_errors(404, 503),
                },
            }
        },
        "/v1/realtime/client_secrets": {
            "post": {
                "summary": "Create a short-lived key for a browser",
                "requestBody": {"content": {"application/json": {"schema": SECRET_REQUEST}}},
                "responses": {
                    "200": _answer("The secret", _ref("Secret")),
                    **_errors(400, 404, 408, 413, 503),
                },
            }
        },
        "/healthz": {
            "get": {
                "summary": "Check that the process is alive",
                "responses": {"200": _answer("It is", _object({"status": STRING}))},
            }
        },
        "/readyz": {
            "get": {
                "summary": "Check that the model is loaded and warm",
                "responses": {
                    status: _answer(what, _object({"status": STRING}))
                    for status, what in (("200", "It is"), ("503", "Not yet, or no longer"))
                },
            }
        },
    },
}


def render_page() -> str:
    """Write the document as one page of HTML that needs nothing else."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Wordwire: HTTP API</title>",
        "<meta name='viewport' content='width=device-width'>",
        f"<h1>Wordwire: HTTP API</h1><p>{html.escape(DESCRIPTION)}</p>",
        "<p>Machine-readable: <a href='openapi.json'>openapi.json</a></p>",
    ]
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            title = html.escape(f"{method.upper()} {path}")
            parts.append(
                f"<h2><code>{title}</code></h2><p>{html.escape(operation['summary'])}.</p>"
            )
            for name, body in operation.get("requestBody", {}).get("content", {}).items():
                parts.append(f"<p>Takes <code>{name}</code>:</p>{_table(body['schema'])}")
            rows = "".join(
                f"<tr><td>{status}<td>{html.escape(response['description'])}"
                f"<td>{', '.join(response['content'])}"
                for status, response in operation["responses"].items()
            )
            parts.append(f"<p>Answers:</p><table>{rows}</table>")
    parts.append("<h2>Schemas</h2>")
    for name, schema in SCHEMAS.items():
        text = html.escape(json.dumps(schema, indent=2))
        parts.append(f"<details><summary>{name}</summary><pre>{text}</pre></details>")
    return "\n".join(parts)


def _table(schema: Json) -> str:
    rows = []
    for name, field in schema["properties"].items():
        need = "required" if name in schema["required"] else ""
        kind = field.get("type") or " | ".join(map(str, field.get("enum", [""])))
        about = html.escape(field.get("description", ""))
        rows.append(f"<tr><td><code>{name}</code><td>{need}<td>{kind}<td>{about}")
    return f"<table>{''.join(rows)}</table>"
