"""Examining a running installation: part by part for its health, and in depth for the doctor."""
