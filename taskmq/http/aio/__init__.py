"""The client for coroutines; `taskmq.http.blocking` is made of it."""
