"""Opens jobs in tabs and follows them, including jobs that other front ends have started."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kernel_assistant.config import Settings
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.events import JobFailed, JobFinished
from kernel_assistant.records import KernelTask
from kernel_assistant.remote.job import RemoteSubmission, bring_back, connected, noted, send
from kernel_assistant.session.hosting.event_log import log_path, recorded_events
from kernel_assistant.session.reporting.following import EventSource
from kernel_assistant.session.threads import in_thread, tell
from kernel_assistant.store import JobOptions, JobRow
from kernel_assistant_tui.actions import shown_key
from kernel_assistant_tui.host.follow import JobEvents, JobFollowed, follow_in_thread
from kernel_assistant_tui.host.stored_jobs import ActiveJobs, in_hand
from kernel_assistant_tui.jobs import OpenJob, OpenJobs
from kernel_assistant_tui.project.module import Module
from kernel_assistant_tui.project.watch import Watcher
from kernel_assistant_tui.view.folding import fold
from kernel_assistant_tui.view.search_view import SearchView

if TYPE_CHECKING:
    from kernel_assistant_tui.screens.main import MainScreen

#: Most interrupted jobs that are opened automatically; the history has the others.
MOST_LEFT = 3


@dataclass(frozen=True)
class FollowedJob:
    """A job whose events a thread receives: the session host that sends them (`source`), the job's number there, and
    the number of the thread (`follower`)."""

    source: EventSource
    number: str
    follower: int


class JobFollower:
    """Manages the jobs that are open in tabs of the main screen. `key` is the key of the current tab's job, "" if no
    tab is open."""

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self.jobs = OpenJobs()
        self.key = ""
        self._checking = False
        self._followed: dict[str, FollowedJob] = {}
        self._submissions: dict[str, RemoteSubmission] = {}
        self._opened: set[str] = set()

    @property
    def current(self) -> OpenJob | None:
        return self.jobs.get(self.key)

    # The project

    def start(self) -> None:
        """Read the project and start to watch its files for changes."""
        loop = asyncio.get_running_loop()
        screen = self._screen

        def changed(paths: frozenset[Path]) -> None:
            tell(loop, lambda: screen.flow(lambda: self.look(paths)))

        def failed(why: str) -> None:
            words = f"changes of files are not noticed ({why}); see fs.inotify.max_user_watches"
            tell(loop, lambda: screen.say(words, severity="warning"))

        self._watcher = Watcher(screen.work.root, changed, failed)
        self._watcher.start()
        screen.flow(lambda: self.look(None))
        if screen.work.settings.host:
            screen.flow(self._follow_remote_jobs)

    async def look(self, changed: frozenset[Path] | None = frozenset()) -> None:
        """Reads the files in `changed` (None: all files) and the unfinished jobs, and updates the screen."""
        screen, work, loop = self._screen, self._screen.work, asyncio.get_running_loop()
        modules = await in_thread(
            lambda: work.project.read(changed, lambda part: tell(loop, screen.show_modules, part))
        )
        if changed is None and work.project.cut_off:
            screen.say("the project has too many files; name a folder inside it", severity="warning")
        hands = await in_thread(lambda: in_hand(work.project, work.client))
        left = {row.id for row in hands.left}
        screen.show_modules(tuple(_interrupted(one) if one.state.job in left else one for one in modules))
        await self._open_what_is_there(hands)

    async def round(self) -> None:
        """Update the screen if jobs, applied kernels or scans have changed. Called every two seconds."""
        if self._checking:
            return
        self._checking = True
        try:
            if await in_thread(self._screen.work.project.jobs_changed):
                await self.look()
        except KernelAssistantError:
            pass  # the store is locked or damaged: the next call tries again
        finally:
            self._checking = False

    async def _open_what_is_there(self, hands: ActiveJobs) -> None:
        """Open tabs for jobs that other front ends have started, and for interrupted jobs. The tab of an interrupted
        job shows the events in its log.
        """
        for row in hands.active:
            if row.id not in self._opened:
                self.follow(row, show=not self.key)
        left = [row.id for row in hands.left if row.id not in self._opened][:MOST_LEFT]
        for number in left:
            await self.open(number, show=not self.key)
        if left:
            words = f"job {left[0]} was" if len(left) == 1 else f"jobs {', '.join(left)} were"
            key = shown_key(self._screen.work.preferences.key("resume"))
            self._screen.say(f"{words} interrupted; {key} goes on with it", severity="warning")

    # Tabs

    def show(self, key: str) -> None:
        """Switch to the tab of the job `key`."""
        self.key = key
        if self._screen.in_training:
            self._screen.go("episode")
        self._screen.show_job()

    def step(self, by: int) -> None:
        keys = [one.key for one in self.jobs]
        if keys:
            index = keys.index(self.key) + by if self.key in keys else 0
            self.show(keys[index % len(keys)])

    def close(self, key: str) -> None:
        """Close a tab. Its job goes on and is not opened automatically again."""
        keys = [one.key for one in self.jobs]
        index = keys.index(key)
        self.jobs.close(key)
        self._followed.pop(key, None)
        rest = [one for one in keys if one != key]
        self.show(rest[min(index, len(rest) - 1)] if rest else "")

    def follow(self, row: JobRow, *, show: bool) -> OpenJob:
        """Opens a tab for a job of the session host and follows the job; switches to the tab if `show` is True. This
        resumes an interrupted job."""
        return self._follow(self.jobs.open(row), self._screen.work.client, row.id, show=show)

    def _follow(self, job: OpenJob, source: EventSource, number: str, *, show: bool) -> OpenJob:
        self._opened.add(job.key)
        if not job.followed:
            self.jobs.follow(job.key, followed=True)
            follower = follow_in_thread(source, number, job.key, self._screen)
            self._followed[job.key] = FollowedJob(source, number, follower)
        self._shown(job.key, show=show)
        return job

    def _shown(self, key: str, *, show: bool) -> None:
        if show or not self.key:
            self.show(key)
        else:
            self._screen.show_job()

    def source(self, key: str) -> tuple[EventSource, str]:
        """Returns (host, number): the session host that runs the job of the tab `key`, and the number of the job
        there."""
        followed = self._followed.get(key)
        return (self._screen.work.client, key) if followed is None else (followed.source, followed.number)

    async def open(self, number: str, *, show: bool = True) -> OpenJob:
        """Opens a tab for the job `number` of the store. Follows the job if a host runs it, else shows its event log.
        Switches to the tab if `show` is True."""
        work = self._screen.work
        known = self.jobs.get(number)
        if known is not None:
            self.show(known.key)
            return known
        row = await in_thread(lambda: work.project.store.job(number))
        if row.state.active and await in_thread(work.client.status) is not None:
            return self.follow(row, show=show)
        job = self.jobs.open(row, await in_thread(lambda: _recorded(work.settings, row)))
        self._opened.add(row.id)
        self._shown(job.key, show=show)
        return job

    async def open_chosen(self) -> None:
        """Open the last job of the chosen class. If there is none, open the dialog to optimize the class."""
        module = self._screen.module
        if module is None:
            return
        if module.state.job:
            job = await self.open(module.state.job)
            self._screen.go("result" if job.has_kernels else "episode")
        else:
            self._screen.action_act("options")

    # Submitting jobs and receiving their events

    async def submit(self, task: KernelTask, options: JobOptions, settings: Settings) -> OpenJob:
        """Submits a job to the session host of this machine or of the remote one that the settings name, and follows it
        in a tab. Raises KernelAssistantError if the host refuses the job or cannot be reached."""
        client = self._screen.work.client
        options = msgspec.structs.replace(options, free_wins=settings.free_wins)
        if settings.host:
            self._screen.say(f"sending {task.name} to {settings.host}")
            return self._follow_remote(await in_thread(lambda: send(task, options, settings)), show=True)
        submitted: dict[str, Any] = await in_thread(lambda: client.submit(task, options))
        number = str(submitted["job"])
        if submitted["joined"]:
            self._screen.say(f"job {number} is at it already; watching that one")
        row = await in_thread(lambda: self._screen.work.project.store.job(number))
        return self.follow(row, show=True)

    def _follow_remote(self, sent: RemoteSubmission, *, show: bool) -> OpenJob:
        job = self.jobs.open_remote(sent.job)
        self._submissions[job.key] = sent
        return self._follow(job, sent.machine.client, sent.job.number, show=show)

    async def _follow_remote_jobs(self) -> None:
        """Follow the jobs that an earlier session or an editor has started on the remote machine of the settings."""
        work = self._screen.work
        noted_jobs = [one for one in await in_thread(lambda: noted(work.settings)) if one.host == work.settings.host]
        mine = [one for one in noted_jobs if Path(one.path).is_relative_to(work.root)]
        if mine:
            machine = await in_thread(lambda: connected(work.settings))
            for one in mine:
                self._follow_remote(RemoteSubmission(machine, one, {}), show=not self.key)

    def hear(self, message: JobEvents) -> None:
        job = self.jobs.fold(message.job, message.events) if self._is_current(message) else None
        if job is None:
            return
        if message.job == self.key:
            self._screen.show_job()
        if any(isinstance(event, (JobFinished, JobFailed)) for event in message.events):
            self._screen.flow(lambda: self._tell_end(job))

    def ended(self, message: JobFollowed) -> None:
        """Handles the message that a thread will send no more events of a job; fetches the result of a remote job."""
        if self._is_current(message):
            self.jobs.follow(message.job, followed=False)
            self._screen.show_job()
            if message.job in self._submissions:
                self._screen.flow(lambda: self._bring_back(message.job))

    def _is_current(self, message: JobEvents | JobFollowed) -> bool:
        """Whether a message comes from the thread that follows its job now, and not from one of a tab that was
        closed."""
        followed = self._followed.get(message.job)
        return followed is None or message.follower in (0, followed.follower)

    async def _bring_back(self, key: str) -> None:
        sent, settings = self._submissions.pop(key), self._screen.work.settings
        self.jobs.brought(key, await in_thread(lambda: bring_back(sent.machine, sent.job, settings)))
        self._screen.show_job()
        await self.look()

    async def _tell_end(self, job: OpenJob) -> None:
        from kernel_assistant_tui.flows.kernels import verdict_of

        view = job.view
        if view.failure is not None:
            self._screen.say(f"{job.label}: {view.failure.cause}\n{view.failure.next_step}", severity="error")
        elif view.result is not None:
            self._screen.say(f"{job.label}: {await in_thread(lambda: verdict_of(job))}")
        await self.look()


def _interrupted(module: Module) -> Module:
    """Return `module` with its job marked as interrupted, because the session host of the job has died."""
    return replace(module, state=replace(module.state, state="interrupted"))


def _recorded(settings: Settings, row: JobRow) -> SearchView:
    """Return the view of a job from its event log. If the log has no result (the disk was full), the result in the
    store is used. Call it in a thread."""
    view = fold(SearchView(job=row.id), *recorded_events(log_path(settings.jobs_dir, row.id)))
    if row.result is None or not view.state.active:
        return view
    return fold(view, JobFinished(seq=view.seq + 1, job=row.id, time=row.ended, result=row.result))
