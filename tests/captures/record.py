"""Records the examples in this directory from our own traffic: `unshare -n python -m tests.captures.record`, as root,
with tshark. Two managers on loopback send each other every kind of message.

The packets differ from run to run, so each .toml belongs to its recording: python -m tests.captures writes a draft.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.captures import FOLDER
from tests.commands import ServerProcess, postroad
from tests.signers import SID, Files, key_files

ADDRESSES = {"alpha": "127.0.0.2", "beta": "127.0.0.3"}
ORDERS, REPORTS = "00000000-0000-0000-0000-0000000000b1", "00000000-0000-0000-0000-0000000000b2"
ENTERPRISE = f"""
[[site]]
name = "here"
[[manager]]
name = "alpha"
id = "00000000-0000-0000-0000-0000000000a1"
address = "{ADDRESSES["alpha"]}"
sites = ["here"]
routing_server = true
[[manager]]
name = "beta"
id = "00000000-0000-0000-0000-0000000000a2"
address = "{ADDRESSES["beta"]}"
sites = ["here"]
%s
[[queue]]
path = 'beta\\orders'
id = "{ORDERS}"
[[queue]]
path = 'alpha\\reports'
id = "{REPORTS}"
"""
CONFIGURATION = """
[manager]
name = "{name}"
data = "data/{name}"
[listen]
host = "{address}"
http = 80
api = 0
[rpc]
authenticate = false
anonymous = true
[directory]
file = "enterprise.toml"
[security]
sender_ids = "claimed"
[[certificate]]
sid = "{sid}"
file = "{certificate}"
[[queue]]
path = 'private$\\plain'
[[queue]]
path = 'private$\\orders'
transactional = true
[[queue]]
path = 'private$\\acks'
"""
FILTERS = {"session": "tcp port 1801 or udp port 3527", "soap-and-remote-read": "tcp port 80 or tcp port 2103"}
TO, ACKS = rf"DIRECT=TCP:{ADDRESSES['beta']}\private$", rf"DIRECT=TCP:{ADDRESSES['alpha']}\private$\acks"


def main() -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        subprocess.run(["ip", "link", "set", "lo", "mtu", "1500", "up"], check=True)
        signer = key_files(directory)
        (directory / "enterprise.toml").write_text(ENTERPRISE % "")
        servers: dict[str, ServerProcess] = {}
        for name in ("beta", "alpha"):
            file = directory / f"{name}.toml"
            file.write_text(
                CONFIGURATION.format(name=name, address=ADDRESSES[name], sid=SID, certificate=signer.certificate)
            )
            if name == "alpha":
                (shown,) = postroad("keys", "show", "--json", api=servers["beta"].api).objects
                (directory / "enterprise.toml").write_text(ENTERPRISE % f'public_keys = "{shown["public_keys"]}"')
            servers[name] = ServerProcess(file)
            stack.callback(servers[name].close)
        for name, expression in FILTERS.items():
            stack.enter_context(_Recording(FOLDER / f"{name}.pcapng", expression))
        time.sleep(5)  # until dumpcap listens
        _traffic(servers["alpha"].api, servers["beta"].api, signer)
        for server in servers.values():
            server.end()
        time.sleep(2)  # until dumpcap has written the last frame


class _Recording(subprocess.Popen[bytes]):
    """dumpcap, until the end of a block."""

    def __init__(self, file: Path, expression: str) -> None:
        command = ["dumpcap", "-q", "-i", "lo", "-f", expression, "-w", str(file)]
        super().__init__(command, stderr=subprocess.DEVNULL)

    def __exit__(self, *error: object) -> None:
        self.terminate()
        self.wait()


def _traffic(alpha: str, beta: str, signer: Files) -> None:
    def run(*arguments: str, at: str = alpha) -> None:
        outcome = postroad(*arguments, api=at)
        assert outcome.code == 0, (arguments, outcome.errors)

    run("send", rf"{TO}\plain", "--body", "express", "--label", "an express message", "--priority", "5")
    run(
        *(
            "send",
            rf"{TO}\plain",
            "--body",
            "ten \N{EURO SIGN}",
            "--body-type",
            "8",
            "--label",
            "Gr\xfc\xdfe \U0001d11e",
        ),
        *("--recoverable", "--ack", "full", "--admin-queue", ACKS, "--response-queue", ACKS, "--app-tag", "99"),
        *("--correlation", r"{00000000-0000-0000-0000-0000000000c1}\77", "--ttrq", "600", "--ttbr", "900"),
        *("--journal", "--dead-letter"),
    )
    run("send", rf"{TO}\orders", "--body", "ten boxes", "--transactional", "--label", "order 1", "--count", "3")
    run("send", rf"{TO}\missing", "--body", "x", "--ack", "full", "--admin-queue", ACKS, "--recoverable")
    run("send", f"PUBLIC={ORDERS}", "--body", "public", "--trace", f"PUBLIC={REPORTS}")
    run("send", rf"{TO}\plain,PUBLIC={ORDERS}", "--body", "several", "--label", "to several queues")
    run("send", rf"{TO}\plain", "--header", "NServiceBus.MessageId=1", "--body", "with headers")
    run("send", rf"{TO}\plain", "--body", "x" * 5000, "--label", "over several segments")
    run("send", f"PUBLIC={ORDERS}", "--encrypt", "--body", "a secret", "--label", "encrypted")
    run("send", rf"{TO}\plain", "--body", "signed", "--sign", str(signer.certificate), "--key", str(signer.key))
    run("send", f"DIRECT=HTTP://{ADDRESSES['beta']}/msmq/private$/plain", "--body", "by SOAP", "--label", "SOAP")
    run("ping", ADDRESSES["beta"])
    run("receive", r"private$\plain", "--count", "6", "--timeout", "20", at=beta)
    run("receive", r"private$\orders", "--timeout", "20", at=beta)
    run("remote", "receive", ADDRESSES["beta"], r"private$\orders", "--timeout", "20")
    time.sleep(3)  # for the last acknowledgments


if __name__ == "__main__":
    main()
