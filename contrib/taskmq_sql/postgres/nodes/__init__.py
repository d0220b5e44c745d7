"""Placement of jobs on host nodes in PostgreSQL; `taskmq_sql.nodes` has the rest."""

from taskmq_sql.postgres.nodes.placements import PostgresPlacements

__all__ = ["PostgresPlacements"]
