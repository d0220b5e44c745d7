"""The job store on PostgreSQL 13 and newer."""
