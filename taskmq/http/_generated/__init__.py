# Generated from taskmq/http/aio/__init__.py by `python -m tests.house.blocking_client`: change that one.
"""The client for programs without coroutines."""
