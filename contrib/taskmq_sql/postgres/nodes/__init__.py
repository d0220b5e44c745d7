"""What of host nodes is PostgreSQL's own: the jobs that are placed on them. The rest is in `taskmq_sql.nodes`."""

from taskmq_sql.postgres.nodes.placements import PostgresPlacements

__all__ = ["PostgresPlacements"]
