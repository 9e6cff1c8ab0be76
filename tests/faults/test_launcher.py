"""The launcher of `make demo` as a real process: stopped, killed, started twice."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from config.local_postgres import cluster_folder, remove_outside_data
from config.processes import PROC, command_line, processes_inside, wait_until
from config.stack import BASE_DIR, Stack, read_stack

pytestmark = pytest.mark.processes

UP_TIMEOUT_S = 60
DOWN_TIMEOUT_S = 30


class Launcher:
    """`python -m config.demo --servers-only` on one data folder."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.started: list[subprocess.Popen[str]] = []

    def spawn(self, *words: str) -> subprocess.Popen[str]:
        not_ours = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "SECRET_KEY", "PORT", "DATA")
        process = subprocess.Popen(
            [sys.executable, "-m", "config.demo", "--servers-only", f"--data={self.data}", *words],
            cwd=BASE_DIR,
            env={k: v for k, v in os.environ.items() if k not in not_ours},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def up(self) -> tuple[subprocess.Popen[str], Stack]:
        process = self.spawn()
        wait_until(
            lambda: process.poll() is not None or read_stack(self.data) is not None,
            timeout_s=UP_TIMEOUT_S,
        )
        stack = read_stack(self.data)
        assert stack, process.communicate(timeout=5)[0]
        return process, stack

    def left(self) -> list[str]:
        """Whatever still works on the folder, by its command line or its directory."""
        by_name = [int(p.name) for p in PROC.glob("[0-9]*") if str(self.data) in _line(p)]
        pids = {*by_name, *processes_inside(self.data)} - {os.getpid()}
        return [line for pid in pids if (line := command_line(pid))]

    def nothing_left(self) -> bool:
        return wait_until(lambda: not self.left(), timeout_s=DOWN_TIMEOUT_S)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=DOWN_TIMEOUT_S)
        remove_outside_data(self.data)


def _line(process_folder: Path) -> str:
    return command_line(int(process_folder.name))


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path / "a folder with spaces")
    yield launcher
    launcher.close()
    assert launcher.nothing_left(), launcher.left()


def write_note(stack: Stack, text: str) -> None:
    with psycopg.connect(stack.database_owner_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS note (text text)")
        connection.execute("INSERT INTO note VALUES (%s)", [text])
    with redis.Redis.from_url(stack.redis_url) as client:
        client.set("note", text)


def notes(stack: Stack) -> tuple[list[str], bytes | None]:
    with psycopg.connect(stack.database_owner_url) as connection:
        rows = connection.execute("SELECT text FROM note ORDER BY text").fetchall()
    with redis.Redis.from_url(stack.redis_url) as client:
        return [text for (text,) in rows], client.get("note")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stopped_launcher_exits_0_and_leaves_no_process(
    launcher: Launcher, signum: signal.Signals
) -> None:
    # Under nohup the suite ignores SIGHUP, and the launcher would inherit that.
    before = signal.signal(signum, signal.SIG_DFL)
    try:
        process, _ = launcher.up()
    finally:
        signal.signal(signum, before)
    process.send_signal(signum)
    output, _ = process.communicate(timeout=DOWN_TIMEOUT_S)
    assert process.returncode == 0, output
    assert launcher.left() == []
    assert not (launcher.data / "stack.json").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of a parent's death")
def test_kill_9_of_the_launcher_leaves_no_process_and_keeps_the_data(launcher: Launcher) -> None:
    process, stack = launcher.up()
    write_note(stack, "written before the kill")
    process.kill()
    assert launcher.nothing_left(), launcher.left()
    assert read_stack(launcher.data) is None, "a dead demo must not be found as running"
    _, stack = launcher.up()
    assert notes(stack) == (["written before the kill"], b"written before the kill")


def test_a_second_start_keeps_the_data(launcher: Launcher) -> None:
    process, stack = launcher.up()
    write_note(stack, "first")
    process.terminate()
    process.communicate(timeout=DOWN_TIMEOUT_S)
    _, stack = launcher.up()
    assert notes(stack) == (["first"], b"first")


def test_a_start_on_a_folder_in_use_refuses_and_says_where_the_other_is(launcher: Launcher) -> None:
    first, stack = launcher.up()
    second = launcher.spawn()
    output, _ = second.communicate(timeout=UP_TIMEOUT_S)
    assert second.returncode == 2
    assert stack.web in output
    assert first.poll() is None, "the refused start must not hurt the running one"
    assert read_stack(launcher.data) == stack


def test_a_port_in_use_is_named(launcher: Launcher) -> None:
    _, stack = launcher.up()
    port = stack.database_url.rpartition(":")[2].partition("/")[0]
    other = Launcher(launcher.data.parent / "other")
    process = other.spawn(f"--port={port}")
    output, _ = process.communicate(timeout=UP_TIMEOUT_S)
    assert process.returncode == 2
    assert f"Port {port} is in use" in output


def test_two_demos_on_two_folders_run_side_by_side(launcher: Launcher, tmp_path: Path) -> None:
    _, stack = launcher.up()
    other = Launcher(tmp_path / "other")
    try:
        _, other_stack = other.up()
        write_note(stack, "one")
        write_note(other_stack, "two")
        assert notes(stack) == (["one"], b"one")
        assert notes(other_stack) == (["two"], b"two")
    finally:
        other.close()
    assert other.nothing_left(), other.left()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("whose", ["no process", "another process", "a zombie"])
def test_a_stale_pid_file_does_not_stop_the_start(launcher: Launcher, whose: str) -> None:
    process, stack = launcher.up()
    write_note(stack, "kept")
    process.terminate()
    process.communicate(timeout=DOWN_TIMEOUT_S)
    stale = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        if whose != "another process":
            stale.kill()
            os.waitid(os.P_PID, stale.pid, os.WEXITED | os.WNOWAIT)
        if whose == "no process":
            stale.wait()
        postgres = cluster_folder(launcher.data) / "postmaster.pid"
        for pid_file in (postgres, launcher.data / "valkey" / "valkey.pid"):
            pid_file.write_text(f"{stale.pid}\n")
        _, stack = launcher.up()
        assert notes(stack) == (["kept"], b"kept")
        assert whose != "another process" or stale.poll() is None, "a stranger was stopped"
    finally:
        stale.kill()
        stale.communicate()


@pytest.mark.parametrize("name", ["postgres", "valkey"])
def test_a_server_that_dies_comes_back_at_the_same_address(launcher: Launcher, name: str) -> None:
    _, stack = launcher.up()
    write_note(stack, "kept")
    program = {"postgres": "bin/postgres -D", "valkey": "valkey.conf"}[name]
    (victim,) = [
        int(p.name)
        for p in PROC.glob("[0-9]*")
        if str(launcher.data) in _line(p) and program in _line(p)
    ]
    os.kill(victim, signal.SIGKILL)
    assert wait_until(lambda: answers(stack, name), timeout_s=UP_TIMEOUT_S)
    assert notes(stack) == (["kept"], b"kept")


def answers(stack: Stack, name: str) -> bool:
    try:
        notes(stack)
    except (psycopg.Error, redis.RedisError):
        return False
    return True
