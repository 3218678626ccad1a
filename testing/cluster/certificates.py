"""The cluster tier's own certificate authority; keys live in a temporary directory."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Authority:
    """A CA whose certificate is the file ``ca.crt`` in ``folder``."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def ca_file(self) -> Path:
        """What a client trusts."""
        return self.folder / "ca.crt"

    def serving_pair(self, name: str, addresses: list[str]) -> tuple[Path, Path]:
        """Certificate and key files of a server reached by these IP addresses."""
        alternatives = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._pair(name, subject, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client_pair(self, user: str, group: str) -> tuple[Path, Path]:
        """Certificate and key files of a user in a group, as kind and k3d give them."""
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, group),
                x509.NameAttribute(NameOID.COMMON_NAME, user),
            ]
        )
        return self._pair(f"client-{user}", subject, ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def _pair(
        self,
        file: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        alternatives: list[x509.IPAddress],
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(subject, self.certificate.subject, key.public_key())
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), False)
        crt, pem = self.folder / f"{file}.crt", self.folder / f"{file}.key"
        certificate = builder.sign(self.key, hashes.SHA256())
        crt.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pem.write_bytes(_pem(key))
        return crt, pem


def create_authority(folder: Path) -> Authority:
    """Make a CA and write its certificate to ``folder/ca.crt``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lustrum-test-ca")])
    certificate = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            # Python 3.13 checks for it (VERIFY_X509_STRICT).
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    authority = Authority(folder, key, certificate)
    authority.ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return authority


def service_account_key(folder: Path) -> Path:
    """The key that signs and checks service account tokens."""
    path = folder / "service-accounts.key"
    path.write_bytes(_pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)))
    return path


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
    )


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
