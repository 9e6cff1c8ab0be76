"""Run named commands side by side, start again what dies, stop all together.

Promise: when `run` returns or its process is killed, no command and no child of one is left
(where the kernel offers it: Linux; elsewhere a kill -9 leaves them).
"""

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from config.processes import dies_with_parent, kill_session

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 10.0
# A command that lived this long was well: its next death starts again with the short pause.
HEALTHY_AFTER_S = 10.0
GRACE_S = 10.0
LOOK_EVERY_S = 0.1
# The last lines of a command that ended; a child that escaped may hold the pipe open for longer.
READER_PATIENCE_S = 1.0


class StopRequested(BaseException):
    """A signal asked to stop; not an Exception, so that no handler for errors swallows it."""


@contextlib.contextmanager
def signals_raise_stop() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal raise StopRequested once; later ones change nothing."""
    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # else started with nohup
        signals.append(signal.SIGHUP)

    def stop(signum: int, frame: object) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise StopRequested(signal.Signals(signum).name)

    before = {each: signal.signal(each, stop) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@dataclass
class SupervisedCommand:
    """One command: its process while it lives, the pause before its next start while not."""

    name: str
    command: Sequence[str]
    process: subprocess.Popen[str] | None = None
    reader: threading.Thread | None = None
    started_at: float = 0.0
    start_next_at: float = 0.0
    backoff_s: float = FIRST_BACKOFF_S

    def died(self, now: float) -> None:
        """Plan the next start: at once after a healthy life, later and later after short ones."""
        self.process = None
        if now - self.started_at >= HEALTHY_AFTER_S:
            self.backoff_s = FIRST_BACKOFF_S
        self.start_next_at = now + self.backoff_s
        self.backoff_s = min(self.backoff_s * 2, MAX_BACKOFF_S)


@dataclass
class Supervisor:
    """The commands, in the order they start; they stop in the opposite one."""

    commands: Mapping[str, Sequence[str]]
    folder: Path
    say: Callable[[str], None]
    environment: Mapping[str, str] | None = None
    grace_s: float = GRACE_S
    supervised: list[SupervisedCommand] = field(init=False)

    def __post_init__(self) -> None:
        self.supervised = [SupervisedCommand(*item) for item in self.commands.items()]
        self.width = max(map(len, self.commands), default=0)

    def look(self) -> None:
        """One round: notice deaths, start what is due.

        Children are started from here only, in the main thread: the kernel ties them to it.
        """
        for one in self.supervised:
            if one.process is not None and (code := one.process.poll()) is not None:
                kill_session(one.process.pid)
                one.died(time.monotonic())
                pause_s = one.start_next_at - time.monotonic()
                self.say(f"{one.name} ended with code {code}, starts again in {pause_s:.1f} s")
        now = time.monotonic()
        for one in self.supervised:
            if one.process is None and now >= one.start_next_at:
                self._spawn(one)

    def run(self, each_round: Callable[[], None] = lambda: None) -> None:
        """Supervise until an exception, such as StopRequested, ends it; then stop all."""
        try:
            while True:
                self.look()
                each_round()
                time.sleep(LOOK_EVERY_S)
        finally:
            self.stop()

    def stop(self) -> None:
        """Ask every command to end, wait up to the grace, kill what is left with its children.

        Only the command itself is asked: an RQ worker lets its job finish, gunicorn its requests.
        """
        living = [one.process for one in reversed(self.supervised) if one.process]
        for process in living:
            process.terminate()
        deadline = time.monotonic() + self.grace_s
        for process in living:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            kill_session(process.pid)
            if process.poll() is None:
                process.kill()
                process.wait()
        for reader in [one.reader for one in self.supervised if one.reader]:
            reader.join(READER_PATIENCE_S)

    def _spawn(self, one: SupervisedCommand) -> None:
        one.started_at = time.monotonic()
        one.process = subprocess.Popen(
            one.command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            # The product survives kill -9 by design, and only that is certain to end a child
            # whose launcher was killed.
            preexec_fn=dies_with_parent(signal.SIGKILL),
        )
        one.reader = threading.Thread(
            target=self._copy_output, args=(one.name, one.process.stdout), daemon=True
        )
        one.reader.start()

    def _copy_output(self, name: str, output: IO[str] | None) -> None:
        with output or contextlib.nullcontext():
            for line in output or ():
                self.say(f"{name:<{self.width}} | {line.rstrip()}")


def say(line: str) -> None:
    """Print for people; a reader that went away must not stop the product."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stdout, flush=True)
