"""The audit as operators use it.

chain         page by page, and as a chain that is whole or is not
restoration   from an export of it follows who is shut out again after a restored backup
"""

from taskmq.operations.audit.chain import ChainReport, chain_head, entries, exported, verify_chain
from taskmq.operations.audit.restoration import RestoredStep, read_export, shut_out_again

__all__ = [
    "ChainReport",
    "RestoredStep",
    "chain_head",
    "entries",
    "exported",
    "read_export",
    "shut_out_again",
    "verify_chain",
]
