"""Certificates for tests: an authority, and RabbitMQ settings that use it."""

import os
from datetime import datetime
from pathlib import Path

import trustme

_READABLE = 0o644


class Authority:
    """An authority with its files in a folder; servers that run as other users can read them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ca = trustme.CA()
        self.file = folder / "ca.pem"
        self._write(self._ca.cert_pem, self.file)

    def issue(self, *names: str, common_name: str | None = None, expires: datetime | None = None) -> "Certificate":
        """Issue a certificate for host names or addresses, valid from long ago."""
        made = self._ca.issue_cert(*names, common_name=common_name, not_after=expires)
        stem = f"certificate-{len([*self._folder.iterdir()])}"
        chain, key = self._folder / f"{stem}.pem", self._folder / f"{stem}.key"
        for blob in made.cert_chain_pems:
            self._write(blob, chain)
        self._write(made.private_key_pem, key)
        return Certificate(chain, key)

    @staticmethod
    def _write(blob: trustme.Blob, path: Path) -> None:
        blob.write_to_path(path, append=path.exists())
        path.chmod(_READABLE)


class Certificate:
    """The files of a certificate."""

    def __init__(self, chain: Path, key: Path) -> None:
        self.chain = chain
        self.key = key


def tls_listener(
    port: int, authority: Authority, certificate: Certificate, *, host: str = "127.0.0.1", asks_clients: bool = False
) -> dict[str, str]:
    """Return the lines of rabbitmq.conf for a listener with TLS; with `asks_clients` it accepts only known
    certificates.
    """
    return {
        "listeners.ssl.1": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        "ssl_options.cacertfile": os.fspath(authority.file),
        "ssl_options.certfile": os.fspath(certificate.chain),
        "ssl_options.keyfile": os.fspath(certificate.key),
        "ssl_options.verify": "verify_peer" if asks_clients else "verify_none",
        "ssl_options.fail_if_no_peer_cert": "true" if asks_clients else "false",
    }
