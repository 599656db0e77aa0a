"""`/healthz`, `/readyz` and `/v1/info`: what supervisors and pages ask before they connect."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from streamer.service import Service


def routes(service: Service) -> list[BaseRoute]:
    """Serve the probes and the description of the model."""

    async def healthz(_request: Request) -> JSONResponse:
        """Answer as long as the process can answer at all."""
        return JSONResponse({"status": "ok"})

    async def readyz(_request: Request) -> JSONResponse:
        """Return whether the model is loaded and warm, and new sessions are taken."""
        refusal = service.refusal()
        if refusal is None or refusal.code == "busy":
            # a full service is still a working one: a supervisor must not restart it
            return JSONResponse({"status": "ready"})
        return JSONResponse(
            {"status": refusal.code},
            status_code=HTTPStatus.SERVICE_UNAVAILABLE,
            headers=refusal.headers,
        )

    async def info(_request: Request) -> JSONResponse:
        """Describe the model, and say whether there is room for a session now."""
        refusal = service.refusal()
        model = service.info
        return JSONResponse(
            {
                "status": "ready" if refusal is None else refusal.code,
                "model": model.name if model else None,
                "languages": list(model.languages) if model else [],
                "device": model.device if model else None,
                "dtype": model.dtype if model else None,
            }
        )

    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/v1/info", info),
    ]
