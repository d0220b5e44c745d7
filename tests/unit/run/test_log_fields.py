import asyncio
import contextvars
import copy
import io
import json
import logging
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from taskmq import JobFields, install_job_fields
from taskmq.model.envelope import Envelope
from taskmq.run.console_log import ConsoleFormatter
from taskmq.run.context import Context, current_context

_FORMAT = "%(job_id)s|%(task)s|%(attempt)s|%(queue)s|%(message)s"


@pytest.fixture(autouse=True)
def _factory() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(logging.LogRecord)
    yield
    logging.setLogRecordFactory(before)


@pytest.fixture
def _in_a_task() -> Iterator[None]:
    envelope = Envelope(task="shop.sell", attempt=2)
    context = Context(envelope, job_id="job-7", max_attempts=5, queue="sales", redelivered=False)
    token = current_context.set(context)
    yield
    current_context.reset(token)


class Book:
    """A logger and its output."""

    def __init__(self, formatter: logging.Formatter, *filters: logging.Filter) -> None:
        self.text = io.StringIO()
        self.logger = logging.Logger("shop")  # noqa: LOG001 - it is this test\'s own
        handler = logging.StreamHandler(self.text)
        handler.setFormatter(formatter)
        for each in filters:
            handler.addFilter(each)
        self.logger.addHandler(handler)

    @property
    def lines(self) -> list[str]:
        return self.text.getvalue().splitlines()


@pytest.mark.usefixtures("_in_a_task")
def test_every_log_record_of_a_task_names_its_job() -> None:
    install_job_fields()
    book = Book(logging.Formatter(_FORMAT))

    book.logger.info("sold %d", 3)

    assert book.lines == ["job-7|shop.sell|2|sales|sold 3"]


def test_only_leftover_code_logs_the_name_of_a_settled_job() -> None:
    install_job_fields()
    ours, theirs = Book(logging.Formatter(_FORMAT)), Book(logging.Formatter(_FORMAT))
    ours.logger.name = "taskmq_rabbitmq.connect"
    context = Context(Envelope(task="shop.sell"), job_id="job-7", max_attempts=5, queue="sales", redelivered=False)

    def log(word: str) -> None:
        current_context.set(context)
        ours.logger.info(word)
        theirs.logger.info(word)

    contextvars.copy_context().run(log, "before")
    context.is_settled = True
    contextvars.copy_context().run(log, "after")

    assert ours.lines == ["job-7|shop.sell|1|sales|before", "||||after"]
    assert theirs.lines == ["job-7|shop.sell|1|sales|before", "job-7|shop.sell|1|sales|after"]


def test_the_fields_are_empty_outside_a_task() -> None:
    install_job_fields()
    book = Book(logging.Formatter(_FORMAT))

    book.logger.info("idle")

    assert book.lines == ["||||idle"]


@pytest.mark.usefixtures("_in_a_task")
def test_only_a_thread_with_the_copied_context_belongs_to_the_task() -> None:
    install_job_fields()
    book = Book(logging.Formatter("%(job_id)s"))

    async def run_copy() -> None:
        await asyncio.to_thread(book.logger.info, "")

    asyncio.run(run_copy())
    thread = threading.Thread(target=book.logger.info, args=("",))
    thread.start()
    thread.join()

    assert book.lines == ["job-7", ""]


@pytest.mark.usefixtures("_in_a_task")
def test_extra_fields_of_a_record_win_over_those_of_taskmq() -> None:
    install_job_fields()
    book = Book(logging.Formatter(_FORMAT))

    book.logger.info("bought", extra={"task": "own", "queue": 7})

    assert book.lines == ["job-7|own|2|7|bought"]


@pytest.mark.usefixtures("_in_a_task")
def test_filters_formatters_and_other_processes_see_the_fields() -> None:
    install_job_fields()
    seen: list[logging.LogRecord] = []
    logger = logging.Logger("shop")  # noqa: LOG001 - it is this test\'s own
    logger.addFilter(lambda record: record.job_id == "job-7")  # type: ignore[attr-defined]
    logger.addFilter(lambda record: not seen.append(record))  # type: ignore[func-returns-value]

    logger.info("sold")

    (record,) = seen
    current_context.set(None)
    copies: list[Any] = [record, copy.copy(record), pickle.loads(pickle.dumps(record))]
    for each in copies:
        assert (each.job_id, each.attempt) == ("job-7", 2)
        each.getMessage()
        assert json.loads(json.dumps(vars(each), default=str))["queue"] == "sales"
    with pytest.raises(AttributeError, match="colour"):
        _ = record.colour  # type: ignore[attr-defined]


@pytest.mark.usefixtures("_in_a_task")
def test_a_custom_filter_adds_the_fields_without_the_factory() -> None:
    book = Book(logging.Formatter(_FORMAT), JobFields())

    book.logger.info("sold")

    assert book.lines == ["job-7|shop.sell|2|sales|sold"]


@pytest.mark.usefixtures("_in_a_task")
def test_a_custom_record_factory_keeps_making_the_records() -> None:
    class Own(logging.LogRecord):
        own = True

    logging.setLogRecordFactory(Own)
    install_job_fields()
    factory = logging.getLogRecordFactory()
    install_job_fields()

    record = logging.Logger("shop").makeRecord("shop", logging.INFO, "", 0, "sold", (), None)  # noqa: LOG001 - it is this test\'s own

    assert logging.getLogRecordFactory() is factory
    assert isinstance(record, Own)
    assert vars(record)["job_id"] == "job-7"


def test_installing_twice_has_no_further_effect() -> None:
    install_job_fields()
    factory = logging.getLogRecordFactory()

    install_job_fields()

    assert logging.getLogRecordFactory() is factory


@pytest.mark.usefixtures("_in_a_task")
def test_the_worker_console_names_the_job_unless_the_line_does() -> None:
    install_job_fields()
    book = Book(ConsoleFormatter())

    book.logger.warning("sold")
    book.logger.warning("job job-7 was sold")
    current_context.set(None)
    book.logger.warning("closed")

    sold, named, closed = book.lines
    assert sold.endswith(" shop: sold [shop.sell job=job-7 attempt=2 queue=sales]")
    assert named.endswith(" shop: job job-7 was sold")
    assert closed.endswith(" shop: closed")


def test_the_worker_console_accepts_records_without_fields() -> None:
    book = Book(ConsoleFormatter())

    book.logger.warning("early")

    assert book.lines[0].endswith(" shop: early")
