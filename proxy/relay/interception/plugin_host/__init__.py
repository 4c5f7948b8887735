"""Running plugins: in a process of their own per relay, so that nothing they do can stop the relay.

    relay ── hook calls, verdicts ──► host         runs the hooks; may loop, sleep, grow, crash
      └───── commands ──────────────► forkserver ──fork──► host

`plugin_interceptor` is the relay's side of a message that hooks want to see: it waits, within a budget, for the host's verdict.
`host_manager` starts hosts, replaces them when a file was saved, and counts faults. `forkserver` has everything imported already
and forks a host within milliseconds; no plugin's code runs in it. `running_hook` is a few bytes of shared memory in which the host
notes which hook is running, so that the one to blame is known whatever happened.
"""

from .config import PluginsConfig

__all__ = ["PluginsConfig"]
