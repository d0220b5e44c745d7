"""Workflows: nodes that end one by one, and the list of those that there are."""

from taskmq.testing.state_suite.flows.ends import Flows
from taskmq.testing.state_suite.flows.lists import FlowLists
from taskmq.testing.state_suite.flows.redrives import FlowRedrives

__all__ = ["FlowLists", "FlowRedrives", "Flows"]
