"""Runs blocking work outside the event loop. Threads are daemons, so that they do not delay the end of a front end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Runs `work` in its own thread, without blocking the event loop. Returns its result, or raises its exception."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # T itself where there is no error

    def run() -> None:
        try:
            result, error = work(), None
        except BaseException as caught:  # noqa: BLE001 - raised again where it is awaited
            result, error = None, caught
        tell(loop, settle, result, error)

    threading.Thread(target=run, daemon=True).start()
    return await future


def tell(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """Calls `function` with `arguments` in the event loop, from another thread. Does nothing if the loop has ended."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        pass  # the front end is ending
