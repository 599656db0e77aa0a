"""The OpenAPI document against the service that it describes."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from streamer.web.openapi import DOCUMENT
from tests.support.running_service import Running

OPERATIONS = [(path, method) for path, item in DOCUMENT["paths"].items() for method in item]


async def test_the_document_and_its_page_are_served(service: Running) -> None:
    async with httpx.AsyncClient(base_url=service.http) as http:
        assert (await http.get("/openapi.json")).json() == DOCUMENT
        page = await http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    for path, _ in OPERATIONS:
        assert path in page.text


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
# what hypothesis tries, it leaves to the collector
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
async def test_answers_are_as_described(service: Running, path: str, method: str) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    operation = schemathesis.openapi.from_dict(DOCUMENT)[path][method.upper()]
    described = schemathesis.specs.openapi.checks
    checks = [
        schemathesis.checks.not_a_server_error,
        described.status_code_conformance,
        described.content_type_conformance,
        described.response_schema_conformance,
    ]
    modes = [schemathesis.GenerationMode.POSITIVE]
    if "requestBody" in DOCUMENT["paths"][path][method]:  # else there is nothing to get wrong
        modes.append(schemathesis.GenerationMode.NEGATIVE)
    for mode in modes:
        strategy = operation.as_strategy(generation_mode=mode)

        @settings(
            max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None
        )
        @given(case=strategy)
        def check(case: schemathesis.Case) -> None:
            case.call_and_validate(base_url=service.http, checks=checks)

        await asyncio.to_thread(check)
