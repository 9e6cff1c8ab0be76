"""Child processes that end when their starter ends, and questions about running ones.

Promise: a process is only ever signalled after its command line or session proved it ours.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PR_SET_PDEATHSIG = 1
PROC = Path("/proc")


def ask_for_signal_when_parent_dies(signum: signal.Signals) -> None:
    """Linux only; elsewhere a launcher killed with -9 leaves its children to the next start."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signum))


def dies_with_parent(signum: signal.Signals) -> Callable[[], None]:
    """A `preexec_fn`: the child gets `signum` the moment its starter is gone.

    The kernel watches the starting thread, so start such children from the main thread.
    """
    starter = os.getpid()

    def before_exec() -> None:
        ask_for_signal_when_parent_dies(signum)
        if os.getppid() != starter:
            os._exit(1)  # the starter died before the kernel was told to watch it

    return before_exec


def command_line(pid: int) -> str:
    """What the process was started with; empty for a dead one and for a zombie."""
    if PROC.is_dir():
        try:
            raw = (PROC / str(pid) / "cmdline").read_bytes()
        except OSError:
            return ""
        return raw.replace(b"\0", b" ").decode(errors="replace")
    found = subprocess.run(
        ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip()


def session_members(session: int) -> list[int]:
    """Every living process of a session, whatever process group it moved to (Linux)."""
    members = []
    for stat in PROC.glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(its_session) == session and state not in "ZX":
            members.append(int(stat.parent.name))
    return members


def kill_session(leader: int) -> None:
    """Kill what is left of a child that was started as leader of its own session."""
    for pid in session_members(leader):
        send_signal(pid, signal.SIGKILL)
    if not PROC.is_dir():
        try:
            os.killpg(leader, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return


def send_signal(pid: int, signum: signal.Signals) -> None:
    """Signal a process that may just have ended."""
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return


def wait_until(condition: Callable[[], bool], *, timeout_s: float, every_s: float = 0.02) -> bool:
    """Look until the condition holds; False when the time is over."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


def processes_inside(folder: Path) -> list[int]:
    """Living processes that work in the folder: their directory is in it (Linux)."""
    inside = []
    for link in PROC.glob("[0-9]*/cwd"):
        try:
            place = link.readlink()
        except OSError:
            continue
        if place.is_relative_to(folder):
            inside.append(int(link.parent.name))
    return inside
