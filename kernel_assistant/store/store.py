"""The store of jobs, episodes and applied edits. Safe to use from several threads and several processes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from kernel_assistant.errors import StoreError, UsageError, boundary
from kernel_assistant.records import (
    Candidate,
    Evaluation,
    JobOutcome,
    KernelTask,
    OptimizeResult,
    Outcome,
    Step,
    Trajectory,
    decode,
    encode,
)
from kernel_assistant.records.codec import Record
from kernel_assistant.records.trajectory import StopReason
from kernel_assistant.store.database import Database, last_number
from kernel_assistant.store.rebuild import RebuiltJob, kept_jobs
from kernel_assistant.store.rows import EditRow, JobOptions, JobRow, JobState, job_key
from kernel_assistant.store.transcripts import Transcripts

#: Suffix to the name of a damaged file: holds a message that no user has seen yet.
NEWS = ".news"
_JOB_COLUMNS = "id, task, options, state, device, created, started, ended, result, error, next_step"


class EpisodeSummary(Record, frozen=True, kw_only=True):
    """The fields of a trajectory (the record of an episode) that are stored as one document; its steps are stored
    separately."""

    task: str
    policy: str
    stop_reason: StopReason
    seconds: float
    best: str | None
    final: Evaluation | None


class Store:
    """The database below `state_dir`. Every method raises StoreError when the database cannot be read or written."""

    def __init__(self, state_dir: Path, *, lock_wait: float = 5.0) -> None:
        self._database = Database(state_dir / "store.sqlite", lock_wait=lock_wait)
        self.state_dir = state_dir
        self._jobs_dir = state_dir / "jobs"
        self.transcripts = Transcripts(self._database)
        if self._database.aside is not None:
            self._rebuild(self._database.aside)

    def close(self) -> None:
        self._database.close()

    def news(self) -> list[str]:
        """Returns messages about damaged files that were not shown yet, one line each. Later calls do not return them
        again."""
        paths = sorted(self._database.path.parent.glob(f"{self._database.path.name}.damaged-*{NEWS}"))
        lines = [path.read_text(encoding="utf-8").strip() for path in paths]
        for path in paths:
            path.unlink(missing_ok=True)
        return lines

    def _rebuild(self, aside: Path) -> None:
        jobs = kept_jobs(self._jobs_dir)
        for one in jobs:
            self._restore(one)
        message = (
            f"the history was damaged and is kept as {aside}; {len(jobs)} jobs were rebuilt from {self._jobs_dir}; "
            "remove that file once you miss nothing"
        )
        with boundary(StoreError, f"cannot write beside {aside}"):
            aside.with_name(aside.name + NEWS).write_text(message + "\n", encoding="utf-8")

    def _restore(self, kept: RebuiltJob) -> None:
        row = kept.row
        result = None if row.result is None else _text(row.result)
        with self._database.transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO jobs (id, key, state, path, device, created, started, ended, task, options, "
                "result, error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '')",
                (
                    *(int(row.id), row.key, row.state.value, row.task.path, row.device),
                    *(row.created, row.started, row.ended, _text(row.task), _text(row.options), result),
                ),
            )
        if kept.trajectory is not None:
            self.add_trajectory(row.id, kept.trajectory)

    # jobs

    def add_job(self, task: KernelTask, options: JobOptions, device: str) -> JobRow:
        """Adds a queued job and returns its row. Its number is above that of every row and every job folder, so that
        the job does not continue the log of an earlier job."""
        with self._database.transaction() as db:
            (last,) = db.execute("SELECT coalesce(max(id), 0) FROM jobs").fetchone()
            number = max(last, last_number(self._jobs_dir)) + 1
            row = JobRow(
                id=str(number), task=task, options=options, state=JobState.queued, device=device, created=time.time()
            )
            document, choices = _text(task), _text(options)
            db.execute(
                "INSERT INTO jobs (id, key, state, path, device, created, started, ended, task, options, error) "
                "VALUES (?, ?, ?, ?, ?, ?, 0, 0, ?, ?, '')",
                (number, row.key, row.state.value, task.path, device, row.created, document, choices),
            )
        return row

    def mark_queued(self, job: str) -> None:
        self._set(job, "state = ?, ended = 0, error = '', next_step = ''", JobState.queued.value)

    def mark_running(self, job: str) -> None:
        self._set(job, "state = ?, started = ?", JobState.running.value, time.time())

    def mark_ended(
        self, job: str, state: JobState, *, result: OptimizeResult | None = None, error: str = "", next_step: str = ""
    ) -> None:
        values = (state.value, time.time(), None if result is None else _text(result), error, next_step)
        self._set(job, "state = ?, ended = ?, result = ?, error = ?, next_step = ?", *values)

    def mark_interrupted(self) -> list[str]:
        """Marks the jobs that were queued or running when the last session host died, and returns their numbers. Only a
        session host that starts may call this."""
        with self._database.transaction() as db:
            rows = db.execute("SELECT id FROM jobs WHERE state IN ('queued', 'running') ORDER BY id").fetchall()
            db.execute("UPDATE jobs SET state = 'interrupted' WHERE state IN ('queued', 'running')")
        return [str(number) for (number,) in rows]

    def job(self, job: str) -> JobRow:
        """Returns a job by its number; `last` is the newest. Raises UsageError if there is none."""
        rows = self.jobs(limit=1) if job == "last" else self._jobs("WHERE id = ?", int(job) if job.isdigit() else -1)
        if not rows:
            raise UsageError(f"no job {job!r}", "kernel-assistant history lists the jobs")
        return rows[0]

    def jobs(self, *, limit: int = 100, states: Sequence[JobState] = tuple(JobState)) -> list[JobRow]:
        """Returns the jobs in these states, newest first, at most `limit`."""
        marks = ", ".join("?" * len(states))
        return self._jobs(
            f"WHERE state IN ({marks}) ORDER BY id DESC LIMIT ?", *(state.value for state in states), limit
        )

    def jobs_of(self, path: str, *, limit: int = 100) -> list[JobRow]:
        """Returns the jobs of one file, newest first, without those that a user has discarded."""
        condition = "WHERE path = ? AND id NOT IN (SELECT job FROM discarded) ORDER BY id DESC LIMIT ?"
        return self._jobs(condition, path, limit)

    def discard(self, job: str) -> None:
        """Marks the result of `job` as discarded: front ends no longer offer it; `show` and `apply` still accept its
        number.
        """
        with self._database.transaction() as db:
            db.execute("INSERT OR IGNORE INTO discarded VALUES (?, ?)", (int(job), time.time()))

    def data_version(self) -> int:
        """Returns a number that changes when another connection, of any process, changes the database."""
        with self._database.reading() as db:
            return int(db.execute("PRAGMA data_version").fetchone()[0])

    def stamp(self) -> tuple[object, ...]:
        """Returns a value that changes when a job begins, resumes or ends, a scan ends, or kernels are applied, undone
        or discarded; it stays the same while jobs do their work."""
        columns = (
            "(SELECT total(id) FROM jobs WHERE state = 'queued'), (SELECT total(id) FROM jobs WHERE state = 'running')",
            "(SELECT count(*) FROM jobs), (SELECT max(ended) FROM jobs), (SELECT max(started) FROM jobs)",
            "(SELECT count(*) FROM scans WHERE document != ''), (SELECT count(*) FROM discarded)",
            "(SELECT count(*) FROM edits), (SELECT max(undone) FROM edits)",
        )
        with self._database.reading() as db:
            return tuple(db.execute(f"SELECT {', '.join(columns)}").fetchone())

    def path_stamps(self) -> dict[str, tuple[object, ...]]:
        """Returns path → value for each file that a job was about. The value changes when one of the file's jobs
        begins, resumes, ends or is discarded."""
        counts = "count(*), max(id), max(started), max(ended), total(state = 'queued'), total(state = 'running')"
        given_up = "total(id IN (SELECT job FROM discarded))"
        with self._database.reading() as db:
            rows = db.execute(f"SELECT path, {counts}, {given_up} FROM jobs GROUP BY path").fetchall()
        return {str(path): tuple(stamp) for path, *stamp in rows}

    def find_unfinished(self, task: KernelTask, options: JobOptions) -> JobRow | None:
        """Returns the newest queued, running or interrupted job that would do the same work; None if there is none."""
        condition = "WHERE key = ? AND state IN ('queued', 'running', 'interrupted') ORDER BY id DESC LIMIT 1"
        rows = self._jobs(condition, job_key(task, options))
        return rows[0] if rows else None

    # episodes

    def add_step(self, job: str, step: Step) -> None:
        """Adds a step (one turn of an episode) to a job; it replaces an earlier step of the same turn."""
        with self._database.transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, ?)",
                (int(job), step.turn, step.message, step.started, step.ended),
            )
            db.execute("DELETE FROM evaluations WHERE job = ? AND turn = ?", (int(job), step.turn))
            for position, (candidate, evaluation) in enumerate(zip(step.candidates, step.evaluations, strict=True)):
                db.execute("INSERT OR IGNORE INTO candidates VALUES (?, ?)", (candidate.hash(), _text(candidate)))
                db.execute(
                    "INSERT INTO evaluations VALUES (?, ?, ?, ?, ?, ?)",
                    (int(job), step.turn, position, candidate.hash(), evaluation.outcome.value, _text(evaluation)),
                )

    def steps(self, job: str) -> tuple[Step, ...]:
        """Returns the steps of a job, in order of turns."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT turn, message, started, ended FROM steps WHERE job = ? ORDER BY turn", (int(job),)
            ).fetchall()
            return tuple(self._step(db, int(job), *row) for row in rows)

    def add_trajectory(self, job: str, trajectory: Trajectory) -> None:
        for step in trajectory.steps:
            self.add_step(job, step)
        episode = EpisodeSummary(
            task=trajectory.task,
            policy=trajectory.policy,
            stop_reason=trajectory.stop_reason,
            seconds=trajectory.seconds,
            best=trajectory.best,
            final=trajectory.final,
        )
        with self._database.transaction() as db:
            db.execute("INSERT OR REPLACE INTO episodes VALUES (?, ?)", (int(job), _text(episode)))

    def trajectory(self, job: str) -> Trajectory | None:
        """Returns the trajectory of a job's episode; None until the episode has ended."""
        with self._database.reading() as db:
            row = db.execute("SELECT document FROM episodes WHERE job = ?", (int(job),)).fetchone()
        if row is None:
            return None
        episode = decode(row[0], EpisodeSummary)
        return Trajectory(
            task=episode.task,
            policy=episode.policy,
            steps=self.steps(job),
            stop_reason=episode.stop_reason,
            seconds=episode.seconds,
            best=episode.best,
            final=episode.final,
        )

    def candidate(self, hash_: str) -> Candidate | None:
        with self._database.reading() as db:
            row = db.execute("SELECT document FROM candidates WHERE hash = ?", (hash_,)).fetchone()
        return None if row is None else decode(row[0], Candidate)

    def has_passed(self, source: str) -> bool:
        """Whether a candidate with a source of exactly this text was found correct, in a search, or in a job that
        checked this candidate only."""
        with self._database.reading() as db:
            row = db.execute(
                "SELECT 1 FROM evaluations JOIN candidates ON hash = candidate, "
                "json_each(candidates.document, '$.sources') AS one WHERE outcome = ? AND one.value = ? "
                "UNION ALL SELECT 1 FROM jobs, json_each(jobs.options, '$.candidate.sources') AS one "
                "WHERE one.value = ? AND (json_extract(jobs.result, '$.outcome') IN (?, ?) "
                "OR json_extract(jobs.result, '$.best') IS NOT NULL) LIMIT 1",
                (
                    Outcome.correct.value,
                    source,
                    source,
                    JobOutcome.improved.value,
                    JobOutcome.no_measurable_gain.value,
                ),
            ).fetchone()
        return row is not None

    # applied edits

    def add_edit(self, path: str, job: str, document: str) -> EditRow:
        created = time.time()
        with self._database.transaction() as db:
            cursor = db.execute(
                "INSERT INTO edits (path, job, document, created, undone) VALUES (?, ?, ?, ?, 0)",
                (path, job, document, created),
            )
            number = int(cursor.lastrowid or 0)
        return EditRow(id=number, path=path, job=job, document=document, created=created)

    def edits(self, *, path: str = "", job: str = "", undone: bool = False) -> list[EditRow]:
        """Returns applied edits, newest first: of one file and of one job, if given. With `undone`, edits that were
        undone are included."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT id, path, job, document, created, undone FROM edits WHERE (? = '' OR path = ?) "
                "AND (? = '' OR job = ?) AND (? OR undone = 0) ORDER BY id DESC",
                (path, path, job, job, undone),
            ).fetchall()
        return [EditRow(id=r[0], path=r[1], job=r[2], document=r[3], created=r[4], undone=r[5]) for r in rows]

    def mark_undone(self, edit: int) -> None:
        with self._database.transaction() as db:
            db.execute("UPDATE edits SET undone = ? WHERE id = ?", (time.time(), edit))

    # internals

    def _set(self, job: str, assignments: str, *values: object) -> None:
        with self._database.transaction() as db:
            db.execute(f"UPDATE jobs SET {assignments} WHERE id = ?", (*values, int(job)))

    def _jobs(self, condition: str, *values: object) -> list[JobRow]:
        with self._database.reading() as db:
            rows = db.execute(f"SELECT {_JOB_COLUMNS} FROM jobs {condition}", values).fetchall()
        return [_job_row(row) for row in rows]

    def _step(self, db: sqlite3.Connection, job: int, turn: int, message: str, started: float, ended: float) -> Step:
        rows = db.execute(
            "SELECT candidates.document, evaluations.document FROM evaluations JOIN candidates ON hash = candidate "
            "WHERE job = ? AND turn = ? ORDER BY position",
            (job, turn),
        ).fetchall()
        return Step(
            turn=turn,
            message=message,
            candidates=tuple(decode(row[0], Candidate) for row in rows),
            evaluations=tuple(decode(row[1], Evaluation) for row in rows),
            started=started,
            ended=ended,
        )


def _text(record: object) -> str:
    return encode(record).decode()


def _job_row(row: tuple[object, ...]) -> JobRow:
    number, task, options, state, device, created, started, ended, result, error, next_step = row
    return JobRow(
        id=str(number),
        task=decode(str(task), KernelTask),
        options=decode(str(options), JobOptions),
        state=JobState(str(state)),
        device=str(device),
        created=float(str(created)),
        started=float(str(started)),
        ended=float(str(ended)),
        result=None if result is None else decode(str(result), OptimizeResult),
        error=str(error),
        next_step=str(next_step),
    )
