"""The CA that is made on first use, and what it signs."""

from __future__ import annotations

import ssl
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from barnabas.proxy.relay.negotiation import certificates
from barnabas.proxy.relay.negotiation.certificates import Authority, CertificateError, HostContexts, load_chain
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from harness.peers.certificates import make
from harness.waiting import PATIENCE


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_ca_is_made_once_and_for_its_owner(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "ca"
    Authority.in_folder(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["ca-key.pem", "ca.pem"]
    assert (mode(folder), mode(folder / "ca-key.pem"), mode(folder / "ca.pem")) == (0o700, 0o600, 0o600)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    Authority.in_folder(folder)
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_proxies_that_start_together_share_one_ca(tmp_path: Path) -> None:
    made: list[Authority] = []
    threads = [threading.Thread(target=lambda: made.append(Authority.in_folder(tmp_path / "ca"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    chains = {authority.certify(["a"])[0].split(b"-----END CERTIFICATE-----")[1] for authority in made}
    assert len(made) == 6 and len(chains) == 1


@pytest.mark.parametrize("harm", ["no key", "no certificate", "another key", "rubbish", "expired", "not a folder"])
def test_a_ca_that_cannot_be_used_is_left_alone(tmp_path: Path, harm: str) -> None:
    folder = tmp_path / "ca"
    Authority.in_folder(folder)
    certificate, key = folder / "ca.pem", folder / "ca-key.pem"
    if harm == "no key":
        key.unlink()
    elif harm == "no certificate":
        certificate.unlink()
    elif harm == "another key":
        key.write_bytes(make(tmp_path, "other", ca=True).key_path.read_bytes())
    elif harm == "rubbish":
        certificate.write_bytes(b"rubbish")
    elif harm == "expired":
        old = make(tmp_path, "old", ca=True, days=(-10, -1))
        certificate.write_bytes(old.path.read_bytes())
        key.write_bytes(old.key_path.read_bytes())
    else:
        folder = certificate
    before = {path.name: path.read_bytes() for path in tmp_path.rglob("*.pem")}
    with pytest.raises(CertificateError) as refused:
        Authority.in_folder(folder)
    assert str(folder) in str(refused.value) and "\n" not in str(refused.value)
    assert before == {path.name: path.read_bytes() for path in tmp_path.rglob("*.pem")}


def test_certificates_have_what_clients_check(tmp_path: Path) -> None:
    authority = Authority.in_folder(tmp_path)
    chain, key = authority.certify(["broker-1.kafka.example"])
    leaf, ca = x509.load_pem_x509_certificates(chain)
    leaf.verify_directly_issued_by(ca)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker-1.kafka.example"]
    assert leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).days <= 398
    assert serialization.load_pem_private_key(key, None).public_key() == leaf.public_key()  # type: ignore[union-attr]
    assert b"PRIVATE" not in chain
    (address,) = (
        x509.load_pem_x509_certificates(authority.certify(["::1"])[0])[0]
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
    assert str(address.value) == "::1"


def test_a_new_name_costs_little_and_names_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients choose the names, and others wait meanwhile."""
    contexts = HostContexts(Authority.in_folder(tmp_path), lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    first = contexts.of("a.example")
    assert contexts.of("a.example") is first
    monkeypatch.setattr(ec, "generate_private_key", lambda curve: pytest.fail("a key takes long"))
    monkeypatch.setattr(certificates, "NAMES", 100)
    for number in range(105):
        contexts.of(f"{number}.example")
    assert len(contexts._made) == 100 and contexts.of("a.example") is not first


def test_keys_are_loaded_without_a_file(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_chain(context, *Authority.in_folder(tmp_path / "ca").certify(["a"]))
    assert sorted(path.name for path in tmp_path.rglob("*.pem")) == ["ca-key.pem", "ca.pem"]


def test_without_cryptography_the_error_names_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from pathlib import Path\n"
        "from barnabas.proxy.relay.negotiation.certificates import Authority, CertificateError\n"
        "try:\n    Authority.in_folder(Path(sys.argv[1]))\n"
        "except CertificateError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE)
    assert "pip install '.[tls]'" in done.stdout, done.stderr
