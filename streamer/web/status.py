"""`/metrics` and `/v1/status`: what the service is doing, for machines and for people."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from streamer.operations.metrics import CONTENT_TYPE
from streamer.service import Service


def routes(service: Service) -> list[BaseRoute]:
    """Serve what operators look at."""

    async def metrics(_request: Request) -> Response:
        """Return all metrics in Prometheus' text format."""
        return Response(service.metrics.render(), media_type=CONTENT_TYPE)

    async def status(_request: Request) -> JSONResponse:
        """Return the state of the service."""
        refusal, model = service.refusal(), service.info
        return JSONResponse(
            {
                "status": "ready" if refusal is None else refusal.code,
                "uptime_s": round(service.uptime_s, 1),
                "model": model.name if model else None,
                "device": model.device if model else None,
                "dtype": model.dtype if model else None,
                "sessions": {
                    "open": service.num_sessions,
                    "limit": service.capacity.limit,
                    "max": service.config.max_sessions,
                },
                "final_delay_p95_s": service.final_delay_s,
                "keys": len(service.access.ring) if service.access.is_required else None,
                "totals": service.metrics.totals(),
            }
        )

    return [Route("/metrics", metrics), Route("/v1/status", status)]
