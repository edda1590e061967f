"""Whether this computer could join the domain as a queue manager: what is missing, and the command that mends it.

Every step asks the real controllers. It blocks, and changes nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from postroad.directory import distinguished_names as names
from postroad.directory import schema_mapping as schema
from postroad.directory.ldap_connection import LdapConnection, LdapEntry, LdapSettings, Scope, connect
from postroad.directory.publisher import Publisher
from postroad.errors import DirectoryError, LdapError, LdapFault
from postroad.reports.enterprise import ADVICE, FINE, MISSING, JoinCheck, JoinFinding

_MAX_SKEW_S = 300  # of Kerberos, RFC 4120 8.2
_SLIGHT_SKEW_S = 60
_SERVICE = "host"  # of the manager's RPC interfaces

_MENDS = {
    LdapFault.LIBRARY_MISSING: "pip install 'postroad[domain]'",
    LdapFault.NAME_NOT_FOUND: "getent hosts {host}; if it finds nothing, set the domain's DNS server in resolv.conf",
    LdapFault.NO_ANSWER: "nc -vz {host} {port}; open the port in the firewall, or start the controller",
    LdapFault.CERTIFICATE_UNTRUSTED: "openssl s_client -connect {host}:636 -showcerts; name a file with its authority "
    "in [directory] ca_certificates",
    LdapFault.CERTIFICATE_EXPIRED: "renew the controller's certificate; if it is valid: timedatectl set-ntp true",
    LdapFault.CERTIFICATE_OTHER_HOST: "openssl s_client -connect {host}:636 | openssl x509 -noout -ext subjectAltName; "
    "use one of its names in [directory] ldap",
    LdapFault.WRONG_PASSWORD: "kinit {user}; then correct the password file, or export the keytab again",
    LdapFault.ACCOUNT: "samba-tool user enable NAME; samba-tool user setexpiry NAME --noexpiry (Windows: "
    "Enable-ADAccount, Unlock-ADAccount)",
    LdapFault.NO_TICKET: "kinit {user}, or set [directory] keytab",
    LdapFault.TICKET_EXPIRED: "kinit {user}, or set [directory] keytab, which needs no ticket",
    LdapFault.CLOCK_SKEW: "timedatectl set-ntp true",
    LdapFault.SERVICE_UNKNOWN: "samba-tool spn add ldap/{host} CONTROLLER$ (Windows: setspn -S ldap/{host} "
    "CONTROLLER), or use the controller's own name in [directory] ldap",
}


def check_join(
    settings: LdapSettings, name: str, now: float, *, publish: bool = False, keytab: Path | None = None
) -> JoinCheck:
    """Checks everything that a join needs, in the order of its steps. `name` is that of this queue manager, and
    `keytab` has the keys of its own services, if it offers Kerberos."""
    findings = _findings(settings, name, now, publish, keytab)
    return JoinCheck(ready=all(each.state != MISSING for each in findings), findings=tuple(findings))


def _findings(settings: LdapSettings, name: str, now: float, publish: bool, keytab: Path | None) -> list[JoinFinding]:
    found: list[JoinFinding] = []
    connection: LdapConnection | None = None
    for url in settings.servers:
        try:
            opened = connect(replace(settings, servers=(url,)))
        except LdapError as fault:
            # with several controllers, one that is away does no harm
            found.append(
                JoinFinding(what=f"controller {url}", state=MISSING, detail=str(fault), do=_mend(fault, url, settings))
            )
            continue
        found.append(JoinFinding(what=f"controller {url}", state=FINE, detail="answers, and lets the user in"))
        if connection is None:
            connection = opened
        else:
            opened.close()
    if connection is None:
        return found
    found = [replace(each, state=ADVICE) if each.state == MISSING else each for each in found]
    with connection:
        for step in (_clock, _services, _sites):
            try:
                found += step(connection, settings, now)
            except LdapError as fault:
                found.append(JoinFinding(what="directory", state=MISSING, detail=str(fault), do=""))
        try:
            computer = _computer(connection, name)
            found += _own(connection, settings, name, computer, publish, keytab)
        except LdapError as fault:
            found.append(JoinFinding(what="computer", state=MISSING, detail=str(fault), do=""))
    return found


def _mend(fault: LdapError, url: str, settings: LdapSettings) -> str:
    split = urlsplit(url)
    port = split.port or (636 if split.scheme == "ldaps" else 389)
    return _MENDS.get(fault.fault, "").format(host=split.hostname, port=port, user=settings.user or "USER")


def _clock(connection: LdapConnection, settings: LdapSettings, now: float) -> Iterator[JoinFinding]:
    try:
        there = datetime.strptime(connection.root.time[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return
    skew_s = abs(now - there)
    kerberos = settings.password_file is None
    state = FINE if skew_s < _SLIGHT_SKEW_S else MISSING if kerberos and skew_s > _MAX_SKEW_S else ADVICE
    detail = f"differs from the controller's by {skew_s:.0f} s; Kerberos takes at most {_MAX_SKEW_S} s"
    yield JoinFinding(what="clock", state=state, detail=detail, do="" if state == FINE else "timedatectl set-ntp true")


def _services(connection: LdapConnection, settings: LdapSettings, now: float) -> Iterator[JoinFinding]:
    place = names.child("CN", "MsmqServices", names.child("CN", "Services", connection.root.configuration))
    entry = connection.read(place, schema.ENTERPRISE_ATTRIBUTES)
    what = "MSMQ in the directory"
    if entry is not None:
        yield JoinFinding(what=what, state=FINE, detail=f"{place} can be read")
        return
    detail = f"{place} does not exist, or {settings.user or 'the user'} may not read it"
    yield JoinFinding(
        what=what,
        state=MISSING,
        detail=detail,
        do="add MSMQ's directory service integration to a Windows server of the domain (Install-WindowsFeature "
        "MSMQ-Directory), or give the user the right to read it",
    )


def _sites(connection: LdapConnection, settings: LdapSettings, now: float) -> Iterator[JoinFinding]:
    place = names.child("CN", "Sites", connection.root.configuration)
    text = names.equals("objectClass", schema.SITE_CLASS)
    count = sum(1 for _ in connection.search(place, text, ["cn"], scope=Scope.CHILDREN))
    state = FINE if count else MISSING
    yield JoinFinding(
        what="sites", state=state, detail=f"{count} can be read", do="" if count else f"let the user read {place}"
    )


def _computer(connection: LdapConnection, name: str) -> LdapEntry | None:
    text = names.all_of(names.equals("objectClass", "computer"), names.equals("sAMAccountName", f"{name}$"))
    wanted = ["dNSHostName", "servicePrincipalName", "sAMAccountName"]
    return next(connection.search(connection.base, text, wanted, limit=10), None)


def _own(
    connection: LdapConnection,
    settings: LdapSettings,
    name: str,
    computer: LdapEntry | None,
    publish: bool,
    keytab: Path | None,
) -> Iterator[JoinFinding]:
    if computer is None:
        do = f"samba-tool computer create {name} (Windows: New-ADComputer {name})"
        yield JoinFinding(what="computer", state=MISSING, detail=f"the domain has no computer {name}", do=do)
        return
    yield JoinFinding(what="computer", state=FINE, detail=computer.dn)
    own = connection.read(names.child("CN", "msmq", computer.dn), ["objectGUID"])
    if own is not None:
        yield JoinFinding(what="queue manager", state=FINE, detail=f"{own.dn} is {schema.guid(own.attributes)}")
    elif publish:
        yield JoinFinding(
            what="queue manager", state=FINE, detail="there is none yet; the start of the manager makes it"
        )
    else:
        detail = f"the computer {name} has no mSMQConfiguration, so no other manager finds this one"
        yield JoinFinding(what="queue manager", state=MISSING, detail=detail, do="set publish = true in [directory]")
    if publish:
        try:
            lacking = Publisher(settings, name).missing_rights(None)
        except DirectoryError as fault:
            yield JoinFinding(what="permissions", state=MISSING, detail=str(fault), do="")
        else:
            for each in lacking:
                detail = f"the user has no right {each.what} at {each.dn}"
                yield JoinFinding(what="permissions", state=MISSING, detail=detail, do=each.command)
            if not lacking:
                yield JoinFinding(what="permissions", state=FINE, detail="the user may write what publishing needs")
    host = (computer.first("dnshostname") or b"").decode("utf-8", "replace")
    yield _dns(computer, name, host)
    yield _principal(connection, name, host or name, keytab)


def _dns(computer: LdapEntry, name: str, host: str) -> JoinFinding:
    if not host:
        detail = f"the computer has no dNSHostName, so other managers look {name} up by its short name"
        do = f"ldapmodify: set dNSHostName of {computer.dn} (Windows: Set-ADComputer {name} -DNSHostName NAME.DOMAIN)"
        return JoinFinding(what="DNS", state=ADVICE, detail=detail, do=do)
    try:
        addresses = sorted({str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError):
        do = f"samba-tool dns add SERVER ZONE {name} A ADDRESS (Windows: Add-DnsServerResourceRecordA)"
        return JoinFinding(what="DNS", state=ADVICE, detail=f"{host} cannot be resolved here", do=do)
    return JoinFinding(what="DNS", state=FINE, detail=f"{host} is {', '.join(addresses)}")


def _principal(connection: LdapConnection, name: str, host: str, keytab: Path | None) -> JoinFinding:
    wanted = f"{_SERVICE}/{host}"
    text = names.equals("servicePrincipalName", wanted)
    holders = [each.dn for each in connection.search(connection.root.domain, text, ["cn"], limit=10)]
    what = "service principal"
    if len(holders) == 1:
        return JoinFinding(what=what, state=FINE, detail=f"{wanted} is of {holders[0]}")
    if holders:
        detail = f"{wanted} must be of one account, but is of {len(holders)}: {'; '.join(holders)}"
        return JoinFinding(what=what, state=MISSING, detail=detail, do=f"samba-tool spn delete {wanted} OTHER")
    state = ADVICE if keytab is None else MISSING
    detail = f"no account has {wanted}, so nobody gets a Kerberos ticket for this manager"
    do = f"samba-tool spn add {wanted} {name}$ (Windows: setspn -S {wanted} {name})"
    return JoinFinding(what=what, state=state, detail=detail, do=do)
