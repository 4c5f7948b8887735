"""Runs ``barnabas`` as often as asked, each time in a process of its own that needs no imports any more.

A line on standard input is a JSON list: a number, words, working directory, the files for standard input, output and error. The
answer is a line with the number and the process; when it has ended, one with the number, the process and its exit status.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from importlib import import_module
from typing import Any

from barnabas.ui import cli

READY = cli.app, [import_module(name) for name in sys.argv[1:]]  # every command, and what commands import while they run


def _run(words: list[str], directory: str, given: str, out: str, err: str) -> None:
    os.setsid()
    os.chdir(directory)
    os.dup2(os.open(given, os.O_RDONLY), 0)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), number)
    # Those of the parent may be locked by another of its threads.
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(*how, closefd=False) for how in ((0,), (1, "w"), (2, "w", 1)))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["barnabas", *words]
    status: Any = 1
    try:
        cli.main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except KeyboardInterrupt:
        status = 130
    except BaseException:
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lock = threading.Lock()

    def answer(*what: int) -> None:
        with lock:
            print(json.dumps(what), flush=True)

    def wait(number: int, process: int) -> None:
        answer(number, process, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))

    for line in sys.stdin:
        number, *task = json.loads(line)
        process = os.fork()
        if not process:
            _run(*task)
        answer(number, process)
        threading.Thread(target=wait, args=(number, process), daemon=True).start()


if __name__ == "__main__":
    main()
