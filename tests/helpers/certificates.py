"""A certificate for 127.0.0.1 that nobody trusts, made by the openssl of this machine."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """Where the chain and the key lie, in PEM."""

    cert: Path
    key: Path


def make_certificate(directory: Path) -> Certificate:
    """Good for a day."""
    made = Certificate(directory / "cert.pem", directory / "key.pem")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command = ["openssl", "req", "-x509", "-nodes", "-days", "1", *curve]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, *names, "-out", made.cert, "-keyout", made.key], check=True, capture_output=True)
    return made
