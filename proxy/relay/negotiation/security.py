"""What the user wants of TLS and SASL, checked before anything starts, and the TLS contexts made of it.

The supervisor checks (`prepare`) and hands the settings to the relay over its control socket: passwords stand on no
command line. The relay makes the contexts (`ServerContexts`, `client_context`).
"""

from __future__ import annotations

import os
import re
import ssl
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ....errors import BarnabasError
from .certificates import CA_CERTIFICATE, Authority, HostContexts
from .sasl import MECHANISMS, SaslConfig

_HOST_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_][a-z0-9_-]{0,62})*", re.I)


class SecurityError(BarnabasError):
    """TLS or SASL cannot be used as asked for; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS on either side.

    Towards clients: certificate and key (PEM files), or ca (a folder with a CA, made on first use). sni_suffix: one
    listener for all brokers, each by a name under this domain. Towards brokers: broker turns it on; broker_ca (PEM
    file; None: the system's CAs), broker_certificate and broker_key for brokers that want one, broker_name: the name
    that has to be in their certificates (None: the host that is connected to), broker_insecure: verify nothing.
    keylog: a file for the sessions' keys, so that Wireshark can read a capture.
    """

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    sni_suffix: str = ""
    broker: bool = False
    broker_ca: Path | None = None
    broker_certificate: Path | None = None
    broker_key: Path | None = None
    broker_name: str = ""
    broker_insecure: bool = False
    keylog: Path | None = None

    @property
    def clients(self) -> bool:
        """Whether clients use TLS to the proxy."""
        return self.certificate is not None or self.ca is not None

    @property
    def brokers(self) -> bool:
        """Whether the proxy uses TLS to brokers."""
        return self.broker or bool(
            self.broker_ca or self.broker_certificate or self.broker_name or self.broker_insecure
        )


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """TLS, and the login at the brokers."""

    tls: TlsConfig | None
    sasl: SaslConfig | None


def host_name(text: str) -> bool:
    """Whether a text can be a host name (as a client gave it, so it may be anything)."""
    return _HOST_NAME.fullmatch(text) is not None


def describe(tls: TlsConfig | None, sasl: SaslConfig | None) -> str:
    """What is secured, for people: one line, empty if nothing is."""
    parts = []
    if tls is not None and tls.clients:
        parts.append("TLS with clients")
    if tls is not None and tls.brokers:
        parts.append("TLS with brokers" + (", THEIR CERTIFICATES NOT VERIFIED" if tls.broker_insecure else ""))
    if sasl is not None:
        parts.append(f"logs in as {sasl.username or '(token)'} with {sasl.mechanism}")
    return "; ".join(parts)


def prepare(tls: TlsConfig | None, sasl: SaslConfig | None) -> SecurityConfig | None:
    """The settings for the relay, with absolute paths, after everything in them was tried once; None if there are none.

    Makes the CA and the keylog file if they are asked for and not there. Raises SecurityError or CertificateError.
    """
    if tls is not None:
        _check_tls(tls)
        paths: dict[str, Any] = {name: path for name in tls.__slots__ if isinstance(path := getattr(tls, name), Path)}
        tls = replace(tls, **{name: path.absolute() for name, path in paths.items()})
    if sasl is not None:
        _check_sasl(sasl)
    return SecurityConfig(tls, sasl) if tls is not None or sasl is not None else None


def _check_tls(tls: TlsConfig) -> None:
    if tls.ca is not None and (tls.certificate is not None or tls.key is not None):
        raise SecurityError("--tls-ca creates certificates, --tls-cert gives one: use only one of these options")
    if (tls.certificate is None) != (tls.key is None):
        raise SecurityError("--tls-cert and --tls-key belong together: give both (one PEM file that contains both can be given twice)")
    if (tls.broker_certificate is None) != (tls.broker_key is None):
        raise SecurityError("--broker-cert and --broker-key belong together: give both")
    if tls.broker_insecure and (tls.broker_ca is not None or tls.broker_name):
        raise SecurityError(
            "--broker-insecure verifies nothing: leave it out, or leave out --broker-ca and --broker-name, which define what to verify"
        )
    if tls.sni_suffix:
        if not tls.clients:
            raise SecurityError(
                "--sni-suffix distinguishes brokers by the name in the TLS hello: add --tls-ca DIR, or --tls-cert and --tls-key"
            )
        if not host_name(tls.sni_suffix):
            raise SecurityError(f"--sni-suffix {tls.sni_suffix!r} is not a domain name: give one like kafka.example")
    if tls.keylog is not None:
        _make_private(tls.keylog)
    if tls.clients:
        ServerContexts(tls)
    if tls.brokers:
        client_context(tls)


def _make_private(path: Path) -> None:
    """Have the keylog file there, for its owner only: OpenSSL would create it for everybody."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)
        finally:
            os.close(fd)
    except OSError as error:
        raise SecurityError(
            f"cannot write keys to {path}: {error.strerror or error}; choose another file with --tls-keylog"
        ) from None


def _check_sasl(sasl: SaslConfig) -> None:
    if sasl.mechanism not in MECHANISMS:
        raise SecurityError(
            f"--sasl-mechanism {sasl.mechanism!r} is not one of {', '.join(MECHANISMS)} (clients that log in themselves "
            "may use any: leave --sasl-mechanism out)"
        )
    if sasl.mechanism == "OAUTHBEARER":
        if not sasl.username and not sasl.secret:
            raise SecurityError(
                "OAUTHBEARER needs a token (--sasl-password-file FILE or BARNABAS_SASL_PASSWORD), or --sasl-username NAME "
                "for an unsecured one"
            )
        if re.search(r"[^\x21-\x7e]", sasl.secret):
            raise SecurityError("the OAUTHBEARER token contains characters that a token cannot have: the file must contain only the token")
        return
    if not sasl.username:
        raise SecurityError(f"{sasl.mechanism} needs --sasl-username NAME")
    if not sasl.secret:
        raise SecurityError(
            f"{sasl.mechanism} needs a password: put it into a file and give --sasl-password-file FILE, "
            "or set BARNABAS_SASL_PASSWORD"
        )
    if "\0" in sasl.username + sasl.secret:
        raise SecurityError("--sasl-username and the password must not contain NUL")


# --- contexts ----------------------------------------------------------------------------------------------------


def _no_password() -> bytes:
    """OpenSSL would ask on the terminal."""
    return b""


def _load(context: ssl.SSLContext, certificate: Path, key: Path, options: str) -> None:
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except FileNotFoundError:
        missing = certificate if not certificate.exists() else key
        raise SecurityError(f"{missing} does not exist: correct {options}") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SecurityError(f"{key} is not the key of {certificate}: correct {options}") from None
        raise SecurityError(
            f"{certificate} and {key} cannot be used ({(error.reason or 'unreadable').replace('_', ' ').lower()}): {options} "
            "take PEM files, the key without a password"
        ) from None
    except OSError as error:
        raise SecurityError(f"{certificate} or {key} cannot be read: {error.strerror or error}") from None


def _modern(context: ssl.SSLContext, tls: TlsConfig) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if tls.keylog is not None:
        context.keylog_filename = str(tls.keylog)
    return context


class ServerContexts:
    """Contexts for clients: the one to begin with, and the one for the name in their hello.

    `name`: the name that the client of the handshake under way asked for, "" if none, or none that can be a name.
    """

    def __init__(self, tls: TlsConfig) -> None:
        self.name = ""
        self._tls = tls
        self._hosts: HostContexts | None = None
        if tls.ca is not None:
            self._hosts = HostContexts(Authority.in_folder(tls.ca), self._empty)
            self._hosts.of("127.0.0.1")
        else:
            self._own = self._empty()
            assert tls.certificate is not None and tls.key is not None
            _load(self._own, tls.certificate, tls.key, "--tls-cert and --tls-key")

    def _empty(self) -> ssl.SSLContext:
        forgive_names()
        context = _modern(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._tls)
        # A client may close without having read them, which resets what it sent.
        context.num_tickets = 0
        context.sni_callback = self._asked
        return context

    def at(self, address: str) -> ssl.SSLContext:
        """The context for a client that connected to this IP address."""
        return self._own if self._hosts is None else self._hosts.of(address.partition("%")[0])

    def _asked(self, session: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        """OpenSSL has read a client's hello. The handshake goes on in any case."""
        if name and host_name(name):
            self.name = name.lower()
            if self._hosts is not None:
                session.context = self._hosts.of(self.name)


def forgive_names() -> None:
    """Print no traceback where a client asks for a name that is no text: Python's `ssl` cannot hand it to `_asked`, and the
    handshake fails, which is reported like any other."""
    before = sys.unraisablehook
    if getattr(before, "forgives", False):
        return

    def hook(unraisable: sys.UnraisableHookArgs, /) -> None:
        if not (isinstance(unraisable.exc_value, UnicodeError) and isinstance(unraisable.object, bytes)):
            before(unraisable)

    hook.forgives = True  # type: ignore[attr-defined]
    sys.unraisablehook = hook


def client_context(tls: TlsConfig) -> ssl.SSLContext:
    """The context for brokers: chain and name are verified, unless the user wants nothing verified."""
    context = _modern(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), tls)
    if tls.broker_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.broker_ca is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(tls.broker_ca)
        except (OSError, ValueError) as error:
            why = "it contains no PEM certificate" if isinstance(error, ssl.SSLError) else getattr(error, "strerror", None)
            raise SecurityError(f"--broker-ca {tls.broker_ca} cannot be read: {why or error}") from None
    if tls.broker_certificate is not None and tls.broker_key is not None:
        _load(context, tls.broker_certificate, tls.broker_key, "--broker-cert and --broker-key")
    return context


def client_advice(tls: TlsConfig) -> list[str]:
    """The settings with which clients trust the CA that was made for them; empty if it was not."""
    if tls.ca is None:
        return []
    path = tls.ca.absolute() / CA_CERTIFICATE
    return [
        f"clients must trust {path}:",
        f"  Java         security.protocol=SSL ssl.truststore.type=PEM ssl.truststore.location={path}",
        f"  librdkafka   security.protocol=SSL ssl.ca.location={path}",
        f"  kafka-python security_protocol='SSL', ssl_cafile={str(path)!r}",
    ]


