"""URLs: hosts where there are none, and passwords, which are printed nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import viewkeeper as vk
from viewkeeper.cli.main import app
from viewkeeper.cli.options import Form
from viewkeeper.cli.shell import run_shell
from viewkeeper.cli.sql import SqlRunner

SECRETS = (
    "hbase://me:s3cret@host:9090/shop",
    "hbase://me:s3/cret@host:9090/shop",
    "hbase:me:s3cret@host:9090/shop",
    "hbase://me:s3cret@host:9090/shop?timeout=x",
    "hbase://host:9090/shop?rootdir=s3://key:s3cret@bucket/hbase",
    "hbase://host:9090/shop?rootdir=s3%3A%2F%2Fkey%3As3cret%40bucket/hbase",
    "hbsae://me:s3cret@host:9090/shop",
    "me:s3cret@host:9090/shop",
    "s3cret@host:9090/shop",
    "//me:s3cret@host:9090/shop",
)


@pytest.mark.parametrize("url", SECRETS)
def test_a_password_is_refused_and_not_repeated(url: str, tmp_path: Path) -> None:
    for use in (lambda: vk.connect(url), lambda: vk.restore(tmp_path, url), lambda: vk.connect(url, read_only=True)):
        with pytest.raises(vk.InputError) as told:
            use()
        assert "cret" not in f"{told.value} {told.value!r} {told.value.args} {told.value.__cause__!r}"


@pytest.mark.parametrize("command", [["status"], ["run"], ["check"], ["sql"], ["explain"]], ids=lambda one: one[0])
@pytest.mark.parametrize("url", SECRETS[:1] + SECRETS[4:5] + SECRETS[7:8])
def test_no_command_repeats_it_either(command: list[str], url: str) -> None:
    ended = CliRunner().invoke(app, [*command, url], input="SHOW TABLES;\n")
    assert ended.exit_code and "cret" not in ended.output and "cret" not in repr(ended.exception)


def test_the_prompt_does_not_repeat_it(capsys: pytest.CaptureFixture[str]) -> None:
    def end(prompt: str) -> str:
        raise EOFError

    run_shell(SqlRunner(SECRETS[0], Form.TEXT), SECRETS[0], end)
    assert "ViewKeeper on …@host:9090/shop." in capsys.readouterr().out


@pytest.mark.parametrize("place", ["//host/x", "//localhost/x", "//x", "//user:s3cret@host/x"])
def test_an_embedded_store_has_no_host(place: str, tmp_path: Path) -> None:
    for use in (vk.connect, lambda url: vk.restore(tmp_path, url)):
        with pytest.raises(vk.InputError, match="names a host, and an embedded store is a directory") as told:
            use(f"embedded:{place}")
        assert "cret" not in str(told.value)


def test_three_slashes_are_a_path_and_a_name_may_have_an_at(tmp_path: Path) -> None:
    with vk.connect(f"embedded://{tmp_path}/me@here?sync=off") as db:
        assert db.url.startswith(f"embedded:{tmp_path}/me@here")
