"""Authentication and authorisation: sign-ins, credentials, permissions, and their administration.

    cookie or token -> Access.authenticate -> Identity -> Access.authorise(permission, tenant) -> Scope
                                                                                     |
    the query of a repository takes the scope: rows of other tenants do not exist for it <-'

A credential is looked up in the store at most every `SessionTimes.fresh` seconds. A revocation by this process takes
effect at once, one by another process when that time is over. Errors of a sign-in never give the reason. Passwords
are hashed with argon2id, in threads, a few at a time.

Used by the server, and by `taskmq admin`, which needs no credential: users with access to the store's database may
change anything in it.
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
