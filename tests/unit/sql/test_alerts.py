"""Number of statements for evaluating alerts: they run one by one while other schedulers wait."""

import asyncio

from taskmq.model.history.alerts import Alert, AlertState
from taskmq_sql.history.alerts import SqlAlerts
from taskmq_sql.steps import Query, T, Work


class _Empty:
    """A `Runner` on tables without rows, which records the statements."""

    def __init__(self) -> None:
        self.statements: list[Query] = []

    async def read(self, work: Work[T]) -> T:
        return await self.write(work)

    show = read

    async def change(self, work: Work[T], *, is_lasting: bool = True) -> T:
        del is_lasting
        return await self.write(work)

    async def write(self, work: Work[T], *, is_lasting: bool = True) -> T:
        steps = work()
        try:
            self.statements.append(next(steps))
            while True:
                self.statements.append(steps.send([]))
        except StopIteration as end:
            value: T = end.value
            return value


def test_ten_thousand_alerts_take_two_hundred_bounded_statements() -> None:
    runner = _Empty()
    alerts = [
        Alert(tenant="", rule="r", subject=f"task:{n}", state=AlertState.FIRING, since=1, value=1.0, changed=1)
        for n in range(10_000)
    ]

    assert asyncio.run(SqlAlerts(runner).commit(alerts, []))

    assert runner.statements[0].text == "lock"
    assert len(runner.statements) == 201
    assert max(len(statement.args) for statement in runner.statements) <= 600
