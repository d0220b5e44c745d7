"""The asynchronous client, from which `taskmq.http.blocking` is generated."""
