"""``python -m barnabas.proxy.control FD``: the control server's process, as the supervisor starts it."""

from .server import main

main()
