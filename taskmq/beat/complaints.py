"""Complaints: problems that are logged once each, until they are over."""

from taskmq.model.outcome import error_line, message_of, type_name


class Complaints:
    """The last complaint about each subject."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def is_news(self, subject: str, error: BaseException) -> bool:
        """Return whether the error is another one than the last about the subject, and keep it."""
        complaint = error_line(type_name(error), message_of(error))
        is_news = self._last.get(subject) != complaint
        self._last[subject] = complaint
        return is_news

    def forget(self, subject: str) -> None:
        """Log the next complaint about the subject again, because its problem is over."""
        self._last.pop(subject, None)
