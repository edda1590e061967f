"""The configuration: what is read, the defaults, and refusals that name the file, the key and the fault."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from postroad.config import Configuration, default_configuration, load_configuration
from postroad.directory.file import Enterprise, derived_site_id, load_enterprise
from postroad.errors import ConfigurationError
from postroad.validation.queue_properties import QueuePrivacy

GUID = "8f3c6a52-0d1e-4b7a-9c55-2f1f0f6f7a10"
OTHER_GUID = "0d9bdcd6-1b1c-4b6a-8a7e-6f6f3a0f6b11"
MANAGER = '[manager]\nname = "alpha"\n'

EVERYTHING = rf"""
[manager]
name = "alpha"
id = "{GUID}"
data = "state/alpha"
quota_kb = 1000
[listen]
host = "127.0.0.2"
binary = 11801
ping = 13527
http = false
rpc = 0
api = 18180
epm = 135
[api]
token = "s3cret"
[binary]
window_size = 32
ack_timeout_ms = 50000
insecure_nacks = true
retry_connect_s = 0.5
resend_s = [1, 2.5]
ping = true
[srmp]
retransmission_ms = 300
resend_s = [7]
[directory]
file = "enterprise.toml"
[peers]
"10.0.0.5" = {{ binary = 11801, ping = 13527, http = 8080, rpc = 12103 }}
beta = {{ http = 81 }}
[[user]]
name = "reader"
password = "hunter2"
[[queue]]
path = 'private$\orders'
transactional = true
journal = true
quota_kb = 1048576
journal_quota_kb = 64
authenticate = true
privacy = "body"
label = "Orders"
abort_limit = 5
[[queue]]
path = 'alpha\public'
"""


def load(tmp_path: Path, text: str) -> Configuration:
    file = tmp_path / "alpha.toml"
    file.write_text(text, encoding="utf-8")
    return load_configuration(file)


def refusal(tmp_path: Path, text: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text)
    assert caught.value.file == str(tmp_path / "alpha.toml")
    assert str(caught.value).startswith(f"{caught.value.file}: {caught.value.key}")
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.spec("QB-3.1.1.3-15", "QB-3.1.1.3-17")
def test_every_setting_is_read(tmp_path: Path) -> None:
    config = load(tmp_path, EVERYTHING)
    assert (config.manager.name, config.manager.id, config.manager.quota_kb) == ("alpha", UUID(GUID), 1000)
    assert config.data == tmp_path / "state" / "alpha"
    listen = config.listen
    assert (listen.host, listen.binary, listen.ping) == ("127.0.0.2", 11801, 13527)
    assert (listen.http, listen.rpc, listen.api, listen.epm) == (None, 0, 18180, 135)
    assert config.api.token == "s3cret"
    binary = config.binary
    assert (binary.window_size, binary.ack_timeout_ms, binary.insecure_nacks) == (32, 50000, True)
    assert (binary.retry_connect_s, binary.resend_s, binary.ping) == (0.5, (1, 2.5), True)
    assert (config.srmp.retransmission_ms, config.srmp.resend_s) == (300, (7,))
    assert config.directory.file == tmp_path / "enterprise.toml"
    assert [(peer.host, peer.binary, peer.ping, peer.http, peer.rpc) for peer in config.peers] == [
        ("10.0.0.5", 11801, 13527, 8080, 12103),
        ("beta", 1801, 3527, 81, 2103),
    ]
    assert [(user.name, user.password) for user in config.users] == [("reader", "hunter2")]
    orders, public = config.queues
    assert str(orders.path) == r".\private$\orders"
    assert (orders.transactional, orders.journal, orders.authenticate) == (True, True, True)
    assert (orders.quota_kb, orders.journal_quota_kb, orders.abort_limit) == (1048576, 64, 5)
    assert (orders.privacy, orders.label) == (QueuePrivacy.BODY, "Orders")
    assert str(public.path) == r"alpha\public"


def test_a_name_is_enough_and_the_rest_has_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, MANAGER)
    assert config.data == tmp_path / "data" / "alpha"
    assert (config.manager.id, config.manager.quota_kb, config.directory.file) == (None, 8388608, None)
    listen = config.listen
    assert (listen.host, listen.binary, listen.ping, listen.http) == ("127.0.0.1", 1801, 3527, 80)
    assert (listen.rpc, listen.api, listen.epm) == (2103, 8180, 135)
    assert (config.binary.window_size, config.binary.ack_timeout_ms, config.binary.retry_connect_s) == (
        1024,
        120000,
        1.0,
    )
    assert config.binary.resend_s == (30, 30, 30, 300, 300, 300, 1800, 1800, 1800, 21600) == config.srmp.resend_s
    assert (config.binary.insecure_nacks, config.binary.ping, config.srmp.retransmission_ms) == (False, False, 20000)
    assert (config.peers, config.users, config.queues) == ((), (), ())


def test_the_directory_is_looked_at_as_often_as_is_said(tmp_path: Path) -> None:
    usual = load(tmp_path, MANAGER).directory
    assert (usual.poll_s, usual.sites_update_s, usual.site_gates_update_s, usual.query_s) == (5, 43200, 3600, 3600)
    text = "[directory]\npoll_s = 0.5\nsites_update_s = 7\nsite_gates_update_s = 8\nquery_s = 9\n"
    told = load(tmp_path, MANAGER + text).directory
    assert (told.poll_s, told.sites_update_s, told.site_gates_update_s, told.query_s) == (0.5, 7, 8, 9)
    assert refusal(tmp_path, MANAGER + "[directory]\npoll_s = 0\n").key == "directory.poll_s"


def test_a_queue_has_defaults(tmp_path: Path) -> None:
    (queue,) = load(tmp_path, MANAGER + "[[queue]]\npath = 'private$\\q'\n").queues
    assert (queue.transactional, queue.journal, queue.authenticate) == (False, False, False)
    assert (queue.quota_kb, queue.journal_quota_kb, queue.abort_limit) == (None, 1048576, None)
    assert (queue.privacy, queue.label) == (QueuePrivacy.OPTIONAL, "")


def test_without_a_file_the_data_is_under_the_working_directory() -> None:
    config = default_configuration()
    assert config.file is None
    assert config.data == Path("data") / config.manager.name
    assert (config.listen.host, config.listen.api) == ("127.0.0.1", 8180)


def test_secrets_are_not_printed(tmp_path: Path) -> None:
    shown = repr(load(tmp_path, EVERYTHING))
    assert "hunter2" not in shown
    assert "s3cret" not in shown


def test_a_mark_before_the_text_does_no_harm(tmp_path: Path) -> None:
    assert load(tmp_path, "\ufeff" + MANAGER).manager.name == "alpha"


@pytest.mark.parametrize(
    ("text", "key", "fault"),
    [
        ("", "manager.name", "is missing"),
        ('[manager]\nname = ""\n', "manager.name", "must not be empty"),
        ("[manager]\nname = 7\n", "manager.name", "must be text, got the number 7"),
        ("[manager]\nname = 2024-05-17\n", "manager.name", "must be text, got a date or time"),
        ('[manager]\nname = "a b"\n', "manager.name", "must be a computer name"),
        ('[manager]\nname = "a\\\\b"\n', "manager.name", "must be a computer name"),
        ('[manager]\nname = "../b"\n', "manager.name", "must be a computer name"),
        ('[manager]\nname = "LocalHost"\n', "manager.name", "must not be localhost"),
        (f'[manager]\nname = "{"a" * 257}"\n', "manager.name", "must have at most 256 characters, got 257"),
        ('manager = "alpha"\n', "manager", "must be a table, got the text 'alpha'"),
        (MANAGER + 'id = "123"\n', "manager.id", "a GUID must have the form"),
        (MANAGER + "id = 5\n", "manager.id", "must be a GUID as text, got the number 5"),
        (MANAGER + 'data = ""\n', "manager.data", "must not be empty"),
        (MANAGER + "quota_kb = -1\n", "manager.quota_kb", "must be between 0 and 4294967295, got -1"),
        (MANAGER + "quota_kb = 4294967296\n", "manager.quota_kb", "must be between"),
        (MANAGER + "quota_kb = 1.5\n", "manager.quota_kb", "must be a whole number, got the number 1.5"),
        (MANAGER + "quota_kb = true\n", "manager.quota_kb", "must be a whole number, got true"),
        (MANAGER + 'nmae = "x"\n', "manager.nmae", "no such setting; did you mean name?"),
        (MANAGER + "[lsten]\n", "lsten", "no such setting; did you mean listen?"),
        (MANAGER + '["odd key"]\n', '"odd key"', "no such setting"),
        (MANAGER + "[listen]\nbinary = 70000\n", "listen.binary", "must be between 0 and 65535, got 70000"),
        (MANAGER + "[listen]\nbinary = -1\n", "listen.binary", "must be between 0 and 65535, got -1"),
        (
            MANAGER + "[listen]\napi = true\n",
            "listen.api",
            "or false for off, got true",
        ),
        (MANAGER + '[listen]\nhttp = "80"\n', "listen.http", "or false for off, got the text '80'"),
        (MANAGER + "[listen]\nrpc = 1.0\n", "listen.rpc", "got the number 1.0"),
        (MANAGER + "[listen]\napi = 1801\n", "listen.api", "must differ from listen.binary, got port 1801"),
        (MANAGER + "[listen]\nhost = 127\n", "listen.host", "must be text, got the number 127"),
        (MANAGER + '[listen]\nhost = "127.0.0.300"\n', "listen.host", "must be an IP address or a host name"),
        (MANAGER + '[listen]\nhost = "a b"\n', "listen.host", "must be an IP address or a host name"),
        (MANAGER + '[api]\ntoken = "two words"\n', "api.token", "without spaces"),
        (MANAGER + '[api]\ntls_key = "missing.pem"\n', "api.tls_key", "there is no file"),
        (MANAGER + '[api]\ntls_key = "alpha.toml"\n', "api.tls_certificate", "must be set together"),
        (MANAGER + "[binary]\nwindow_size = 0\n", "binary.window_size", "must be between 1 and 65535, got 0"),
        (MANAGER + "[binary]\nwindow_size = 65536\n", "binary.window_size", "must be between"),
        (MANAGER + "[binary]\nack_timeout_ms = 19999\n", "binary.ack_timeout_ms", "must be between 20000 and 120000"),
        (MANAGER + "[binary]\nack_timeout_ms = 120001\n", "binary.ack_timeout_ms", "must be between 20000 and 120000"),
        (
            MANAGER + '[binary]\ninsecure_nacks = "no"\n',
            "binary.insecure_nacks",
            "must be true or false, got the text",
        ),
        (MANAGER + "[binary]\nretry_connect_s = 0\n", "binary.retry_connect_s", "must be between"),
        (MANAGER + "[binary]\nretry_connect_s = nan\n", "binary.retry_connect_s", "must be between"),
        (MANAGER + "[binary]\nresend_s = 30\n", "binary.resend_s", "must be a list, got the number 30"),
        (MANAGER + "[binary]\nresend_s = []\n", "binary.resend_s", "must have at least 1 item, got 0"),
        (MANAGER + "[binary]\nresend_s = [30, -1]\n", "binary.resend_s[2]", "got -1"),
        (
            MANAGER + '[srmp]\nretransmission_ms = "x"\n',
            "srmp.retransmission_ms",
            "must be a whole number, got the text",
        ),
        (MANAGER + "[directory]\nfile = 1\n", "directory.file", "must be text, got the number 1"),
        (MANAGER + '[peers]\n"a b" = {}\n', 'peers."a b"', "must be an IP address or a host name"),
        (MANAGER + '[peers]\n"10.0.0.5" = 1801\n', 'peers."10.0.0.5"', "must be a table, got the number 1801"),
        (MANAGER + '[peers]\n"10.0.0.5" = { binary = 0 }\n', 'peers."10.0.0.5".binary', "must be between"),
        (MANAGER + "[peers]\nbeta = { smtp = 25 }\n", "peers.beta.smtp", "no such setting"),
        (MANAGER + '[[user]]\nname = "a"\n', "user[1].password", "is missing"),
        (
            MANAGER + '[[user]]\nname = "a"\npassword = "x"\n[[user]]\nname = "A"\npassword = "y"\n',
            "user[2].name",
            "must be unique, but user[1] has A too",
        ),
        (MANAGER + "[user]\n", "user", "must be a list of tables, got one table: write its name in double brackets"),
        (MANAGER + "[[queue]]\n", "queue[1].path", "is missing"),
        (
            MANAGER + '[[queue]]\npath = "orders"\n',
            "queue[1].path",
            "a path must be a computer, a backslash and a queue",
        ),
        (MANAGER + "[[queue]]\npath = ';journal'\n", "queue[1].path", "always exist"),
        (MANAGER + "[[queue]]\npath = 'private$\\q;late'\n", "queue[1].path", "come with their queue"),
        (MANAGER + "[[queue]]\npath = 'private$\\q;journal'\n", "queue[1].path", "come with their queue"),
        (MANAGER + "[[queue]]\npath = 'beta\\private$\\q'\n", "queue[1].path", "must be a queue of alpha, got"),
        (
            MANAGER + "[[queue]]\npath = 'private$\\q'\n[[queue]]\npath = 'ALPHA\\PRIVATE$\\Q'\n",
            "queue[2].path",
            "but queue[1] has",
        ),
        (
            MANAGER + "[[queue]]\npath = 'private$\\q'\nprivacy = 'full'\n",
            "queue[1].privacy",
            "none, optional or body, got",
        ),
        (MANAGER + "[[queue]]\npath = 'private$\\q'\ntransactional = 1\n", "queue[1].transactional", "true or false"),
        (MANAGER + "[[queue]]\npath = 'private$\\q'\nquota_kb = -5\n", "queue[1].quota_kb", "must be between"),
        (MANAGER + "[[queue]]\npath = 'private$\\q'\njournal_quota_kb = 'x'\n", "queue[1].journal_quota_kb", "whole"),
        (MANAGER + "[[queue]]\npath = 'private$\\q'\nabort_limit = 0\n", "queue[1].abort_limit", "must be between"),
        (
            MANAGER + f"[[queue]]\npath = 'private$\\q'\nlabel = '{'x' * 125}'\n",
            "queue[1].label",
            "at most 124",
        ),
        (
            MANAGER + "[[queue]]\npath = 'private$\\q'\nlabel = \"a\\nb\"\n",
            "queue[1].label",
            "control characters",
        ),
        (MANAGER + "[[queue]]\npath = 'private$\\q'\njurnal = true\n", "queue[1].jurnal", "did you mean journal?"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, key: str, fault: str) -> None:
    refused = refusal(tmp_path, text)
    assert refused.key == key
    assert fault in refused.fault


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[manager]\nname = "alpha\n', "line 2"),
        ("[manager\n", "line 1"),
        ("[manager]\nname = 'a'\nname = 'b'\n", "line 3"),
        ("[manager]\nname = [1,\n", "line 2"),
    ],
)
def test_what_is_no_toml_is_refused_with_its_line(tmp_path: Path, text: str, line: str) -> None:
    assert refusal(tmp_path, text).key.partition(",")[0] == line


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "alpha.toml"
    file.write_bytes(b"[manager]\nname = '\xff'\n")
    with pytest.raises(ConfigurationError, match=r"alpha\.toml: line 2: must be UTF-8 text"):
        load_configuration(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml: cannot be read: No such file"):
        load_configuration(tmp_path / "nowhere.toml")


# The enterprise

ENTERPRISE = rf"""
[[site]]
name = "london"
gates = ["LON-gate"]
[[site]]
name = "paris"
id = "{GUID}"
[[link]]
sites = ["london", "Paris"]
cost = 3
gates = ["lon-gate"]
[[manager]]
name = "lon-gate"
id = "{GUID}"
address = "127.0.0.2"
sites = ["London"]
routing_server = true
[[manager]]
name = "alpha"
id = "{OTHER_GUID}"
sites = ["london", "paris"]
in_routing_servers = ["lon-gate"]
out_routing_servers = ["lon-gate"]
[[queue]]
path = 'ALPHA\orders'
id = "{GUID}"
"""


def load_directory(tmp_path: Path, text: str) -> Enterprise:
    file = tmp_path / "enterprise.toml"
    file.write_text(text, encoding="utf-8")
    return load_enterprise(file)


def test_an_enterprise_is_read_and_its_names_are_spelled_as_defined(tmp_path: Path) -> None:
    enterprise = load_directory(tmp_path, ENTERPRISE)
    london, paris = enterprise.sites
    assert (london.name, london.id, london.gates) == ("london", derived_site_id("London"), ("lon-gate",))
    assert (paris.id, paris.gates) == (UUID(GUID), ())
    (link,) = enterprise.links
    assert (link.sites, link.cost, link.gates) == (("london", "paris"), 3, ("lon-gate",))
    gate, alpha = enterprise.managers
    assert (gate.address, gate.routing_server, gate.sites) == (("127.0.0.2",), True, ("london",))
    assert (alpha.address, alpha.routing_server) == ((), False)
    assert (alpha.in_routing_servers, alpha.out_routing_servers) == (("lon-gate",), ("lon-gate",))
    assert enterprise.manager("LON-GATE") is gate
    assert enterprise.manager("beta") is None
    assert [str(queue.path) for queue in enterprise.queues] == [r"ALPHA\orders"]


def test_an_empty_enterprise_is_one(tmp_path: Path) -> None:
    assert load_directory(tmp_path, "") == Enterprise()


def test_the_id_of_a_site_never_changes() -> None:
    assert str(derived_site_id("london")) == "e73dc2c9-d182-5817-888a-fb4b6c8722ab"


@pytest.mark.parametrize(
    ("old", "new", "key", "fault"),
    [
        ('name = "london"', 'name = ""', "site[1].name", "must not be empty"),
        ('name = "london"', 'name = "paris"', "site[2].name", "must be unique, but site[1] has"),
        ("cost = 3", "cost = 0", "link[1].cost", "must be between 1 and 999999, got 0"),
        ("cost = 3", "cost = 1000000", "link[1].cost", "must be between"),
        ("cost = 3", "price = 3", "link[1].price", "no such setting"),
        ('["london", "Paris"]', '["london"]', "link[1].sites", "must have 2 items, got 1"),
        ('["london", "Paris"]', '["london", "LONDON"]', "link[1].sites[2]", "must not repeat LONDON"),
        ('["london", "Paris"]', '["london", "pari"]', "link[1].sites[2]", "no site pari; did you mean paris?"),
        ('gates = ["LON-gate"]', 'gates = ["lon-gat"]', "site[1].gates[1]", "did you mean lon-gate?"),
        ('sites = ["London"]', "sites = []", "manager[1].sites", "at least 1 item"),
        ('sites = ["London"]', 'sites = "london"', "manager[1].sites", "must be a list, got the text"),
        ('address = "127.0.0.2"', 'address = "1.2.3"', "manager[1].address", "must be an IP address"),
        ("routing_server = true", 'routing_server = "yes"', "manager[1].routing_server", "must be true or false"),
        (f'id = "{OTHER_GUID}"', f'id = "{GUID}"', "manager[2].id", "must be unique, but manager[1] has"),
        (f'id = "{OTHER_GUID}"', "", "manager[2].id", "is missing"),
        (r"ALPHA\orders", r"beta\orders", "queue[1].path", "there is no queue manager beta"),
        (r"ALPHA\orders", r"alpha\private$\orders", "queue[1].path", "must be a public queue"),
        (r"ALPHA\orders", r".\orders", "queue[1].path", "must be a public queue"),
        (r"ALPHA\orders", r"alpha\orders;late", "queue[1].path", "must be a public queue"),
    ],
)
def test_what_an_enterprise_cannot_say(tmp_path: Path, old: str, new: str, key: str, fault: str) -> None:
    assert old in ENTERPRISE
    with pytest.raises(ConfigurationError) as caught:
        load_directory(tmp_path, ENTERPRISE.replace(old, new, 1))
    assert (caught.value.file, caught.value.key) == (str(tmp_path / "enterprise.toml"), key)
    assert fault in caught.value.fault
