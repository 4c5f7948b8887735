"""Plugins: plain classes with hooks that see, change, answer and hold messages. docs/plugins.md is for their authors.

`sources` says where a plugin comes from, `loader` makes it, `plugin` knows its hooks and its interest, `chain` runs
the hooks of several for one message, and `context` is what a hook can do. No sockets and no processes are here: who
runs plugins, where, and for how long, is decided in `proxy.relay.interception.plugin_host`.
"""

from .context import Ask, Context, PeerView
from .loader import load
from .plugin import Plugin
from .sources import PluginError, PluginSource, installed, parse

__all__ = ["Ask", "Context", "PeerView", "Plugin", "PluginError", "PluginSource", "installed", "load", "parse"]
