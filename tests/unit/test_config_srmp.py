"""`[srmp]` and its tables: redirections, proxies, certificates, and their faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroad.config import StandardPort, load_configuration
from postroad.errors import ConfigurationError
from postroad.server.listeners import soap_settings
from postroad.soap.addresses import Redirection
from postroad.soap.settings import SoapSettings
from postroad.wire.constants import RESEND_TABLE_S

HEAD = '[manager]\nname = "alpha"\n'


def written(directory: Path, text: str) -> Path:
    file = directory / "alpha.toml"
    file.write_text(HEAD + text)
    return file


def test_every_setting_reaches_the_protocol(tmp_path: Path) -> None:
    for name in ("a.pem", "a.key", "ca.pem"):
        (tmp_path / name).write_text("")
    config = load_configuration(
        written(
            tmp_path,
            """
[listen]
https = 8443
[srmp]
retransmission_ms = 300
resend_s = [7]
cleanup_ms = 1000
clock_tolerance_s = 0
hosts = ["alpha.example.com"]
store_and_forward = true
outbound_exceptions = ["http://near/*"]
receipts_url = "http://gate/msmq/private$/order_queue$"
proxy = "http://proxy:3128"
no_proxy = ["near"]
ca_certificates = "ca.pem"
tls_certificate = "a.pem"
tls_key = "a.key"
[[srmp.inbound]]
from = "http://alpha/msmq/private$/old*"
to = "http://alpha/msmq/private$/new"
[[srmp.outbound]]
from = "http://far/*"
to = "http://gate/"
[[srmp.receipts]]
from = "http://far/*"
to = "https://gate/msmq/private$/receipts"
""",
        )
    )
    settings = soap_settings(config.srmp, config.limits.remote_managers, config.security.accept_hashes)
    assert (settings.retransmission_ms, settings.resend_s, settings.cleanup_ms) == (300, (7.0,), 1000)
    assert settings.clock_tolerance_s == 0
    redirections = settings.redirections
    assert redirections.store_and_forward
    assert redirections.inbound == (Redirection("http://alpha/msmq/private$/old*", "http://alpha/msmq/private$/new"),)
    assert redirections.outbound == (Redirection("http://far/*", "http://gate/"),)
    assert redirections.receipts == (Redirection("http://far/*", "https://gate/msmq/private$/receipts"),)
    assert redirections.outbound_exceptions == ("http://near/*",)
    assert redirections.default_receipts == "http://gate/msmq/private$/order_queue$"
    assert (config.srmp.proxy, config.srmp.no_proxy) == ("http://proxy:3128", ("near",))
    assert config.srmp.hosts == ("alpha.example.com",)
    assert (config.listen.https, config.srmp.tls_key) == (8443, tmp_path / "a.key")


def test_the_defaults_are_the_protocols(tmp_path: Path) -> None:
    config = load_configuration(written(tmp_path, ""))
    assert soap_settings(config.srmp, config.limits.remote_managers, config.security.accept_hashes) == SoapSettings()
    assert (
        soap_settings(config.srmp, config.limits.remote_managers, config.security.accept_hashes).resend_s
        == RESEND_TABLE_S
    )
    assert isinstance(config.listen.http, StandardPort)
    assert (config.listen.http, config.listen.https) == (80, None)


def test_a_port_that_is_asked_for_is_no_standard_one(tmp_path: Path) -> None:
    config = load_configuration(written(tmp_path, "[listen]\nhttp = 80\n"))
    assert not isinstance(config.listen.http, StandardPort)


@pytest.mark.parametrize(
    ("text", "key", "fault"),
    [
        ('[srmp]\nreceipts_url = "gate"\n', "srmp.receipts_url", "must be an http or https URL"),
        ('[srmp]\nreceipts_url = "http://gate/elsewhere"\n', "srmp.receipts_url", "/MSMQ must follow the host"),
        ('[srmp]\nreceipts_url = "http://gate:x/msmq/q"\n', "srmp.receipts_url", "must be an http or https URL"),
        ('[srmp]\nproxy = "ftp://proxy"\n', "srmp.proxy", "must be an http or https URL"),
        ('[[srmp.outbound]]\nfrom = "http://a/*"\n', "srmp.outbound[1].to", "is missing"),
        (
            '[[srmp.inbound]]\nfrom = "x"\nto = "http://a/msmq/q"\n',
            "srmp.inbound[1].from",
            "must be an http or https URL",
        ),
        ('[srmp]\ntls_key = "nothing.key"\n', "srmp.tls_key", "there is no file"),
        ("[listen]\nhttps = 443\n", "srmp.tls_certificate", "listen.https needs a certificate"),
        ("[listen]\nhttps = 8180\n", "listen.api", "must differ from listen.https, got port 8180"),
        ("[srmp]\ncleanup_ms = 0\n", "srmp.cleanup_ms", "must be between 1 and"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, key: str, fault: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(written(tmp_path, text))
    assert caught.value.key == key
    assert fault in caught.value.fault
