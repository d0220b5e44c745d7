"""Proofs that a store has given out a token: a MAC that travels with each invitation, and back in its reports. Pure.

    keys of the store -> prove(id, token, reports queue) -> invitation -> worker -> report -> is_genuine

A store that has lost its last transactions (a restored backup, a standby that was behind) remembers no dispatch of
that time. Its keys are older than that, so by the proof it knows its own tokens from those that a forger made up.

The MAC is HMAC-SHA256, cut to 128 bits: half of it (RFC 2104), and approved wherever ciphers are restricted (FIPS
140), where a keyed BLAKE2b may be refused. It costs a dispatch two microseconds.
"""

import hmac
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Final

__all__ = ["ReportKey", "ReportKeys", "new_report_key"]

_ID_BYTES: Final = 3
_SECRET_BYTES: Final = 32
_MAC_BYTES: Final = 16
# Of the id in base64, which stands before the MAC.
_ID_TEXT: Final = 4
# Of a MAC in base64, without the padding.
_MAC_TEXT: Final = 22
# Nothing else is signed with such a key, and nothing later may be taken for this.
_PURPOSE: Final = b"taskmq dispatch\0"


class ReportKey:
    """A key of a store, by which proofs are made. Its secret is in no repr, and no encoder takes it.

    Attributes:
        id: four characters that are no secret: each proof begins with the id of its key.
        secret: 32 random bytes.
    """

    __slots__ = ("id", "secret")

    def __init__(self, key_id: str, secret: bytes) -> None:
        self.id = key_id
        self.secret = secret

    def __repr__(self) -> str:
        return f"<ReportKey {self.id}>"

    def prove(self, job_id: str, token: int, reports: str) -> str:
        """The proof for the dispatch of a job under a token whose reports go to a queue: 26 characters."""
        name = job_id.encode(errors="surrogatepass")
        # The length parts the id from the queue: no two dispatches are the same bytes.
        content = b"%b%b%b%b%b" % (
            _PURPOSE,
            token.to_bytes(8),
            len(name).to_bytes(4),
            name,
            reports.encode(errors="surrogatepass"),
        )
        return self.id + _text(hmac.digest(self.secret, content, "sha256")[:_MAC_BYTES])[:_MAC_TEXT]


class ReportKeys:
    """The keys that a store has, the newest first: it makes new proofs, and each of them is good for old ones."""

    def __init__(self, keys: Sequence[ReportKey]) -> None:
        self._keys = tuple(keys)

    def __repr__(self) -> str:
        return f"<ReportKeys {' '.join(key.id for key in self._keys)}>"

    def is_genuine(self, proof: str, job_id: str, token: int, reports: str) -> bool:
        """Whether one of the keys has made this proof for this dispatch."""
        return any(
            # In constant time: how far a guess is right is not to be seen.
            hmac.compare_digest(key.prove(job_id, token, reports).encode(), proof.encode(errors="replace"))
            for key in self._keys
            if proof.startswith(key.id)
        )


def new_report_key(random: bytes) -> ReportKey:
    """A key of 35 random bytes.

    Raises:
        ValueError: they are more, or fewer.
    """
    if len(random) != _ID_BYTES + _SECRET_BYTES:
        raise ValueError(
            f"a key of reports is made of {_ID_BYTES + _SECRET_BYTES} random bytes, not of {len(random)}"
        )
    return ReportKey(_text(random[:_ID_BYTES])[:_ID_TEXT], random[_ID_BYTES:])


def _text(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()
