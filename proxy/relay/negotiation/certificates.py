"""Certificates for the TLS listener: a CA of one's own, made on first use, and certificates that it signs on demand.

    FOLDER/ca.pem        the CA's certificate: what clients have to trust
    FOLDER/ca-key.pem    its key (0600)

Neither is ever overwritten. The certificates for host names and addresses, and the one key they share, live in
memory and end with the process. Keys are P-256: signing takes well under a millisecond.

Making certificates needs the `cryptography` package (extra `tls`); a certificate of the user's own does not.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import ssl
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ....errors import BarnabasError, install

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA_CERTIFICATE, CA_KEY = "ca.pem", "ca-key.pem"
CA_YEARS = 10
DAYS = 397
"""How long a host's certificate is valid. Some clients refuse longer ones."""
KEPT_SECONDS = 7 * 86400.0
"""After so long a certificate is made anew: the process may run for years."""
NAMES = 1024
"""Certificates that are kept at one time; the names are the clients' choice."""


class CertificateError(BarnabasError):
    """A certificate or key cannot be had; the text is one line for the user."""


def _needs_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise CertificateError(
            f"--tls-ca creates certificates, which needs the package cryptography: {install('tls')}, "
            "or give a certificate of your own with --tls-cert and --tls-key"
        ) from None


class Authority:
    """A CA that signs certificates for the names and addresses under which clients find the proxy."""

    def __init__(self, certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        self._certificate = certificate
        self._key = key
        self._host_key = ec.generate_private_key(ec.SECP256R1())

    @classmethod
    def in_folder(cls, folder: Path) -> Authority:
        """The CA of this folder, made if there is none. CertificateError if it cannot be read or made."""
        _needs_cryptography()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(folder):
                if not (folder / CA_KEY).exists() and not (folder / CA_CERTIFICATE).exists():
                    _make(folder)
                return cls._load(folder)
        except OSError as error:
            raise CertificateError(
                f"the CA in {folder} cannot be used: {error.strerror or error}; choose another folder with --tls-ca"
            ) from None

    @classmethod
    def _load(cls, folder: Path) -> Authority:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        advice = f"repair it, or remove {CA_CERTIFICATE} and {CA_KEY} for a new CA (which clients must then trust)"
        for name in (CA_CERTIFICATE, CA_KEY):
            if not (folder / name).exists():
                raise CertificateError(f"{folder} has no {name}: {advice}")
        try:
            certificate = x509.load_pem_x509_certificate((folder / CA_CERTIFICATE).read_bytes())
            key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), password=None)
        except (ValueError, TypeError):
            raise CertificateError(f"the CA in {folder} cannot be read: {advice}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise CertificateError(f"{CA_KEY} in {folder} is not the key of {CA_CERTIFICATE}: {advice}")
        if certificate.not_valid_after_utc < datetime.now(UTC):
            raise CertificateError(f"the CA in {folder} has expired: {advice}")
        return cls(certificate, key)

    def certify(self, names: list[str]) -> tuple[bytes, bytes]:
        """A certificate (with the CA's behind it) for host names and IP addresses, and its key, both PEM."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.x509.oid import ExtendedKeyUsageOID

        now = datetime.now(UTC)
        public = self._host_key.public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(names[0]))
            .issuer_name(self._certificate.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(min(now + timedelta(days=DAYS), self._certificate.not_valid_after_utc))
            .add_extension(x509.SubjectAlternativeName([_subject(name) for name in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        pem = serialization.Encoding.PEM
        made = builder.sign(self._key, hashes.SHA256()).public_bytes(pem)
        return made + self._certificate.public_bytes(pem), _key_pem(self._host_key)


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _subject(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, digital_signature: bool = False, signs: bool = False) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=digital_signature, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs, crl_sign=signs, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _make(folder: Path) -> None:
    """A new CA. The folder is locked, and neither file exists."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now = datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Barnabas CA on {socket.gethostname()}, made {now:%Y-%m-%d}")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365 * CA_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(folder / CA_KEY, _key_pem(key))
    _write(folder / CA_CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM))


def _write(path: Path, data: bytes) -> None:
    """A new file, complete or not there; FileExistsError rather than overwrite one."""
    fd, scratch = tempfile.mkstemp(dir=path.parent)  # 0600
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(scratch, path)
    finally:
        os.unlink(scratch)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Two proxies that start at one time must not make two CAs."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def load_chain(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """`SSLContext.load_cert_chain` from memory: it wants a path, and gets one that is in no folder."""
    fd = os.memfd_create("barnabas-certificate", os.MFD_CLOEXEC)
    try:
        os.write(fd, key + certificate)
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


class HostContexts:
    """A TLS context per name, with a certificate made when it is first asked for."""

    def __init__(self, authority: Authority, make: Callable[[], ssl.SSLContext]) -> None:
        self._authority = authority
        self._make = make
        self._made: OrderedDict[str, tuple[float, ssl.SSLContext]] = OrderedDict()

    def of(self, name: str) -> ssl.SSLContext:
        """The context for a host name or an IP address."""
        now = time.monotonic()
        known = self._made.get(name)
        if known is not None and now - known[0] < KEPT_SECONDS:
            self._made.move_to_end(name)
            return known[1]
        context = self._make()
        load_chain(context, *self._authority.certify([name]))
        self._made[name] = (now, context)
        self._made.move_to_end(name)
        if len(self._made) > NAMES:
            self._made.popitem(last=False)
        return context
