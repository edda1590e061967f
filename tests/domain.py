"""A real Active Directory for tests: Samba's domain controller, with an address and a certificate authority of its own.

`domain_controller` is one for the whole session, and `new_controller` makes more of them. Both skip the test, and say
why, where there can be none. The first use provisions a domain into `build/domain` (17 s); every controller starts from
a copy of it (2 s).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import fields, replace
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from postroad.directory import distinguished_names as names
from postroad.directory.ldap_connection import LdapConnection
from postroad.directory.objects import Queue, QueueManager, RoutingLink, Site
from postroad.directory.snapshot import Directory
from tests.certificates import Authority

REALM = "POSTROAD.TEST"
DOMAIN = "postroad.test"
BASE = "DC=postroad,DC=test"
CONFIGURATION = f"CN=Configuration,{BASE}"
ADMINISTRATOR = f"Administrator@{REALM}"
PASSWORD = "Passw0rd!x"  # of a domain that exists only while a test runs
HOST = f"dc1.{DOMAIN}"

_CACHE = Path(__file__).parents[1] / "build" / "domain"
_PLACE = "@PLACE@"  # stands for a controller's own directory in the cached smb.conf
_PROGRAMS = ("samba", "samba-tool", "kinit", "ldapmodify", "unshare", "mount")
_SCHEMA = Path("/usr/share/samba/setup/ad-schema")  # a package of its own, which samba-ad-dc only recommends
_START_S = 120
_RUN = 'mount -t tmpfs tmpfs /run/samba && exec samba -i -M single -s "$0"'
_numbers = count(1)


def unavailable() -> str | None:
    """Why there can be no domain controller. None if there can be one."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a domain controller needs Linux and root"
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    missing += [str(place) for place in (_SCHEMA,) if not place.is_dir()]
    if missing:
        packages = (
            "samba samba-ad-dc samba-ad-provision samba-dsdb-modules samba-vfs-modules winbind krb5-user ldap-utils"
        )
        return f"a domain controller needs {', '.join(missing)}: apt-get install {packages}"
    modules = [name for name in ("ldap3", "spnego", "gssapi", "krb5") if find_spec(name) is None]
    if modules:
        return f"the extra domain is not installed ({', '.join(modules)}): apt-get install libkrb5-dev; make clean"
    if not _may_mount():
        return "a domain controller needs the right to make a mount namespace"
    return None


def _may_mount() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


class Controller:
    """A domain controller of the domain postroad.test. Clients reach it by `address`; it has no DNS."""

    def __init__(self, directory: Path, address: str | None = None, *, backend: str = "tdb") -> None:
        """With the backend `mdb`, the controller finds changes by an index, as Windows does. With `tdb`, it looks at
        all objects of the class."""
        self.directory = directory
        self.address = address or _free_address()
        self.ldaps = f"ldaps://{self.address}"
        self.ldap = f"ldap://{self.address}"
        self.krb5_conf = directory / "krb5.conf"
        self._place = directory / "dc"
        self._smb_conf = self._place / "etc" / "smb.conf"
        self._process: subprocess.Popen[bytes] | None = None
        _copy_domain(self._place, backend)
        self._smb_conf.write_text(
            self._smb_conf.read_text().replace(_PLACE, str(self._place)).replace("127.0.0.53", self.address)
        )
        self.krb5_conf.write_text(_KRB5_CONF.format(realm=REALM, kdc=self.address, domain=DOMAIN))
        self.authority = Authority(directory, "domain-authority")
        self.ca_certificates = self.authority.file
        self.use_certificate(*self.authority.issue(self.address, HOST))
        for service in (f"ldap/{self.address}", f"ldap/{HOST}", f"host/{self.address}"):
            with suppress(subprocess.CalledProcessError):  # it may be there already
                self.tool("spn", "add", service, "DC1$")

    @property
    def sam(self) -> Path:
        """The database of the directory, for ldbadd and the like while the controller is stopped."""
        return self._place / "private" / "sam.ldb"

    def use_certificate(self, certificate: Path, key: Path, authority: Path | None = None) -> None:
        """Takes effect at the next start."""
        tls = self._place / "private" / "tls"
        tls.mkdir(exist_ok=True)
        shutil.copy(certificate, tls / "cert.pem")
        shutil.copy(authority or self.ca_certificates, tls / "ca.pem")
        shutil.copy(key, tls / "key.pem")
        (tls / "key.pem").chmod(0o600)

    def set_option(self, name: str, value: str) -> None:
        """Sets an option of smb.conf. Takes effect at the next start."""
        lines = self._smb_conf.read_text().splitlines(keepends=True)
        others = "".join(line for line in lines if line.partition("=")[0].strip() != name)
        self._smb_conf.write_text(others.replace("[global]", f"[global]\n\t{name} = {value}", 1))

    def start(self) -> None:
        """Returns once LDAP, LDAPS and Kerberos answer."""
        Path("/run/samba").mkdir(exist_ok=True)
        log = (self.directory / "samba.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                # Samba keeps one pid file and its sockets in /run/samba, so each controller needs one of its own.
                ["unshare", "--mount", "sh", "-c", _RUN, str(self._smb_conf)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_S
        for port in (389, 636, 88):
            while not _accepts(self.address, port):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError("the domain controller did not start:\n" + self.log()[-2000:])
                time.sleep(0.1)

    def log(self) -> str:
        return (self.directory / "samba.log").read_text(errors="replace")

    def stop(self) -> None:
        """Ends the controller at once. Its directory stays, and `start` brings it back."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def pause(self) -> None:
        """Connections stay open, and nothing answers until `resume`."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)

    def tool(self, *arguments: str) -> str:
        """Runs samba-tool on this controller's database, also while it runs."""
        command = ["samba-tool", *arguments, "-s", str(self._smb_conf)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            fault = subprocess.CalledProcessError(done.returncode, arguments)
            fault.add_note(f"{done.stdout}{done.stderr}")
            raise fault
        return done.stdout

    def give_invocation(self) -> None:
        """Makes the stopped controller another one of the same domain: its changes have numbers of their own."""
        settings = f"CN=NTDS Settings,CN=DC1,CN=Servers,CN=Default-First-Site-Name,CN=Sites,{CONFIGURATION}"
        self.change_database(_GIVE_INVOCATION, settings)

    def change_database(self, program: str, *arguments: str) -> None:
        """Runs a program of Samba's own Python, which has the stopped controller's database as `sam`. The first error
        ends its transaction."""
        command = ["/usr/bin/python3", "-c", _OPEN_DATABASE + program, str(self._smb_conf), str(self.sam), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-2000:])

    def edit(self, ldif: str) -> None:
        """Changes the directory by LDIF."""
        subprocess.run(
            ["ldapmodify", "-x", "-H", self.ldaps, "-D", ADMINISTRATOR, "-w", PASSWORD],
            input=ldif,
            env=os.environ | {"LDAPTLS_CACERT": str(self.ca_certificates)},
            text=True,
            capture_output=True,
            check=True,
        )

    def add_user(self, name: str, password: str = PASSWORD, *services: str) -> None:
        """Adds a user, with service principals such as `postroad/10.0.0.1`."""
        self.tool("user", "add", name, password)
        self.tool("user", "setexpiry", name, "--noexpiry")
        for service in services:
            self.tool("spn", "add", service, name)

    def keytab(self, principal: str) -> Path:
        """A keytab for a user or a service principal."""
        file = self.directory / f"{principal.replace('/', '_')}.keytab"
        file.unlink(missing_ok=True)
        self.tool("domain", "exportkeytab", str(file), f"--principal={principal}")
        return file

    def credentials_cache(self, user: str = ADMINISTRATOR, password: str = PASSWORD, *options: str) -> Path:
        """A credentials cache of its own with a new ticket, from kinit."""
        file = self.directory / f"{user.split('@')[0]}-{next(_numbers)}.ccache"
        subprocess.run(
            ["kinit", *options, "-c", str(file), user if "@" in user else f"{user}@{REALM}"],
            input=password.encode() + b"\n",
            env=os.environ | {"KRB5_CONFIG": str(self.krb5_conf)},
            capture_output=True,
            check=True,
        )
        return file


_OPEN_DATABASE = """
import sys, uuid, ldb
from samba.auth import system_session
from samba.param import LoadParm
from samba.samdb import SamDB
from samba.ndr import ndr_pack
from samba.dcerpc import misc
settings = LoadParm()
settings.load(sys.argv[1])
# Without this mode, each object of a transaction takes longer than the one before: Samba copies the index for it.
sam = SamDB(url=sys.argv[2], session_info=system_session(), lp=settings, options=["batch_mode:1"])
"""
_GIVE_INVOCATION = """
message = ldb.Message(ldb.Dn(sam, sys.argv[3]))
value = ndr_pack(misc.GUID(str(uuid.uuid4())))
message["invocationId"] = ldb.MessageElement(value, ldb.FLAG_MOD_REPLACE, "invocationId")
sam.modify(message, ["relax:0", "local_oid:1.3.6.1.4.1.7165.4.3.16:0", "provision:0"])
"""
_KRB5_CONF = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = {kdc}
  admin_server = {kdc}
 }}
[domain_realm]
 .{domain} = {realm}
 {domain} = {realm}
"""


def add_enterprise(connection: LdapConnection, enterprise: Directory) -> Directory:
    """Writes sites, links, managers and public queues, and returns them with the GUIDs that the directory chose.

    The gates of a site become gates of all its links, because Active Directory has no other place for them.
    """
    base, configuration = connection.root.domain, connection.root.configuration
    sites, managers, guids = {}, {}, {}

    def add(identifier: UUID, dn: str, kind: str, **attributes: Sequence[bytes | str]) -> str:
        connection.add(dn, {"objectClass": [kind], **attributes})
        found = connection.read(dn, ["objectGUID"])
        assert found is not None
        guids[identifier] = UUID(bytes_le=found.attributes["objectguid"][0])
        return dn

    for site in enterprise.sites:
        dn = names.child("CN", site.name, f"CN=Sites,{configuration}")
        sites[site.identifier] = add(site.identifier, dn, "site")
    for manager in enterprise.managers:
        computer = names.child("CN", manager.computer_name, f"CN=Computers,{base}")
        given = {} if manager.host == manager.computer_name else {"dNSHostName": [manager.host]}
        account = f"{manager.computer_name}$"
        connection.add(computer, {"objectClass": ["computer"], "sAMAccountName": [account], **given})
        managers[manager.identifier] = add(
            manager.identifier,
            names.child("CN", "msmq", computer),
            "mSMQConfiguration",
            mSMQSites=[guids[each].bytes_le for each in manager.site_identifier_list],
            mSMQRoutingServices=["TRUE" if manager.routing_server else "FALSE"],
            mSMQEncryptKey=[manager.public_encryption_keys] if manager.public_encryption_keys else [],
        )
    for manager in enterprise.managers:
        inward = [managers[each] for each in manager.in_routing_server_identifier_list]
        outward = [managers[each] for each in manager.out_routing_server_identifier_list]
        if inward or outward:
            wanted = {"mSMQInRoutingServers": inward, "mSMQOutRoutingServers": outward}
            connection.modify(managers[manager.identifier], {name: found for name, found in wanted.items() if found})
    for number, link in enumerate(enterprise.links):
        pair = link.site1_identifier, link.site2_identifier
        gates = dict.fromkeys(link.site_gate_identifier_list)
        for site in enterprise.link_sites(link):
            gates |= dict.fromkeys(site.site_gate_identifier_list)
        add(
            link.identifier,
            # two links between the same sites need two names
            f"CN={guids[pair[0]].hex}{guids[pair[1]].hex[: 32 - len(str(number))]}{number}"[:67]
            + f",CN=MsmqServices,CN=Services,{configuration}",
            "mSMQSiteLink",
            mSMQCost=[str(link.actual_cost)],
            mSMQSite1=[sites[pair[0]]],
            mSMQSite2=[sites[pair[1]]],
            mSMQSiteGates=[managers[each] for each in gates],
        )
    for queue in enterprise.queues:
        place = managers[queue.queue_manager_identifier]
        priority = [str(queue.base_priority)] if queue.base_priority else []
        dn = names.child("CN", queue.pathname.tail.name, place)
        add(queue.identifier, dn, "mSMQQueue", mSMQBasePriority=priority)
    return _renumbered(enterprise, guids)


def _renumbered(enterprise: Directory, guids: dict[UUID, UUID]) -> Directory:
    def changed(kind: type[Any], objects: Iterable[Any]) -> list[Any]:
        return [
            replace(each, **{name.name: _new(getattr(each, name.name), guids) for name in fields(kind)})
            for each in objects
        ]

    return Directory(
        sites=changed(Site, enterprise.sites),
        links=changed(RoutingLink, enterprise.links),
        managers=changed(QueueManager, enterprise.managers),
        queues=changed(Queue, enterprise.queues),
    )


def _new(value: Any, guids: dict[UUID, UUID]) -> Any:
    if isinstance(value, tuple):
        return tuple(_new(each, guids) for each in value)
    return guids.get(value, value) if isinstance(value, UUID) else value


@pytest.fixture(scope="session")
def new_controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Controller]]:
    """Makes controllers that are not started. Each is a new forest with nothing of MSMQ but its empty container."""
    if (why := unavailable()) is not None:
        pytest.skip(why)
    pytest.importorskip("ldap3", reason="ldap3 is missing: pip install 'postroad[domain]'")
    with ExitStack() as opened:

        def make() -> Controller:
            controller = Controller(tmp_path_factory.mktemp("domain"))
            opened.callback(controller.stop)
            return controller

        yield make


@pytest.fixture(scope="session")
def domain_controller(new_controller: Callable[[], Controller]) -> Controller:
    """A running controller for all tests of the session. A test leaves it as it found it, or uses names of its own."""
    controller = new_controller()
    controller.start()
    return controller


def _copy_domain(place: Path, backend: str) -> None:
    cache = _CACHE / backend
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other test processes provision too
        if not (cache / "done").exists():
            shutil.rmtree(cache / "dc", ignore_errors=True)
            _provision(cache / "dc", backend)
            (cache / "done").touch()
        shutil.copytree(cache / "dc", place, symlinks=True)


def _provision(place: Path, backend: str) -> None:
    options = ["interfaces=127.0.0.53/8", "bind interfaces only=yes", "server services=ldap, cldap, kdc"]
    options += [f"posix:eadb={place}/eadb.tdb", "netbios name=DC1"]
    names = [f"--realm={REALM}", "--domain=POSTROAD", "--host-name=dc1", "--host-ip=127.0.0.53"]
    rest = [
        f"--backend-store={backend}",
        "--server-role=dc",
        f"--adminpass={PASSWORD}",
        "--dns-backend=NONE",
        f"--targetdir={place}",
    ]
    done = subprocess.run(
        ["samba-tool", "domain", "provision", *names, *rest, *(f"--option={each}" for each in options)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError("the domain could not be provisioned:\n" + done.stderr[-2000:])
    smb_conf = place / "etc" / "smb.conf"
    smb_conf.write_text(smb_conf.read_text().replace(str(place), _PLACE))


def _free_address() -> str:
    """A loopback address that no other test process uses."""
    process = os.getpid()
    while True:
        address = f"127.{64 + (process >> 8) % 64}.{process % 256}.{52 + next(_numbers) % 200}"
        with socket.socket() as probe, suppress(OSError):
            probe.bind((address, 389))
            return address


def _accepts(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, port)) == 0
