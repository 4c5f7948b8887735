"""Schemas from a schema registry over HTTP: the `SchemaSource` for the decoder, which has no sockets.

Speaks the REST interface of Confluent's registry (``/schemas/ids/N``; Redpanda, Karapace and Apicurio have it too). The ids
come from recorded traffic, so everything is bounded: time, size, count and destination. Answers are cached, a registry that is
down is left alone for a while, and credentials appear in no text.
"""

from __future__ import annotations

import base64
import binascii
import json
import socket
import threading
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from ...decoder.values import Schema, SchemaError, json_schema
from ...decoder.values.avro import avro_schema
from ...decoder.values.protobuf import file_descriptors

MOST_BYTES = 4 << 20  # of one answer; a registry itself takes 1 MiB by default
MOST_IDS = 10_000  # asked in the life of a `Registry`
MOST_REFERENCES = 100  # schemas that one schema may need
PAUSE = 30.0  # seconds in which a registry that could not be reached is not asked again
_REDIRECTS = 3


class Registry:
    """A schema registry at `url`, e.g. ``http://localhost:8081``.

    `auth`: (user, password), or a bearer token; a user and password in the URL do too. `timeout`: seconds that one
    question may take in all. Safe to use from several threads. SchemaError for a URL that is none.
    """

    def __init__(self, url: str, auth: tuple[str, str] | str | None = None, timeout: float = 5.0):
        try:
            parts = urlsplit(url)
            port, host = parts.port, parts.hostname
        except ValueError:
            raise SchemaError(
                "the registry's URL is not valid; give http://HOST:PORT or https://HOST:PORT"
            ) from None
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise SchemaError(f"{_bare(url)} is not a registry URL: give http://HOST:PORT or https://HOST:PORT")
        if auth is None and parts.username is not None:
            auth = (unquote(parts.username), unquote(parts.password or ""))
        self._secure = parts.scheme == "https"
        self._host, self._port = host, port or (443 if self._secure else 80)
        self._path = parts.path.rstrip("/")
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json", **_authorization(auth)}
        self._timeout = timeout
        self._known: dict[int, Schema | SchemaError] = {}
        self._down: tuple[float, str] | None = None
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        """The registry's address, without credentials."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._secure else 'http'}://{host}:{self._port}{self._path}"

    def __repr__(self) -> str:
        return f"<Registry {self.place}>"

    def for_topic(self, topic: str | None, is_key: bool) -> Schema | None:
        """None: a value that names no schema was not written with a registry's serializer."""
        return None

    def schema(self, schema_id: int) -> Schema | None:
        """The schema with this id. SchemaError when it cannot be had; the same id is then not asked again,
        unless the registry could not be reached."""
        with self._lock:
            known = self._known.get(schema_id)
            if known is None:
                known = self._ask(schema_id)
        if isinstance(known, SchemaError):
            raise SchemaError(str(known))
        return known

    def _ask(self, schema_id: int) -> Schema | SchemaError:
        if len(self._known) >= MOST_IDS:
            return SchemaError(f"schema {schema_id}: {MOST_IDS} ids have been requested, which is the limit")
        if self._down is not None and time.monotonic() < self._down[0]:
            return SchemaError(f"schema {schema_id}: {self._down[1]}")
        found: Schema | SchemaError
        try:
            found = self._read(schema_id)
        except _Unreachable as error:
            self._down = (time.monotonic() + PAUSE, str(error))
            return SchemaError(f"schema {schema_id}: {error}")
        except SchemaError as error:
            found = error
        self._down = None
        self._known[schema_id] = found
        return found

    def _read(self, schema_id: int) -> Schema:
        name = f"schema {schema_id}"
        answer = self._get(f"/schemas/ids/{schema_id}", name)
        kind = answer.get("schemaType") or "AVRO"
        if kind == "JSON":
            return json_schema(name)
        if kind == "AVRO":
            needed = self._references(answer, name, "")
            return avro_schema(_text(answer, name), name, needed.values())
        if kind == "PROTOBUF":
            # The source text could not be compiled here; the registry gives the compiled form, too.
            answer = self._get(f"/schemas/ids/{schema_id}?format=serialized", name)
            needed = self._references(answer, name, "?format=serialized")
            # In a compiled file the name is made up: imports go by the names that the references have.
            files = [_named_file(_compiled(text, name), file) for file, text in needed.items()]
            return file_descriptors([*files, _compiled(_text(answer, name), name)], name)
        raise SchemaError(f"{name} has the unknown type {kind!r}")

    def _references(self, answer: Mapping[str, Any], name: str, query: str) -> dict[str, str]:
        """The schemas that one needs, by the name it calls them, each behind those that it needs itself."""
        found: dict[str, str] = {}
        self._collect(answer, name, query, found, set())
        return found

    def _collect(
        self, answer: Mapping[str, Any], name: str, query: str, found: dict[str, str], begun: set[str]
    ) -> None:
        references = answer.get("references") or []
        if not isinstance(references, list):
            raise SchemaError(f"{name}: {self.place} returned references in an unknown form")
        for reference in references:
            try:
                called, subject, version = reference["name"], reference["subject"], int(reference["version"])
            except (TypeError, KeyError, ValueError):
                raise SchemaError(f"{name}: {self.place} returned references in an unknown form") from None
            if called in begun:
                continue
            if len(begun) >= MOST_REFERENCES:
                raise SchemaError(f"{name} needs more than {MOST_REFERENCES} other schemas")
            begun.add(called)
            other = self._get(f"/subjects/{quote(str(subject), safe='')}/versions/{version}{query}", name)
            self._collect(other, name, query, found, begun)
            found[str(called)] = _text(other, name)

    # --- HTTP ----------------------------------------------------------------------------------------------

    def _get(self, path: str, name: str) -> Mapping[str, Any]:
        status, body = self._fetch(self._path + path)
        if status != 200:
            raise SchemaError(f"{name}: {self.place} {_refusal(status, body)}")
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise SchemaError(f"{name}: {self.place} did not answer with JSON; is it a schema registry?")
        return answer

    def _fetch(self, target: str) -> tuple[int, bytes]:
        for _ in range(_REDIRECTS + 1):
            connection = (HTTPSConnection if self._secure else HTTPConnection)(
                self._host, self._port, timeout=self._timeout
            )
            try:
                status, body, location = self._exchange(connection, target)
            except SchemaError:
                raise
            except (OSError, HTTPException, ValueError) as error:
                why = (
                    "did not answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
                )
                raise _Unreachable(f"{self.place} cannot be reached: {why}") from None
            finally:
                connection.close()
            if status not in (301, 302, 303, 307, 308):
                return status, body
            target = self._redirected(location)
        raise SchemaError(f"{self.place} redirects endlessly")

    def _exchange(self, connection: HTTPConnection, target: str) -> tuple[int, bytes, str]:
        """(status, body, location). The socket's own timeout is for each read, so a server that sends drop by drop
        is cut off by a timer."""
        connection.connect()
        late = threading.Event()
        timer = threading.Timer(self._timeout, _cut_off, (connection.sock, late))
        timer.daemon = True
        timer.start()
        try:
            connection.request("GET", target, headers=self._headers)
            response = connection.getresponse()
            body = response.read(MOST_BYTES + 1)
            location = response.getheader("Location") or ""
        except (OSError, HTTPException):
            if late.is_set():
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()
        if late.is_set():
            raise TimeoutError
        if len(body) > MOST_BYTES:
            raise SchemaError(f"{self.place} answers with more than {MOST_BYTES} bytes")
        if response.length:
            raise HTTPException("the answer was cut off")
        return response.status, body, location

    def _redirected(self, location: str) -> str:
        """The new target, which must be at the same place: credentials go nowhere else."""
        try:
            parts = urlsplit(location)
            port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        except ValueError:
            raise SchemaError(f"{self.place} redirects to nowhere") from None
        here = ("https" if self._secure else "http", self._host, self._port)
        if parts.netloc and (parts.scheme, parts.hostname, port) != here:
            raise SchemaError(f"{self.place} redirects to another host, which is not followed; give that host's URL")
        if not parts.path.startswith("/"):
            raise SchemaError(f"{self.place} redirects to nowhere")
        return parts.path + (f"?{parts.query}" if parts.query else "")


class _Unreachable(SchemaError):
    """The registry gave no answer; a later request may succeed."""


def _cut_off(sock: socket.socket, late: threading.Event) -> None:
    late.set()
    try:
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # wakes the reader, below TLS too
    except OSError:
        pass


def _authorization(auth: tuple[str, str] | str | None) -> dict[str, str]:
    if auth is None:
        return {}
    if isinstance(auth, str):
        value = f"Bearer {auth}"
    else:
        value = "Basic " + base64.b64encode(":".join(auth).encode()).decode()
    if not value.isascii() or not value.isprintable():
        raise SchemaError("the registry's credentials contain characters that an HTTP header cannot hold")
    return {"Authorization": value}


def _bare(url: str) -> str:
    """A URL without what may stand before an @."""
    scheme, found, rest = url.rpartition("://")
    return f"{scheme}{found}{rest.rpartition('@')[2]}"


def _refusal(status: int, body: bytes) -> str:
    if status in (401, 403):
        return f"refuses (HTTP {status}): credentials are needed, or these do not allow reading schemas"
    try:
        answer = json.loads(body)
        text = str(answer["message"])[:200]
    except (ValueError, KeyError, TypeError, RecursionError):
        text = ""
    return f"answers HTTP {status}" + (f", {text!r}" if text else "")


def _text(answer: Mapping[str, Any], name: str) -> str:
    text = answer.get("schema")
    if not isinstance(text, str):
        raise SchemaError(f"{name}: the registry's answer contains no schema")
    return text


def _compiled(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SchemaError(
            f"{name}: the registry gives Protobuf as source text only; make a descriptor set with protoc and give it as a file"
        ) from None


def _named_file(compiled: bytes, name: str) -> bytes:
    """A compiled .proto under another name: the last of a field given twice counts, and the name is field 1."""
    encoded = name.encode()
    size = bytearray()
    length = len(encoded)
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return compiled + b"\x0a" + bytes(size) + encoded
