"""Each capability has its own store."""

import uuid

import pytest

from taskmq import UnsupportedFeature
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores import Stores, require_store
from taskmq_local import forget_memory, open_memory_state

CAPABILITIES = [name for name, member in vars(Stores).items() if isinstance(member, property)]


def test_a_state_provides_every_capability_and_without_one_there_are_none() -> None:
    name = uuid.uuid4().hex
    state = open_memory_state(f"memory://{name}", BrokerOptions(name="test"))
    stores, none = Stores(state), Stores(None)

    for capability in CAPABILITIES:
        assert getattr(stores, capability) is getattr(state, capability), capability
        assert getattr(none, capability) is None, capability
    forget_memory(name)


def test_a_named_store_overrides_the_state() -> None:
    name = uuid.uuid4().hex
    state = open_memory_state(f"memory://{name}", BrokerOptions(name="test"))
    other = open_memory_state(f"memory://{name}-other", BrokerOptions(name="test"))
    stores = Stores(state, results=other.results, claims=other.claims)

    assert stores.results is other.results
    assert stores.claims is other.claims
    assert stores.leases is state.leases
    forget_memory(name)
    forget_memory(f"{name}-other")


def test_a_missing_store_is_requested_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match=r"^locks need a state: TaskMQ\(\.\.\., state='redis://\.\.\.'\)"):
        require_store(Stores(None).leases, "locks need")
