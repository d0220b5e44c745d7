"""Tests of failed logins, counted across all stores of a database."""

import asyncio

from taskmq.model.identity import ThrottleKey, throttle_keys
from taskmq.testing.job_store_suite.identity.kit import IdentityCase
from taskmq.testing.runner import case


class LoginCases(IdentityCase):
    """Every guarantee of `CredentialStore` about logins."""

    @case
    async def test_failed_logins_count_across_stores_and_after_they_close(self) -> None:
        people, other, third = self.people(), self.people(), self.people()
        keys = throttle_keys("ann", "192.0.2.1")
        free = min(key.free for key in keys)

        for turn in range(free):
            assert await (people, other)[turn % 2].credentials.begin_login(keys) == 0
        await people.store.aclose()

        assert 0 < await other.credentials.begin_login(keys) <= 1000
        assert 0 < await third.credentials.begin_login(keys) <= 1000

    @case
    async def test_concurrent_login_attempts_are_limited_like_sequential_ones(self) -> None:
        stores = [self.people() for _ in range(2)]
        keys = throttle_keys("ann", "192.0.2.1")
        free = min(key.free for key in keys)

        waits = await asyncio.gather(*(stores[turn % 2].credentials.begin_login(keys) for turn in range(4 * free)))

        assert waits.count(0) == free
        assert all(0 < wait <= 1000 for wait in waits if wait)

    @case
    async def test_a_blocked_login_attempt_does_not_extend_the_wait(self) -> None:
        people = self.people()
        keys = throttle_keys("ann", "192.0.2.1")
        for _ in range(min(key.free for key in keys)):
            await people.credentials.begin_login(keys)

        waits = [await people.credentials.begin_login(keys) for _ in range(10)]

        assert all(0 < wait <= 1000 for wait in waits)

    @case
    async def test_another_name_from_another_address_does_not_wait(self) -> None:
        people = self.people()
        keys = throttle_keys("ann", "192.0.2.1")
        for _ in range(min(key.free for key in keys) + 1):
            await people.credentials.begin_login(keys)

        assert await people.credentials.begin_login(throttle_keys("ann", "192.0.2.2")) == 0
        assert await people.credentials.begin_login(throttle_keys("bob", "192.0.2.1")) == 0

    @case
    async def test_a_successful_login_clears_its_failures_but_not_those_of_others(self) -> None:
        people = self.people()
        mine, shared = ThrottleKey("mine", 3, 60_000), ThrottleKey("shared", 6, 60_000, is_shared=True)

        for _ in range(3):
            assert await people.credentials.begin_login((mine, shared)) == 0
        await people.credentials.end_login((mine, shared))
        # The address has two attempts left.
        waits = [await people.credentials.begin_login((shared,)) for _ in range(5)]

        assert [wait == 0 for wait in waits] == [True] * 4 + [False]
        assert await people.credentials.begin_login((mine,)) == 0

    @case
    async def test_failures_of_others_do_not_delay_a_user_at_a_known_address(self) -> None:
        people = self.people()
        office = "192.0.2.1"
        known = throttle_keys("ann", office)
        assert await people.credentials.begin_login(known) == 0
        await people.credentials.end_login(known)

        for number in range(max(key.free for key in known)):
            # Wrong passwords for other names at the address, and for the name at other addresses.
            await people.credentials.begin_login(throttle_keys(f"user-{number}", office))
            await people.credentials.begin_login(throttle_keys("ann", f"198.51.100.{number}"))
        await people.credentials.sweep()

        assert await people.credentials.begin_login(throttle_keys("bob", office)) > 0
        assert await people.credentials.begin_login(throttle_keys("ann", "203.0.113.9")) > 0
        assert await people.credentials.begin_login(known) == 0

    @case
    async def test_a_known_address_does_not_speed_up_password_guessing(self) -> None:
        people = self.people()
        keys = throttle_keys("ann", "192.0.2.1")
        await people.credentials.begin_login(keys)
        await people.credentials.end_login(keys)

        waits = [await people.credentials.begin_login(keys) for _ in range(2 * keys[0].free)]

        assert waits.count(0) == keys[0].free

    @case
    async def test_a_sweep_keeps_failures_that_still_count(self) -> None:
        people = self.people()
        ann = await people.user("ann")
        kept, over = await people.session(ann), await people.session(ann, idle_ms=0)
        key = ThrottleKey("mine", 1, 60_000)
        await people.credentials.begin_login((key,))

        await people.credentials.sweep()

        assert over.id != kept.id
        assert [each.id for each in await people.credentials.sessions(ann.id)] == [kept.id]
        assert await people.credentials.begin_login((key,)) > 0
