"""Tests of workflows: nodes that end one by one, and lists of workflows."""

from taskmq.testing.state_suite.flows.ends import Flows
from taskmq.testing.state_suite.flows.lists import FlowLists
from taskmq.testing.state_suite.flows.redrives import FlowRedrives

__all__ = ["FlowLists", "FlowRedrives", "Flows"]
