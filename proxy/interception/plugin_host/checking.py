"""Whether plugins can be loaded, found out where it cannot hurt: in a host of their own that is ended afterwards."""

from __future__ import annotations

import select
import time
from typing import Any

from ....plugins.hooks.sources import PluginError
from .config import PluginsConfig
from .forkserver_client import ForkServerClient
from .host_manager import LOAD_SECONDS


def check(config: PluginsConfig) -> list[dict[str, Any]]:
    """Descriptions of the plugins (`Plugin.describe`); PluginError with file and line of what is wrong."""
    for source in config.sources:
        source.read()
    try:
        forkserver = ForkServerClient(config.settings())
    except OSError as error:
        raise PluginError(f"plugins cannot be loaded: {error.strerror or error}") from None
    host = None
    ended = False
    try:
        host = forkserver.start(True, [])
        poll = select.poll()
        poll.register(forkserver.control, select.POLLIN)
        poll.register(host.channel.fileno(), select.POLLIN)
        until = time.monotonic() + LOAD_SECONDS
        while (left := until - time.monotonic()) > 0:
            poll.poll(left * 1000)
            for message, _ in host.channel.receive():
                if message.get("say") == "ready":
                    plugins: list[dict[str, Any]] = message["plugins"]
                    return plugins
                if message.get("say") == "failed":
                    raise PluginError(message["text"])
            if host.channel.closed and not ended:
                ended = True
                poll.unregister(host.channel.fileno())
            told = forkserver.receive()
            for said in told if told is not None else [{"ended": 0, "how": "the process that starts it is gone"}]:
                if "failed" in said:
                    raise PluginError(said["text"])
                if "ended" in said:
                    raise PluginError(f"{_names(config)}: the process ended while it was loaded: {said['how']}")
        raise PluginError(
            f"{_names(config)}: not loaded within {LOAD_SECONDS:g} s: what is outside of its methods takes too long"
        )
    except OSError as error:
        raise PluginError(f"plugins cannot be loaded: {error.strerror or error}") from None
    finally:
        forkserver.close()
        if host is not None:
            host.running_hook.close()


def _names(config: PluginsConfig) -> str:
    return ", ".join(source.given for source in config.sources)
