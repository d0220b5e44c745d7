"""Proofs that a store issued a token: a MAC in each invitation, which the reports repeat. Pure.

    keys of the store -> prove(id, token, reports queue) -> invitation -> worker -> report -> is_genuine

A store that lost its last transactions (a restored backup, a standby that was behind) has no record of the dispatches
of that time. Its keys are older, so the proof distinguishes its own tokens from forged ones.

The MAC is HMAC-SHA256, cut to 128 bits: half of it (RFC 2104), and approved wherever ciphers are restricted (FIPS
140), where a keyed BLAKE2b may be refused. It costs less than two microseconds per dispatch.
"""

import hmac
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Final

_ID_BYTES: Final = 3
_SECRET_BYTES: Final = 32
_MAC_BYTES: Final = 16
# Length of the id in base64, which precedes the MAC.
_ID_TEXT: Final = 4
# Length of a MAC in base64, without the padding.
_MAC_TEXT: Final = 22
# These keys sign nothing else, and no later use of them can be mistaken for this one.
_PURPOSE: Final = b"taskmq dispatch\0"


class ReportKey:
    """A store's key for proofs. Its secret appears in no repr, and no encoder accepts it.

    Attributes:
        id: four characters, not secret: each proof begins with the id of its key.
        secret: 32 random bytes.
    """

    __slots__ = ("_mac", "id", "secret")

    def __init__(self, key_id: str, secret: bytes) -> None:
        self.id = key_id
        self.secret = secret
        # A copy of it costs less than another one from the secret.
        self._mac = hmac.new(secret, digestmod="sha256")

    def __repr__(self) -> str:
        return f"<ReportKey {self.id}>"

    def prove(self, job_id: str, token: int, reports: str) -> str:
        """Return the proof for a dispatch of a job under a token and a reports queue: 26 characters."""
        name = job_id.encode(errors="surrogatepass")
        # The length separates the id from the queue, so no two dispatches produce the same bytes.
        content = b"%b%b%b%b%b" % (
            _PURPOSE,
            token.to_bytes(8),
            len(name).to_bytes(4),
            name,
            reports.encode(errors="surrogatepass"),
        )
        mac = self._mac.copy()
        mac.update(content)
        return self.id + _text(mac.digest()[:_MAC_BYTES])[:_MAC_TEXT]


class ReportKeys:
    """The keys of a store, the newest first: new proofs use it, and every key verifies old ones."""

    def __init__(self, keys: Sequence[ReportKey]) -> None:
        self._keys = tuple(keys)

    def __repr__(self) -> str:
        return f"<ReportKeys {' '.join(key.id for key in self._keys)}>"

    def is_genuine(self, proof: str, job_id: str, token: int, reports: str) -> bool:
        """Return whether one of the keys made this proof for this dispatch."""
        return any(
            # In constant time, so that timing does not reveal how much of a guess is right.
            hmac.compare_digest(key.prove(job_id, token, reports).encode(), proof.encode(errors="replace"))
            for key in self._keys
            if proof.startswith(key.id)
        )


def new_report_key(random: bytes) -> ReportKey:
    """Create a key from 35 random bytes.

    Raises:
        ValueError: the number of bytes differs.
    """
    if len(random) != _ID_BYTES + _SECRET_BYTES:
        raise ValueError(
            f"a key of reports is made of {_ID_BYTES + _SECRET_BYTES} random bytes, not of {len(random)}"
        )
    return ReportKey(_text(random[:_ID_BYTES])[:_ID_TEXT], random[_ID_BYTES:])


def _text(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()
