"""Diagnosis of a running installation: a health check of each part, and the doctor's examination in depth."""
