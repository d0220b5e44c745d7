"""Invitations: the messages of dispatched jobs, and their publication."""

from taskmq.scheduler.invitations.messages import InvitationMessages
from taskmq.scheduler.invitations.publisher import InvitationPublisher

__all__ = ["InvitationMessages", "InvitationPublisher"]
