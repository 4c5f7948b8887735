"""The options of ``barnabas proxy`` for TLS and SASL, and the settings made of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ....proxy.negotiation.sasl import MECHANISMS, SaslConfig
from ....proxy.negotiation.security import TlsConfig
from ..common.failure import Failure

PASSWORD_VARIABLE = "BARNABAS_SASL_PASSWORD"
_CLIENTS, _BROKERS, _SASL = "TLS with clients", "TLS with brokers", "Log in at brokers (for clients that do not)"


def _option(name: str, words: str, metavar: str, panel: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(name, help=words, metavar=metavar, rich_help_panel=panel)
    return option


TlsCa = Annotated[
    Path | None,
    _option("--tls-ca", "Make certificates with the CA in this folder; the CA is made on first use.", "DIR", _CLIENTS),
]
TlsCertificate = Annotated[
    Path | None, _option("--tls-cert", "A certificate of your own, with its chain (PEM).", "FILE", _CLIENTS)
]
TlsKey = Annotated[Path | None, _option("--tls-key", "Its key (PEM, without a password).", "FILE", _CLIENTS)]
SniSuffix = Annotated[
    str,
    _option(
        "--sni-suffix",
        "One listener for all brokers: clients get broker-ID.DOMAIN, and the name in the TLS hello chooses.",
        "DOMAIN",
        _CLIENTS,
    ),
]
Keylog = Annotated[
    Path | None, _option("--tls-keylog", "Append the sessions' keys, for Wireshark (both sides).", "FILE", _CLIENTS)
]
BrokerTls = Annotated[
    bool,
    typer.Option(
        "--broker-tls", help="Speak TLS to brokers. The options below imply it.", rich_help_panel=_BROKERS
    ),
]
BrokerCa = Annotated[
    Path | None, _option("--broker-ca", "CAs to trust (PEM) instead of the system's.", "FILE", _BROKERS)
]
BrokerCertificate = Annotated[
    Path | None, _option("--broker-cert", "The proxy's own certificate, for brokers that ask (PEM).", "FILE", _BROKERS)
]
BrokerKey = Annotated[Path | None, _option("--broker-key", "Its key (PEM, without a password).", "FILE", _BROKERS)]
BrokerName = Annotated[
    str, _option("--broker-name", "The name in the brokers' certificates, if it is not their host.", "NAME", _BROKERS)
]
BrokerInsecure = Annotated[
    bool,
    typer.Option("--broker-insecure", help="Verify nothing. For tests only.", rich_help_panel=_BROKERS),
]
SaslMechanism = Annotated[str, _option("--sasl-mechanism", ", ".join(MECHANISMS) + ".", "NAME", _SASL)]
SaslUsername = Annotated[str, _option("--sasl-username", "The user.", "NAME", _SASL)]
SaslPasswordFile = Annotated[
    Path | None,
    _option(
        "--sasl-password-file",
        f"A file with the password, or with OAUTHBEARER's token (or set {PASSWORD_VARIABLE}).",
        "FILE",
        _SASL,
    ),
]


def tls_config(
    *,
    certificate: Path | None,
    key: Path | None,
    ca: Path | None,
    sni_suffix: str,
    keylog: Path | None,
    broker: bool,
    broker_ca: Path | None,
    broker_certificate: Path | None,
    broker_key: Path | None,
    broker_name: str,
    broker_insecure: bool,
) -> TlsConfig | None:
    """The options as settings; None if TLS is not asked for at all."""
    config = TlsConfig(
        certificate=certificate,
        key=key,
        ca=ca,
        sni_suffix=sni_suffix,
        broker=broker,
        broker_ca=broker_ca,
        broker_certificate=broker_certificate,
        broker_key=broker_key,
        broker_name=broker_name,
        broker_insecure=broker_insecure,
        keylog=keylog,
    )
    return None if config == TlsConfig() else config


def sasl_config(mechanism: str, username: str, password_file: Path | None) -> SaslConfig | None:
    """The options as settings, with the password from its file or the environment. Failure if it cannot be read."""
    password = os.environ.pop(PASSWORD_VARIABLE, "")  # the proxy's processes need not inherit it
    if not mechanism:
        if username or password_file:
            raise Failure("--sasl-username and --sasl-password-file need --sasl-mechanism: " + ", ".join(MECHANISMS))
        return None
    if password_file is not None:
        try:
            password = password_file.read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise Failure(f"--sasl-password-file {password_file} cannot be read: {why}") from None
    return SaslConfig(mechanism.upper(), username, password)
