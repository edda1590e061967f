"""Connections to a manager's schema in PostgreSQL: how they are opened, what their faults mean, and the tables.

What is in the tables is the matter of postgresql.py and lease_keeper.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from postroad.errors import StorageError

VERSION = 1  # of the tables
OLDEST = 130_000  # the first server that is supported
CONNECT_S = 5  # for each address of the URL
READ_S = 2.0  # the event loop waits for such a read
WAIT_S = 0.1  # between two looks for a signal
TABLES = files(__package__).joinpath("postgresql.sql").read_text(encoding="utf-8")
MAX_NAME_BYTES = 63  # of a schema

# The other end is gone if it does not answer at all for about ten seconds: with an answer, a commit may take as long as
# it wants, because a replica may be away.
_ALIVE = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
_ALIVE_MS = 10_000  # for which data that was sent may stay unacknowledged

# A commit is confirmed by the replica, where there is one, and nothing on this side ends its wait. A transaction that
# its client has left ends soon, so that its locks do not keep a successor waiting.
_SETTINGS = """
SELECT set_config('search_path', quote_ident(%s), false),
    set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('on', 'remote_apply')
        THEN current_setting('synchronous_commit') ELSE 'on' END, false),
    set_config('statement_timeout', '0', false),
    set_config('lock_timeout', '0', false),
    set_config('idle_in_transaction_session_timeout', '10s', false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('client_min_messages', 'warning', false)
"""
_SYNCHRONOUS = "SELECT current_setting('synchronous_standby_names') <> ''"
_EXISTS = "SELECT to_regclass(quote_ident(%s) || '.version') IS NOT NULL"
_NAMESPACE = "SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL"
_SCHEMAS = """
SELECT nspname FROM pg_namespace JOIN pg_class ON relnamespace = pg_namespace.oid
WHERE relname IN ('lease', 'mark', 'message') AND relkind = 'r' GROUP BY nspname HAVING count(*) = 3 ORDER BY nspname"""
_OUR_NAMES = "^(version|lease|standby|mark|message|state|journal_[0-9]+)$"
_OUR_TABLES = f"""
SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
    AND relname ~ '{_OUR_NAMES}'"""
# Tables of the journal come and go: only their owner may drop them.
_RIGHTS = f"""
SELECT CASE WHEN place IS NULL THEN has_database_privilege(current_database(), 'CREATE')
    ELSE has_schema_privilege(place, 'USAGE') AND has_schema_privilege(place, 'CREATE') AND NOT EXISTS (
        SELECT FROM pg_class WHERE relnamespace = place AND relkind = 'r' AND relname ~ '{_OUR_NAMES}'
            AND NOT pg_has_role(relowner, 'USAGE')) END
FROM (SELECT to_regnamespace(quote_ident(%s))::oid) AS found (place)"""
_LOCK = "SELECT pg_advisory_xact_lock(hashtext(%s))"

T = TypeVar("T")


class Blame(Enum):
    """Who has to do something about a fault."""

    NOBODY = auto()  # the server is away, or changes its role: it comes back
    SERVER = auto()  # somebody has to look at the server
    SETTINGS = auto()  # the configuration is wrong, or rights are missing


_MISSING_RIGHTS = "rights are missing; the user must own the schema and its tables, or be allowed to create them"
# By the beginning of the SQLSTATE, the most special first.
_FAULTS: tuple[tuple[str, Blame, str], ...] = (
    (
        "28",
        Blame.SETTINGS,
        "the server refuses the login; check store.url and store.password_file",
    ),
    ("3D000", Blame.SETTINGS, "the database does not exist; create it, or correct store.url"),
    ("42501", Blame.SETTINGS, _MISSING_RIGHTS),
    ("42P01", Blame.SERVER, "the user may not use the schema, or a table is missing; grant the rights, or restore it"),
    ("3F000", Blame.SERVER, "the schema is missing; restore the database"),
    ("53100", Blame.SERVER, "the server's disk is full; free some space there, then the manager goes on by itself"),
    ("53300", Blame.SERVER, "the server has too many connections; raise max_connections"),
    ("53", Blame.SERVER, "the server is out of memory or another resource"),
    ("25006", Blame.NOBODY, "the server is a replica that only reads; the manager waits for one that writes"),
    ("57", Blame.NOBODY, "the server is starting, stopping or changing its role"),
    ("08", Blame.NOBODY, "the connection was lost"),
    ("XX", Blame.SERVER, "the server reports damage; see its log"),
)
# A failed login has no SQLSTATE in libpq, only the server's words.
_LOGINS = (
    ("password authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("no pg_hba.conf entry", "28000"),
    ("Peer authentication failed", "28000"),
    ("is not permitted to log in", "28000"),
    ('FATAL: role "', "28000"),
    ("too many clients", "53300"),
    ("remaining connection slots", "53300"),
    ("too many connections", "53300"),
    ('FATAL: database "', "3D000"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the schema of a manager is. Raises DatabaseFault for a URL that the driver cannot read."""

    url: str
    schema: str
    password_file: Path | None = None

    def __post_init__(self) -> None:
        try:
            conninfo_to_dict(self.url)
        except psycopg.ProgrammingError as error:
            # Other words of the driver may repeat the password.
            why = f" ({error})" if str(error).startswith("invalid URI query parameter") else ""
            raise DatabaseFault(
                "the URL of the database must be postgresql://USER@HOST/DATABASE, with special characters of names and "
                f"passwords as %XX{why}",
                Blame.SETTINGS,
            ) from None

    def __str__(self) -> str:
        """For people: without a password."""
        found = conninfo_to_dict(self.url)
        hosts = str(found.get("host") or "local").replace(",", " or ")
        return f"{hosts}, database {found.get('dbname', '')}, schema {self.schema}"


class DatabaseFault(StorageError):
    """The database did not do what was asked."""

    def __init__(self, sentence: str, blame: Blame) -> None:
        self.blame = blame
        super().__init__(sentence)


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that says whether a commit was confirmed, and that bounds a read in time."""

    unconfirmed = False  # the server has warned: it may not have waited for its replica
    most_s: float | None = None  # for an answer

    def expect_confirmation(self) -> None:
        """Call it before a commit, and look at `unconfirmed` after it."""
        self.unconfirmed = False

    def bound(self, most_s: float) -> None:
        """Waits no longer for an answer. The connection is closed if one takes longer."""
        self.most_s = most_s

    def note(self, notice: errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self.unconfirmed = True

    def wait(self, gen: Generator[Any, Any, T], interval: float = WAIT_S, timeout: float | None = None) -> T:
        most_s = self.most_s if timeout is None else timeout
        if most_s is None:
            return super().wait(gen, interval)
        until = time.monotonic() + most_s
        try:
            return super().wait(gen, interval, most_s)
        except Exception as error:
            if time.monotonic() < until:
                raise
            self.pgconn.finish()  # its answer could still come, to another question
            raise psycopg.OperationalError(f"no answer in {most_s:g} seconds") from error


class Connector:
    """Opens connections to one place."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def connect(self, what: str) -> Connection:
        """A connection in autocommit mode. `what` tells the server's administrator what it is for. Raises
        psycopg.Error and DatabaseFault."""
        place = self.place
        given = conninfo_to_dict(place.url)
        settings: dict[str, Any] = dict(_ALIVE)
        settings["tcp_user_timeout"] = _ALIVE_MS
        settings["connect_timeout"] = CONNECT_S
        settings["target_session_attrs"] = "read-write"
        settings = {name: value for name, value in settings.items() if name not in given}
        settings["application_name"] = self.application(what)
        if place.password_file is not None:
            settings["password"] = read_password(place.password_file)
        connection = Connection.connect(make_conninfo(place.url, **settings), autocommit=True, prepare_threshold=0)
        try:
            version = connection.info.server_version
            if version < OLDEST:
                raise DatabaseFault(
                    f"{place}: the server must be PostgreSQL {OLDEST // 10_000} or later, got {version // 10_000}",
                    Blame.SETTINGS,
                )
            connection.add_notice_handler(connection.note)
            connection.execute(_SETTINGS, (place.schema,))
        except BaseException:
            connection.close()
            raise
        return connection

    def application(self, what: str) -> str:
        """The name that the server shows for a connection. Schemas have different ones."""
        return f"postroad {sha256(self.place.schema.encode()).hexdigest()[:16]} {what}"

    def explain(self, doing: str, error: psycopg.Error | OSError) -> DatabaseFault:
        """What went wrong, who has to act, and what to do."""
        code = (error.sqlstate if isinstance(error, psycopg.Error) else None) or ""
        text = " ".join(str(error).split())
        if not code:
            code = next((code for words, code in _LOGINS if words in text), "08")
        for beginning, blame, cure in _FAULTS:
            if code.startswith(beginning):
                return DatabaseFault(f"{self.place}: {doing} failed: {cure} ({text})", blame)
        return DatabaseFault(f"{self.place}: {doing} failed: the server refused ({code}: {text})", Blame.SERVER)


def read_password(file: Path) -> str:
    """Raises StorageError."""
    try:
        return file.read_text(encoding="utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DatabaseFault(f"{file}: the password cannot be read: {error}", Blame.SETTINGS) from None


def prepare_tables(connector: Connector, connection: Connection, generation: Callable[[], int]) -> None:
    """Creates the schema and its tables, if they are not there. Raises psycopg.Error, and DatabaseFault for missing
    rights and for tables of a newer Postroad. `generation` is the first one of the journal."""
    place = connector.place
    check_rights(connector, connection)
    if not has_tables(connector, connection):
        with connection.transaction():
            connection.execute(_LOCK, (place.schema,))
            if not has_tables(connector, connection):
                if not _scalar(connection, _NAMESPACE, (place.schema,)):
                    connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(place.schema)))
                connection.execute(TABLES.encode(), prepare=False)
                connection.execute("INSERT INTO version VALUES (1, %s)", (VERSION,))
                connection.execute("INSERT INTO lease VALUES (0, 1, 0, 0, true, NULL, '')")
                _first_mark(connection, generation())
    version = _scalar(connection, "SELECT number FROM version")
    if version > VERSION:
        raise DatabaseFault(
            f"{place}: the version of the tables must be at most {VERSION} for this Postroad, got {version}; use a "
            "newer Postroad, or another schema",
            Blame.SETTINGS,
        )


def check_rights(connector: Connector, connection: Connection) -> None:
    """Raises DatabaseFault if the user could not make the tables, or not keep them."""
    if not _scalar(connection, _RIGHTS, (connector.place.schema,)):
        user = connection.info.user
        raise DatabaseFault(f"{connector.place}, user {user}: {_MISSING_RIGHTS}", Blame.SETTINGS)


def has_tables(connector: Connector, connection: Connection) -> bool:
    return bool(_scalar(connection, _EXISTS, (connector.place.schema,)))


def schemas(connector: Connector) -> list[str]:
    """The schemas of this database that have a store. Raises StorageError."""
    with _explained(connector, "reading"), connector.connect("copy") as connection:
        return [name for (name,) in connection.execute(_SCHEMAS).fetchall()]


def is_used(connector: Connector) -> tuple[bool, bool]:
    """Whether the schema exists, and whether a store is in it. Raises StorageError."""
    with _explained(connector, "reading"), connector.connect("copy") as connection:
        exists = bool(_scalar(connection, _NAMESPACE, (connector.place.schema,)))
        return exists, has_tables(connector, connection)


def drop_tables(connector: Connector, *, schema_too: bool) -> None:
    """Removes a store that is not whole. Raises StorageError."""
    with _explained(connector, "cleaning up"), connector.connect("copy") as connection:
        if schema_too:
            connection.execute(
                sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(connector.place.schema))
            )
        else:
            for (name,) in connection.execute(_OUR_TABLES).fetchall():
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(name)))


@contextmanager
def _explained(connector: Connector, doing: str) -> Iterator[None]:
    try:
        yield
    except (psycopg.Error, OSError) as error:
        raise connector.explain(doing, error) from error


def is_synchronous(connection: Connection) -> bool:
    """Whether the server waits for a replica before it confirms a commit."""
    return bool(_scalar(connection, _SYNCHRONOUS))


def close_quietly(connection: Connection | None) -> None:
    if connection is not None:
        with suppress(psycopg.Error, OSError):
            connection.close()


def is_broken(connection: Connection) -> bool:
    return connection.closed or connection.pgconn.transaction_status is TransactionStatus.UNKNOWN


def _first_mark(connection: Connection, spilled: int) -> None:
    from postroad.store.rows import Mark

    mark = Mark(spilled, 0)
    connection.execute("INSERT INTO mark VALUES (1, 0, %s, %s, %s)", (*mark, mark.checksum))


def _scalar(connection: Connection, query: str, parameters: tuple[object, ...] = ()) -> Any:
    row = connection.execute(query.encode(), parameters or None).fetchone()
    return None if row is None else row[0]
