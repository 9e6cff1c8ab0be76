"""PostgreSQL in the data folder: the account it runs as, its cluster, its roles.

Promise: the cluster appears whole or not at all, listens on TCP only and asks for passwords.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from config.binaries import namespace_prefix, postgres_bin
from config.processes import dies_with_parent
from config.server_child import HOST, ServerChild, ServerFailed, stop_left_over

DATABASE = "escalations"
MAX_CONNECTIONS = 200
NOT_DURABLE = ("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")
NOBODY = "nobody"
# In the data folder: where the cluster is, if it cannot be there.
FOLDER_NOTE = "postgres-folder"


@dataclass(frozen=True)
class Account:
    """Who PostgreSQL runs as: the words before its commands, the user to become, its folders."""

    prefix: tuple[str, ...]
    user: str | None
    bin: Path
    folder: Path


def account_for(data: Path) -> Account:
    """PostgreSQL refuses to be root and to be a user without a name.

    Both get a namespace of their own, or, as root where there are none, the user `nobody`.
    """
    programs = postgres_bin()
    is_root = os.geteuid() == 0
    if not is_root and _has_name(os.geteuid()):
        return Account((), None, programs, data)
    if prefix := namespace_prefix():
        return Account(prefix, None, programs, data)
    if is_root:
        return _nobody_account(data, programs)
    raise ServerFailed(f"PostgreSQL needs a user with a name; user {os.geteuid()} has none.")


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _nobody_account(data: Path, programs: Path) -> Account:
    """No user namespaces here: `nobody` works in a private folder that it can reach."""
    note = data / FOLDER_NOTE
    folder = Path(note.read_text()) if note.exists() else None
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="escalations-postgres-"))
        nobody = pwd.getpwnam(NOBODY)
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        note.write_text(str(folder))
    elif not folder.is_dir():
        raise ServerFailed(f"The data were in {folder}: gone. Remove {data} to start anew.")
    if not _nobody_may_run(programs / "postgres"):
        programs = _copy_programs(programs, folder / "install")
    return Account((), NOBODY, programs, folder)


def _copy_programs(programs: Path, target: Path) -> Path:
    """Copy an installation with the libraries that a wheel keeps beside its package."""
    installation, package = programs.parent, programs.parent.parent
    libraries = package.with_name(f"{package.name}.libs")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(installation, target / package.name / installation.name, symlinks=True)
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name)
    return target / package.name / installation.name / programs.name


def cluster_folder(data: Path) -> Path:
    """Where the cluster of a data folder is."""
    note = data / FOLDER_NOTE
    return (Path(note.read_text()) if note.exists() else data) / "postgres"


def remove_outside_data(data: Path) -> None:
    """Remove what had to live outside the data folder; for tests, whose data are not kept."""
    note = data / FOLDER_NOTE
    if note.exists():
        shutil.rmtree(note.read_text())


def _nobody_may_run(program: Path) -> bool:
    try:
        subprocess.run(
            [program, "--version"], user=NOBODY, extra_groups=[], capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def start_postgres(data: Path, passwords: dict[str, str], *, durable: bool) -> ServerChild:
    """The data folder's PostgreSQL, answering, with its roles and its database."""
    account = account_for(data)
    cluster = account.folder / "postgres"
    stop_left_over(cluster / "postmaster.pid", proof=str(cluster), signum=signal.SIGINT)
    _make_cluster(account, cluster, passwords["postgres"])
    server = ServerChild(
        name="postgres",
        command=[
            *account.prefix,
            *(str(account.bin / "postgres"), "-D", str(cluster), "-h", HOST, "-k", ""),
            *("-c", f"max_connections={MAX_CONNECTIONS}", *(() if durable else NOT_DURABLE)),
            *("-p", "{port}"),
        ],
        folder=account.folder,
        log=data / "postgres.log",
        stop_signal=signal.SIGINT,
        user=account.user,
        answers=lambda port: _answers(superuser_url(port, passwords)),
    ).start()
    try:
        prepare_roles(superuser_url(server.port, passwords), passwords)
    except BaseException:
        server.stop()
        raise
    return server


def superuser_url(port: int, passwords: dict[str, str]) -> str:
    return database_url(port, "postgres", passwords, database="postgres")


def database_url(
    port: int, role: str, passwords: dict[str, str], *, database: str = DATABASE
) -> str:
    return f"postgresql://{role}:{passwords[role]}@{HOST}:{port}/{database}"


def _make_cluster(account: Account, cluster: Path, password: str) -> None:
    """initdb beside the final place, then one rename: a start cut short leaves no half cluster."""
    version_file = cluster / "PG_VERSION"
    if version_file.exists():
        _refuse_other_version(account.bin, version_file)
        return
    half_made = cluster.with_name("postgres.new")
    shutil.rmtree(half_made, ignore_errors=True)
    with tempfile.NamedTemporaryFile("w", dir=account.folder, prefix=".initdb-") as password_file:
        password_file.write(password)
        password_file.flush()
        if account.user:
            os.chown(password_file.name, pwd.getpwnam(account.user).pw_uid, -1)
        done = subprocess.run(
            [
                *account.prefix,
                *(str(account.bin / "initdb"), "-D", str(half_made), "-U", "postgres"),
                *("-A", "scram-sha-256", "--pwfile", password_file.name),
                *("-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"),
            ],
            capture_output=True,
            text=True,
            check=False,
            user=account.user,
            extra_groups=[] if account.user else None,
            cwd=account.folder,
            preexec_fn=dies_with_parent(signal.SIGTERM),
        )
    if done.returncode:
        raise ServerFailed(f"initdb failed:\n{done.stdout}{done.stderr}")
    half_made.rename(cluster)


def _refuse_other_version(programs: Path, version_file: Path) -> None:
    data_version = version_file.read_text().strip()
    said = subprocess.run(
        [programs / "postgres", "--version"], capture_output=True, text=True, check=True
    ).stdout
    program_version = said.split()[2].split(".")[0]
    if program_version != data_version:
        raise ServerFailed(
            f"{version_file.parent} was made by PostgreSQL {data_version}, the programs in "
            f"{programs} are version {program_version}. Set PG_BIN, or use another data folder."
        )


def _answers(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=2, autocommit=True) as connection:
            connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def prepare_roles(superuser: str, passwords: dict[str, str]) -> None:
    """The role that owns the tables, the role of the application, and the database; repeatable.

    `owner` may end the sessions of `app` (to drop a test database), hence the membership.
    """
    with psycopg.connect(superuser, autocommit=True) as connection:
        known = {name for (name,) in connection.execute("SELECT rolname FROM pg_roles")}
        for role, rights in (("owner", "CREATEDB"), ("app", "")):
            statement = "ALTER ROLE" if role in known else "CREATE ROLE"
            connection.execute(
                sql.SQL(f"{statement} {{}} LOGIN {rights} PASSWORD {{}}").format(
                    sql.Identifier(role), sql.Literal(passwords[role])
                )
            )
        connection.execute("GRANT app TO owner")
        exists = connection.execute(
            "SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]
        ).fetchone()
        if not exists:
            connection.execute(f"CREATE DATABASE {DATABASE} OWNER owner TEMPLATE template0")
