"""The certificate that a lab shows to the hosts that join it: its own, which they are told when they join.

``python -m workers.certificate FOLDER NAME`` makes it where it is not there.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

#: Hosts trust exactly this certificate; another means that they join again.
VALID = datetime.timedelta(days=3650)


def ensure_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """Certificate and key for ``host``, made anew where there are none for that name."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    if not (certificate.exists() and key.exists() and _name(host) in _names(certificate)):
        folder.mkdir(parents=True, exist_ok=True)
        _make(certificate, key, host)
    return certificate, key


def _make(certificate: Path, key: Path, host: str) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "MLSys Policy Lab")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName([_name(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8
    text = private.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    key.unlink(missing_ok=True)
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _names(certificate: Path) -> list[x509.GeneralName]:
    loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
    return list(loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)


if __name__ == "__main__":
    ensure_certificate(Path(sys.argv[1]), sys.argv[2])
