"""Examples for nodes and resources."""

from collections.abc import Mapping
from typing import Any, Final

from taskmq.server.examples.example import SOME_ID, Example

_NODE: Final[dict[str, Any]] = {
    "node_id": SOME_ID,
    "name": "gpu-1",
    "ip_address": "10.0.0.7",
    "status": "available",
    "capacity": {"cpu": 16.0, "memory": 68719476736.0, "gpu": 2.0, "slots": 8.0},
    "used": {"cpu": 4.0, "gpu": 1.0, "slots": 1.0},
    "labels": {"region": "eu"},
    "version": "1.0",
    "app_versions": ["2027.01.30-1"],
    "runs_jobs": True,
    "epoch": 1,
    "registered_at": "2027-01-30T17:12:01.250Z",
    "heartbeat_at": "2027-01-31T09:00:00.004Z",
    "workers": ["gpu-1:4711"],
    "queues": ["images", "taskmq.node.gpu-1"],
    "slots": 8,
    "running": 1,
    "cpu": 1.4,
    "memory": 2147483648,
}
_ALLOCATION: Final[dict[str, Any]] = {
    "allocation_id": SOME_ID,
    "job_id": "order-17",
    "node_id": SOME_ID,
    "tenant": "",
    "task": "",
    "amounts": {"cpu": 2.0, "memory": 1073741824.0},
    "status": "allocated",
    "start_time": "2027-01-31T09:00:00.004Z",
    "end_time": None,
    "expires_at": None,
}
_OF_NODE: Final = {"name": "gpu-1"}

NODES: Final[Mapping[str, Example]] = {
    "listNodes": Example(answers={200: {"items": [_NODE]}}),
    "getNode": Example(parameters=_OF_NODE, answers={200: _NODE}),
    "drainNode": Example(parameters=_OF_NODE, answers={200: {**_NODE, "status": "draining"}}),
    "resumeNode": Example(parameters=_OF_NODE, answers={200: _NODE}),
    "removeNode": Example(parameters=_OF_NODE, answers={200: _NODE}),
    "registerNodeCompat": Example(
        body={"name": "render-1", "ip": "10.0.0.9", "capacity": {"cpu": 16, "memory": "64G", "storage": "1T"}},
        answers={201: {"node_id": SOME_ID, "name": "render-1", "status": "available"}},
    ),
    "updateNodeStatusCompat": Example(
        body={"node_id": SOME_ID, "status": "busy"},
        answers={200: {"node_id": SOME_ID, "name": "render-1", "status": "busy"}},
    ),
    "listNodesCompat": Example(answers={200: [_NODE]}),
    "allocateResourcesCompat": Example(
        body={"job_id": "order-17", "node_id": "any", "cpu": 2, "memory": "1G", "storage": 0},
        answers={201: _ALLOCATION},
    ),
    "releaseResourcesCompat": Example(
        body={"allocation_id": SOME_ID},
        answers={200: {**_ALLOCATION, "status": "released", "end_time": "2027-01-31T10:00:00.000Z"}},
    ),
    "getResourceUsageCompat": Example(
        parameters={"node_id": "gpu-1", "start_time": "2027-01-31T00:00:00Z"},
        answers={
            200: {"hours": {"cpu": 2.0}, "allocations": 1, "is_bounded": False, "items": [_ALLOCATION], "next": None}
        },
    ),
}
