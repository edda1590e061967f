"""Secrets in the configuration, in place or in files of their own. No error and no print shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroad.config import load_configuration
from postroad.errors import ConfigurationError

MANAGER = '[manager]\nname = "alpha"\n'
SECRET = "hunter2-hunter2"
USER = '[[user]]\nname = "ann"\n'


def written(directory: Path, text: str, **files: str) -> Path:
    for name, content in files.items():
        (directory / name).write_text(content, encoding="utf-8")
    file = directory / "alpha.toml"
    file.write_text(MANAGER + text, encoding="utf-8")
    return file


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "  \n"])
def test_secrets_stand_in_files_of_their_own(tmp_path: Path, end: str) -> None:
    text = f'[api]\ntoken_file = "token"\n{USER}password_file = "pw"\n'
    config = load_configuration(written(tmp_path, text, token=SECRET + end, pw=f"{SECRET} 2{end}"))
    assert (config.api.token, config.users[0].password) == (SECRET, f"{SECRET} 2")
    assert SECRET not in repr(config)


@pytest.mark.parametrize(
    ("text", "key", "fault"),
    [
        (
            f'[api]\ntoken = "{SECRET}"\ntoken_file = "good"\n',
            "api.token_file",
            "together with api.token",
        ),
        ('[api]\ntoken_file = "nowhere"\n', "api.token_file", "there is no file"),
        ('[api]\ntoken_file = "empty"\n', "api.token_file", "must hold one line"),
        ('[api]\ntoken_file = "lines"\n', "api.token_file", "must hold one line"),
        ('[api]\ntoken_file = "words"\n', "api.token_file", "without spaces"),
        ('[api]\ntoken_file = "bell"\n', "api.token_file", "must not contain control characters"),
        (f'[api]\ntoken = ["{SECRET}"]\n', "api.token", "must be text, got a value of another type"),
        (f'[api]\ntoken = "{SECRET}\\u0007"\n', "api.token", "must not contain control characters"),
        (f'[api]\ntoken = "{SECRET * 400}"\n', "api.token", "at most 4096 characters"),
        (
            f'{USER}password = "{SECRET}"\npassword_file = "good"\n',
            "user[1].password_file",
            "together with password",
        ),
        (f'{USER}password_file = "lines"\n', "user[1].password_file", "must hold one line"),
        (f'{USER}password = ""\n', "user[1].password", "must not be empty"),
        (f'{USER}password = "{SECRET}\\n"\n', "user[1].password", "must not contain control characters"),
        (f'{USER}password = {{ x = "{SECRET}" }}\n', "user[1].password", "must be text, got a value of another type"),
        (
            f'[srmp]\nproxy = "ftp://ann:{SECRET}@proxy"\n',
            "srmp.proxy",
            "orders, got 'ftp://...@proxy'",
        ),
        ('[api]\nclient_ca = "good"\n', "api.tls_certificate", "is missing: client_ca needs TLS"),
    ],
)
def test_what_is_refused_is_named_and_not_shown(tmp_path: Path, text: str, key: str, fault: str) -> None:
    files = {"good": SECRET, "empty": "\n", "lines": f"{SECRET}\n{SECRET}\n"}
    file = written(tmp_path, text, **files, words=f"{SECRET} x", bell=f"{SECRET}\x07")
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(file)
    assert caught.value.key == key
    assert fault in caught.value.fault
    assert SECRET not in str(caught.value)


def test_a_proxys_password_is_not_printed(tmp_path: Path) -> None:
    config = load_configuration(written(tmp_path, f'[srmp]\nproxy = "http://ann:{SECRET}@proxy:3128"\n'))
    assert SECRET in (config.srmp.proxy or "")
    assert SECRET not in repr(config)
