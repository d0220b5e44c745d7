from typing import Any

import msgspec
import pytest

from taskmq.app_api.workflow_files.reader import read_workflow
from taskmq.errors import InvalidWorkflow
from taskmq.model.runs.graphs import encode_workflow

NIGHTLY = """\
workflow: nightly-report
params: {day: {type: string, format: date, default: "2027-01-31"}}
schedule: {cron: "30 2 * * *", tz: Europe/Berlin, overlap: skip}
steps:
  extract: {task: etl.extract, with: {day: "${params.day}"}}
  pages:   {task: etl.page, each: "${steps.extract.result}", limit: 20}
  merge:   {task: etl.merge, with: {pages: "${steps.pages.result}"}, retries: 3, timeout: 10m}
  approve: {wait: approval, needs: [merge], form: {type: object, properties: {ok: {type: boolean}}}, timeout: 2d}
  publish: {task: etl.publish, needs: [approve], if: "steps.approve.result.ok"}
  cleanup: {task: etl.cleanup, needs: [publish], rule: all_done}
"""

# Hostile files, and files that look right and are not: text, line, words of the reason.
_BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: &d [*c, *c]\ne: [*d, *d]"
_STEP = "steps:\n  a: {task: t}\n"
_WORK = f"workflow: w\n{_STEP}"
HOSTILE: list[tuple[str | bytes, int, str]] = [
    # The syntax of YAML.
    (_BOMB, 1, "anchors are not accepted"),
    ("workflow: w\nsteps: *steps", 2, "aliases are not accepted"),
    ("workflow: w\nsteps: &s {a: {task: t}}", 2, "anchors are not accepted"),
    ("workflow: !!python/object/apply:os.system ['id']", 1, "tags are not accepted"),
    ("workflow: w\nsteps: !!python/name:os.system", 2, "tags are not accepted"),
    ("workflow: w\nsteps: !env {a: {task: t}}", 2, "tags are not accepted"),
    ("workflow: !!str w\nsteps: {a: {task: t}}", 1, "tags are not accepted"),
    ("workflow: w\nsteps: !!set {a, b}", 2, "tags are not accepted"),
    ("workflow: w\nsteps: {a: {task: t, with: {x: !!binary aGk=}}}", 2, "tags are not accepted"),
    ("%TAG ! tag:evil.example,2000:\n---\nworkflow: w", 1, "tags are not accepted"),
    ("workflow: w\nsteps:\n  a:\n    <<: {task: t}", 4, "merge keys are not accepted"),
    (f"{_WORK}---\n{_WORK}", 4, "a second document"),
    (f"{_WORK}workflow: v", 4, "the key 'workflow' occurs twice"),
    ("workflow: w\nsteps:\n  a: {task: t}\n  a: {task: u}", 4, "the key 'a' occurs twice"),
    ("workflow: w\nsteps:\n  a: {task: t, task: u}", 3, "the key 'task' occurs twice"),
    ("workflow: w\nsteps: {1: {task: t}}", 2, "the key 1 is not text"),
    ("workflow: w\nsteps: {~: {task: t}}", 2, "the key None is not text"),
    ("workflow: w\nsteps:\n  ? [a]\n  : {task: t}", 3, "a key is a collection"),
    ("workflow: w\nsteps: " + "[" * 5_000, 2, "nested more than 40 deep"),
    ("workflow: w\nsteps: " + "{a: " * 41, 2, "nested more than 40 deep"),
    ("workflow: w\n" + "".join(f"{' ' * n}a:\n" for n in range(45)), 42, "nested more than 40 deep"),
    ("workflow: w\nsteps:\n\ta: {task: t}", 3, "malformed YAML"),
    ("workflow: w\nsteps: {a: {task: t}", 3, "malformed YAML"),
    ("workflow: w\nsteps: 'a", 2, "malformed YAML"),
    ('workflow: w\nsteps: {a: {task: "\\ud800"}}', 2, "malformed YAML"),
    ("workflow: \x01", 1, "malformed YAML"),
    ('workflow: w\nsteps: {a: {task: "\\0"}}', 2, "a NUL character"),
    (b"workflow: w\nsteps: \xff\xfe", 2, "the file is not UTF-8"),
    ("workflow: w\nsteps: {a: {sleep: .inf}}", 2, ".inf is not a number of JSON"),
    ("workflow: w\nsteps: {a: {sleep: .nan}}", 2, ".nan is not a number of JSON"),
    (f"workflow: w\nsteps: {{a: {{sleep: {'9' * 6_000}}}}}", 2, "does not fit into 64 bits"),
    ("workflow: w\nsteps: {a: {sleep: 1e999}}", 2, "is too large"),
    ("#" * 300_000, 1, "the maximum is 262,144"),
    ("", 1, "the file is empty"),
    ("- workflow: w", 1, "a workflow is a mapping"),
    # The words of workflows.
    ("workflow: w", 1, "a workflow needs at least one step"),
    ("workflow: w\nsteps: []", 2, "a workflow needs at least one step"),
    (_STEP, 1, "give a name of 1 to 128 characters"),
    (f"workflow: ../../etc/passwd\n{_STEP}", 1, "give a name of 1 to 128 characters"),
    (f"{_WORK}on_failure: rm -rf", 1, "unknown field `on_failure`"),
    ("workflow: w\nsteps:\n  a/b: {task: t}", 3, "use letters, digits"),
    ("workflow: w\nsteps:\n  a: {task: t}\n  b: {task: t, run: rm}", 4, "step b, run"),
    ("workflow: w\nsteps:\n  a: {task: t, needs: [b]}\n  b: {task: t, needs: [a]}", 3, "the step waits for itself"),
    ('workflow: w\nsteps:\n  a: {task: t,\n      with: {x: "${steps.z.result}"}}', 3, "no step 'z'"),
    ("workflow: w\nsteps:\n  a: {task: t,\n      if: \"__import__('os')\"}", 4, "step a, if"),
    (f"workflow: w\nsteps:\n  a: {{task: t, if: {'(' * 50}1}}", 3, "step a, if"),
    ("workflow: w\nsteps:\n  a:\n    task: t\n    retries: yes", 5, "'yes' is not a number of retries"),
    ("workflow: w\nsteps:\n  a:\n    task: t\n    priority: 99", 5, "step a, priority: Expected `int` <= 9"),
    ('workflow: w\nsteps:\n  a:\n    wait: s\n    form: {$ref: "file:///etc/passwd"}', 5, "not a JSON Schema"),
    (f'params:\n  x: {{pattern: "(a+)+(?=b)"}}\n{_WORK}', 2, "params.x: not a JSON Schema"),
    (f'schedule: {{cron: "* * * *"}}\n{_WORK}', 1, "has 4 fields, not 5"),
]  # fmt: skip


def test_the_example_of_the_pages_is_read() -> None:
    found = read_workflow(NIGHTLY.encode(), "yaml")

    assert found.content.workflow == "nightly-report"
    assert list(found.content.steps) == ["extract", "pages", "merge", "approve", "publish", "cleanup"]
    merge = found.content.steps["merge"]
    assert (merge.options, merge.timeout) == ({"max_attempts": 4}, "10m")
    assert found.content.schedule == {"cron": "30 2 * * *", "tz": "Europe/Berlin", "overlap": "skip"}


def test_options_of_jobs_stand_among_the_fields_of_a_step() -> None:
    text = """
workflow: w
steps:
  a:
    task: t
    queue: etl
    priority: high
    expires: 2h
    retry: {backoff: linear, base: 5s}
    guarantee: at_least_once
    labels: {team: ops}
    place: {labels: {zone: a}}
    max_attempts: 2
"""

    step = read_workflow(text.encode(), "yaml").content.steps["a"]

    assert step.options == {
        "queue": "etl",
        "priority": 8,
        "expires": "2h",
        "retry": {"backoff": "linear", "base": "5s", "cap": None, "jitter": None},
        "guarantee": "at_least_once",
        "labels": {"team": "ops"},
        "place": {"labels": {"zone": "a"}},
        "max_attempts": 2,
    }


def test_a_stored_content_is_read_again_as_the_same_version() -> None:
    first = read_workflow(NIGHTLY.replace("retries: 3", "retries: 3, expires: 1h, priority: low").encode(), "yaml")
    version, text = encode_workflow(first.content)

    again = read_workflow(text, "json")

    assert encode_workflow(again.content)[0] == version


def test_the_name_comes_from_the_caller_or_from_the_file() -> None:
    unnamed = NIGHTLY.replace("workflow: nightly-report\n", "").encode()

    assert read_workflow(unnamed, "yaml", name="other").content.workflow == "other"
    with pytest.raises(InvalidWorkflow, match="line 1, workflow: the file names 'nightly-report', not 'other'"):
        read_workflow(NIGHTLY.encode(), "yaml", name="other")


@pytest.mark.parametrize(("text", "line", "reason"), HOSTILE, ids=[f"{number}" for number in range(len(HOSTILE))])
def test_a_hostile_file_is_refused_with_line_and_reason(text: str | bytes, line: int, reason: str) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(text if isinstance(text, bytes) else text.encode(), "yaml")

    faults = [fault for fault in str(caught.value).splitlines() if reason in fault]
    assert faults, str(caught.value)
    assert faults[0].startswith((f"line {line}:", f"line {line}, "))
    assert len(str(caught.value)) < 30_000


@pytest.mark.parametrize(
    ("wrong", "line", "reason"),
    [
        ({"params": {"day": {"type": "integer", "default": "x"}}}, 5, "params.day.default: the value is not of type"),
        ({"params": {"day": 3}}, 2, "Expected `object`"),
        ({"schedule": None}, 2, "schedule: Expected `object`"),
        ({"schedule": {"cron": "@daily", "every": "1h"}}, 2, "give exactly one of cron, every and at"),
        ({"schedule": {"cron": "@daily", "overlap": "no"}}, 4, "schedule.overlap: Invalid enum value"),
        ({"schedule": {"cron": "@daily", "max_concurrency": 2}}, 2, "schedule: max_concurrency"),
        ({"schedule": {"cron": "@daily", "job": {"queue": "x"}}}, 4, "a step has the options of its jobs"),
        ({"schedule": {"cron": "@daily", "params": {"day": 1}}}, 4, "schedule.params: no parameter"),
        ({"schedule": {"cron": "@daily"}, "params": {"day": {}}}, 2, "schedule.params: give 'day'"),
        ({"workflow": 3}, 2, "workflow: Expected `str`"),
    ],
)
def test_a_wrong_field_is_refused_with_its_line(wrong: dict[str, Any], line: int, reason: str) -> None:
    text = msgspec.json.format(msgspec.json.encode({**wrong, "steps": {"a": {"task": "t"}}}), indent=1)

    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(text, "json")

    (fault,) = [each for each in str(caught.value).splitlines() if reason in each]
    assert fault.startswith(f"line {line}, ")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("retries: 1, max_attempts: 2", "give either retries or max_attempts"),
        ("expires: {a: 1}", "step a, expires: Expected `float | str | null`"),
        ("timeout: soon", "step a, timeout: timeout='soon' is not a duration"),
        ("queue: amq.x", "step a, queue"),
        ("guarantee: at_most_once, retries: 2", "step a, options"),
        ("unique: true", "step a, unique"),
    ],
)
def test_a_wrong_option_is_refused_with_its_step(options: str, reason: str) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(f"workflow: w\nsteps:\n  a: {{task: t, {options}}}".encode(), "yaml")

    assert str(caught.value).startswith("line 3, ")
    assert reason in str(caught.value)


def test_a_timeout_may_be_a_parameter() -> None:
    text = b"workflow: w\nparams: {most: {type: string}}\nsteps: {a: {task: t, timeout: '${params.most}'}}"

    assert read_workflow(text, "yaml").content.steps["a"].timeout == "${params.most}"


def test_at_most_fifty_faults_are_named_in_the_order_of_their_lines() -> None:
    steps = "".join(f"  a{number}: {{task: t, color: red}}\n" for number in range(60))

    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(f"workflow: w\nsteps:\n{steps}".encode(), "yaml")

    assert [fault.split(",")[0] for fault in str(caught.value).splitlines()] == [
        f"line {line}" for line in range(3, 53)
    ]


def test_only_roles_of_users_may_answer_a_wait() -> None:
    with pytest.raises(InvalidWorkflow, match="line 2, step a, roles: no role 'boss': known: viewer, submitter"):
        read_workflow(b"workflow: w\nsteps: {a: {wait: s, roles: [boss]}}", "yaml")
