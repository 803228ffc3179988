"""Certificates for 127.0.0.1, made for one test."""

import ipaddress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def new_pair(password: str | None = None) -> tuple[bytes, bytes, bytes]:
    """Return a new certificate, its key, and the same key under a password."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "taut test")]), datetime.now(UTC)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).add_extension(here, critical=False)
    made = made.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = serialization.BestAvailableEncryption((password or "password").encode())
    plain = key.private_bytes(pem, form, serialization.NoEncryption())
    return made.sign(key, hashes.SHA256()).public_bytes(pem), plain, key.private_bytes(pem, form, locked)
