"""Submission of jobs to the store: group commits, and announcements of lanes with ready jobs."""
