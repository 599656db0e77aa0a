"""How the process ends; its answers are tested with the remote engine and the worker."""

from __future__ import annotations

import logging
import os
import signal

from engine.process.owner import WorkerProcess
from engine.process.wire import Load, LoadFailed, Recipe, Report, pack


def receive_all(process: WorkerProcess) -> list[Report]:
    reports: list[Report] = []
    while (received := process.receive()) is not None:
        reports += received
    return reports


def is_running(id: int) -> bool:
    try:
        os.kill(id, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_process_that_cannot_load_says_why_and_ends() -> None:
    with WorkerProcess() as process:
        recipe = Recipe("tests.support.engines", "make_echo", "broken")
        process.send(pack(Load(recipe, logging.WARNING)))
        (report,) = receive_all(process)
    assert isinstance(report, LoadFailed) and "broken" in report.fault.message
    assert not is_running(process.id)


def test_a_process_whose_owner_is_done_ends_by_itself() -> None:
    with WorkerProcess() as process:
        process.finish()
        assert receive_all(process) == []
    assert not is_running(process.id)


def test_leaving_ends_a_process_that_does_not_listen() -> None:
    with WorkerProcess() as process:
        os.kill(process.id, signal.SIGSTOP)
        assert process.receive() == []
    assert not is_running(process.id)
