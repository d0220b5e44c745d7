"""The calls of the API that the client makes, by the name that its description gives them."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from taskmq.api.values import API

__all__ = ["OPERATIONS", "Operation"]


class Operation(NamedTuple):
    """One call of the API.

    Attributes:
        path: with the names of its parameters in braces.
        repeats: it may be sent again where its outcome is unknown: twice is the same as once.
    """

    method: str
    path: str
    repeats: bool = False


def _reads(path: str) -> Operation:
    return Operation("GET", f"{API}{path}", repeats=True)


def _posts(path: str, *, repeats: bool = False) -> Operation:
    return Operation("POST", f"{API}{path}", repeats)


OPERATIONS: Final[Mapping[str, Operation]] = {
    "getLiveness": _reads("/health/live"),
    "getReadiness": _reads("/health/ready"),
    "getHealth": _reads("/health"),
    "getServer": _reads("/server"),
    "getOpenApi": Operation("GET", "/api/openapi.json", repeats=True),
    # Sign-in and one's own account.
    "logIn": _posts("/auth/login"),
    "logOut": _posts("/auth/logout"),
    "authorize": _posts("/auth/authorize", repeats=True),
    "getCaller": _reads("/auth/me"),
    "changePassword": _posts("/auth/password"),
    "listTokens": _reads("/tokens"),
    "addToken": _posts("/tokens"),
    "revokeToken": Operation("DELETE", f"{API}/tokens/{{token_id}}"),
    "listSessions": _reads("/sessions"),
    "endSession": Operation("DELETE", f"{API}/sessions/{{session_id}}"),
    "listUserSessions": _reads("/users/{user_id}/sessions"),
    "endUserSession": Operation("DELETE", f"{API}/users/{{user_id}}/sessions/{{session_id}}"),
    "listUserTokens": _reads("/users/{user_id}/tokens"),
    "revokeUserToken": Operation("DELETE", f"{API}/users/{{user_id}}/tokens/{{token_id}}"),
    # Administration.
    "listUsers": _reads("/users"),
    "addUser": _posts("/users"),
    "getUser": _reads("/users/{user_id}"),
    "changeUser": Operation("PATCH", f"{API}/users/{{user_id}}"),
    "eraseUser": Operation("DELETE", f"{API}/users/{{user_id}}"),
    "setRole": Operation("PUT", f"{API}/users/{{user_id}}/roles/{{role_tenant}}", repeats=True),
    "removeRole": Operation("DELETE", f"{API}/users/{{user_id}}/roles/{{role_tenant}}"),
    "listTenants": _reads("/tenants"),
    "addTenant": _posts("/tenants"),
    "changeTenant": Operation("PATCH", f"{API}/tenants/{{name}}", repeats=True),
    "removeTenant": Operation("DELETE", f"{API}/tenants/{{name}}"),
    "listMembers": _reads("/members"),
    "setMember": Operation("PUT", f"{API}/members/{{user}}", repeats=True),
    "removeMember": Operation("DELETE", f"{API}/members/{{user}}"),
    "listAuditEntries": _reads("/audit"),
    "verifyAudit": _reads("/audit/verify"),
    "exportAudit": _reads("/audit/chain"),
    # Jobs.
    "submitJobs": _posts("/jobs"),
    "listJobs": _reads("/jobs"),
    "countJobs": _reads("/jobs/count"),
    "countJobsOfFilters": _reads("/jobs/counts"),
    "getJob": _reads("/jobs/{job_id}"),
    "patchJob": Operation("PATCH", f"{API}/jobs/{{job_id}}"),
    "cancelJob": Operation("DELETE", f"{API}/jobs/{{job_id}}"),
    "getJobHistory": _reads("/jobs/{job_id}/history"),
    "getJobAttempts": _reads("/jobs/{job_id}/attempts"),
    "explainJob": _reads("/jobs/{job_id}/explain"),
    "holdJob": _posts("/jobs/{job_id}/hold"),
    "releaseJob": _posts("/jobs/{job_id}/release"),
    "retryJob": _posts("/jobs/{job_id}/retry"),
    "cloneJob": _posts("/jobs/{job_id}/clone"),
    "actOnJobs": _posts("/bulk"),
    "beginBulk": _posts("/bulk/operations"),
    "listBulks": _reads("/bulk/operations"),
    "getBulk": _reads("/bulk/operations/{bulk_id}"),
    "abortBulk": Operation("DELETE", f"{API}/bulk/operations/{{bulk_id}}", repeats=True),
    "listDefinitions": _reads("/definitions"),
    "getDefinition": _reads("/definitions/{name}"),
    "listDefinitionVersions": _reads("/definitions/{name}/versions"),
    "putDefinition": Operation("PUT", f"{API}/definitions/{{name}}"),
    "deleteDefinition": Operation("DELETE", f"{API}/definitions/{{name}}"),
    # The installation.
    "listQueues": _reads("/queues"),
    "getQueue": _reads("/queues/{name}"),
    "pauseQueue": _posts("/queues/{name}/pause", repeats=True),
    "resumeQueue": _posts("/queues/{name}/resume", repeats=True),
    "moveMessages": _posts("/queues/{name}/move"),
    "purgeQueue": _posts("/queues/{name}/purge"),
    "listDeadLetterQueues": _reads("/dead-letters"),
    "listDeadLetters": _reads("/dead-letters/{queue}"),
    "groupDeadLetters": _reads("/dead-letters/{queue}/groups"),
    "replayDeadLetters": _posts("/dead-letters/{queue}/replay"),
    "purgeDeadLetters": _posts("/dead-letters/{queue}/purge"),
    "listWorkers": _reads("/workers"),
    "controlWorkers": _posts("/workers/control", repeats=True),
    "listTasks": _reads("/tasks"),
    "getTask": _reads("/tasks/{name}"),
    "listSchedules": _reads("/schedules"),
    "getSchedule": _reads("/schedules/{name}"),
    "putSchedule": Operation("PUT", f"{API}/schedules/{{name}}"),
    "changeSchedule": Operation("PATCH", f"{API}/schedules/{{name}}"),
    "removeSchedule": Operation("DELETE", f"{API}/schedules/{{name}}"),
    "getNextOccurrences": _reads("/schedules/{name}/next"),
    "explainSchedule": _reads("/schedules/{name}/explain"),
    "explainRule": _posts("/schedules/explain", repeats=True),
    "pauseSchedule": _posts("/schedules/{name}/pause", repeats=True),
    "resumeSchedule": _posts("/schedules/{name}/resume", repeats=True),
    "runSchedule": _posts("/schedules/{name}/run"),
    "backfillSchedule": _posts("/schedules/{name}/backfill"),
    "listWorkflows": _reads("/workflows"),
    "getWorkflow": _reads("/workflows/{workflow_id}"),
    "cancelWorkflow": _posts("/workflows/{workflow_id}/cancel"),
    "closeWorkflow": _posts("/workflows/{workflow_id}/close"),
    "redriveWorkflow": _posts("/workflows/{workflow_id}/redrive"),
    # Turns and quotas.
    "listPools": _reads("/pools"),
    "getPool": _reads("/pools/{name}"),
    "putPool": Operation("PUT", f"{API}/pools/{{name}}", repeats=True),
    "removePool": Operation("DELETE", f"{API}/pools/{{name}}"),
    "putQueuePolicy": Operation("PUT", f"{API}/queues/{{name}}/policy", repeats=True),
    "removeQueuePolicy": Operation("DELETE", f"{API}/queues/{{name}}/policy", repeats=True),
    "listQuotas": _reads("/quotas"),
    "putQuota": Operation("PUT", f"{API}/quotas/{{name}}", repeats=True),
    "removeQuota": Operation("DELETE", f"{API}/quotas/{{name}}"),
    # Host nodes.
    "listNodes": _reads("/nodes"),
    "getNode": _reads("/nodes/{name}"),
    "drainNode": _posts("/nodes/{name}/drain", repeats=True),
    "resumeNode": _posts("/nodes/{name}/resume", repeats=True),
    "removeNode": Operation("DELETE", f"{API}/nodes/{{name}}"),
    "registerNodeOfDocument": Operation("POST", "/nodes/register", repeats=True),
    "updateNodeStatusOfDocument": Operation("POST", "/nodes/update-status", repeats=True),
    "allocateResourcesOfDocument": Operation("POST", "/resources/allocate"),
    "releaseResourcesOfDocument": Operation("POST", "/resources/release", repeats=True),
    "getResourceUsageOfDocument": Operation("GET", "/resources/usage", repeats=True),
    # History.
    "getJobLogs": _reads("/jobs/{job_id}/logs"),
    "searchLogs": _reads("/logs"),
    "listRollups": _reads("/rollups"),
    "queryMetrics": _reads("/metrics/query"),
    "listFailures": _reads("/failures"),
    "listAlerts": _reads("/alerts"),
    "listAlertMetrics": _reads("/alerts/metrics"),
    "listAlertRules": _reads("/alerts/rules"),
    "putAlertRule": Operation("PUT", f"{API}/alerts/rules/{{name}}"),
    "deleteAlertRule": Operation("DELETE", f"{API}/alerts/rules/{{name}}"),
    "testAlertRule": _posts("/alerts/rules/{name}/test"),
    "listSilences": _reads("/alerts/silences"),
    "addSilence": _posts("/alerts/silences"),
    "deleteSilence": Operation("DELETE", f"{API}/alerts/silences/{{silence_id}}"),
    "listAlertNotices": _reads("/alerts/notices"),
    "followEvents": _reads("/events"),
    "sendEvent": _posts("/events"),
}
"""By the operation's id in `/api/openapi.json`."""
