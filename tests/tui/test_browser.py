"""The application in a browser, through textual-serve: the page, and its websocket."""

from __future__ import annotations

import shlex
import sys

import aiohttp
import pytest

from tests.tui.browser import Browser, Served

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


@pytest.fixture
def served(project):
    server = Served(shlex.join([sys.executable, "-m", "kernel_assistant", "tui", str(project)]))
    yield server
    server.close()


async def test_a_page_with_the_application_on_it(served, tiny_host, steered):
    steered("tick 30")
    async with aiohttp.ClientSession() as session:
        async with session.get(served.page) as answer:
            assert answer.status == 200 and "textual.js" in await answer.text()
        async with session.ws_connect(f"{served.socket}?width=120&height=40") as websocket:
            browser = Browser(websocket)
            await browser.until("Gate")
            await browser.press("s")
            await browser.until("ended:")
            await browser.resize(60, 20)
            await browser.press("1")
            await browser.until("modules")
            await browser.press("q")
            await browser.until_closed()
