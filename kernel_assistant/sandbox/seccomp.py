"""Builds the filter of system calls that sandboxed code may not make. Known calls that this file does not name are
allowed."""

from __future__ import annotations

import errno
import platform
import socket

from kernel_assistant.errors import MissingError
from kernel_assistant.sandbox import syscalls
from kernel_assistant.sandbox.bpf import BpfProgram

# Calls that change the machine, widen the kernel's attack surface, or access another process.
DENIED = (
    *("acct", "add_key", "adjtimex", "bpf", "chroot", "clock_adjtime", "clock_settime", "delete_module"),
    *("fanotify_init", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "init_module", "io_uring_enter"),
    *("io_uring_register", "io_uring_setup", "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl"),
    *("memfd_secret", "migrate_pages", "modify_ldt", "mount", "mount_setattr", "move_mount", "move_pages"),
    *("mq_open", "msgget", "name_to_handle_at", "open_by_handle_at", "open_tree", "perf_event_open"),
    *("pidfd_getfd", "pidfd_open", "pivot_root", "process_madvise", "process_mrelease", "process_vm_readv"),
    *("process_vm_writev", "ptrace", "quotactl", "quotactl_fd", "reboot", "request_key", "semget"),
    *("setdomainname", "sethostname", "setns", "settimeofday", "shmget", "swapoff", "swapon", "syslog"),
    *("umount2", "unshare", "uselib", "userfaultfd"),
)
SOCKETS = ("bind", "connect", "socket", "socketpair")
# Calls on files and processes that Landlock does not restrict; without a process namespace they work on every process
# of the user.
METADATA = (
    *("chmod", "chown", "fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat", "fremovexattr", "fsetxattr"),
    *(
        "futimesat",
        "inotify_add_watch",
        "lchown",
        "lremovexattr",
        "lsetxattr",
        "removexattr",
        "setxattr",
        "utime",
        "utimensat",
        "utimes",
    ),
)
PRIORITIES = ("ioprio_set", "sched_setattr", "sched_setparam", "sched_setscheduler", "setpriority")
SIGNALS = ("pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "tkill")
NEW_PROCESS = ("fork", "vfork")

DATAGRAM_BIT = 2  # set in SOCK_DGRAM and SOCK_RAW, not in SOCK_STREAM and SOCK_SEQPACKET
CLONE_THREAD = 0x00010000
CLONE_NEW_NAMESPACE = 0x7E020000
PERSONALITY_QUERY = 0xFFFFFFFF
TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: type into the user's terminal
PROCESS_CONTROL = (1, 36, 0x59616D61)  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_PTRACER


def machine() -> str:
    """Returns this machine's architecture. Raises MissingError if there is no filter for it."""
    name = platform.machine()
    if name not in syscalls.MACHINES:
        raise MissingError(f"no system call filter for {name}", "use an x86-64 or aarch64 machine, or --sandbox none")
    return name


def build(
    architecture: str, *, allow_fork: bool, gpu: bool, namespaces: bool, signal_scope: bool, truncation_free: bool
) -> BpfProgram:
    """Returns the filter for `architecture`. With `namespaces`, bubblewrap isolates files and processes, so the filter
    need not. `signal_scope` says that another mechanism keeps signals inside the sandbox. With `truncation_free` the
    filter must protect files outside from being truncated, because nothing else does."""
    filter_ = _Filter(architecture)
    filter_.deny(*DENIED)
    filter_.sockets(listening=gpu)
    filter_.processes(allow_fork)
    filter_.signals(own_only=not (allow_fork and signal_scope))
    filter_.arguments()
    if not namespaces:
        filter_.deny(*METADATA, *PRIORITIES)
    if truncation_free:
        filter_.truncation()
    if not gpu:
        filter_.deny("memfd_create")
    filter_.program.allow_rest()
    return filter_.program


class _Filter:
    """Builds the filter program from names of system calls. Calls that the architecture does not have are skipped."""

    def __init__(self, architecture: str) -> None:
        self.architecture = architecture
        self.program = BpfProgram()
        x32_bit = syscalls.X32_BIT if architecture == "x86_64" else None
        self.program.begin(syscalls.AUDIT_ARCH[architecture], syscalls.LAST_KNOWN, x32_bit, errno.ENOSYS)

    def number(self, name: str) -> int:
        """Returns the number of a system call that every architecture has."""
        number = syscalls.number(name, self.architecture)
        assert number is not None, name
        return number

    def deny(self, *names: str, error: int = errno.EPERM) -> None:
        for name in names:
            number = syscalls.number(name, self.architecture)
            if number is not None and number <= syscalls.LAST_KNOWN:
                self.program.deny(number, error)

    def sockets(self, *, listening: bool) -> None:
        """Restricts sockets. Connected sockets that were passed in still work. With `listening`, new Unix stream
        sockets are allowed, because CUDA's driver needs them. Datagram sockets are never allowed: they can send
        without connecting.
        """
        if not listening:
            self.deny(*SOCKETS)
            return
        self.deny("connect", "socketpair")
        self.program.allow_value_without_bit(self.number("socket"), socket.AF_UNIX, DATAGRAM_BIT, errno.EPERM)

    def processes(self, allow_fork: bool) -> None:
        # A filter cannot read the flags of clone3, which are in memory. C libraries use clone if clone3 does not exist.
        self.deny("clone3", error=errno.ENOSYS)
        if allow_fork:
            self.program.deny_bits(self.number("clone"), 0, CLONE_NEW_NAMESPACE, errno.EPERM)
            return
        self.deny(*NEW_PROCESS)
        self.program.allow_bits(self.number("clone"), 0, CLONE_THREAD, errno.EPERM)

    def signals(self, *, own_only: bool) -> None:
        if own_only:
            self.deny(*SIGNALS)
            self.program.allow_own_pid(self.number("kill"), 0, errno.EPERM)
            self.program.allow_own_pid(self.number("tgkill"), 0, errno.EPERM)

    def truncation(self) -> None:
        """Denies truncation. A filter cannot read the flags of `openat2`, which are in memory, so `openat2` fails; C
        libraries do not use it, or use `openat` if it fails."""
        self.deny("truncate")
        self.deny("creat", "openat2", error=errno.ENOSYS)
        for name, argument in (("open", 1), ("openat", 2)):
            number = syscalls.number(name, self.architecture)
            if number is not None:
                self.program.deny_truncating_reads(number, argument, errno.EPERM)

    def arguments(self) -> None:
        self.program.allow_own_pid(self.number("prlimit64"), 0, errno.EPERM, or_zero=True)
        self.program.allow_values(self.number("personality"), 0, (PERSONALITY_QUERY,), errno.EPERM)
        self.program.deny_values(self.number("ioctl"), 1, TERMINAL_INPUT, errno.EPERM)
        self.program.deny_values(self.number("prctl"), 0, PROCESS_CONTROL, errno.EPERM)
