"""A sink that answers every request at once with a canned response: what the replay benchmark sends to."""

from __future__ import annotations

import select
import socket
import sys

from barnabas.decoder import encode_response
from barnabas.decoder.schema import facts

OFFERS = [{"api_key": key, "min_version": 0, "max_version": 15} for key in (0, 3, 12, 18)]


def answer(key: int, version: int, port: int) -> bytes:
    """The response behind its correlation id."""
    fields: dict[str, object] = {}
    if key == 18:
        fields = {"api_keys": OFFERS}
    elif key == 3:
        fields = {"brokers": [{"node_id": 1, "host": "127.0.0.1", "port": port}], "topics": []}
    elif key == 0:
        rows = [{"index": 0, "error_code": 0, "base_offset": 0}]
        fields = {"responses": [{"name": "bench", "partition_responses": rows}]}
    return encode_response(key, version, fields)[4:]


def main() -> None:
    server = socket.create_server(("127.0.0.1", 0), backlog=512)
    port = server.getsockname()[1]
    print(port, flush=True)
    poll = select.epoll()
    poll.register(server.fileno(), select.EPOLLIN)
    poll.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)
    links: dict[int, tuple[socket.socket, bytearray]] = {}
    canned: dict[bytes, bytes] = {}
    while True:
        for fd, _ in poll.poll():
            if fd == sys.stdin.fileno():
                return
            if fd == server.fileno():
                sock, _ = server.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                links[sock.fileno()] = sock, bytearray()
                poll.register(sock.fileno(), select.EPOLLIN)
                continue
            sock, buffer = links[fd]
            data = sock.recv(1 << 18)
            if not data:
                poll.unregister(fd)
                del links[fd]
                sock.close()
                continue
            buffer += data
            at, out = 0, []
            while len(buffer) - at >= 4:
                end = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
                if len(buffer) < end:
                    break
                kind = bytes(buffer[at + 4 : at + 8])
                body = canned.get(kind)
                if body is None:
                    key, version = int.from_bytes(kind[:2], "big"), int.from_bytes(kind[2:], "big")
                    assert facts.api_name(key)
                    body = canned[kind] = answer(key, version, port)
                out.append((4 + len(body)).to_bytes(4, "big") + buffer[at + 8 : at + 12] + body)
                at = end
            del buffer[:at]
            if out:
                sock.sendall(b"".join(out))


if __name__ == "__main__":
    main()
