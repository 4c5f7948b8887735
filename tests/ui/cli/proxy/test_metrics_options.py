"""The options of ``barnabas proxy`` for feed and metrics, and how a feed's token gets to ``barnabas feed``."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from barnabas.proxy.metrics import settings as metering
from barnabas.proxy.metrics.settings import MeterConfig, Metering, leave_token, left_token
from barnabas.ui.cli.common.failure import Failure
from barnabas.ui.cli.proxy.options import TOKEN_VARIABLE, MeterOptions, read_token
from barnabas.ui.cli.proxy.running import feed_advice


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    return tmp_path / "barnabas"


def test_nothing_asked_for_is_no_meter() -> None:
    assert MeterOptions().config() is None


def test_what_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    given = MeterOptions(
        "127.0.0.1:19095", tmp_path / "token", "[::1]:9400", ["topic"], "stats", "a.b", statsd_tags=True
    )
    assert given.config() == MeterConfig(
        ("127.0.0.1", 19095), "secret", ("::1", 9400), ("topic",), ("stats", 8125), "a.b", True
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"metrics": "h:1", "metrics_by": ["group"]}, "give client or topic"),
        ({"metrics_by": ["topic"]}, "add --metrics HOST:PORT"),
        ({"statsd_tags": True}, "add --statsd HOST:PORT"),
        ({"statsd_prefix": "x", "metrics": "h:1"}, "add --statsd HOST:PORT"),
        ({"feed_token_file": Path("x")}, "add --feed HOST:PORT"),
        ({"feed": "h:1", "feed_token_file": Path("/nowhere/token")}, "cannot be read: No such file"),
        ({"feed": "nonsense"}, "--feed 'nonsense' is no HOST:PORT"),
    ],
)
def test_what_makes_no_sense_is_told(given: dict[str, Any], text: str) -> None:
    with pytest.raises(Failure, match=text):
        MeterOptions(**given).config()


def test_a_token_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert read_token(None) is None
    monkeypatch.setenv(TOKEN_VARIABLE, "from outside")
    config = MeterOptions("127.0.0.1:0").config()
    assert config is not None and config.feed_token == "from outside"
    (tmp_path / "empty").write_text(" \n")
    with pytest.raises(Failure, match="holds no token"):
        read_token(tmp_path / "empty")


def test_a_made_token_is_left_for_this_user_only(runtime: Path) -> None:
    config = MeterConfig(feed=("127.0.0.1", 0))
    meter = Metering(config)
    assert meter.feed is not None
    said = feed_advice(meter, config)
    meter.close()
    path = runtime / f"feed-{meter.feed[1]}.token"
    assert said is not None and str(path) in said
    assert meter.feed_token not in said
    assert left_token(meter.feed[1]) == meter.feed_token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    assert left_token(1) is None


def test_a_given_token_is_not_left_anywhere(runtime: Path) -> None:
    config = MeterConfig(feed=("127.0.0.1", 0), feed_token="mine")
    meter = Metering(config)
    said = feed_advice(meter, config)
    meter.close()
    assert said is not None and "mine" not in said
    assert not runtime.exists()
    assert feed_advice(None, None) is None


def test_a_folder_that_others_can_write_is_not_trusted(runtime: Path) -> None:
    runtime.mkdir()
    os.chmod(runtime, 0o777)
    assert leave_token(5, "x") is None
    (runtime / "feed-5.token").write_text("planted")
    assert left_token(5) is None
    os.chmod(runtime, 0o700)
    assert left_token(5) == "planted"
    assert leave_token(5, "ours") == metering.token_file(5)
    assert left_token(5) == "ours"


def test_a_link_in_place_of_the_folder_is_not_followed(runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    runtime.symlink_to(tmp_path / "elsewhere")
    assert leave_token(5, "x") is None
    assert list((tmp_path / "elsewhere").iterdir()) == []
