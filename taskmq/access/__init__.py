"""Who calls and what they may do: logins, credentials, permissions, and the administration of all that.

    cookie or token -> Access.authenticate -> Identity -> Access.authorise(permission, tenant) -> Scope
                                                                                     |
    a repository's query takes the scope: rows of other tenants do not exist for it <-'

A credential is looked up in the store at most every `SessionTimes.fresh` seconds; what this process revokes ends
here at once, what another one revokes ends here when that time is over. Errors of a login never say what was wrong.
Passwords are hashed with argon2id, in threads, a few at a time.

Used by the server, and by `taskmq admin`, which needs no credential: a user who reaches the store's database may do
anything to it.
"""

from taskmq.access.access import Access, LoggedIn, SessionTimes, actor_of
from taskmq.access.administration import IdentityAdministration, NewSecret, PasswordSet
from taskmq.access.passwords import PasswordHasher

__all__ = [
    "Access",
    "IdentityAdministration",
    "LoggedIn",
    "NewSecret",
    "PasswordHasher",
    "PasswordSet",
    "SessionTimes",
    "actor_of",
]
