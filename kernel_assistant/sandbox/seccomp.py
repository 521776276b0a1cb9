"""Which system calls sandboxed code may not make. Everything not named here, and known, is allowed."""

from __future__ import annotations

import errno
import platform
import socket

from kernel_assistant.errors import MissingError
from kernel_assistant.sandbox import syscalls
from kernel_assistant.sandbox.bpf import Program

# What changes the machine, widens the kernel's attack surface, or reaches into another process.
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
# Landlock does not govern these, and without a process namespace they reach every process of the user.
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
    """This machine's architecture. Raises MissingError if there is no filter for it."""
    found = platform.machine()
    if found not in syscalls.MACHINES:
        raise MissingError(f"no system call filter for {found}", "use an x86-64 or aarch64 machine, or --sandbox none")
    return found


def build(
    architecture: str, *, allow_fork: bool, gpu: bool, namespaces: bool, signal_scope: bool, truncation_free: bool
) -> Program:
    """The filter. `namespaces`: bubblewrap isolates; `signal_scope`: something else keeps signals inside;
    `truncation_free`: nothing else keeps files outside from being cut to nothing."""
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
    """Names in, blocks of a program out; a call that the machine does not have is passed over."""

    def __init__(self, architecture: str) -> None:
        self.architecture = architecture
        self.program = Program()
        x32_bit = syscalls.X32_BIT if architecture == "x86_64" else None
        self.program.begin(syscalls.AUDIT_ARCH[architecture], syscalls.LAST_KNOWN, x32_bit, errno.ENOSYS)

    def number(self, name: str) -> int:
        """For calls that every machine has."""
        found = syscalls.number(name, self.architecture)
        assert found is not None, name
        return found

    def deny(self, *names: str, error: int = errno.EPERM) -> None:
        for name in names:
            found = syscalls.number(name, self.architecture)
            if found is not None and found <= syscalls.LAST_KNOWN:
                self.program.deny(found, error)

    def sockets(self, *, listening: bool) -> None:
        """Connected sockets that were passed in go on working. CUDA's driver opens one to listen at, and needs it; a
        datagram socket would do to send with, without connecting.
        """
        if not listening:
            self.deny(*SOCKETS)
            return
        self.deny("connect", "socketpair")
        self.program.allow_value_without_bit(self.number("socket"), socket.AF_UNIX, DATAGRAM_BIT, errno.EPERM)

    def processes(self, allow_fork: bool) -> None:
        # clone3 hides its flags in memory; C libraries go back to clone when it does not exist.
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
        """`openat2` hides its flags in memory; C libraries do not use it, or go back to `openat`."""
        self.deny("truncate")
        self.deny("creat", "openat2", error=errno.ENOSYS)
        for name, argument in (("open", 1), ("openat", 2)):
            found = syscalls.number(name, self.architecture)
            if found is not None:
                self.program.deny_truncating_reads(found, argument, errno.EPERM)

    def arguments(self) -> None:
        self.program.allow_own_pid(self.number("prlimit64"), 0, errno.EPERM, or_zero=True)
        self.program.allow_values(self.number("personality"), 0, (PERSONALITY_QUERY,), errno.EPERM)
        self.program.deny_values(self.number("ioctl"), 1, TERMINAL_INPUT, errno.EPERM)
        self.program.deny_values(self.number("prctl"), 0, PROCESS_CONTROL, errno.EPERM)
