"""A small client of the control API, on the standard library alone.

    control = Control("http://127.0.0.1:8090", token)          # or Control("unix:/run/user/1000/barnabas.sock")
    control.add_rule({"name": "r", "match": "api == Produce", "do": {"error": "NOT_LEADER_OR_FOLLOWER"}})
    control.wait_for_hits("r", 3, timeout=10)
    for exchange in control.follow("api == Produce and err"):
        print(exchange["client"], exchange["error"])

One connection per call, so a `Control` may be used by several threads. Answers are what docs/control.md describes.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

from ...errors import BarnabasError

Json = dict[str, Any]


class ControlError(BarnabasError):
    """The API refused, or could not be reached. `status`: HTTP's, 0 without an answer; `details`: the body of its
    answer."""

    def __init__(self, status: int, text: str, details: Json | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.details = details or {}


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Control:
    """A proxy's control API at `url` ("http://HOST:PORT" or "unix:PATH"). `timeout`: seconds for an answer."""

    def __init__(self, url: str, token: str = "", timeout: float = 30.0) -> None:
        if not (token.isascii() and token.isprintable()):
            raise ControlError(0, "the token of the control API must be one line of ASCII; check the file or variable it comes from")
        self.url = url
        self._token = token
        self._timeout = timeout

    # -- seeing ----------------------------------------------------------------------------------------------

    def status(self) -> Json:
        """The state of the proxy."""
        found = self._call("GET", "/v1/status")
        if "listen" not in found:
            raise self._no_api(200)
        return found

    def brokers(self) -> list[Json]:
        return self._list("/v1/brokers", "brokers")

    def plugins(self) -> list[Json]:
        return self._list("/v1/plugins", "plugins")

    def connections(self) -> list[Json]:
        return self._list("/v1/connections", "connections")

    def exchanges(
        self, filter: str = "", *, since: int | None = None, limit: int = 100, wait: float = 0.0, bodies: bool = False, zone: str = ""
    ) -> list[Json]:
        """Exchanges, oldest first: the newest ones, or those after the number `since`, waiting up to `wait` seconds for
        one.

        `zone`: of the filter's times without an offset, such as "Europe/Berlin"; else UTC.
        """
        page = self.exchange_page(filter, since=since, limit=limit, wait=wait, bodies=bodies, zone=zone)
        found: list[Json] = page["exchanges"]
        return found

    def exchange_page(
        self, filter: str = "", *, since: int | None = None, limit: int = 100, wait: float = 0.0, bodies: bool = False, zone: str = ""
    ) -> Json:
        """Like `exchanges`, with `next` (the next cursor), `lost`, `more` and, unless there are more, `pending`: requests that match and
        wait for their responses."""
        query = {"filter": filter, "zone": zone, "since": since, "limit": limit, "wait": wait, "bodies": int(bodies)}
        return self._call("GET", "/v1/exchanges", query, timeout=self._timeout + wait)

    def exchange(self, number: int) -> Json:
        """One exchange in full."""
        return self._call("GET", f"/v1/exchanges/{number}")

    def pending(self) -> list[Json]:
        """Requests that wait for their responses."""
        return self._list("/v1/exchanges/pending", "exchanges")

    def findings(self) -> list[Json]:
        return self._list("/v1/findings", "findings")

    def events(self, *, since: int = 0, limit: int = 100, wait: float = 0.0, kinds: Sequence[str] = ()) -> Json:
        """`events`, `next`, `lost`."""
        query = {"since": since, "limit": limit, "wait": wait, "kinds": ",".join(kinds)}
        return self._call("GET", "/v1/events", query, timeout=self._timeout + wait)

    def metrics(self) -> str:
        """Prometheus' text."""
        status, body = self._request("GET", "/metrics", None, self._timeout)
        return body.decode() if status == 200 else str(self._error(status, body))

    def follow(
        self, filter: str = "", *, since: int | None = None, bodies: bool = False, missed: list[int] | None = None, zone: str = ""
    ) -> Iterator[Json]:
        """Exchanges as they finish, forever; reconnects when the connection breaks, and repeats none.

        Counts of exchanges that were gone before they could be read are added to `missed`. `zone`: as in `exchanges`.
        """
        query = {"filter": filter, "zone": zone, "bodies": int(bodies)}
        for kind, data in self._stream("/v1/exchanges/stream", query, since):
            if kind == "exchange":
                yield data
            elif kind == "lost" and missed is not None:
                missed.append(data["exchanges"])

    def follow_events(self, *, since: int | None = None, kinds: Sequence[str] = ()) -> Iterator[Json]:
        """The proxy's events as they happen, forever."""
        for kind, data in self._stream("/v1/events/stream", {"kinds": ",".join(kinds)}, since):
            if kind != "lost":
                yield data

    # -- steering --------------------------------------------------------------------------------------------

    def close_connection(self, connection: int, how: str = "fin") -> Json:
        return self._call("DELETE", f"/v1/connections/{connection}", {"how": how})

    def keep_down(self, brokers: Sequence[tuple[str, int]]) -> None:
        """Keep exactly these brokers down from now on, by their addresses in `brokers`; with none all are back."""
        self._call("PUT", "/v1/brokers/down", body={"brokers": [list(each) for each in brokers]})

    def rules(self) -> list[Json]:
        return self._list("/v1/rules", "rules")

    def add_rule(self, rule: Mapping[str, Any] | str) -> list[Json]:
        """Add a rule (or rules, as the text of a rules file); returns the added ones."""
        return list(self._call("POST", "/v1/rules", body=rule)["rules"])

    def replace_rules(self, rules: Sequence[Mapping[str, Any]] | str) -> list[Json]:
        """Replace all rules."""
        body = rules if isinstance(rules, str) else {"rules": list(rules)}
        return list(self._call("PUT", "/v1/rules", body=body)["rules"])

    def put_rule(self, name: str, rule: Mapping[str, Any] | str) -> Json:
        return self._call("PUT", f"/v1/rules/{quote(name, safe='')}", body=rule)

    def remove_rule(self, name: str) -> None:
        self._call("DELETE", f"/v1/rules/{quote(name, safe='')}")

    def enable_rule(self, name: str, enabled: bool = True) -> Json:
        return self._call("POST", f"/v1/rules/{quote(name, safe='')}/{'enable' if enabled else 'disable'}")

    def hits(self, name: str, since: int = 0, limit: int = 100) -> list[Json]:
        """The newest hits of a rule, oldest first; `exchange` is what `exchange()` takes, None until it is finished."""
        query = {"since": since, "limit": limit}
        return list(self._call("GET", f"/v1/rules/{quote(name, safe='')}/hits", query)["hits"])

    def wait_for_hits(self, name: str, hits: int = 1, timeout: float = 30.0) -> int:
        """Wait until a rule has so many hits in all; returns how many it has. Raises TimeoutError."""
        query = {"hits": hits, "timeout": timeout}
        found = self._call("POST", f"/v1/rules/{quote(name, safe='')}/wait", query, timeout=self._timeout + timeout)
        if not found["reached"]:
            raise TimeoutError(f"rule {name!r} has {found['hits']} of {hits} hits after {timeout:g} s")
        return int(found["hits"])

    def recording(self) -> Json:
        return self._call("GET", "/v1/recording")

    def start_recording(self, directory: str, **kept: float) -> Json:
        """`kept`: rotate_bytes, rotate_seconds, keep_bytes, keep_seconds; as the proxy was started, if they are not
        given."""
        return self._call("POST", "/v1/recording/start", body={"directory": str(directory), **kept})

    def stop_recording(self) -> Json:
        return self._call("POST", "/v1/recording/stop")

    def rotate_recording(self) -> Json:
        return self._call("POST", "/v1/recording/rotate")

    def write_flight(self, label: str = "", reason: str = "") -> Json:
        """Write out what the flight recorder holds; `flight` is the directory."""
        given = {name: text for name, text in (("label", label), ("reason", reason)) if text}
        return self._call("POST", "/v1/recording/flight", body=given)

    def intercepts(self) -> list[Json]:
        return self._list("/v1/intercepts", "intercepts")

    def intercept(self, filter: str, **options: Any) -> Json:
        """Hold frames: request, response (bools), timeout (s), most, times, lease (s); zone of the filter's times."""
        return self._call("POST", "/v1/intercepts", body={"filter": filter, **options})

    def renew_intercept(self, number: int) -> None:
        """Renew the lease of an intercept; ControlError (404) when it has run out."""
        self._call("POST", f"/v1/intercepts/{number}/renew")

    def remove_intercept(self, number: int) -> None:
        self._call("DELETE", f"/v1/intercepts/{number}")

    def held(self, wait: float = 0.0) -> list[Json]:
        """Frames that wait for a decision."""
        query = {"wait": wait, "bodies": 1}
        return list(self._call("GET", "/v1/held", query, timeout=self._timeout + wait)["held"])

    def held_frame(self, held: int) -> Json:
        """A waiting frame, with its bytes (`frame`, in hexadecimal) and the ranges where records are covered (`hidden`)."""
        return self._call("GET", f"/v1/held/{held}")

    def resume(self, held: int, edits: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None) -> Json:
        """Release a frame: unchanged, with fields changed by their paths, or with top-level fields replaced."""
        given = {name: dict(part) for name, part in (("edits", edits), ("body", body)) if part}
        return self._call("POST", f"/v1/held/{held}/resume", body=given)

    def drop(self, held: int, *, error: str = "", close: str = "", silent: bool = False) -> Json:
        """Answer a frame with an error, close its connection ("fin" or "rst"), or drop it silently."""
        given = {name: value for name, value in (("error", error), ("close", close), ("silent", silent)) if value}
        return self._call("POST", f"/v1/held/{held}/drop", body=given)

    def extend(self, held: int, timeout: float) -> Json:
        """Hold a frame for so many seconds from now on."""
        return self._call("POST", f"/v1/held/{held}/extend", body={"timeout": timeout})

    def shutdown(self) -> None:
        """Stop the proxy; responses in flight still arrive."""
        self._call("POST", "/v1/shutdown")

    # -- HTTP ------------------------------------------------------------------------------------------------

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if self.url.startswith("unix:"):
            return _UnixConnection(self.url.removeprefix("unix:"), timeout)
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or not port or parts.scheme != "http":
            raise ControlError(0, f"{self.url!r} is not the address of a control API: give http://HOST:PORT or unix:PATH")
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _request(self, method: str, path: str, body: bytes | None, timeout: float) -> tuple[int, bytes]:
        connection = self._connect(timeout)
        try:
            connection.request(method, path, body, self._headers())
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError:
            raise ControlError(0, f"no answer from {self.url} in {timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            why = (getattr(error, "strerror", None) or str(error)).lower()
            raise ControlError(
                0, f"cannot reach the control API at {self.url}: {why}; is the proxy running, and is this the address it printed?"
            ) from None
        finally:
            connection.close()

    def _call(
        self, method: str, path: str, query: Mapping[str, Any] | None = None, *, body: Any = None, timeout: float | None = None
    ) -> Json:
        path += _query(query)
        data = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        status, answer = self._request(method, path, data, timeout or self._timeout)
        if status >= 400:
            raise self._error(status, answer)
        try:
            found = json.loads(answer)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._no_api(status)
        return found

    def _error(self, status: int, body: bytes) -> ControlError:
        try:
            details = json.loads(body)
            return ControlError(status, str(details["message"]), details)
        except (ValueError, KeyError, TypeError):
            return self._no_api(status)

    def _no_api(self, status: int) -> ControlError:
        """Something else answered."""
        return ControlError(
            status, f"{self.url} answers HTTP {status}, but it is not the control API of Barnabas; give the address that the proxy printed"
        )

    def _list(self, path: str, name: str) -> list[Json]:
        found: list[Json] = self._call("GET", path)[name]
        return found

    def _stream(self, path: str, query: Mapping[str, Any], since: int | None) -> Iterator[tuple[str, Any]]:
        """Server-sent events as (name, data); reconnects after the last one, as long as the proxy is there."""
        cursor = since
        failures = 0
        while True:
            connection = self._connect(self._timeout)
            try:
                connection.request("GET", path + _query({**query, "since": cursor}), headers=self._headers())
                response = connection.getresponse()
                if response.status != 200:
                    raise self._error(response.status, response.read())
                failures = 0
                name, data = "message", ""
                arrived: int | None = None
                for raw in response:
                    line = raw.decode().rstrip("\r\n")
                    field, _, value = line.partition(": ")
                    if field == "id":
                        arrived = int(value)
                    elif field == "event":
                        name = value
                    elif field == "data":
                        data = value
                    elif not line:
                        if data:
                            yield name, json.loads(data)
                        cursor = cursor if arrived is None else arrived
                        name, data = "message", ""
            except (OSError, http.client.HTTPException) as error:
                failures += 1
                if failures > 3:
                    raise ControlError(0, f"lost the connection to the control API at {self.url}: {error}") from None
            finally:
                connection.close()
            time.sleep(0.2 * (failures + 1))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _query(query: Mapping[str, Any] | None) -> str:
    given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
    return f"?{urlencode(given)}" if given else ""
