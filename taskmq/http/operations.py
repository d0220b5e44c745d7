"""The API operations that the client uses, by their ids in the OpenAPI document."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from taskmq.api.values import API

__all__ = ["OPERATIONS", "Operation"]


class Operation(NamedTuple):
    """An operation of the API.

    Attributes:
        path: the path, with parameter names in braces.
        repeats: whether it may be repeated if its outcome is unknown, because doing it twice has the same effect.
    """

    method: str
    path: str
    repeats: bool = False


def _get(path: str) -> Operation:
    return Operation("GET", f"{API}{path}", repeats=True)


def _post(path: str, *, repeats: bool = False) -> Operation:
    return Operation("POST", f"{API}{path}", repeats)


OPERATIONS: Final[Mapping[str, Operation]] = {
    "getLiveness": _get("/health/live"),
    "getReadiness": _get("/health/ready"),
    "getHealth": _get("/health"),
    "getSystemHealth": _get("/health/system"),
    "getServer": _get("/server"),
    "getOpenApi": Operation("GET", "/api/openapi.json", repeats=True),
    "logIn": _post("/auth/login"),
    "logOut": _post("/auth/logout"),
    "authorize": _post("/auth/authorize", repeats=True),
    "getCaller": _get("/auth/me"),
    "changePassword": _post("/auth/password"),
    "listTokens": _get("/tokens"),
    "addToken": _post("/tokens"),
    "revokeToken": Operation("DELETE", f"{API}/tokens/{{token_id}}"),
    "listSessions": _get("/sessions"),
    "endSession": Operation("DELETE", f"{API}/sessions/{{session_id}}"),
    "listUserSessions": _get("/users/{user_id}/sessions"),
    "endUserSession": Operation("DELETE", f"{API}/users/{{user_id}}/sessions/{{session_id}}"),
    "listUserTokens": _get("/users/{user_id}/tokens"),
    "revokeUserToken": Operation("DELETE", f"{API}/users/{{user_id}}/tokens/{{token_id}}"),
    "listUsers": _get("/users"),
    "addUser": _post("/users"),
    "getUser": _get("/users/{user_id}"),
    "changeUser": Operation("PATCH", f"{API}/users/{{user_id}}"),
    "eraseUser": Operation("DELETE", f"{API}/users/{{user_id}}"),
    "setRole": Operation("PUT", f"{API}/users/{{user_id}}/roles/{{role_tenant}}", repeats=True),
    "removeRole": Operation("DELETE", f"{API}/users/{{user_id}}/roles/{{role_tenant}}"),
    "listTenants": _get("/tenants"),
    "addTenant": _post("/tenants"),
    "changeTenant": Operation("PATCH", f"{API}/tenants/{{name}}", repeats=True),
    "removeTenant": Operation("DELETE", f"{API}/tenants/{{name}}"),
    "listMembers": _get("/members"),
    "setMember": Operation("PUT", f"{API}/members/{{user}}", repeats=True),
    "removeMember": Operation("DELETE", f"{API}/members/{{user}}"),
    "listAuditEntries": _get("/audit"),
    "verifyAudit": _get("/audit/verify"),
    "exportAudit": _get("/audit/chain"),
    "submitJobs": _post("/jobs"),
    "listJobs": _get("/jobs"),
    "countJobs": _get("/jobs/count"),
    "countJobsOfFilters": _get("/jobs/counts"),
    "getJob": _get("/jobs/{job_id}"),
    "patchJob": Operation("PATCH", f"{API}/jobs/{{job_id}}"),
    "cancelJob": Operation("DELETE", f"{API}/jobs/{{job_id}}"),
    "getJobHistory": _get("/jobs/{job_id}/history"),
    "getJobAttempts": _get("/jobs/{job_id}/attempts"),
    "explainJob": _get("/jobs/{job_id}/explain"),
    "holdJob": _post("/jobs/{job_id}/hold"),
    "releaseJob": _post("/jobs/{job_id}/release"),
    "retryJob": _post("/jobs/{job_id}/retry"),
    "cloneJob": _post("/jobs/{job_id}/clone"),
    "actOnJobs": _post("/bulk"),
    "beginBulk": _post("/bulk/operations"),
    "listBulks": _get("/bulk/operations"),
    "getBulk": _get("/bulk/operations/{bulk_id}"),
    "abortBulk": Operation("DELETE", f"{API}/bulk/operations/{{bulk_id}}", repeats=True),
    "listDefinitions": _get("/definitions"),
    "getDefinition": _get("/definitions/{name}"),
    "listDefinitionVersions": _get("/definitions/{name}/versions"),
    "putDefinition": Operation("PUT", f"{API}/definitions/{{name}}"),
    "deleteDefinition": Operation("DELETE", f"{API}/definitions/{{name}}"),
    "listQueues": _get("/queues"),
    "getQueue": _get("/queues/{name}"),
    "getDemand": _get("/queues/{name}/demand"),
    "pauseQueue": _post("/queues/{name}/pause", repeats=True),
    "resumeQueue": _post("/queues/{name}/resume", repeats=True),
    "moveMessages": _post("/queues/{name}/move"),
    "purgeQueue": _post("/queues/{name}/purge"),
    "listDeadLetterQueues": _get("/dead-letters"),
    "listDeadLetters": _get("/dead-letters/{queue}"),
    "groupDeadLetters": _get("/dead-letters/{queue}/groups"),
    "replayDeadLetters": _post("/dead-letters/{queue}/replay"),
    "purgeDeadLetters": _post("/dead-letters/{queue}/purge"),
    "listWorkers": _get("/workers"),
    "controlWorkers": _post("/workers/control", repeats=True),
    "listTasks": _get("/tasks"),
    "getTask": _get("/tasks/{name}"),
    "listReactions": _get("/reactions"),
    "getReaction": _get("/reactions/{name}"),
    "listSchedules": _get("/schedules"),
    "getSchedule": _get("/schedules/{name}"),
    "putSchedule": Operation("PUT", f"{API}/schedules/{{name}}"),
    "changeSchedule": Operation("PATCH", f"{API}/schedules/{{name}}"),
    "removeSchedule": Operation("DELETE", f"{API}/schedules/{{name}}"),
    "getNextOccurrences": _get("/schedules/{name}/next"),
    "explainSchedule": _get("/schedules/{name}/explain"),
    "explainRule": _post("/schedules/explain", repeats=True),
    "pauseSchedule": _post("/schedules/{name}/pause", repeats=True),
    "resumeSchedule": _post("/schedules/{name}/resume", repeats=True),
    "runSchedule": _post("/schedules/{name}/run"),
    "backfillSchedule": _post("/schedules/{name}/backfill"),
    "listFlows": _get("/flows"),
    "getFlow": _get("/flows/{workflow_id}"),
    "cancelFlow": _post("/flows/{workflow_id}/cancel"),
    "closeFlow": _post("/flows/{workflow_id}/close"),
    "redriveFlow": _post("/flows/{workflow_id}/redrive"),
    "listPools": _get("/pools"),
    "getPool": _get("/pools/{name}"),
    "putPool": Operation("PUT", f"{API}/pools/{{name}}", repeats=True),
    "removePool": Operation("DELETE", f"{API}/pools/{{name}}"),
    "putQueuePolicy": Operation("PUT", f"{API}/queues/{{name}}/policy", repeats=True),
    "removeQueuePolicy": Operation("DELETE", f"{API}/queues/{{name}}/policy", repeats=True),
    "listQuotas": _get("/quotas"),
    "putQuota": Operation("PUT", f"{API}/quotas/{{name}}", repeats=True),
    "removeQuota": Operation("DELETE", f"{API}/quotas/{{name}}"),
    "listNodes": _get("/nodes"),
    "getNode": _get("/nodes/{name}"),
    "drainNode": _post("/nodes/{name}/drain", repeats=True),
    "resumeNode": _post("/nodes/{name}/resume", repeats=True),
    "removeNode": Operation("DELETE", f"{API}/nodes/{{name}}"),
    "registerNodeCompat": Operation("POST", "/nodes/register", repeats=True),
    "updateNodeStatusCompat": Operation("POST", "/nodes/update-status", repeats=True),
    "allocateResourcesCompat": Operation("POST", "/resources/allocate"),
    "releaseResourcesCompat": Operation("POST", "/resources/release", repeats=True),
    "getResourceUsageCompat": Operation("GET", "/resources/usage", repeats=True),
    "getJobLogs": _get("/jobs/{job_id}/logs"),
    "searchLogs": _get("/logs"),
    "listRollups": _get("/rollups"),
    "queryMetrics": _get("/metrics/query"),
    "listFailures": _get("/failures"),
    "listAlerts": _get("/alerts"),
    "listAlertMetrics": _get("/alerts/metrics"),
    "listAlertRules": _get("/alerts/rules"),
    "putAlertRule": Operation("PUT", f"{API}/alerts/rules/{{name}}"),
    "deleteAlertRule": Operation("DELETE", f"{API}/alerts/rules/{{name}}"),
    "testAlertRule": _post("/alerts/rules/{name}/test"),
    "listSilences": _get("/alerts/silences"),
    "addSilence": _post("/alerts/silences"),
    "deleteSilence": Operation("DELETE", f"{API}/alerts/silences/{{silence_id}}"),
    "listAlertNotices": _get("/alerts/notices"),
    "followEvents": _get("/events"),
    "sendEvent": _post("/events"),
}
"""Operations by their ids in `/api/openapi.json`."""
