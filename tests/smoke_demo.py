"""Start `make demo` on a fresh folder, see the clock escalate a dispute over HTTP, stop it.

Promise: exits 0 only if the dispute rose after its deadline, and nothing was left running.
Usage: python -m tests.smoke_demo DATA_FOLDER
"""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from config.processes import command_line, wait_until
from config.server_child import free_port
from config.stack import BASE_DIR, Stack, is_in_use, read_stack

UP_TIMEOUT_S = 180
DUE_IN_S = 5
RISES_WITHIN_S = 60
STOP_TIMEOUT_S = 30


def main(data: Path) -> None:
    if is_in_use(data):
        sys.exit(f"A demo runs on {data}: stop it first.")
    shutil.rmtree(data, ignore_errors=True)
    demo = subprocess.Popen(
        ["make", "demo"],
        cwd=BASE_DIR,
        env={**os.environ, "PORT": str(free_port()), "DATA": str(data)},
        start_new_session=True,
    )
    try:
        stack = wait_for_stack(demo, data)
        watch_one_escalate(stack)
    finally:
        demo.send_signal(signal.SIGTERM)
        demo.wait(STOP_TIMEOUT_S)
    if not wait_until(lambda: not left_running(data), timeout_s=STOP_TIMEOUT_S):
        sys.exit(f"Left running: {left_running(data)}")
    print("smoke: a dispute was escalated by the clock, and nothing is left running")


def wait_for_stack(demo: subprocess.Popen[bytes], data: Path) -> Stack:
    def settled() -> bool:
        return read_stack(data) is not None or demo.poll() is not None

    wait_until(settled, timeout_s=UP_TIMEOUT_S, every_s=0.2)
    stack = read_stack(data)
    if stack is None:
        sys.exit("The demo did not come up.")
    return stack


def watch_one_escalate(stack: Stack) -> None:
    due_at = datetime.now(UTC) + timedelta(seconds=DUE_IN_S)
    created = call(
        stack,
        "POST",
        "/api/v1/disputes",
        {
            "source": "smoke",
            "reference": f"smoke-{uuid.uuid4()}",
            "amount": "129.00",
            "currency": "USD",
            "due_at": due_at.isoformat(),
        },
    )
    address, first_tier = f"/api/v1/disputes/{created['id']}", created["tier"]
    deadline = time.monotonic() + DUE_IN_S + RISES_WITHIN_S
    while time.monotonic() < deadline:
        tier = call(stack, "GET", address)["tier"]
        late_by_s = (datetime.now(UTC) - due_at).total_seconds()
        if tier != first_tier:
            if late_by_s < 0:
                sys.exit(f"EARLY: {tier} {-late_by_s:.3f} s before the deadline")
            print(f"smoke: {first_tier} -> {tier}, seen {late_by_s:.3f} s after the deadline")
            return
        time.sleep(0.05)
    sys.exit(f"Still {first_tier} {RISES_WITHIN_S} s after the deadline.")


def call(stack: Stack, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    connection = http.client.HTTPConnection(urlsplit(stack.web).netloc, timeout=10)
    headers = {"Authorization": f"Bearer {stack.api_token}", "Content-Type": "application/json"}
    connection.request(method, path, json.dumps(body) if body else None, headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    if response.status not in (200, 201):
        sys.exit(f"{method} {path}: {response.status} {text}")
    return json.loads(text)


def left_running(data: Path) -> list[str]:
    """Command lines that name the data folder, and processes that work inside it."""
    lines = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            works_in = (folder / "cwd").readlink()
        except OSError:
            continue
        line = command_line(pid)
        if line and pid != os.getpid() and (str(data) in line or works_in.is_relative_to(data)):
            lines.append(f"{pid} {line}")
    return lines


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
