"""The audit log as operators use it.

chain         lists entries page by page and verifies their hash chain
restoration   revokes access again after a restored backup, following an export of the audit log
"""

from taskmq.operations.audit.chain import ChainReport, entries, export_record, parse_chain_head, verify_chain
from taskmq.operations.audit.restoration import RestoredStep, read_export, restrict_again

__all__ = [
    "ChainReport",
    "RestoredStep",
    "entries",
    "export_record",
    "parse_chain_head",
    "read_export",
    "restrict_again",
    "verify_chain",
]
