"""Collects what a measurement run has so far in few files for transfer: models of finished stages, results, tasks,
labels and episodes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from bench.measurement_run.run import read, write

MIB = 1 << 20
#: Endings of files that people read; weights and candidates' caches are left where they are.
READ = (".json", ".jsonl", ".md", ".svg", ".png", ".log", ".txt", ".csv", ".xml", ".toml", "done", "progress")
#: Files that equal those of the checkout.
KNOWN = ("tokenizer.json", "tokenizer_config.json")
#: Of a longer file only the end is taken, from the start of a line.
MOST_OF_A_FILE = 2 * MIB
#: Archive → folders below results/, which are left out of the archive `results`.
DATA = {"tasks": ("tasks",), "labels": ("labels",), "episodes": ("small/*-episodes*", "small/*-synth")}
LARGEST_MODEL = 16_000_000


@dataclass(frozen=True)
class Room:
    """Limits for one transfer."""

    files: int = 8
    file: int = 16 * MIB
    all: int = 64 * MIB


@dataclass(frozen=True)
class Parcel:
    """A named archive with its files and their names in it. A single model is sent as it is."""

    name: str
    files: tuple[tuple[Path, str], ...]

    @property
    def digest(self) -> str:
        stats = [(name, file.stat().st_size, file.stat().st_mtime_ns) for file, name in self.files if file.is_file()]
        return hashlib.sha256(json.dumps(stats).encode()).hexdigest()

    def data(self) -> bytes:
        if self.name.endswith(".gguf"):
            return self.files[0][0].read_bytes()
        packed = BytesIO()
        with tarfile.open(fileobj=packed, mode="w:xz", preset=1) as archive:
            for file, name in self.files:
                _add(archive, file, name, whole=self.name != "results.tar.xz")
        return packed.getvalue()


def gather(work: Path, out: Path, room: Room = Room(), *, again: bool = False) -> list[str]:
    """Writes parcels into `out` while they fit, most important first; returns a line for each file and for each parcel
    that did not fit. Unchanged parcels are not sent again, unless `again`."""
    out.mkdir(parents=True, exist_ok=True)
    kept = work / "state" / "sent.json"
    sent, lines, files, size = read(kept), [], 0, 0
    for parcel in parcels(work):
        digest = parcel.digest
        if not parcel.files or (sent.get(parcel.name) == digest and not again):
            continue
        pieces = list(split(parcel.name, parcel.data(), room.file))
        more = sum(len(data) for _, data in pieces)
        if files + len(pieces) > room.files or size + more > room.all:
            lines.append(f"left for the next time: {parcel.name}, {len(pieces)} files, {more / MIB:.1f} MiB")
            continue
        for name, data in pieces:
            (out / f"{name}.new").write_bytes(data)
            (out / f"{name}.new").replace(out / name)
            lines.append(f"{name}: {len(data) / MIB:.2f} MiB")
        files, size, sent[parcel.name] = files + len(pieces), size + more, digest
        write(kept, sent)
    return lines


def parcels(work: Path) -> Iterator[Parcel]:
    """All parcels, the most important first."""
    models = _different(sorted((work / "models").glob("*.gguf"), reverse=True))
    yield Parcel("results.tar.xz", tuple(_results(work)))
    yield from (_model(file) for file in models[:1])
    lines: list[tuple[Path, str]] = []
    for name, folders in DATA.items():
        new, held = _data(work / "results", folders)
        yield Parcel(f"{name}.tar.xz", new)
        lines += held
    yield from (_model(file) for file in models[1:])
    # Needed only to continue a folder; the shards contain their results.
    yield Parcel("lines.tar.xz", tuple(lines))


def split(name: str, data: bytes, most: int) -> Iterator[tuple[str, bytes]]:
    """Splits data that is too large for one file; `cat NAME.* > NAME` joins it."""
    if len(data) <= most:
        yield name, data
        return
    for index, start in enumerate(range(0, len(data), most)):
        yield f"{name}.{index:02}", data[start : start + most]


def export_finished(work: Path) -> list[str]:
    """Writes each finished stage's model as a GGUF file to `work`/models, named after the stage; returns messages. A
    failure is reported once."""
    lines = []
    (work / "models").mkdir(exist_ok=True)
    for stage, model in finished(work / "results" / "small"):
        file, failed = work / "models" / f"{stage}.gguf", work / "models" / f"{stage}.failed"
        if not file.exists() and not failed.exists():
            lines.append(_export(work, model, file, failed))
    return lines


def finished(run: Path) -> Iterator[tuple[str, Path]]:
    """Stages of a recipe's run that have a model of their own."""
    for done in sorted(run.glob("[0-9][0-9]-*/done")):
        stage = done.parent.name
        ready = sorted(done.parent.glob("*.gguf"))
        model = json.loads(done.read_text()).get("model", "")
        if ready:
            yield stage, ready[0]
        # A critic has the policy of the stage before.
        elif model.startswith(stage) and not stage.endswith("-critic"):
            yield stage, run / model


def _export(work: Path, model: Path, file: Path, failed: Path) -> str:
    if model.is_file():
        shutil.copyfile(model, f"{file}.new")
        Path(f"{file}.new").replace(file)
        return f"{file.name}: as it was exported"
    fresh = file.with_suffix(".new")
    words = [sys.executable, "-m", "kernel_assistant_training", "export", str(model), str(fresh)]
    words += ["--largest", str(LARGEST_MODEL)]
    cores = read(work / "state" / "small.json").get("cores")
    pinned = ["taskset", "--cpu-list", cores] if cores and shutil.which("taskset") else []
    # One thread and no GPU, because other steps are being timed.
    quiet = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["nice", *pinned, *words], env={**os.environ, **quiet}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        failed.write_text(done.stdout + done.stderr)
        return f"{file.name} could not be written: {(done.stderr.strip().splitlines() or ['?'])[-1]}"
    fresh.replace(file)
    return f"{file.name}: {done.stdout.strip().splitlines()[-1]}"


def _different(files: Iterable[Path]) -> list[Path]:
    """The files with different contents: the model exported at the end usually equals an earlier one."""
    by_hash: dict[str, Path] = {}
    for file in files:
        by_hash.setdefault(hashlib.sha256(file.read_bytes()).hexdigest(), file)
    return list(by_hash.values())


def _model(file: Path) -> Parcel:
    return Parcel(f"model-{file.name}", ((file, file.name),))


def _results(work: Path) -> Iterator[tuple[Path, str]]:
    apart = {folder for some in DATA.values() for one in some for folder in (work / "results").glob(one)}
    for top in ("logs", "state", "results", "models"):
        for file in _files(work / top):
            mine = apart.isdisjoint(file.parents) or file.name == "output.log"
            if mine and file.name.endswith((*READ, ".failed")) and file.name not in ("sent.json", *KNOWN):
                yield file, str(file.relative_to(work))


def _data(results: Path, folders: Iterable[str]) -> tuple[tuple[tuple[Path, str], ...], tuple[tuple[Path, str], ...]]:
    """The files to send, and separately the lines that shards beside them contain already."""
    new, held = [], []
    for folder in sorted(path for one in folders for path in results.glob(one)):
        shards = {file.parent: file.stat().st_mtime_ns for file in _files(folder) if file.suffix == ".parquet"}
        for file in _files(folder):
            if file.name.endswith((*READ, ".parquet", ".gz", ".xz")):
                kept = file.suffix == ".jsonl" and file.stat().st_mtime_ns <= shards.get(file.parent, -1)
                (held if kept else new).append((file, str(file.relative_to(results))))
    return tuple(new), tuple(held)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _add(archive: tarfile.TarFile, file: Path, name: str, *, whole: bool) -> None:
    """Adds a file as it is now, even if it is being written; skips it if it is gone."""
    try:
        with file.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            if not whole and size > MOST_OF_A_FILE:
                opened.seek(size - MOST_OF_A_FILE)
                opened.readline()
                name = f"{name}.end"
            data = opened.read()
    except FileNotFoundError:
        return
    member = tarfile.TarInfo(name)
    member.size, member.mtime = len(data), int(file.stat().st_mtime)
    archive.addfile(member, BytesIO(data))
