"""The store's crash sweep: each operation fails or loses power, and the store is opened twice and compared with what
was promised."""

from __future__ import annotations

import argparse
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from postroad.errors import StorageError
from postroad.store import NEVER, PRIORITY_SHIFT, Batch, Key, LayeredStore, Record, Store
from tests.torture.vfs import (
    Disk,
    Fault,
    Kind,
    Loss,
    Operation,
    TortureFiles,
    TortureVFS,
    fast_directory,
    torture_vfs,
    write_files,
)

QUEUES = (1, 2, 3)
CHECKPOINT_PAGES = 12  # a short workload meets several checkpoints
SEGMENT_BYTES = 24 * 1024  # and segments of the journal that are full; a commit can be larger
TIDY_EVERY = 3  # steps: then the store is idle, and between them the journal fills
STEP = "step"  # the state value that says how many steps a store holds
MANY = 1 << 62  # a time at which everything that can expire has


@dataclass(frozen=True, slots=True)
class Content:
    """All that a store holds after some step."""

    records: dict[Key, Record] = field(default_factory=dict)
    state: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Workload:
    """Commits, and the content after each: `contents[n]` follows the first n steps."""

    steps: list[list[Batch]]
    contents: list[Content]


@dataclass(slots=True)
class Tally:
    points: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    changed: int = 0
    refused: int = 0  # stores that would not open, or not take another commit
    kinds: set[Kind] = field(default_factory=set)

    @property
    def faults(self) -> int:
        return self.lost + self.duplicated + self.reordered + self.changed + self.refused

    def __str__(self) -> str:
        return (
            f"{self.points} crash points: lost {self.lost}, duplicated {self.duplicated}, reordered {self.reordered}, "
            f"changed {self.changed}, refused {self.refused}"
        )


def make_workload(steps: int, seed: int) -> Workload:
    """Messages of all sizes arrive in three queues, are received, put back, and expire. State changes with them."""
    chance = random.Random(seed)
    arrival = 0
    records: dict[Key, Record] = {}
    state: dict[str, bytes] = {}
    commits: list[list[Batch]] = []
    contents = [Content()]
    for number in range(1, steps + 1):
        group: list[Batch] = []
        for _ in range(chance.choice((1, 1, 2, 3))):
            batch = Batch()
            for _ in range(chance.randint(0, 3)):
                arrival += 1
                key = Key(chance.choice(QUEUES), chance.randrange(8) << PRIORITY_SHIFT | arrival)
                size = chance.choice((0, 10, 300, 1400, 9000, 30_000))
                expires_s = chance.choice((NEVER, NEVER, 1000 + arrival))
                batch.puts[key] = Record(*key, arrival, expires_s, 0, chance.randbytes(size))
            for key in chance.sample(sorted(records), min(len(records), chance.randint(0, 2))):
                if chance.random() < 0.3:
                    batch.puts[key] = records[key]._replace(aborts=records[key].aborts + 1)
                else:
                    batch.deletes.add(key)
            batch.state[f"sequence/{chance.choice(QUEUES)}"] = chance.choice((None, chance.randbytes(40)))
            group.append(batch)
            _apply(batch, records, state)
        group[-1].state[STEP] = state[STEP] = str(number).encode()
        commits.append(group)
        contents.append(Content(dict(records), dict(state)))
    return Workload(commits, contents)


def _apply(batch: Batch, records: dict[Key, Record], state: dict[str, bytes]) -> None:
    for key in batch.deletes:
        records.pop(Key(*key), None)
    records.update({Key(*key): record for key, record in batch.puts.items()})
    for name, value in batch.state.items():
        if value is None:
            state.pop(name, None)
        else:
            state[name] = value


def compare(store: Store, workload: Workload, allowed: Iterable[int], tally: Tally) -> int:
    """Counts the store's differences from the content after one of the `allowed` numbers of steps. Says which number it
    is."""
    allowed = list(allowed)
    state = dict(store.state())
    step = int(state.get(STEP, b"0"))
    step = step if step in allowed else allowed[0]
    expected = workload.contents[step]
    found: list[Record] = []
    for queue in QUEUES:
        after = -1
        while records := store.scan(queue, after, 3):
            after = records[-1].lookup_id
            found += records
        backwards = store.scan_back(queue, MANY, 1_000_000)
        tally.reordered += backwards[::-1] != [record for record in found if record.queue == queue]
    keys = [Key(record.queue, record.lookup_id) for record in found]
    tally.lost += len(expected.records.keys() - set(keys))
    tally.duplicated += len(keys) - len(set(keys)) + len(set(keys) - expected.records.keys())
    tally.reordered += keys != sorted(keys)
    tally.changed += sum(expected.records.get(key, record) != record for key, record in zip(keys, found, strict=True))
    tally.changed += state != expected.state
    due = sorted(
        (record for record in expected.records.values() if record.expires_s), key=lambda r: (r.expires_s, r[:2])
    )
    tally.changed += store.expired(MANY, 1_000_000) != due
    tally.changed += len(store.damaged)
    return step


def check_image(
    files: dict[str, bytes], directory: Path, workload: Workload, allowed: list[int], tally: Tally, cuts: int = 1
) -> None:
    """Opens what a power cut left, twice, and then once more for another commit. `cuts` times, the power also fails in
    the first of these, at some operation of the recovery, and everything is repeated with what that leaves."""
    tally.points += 1
    write_files(directory, files)
    with torture_vfs("image") as vfs:
        vfs.disk = Disk.holding(files)
        try:
            with opened(directory, vfs) as store:
                step = compare(store, workload, allowed, tally)
            recovery = vfs.disk.log[:]
            with opened(directory, vfs) as store:
                compare(store, workload, [step], tally)
            with opened(directory, vfs) as store:
                if step < len(workload.steps):
                    store.commit(workload.steps[step])
                    compare(store, workload, [step + 1], tally)
        except StorageError:
            tally.refused += 1
            return
        finally:
            shutil.rmtree(directory)
    chance = random.Random(len(recovery))
    for _ in range(cuts if recovery else 0):
        disk = Disk.holding(files)
        for operation in recovery[: chance.randint(1, len(recovery))]:
            disk.apply(operation)
        image = disk.after_power_cut(chance.choice(list(Loss)), chance.randrange(1_000_000))
        check_image(image, directory, workload, [step], tally, 0)


@contextmanager
def opened(directory: Path, vfs: TortureVFS) -> Iterator[LayeredStore]:
    store = open_tortured(directory, vfs)
    try:
        yield store
    finally:
        store.close()


def open_tortured(directory: Path, vfs: TortureVFS) -> LayeredStore:
    return LayeredStore(
        directory,
        vfs=vfs.vfs_name,
        checkpoint_pages=CHECKPOINT_PAGES,
        kept_free_pages=0,
        files=TortureFiles(directory, vfs),
        segment_bytes=SEGMENT_BYTES,
    )


def record_run(directory: Path, workload: Workload) -> list[Operation]:
    """Every operation of one whole run from the first start to the stop, with a mark at each promise."""
    with torture_vfs() as vfs:
        with opened(directory, vfs) as store:
            for number, group in enumerate(workload.steps, 1):
                store.commit(group)
                vfs.disk.apply(Operation(Kind.MARK, offset=number))
                store.tidy(busy=number % TIDY_EVERY != 0)
        return vfs.disk.log


def power_cuts(work: Path, workload: Workload, seeds: int) -> Tally:
    """The power fails before each single operation. Unsynced writes are dropped, kept, and reordered or torn."""
    tally = Tally()
    log = record_run(work / "run", workload)
    disk = Disk()
    promised = 0
    for operation in (*log, Operation(Kind.MARK, offset=len(workload.steps))):
        if operation.kind is Kind.MARK:
            promised = operation.offset
        else:
            tally.kinds.add(operation.kind)
        allowed = [promised, promised + 1] if promised < len(workload.steps) else [promised]
        seen: set[int] = set()
        for loss, seed in ((Loss.ALL, 0), (Loss.NONE, 0), *((Loss.SOME, seed) for seed in range(seeds))):
            image = disk.after_power_cut(loss, seed + len(disk.log) * 1000)
            fingerprint = hash(tuple(sorted(image.items())))
            if fingerprint not in seen:
                seen.add(fingerprint)
                check_image(image, work / "image", workload, allowed, tally)
        disk.apply(operation)
    return tally


def failures(work: Path, workload: Workload, error: type[apsw.Error], *, lasting: bool) -> Tally:
    """Each single operation fails once, and the store must go on. Or it fails for good, and then the power fails."""
    tally = Tally()
    at = 0
    while _fail_at(at, work, workload, Fault(at, error, lasting), tally):
        at += 1
    return tally


def _fail_at(at: int, work: Path, workload: Workload, fault: Fault, tally: Tally) -> bool:
    """One run with a fault. False if the run ended before the fault."""
    directory = work / "run"
    images: Callable[[list[int]], None]
    with torture_vfs() as vfs:
        vfs.fault = fault

        def images(allowed: list[int]) -> None:
            for loss in Loss:
                check_image(vfs.disk.after_power_cut(loss, at), work / "image", workload, allowed, tally)

        try:
            _run_with_fault(directory, workload, vfs, images, tally)
        finally:
            shutil.rmtree(directory)
        return vfs.count > at


def _run_with_fault(
    directory: Path, workload: Workload, vfs: TortureVFS, images: Callable[[list[int]], None], tally: Tally
) -> None:
    assert vfs.fault is not None
    try:
        store = open_tortured(directory, vfs)
    except StorageError:
        images([0])
        if vfs.fault.lasting:
            return
        store = open_tortured(directory, vfs)
    try:
        for number, group in enumerate(workload.steps, 1):
            try:
                store.commit(group)
            except StorageError:
                compare(store, workload, [number - 1], tally)  # nothing was changed
                images([number - 1, number])  # a commit that failed in its sync may still come back, whole
                if vfs.fault.lasting:
                    return
                store.commit(group)  # the fault is over
            store.tidy(busy=number % TIDY_EVERY != 0)  # promises nothing, and must not break a promise when it fails
            compare(store, workload, [number], tally)
        images([len(workload.steps)])
    except StorageError:
        tally.refused += 1
    finally:
        with suppress(StorageError):  # SQLite ignores a checkpoint that fails at the end; apsw tells of our exception
            store.close()


def report(name: str, tally: Tally) -> int:
    print(f"{name}: {tally}", flush=True)
    return tally.faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=12, help="commits in a run")
    parser.add_argument("--seeds", type=int, default=5, help="random losses at each crash point")
    parser.add_argument("--workloads", type=int, default=3, help="different runs")
    arguments = parser.parse_args()
    faults = 0
    with fast_directory() as work:
        for seed in range(arguments.workloads):
            workload = make_workload(arguments.steps, seed)
            faults += report(f"workload {seed}, power cut", power_cuts(work, workload, arguments.seeds))
            shutil.rmtree(work / "run")
            for error in (apsw.FullError, apsw.IOError):
                for lasting in (False, True):
                    name = f"{error.__name__} {'from the n-th operation on' if lasting else 'at the n-th operation'}"
                    tally = failures(work, workload, error, lasting=lasting)
                    faults += report(f"workload {seed}, {name}", tally)
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()
