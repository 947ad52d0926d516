"""Certificates for tests: a CA, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key, in PEM; `both` holds one behind the other, as a keystore of Kafka's type PEM."""

    certificate: Path
    key: Path

    @property
    def both(self) -> Path:
        file = self.certificate.with_suffix(".both.pem")
        file.write_text(self.key.read_text() + self.certificate.read_text())
        return file

    def pkcs12(self, password: str) -> Path:
        """Both in a store, which this password opens."""
        return _pkcs12(self.certificate, password, "-inkey", self.key.name)


class Authority:
    """A CA with its files in `folder`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        if shutil.which("openssl") is None:
            raise AssertionError("openssl is needed for the tests of TLS; run: sudo apt-get install openssl")
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = folder / f"{name}.pem"
        self._name = name
        self._new(name, "-x509", "-days", "2", "-out", self.certificate.name)
        (folder / f"{name}.index").write_text("")
        (folder / f"{name}.cnf").write_text(
            f"[ca]\ndefault_ca=this\n[this]\ndatabase={name}.index\nnew_certs_dir=.\ncertificate={name}.pem\n"
            f"private_key={name}.key\nrand_serial=yes\ndefault_md=sha256\npolicy=any\nunique_subject=no\n"
            "copy_extensions=copy\n[any]\ncommonName=supplied\n"
        )

    def sign(self, name: str, alternative_names: str = "IP:127.0.0.1", days: int = 2) -> KeyPair:
        """A key pair for a server and a client; `days` below 0: it has expired."""
        begins = datetime.now(UTC) - timedelta(days=10)
        ends = datetime.now(UTC) + timedelta(days=days)
        self._new(name, "-out", f"{name}.csr", "-addext", f"subjectAltName={alternative_names}")
        dates = ("-startdate", _asn1(begins), "-enddate", _asn1(ends))
        files = ("-in", f"{name}.csr", "-out", f"{name}.pem")
        self._openssl("ca", "-batch", "-notext", "-config", f"{self._name}.cnf", *files, *dates)
        return KeyPair(self.folder / f"{name}.pem", self.folder / f"{name}.key")

    def pkcs12(self, password: str) -> Path:
        """Its certificate alone, in a store of those who are trusted."""
        return _pkcs12(self.certificate, password, "-nokeys")

    def _new(self, name: str, *words: str) -> None:
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key")
        self._openssl("req", *key, "-subj", f"/CN={name}", *words)

    def _openssl(self, *words: str) -> None:
        openssl(self.folder, *words)


def self_signed(folder: Path, name: str) -> KeyPair:
    """What nobody but itself has signed."""
    return KeyPair(Authority(folder, name).certificate, folder / f"{name}.key")


def _pkcs12(certificate: Path, password: str, *words: str) -> Path:
    file = certificate.with_suffix(".p12")
    files = ("-in", certificate.name, "-out", file.name)
    openssl(file.parent, "pkcs12", "-export", *words, *files, "-passout", f"pass:{password}")
    return file


def openssl(folder: Path, *words: str) -> None:
    done = subprocess.run(["openssl", *words], cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"openssl {' '.join(words)}:\n{done.stderr}"


def _asn1(time: datetime) -> str:
    return time.strftime("%Y%m%d%H%M%SZ")
