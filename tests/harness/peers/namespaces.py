"""Network namespaces for tests: own interfaces, addresses and firewall, gone with the test. Linux, root.

client (10.77.1.2, fd77:1::2) ── router (10.77.1.1, 10.77.2.1, ...) ── broker (10.77.2.2, fd77:2::2)
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from harness.run.session import namespace_prefix
from harness.waiting import PATIENCE

T = TypeVar("T")
_NEW_NET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@cache
def missing() -> str:
    """Why there can be no namespaces or rules here; empty if there can."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    for program, package in (("ip", "iproute2"), ("nft", "nftables")):
        if shutil.which(program) is None:
            return f"{program} is not installed (apt-get install {package})"
    probe = f"{namespace_prefix()}probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"this kernel gives no network namespace: {made.stderr.strip()}"
    try:
        listed = run_in(probe, "nft", "list", "tables", check=False)
        return f"this kernel has no nf_tables: {listed.stderr.strip()}" if listed.returncode else ""
    finally:
        subprocess.run(["ip", "netns", "del", probe], check=True)


def run_in(name: str, *command: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a namespace and wait for it."""
    done = subprocess.run(
        ["ip", "netns", "exec", name, *command], capture_output=True, text=True, check=False, timeout=PATIENCE, **options
    )
    if check and done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done


def inside(name: str, work: Callable[[], T]) -> T:
    """Call `work` on a thread of its own in a namespace: its sockets and child processes stay there."""
    found: list[T] = []
    errors: list[BaseException] = []

    def enter() -> None:
        try:
            with open(f"/run/netns/{name}") as file:
                if _libc.setns(file.fileno(), _NEW_NET):
                    raise OSError(ctypes.get_errno(), f"cannot enter the namespace {name}")
            found.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return found[0]


class Namespaces:
    """The three of them, or one alone (`one`), with names of their own."""

    _made = 0

    def __init__(self) -> None:
        self._names: list[str] = []

    def add(self, role: str) -> str:
        Namespaces._made += 1
        name = f"{namespace_prefix()}{os.getpid()}-{Namespaces._made}-{role}"
        subprocess.run(["ip", "netns", "add", name], check=True)
        self._names.append(name)
        _ip(name, ["link set lo up"])
        return name

    def one(self) -> str:
        """A namespace with nothing but its loopback."""
        return self.add("host")

    def three(self) -> tuple[str, str, str]:
        """Client, router, broker; the router forwards."""
        client, router, broker = self.add("client"), self.add("router"), self.add("broker")
        commands: dict[str, list[str]] = {client: [], router: [], broker: []}
        for number, (outer, side) in enumerate(((client, "c"), (broker, "b")), 1):
            commands[router].append(f"link add to-{side} type veth peer name eth netns {outer}")
            for name, link, last in ((router, f"to-{side}", 1), (outer, "eth", 2)):
                commands[name] += [
                    f"address add 10.77.{number}.{last}/24 dev {link}",
                    f"address add fd77:{number}::{last}/64 dev {link} nodad",
                    f"link set {link} up",
                ]
            commands[outer] += [
                f"route add default via 10.77.{number}.1",
                f"route add ::/0 via fd77:{number}::1",
            ]
        for name in (router, client, broker):  # the router makes the others' links
            _ip(name, commands[name])
        inside(router, _forward)
        return client, router, broker

    def close(self) -> None:
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def _ip(name: str, commands: list[str]) -> None:
    """Run commands of ``ip`` in a namespace with one process."""
    done = subprocess.run(
        ["ip", "-n", name, "-batch", "-"],
        input="\n".join(commands), capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(f"ip in {name}: {done.stdout}{done.stderr}")


def _forward() -> None:
    for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        with open(f"/proc/sys/net/{path}", "w") as file:  # of the namespace of the thread that opens it
            file.write("1")


def connect(name: str, address: tuple[str, int]) -> socket.socket:
    """A connection from a namespace."""
    return inside(name, lambda: socket.create_connection(address, timeout=PATIENCE))
