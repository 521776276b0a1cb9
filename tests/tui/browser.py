"""A stand-in for a browser with `textual serve`: one websocket that sends keys and receives what a terminal would
draw.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time

import aiohttp

SERVE = "import sys; from textual_serve.server import Server; Server(sys.argv[1], port=int(sys.argv[2])).serve()"
#: Escape sequences of a terminal: colours, places, modes.
SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()].|.)")


class Browser:
    """One page of one served application."""

    def __init__(self, socket):
        self._socket = socket
        self._seen = ""

    async def press(self, keys):
        self._seen = ""
        await self._socket.send_json(["stdin", keys])

    async def resize(self, width, height):
        self._seen = ""
        await self._socket.send_json(["resize", {"width": width, "height": height}])

    async def until(self, part, seconds=30):
        """Waits until `part` has been drawn since the last key."""
        deadline = time.monotonic() + seconds
        while part not in self._seen:
            message = await self._socket.receive(timeout=deadline - time.monotonic())
            assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), (message, self._seen)
            if message.type is aiohttp.WSMsgType.BINARY:
                self._seen += SEQUENCE.sub("", message.data.decode())

    async def until_closed(self, seconds=30):
        deadline = time.monotonic() + seconds
        while not (await self._socket.receive(timeout=deadline - time.monotonic())).type.name.startswith("CLOS"):
            pass


class Served:
    """`command` behind textual-serve."""

    def __init__(self, command):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._child = subprocess.Popen(
            [sys.executable, "-c", SERVE, command, str(self.port)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        while not self._answers():
            assert self._child.poll() is None, self._child.stdout.read().decode()
            time.sleep(0.05)

    @property
    def page(self):
        return f"http://127.0.0.1:{self.port}/"

    @property
    def socket(self):
        return f"ws://127.0.0.1:{self.port}/ws"

    def _answers(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self):
        self._child.terminate()
        self._child.wait()
        self._child.stdout.close()
