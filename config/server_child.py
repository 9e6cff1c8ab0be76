"""One server program as a foreground child: started on a free port, stopped, started again.

Promise: start returns only when the server answers, and a server left by a dead launcher is
stopped before its data are touched.
"""

import pwd
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from config.processes import (
    command_line,
    dies_with_parent,
    processes_inside,
    send_signal,
    wait_until,
)

HOST = "127.0.0.1"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
START_ATTEMPTS = 4
RETRY_AFTER_S = 0.3
LOG_END_CHARACTERS = 2000


class ServerFailed(Exception):
    """A local server did not come up; the message carries the end of its log."""


def free_port() -> int:
    """A TCP port nobody listens on now; a server that loses it meanwhile takes another."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


@dataclass(kw_only=True)
class ServerChild:
    """A server with its data in `folder`; `{port}` in the command stands for its port."""

    name: str
    command: list[str]
    folder: Path
    log: Path
    stop_signal: signal.Signals
    answers: Callable[[int], bool]
    user: str | None = None
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> Self:
        """Start on a free port."""
        self._start(free_port)
        return self

    def start_again(self) -> None:
        """Bring a dead server back at the address that others already know."""
        self._start(lambda: self.port)

    def _start(self, choose_port: Callable[[], int]) -> None:
        """More than once: another process may take the port first, or a dead server's children
        may still hold its memory."""
        for attempt in range(START_ATTEMPTS):
            time.sleep(RETRY_AFTER_S * attempt)
            self.port = choose_port()
            self._spawn()
            if self._came_up():
                return
            self.stop()
        end = self.log.read_text(errors="replace")[-LOG_END_CHARACTERS:]
        raise ServerFailed(f"{self.name} did not start. The end of {self.log}:\n{end}")

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """Ask for a clean end; kill what hangs."""
        if self.process is None or not self.is_running():
            return
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _spawn(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [word.replace("{port}", str(self.port)) for word in self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                preexec_fn=dies_with_parent(self.stop_signal),
                user=self.user,
                group=pwd.getpwnam(self.user).pw_gid if self.user else None,
                extra_groups=[] if self.user else None,
            )

    def _came_up(self) -> bool:
        wait_until(
            lambda: not self.is_running() or self.answers(self.port), timeout_s=START_TIMEOUT_S
        )
        return self.is_running() and self.answers(self.port)


def stop_left_over(pid_file: Path, *, proof: str, signum: signal.Signals) -> None:
    """Stop the server that a killed launcher left, or forget a pid that is no such server.

    A pid counts only with `proof` in its command line: pids are used again, and a zombie has
    no command line. The pid file is removed last, when no process works on the data any more.
    """
    try:
        pid = int(pid_file.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return

    def is_ours() -> bool:
        return proof in command_line(pid)

    for step in (signum, signal.SIGQUIT, signal.SIGKILL):
        if is_ours():
            send_signal(pid, step)
            wait_until(lambda: not is_ours(), timeout_s=STOP_TIMEOUT_S)
    # Backends of a killed postmaster end by themselves; the data are theirs until then.
    if not wait_until(lambda: not processes_inside(pid_file.parent), timeout_s=STOP_TIMEOUT_S):
        raise ServerFailed(f"Other processes still work in {pid_file.parent}; stop them first.")
    pid_file.unlink(missing_ok=True)
