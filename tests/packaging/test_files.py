"""The files of packaging/, by their own checkers, and what no checker knows: that they fit each other."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from postroad.config import ListenSettings, load_configuration
from postroad.net import ports
from tests.packaging.checkers import PACKAGING, ROOT, check

CONTAINERFILE = PACKAGING / "container" / "Containerfile"
CHART = PACKAGING / "helm" / "postroad"
UNIT = PACKAGING / "systemd" / "postroad.service"
MOST_EXPOSED = 2.0  # of 10, by `systemd-analyze security`


def test_the_containerfile_has_no_fault() -> None:
    check("hadolint", str(CONTAINERFILE))


def test_the_containerfile_copies_what_exists_and_runs_without_root() -> None:
    text = CONTAINERFILE.read_text()
    copied = [name for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE) for name in line.split()[:-1]]
    assert "src" in copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert text.index("USER 10001:10001") < text.index("ENTRYPOINT")


def test_the_compose_file_follows_the_specification() -> None:
    check("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(PACKAGING / "compose" / "compose.yaml"))


def test_the_compose_file_mounts_what_exists() -> None:
    directory = PACKAGING / "compose"
    mounted = re.findall(r"- (\.\S+?):/", (directory / "compose.yaml").read_text())
    assert len(mounted) == 4
    assert [name for name in mounted if not (directory / name).exists()] == []


@pytest.mark.parametrize("name", ["container/postroad.toml", "compose/alpha.toml", "compose/beta.toml"])
def test_a_manager_takes_the_configuration(name: str, tmp_path: Path) -> None:
    """With the token, which the container gets as a secret."""
    text = (PACKAGING / name).read_text()
    assert 'token_file = "/run/secrets/postroad-token"' in text
    for secret in ("postroad-token", "postroad-monitor"):
        (tmp_path / secret).write_text("0123456789abcdef\n")
    file = tmp_path / "postroad.toml"
    file.write_text(text.replace("/run/secrets", str(tmp_path)))
    config = load_configuration(file)
    assert str(config.manager.data) == "/var/lib/postroad"
    assert [each.monitor for each in config.users] == ([True] if name.startswith("compose") else [])


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a command that exists, as after an installation."""
    command = tmp_path / "postroad"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/postroad/bin/postroad", str(command)))
    return unit


def test_systemd_takes_the_unit_without_a_warning(unit: Path) -> None:
    assert check("systemd-analyze", "verify", str(unit)) == ""


def test_the_unit_is_hardened(unit: Path) -> None:
    report = check("systemd-analyze", "security", "--offline=true", str(unit))
    found = re.search(r"Overall exposure level for postroad.service: ([\d.]+)", report)
    assert found is not None, report
    assert float(found[1]) <= MOST_EXPOSED


def test_the_chart_passes_lint() -> None:
    check("helm", "lint", "--strict", str(CHART))


@pytest.mark.parametrize(
    "options",
    [
        (),
        (
            "--set",
            "token.existingSecret=mine,monitor.existingSecret=theirs,service.type=LoadBalancer,"
            "persistence.storageClass=fast,hostNetwork=true,tls.secretName=certificate,secrets={people},"
            "enterprise=[[site]],ports.ping=3527,ports.https=443,ports.rpc=2103,ports.rpc_read=2105,ports.epm=135",
        ),
    ],
)
def test_kubernetes_takes_what_the_chart_renders(options: tuple[str, ...], tmp_path: Path) -> None:
    rendered = tmp_path / "rendered.yaml"
    check("helm", "template", "orders", str(CHART), *options, "--output-dir", str(tmp_path / "out"))
    rendered.write_text("---\n".join(each.read_text() for each in sorted((tmp_path / "out").rglob("*.yaml"))))
    text = rendered.read_text()
    assert text.count("kind: ") == (5 if not options else 3)  # without secrets of the chart's own
    assert text.count("scheme: HTTPS") == (0 if not options else 3)  # the probes
    report = check("kubernetes-validate", "--strict", "-k", "1.34", str(rendered))
    assert "statefulset/orders" in report


@pytest.mark.parametrize("tls", [False, True])
def test_the_chart_has_a_configuration_that_a_manager_takes(tmp_path: Path, tls: bool) -> None:
    """With the files that the pod has, and nothing but them."""
    options = ("--set", "tls.secretName=mine,ports.https=443,enterprise=[[site]]") if tls else ()
    check("helm", "template", "orders", str(CHART), *options, "--output-dir", str(tmp_path / "out"))
    (rendered,) = (tmp_path / "out").rglob("configmap.yaml")
    (pod,) = (tmp_path / "out").rglob("statefulset.yaml")
    text = rendered.read_text().partition("postroad.toml: |\n")[2].partition("  enterprise.toml: |\n")[0]
    for name in re.findall(r'"/run/secrets/(\S+)"', text):
        assert f"mountPath: /run/secrets/{Path(name).parent}, " in pod.read_text()
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("0123456789abcdef\n")
    file = tmp_path / "postroad.toml"
    file.write_text(text.replace("/run/secrets", str(tmp_path)))
    config = load_configuration(file)
    assert config.manager.name == "orders"
    assert [(each.name, each.monitor) for each in config.users] == [("monitor", True)]
    assert (config.listen.console, config.listen.https) == ((ports.CONSOLE, ports.HTTPS) if tls else (None, None))
    assert (config.api.tls_certificate is not None) is tls
    assert (config.directory.file is not None) is tls


def test_the_chart_brings_the_alerts(tmp_path: Path) -> None:
    assert (CHART / "alerts.yml").resolve() == PACKAGING / "prometheus" / "alerts.yml"
    options = "serviceMonitor.enabled=true,prometheusRule.enabled=true"
    check("helm", "template", "orders", str(CHART), "--set", options, "--output-dir", str(tmp_path))
    (rendered,) = tmp_path.rglob("monitoring.yaml")
    rules = rendered.read_text().partition("kind: PrometheusRule")[2].partition("spec:\n")[2]
    (tmp_path / "rules.yml").write_text(rules)
    assert "15 rules found" in check("promtool", "check", "rules", str(tmp_path / "rules.yml"))


def test_prometheus_reads_the_metrics_as_a_user_who_may_only_look(tmp_path: Path) -> None:
    check(
        "helm", "template", "orders", str(CHART), "--set", "serviceMonitor.enabled=true", "--output-dir", str(tmp_path)
    )
    (rendered,) = tmp_path.rglob("monitoring.yaml")
    text = rendered.read_text()
    assert text.count("name: orders-monitor, key: ") == 2
    assert "token" not in text
    assert "token" not in (PACKAGING / "prometheus" / "prometheus.yml").read_text()


STANDARD = {
    "binary": ports.BINARY,
    "ping": ports.PING,
    "http": ports.HTTP,
    "https": ports.HTTPS,
    "rpc": ports.RPC_HANDSHAKE,
    "rpc_read": ports.RPC_READ,
    "amqp": 5672,
    "api": ports.API,
    "epm": ports.ENDPOINT_MAPPER,
    "console": ports.CONSOLE,
}
LISTENERS = [each.name for each in fields(ListenSettings) if each.name != "host"]


@pytest.mark.parametrize("listener", LISTENERS)
def test_every_listener_is_in_the_documents_the_image_and_the_chart(listener: str) -> None:
    port = STANDARD[listener]
    settings = (ROOT / "docs" / "reference" / "configuration.md").read_text().partition("## `[listen]`")[2]
    assert f"| `{listener}` |" in settings.partition("\n## ")[0]
    firewall = (ROOT / "docs" / "how-to" / "expose-it-safely.md").read_text().partition("## Open ports")[2]
    rows = [line for line in firewall.partition("\n## ")[0].splitlines() if f"`{listener}`" in line]
    assert len(rows) == 1
    assert str(port) in rows[0]
    protocol = "udp" if listener == "ping" else "tcp"
    (exposed,) = re.findall(r"^EXPOSE (.*)$", CONTAINERFILE.read_text(), re.MULTILINE)
    assert f"{port}/{protocol}" in exposed.split()
    chart = (CHART / "values.yaml").read_text().partition("\nports:\n")[2].partition("\n\n")[0]
    (row,) = [line for line in chart.splitlines() if line.startswith(f"  {listener}:")]
    assert str(port) in row


def test_every_install_for_production_has_the_console_and_logins() -> None:
    (built,) = re.findall(r"^ARG EXTRAS=(.*)$", CONTAINERFILE.read_text(), re.MULTILINE)
    found = {"Containerfile": built}
    for name in ("README.md", "packaging/README.md", "docs/how-to/operate.md"):
        (found[name],) = re.findall(r"pip install \S*(?:.*dist/.*)?\[(\S+)\]['\"]", (ROOT / name).read_text())
    assert set(found.values()) == {"auth,console"}


def test_the_chart_installs_the_version_of_the_project() -> None:
    from postroad.runtime.version import RELEASE

    assert f'appVersion: "{RELEASE}"' in (CHART / "Chart.yaml").read_text()


def test_prometheus_takes_the_scrape_configuration(tmp_path: Path) -> None:
    for name in ("prometheus.yml", "alerts.yml"):
        shutil.copy(PACKAGING / "prometheus" / name, tmp_path)
    file = tmp_path / "prometheus.yml"
    (tmp_path / "postroad-monitor").touch()
    file.write_text(file.read_text().replace("/run/secrets", str(tmp_path)))
    assert "SUCCESS" in check("promtool", "check", "config", str(file))


def test_the_alerts_are_rules_and_pass_their_tests() -> None:
    directory = PACKAGING / "prometheus"
    assert "SUCCESS" in check("promtool", "check", "rules", "alerts.yml", directory=directory)
    assert "SUCCESS" in check("promtool", "test", "rules", "alerts_test.yml", directory=directory)


def test_every_alert_is_tested() -> None:
    directory = PACKAGING / "prometheus"
    alerts = re.findall(r"- alert: (\w+)", (directory / "alerts.yml").read_text())
    tests = (directory / "alerts_test.yml").read_text()
    assert len(alerts) == 18
    assert [each for each in alerts if each not in tests] == []


def test_every_query_of_the_dashboard_is_promql(tmp_path: Path) -> None:
    """promtool reads them as recording rules, with values for Grafana's variables."""
    dashboard = json.loads((PACKAGING / "grafana" / "postroad.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(queries) > 30
    plain = [each.replace("$__rate_interval", "5m").replace("$manager", ".*") for each in queries]
    rules = [{"record": f"query_{number}", "expr": each} for number, each in enumerate(plain)]
    file = tmp_path / "queries.json"  # YAML includes JSON
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(queries)} rules found" in check("promtool", "check", "rules", str(file))


def test_the_panels_of_the_dashboard_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = json.loads((PACKAGING / "grafana" / "postroad.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("file", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda file: file.name)
def test_the_workflows_of_github_follow_their_schema(file: Path) -> None:
    check("check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(file))
