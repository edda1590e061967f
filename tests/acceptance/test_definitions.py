"""`postroad definitions`: queues, access lists and users of one manager, exported to a file and imported on another."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.commands import Outcome, ServerProcess, postroad, serving

CONFIG = """
[manager]
name = "{name}"
data = "{name}"
[listen]
binary = false
ping = false
http = false
rpc = false
api = 0
"""
ANN = '[[user]]\nname = "ann"\npassword = "a secret word"\nsid = "S-1-5-21-1-2-3-1001"\n'
QUEUES = r"""
[[queue]]
path = 'private$\orders'
transactional = true
label = "it's \"quoted\""
quota_kb = 100
acl = "D:(A;;0x2;;;S-1-5-21-1-2-3-1001)"
[[queue]]
path = 'private$\plain'
journal = true
"""
Start = Callable[..., ServerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(name: str, more: str = "") -> ServerProcess:
            config = tmp_path / f"{name}.toml"
            config.write_text(CONFIG.format(name=name) + more)
            return stack.enter_context(serving(config))

        yield start


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """alpha without queues, for all tests that change nothing there."""
    config = tmp_path_factory.mktemp("unchanged") / "alpha.toml"
    config.write_text(CONFIG.format(name="alpha"))
    with serving(config) as server:
        yield server


def definitions(server: ServerProcess, *arguments: str) -> Outcome:
    return postroad("definitions", *arguments, api=server.api)


def properties(server: ServerProcess) -> list[tuple[object, ...]]:
    names = ("path", "transactional", "label", "journal", "quota_kb", "journal_quota_kb", "privacy", "abort_limit")
    found = server.get("/queues")["queues"]
    return sorted(tuple(each[name] for name in names) for each in found if each["type"] == "private")


def test_an_export_makes_the_same_queues_on_another_manager(start: Start, tmp_path: Path) -> None:
    alpha, file = start("alpha", ANN + QUEUES), str(tmp_path / "definitions.toml")
    assert definitions(alpha, "export", file).text == f"wrote 2 queues and 1 user to {file}\n"
    text = Path(file).read_text()
    assert "a secret word" not in text
    assert [each["path"] for each in tomllib.loads(text)["queue"]] == [r"private$\orders", r"private$\plain"]

    beta = start("beta")
    shown = definitions(beta, "import", file, "--dry-run")
    assert (shown.code, shown.lines[0]) == (0, r"would create private$\orders")
    assert properties(beta) != properties(alpha)
    done = definitions(beta, "import", file)
    assert done.lines == [r"created private$\orders", r"created private$\plain", "0 queues as in the file already"]
    assert "the user ann is missing" in done.errors
    assert properties(beta) == properties(alpha)
    lists = [postroad("queue", "acl", "show", r"private$\orders", "--json", api=each.api) for each in (alpha, beta)]
    assert "S-1-5-21-1-2-3-1001" in lists[0].text
    assert lists[1].objects[0]["sddl"].partition("D:")[2] == lists[0].objects[0]["sddl"].partition("D:")[2]

    again = definitions(beta, "import", file)
    assert (again.code, again.lines) == (0, ["2 queues as in the file already"])


def test_an_import_changes_what_differs_and_says_so(start: Start, tmp_path: Path) -> None:
    server, file = start("alpha", ANN + QUEUES), str(tmp_path / "definitions.toml")
    definitions(server, "export", file)
    postroad("queue", "set", r"private$\plain", "--label", "other", "--quota-kb", "7", api=server.api)
    done = definitions(server, "import", file, "--json")
    assert [(each["queue"], each["change"], sorted(each["properties"])) for each in done.objects] == [
        (r"private$\plain", "change", ["label", "quota_kb"])
    ]
    assert done.errors == ""


def test_an_import_says_which_users_to_add_and_the_lines_work(start: Start, tmp_path: Path) -> None:
    boss = '[[user]]\nname = "the boss"\npassword = "b"\nadministrator = true\ngroups = ["S-1-5-21-1-2-3-2001"]\n'
    alpha, file = start("alpha", ANN + boss), str(tmp_path / "definitions.toml")
    definitions(alpha, "export", file)
    done = definitions(start("beta"), "import", file)
    assert (done.code, done.lines) == (0, ["0 queues as in the file already"])
    lines = done.errors.partition("send it SIGHUP:\n")[2]
    for name, password in (("ann", "new"), ("user-2", "newer")):
        (tmp_path / f"{name}.password").write_text(f"{password}\n")
    gamma = start("gamma", lines)
    assert definitions(gamma, "import", file).errors == ""
    login = {"POSTROAD_USER": "the boss", "POSTROAD_PASSWORD": "newer"}
    assert postroad("status", api=gamma.api, variables=login).code == 0


def test_an_import_says_how_a_user_differs(start: Start, tmp_path: Path) -> None:
    server, file = start("alpha", ANN + 'groups = ["S-1-5-32-544"]\n'), tmp_path / "definitions.toml"
    file.write_text("[[user]]\nname = 'ann'\nsid = 'S-1-5-21-1-2-3-1001'\n")
    assert (
        "the user ann differs: the file has groups = [], administrator = false, "
        "the manager has groups = ['S-1-5-32-544'], administrator = true; change the [[user]]"
    ) in definitions(server, "import", str(file)).last_error
    file.write_text("[[user]]\nname = 'ANN'\ngroups = ['S-1-5-32-544']\n")
    assert definitions(server, "import", str(file)).errors == ""


def test_nothing_changes_if_one_queue_cannot(start: Start, tmp_path: Path) -> None:
    server, file = start("alpha", QUEUES), tmp_path / "definitions.toml"
    file.write_text("[[queue]]\npath = 'private$\\new'\n[[queue]]\npath = 'private$\\plain'\ntransactional = true\n")
    before = properties(server)
    done = definitions(server, "import", str(file))
    assert done.code == 1
    assert r"private$\plain: transactional cannot change once a queue exists" in done.errors
    assert done.last_error == "postroad: nothing was changed"
    assert properties(server) == before


PUBLIC = """
[[queue]]
path = 'alpha\\orders'
label = 'public'
journal = true
"""


def listed(server: ServerProcess) -> list[object]:
    return [
        {key: each[key] for key in ("path", "label", "journal", "quota_kb")} for each in server.get("/queues")["queues"]
    ]


def test_a_public_queue_becomes_one_of_the_importing_manager(start: Start, tmp_path: Path) -> None:
    file = str(tmp_path / "definitions.toml")
    definitions(start("alpha", QUEUES + PUBLIC), "export", file)
    assert r"path = 'alpha\orders'" in Path(file).read_text()

    beta = start("beta")
    before = listed(beta)
    for more in ([], ["--dry-run"]):
        refused = definitions(beta, "import", file, *more)
        assert (refused.code, refused.text, refused.last_error) == (1, "", "postroad: nothing was changed")
        assert r"beta\orders: beta has no such public queue; add it as a [[queue]] with an id" in refused.errors
        assert listed(beta) == before

    assert postroad("queue", "create", r"beta\orders", api=beta.api).code == 0
    assert r"would change beta\orders: " in definitions(beta, "import", file, "--dry-run").text
    done = definitions(beta, "import", file)
    assert (done.code, done.lines[0]) == (0, r"changed beta\orders: label, journal"), done.errors
    (shown,) = postroad("queue", "show", r"beta\orders", "--json", api=beta.api).objects
    assert (shown["label"], shown["journal"]) == ("public", True)
    assert definitions(beta, "import", file).lines == ["3 queues as in the file already"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("multicast_address = '234.1.1.1:8001'", "multicast_address: multicast is off on alpha; set enabled = true"),
        (
            "multicast_address = '234.1.1.1:8001'\ntransactional = true",
            "multicast_address: a transactional queue cannot",
        ),
        ("base_priority = 5", "base_priority: must be 0"),
    ],
)
def test_what_the_manager_would_refuse_is_refused_before_any_change(
    unchanged: ServerProcess, tmp_path: Path, settings: str, words: str
) -> None:
    server, file = unchanged, tmp_path / "definitions.toml"
    file.write_text(f"[[queue]]\npath = 'private$\\a'\n[[queue]]\npath = 'private$\\b'\n{settings}\n")
    before = listed(server)
    for more in ([], ["--dry-run"]):
        refused = definitions(server, "import", str(file), *more)
        assert (refused.code, refused.text, refused.last_error) == (1, "", "postroad: nothing was changed")
        assert rf"private$\b: {words}" in refused.errors
        assert listed(server) == before


def test_a_queue_of_the_manager_itself_is_not_created_again(unchanged: ServerProcess, tmp_path: Path) -> None:
    server, file = unchanged, tmp_path / "definitions.toml"
    (own,) = postroad("queue", "show", r"private$\admin_queue$", "--json", api=server.api).objects
    file.write_text(
        f"[[queue]]\npath = 'private$\\a'\n[[queue]]\npath = 'private$\\admin_queue$'\nlabel = {own['label']!r}\n"
    )
    done = definitions(server, "import", str(file), "--dry-run")
    assert (done.code, done.lines[0]) == (0, r"would create private$\a")
    assert r"would create private$\admin_queue$" not in done.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[queue]]\npath = 'private$\\a'\nquota_kb = -1\n", "queue[1].quota_kb"),
        ("[[queue]]\npath = 'private$\\a'\nacl = 'nonsense'\n", "queue[1].acl"),
        ("[[queue]]\npath = 'private$\\a'\n[[queue]]\npath = 'private$\\A'\n", "queue[2].path: must be unique"),
        ("[manager]\nname = 'alpha'\n", "manager"),
        ("not toml", "line 1"),
    ],
)
def test_a_file_with_a_fault_is_named_before_a_manager_is_called(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "definitions.toml"
    file.write_text(text)
    done = postroad("definitions", "import", str(file), api="http://127.0.0.1:9")
    assert (done.code, words in done.last_error) == (2, True), done.errors


def test_an_export_replaces_no_file_by_accident(unchanged: ServerProcess, tmp_path: Path) -> None:
    server, file = unchanged, tmp_path / "definitions.toml"
    file.write_text("mine")
    refused = definitions(server, "export", str(file))
    assert (refused.code, "exists already; --force writes over it" in refused.last_error) == (2, True)
    assert file.read_text() == "mine"
    assert definitions(server, "export", "-").text.startswith("# Definitions of the queue manager alpha")
