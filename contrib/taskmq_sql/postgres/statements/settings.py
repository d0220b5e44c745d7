"""Settings of connections, by the kind of their statements. A new connection runs them first.

The statements of a connection have one kind of plan, which its settings prescribe. The planner chooses by statistics,
and those of a queue's tables change faster than they are collected.
"""

from typing import Final

HOT: Final = (
    "set enable_seqscan = off",
    "set enable_nestloop = off",
    "set enable_mergejoin = off",
    "set plan_cache_mode = force_generic_plan",
)
"""Hot statements have one good plan, by primary keys. Statistics taken while a table was empty would suggest another.
`lateral` loops leave the planner no choice. Each plan is made once: planning takes longer than execution, and without
this setting PostgreSQL would plan most statements again for each call, since it expects custom plans to be
cheaper."""
LOOKUPS: Final = ("set plan_cache_mode = force_generic_plan",)
"""Single rows by their keys: one plan each, which prunes daily partitions when execution starts."""
WALKS: Final = (
    "set enable_seqscan = off",
    "set enable_bitmapscan = off",
    "set enable_sort = off",
    "set enable_incremental_sort = off",
    "set plan_cache_mode = force_generic_plan",
)
"""Index scans: each statement names the order of its own index, or rows by their keys."""
LISTS: Final = ("set plan_cache_mode = force_custom_plan",)
"""Other lists: a generic plan for all tenants would choose the wrong index for most of them."""
EVERY: Final = (
    "set default_transaction_isolation = 'read committed'",
    # JIT compilation takes longer than any of these statements, and wrong statistics trigger it.
    "set jit = off",
    # A process that freezes or loses its network in the middle of a transaction: the server would keep its locks for
    # hours. Transactions here pause for milliseconds only, and a lease lasts 5 s.
    "set idle_in_transaction_session_timeout = '5s'",
    "set tcp_user_timeout = '10s'",
)
"""Settings of every connection."""
