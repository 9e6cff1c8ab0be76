"""`make demo`: everything on this machine, from embedded servers to the pages, in one command.

Promise: one demo per data folder; when it ends, in whatever way, nothing it started is left
running and its data are whole.
"""

import argparse
import contextlib
import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from config.binaries import MissingBinary
from config.embedded import Addresses, EmbeddedServers, stored_secrets
from config.processes import ask_for_signal_when_parent_dies, dies_with_parent, wait_until
from config.server_child import HOST, ServerFailed
from config.stack import (
    BASE_DIR,
    LOCK_FILE,
    Stack,
    data_folder,
    read_stack,
    remove_stack,
    write_secret,
    write_stack,
)
from config.supervisor import StopRequested, Supervisor, say, signals_raise_stop

PORTS = range(8000, 8100)
# A killed demo's web process may hold the port for a moment.
PORT_PATIENCE_S = 5.0
WEB_UP_TIMEOUT_S = 60.0
DEMO_FILE = "demo.json"


@dataclass(frozen=True)
class DemoAccess:
    """Who may come in: the demo's users with their passwords, and a token for scripts."""

    sign_ins: dict[str, str] = field(default_factory=dict)
    api_token: str = ""


class CannotStart(Exception):
    """The demo cannot start; the message is for the person who typed the command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until stopped; 0 after a stop that was asked for, 1 when it could not start."""
    parser = argparse.ArgumentParser(prog="demo", description=DESCRIPTION)
    add_options(parser)
    options = parser.parse_args(arguments)
    if options.stop_with_parent:
        ask_for_signal_when_parent_dies(signal.SIGTERM)
    try:
        with signals_raise_stop(), only_demo_of(options.data.resolve()) as data:
            run(data, port=options.port, servers_only=options.servers_only)
    except StopRequested:
        say("Everything is stopped.")
    except (CannotStart, MissingBinary, ServerFailed) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


DESCRIPTION = (
    "Start PostgreSQL, Valkey, the pages, the poller and a worker on this machine, with sample "
    "disputes that escalate within a minute. Ctrl-C stops everything; the data are kept."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options, for `python -m config.demo` and for `manage.py help demo`."""
    parser.add_argument(
        "--port",
        type=int,
        default=os.environ.get("PORT") or None,
        help="where the pages are (default: PORT, else the first free one from 8000)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=data_folder(),
        help="its data (default: DATA, else .data)",
    )
    parser.add_argument(
        "--servers-only", action="store_true", help="only PostgreSQL, Valkey and the migrations"
    )
    parser.add_argument(
        "--stop-with-parent", action="store_true", help="stop when the calling process ends"
    )


@contextlib.contextmanager
def only_demo_of(data: Path) -> Iterator[Path]:
    """The kernel drops this lock with its process, so a killed demo blocks nobody."""
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (data / LOCK_FILE).open("a")
    except OSError as problem:
        raise CannotStart(f"The data folder cannot be used: {problem}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stack = read_stack(data)
            does = f"runs at {stack.web}" if stack else "is starting or stopping"
            raise CannotStart(
                f"A demo on {data} {does}. Stop it first, or choose another DATA and PORT."
            ) from None
        remove_stack(data)
        yield data


def run(data: Path, *, port: int | None, servers_only: bool) -> None:
    """Start in order, publish the addresses, supervise; stop in the opposite order."""
    port = choose_port(port)
    web = f"http://{HOST}:{port}"
    servers = EmbeddedServers(data)
    with contextlib.ExitStack() as stopping:
        with step("PostgreSQL and Valkey"):
            stopping.enter_context(servers)
        environment = environment_for(data, servers.addresses, web)
        with step("Migrations"):
            manage("migrate", "--verbosity=0", environment=environment)
        access = DemoAccess()
        commands: dict[str, list[str]] = {}
        if not servers_only:
            with step("Ladders, people, sample disputes"):
                access = load_demo_data(data, environment)
            commands = commands_for(port)
        supervisor = Supervisor(commands, BASE_DIR, say, environment)
        stopping.callback(supervisor.stop)
        if commands:
            with step("Pages, poller, worker"):
                wait_for_web(supervisor, port)
        stopping.callback(remove_stack, data)
        publish(data, servers.addresses, web, access)
        welcome(web, data, access)
        supervisor.run(each_round=lambda: keep_servers(servers))


@contextlib.contextmanager
def step(words: str) -> Iterator[None]:
    """Say what is being done, and how long it took."""
    say(f"{words} ...")
    started = time.monotonic()
    yield
    say(f"{words}: {time.monotonic() - started:.1f} s")


def choose_port(wanted: int | None) -> int:
    """The wanted port if it gets free, else the first free one of a fixed range."""
    if wanted is None:
        free = next((port for port in PORTS if is_free(port)), None)
        if free is None:
            raise CannotStart(f"Ports {PORTS[0]} to {PORTS[-1]} are all in use: give a PORT.")
        return free
    if not 1 <= wanted <= 65535:
        raise CannotStart(f"{wanted} is not a port.")
    if not wait_until(lambda: is_free(wanted), timeout_s=PORT_PATIENCE_S):
        raise CannotStart(f"Port {wanted} is in use: choose another PORT.")
    return wanted


def is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True


def environment_for(data: Path, addresses: Addresses, web: str) -> dict[str, str]:
    """What the product's processes read; an ESCALATION that the person set is kept."""
    inherited = {k: v for k, v in os.environ.items() if k != "TIMELINE_REDIS_URL"}
    return {
        **inherited,
        "DATABASE_URL": addresses.database_url,
        "DATABASE_OWNER_URL": addresses.database_owner_url,
        "REDIS_URL": addresses.redis_url,
        "SECRET_KEY": stored_secrets(data)["django"],
        "DEBUG": "false",
        "HTTPS": "false",
        "LOG_FORMAT": "plain",
        "PUBLIC_URL": web,
        "DATA": str(data),
        "EMAIL_BACKEND": "django.core.mail.backends.filebased.EmailBackend",
        "EMAIL_FILE_PATH": str(data / "mail"),
        "PYTHONUNBUFFERED": "1",
        "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES",
    }


def commands_for(port: int) -> dict[str, list[str]]:
    """The product's processes by name."""
    gunicorn = [sys.executable, "-m", "gunicorn", "config.wsgi:application"]
    # At level 0 RQ tells of trouble only, not of every job.
    worker = [sys.executable, "manage.py", "rqworker", "escalations", "notifications", "-v0"]
    if sys.platform == "darwin":
        worker += ["--worker-class", "rq.SimpleWorker"]  # forks of a threaded process crash there
    return {
        "web": [
            *gunicorn,
            *("--bind", f"{HOST}:{port}", "--workers", "1", "--threads", "8"),
            *("--graceful-timeout", "5", "--log-level", "warning", "--no-control-socket"),
        ],
        "poller": [sys.executable, "manage.py", "run_poller"],
        "worker": worker,
    }


def manage(*words: str, environment: dict[str, str]) -> str:
    """Run one management command to its end; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=BASE_DIR,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        start_new_session=True,
        preexec_fn=dies_with_parent(signal.SIGTERM),
    )
    if done.returncode:
        raise CannotStart(f"`manage.py {words[0]}` failed; what it said is above.\n{done.stdout}")
    return done.stdout


def load_demo_data(data: Path, environment: dict[str, str]) -> DemoAccess:
    """Ladders, people and disputes; what is shown only once (the token) is kept for next time."""
    printed = manage("demo_data", environment=environment)
    access = json.loads(printed.splitlines()[-1])
    path = data / DEMO_FILE
    kept = json.loads(path.read_text()) if path.exists() else {}
    known = DemoAccess(
        sign_ins={**kept.get("sign_ins", {}), **(access.get("sign_ins") or {})},
        api_token=access.get("api_token") or kept.get("api_token", ""),
    )
    write_secret(path, json.dumps(asdict(known), indent=2))
    return known


def wait_for_web(supervisor: Supervisor, port: int) -> None:
    """Supervise until the pages answer."""

    def answers() -> bool:
        supervisor.look()
        connection = http.client.HTTPConnection(HOST, port, timeout=2)
        try:
            connection.request("GET", "/healthz")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return True

    if not wait_until(answers, timeout_s=WEB_UP_TIMEOUT_S, every_s=0.1):
        raise CannotStart("The pages do not come up; what they said is above.")


def publish(data: Path, addresses: Addresses, web: str, access: DemoAccess) -> None:
    """Write stack.json, by which commands and scripts find this demo."""
    stack = Stack(
        pid=os.getpid(),
        web=web,
        database_url=addresses.database_url,
        database_owner_url=addresses.database_owner_url,
        redis_url=addresses.redis_url,
        secret_key=stored_secrets(data)["django"],
        sign_ins=access.sign_ins,
        api_token=access.api_token,
    )
    write_stack(data, stack)


def welcome(web: str, data: Path, access: DemoAccess) -> None:
    """Where to go and who to be."""
    width = max((len(name) for name in access.sign_ins), default=0)
    say("")
    say(f"  The pages:    {web}/queues/")
    say(f"  The admin:    {web}/admin/")
    for name, password in access.sign_ins.items():
        say(f"  Sign in as:   {name:<{width}}  {password}")
    say(f"  For scripts:  {data}/stack.json")
    say("  Ctrl-C stops everything; the data are kept for the next start.")
    say("")


def keep_servers(servers: EmbeddedServers) -> None:
    """A database or Redis that died comes back at the same address."""
    for name in servers.keep_alive():
        say(f"{name} had ended and was started again")


if __name__ == "__main__":
    sys.exit(main())
