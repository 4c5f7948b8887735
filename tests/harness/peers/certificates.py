"""Certificates for tests: a CA, and servers' and clients' certificates good and bad, written to a folder."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID


@dataclass
class Certificate:
    """A certificate's files (PEM), and what is needed to sign with it."""

    path: Path
    key_path: Path
    certificate: x509.Certificate
    key: Any

    @property
    def key_bytes(self) -> bytes:
        """The secret part of the key file, on one line: what must appear nowhere."""
        return self.key_path.read_bytes().splitlines()[1]


def make(
    folder: Path,
    name: str,
    hosts: tuple[str, ...] = (),
    issuer: Certificate | None = None,
    *,
    ca: bool = False,
    days: tuple[int, int] = (-1, 30),
    kind: str = "ec",
) -> Certificate:
    """Sign a new certificate; without an issuer it signs itself. days: validity, from today."""
    key: Any = ec.generate_private_key(ec.SECP256R1()) if kind == "ec" else rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general(host) for host in hosts]), critical=False)
    certificate = builder.sign(issuer.key if issuer else key, hashes.SHA256())
    made = Certificate(folder / f"{name}.pem", folder / f"{name}-key.pem", certificate, key)
    pem = serialization.Encoding.PEM
    made.path.write_bytes(certificate.public_bytes(pem))
    made.key_path.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return made


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def server_context(certificate: Certificate, clients: Certificate | None = None) -> ssl.SSLContext:
    """For a scripted broker; `clients`: the CA of client certificates it demands."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.path, certificate.key_path)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.path)
    return context


def client_context(ca: Path) -> ssl.SSLContext:
    """For a scripted client that trusts one CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    return context
