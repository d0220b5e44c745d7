"""Users, and the roles that they have."""

from collections.abc import AsyncIterator

from taskmq.api.accounts import UserView
from taskmq.api.sign_in import MembershipView
from taskmq.api.values import MOST_PER_PAGE
from taskmq.app_api.caller import AppAccounts
from taskmq.app_api.views import instant_text
from taskmq.contracts.identity import User
from taskmq.model.identity import Membership

__all__ = ["AppUsers", "user_view"]


class AppUsers(AppAccounts):
    """Users, by their ids."""

    async def list(self) -> AsyncIterator[UserView]:
        """All users, by name."""
        after = ""
        while page := await self._accounts.users(after=after, limit=MOST_PER_PAGE):
            for user in page:
                yield user_view(user)
            after = page[-1].name


def user_view(user: User, memberships: tuple[Membership, ...] | None = None) -> UserView:
    """A user as the API shows them, with their roles where these are given."""
    return UserView(
        id=user.id,
        name=user.name,
        email=user.email,
        created=instant_text(user.created),
        version=user.version,
        disabled=instant_text(user.disabled),
        has_password=user.password_changed is not None,
        last_login=instant_text(user.last_login),
        memberships=None
        if memberships is None
        else [MembershipView(tenant=one.tenant, role=one.role, tasks=list(one.tasks)) for one in memberships],
    )
