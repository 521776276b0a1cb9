"""Removes debug symbols from the libraries of large wheels, in place: `slim.py WHEEL...`."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

#: Only wheels with more bytes are worth the work.
LARGE = 4_000_000


def slim(wheel: Path) -> None:
    fresh = wheel.with_suffix(".new")
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as after:
        record = next(name for name in before.namelist() if name.endswith(".dist-info/RECORD"))
        lines = before.read(record).decode()
        for one in before.infolist():
            data = before.read(one)
            if one.filename.endswith(".so"):
                stripped = _stripped(data)
                lines = lines.replace(_entry(one.filename, data), _entry(one.filename, stripped))
                data = stripped
            if one.filename != record:
                after.writestr(one, data, zipfile.ZIP_DEFLATED)
        after.writestr(record, lines)
    fresh.replace(wheel)


def _stripped(library: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "library.so")
        file.write_bytes(library)
        subprocess.run(["strip", "--strip-unneeded", file], check=True)
        return file.read_bytes()


def _entry(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


if __name__ == "__main__":
    if shutil.which("strip"):
        for word in sys.argv[1:]:
            if Path(word).stat().st_size > LARGE:
                slim(Path(word))
