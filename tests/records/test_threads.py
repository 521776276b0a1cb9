"""Records that several threads use for the first time at once."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading, time
from kernel_assistant.records.codec import Record, decode

sys.setswitchinterval(1e-5)
FIELDS = "\\n".join(f"    field{n}: dict[str, list[tuple[int, str]] | None] = {{}}" for n in range(40))
for _ in range(60):
    names = {"Record": Record}
    for kind in "ABCD":
        inner = f"    inner: {chr(ord(kind) - 1)}\\n" if kind > "A" else ""
        exec(f"class {kind}(Record, frozen=True, kw_only=True):\\n{inner}{FIELDS}", names)
    start = threading.Barrier(6)

    def read(number):
        start.wait()
        time.sleep(number * 1e-4)
        decode(b'{"inner": {"inner": {"inner": {"field1": {"a": [[1, "b"]]}}}}}', names["D"])

    threads = [threading.Thread(target=read, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_that_read_a_kind_of_record_for_the_first_time() -> None:
    assert subprocess.run([sys.executable, "-c", PROGRAM], check=False).returncode == 0
