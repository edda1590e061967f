"""The simulation as a whole. It builds what a scenario describes, runs it, breaks it, and waits until nothing moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import cast

from postroad.carriers.flights import TransferWatcher
from postroad.config import Configuration, default_configuration
from postroad.directory.file import ManagerEntry, read_directory
from postroad.directory.snapshot import Directory
from postroad.names import FormatName, PrivateName, parse_format_name
from postroad.names.format import AWAITING_FINAL_ACK
from postroad.queues.collection import FIRST_PRIVATE_NUMBER
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing_queues import Watcher
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.security.refusals import Refused
from postroad.simulation.apps import ReadingApp, SendingApp, direct_name, http_name
from postroad.simulation.database import Database, Pair, Process
from postroad.simulation.disk import Disk
from postroad.simulation.keys import Vault
from postroad.simulation.ledger import Ledger, Stage
from postroad.simulation.lines import Network
from postroad.simulation.loop import STARTED, Log, Loop
from postroad.simulation.node import Node, NodeDisk
from postroad.simulation.scenario import (
    ACKS,
    Consumer,
    Failover,
    Fault,
    FaultKind,
    Flow,
    Naming,
    QueuePlan,
    Rotation,
    Scenario,
    local_path,
    queue_at,
)
from postroad.soap.addresses import Redirection, Redirections
from postroad.soap.settings import SoapSettings
from postroad.store.interface import Record
from postroad.wire.view import MessageView

CHECK_S = 1.0  # how often a network that settles is checked for movement
PATIENCE = 20  # how many settling times a network that still moves may take


class World:
    """Call `run` once. Then `stage` has the ledger and the log, and `nodes` are as they were at the end."""

    def __init__(self, scenario: Scenario, *, log: bool = False) -> None:
        self.scenario = scenario
        loop = Loop()
        self.stage = Stage(loop, Random(scenario.seed), Log(loop, wanted=log), Ledger())
        self.network = Network(self.stage.loop, self.stage.chance, self.stage.log.note)
        self.nodes: dict[str, Node] = {}
        self.pairs: dict[str, Pair] = {}  # of the same names, those with two processes
        self.vault = Vault(scenario.seed, [each.id for each in scenario.enterprise.managers])
        self.settled_at: float | None = None  # seconds after the start; None if it never came to rest
        self._build_nodes()
        self.senders = [
            SendingApp(flow, self.nodes[flow.source], self._name(flow), self.stage) for flow in scenario.flows
        ]
        self.all_read = {each.to.key for each in scenario.flows} <= self._read_queues()
        for consumer in (*scenario.consumers, *(Consumer(queue=queue_at(name, ACKS)) for name in self.nodes)):
            ReadingApp(consumer, self.nodes[consumer.queue.computer], self.stage)

    # Building

    def _build_nodes(self) -> None:
        scenario = self.scenario
        directory = read_directory(scenario.enterprise)
        for entry in scenario.enterprise.managers:
            lease_s = scenario.pairs.get(entry.name)
            if lease_s is None:
                disk = Disk(self.stage.loop, self.stage.chance, scenario.disk)
                node = self._node(entry, entry.address[0], disk, directory)
            else:
                node = cast(Node, self._pair(entry, lease_s, directory))
            self.nodes[entry.name] = node
        addresses = {each.name: each.address for each in scenario.enterprise.managers}
        for pair, line in scenario.lines.items():
            for ends in product(*(addresses[name] for name in pair)):
                self.network.lines[frozenset(ends)] = line

    def _pair(self, entry: ManagerEntry, lease_s: float, directory: Directory) -> Pair:
        database = Database(self.stage.loop, self.stage.chance)
        one, other = (
            Process(f"{entry.name} {number}", database, self.stage, lease_s)
            for number, _ in enumerate(entry.address, 1)
        )
        for process, address in zip((one, other), entry.address, strict=True):
            process.adopt(self._node(entry, address, process, directory, process.input))
        return self.pairs.setdefault(entry.name, Pair(database, (one, other)))

    def _node(
        self,
        entry: ManagerEntry,
        address: str,
        disk: NodeDisk,
        directory: Directory,
        gate: Callable[[Callable[[], object]], object] = lambda callback: callback(),
    ) -> Node:
        def refused(view: MessageView, why: Refused) -> None:
            if disk.valid:  # what a deposed process decides never becomes true
                self.stage.ledger.ended(view.data, why.acknowledgment)

        node = Node(
            self._configuration(entry.name),
            address,
            entry.id,
            self.scenario.settings,
            self._soap_settings(entry.name),
            disk,
            directory,
            self.network,
            self.stage,
            self._provide,
            TransferWatcher(refused=refused),
            self.vault,
            gate,
        )
        node.each_start(lambda: self._watch(node))
        return node

    def _configuration(self, name: str) -> Configuration:
        """The defaults of `postroad serve`, but for what the scenario says."""
        config, quota_kb = default_configuration(name), self.scenario.quotas_kb.get(name)
        return replace(
            config,
            manager=config.manager if quota_kb is None else replace(config.manager, quota_kb=quota_kb),
            binary=replace(config.binary, insecure_nacks=self.scenario.insecure_nacks),
        )

    def _soap_settings(self, name: str) -> SoapSettings | None:
        scenario = self.scenario
        if scenario.soap is None or scenario.forwarder is None:
            return scenario.soap
        if name == scenario.forwarder:
            return replace(scenario.soap, redirections=Redirections(store_and_forward=True))
        addresses = {each.name: each.address[0] for each in scenario.enterprise.managers}
        gate = addresses.pop(scenario.forwarder)
        outbound = tuple(Redirection(f"http://{each}/*", f"http://{gate}/") for each in addresses.values())
        return replace(scenario.soap, redirections=Redirections(outbound=outbound))

    def _queues_of(self, name: str) -> list[QueuePlan]:
        own = [each for each in self.scenario.queues if each.path.computer == name]
        return [QueuePlan(path=queue_at(name, ACKS)), *own]

    def _provide(self, core: LocalQueueManager, now: float) -> None:
        for plan in self._queues_of(core.name):
            path = local_path(plan.path)
            queue = core.queues.find(path) or core.create_queue(
                path,
                now,
                transactional=plan.transactional,
                quota_kb=plan.quota_kb,
                abort_limit=plan.abort_limit,
                authenticate=plan.authenticate,
                privacy=plan.privacy,
            )
            if plan.acl is not None:  # set at each start, like a list from a configuration
                core.change_queue(queue, now, acl=plan.acl)

    def _name(self, flow: Flow) -> FormatName:
        target, path = self.nodes[flow.to.computer], local_path(flow.to)
        if flow.naming is Naming.DIRECT:
            return parse_format_name(direct_name(target, path))
        if flow.naming is Naming.HTTP:
            return parse_format_name(http_name(target, path))
        paths = [local_path(each.path) for each in self._queues_of(target.name)]  # in the order of their numbers
        return PrivateName(target.identifier, FIRST_PRIVATE_NUMBER + paths.index(path))

    def _watch(self, node: Node) -> None:
        """Whatever leaves a queue of this manager unread, or is refused by it, gets into the ledger."""
        ledger = self.stage.ledger

        def removed(queue: Queue, records: Sequence[Record], reason: int, now: float) -> None:
            if node.disk.valid and queue.properties.queue_type in (
                QueueType.OUTGOING,
                QueueType.PRIVATE,
                QueueType.SUBQUEUE,
            ):
                for record in records:
                    ledger.ended(record.packet, reason)

        node.core.watch(Watcher(removed=removed))

    # Running

    def run(self) -> None:
        """Runs the workload with its faults. Then waits until everything is still, or nothing has moved for long."""
        scenario, loop = self.scenario, self.stage.loop
        for fault in scenario.faults:
            loop.after(fault.at_s, lambda fault=fault: self._break(fault))  # type: ignore[misc]
        for failover in scenario.failovers:
            loop.after(failover.at_s, lambda failover=failover: self._fail(failover))  # type: ignore[misc]
        for rotation in scenario.rotations:
            loop.after(rotation.at_s, lambda rotation=rotation: self._rotate(rotation))  # type: ignore[misc]
        for node in self.nodes.values():
            node.start()
        loop.run(STARTED + scenario.workload_s)
        # A manager whose clock was set back keeps messages that others regard as expired, until its clock has caught
        # up.
        settle_s = scenario.settle_s + max((abs(fault.clock_error_s) for fault in scenario.faults), default=0.0)
        last = loop.now + PATIENCE * settle_s
        end = loop.now + settle_s
        counts = self._counts()
        while loop.now < min(end, last):
            loop.run(loop.now + CHECK_S)
            if self._is_still():
                self.settled_at = loop.now - STARTED
                return
            if (now := self._counts()) != counts:  # slow is not stuck
                counts, end = now, loop.now + settle_s

    def _rotate(self, rotation: Rotation) -> None:
        node = self.nodes[rotation.manager].current
        ring = self.vault.rotate(node.identifier)
        if node.up:
            node.core.protection.use_keys(ring)
        self.stage.log.note(node.name, "has new keys")
        self.stage.loop.after(rotation.published_s, lambda: self.vault.publish(node.identifier))

    def _counts(self) -> list[int]:
        """How many messages each queue has."""
        return [queue.count for node in self.nodes.values() for queue in node.core.queues]

    def _is_still(self) -> bool:
        return all(sender.done for sender in self.senders) and all(
            node.up and not node.busy and all(self._is_done(node, queue) for queue in node.core.queues)
            for node in self.nodes.values()
        )

    def _is_done(self, node: Node, queue: Queue) -> bool:
        """Whether nothing more will happen to the queue's messages without help."""
        if queue.positions or queue.reserved_bytes:
            return False
        path = queue.properties.path
        if queue.is_outgoing or f"{node.name}\\{path}".lower() in self._read_queues():
            return not queue.count
        return not queue.count or path.lower() != AWAITING_FINAL_ACK or not self.all_read

    def _read_queues(self) -> set[str]:
        return {each.queue.key for each in self.scenario.consumers}

    # Breaking

    def _fail(self, failover: Failover) -> None:
        self.stage.log.note(failover.manager, f"fault: {failover.kind.value}, {failover.for_s:.3f} s")
        self.pairs[failover.manager].fail(failover, self.stage.loop)

    def _break(self, fault: Fault) -> None:
        loop, nodes = self.stage.loop, [self.nodes[name] for name in fault.managers]
        addresses = [node.address for node in nodes]
        self.stage.log.note(", ".join(fault.managers), f"fault: {fault.kind.value}, {fault.for_s:.3f} s")
        match fault.kind:
            case FaultKind.CRASH | FaultKind.POWER_FAILURE:
                self._crash(nodes[0], fault)
            case FaultKind.DISK_FULL | FaultKind.DISK_ERRORS:
                nodes[0].disk.failing = 1.0 if fault.kind is FaultKind.DISK_FULL else 0.5
                loop.after(fault.for_s, lambda: self._repair_disk(nodes[0]))
            case FaultKind.PARTITION:
                self.network.part(*addresses)
                loop.after(fault.for_s, lambda: self.network.rejoin(*addresses))
            case FaultKind.CUT:
                self.network.cut_all(*addresses)
            case FaultKind.HALF_OPEN:
                self.network.cut_all(*addresses, notify_other=False)
            case FaultKind.STALL:
                self.network.stall(*addresses, seconds=fault.for_s)
            case FaultKind.NO_ROOM:
                nodes[0].throttle(on=True)
                loop.after(fault.for_s, lambda: nodes[0].throttle(on=False))
            case FaultKind.PAUSE:
                nodes[0].pause()
                loop.after(fault.for_s, nodes[0].resume)
            case FaultKind.REFUSE:
                self.network.refuse(addresses[0], refusing=True)
                loop.after(fault.for_s, lambda: self.network.refuse(addresses[0], refusing=False))

    def _crash(self, node: Node, fault: Fault) -> None:
        if not node.up:
            return
        node.crash(silently=fault.kind is FaultKind.POWER_FAILURE)
        node.clock_error_s = fault.clock_error_s
        self.stage.loop.after(fault.for_s, node.start)

    def _repair_disk(self, node: Node) -> None:
        node.disk.failing = 0.0
        self.stage.log.note(node.name, "the disk works again")
