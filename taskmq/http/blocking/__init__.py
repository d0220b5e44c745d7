"""The client for programs without coroutines, made of `taskmq.http.aio`: change that one."""
