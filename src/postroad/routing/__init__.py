"""The routes of messages through the enterprise, [MS-MQBR]: the routing table and the next hops.

This does no I/O: the directory is passed in as a snapshot, and the time as an argument.
"""

from postroad.routing.hops import NextHops, get_next_hops
from postroad.routing.router import Router
from postroad.routing.routes import Routes
from postroad.routing.table import RoutingTable, Row, SiteGraph, build_table

__all__ = ["NextHops", "Router", "Routes", "RoutingTable", "Row", "SiteGraph", "build_table", "get_next_hops"]
