"""The supervisor of `make demo`, with real processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.processes import command_line, session_members, wait_until
from config.supervisor import (
    FIRST_BACKOFF_S,
    HEALTHY_AFTER_S,
    MAX_BACKOFF_S,
    SupervisedCommand,
    Supervisor,
)

pytestmark = pytest.mark.processes

LONG_S = 30.0
LIVES = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
STUBBORN = [
    *(sys.executable, "-c"),
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\n"
    "while True: signal.pause()",
]
# A child in a process group of its own, as RQ's work-horse is.
WITH_CHILD = [
    *(sys.executable, "-c"),
    "import os, signal\n"
    "if os.fork() == 0: os.setpgid(0, 0); print('child up', flush=True); signal.pause()\n"
    "signal.pause()",
]


class Said(list[str]):
    """The lines that people would see."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()

    def __call__(self, line: str) -> None:
        with self.changed:
            self.append(line)
            self.changed.notify_all()

    def wait_for(self, words: str, *, times: int = 1) -> None:
        with self.changed:
            seen = self.changed.wait_for(
                lambda: sum(words in line for line in self) >= times, timeout=LONG_S
            )
        assert seen, f"{words!r} not said {times} times: {list(self)}"


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def supervise(said: Said, tmp_path: Path) -> Iterator[type[Supervisor]]:
    made: list[Supervisor] = []

    def make(grace_s: float = 5.0, **commands: list[str]) -> Supervisor:
        made.append(Supervisor(commands, tmp_path, said, grace_s=grace_s))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def test_every_line_carries_the_name_of_its_command(supervise, said) -> None:
    supervise(web=LIVES, poller=LIVES).look()
    said.wait_for("web    | up")
    said.wait_for("poller | up")


def test_what_dies_is_started_again_and_the_others_go_on(supervise, said) -> None:
    supervisor = supervise(dies=LIVES, lives=LIVES)
    supervisor.look()
    said.wait_for("up", times=2)
    first, other = (one.process for one in supervisor.supervised)
    first.kill()
    first.wait(LONG_S)
    assert wait_until(lambda: restarted(supervisor, first), timeout_s=LONG_S)
    said.wait_for("dies ended with code -9")
    said.wait_for("dies  | up", times=2)
    assert supervisor.supervised[1].process is other
    assert other.poll() is None


def restarted(supervisor: Supervisor, before: subprocess.Popen[str]) -> bool:
    supervisor.look()
    return supervisor.supervised[0].process not in (None, before)


def test_the_pause_before_a_restart_doubles_up_to_a_limit_and_heals() -> None:
    one = SupervisedCommand("web", [])
    pauses = []
    for _ in range(8):
        one.started_at = 100.0
        one.died(now=100.0)
        pauses.append(one.start_next_at - 100.0)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, MAX_BACKOFF_S, MAX_BACKOFF_S, MAX_BACKOFF_S]
    one.died(now=100.0 + HEALTHY_AFTER_S)
    assert one.start_next_at == 100.0 + HEALTHY_AFTER_S + FIRST_BACKOFF_S


def test_stop_kills_a_command_that_does_not_listen(supervise, said) -> None:
    supervisor = supervise(grace_s=0.2, web=STUBBORN)
    supervisor.look()
    said.wait_for("up")
    process = supervisor.supervised[0].process
    supervisor.stop()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="sessions are read from /proc")
def test_stop_leaves_no_grandchild_in_a_group_of_its_own(supervise, said) -> None:
    supervisor = supervise(worker=WITH_CHILD)
    supervisor.look()
    said.wait_for("child up")
    session = supervisor.supervised[0].process.pid
    assert len(session_members(session)) == 2
    supervisor.stop()
    assert wait_until(lambda: session_members(session) == [], timeout_s=LONG_S)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of a parent's death")
def test_kill_9_of_the_supervisor_takes_its_commands_with_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from config.supervisor import Supervisor, say\n"
        "one = Supervisor({'web': sys.argv[2:]}, Path(sys.argv[1]), say)\n"
        "one.look(); print('pid', one.supervised[0].process.pid, flush=True); one.run()"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), *STUBBORN], stdout=subprocess.PIPE, text=True
    )
    lines = iter(supervisor.stdout)
    pid = next(int(line.split()[1]) for line in lines if line.startswith("pid"))
    assert any("web | up" in line for line in lines)
    assert command_line(pid)
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor.communicate(timeout=LONG_S)
    assert wait_until(lambda: not command_line(pid), timeout_s=LONG_S)
