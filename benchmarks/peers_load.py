"""Loads that the peers' own scripts lack: several publishers into one queue, and a steady pace with latencies.

`peers_load.py DIRECTORY several|rabbitmq|nats JSON` runs with the peers' Python and modules, so it imports nothing of
Postroad.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path[:0] = [sys.argv[1], str(Path(__file__).parent)]
common: Any = import_module("common")
brokers: Any = import_module("brokers")
pace: Any = import_module("peers_pace")
forking = multiprocessing.get_context("fork")
CONNECT_S = 60


def run(target: Callable[..., None], *arguments: Any) -> Any:
    child = forking.Process(target=target, args=arguments, daemon=True)
    child.start()
    return child


def several(messages: int, window: int, producers: int) -> dict[str, Any]:
    rabbitmq: Any = import_module("bench_rabbitmq")
    publish, consume = rabbitmq.CL["pika"]
    sizes = {"peer": "rabbitmq", "port": brokers.PORT["rabbitmq"], "size": pace.SIZE, "window": window}
    one, all_of_them = common.Cfg(n=messages, **sizes), common.Cfg(n=messages * producers, **sizes)
    run(rabbitmq.setup, one).join(CONNECT_S)
    ready, received, sent = forking.Event(), forking.Queue(), forking.Queue()
    before = common.cpu_of(brokers.pids("rabbitmq"))
    run(common._sub, consume, all_of_them, ready, received)
    if not ready.wait(CONNECT_S):
        raise SystemExit("the consumer did not connect")
    for _ in range(producers):
        run(common._pub, publish, one, sent)
    publishers = [sent.get(timeout=600) for _ in range(producers)]
    _, ended, consumed_s = received.get(timeout=600)
    return {
        "began": min(each[0] for each in publishers),
        "ended": max(ended, *(each[1] for each in publishers)),
        "cpu_s": {
            "producer": sum(each[2] for each in publishers),
            "broker": common.cpu_of(brokers.pids("rabbitmq")) - before,
            "consumer": consumed_s,
        },
    }


def at_pace(
    setup: Callable[[Any], None], publish: Callable[..., None], consume: Callable[..., None], config: Any, pace: float
) -> dict[str, Any]:
    """Measures the latency of every message, from a producer process to a consumer process."""
    run(setup, config).join(CONNECT_S)
    ready, received = forking.Event(), forking.Queue()
    run(consume, config, ready, received)
    if not ready.wait(CONNECT_S):
        raise SystemExit("the consumer did not connect")
    run(publish, config, pace)
    return {"latencies_ms": received.get(timeout=600)}


# RabbitMQ with pika: durable queue, persistent messages, publisher confirms, acknowledgment of each message


def publish_rabbitmq(config: Any, per_second: float) -> None:
    rabbitmq: Any = import_module("bench_rabbitmq")

    def on_channel(connection: Any, channel: Any, done: asyncio.Future[int]) -> None:
        persistent = rabbitmq.pika.BasicProperties(delivery_mode=2)

        async def publish() -> None:
            async for planned in pace.due(config.n, per_second):
                for each in planned:
                    channel.basic_publish("", config.queue, pace.stamped(each), persistent)
            await asyncio.sleep(1)  # the last confirms
            done.set_result(1)

        tasks = []
        channel.confirm_delivery(lambda _: None, callback=lambda _: tasks.append(asyncio.ensure_future(publish())))

    rabbitmq._pika(config, on_channel)


def consume_rabbitmq(config: Any, ready: Any, received: Any) -> None:
    rabbitmq: Any = import_module("bench_rabbitmq")
    latencies: list[float] = []

    def on_channel(connection: Any, channel: Any, done: asyncio.Future[int]) -> None:
        def take(_: Any, delivery: Any, properties: Any, body: bytes) -> None:
            latencies.append(pace.latency_ms(body))
            channel.basic_ack(delivery.delivery_tag)
            if len(latencies) == config.n:
                done.set_result(1)

        def consume(_: Any) -> None:
            channel.basic_consume(config.queue, take, callback=lambda _: ready.set())

        channel.basic_qos(prefetch_count=1000, callback=consume)

    rabbitmq._pika(config, on_channel)
    received.put(latencies)


# NATS with nats-py: JetStream, file, publish acknowledgments, explicit acknowledgment of each message


def publish_nats(config: Any, per_second: float) -> None:
    nats: Any = import_module("bench_nats")

    async def main() -> None:
        connection = await nats.nats.connect(nats.url(config), pending_size=64 << 20)
        stream = connection.jetstream(publish_async_max_pending=config.window)
        async for planned in pace.due(config.n, per_second):
            for each in planned:
                await stream.publish_async("bench", pace.stamped(each), wait_stall=60)
        await asyncio.sleep(1)
        await connection.close()

    asyncio.run(main())


def consume_nats(config: Any, ready: Any, received: Any) -> None:
    nats: Any = import_module("bench_nats")
    latencies: list[float] = []

    async def main() -> None:
        connection = await nats.nats.connect(nats.url(config))
        done = asyncio.get_running_loop().create_future()

        async def take(message: Any) -> None:
            latencies.append(pace.latency_ms(message.data))
            await message.ack()
            if len(latencies) == config.n:
                done.set_result(1)

        await connection.jetstream().subscribe("bench", stream="BENCH", cb=take, manual_ack=True)
        ready.set()
        await done
        await connection.close()

    asyncio.run(main())
    received.put(latencies)


def main(what: str, options: dict[str, Any]) -> dict[str, Any]:
    if what == "several":
        return several(**options)
    module: Any = import_module(f"bench_{what}")
    publish, consume = (publish_rabbitmq, consume_rabbitmq) if what == "rabbitmq" else (publish_nats, consume_nats)
    config = common.Cfg(peer=what, port=brokers.PORT[what], n=options["messages"], size=pace.SIZE)
    return at_pace(module.setup, publish, consume, config, options["per_second"])


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[2], json.loads(sys.argv[3]))))
