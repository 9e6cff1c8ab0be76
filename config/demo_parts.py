"""The parts `make demo` is made of: a port, an environment, commands, sample data.

Promise: what cannot work is refused with words for the person who typed the command.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from config.embedded import Addresses, stored_secrets
from config.processes import dies_with_parent, wait_until
from config.server_child import HOST
from config.stack import BASE_DIR, write_secret
from config.supervisor import Supervisor

PORTS = range(8000, 8100)
# A killed demo's web process may hold the port for a moment.
PORT_PATIENCE_S = 5.0
WEB_UP_TIMEOUT_S = 60.0
DEMO_FILE = "demo.json"


class CannotStart(Exception):
    """The demo cannot start; the message is for the person who typed the command."""


@dataclass(frozen=True)
class DemoAccess:
    """Who may come in: the demo's users with their passwords, and a token for scripts."""

    sign_ins: dict[str, str] = field(default_factory=dict)
    api_token: str = ""


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
    rqworker = [sys.executable, "manage.py", "rqworker", "-v0"]
    if sys.platform == "darwin":
        rqworker += ["--worker-class", "rq.SimpleWorker"]  # forks of a threaded process crash there
    return {
        "web": [
            *gunicorn,
            *("--bind", f"{HOST}:{port}", "--workers", "1", "--threads", "8"),
            *("--graceful-timeout", "5", "--log-level", "warning", "--no-control-socket"),
        ],
        "poller": [sys.executable, "manage.py", "run_poller"],
        "worker": [*rqworker, "escalations"],
        # Apart, so that no message waits behind a long drain and no drain behind a slow channel.
        "sender": [*rqworker, "notifications"],
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
