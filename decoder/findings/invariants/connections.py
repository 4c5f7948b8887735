"""Rows about what connections begin with, and about errors in places where they do not belong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import le

from ...codec.message_view import lists_at
from ...reference import explain
from ...schema import error_places, facts
from .items import each
from .row import Pair, Row, Seen

_API_VERSIONS = facts.api_key("ApiVersions")


def _offer(pair: Pair) -> Iterable[Seen]:
    # Nearly all offers are sound, and their items need not be made to see that.
    keys, lows, highs = lists_at(pair.response, "api_keys.api_key", "api_keys.min_version", "api_keys.max_version")
    if _API_VERSIONS in keys and len(set(keys)) == len(keys) and min(lows) >= 0 and all(map(le, lows, highs)):
        return ()
    found = []
    known: set[int] = set()
    for i, (key, low, high, *_) in enumerate(pair.answer.api_keys or ()):
        if low > high:
            found.append(Seen(f"api_keys[{i}]", f"offers {_name(key)} v{low} to v{high}", "api-versions-inverted"))
        if low < 0:
            found.append(Seen(f"api_keys[{i}]", f"offers {_name(key)} from v{low}", "api-versions-negative"))
        if key in known:
            found.append(Seen(f"api_keys[{i}]", f"offers {_name(key)} a second time", "api-versions-twice"))
        known.add(key)
    if _API_VERSIONS not in known:
        text = f"offers {len(known)} APIs, but not ApiVersions itself" if known else "is empty without an error"
        found.append(Seen("api_keys", text, "api-versions-without-itself" if known else "api-versions-empty"))
    return found


def _name(key: int) -> str:
    return facts.api_name(key) if key in facts.api_keys() else f"API {key}"


def _features(pair: Pair) -> Iterator[Seen]:
    lows, highs = lists_at(pair.response, "supported_features.min_version", "supported_features.max_version")
    if all(map(le, lows, highs)):
        return
    for path, feature in each(pair.answer, "supported_features"):
        if feature.min_version > feature.max_version:
            yield Seen(path, f"supports {feature.name} from level {feature.min_version} to {feature.max_version}")


def _mechanism(pair: Pair) -> Iterator[Seen]:
    if pair.asked.mechanism not in (pair.answer.mechanisms or ()):
        listed = ", ".join(pair.answer.mechanisms or ()) or "none"
        yield Seen("mechanisms", f"lists {listed}, but {pair.asked.mechanism} was accepted")


def _lifetime(pair: Pair) -> Iterator[Seen]:
    if pair.answer.session_lifetime_ms < 0:
        yield Seen("session_lifetime_ms", f"is {pair.answer.session_lifetime_ms}")


def _telemetry(pair: Pair) -> Iterator[Seen]:
    if pair.answer.push_interval_ms <= 0:
        yield Seen("push_interval_ms", f"is {pair.answer.push_interval_ms} without an error", "telemetry-interval")
    if not any(pair.asked.client_instance_id) and not any(pair.answer.client_instance_id):
        yield Seen("client_instance_id", "is zero without an error", "telemetry-no-instance")


_INTERNAL = facts.api_key_set(
    "Envelope", "AddRaftVoter", "FetchSnapshot", "WriteShareGroupState", "ReadShareGroupState"
)  # fmt: skip
"""APIs of brokers among themselves, which pass on any error."""
_SHOWN = 4


@lru_cache(1024)
def _carriers(code: int) -> frozenset[int]:
    """The APIs that Apache Kafka answers with an error; none if that may be any, or if the error is not known."""
    if code not in facts.errors() or (text := explain.error(code)).every:
        return frozenset()
    return facts.api_key_set(*text.apis)


def check_errors(pair: Pair) -> Iterator[Seen]:
    key, version = pair.request.plan.api_key, pair.response.plan.version
    for path, code in pair.response.errors():
        keys = _carriers(code)
        if keys and key not in keys and key not in _INTERNAL:
            of = f", but {' and '.join(names)} may" if len(names := explain.error(code).apis) <= _SHOWN else ""
            text = f"is {facts.error_name(code)}, which {facts.api_name(key)} never answers{of}"
            yield Seen(path, text, "error-of-another-api")
            return
        place = error_places.of(key, version, code)
        inside = "." in path
        if inside and place.alone:
            text = f"is {facts.error_name(code)}, which stands at the top of the response"
            yield Seen(path, text, "error-out-of-place")
            return
        if not inside and place.arrays and not place.whole:
            text = f"is {facts.error_name(code)}, which stands in {' or '.join(sorted(place.arrays))}"
            yield Seen(path, text, "error-out-of-place")
            return


_ALL = " ".join(sorted(facts.api_name(key) for key in facts.api_keys() if key not in _INTERNAL))


def _versions(row: str, kafka: str, severity: str, clients: str) -> Row:
    return Row(row, "ApiVersions", kafka, "ApiVersionsResponse.collectApis", _offer, severity, clients)


ROWS: tuple[Row, ...] = (
    _versions("api-versions-inverted", "offers each API from a version to the same or a higher one", "high",
              "Clients find no version of the API to use, and do not use it or fail."),
    _versions("api-versions-negative", "offers no version below 0", "medium",
    "Clients may take it for no version at all."),
    _versions("api-versions-twice", "offers each API once", "medium", "Clients keep one of the two ranges, not all "
    "of them the same."),
    _versions("api-versions-without-itself", "offers ApiVersions too", "medium",
    "Clients may ask with the oldest version, or fail."),
    _versions("api-versions-empty", "offers APIs, or reports an error", "high",
    "Clients find no API to use, and fail."),
    Row("api-versions-feature-inverted", "ApiVersions", "supports a feature from a level to the same or a higher one",
        "ApiVersionsResponse, "
        "KIP-584", _features, "low", "The Java client refuses the whole answer.", since=3),
    Row("sasl-mechanism-unlisted", "SaslHandshake", "lists the mechanism that it accepts",
        "SaslServerAuthenticator.handleHandshakeRequest",
        _mechanism, "low"),
    Row("sasl-lifetime-negative", "SaslAuthenticate", "gives a session lifetime of 0 (none) or more",
        "SaslServerAuthenticator, KIP-368",
        _lifetime, "medium", "Clients authenticate again without end, or fail.", since=1),
    Row("telemetry-interval", "GetTelemetrySubscriptions", "gives an interval above 0 for pushing metrics",
        "ClientMetricsManager, KIP-714",
        _telemetry, "low", "Clients push metrics without a pause, or use their own interval."),
    Row("telemetry-no-instance", "GetTelemetrySubscriptions", "gives a client that has none an instance id",
        "ClientMetricsManager, KIP-714",
        _telemetry, "low", "Clients have no id for their metrics."),
    Row("error-of-another-api", _ALL, "answers with this error only in the APIs it belongs to", "Errors, KafkaApis",
        check_errors, "medium",
        "Clients do not expect it there: most give up.", errors=True),
    Row("error-out-of-place", _ALL, "reports this error in another part of the response",
        "AbstractRequest.getErrorResponse, KafkaApis", check_errors,
        "low", "Clients may overlook it, or give up on more than it concerns.", errors=True),
)  # fmt: skip
