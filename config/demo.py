"""`make demo`: everything on this machine, from embedded servers to the pages, in one command.

Promise: one demo per data folder; when it ends, in whatever way, nothing it started is left
running and its data are whole.
"""

import argparse
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from config.binaries import MissingBinary
from config.demo_parts import (
    CannotStart,
    DemoAccess,
    choose_port,
    commands_for,
    environment_for,
    load_demo_data,
    manage,
    wait_for_web,
)
from config.embedded import Addresses, EmbeddedServers, stored_secrets
from config.processes import ask_for_signal_when_parent_dies
from config.server_child import HOST, ServerFailed
from config.stack import (
    BASE_DIR,
    LOCK_FILE,
    Stack,
    data_folder,
    read_stack,
    remove_stack,
    write_stack,
)
from config.supervisor import StopRequested, Supervisor, say, signals_raise_stop
from disputes.commands import COULD_NOT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until stopped; 0 after a stop that was asked for, 2 when it could not start."""
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
        return COULD_NOT
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
    parser.add_argument("--servers-only", action="store_true", help="only PostgreSQL and Valkey")
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
        access = DemoAccess()
        commands: dict[str, list[str]] = {}
        if not servers_only:
            with step("Migrations"):
                manage("migrate", "--verbosity=0", environment=environment)
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
