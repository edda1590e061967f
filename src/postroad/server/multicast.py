"""Builds multicast from a configuration. It also works without an HTTP listener."""

from __future__ import annotations

import secrets

from postroad.config import Configuration, Encapsulation
from postroad.manager import Manager
from postroad.pgm.settings import PgmSettings
from postroad.pgm.transport import TransportOptions
from postroad.soap.addresses import Redirections
from postroad.soap.multicast import MulticastService, MulticastSettings, ReceiptSettings
from postroad.soap.multicast_transport import MulticastTransport
from postroad.soap.requests import Outgoing


def make_multicast(manager: Manager, configuration: Configuration) -> tuple[MulticastTransport, MulticastService]:
    config = configuration.multicast
    udp_port = config.port_udp if config.encapsulation is Encapsulation.UDP else None
    options = TransportOptions(config.interfaces, udp_port, config.hops, config.router_alert)
    transport = MulticastTransport(manager, options)
    pgm = PgmSettings(txw_max_rte=config.rate_kb_s * 1000, txw_secs=float(config.window_s))
    soap = manager.doors.soap
    written = Outgoing(manager.core, Redirections()) if soap is None else soap.outgoing
    service = MulticastService(
        manager.core,
        MulticastSettings(pgm, receipts=ReceiptSettings(config.receipts and soap is not None)),
        transport,
        written,
        secrets.SystemRandom().random,
        transport.watcher,
        frozenset(configuration.security.accept_hashes),
        configuration.srmp.clock_tolerance_s,
    )
    transport.serve(service)
    return transport, service
