"""Progress and saved values in PostgreSQL: which writes wait for the disk, and which are made in place."""

from typing import Any, Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import JobStore
from taskmq.model.history.journals import RunProgress, SaveRequest
from taskmq.testing.job_store_suite.driver import JobDriver, report
from taskmq_sql import open_job_store

_AT: Final = 1_700_000_000_000
_RECORD: Final = """
create table public.written (place text, is_durable text);
create function public.record() returns trigger language plpgsql as $$ begin
  insert into public.written values (tg_table_name, current_setting('synchronous_commit')); return new;
end $$;
create trigger record before insert or update on taskmq.job_progress for each row execute function public.record();
create trigger record before insert or update on taskmq.saved_value for each row execute function public.record()"""


@pytest.mark.real_time
async def test_only_progress_does_not_wait_for_the_disk(job_store_url: str) -> None:
    store: JobStore = open_job_store(job_store_url, BrokerOptions(name="journals"))
    connection: Any = await asyncpg.connect(job_store_url)
    try:
        await connection.execute(_RECORD)
        job = await JobDriver(store).dispatch_new()
        progress = RunProgress(done=1, updated=_AT)
        begin = SaveRequest(reply="worker.saved.w1", number=1, run="a")

        for _ in range(2):
            await store.journals.report([report(job, "progress", progress=progress)])
        (begun,) = await store.journals.save([report(job, "saving", saving=begin)])
        save = SaveRequest(reply="worker.saved.w1", number=2, run="a", fence=begun.fence, name="checkpoint")
        await store.journals.save([report(job, "saving", saving=save)])

        rows = await connection.fetch("select place, is_durable from public.written")
        assert {tuple(row) for row in rows} == {("job_progress", "off"), ("saved_value", "on")}
        # The key alone is indexed, and it never changes.
        assert await connection.fetchval("select count(*) from pg_indexes where tablename = 'job_progress'") == 1
    finally:
        await store.aclose()
        await connection.close()
