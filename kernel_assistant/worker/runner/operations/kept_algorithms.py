"""Keeps on disk which algorithms of cuDNN were chosen by time, because building the execution plans of all possible
algorithms takes seconds for one network. Standard library only. See docs/libraries.md."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile

#: "off": nothing is read or kept.
VARIABLE = "KERNEL_ASSISTANT_ALGORITHMS"
#: Most operations in the file; the oldest ones are dropped. A runner gets them in one message, which must fit the
#: buffer of a socket.
MOST = 1000
#: Most characters of a key or a name.
LONGEST = 100
#: To be changed whenever the meaning of names changes, that is, the order in which algorithms are listed.
VERSION = "1"
#: Prefix of the keys of choices that applied packages made. The judge does not use these: they were made beside other
#: work, while the judge chooses alone on the device.
APPLIED = "applied "

Names = dict[str, str]


def key_of(library: str, device: str, operation: object) -> str:
    """Returns the key under which the algorithm for an operation is kept. `library` is name and version of the library,
    `device` name and driver version of the GPU."""
    return hashlib.sha256(f"{VERSION}, {library}, {device}: {operation}".encode()).hexdigest()[:32]


def kept_file() -> str:
    """Returns the path of the file of choices in the user's cache folder; "" if the user has switched keeping off, or
    if there is no home folder."""
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.environ.get(VARIABLE) == "off" or not os.path.isabs(folder):
        return ""
    return os.path.join(folder, "kernel-assistant", "algorithms.json")


class KeptAlgorithms:
    """The names of chosen algorithms, by the key of their operation: `names` and those in the file at `path` ("": no
    file). `fresh` are those that were chosen in this process and not saved yet. `prefix` is put before their keys."""

    def __init__(self, names: Names | None = None, path: str = "", prefix: str = "") -> None:
        self.path, self.prefix, self.fresh = path, prefix, Names()
        self.names = {**(names or {}), **read(path)}

    def known(self, key: str) -> list[str]:
        """Returns the names of algorithms that were chosen earlier for an operation, the judge's choice first (the
        judge chooses alone on the device)."""
        return [self.names[one] for one in dict.fromkeys((key, f"{self.prefix}{key}")) if one in self.names]

    def add(self, names: Names) -> None:
        chosen = {f"{self.prefix}{key}": name for key, name in names.items()}
        self.names.update(chosen)
        self.fresh.update(chosen)

    def take_fresh(self) -> Names:
        """Returns the names in `fresh`, by key, and empties it."""
        fresh, self.fresh = self.fresh, {}
        return fresh

    def save(self) -> None:
        """Adds the choices in `fresh` to the file and empties `fresh`."""
        write(self.path, self.take_fresh())


def write(path: str, fresh: Names) -> None:
    """Adds the names in `fresh` to the file at `path`, as its newest entries. If that fails, the file stays as it is,
    and each process chooses its algorithms again."""
    if not fresh or not path:
        return
    names = {key: name for key, name in read(path).items() if key not in fresh} | fresh
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor, written = tempfile.mkstemp(dir=os.path.dirname(path), prefix="algorithms.")
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(dict(list(names.items())[-MOST:]), file, indent=0)
            os.replace(written, path)
        except OSError:
            os.unlink(written)
            raise


def checked(names: object) -> Names:
    """Returns the entries of `names` whose key and value are texts of at most LONGEST characters; {} if `names` is no
    dictionary. `names` may come from a damaged file, or from a runner, which is not trusted."""
    if not isinstance(names, dict):
        return {}
    return {key: name for key, name in names.items() if _is_short(key) and _is_short(name)}


def _is_short(text: object) -> bool:
    return isinstance(text, str) and len(text) <= LONGEST


def read(path: str) -> Names:
    """Returns the names, by key, in the file at `path`; {} without a file, or if it is damaged."""
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            return checked(json.load(file))
    except (OSError, ValueError, RecursionError):
        return {}
