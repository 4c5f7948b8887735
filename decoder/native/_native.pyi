"""The optional accelerator of the decoder (decoder/native): what decode.py, project.py and records/ do, in C."""

from collections.abc import Callable
from typing import Any

class Bad(Exception): ...

class Reader:
    def __new__(cls, description: tuple[Any, ...], sinks: int = -1, /) -> Reader: ...
    def __call__(self, data: bytes, position: int = 0, /) -> tuple[tuple[Any, ...], int]: ...

def scan(
    data: bytes,
    at: int,
    end: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None,
    base_sequence: int,
    record: type,
    read_headers: Callable[[bytes, int, int], tuple[Any, int]],
    /,
) -> tuple[list[Any], int]: ...

def index(data: bytes, at: int, end: int, count: int, /) -> tuple[bytes, int]: ...
