"""SASL: mechanisms that do not match, refused credentials, secrets in clear, requests out of turn, sessions that expire.

A finding shows the mechanism, the user's name where the bytes contain it, and the broker's error message, with
everything masked that may be a secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from ....codec.message_view import MessageView
from ....connection.exchange import Exchange, State
from ....embedded import sasl_step
from ....schema import facts
from ...engine.broker_messages import masked
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Model, Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import duration, several
from ...engine.host import is_loopback, split
from ...engine.traffic import ClientConnection, Traffic
from ..network.endings import ConnectionStart, Ending, EndingDetector, Endings

_HANDSHAKE = facts.api_key("SaslHandshake")
_AUTHENTICATE = facts.api_key("SaslAuthenticate")
_SASL = frozenset({_HANDSHAKE, _AUTHENTICATE})
_MECHANISM = facts.error_code("UNSUPPORTED_SASL_MECHANISM")
_STATE = facts.error_code("ILLEGAL_SASL_STATE")
_FAILED = facts.error_code("SASL_AUTHENTICATION_FAILED")
_LEGS = {"client": " between the client and the proxy", "broker": " between the proxy and the broker"}
_CLIENTS = "Java, librdkafka: security.protocol=SASL_SSL"
_PROXY = "barnabas proxy --broker-tls, or --broker-ca FILE"

_TOO_SHORT = re.compile(r"(?i)session too short|remaining (life|session)|lifetime too short")
_PRINCIPAL = re.compile(r"(?i)change principals?|different principal")
_CLOCK = re.compile(r"(?i)expir|not yet|no longer|\bexp\b|\bnbf\b|\biat\b|clock|issued at|in the future")


@dataclass(slots=True)
class SaslState:
    """One connection's authentication. `granted`: a session with an end was granted; `ends_ns`: when it ends, 0 for never. `logins`: that
    worked; `rounds`: SaslAuthenticate requests since the last SaslHandshake; `handshaken`: whether there was one that worked. `challenge`: the
    last answer, if it refuses a token without an error code, which OAUTHBEARER allows (RFC 7628, section 3.2.2). `nonces`: the
    lengths of SCRAM's nonce in the client's first message, in the broker's, and in the client's last one."""

    mechanism: str = ""
    user: str = ""
    logins: int = 0
    rounds: int = 0
    handshaken: bool = False
    granted: bool = False
    ends_ns: int = 0
    challenge: Exchange | None = None
    nonces: tuple[int, int, int] = (0, 0, 0)

    def update(self, exchange: Exchange) -> None:
        """Take an answered SASL exchange."""
        request, response = exchange.request_view, exchange.response_view
        if exchange.api_key == _HANDSHAKE:
            if request is not None:
                self.mechanism = request["mechanism"] or ""
            self.rounds, self.handshaken = 0, self.handshaken or not exchange.error
            return
        self.rounds += 1
        challenged = self.mechanism == "OAUTHBEARER" and response is not None and not exchange.error and bool(response["auth_bytes"])
        self.challenge = exchange if challenged else None
        if response is not None and not exchange.error and not challenged and self._complete(request):
            self.logins += 1
        if request is not None:
            step = sasl_step(request["auth_bytes"] or b"")
            self.user = step.get("username") or self.user
            self.mechanism = self.mechanism or step.get("mechanism") or ""
            answer = sasl_step(response["auth_bytes"] or b"") if response is not None and self.mechanism.startswith("SCRAM") else {}
            if answer.get("step") == "server-first":
                self.nonces = step.get("nonce_length", 0), answer["nonce_length"], 0
            elif step["step"] == "client-final":
                self.nonces = *self.nonces[:2], step["nonce_length"]
        if response is None or response.api_version < 1 or exchange.error == _FAILED:
            return
        lifetime_ms = response["session_lifetime_ms"]
        # A session that was granted once makes what follows a re-authentication.
        self.granted = self.granted or lifetime_ms > 0
        if not exchange.error:
            self.ends_ns = (exchange.response_time_ns or 0) + lifetime_ms * 1_000_000 if lifetime_ms > 0 else 0

    @property
    def challenge_text(self) -> str:
        """``{"status":"invalid_token"}``: what `challenge` says, "" without one."""
        answer = self.challenge.response_view if self.challenge is not None else None
        status = sasl_step(answer["auth_bytes"]).get("status") if answer is not None else None
        return "" if answer is None else f'{{"status":"{status}"}}' if status else "a challenge"

    def _complete(self, request: MessageView | None) -> bool:
        """Whether an accepted SaslAuthenticate was the last of a login: SCRAM has two, Kerberos several."""
        if self.mechanism.startswith("SCRAM"):
            return self.rounds == 2
        return self.mechanism != "GSSAPI" and request is not None


class SaslStates(Model):
    """The authentication of every connection. `ended`: of the connection that has just ended, None without any."""

    id = "sasl-states"
    apis = _SASL

    def setup(self) -> None:
        self.ended: SaslState | None = None
        self._states: dict[int, SaslState] = {}

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is State.PAIRED:
            self._states.setdefault(conn.number, SaslState()).update(exchange)

    def closed(self, conn: ClientConnection) -> None:
        self.ended = self._states.pop(conn.number, None)

    def of(self, conn: ClientConnection) -> SaslState | None:
        """The authentication of a connection, None without an answered SASL exchange."""
        return self._states.get(conn.number)


class _SaslDetector(Detector):
    """A detector of SASL exchanges; all share `sasl`."""

    apis: ClassVar[frozenset[int] | None] = _SASL

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self.sasl = traffic.model(SaslStates)


class SaslMechanismMismatch(_SaslDetector):
    id = "sasl-mechanism-mismatch"
    severity = Severity.HIGH
    title = "a client asks for a SASL mechanism that the broker has not enabled"

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        state, answer = self.sasl.of(conn), exchange.response_view
        if exchange.api_key != _HANDSHAKE or state is None or answer is None or exchange.error != _MECHANISM:
            return
        enabled = [name for name in answer["mechanisms"] or () if name]
        found = self.report(
            (conn.identity, conn.broker, state.mechanism),
            exchange,
            "client and broker agree on the mechanism first, with SaslHandshake (KIP-43); a listener accepts only "
            "those in sasl.enabled.mechanisms, and names must match exactly.",
            f"set the client's mechanism to one that is enabled (Java, librdkafka: sasl.mechanism"
            f"{'=' + enabled[0] if enabled else ''}; kafka-python, aiokafka: sasl_mechanism), or add "
            f"{state.mechanism} to listener.name.<listener>.sasl.enabled.mechanisms with its JAAS entry",
            error=facts.error_name(_MECHANISM),
            mechanism=state.mechanism,
            enabled=enabled,
        )
        found.seen = (
            f"{conn.who} asks {conn.where} for SASL mechanism {state.mechanism!r}, but the broker has "
            f"{', '.join(enabled) or 'none'} enabled{_tries(found)}"
        )


class SaslAuthenticationFailed(_SaslDetector):
    id = "sasl-authentication-failed"
    severity = Severity.HIGH
    title = "a broker refuses a client's credentials"

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self.endings = traffic.model(Endings)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        state, answer = self.sasl.of(conn), exchange.response_view
        if exchange.api_key != _AUTHENTICATE or state is None or answer is None or exchange.error != _FAILED:
            return
        self._refused(conn, exchange, state, masked(exchange.api, answer["error_message"], exchange.request))

    def closed(self, conn: ClientConnection) -> None:
        """A token that was refused by a challenge alone: the client did not ask for the error, or left."""
        state, start = self.sasl.ended, self.endings.ended
        if state is None or state.challenge is None or start is None:
            return
        found = self._refused(conn, state.challenge, state, state.challenge_text)
        then = start.closed_on
        if then is None or then.api_key in _SASL:
            return
        found.seen += f". The client then sent {then.api}, as if it were logged in, and the {conn.by or 'other side'} closed the connection"
        if found.count == 1:
            found.remedy += (
                "; upgrade the client library as well: an answer that has content refuses an OAUTHBEARER token though it has no error code (RFC 7628), "
                "and the client takes it for a login"
            )

    def _refused(self, conn: ClientConnection, exchange: Exchange, state: SaslState, reason: str) -> Finding:
        again = state.granted
        mechanism = state.mechanism or "SASL"
        why, remedy = _cause(mechanism, reason, state)
        why += (
            " A refused client is disconnected after connection.failed.authentication.delay.ms; most clients "
            "retry until they are stopped, and each attempt costs the broker a handshake."
        )
        found = self.report(
            (conn.identity, conn.broker, mechanism, state.user),
            exchange,
            why,
            remedy,
            error=facts.error_name(_FAILED),
            mechanism=mechanism,
            user=state.user,
            said=reason,
            reauthentication=again,
            facts=conn.facts_of(exchange),
        )
        if reason and not found.about["said"]:
            found.about["said"], found.why, found.remedy = reason, why, remedy
        said = reason or found.about["said"] or "no reason given"
        user = f" as {state.user!r}" if state.user else ""
        before = f"; {several(state.logins, 'login')} on this connection worked before" if state.logins else ""
        found.seen = (
            f"{conn.where} refuses {conn.who}{user} with {mechanism}"
            f"{' on re-authentication' if again else ''}: {said}{_tries(found)}{before}"
        )
        return found


def _cause(mechanism: str, reason: str, state: SaslState) -> tuple[str, str]:
    """Why a mechanism fails, and what to do, by the broker's message and what the connection has shown."""
    worked = "logins with the same settings worked on this connection"
    if _TOO_SHORT.search(reason):
        return (
            f"{f'Earlier {worked}, so the settings are right: the' if state.logins else 'The'} token has too little of its life left for the "
            "session that the broker would have to grant. The client re-authenticates with a token that is about to expire.",
            "let the client fetch a new token earlier (Java: a lower sasl.login.refresh.window.factor, a higher "
            "sasl.login.refresh.buffer.seconds; librdkafka: the token refresh callback), or let the issuer give tokens a longer life",
        )
    if _CLOCK.search(reason):
        return (
            "The broker does not consider the token or ticket valid at this time: it has expired, or the clocks of "
            "client, broker and issuer disagree.",
            "compare the clocks (NTP) of client, broker and issuer; let the client fetch a new token before the old "
            "one expires (Java: sasl.login.refresh.*, librdkafka: oauthbearer token refresh callback); "
            "sasl.oauthbearer.clock.skew.seconds on the broker allows for small differences",
        )
    if _PRINCIPAL.search(reason):
        return (
            "A connection keeps its principal: re-authentication as another one is refused (KIP-368).",
            "let the client log in as the same user for the life of a connection; after a change of the user, restart the client",
        )
    if state.logins and mechanism != "GSSAPI":
        token = mechanism == "OAUTHBEARER"
        return (
            f"Earlier {worked}, so issuer, audience and scope fit: it is this token, which was revoked or has another content, or the keys that "
            "the broker checks it with have changed since."
            if token
            else f"Earlier {worked}: since then, the user's password was changed or the user removed, or the client sends another password.",
            "look at what the token endpoint gave the client this time, and whether the broker still reaches "
            "sasl.oauthbearer.jwks.endpoint.url"
            if token
            else "give the client the new password, or restore the user's credentials, and restart the client",
        )
    if mechanism == "OAUTHBEARER":
        return (
            "The broker does not accept the token: the issuer, audience, scope or signature is not what it expects.",
            "compare the token's iss, aud and scope with sasl.oauthbearer.expected.issuer, "
            "sasl.oauthbearer.expected.audience and the broker's validator; check that the broker reaches "
            "sasl.oauthbearer.jwks.endpoint.url",
        )
    if mechanism == "GSSAPI":
        return (
            "Kerberos refuses: the ticket is not for this service, or a keytab or key version is outdated.",
            "compare the broker's principal with sasl.kerberos.service.name and its host name in DNS; renew keytabs; "
            "compare the clocks (Kerberos allows 5 minutes)",
        )
    if mechanism.startswith("SCRAM"):
        other = "SCRAM-SHA-256" if mechanism.endswith("512") else "SCRAM-SHA-512"
        check = "kafka-configs.sh --describe --entity-type users --entity-name NAME"
        add = f"--alter --add-config '{mechanism}=[password=...]'"
        if state.rounds == 1:
            return (
                f"The broker refuses the first message, which names the user and no password yet: the user has no {mechanism} "
                f"credentials. It does not exist, or has only those of {other}, which are stored separately.",
                f"check which credentials the user has: {check}; set them with {add}, or use the mechanism that the user has",
            )
        own, given, returned = state.nonces
        # Kafka tolerates those of librdkafka before 2.6.1, which sent its own part twice.
        if given and returned and returned not in (given, own + given):
            return (
                f"The client's last message has a nonce of {returned} characters, the broker's had {given}: a client must return that nonce (RFC 5802), "
                "and this one sends another. Kafka has checked it since 3.7.2, 3.8.1 and 3.9 (CVE-2024-56128), so such a client worked with older "
                "brokers; the password is not the reason.",
                "it is the client library's fault: upgrade it",
            )
        return (
            f"The user has {mechanism} credentials, and the proof does not match them: the password is wrong.",
            "check the client's password, including spaces and quotes (Java: sasl.jaas.config; librdkafka: sasl.password); set a new "
            f"one with kafka-configs.sh {add} --entity-type users --entity-name NAME",
        )
    return (
        "The user or password does not match the listener's JAAS entry (or its callback).",
        "check the client's user and password (Java: sasl.jaas.config; librdkafka: sasl.username, sasl.password; "
        "kafka-python: sasl_plain_username, sasl_plain_password), including spaces and quotes, against "
        "listener.name.<listener>.plain.sasl.jaas.config",
    )


class CredentialsInClear(_SaslDetector):
    id = "credentials-in-clear"
    severity = Severity.MEDIUM
    title = "passwords or tokens are sent without TLS"
    _READABLE = frozenset({"PLAIN", "OAUTHBEARER"})

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        state = self.sasl.of(conn)
        if exchange.api_key != _HANDSHAKE or exchange.state is not State.PAIRED or state is None or exchange.error:
            return
        readable = state.mechanism in self._READABLE
        if not readable and not state.mechanism.startswith("SCRAM"):
            return
        clear = [leg for leg in _LEGS if leg not in conn.tls]
        if not clear:
            return
        ends = {"client": conn.client_host, "broker": split(conn.broker)[0]}
        near = all(is_loopback(ends[leg]) for leg in clear)
        between = _LEGS[clear[0]] if len(clear) == 1 else ""
        use = "start the proxy with --tls-ca" if clear == ["client"] else "use a SASL_SSL listener"
        secret = "token" if state.mechanism == "OAUTHBEARER" else "password"
        self.report(
            (conn.identity, conn.broker, state.mechanism, between),
            exchange,
            f"with {state.mechanism}, the {secret} itself is in the bytes: anyone who sees the traffic can use it."
            if readable
            else "SCRAM hides the password, but anyone who records the exchange can try passwords against it offline, "
                 "and everything after it is unencrypted.",
            f"{use} ({_CLIENTS if clear != ['broker'] else _PROXY}), and change the secrets that were sent so far"
            if readable
            else f"{use} on networks that you do not control; keep 4096 iterations or more",
            severity=Severity.INFO if near else Severity.MEDIUM if readable else Severity.LOW,
            seen=f"{conn.who} authenticates to {conn.where} with {state.mechanism} without "
                 f"TLS{between}{', on one machine' if near else ''}",
            mechanism=state.mechanism,
            in_clear=clear,
        )


class SaslOutOfTurn(_SaslDetector):
    id = "sasl-out-of-turn"
    severity = Severity.HIGH
    title = "a client sends SASL when or where the broker does not expect it, or something else in the middle of it (ILLEGAL_SASL_STATE)"
    apis = None
    wanted = Wanted.FAILED

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        state = self.sasl.of(conn)
        if exchange.state is not State.PAIRED or state is None or exchange.error != _STATE:
            return
        what, why, remedy = _out_of_turn(exchange, state)
        found = self.report(
            (conn.identity, conn.broker, what), exchange, why, remedy, error=facts.error_name(_STATE), mechanism=state.mechanism
        )
        found.seen = f"{conn.where} answers {exchange.api} of {conn.who} with ILLEGAL_SASL_STATE: {what}{_tries(found)}"


def _out_of_turn(exchange: Exchange, state: SaslState) -> tuple[str, str, str]:
    """What a client did that the broker did not expect, why that matters, and what to do."""
    if exchange.api_key not in _SASL:
        amid = state.handshaken and not state.rounds
        again = f" again (after {several(state.logins, 'login')})" if state.logins else ""
        if state.challenge is not None:
            return (
                f"the broker had refused the token ({state.challenge_text}), and the client sent {exchange.api} as if it were logged in",
                "an answer to an OAUTHBEARER token that has content refuses it, though it has no error code (RFC 7628); the error follows only "
                "when the client has acknowledged it.",
                "look why the token is refused (issuer, audience, scope, keys, time), and upgrade the client library",
            )
        return (
            f"the client began to log in{again} with SaslHandshake, and sent {exchange.api} before SaslAuthenticate"
            if amid
            else f"{exchange.api} is no part of logging in, which has not ended",
            "between SaslHandshake and the last SaslAuthenticate, a broker accepts nothing else, in later logins (connections.max.reauth.ms, "
            "KIP-368) as in the first one. It refuses the request and closes the connection.",
            "it is the client library's fault: it must hold back other requests until it is logged in again. Upgrade it, or report it; "
            "until then, longer sessions (connections.max.reauth.ms on the broker) make it rarer",
        )
    if exchange.api_key == _HANDSHAKE and not state.handshaken:
        return (
            "it does not expect SASL there",
            "a listener without SASL answers every SaslHandshake with this error (KIP-152).",
            "use the port of the SASL_PLAINTEXT or SASL_SSL listener, or turn SASL off in the client "
            "(security.protocol=PLAINTEXT or SSL)",
        )
    if not state.handshaken:
        return (
            "there was no SaslHandshake before it",
            "a client names the mechanism with SaslHandshake first, and then authenticates (KIP-43, KIP-152). A listener without SASL "
            "answers the same.",
            "check that the port is that of a SASL_PLAINTEXT or SASL_SSL listener; if it is, the client library must send "
            "SaslHandshake: upgrade it",
        )
    return (
        f"it follows {several(state.logins, 'login')} on this connection",
        "a connection is authenticated again only where the broker limits sessions (connections.max.reauth.ms), with the mechanism "
        "it began with, and not at once (KIP-368).",
        "upgrade the client library; it must not send SaslHandshake again before the session's end is near",
    )


class _SaslEndingDetector(EndingDetector):
    """A detector of connections that end while they log in; all share `sasl`."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self.sasl = traffic.model(SaslStates)


class RawTokenRefused(_SaslEndingDetector):
    id = "sasl-raw-token-refused"
    severity = Severity.HIGH
    title = "a client logs in with SaslHandshake v0, and the broker ends the connection on its token, or on a request that comes too early"
    why = (
        "after SaslHandshake v0, tokens are sent without a Kafka header, and a broker that refuses them can only end the connection; v1 sends "
        "them in SaslAuthenticate, whose answer has the reason (KIP-152, Kafka 1.0). Likeliest first: user, password or token are wrong; a proxy "
        "or product answers that does not support tokens after SaslHandshake v0."
    )
    remedy = (
        "client: use SaslHandshake v1 (sarama: Config.Net.SASL.Version = sarama.SASLHandshakeV1; Java, librdkafka: a current version), which works "
        "with both and shows why a login fails; check its user and password, and the log of the broker or proxy"
    )
    apis = facts.api_key_set("SaslHandshake")
    OFTEN = 2

    def ended(self, conn: ClientConnection, start: ConnectionStart, how: Ending) -> None:
        if not start.sasl or not start.token or conn.by != "broker" or conn.lost:
            return
        state, then = self.sasl.ended, start.closed_on
        mechanism = state.mechanism if state is not None else ""
        if then is not None and (mechanism != "GSSAPI" or not start.to_answer):
            return  # its tokens were answered
        early = (
            (
                "a login with GSSAPI ends with a token of the client, in which it chooses the protection that the broker's last token offers "
                "(RFC 4752). A broker takes whatever comes instead for that token, refuses it and ends the connection.",
                "it is the client library's fault: upgrade it; until then, use another mechanism (SCRAM, PLAIN)",
            )
            if then is not None
            else ()
        )
        found = self.report((conn.identity, conn.broker, bool(early)), None, *early, time_ns=conn.closed_ns, facts=conn.facts_of(then))
        found.severity = self.severity if found.count >= self.OFTEN else Severity.MEDIUM
        found.seen = (
            f"{conn.who} sends {then.api} to {conn.where} before its login with GSSAPI has ended: the broker's last token "
            f"({start.to_answer} bytes) is not answered; it is disconnected{_tries(found)}"
            if then is not None
            else f"{conn.who} sends a token to {conn.where} after SaslHandshake v0, and is disconnected without an answer{_tries(found)}"
        )


class TokenNotAnswered(_SaslEndingDetector):
    id = "sasl-token-not-answered"
    severity = Severity.HIGH
    title = "a broker ends connections on SaslAuthenticate instead of answering it"
    apis = _SASL
    wanted = Wanted.NEW
    OFTEN = 3
    """Connections; a broker that stops ends each once."""

    def setup(self) -> None:
        self._accepted: BoundedDict[tuple[str, str, str], int] = BoundedDict(4096)
        """By client host, broker and mechanism: when a login last worked."""

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        state = self.sasl.of(conn)
        if exchange.api_key == _AUTHENTICATE and state is not None and state.logins:
            self._accepted[conn.client_host, conn.broker, state.mechanism] = exchange.response_time_ns or 0

    def ended(self, conn: ClientConnection, start: ConnectionStart, how: Ending) -> None:
        state, last = self.sasl.ended, start.closed_on
        if state is None or last is None or last.api_key != _AUTHENTICATE or conn.by != "broker" or conn.lost or last.undecoded:
            return
        mechanism = state.mechanism or "SASL"
        accepted = self._accepted.get((conn.client_host, conn.broker, state.mechanism))
        secret = "token" if mechanism == "OAUTHBEARER" else "ticket" if mechanism == "GSSAPI" else "user or password"
        since = (
            f"the {secret} was accepted before, so it has expired or changed since"
            if accepted
            else f"the {secret} is not accepted{': expired, or of another issuer or audience' if secret == 'token' else ''}"
        )
        found = self.report(
            (conn.identity, conn.broker, mechanism),
            last,
            "Kafka answers a login that it refuses with SASL_AUTHENTICATION_FAILED and a reason (KIP-152). Who ends the connection instead "
            f"fails on the {secret}: a proxy or Kafka-compatible product, or a login module or callback of the broker that throws. Likeliest: {since}.",
            f"look at the log of the broker, product or proxy at that time; check the {secret}"
            + (", and that the client fetches a new one before the old one expires" if secret == "token" else "")
            + "; report to its developers that it must answer with an error",
            severity=Severity.LOW,
            time_ns=conn.closed_ns,
            mechanism=mechanism,
            facts=conn.facts_of(last),
        )
        found.severity = self.severity if found.count >= self.OFTEN else Severity.LOW
        ago = f"; it accepted a login {duration((conn.closed_ns or 0) - accepted)} before" if accepted else ""
        found.seen = (
            f"{conn.where} ends the connection of {conn.who} on SaslAuthenticate with {mechanism}, without an answer{_tries(found)}{ago}"
        )


class RequestBeforeAuthentication(EndingDetector):
    """A SASL listener answers ApiVersions, and closes on any other request before SaslHandshake.

    A broker that stops closes connections too, each once: so it takes several from one host, none of which worked.
    """

    id = "request-before-authentication"
    severity = Severity.HIGH
    title = "a client without SASL sends requests to a listener that requires it"
    why = (
        "before authentication, a SASL listener accepts only ApiVersions, SaslHandshake and SaslAuthenticate "
        "(SaslServerAuthenticator); on anything else, it closes the connection without an answer, and logs "
        "'Unexpected Kafka request'. Clients see a disconnect and keep reconnecting."
    )
    remedy = (
        "turn SASL on in the client (Java: security.protocol=SASL_PLAINTEXT or SASL_SSL, sasl.mechanism, "
        "sasl.jaas.config; librdkafka: security.protocol, sasl.mechanism, sasl.username, sasl.password), or use the "
        "port of a listener without SASL"
    )
    CLOSES = 3
    """Connections."""

    def setup(self) -> None:
        self._failures: BoundedDict[tuple[str, str], int] = BoundedDict(4096)

    def ended(self, conn: ClientConnection, start: ConnectionStart, how: Ending) -> None:
        first = start.closed_on
        if how is not Ending.BEFORE_SASL or first is None or self.endings.worked(conn):
            return
        pair = conn.client_host, conn.broker
        count = self._failures[pair] = self._failures.get(pair, 0) + 1
        if count < self.CLOSES:
            return
        found = self.report(pair, first, time_ns=conn.closed_ns, facts=conn.facts_of(first))
        found.count = max(found.count, count)
        found.seen = (
            f"{conn.who} sends {first.api} to {conn.where} without authenticating, and is disconnected {found.count} "
            "times; only ApiVersions is answered"
        )


class SaslSessionExpired(_SaslDetector):
    id = "sasl-session-expired"
    severity = Severity.MEDIUM
    title = "a client does not re-authenticate in time, and the broker closes the connection (KIP-368)"
    why = (
        "a broker with connections.max.reauth.ms (or a token that expires) sends the session's lifetime in "
        "SaslAuthenticate v1; the first request after it ends is not answered, and the connection is closed. Requests "
        "in flight fail, and this happens once per lifetime on every broker connection."
    )
    apis = None
    wanted = Wanted.NEW
    EARLY_NS = 1_000_000_000
    """How much before the end a close counts: the session runs from when the broker wrote the answer, and its
    clock is not ours."""

    def setup(self) -> None:
        self._late: dict[int, Exchange] = {}  # by connection: the last request at or after the end of its session

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        state = self.sasl.of(conn)
        if state is None or not state.ends_ns or exchange.api_key in _SASL:
            return
        if (exchange.request_time_ns or 0) >= state.ends_ns - self.EARLY_NS:
            self._late[conn.number] = exchange
            conn.forget_kinds()

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        late = self._late.get(conn.number)
        if late is None:
            return
        answer = (
            exchange.response_view if exchange.api_key == _AUTHENTICATE and exchange.state is State.PAIRED else None
        )
        if answer is not None and answer.api_version >= 1 and not exchange.error:
            del self._late[conn.number]  # a new session
        elif exchange is not late:
            conn.forget_kinds()  # the next exchange may be the late one
        elif exchange.state is State.PAIRED:
            del self._late[conn.number]  # answered all the same

    def closed(self, conn: ClientConnection) -> None:
        late, state = self._late.pop(conn.number, None), self.sasl.ended
        if late is None or state is None or conn.by == "client" or not conn.how:
            return
        found = self.report(
            (conn.identity, conn.broker),
            late,
            self.why,
            "the client has re-authenticated on this connection before: check its clock, and what delays its thread (long polls, garbage "
            "collection)"
            if state.logins > 1
            else "use a client that re-authenticates (Java 2.2, librdkafka 2.2 and newer), or raise connections.max.reauth.ms",
            time_ns=conn.closed_ns,
            mechanism=state.mechanism,
            facts=conn.facts_of(late),
        )
        over = ((late.request_time_ns or 0) - state.ends_ns) / 1e9
        found.seen = (
            f"{conn.who} sends {late.api} to {conn.where} {abs(over):.1f} s {'after' if over >= 0 else 'before'} the "
            f"end of its SASL session without re-authenticating, and is disconnected{_tries(found)}"
        )


def _tries(finding: Finding) -> str:
    """How often and over how long, as the end of a sentence."""
    if finding.count == 1:
        return ""
    over = ((finding.last_ns or 0) - (finding.first_ns or 0)) / 1e9
    return f"; {finding.count} times in {over:.0f} s"
