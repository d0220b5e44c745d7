"""Named workflows: functions that build graphs.

    @app.workflow  ->  a task that calls the function, and a content whose first step runs it
    a run          ->  this step's job returns the graph; the run continues with it

So any program, schedule or user can start a run without the code of the app.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast, get_args, get_origin

import msgspec

from taskmq.contracts.jobs import NewRun
from taskmq.control_flow import Reject
from taskmq.errors import EncodeError, InvalidArguments, InvalidOption
from taskmq.model.envelope import JSON
from taskmq.model.jobs.call_schemas import schema_of
from taskmq.model.runs.graphs import StepContent, WorkflowContent, encode_workflow
from taskmq.model.units import Duration
from taskmq.model.values.annotations import hints_of
from taskmq.model.values.return_type import ReturnType
from taskmq.model.values.wire_form import encode_value
from taskmq.workflow.batch import Batch
from taskmq.workflow.parts import Group, Workflow
from taskmq.workflow.runs.handle import Run
from taskmq.workflow.runs.service import RunService, check_active_runs, check_run_id, timeout_of_run
from taskmq.workflow.shapes import ListOf, Shape
from taskmq.workflow.step_call import StepTask

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

_BUILD_STEP: Final = "build_graph"


class WorkflowCall(Generic[P, R_co]):
    """A named workflow with options for its runs."""

    def __init__(
        self,
        workflow: "NamedWorkflow[P, R_co]",
        *,
        run_id: str | None = None,
        tenant: str | None = None,
        labels: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> None:
        self._workflow = workflow
        self._run_id = run_id
        self._tenant = tenant
        self._labels = dict(labels or {})
        self._timeout = timeout_of_run(timeout)

    async def asend(self, *args: P.args, **kwargs: P.kwargs) -> Run[R_co]:
        """Start a run; return its handle once the run is in the store.

        Raises:
            InvalidArguments, EncodeError: the arguments do not fit; nothing was started.
            StoreUnavailable: the store could not be reached; the run may have started.
            UnsupportedFeature: the app has no store.
        """
        workflow = self._workflow
        run = NewRun(
            id="",
            tenant=self._tenant or "",
            workflow=workflow.name,
            content=encode_workflow(workflow.content)[1],
            params=msgspec.json.encode(workflow.encode_params(args, kwargs)),
            labels=self._labels,
            timeout=self._timeout,
        )
        service = workflow.service
        started = await service.start_run(run, run_id=self._run_id, tenant=self._tenant)
        return Run(started, service=service, shape=workflow.shape)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Run[R_co]:
        """Do what `asend` does, for code without an event loop."""
        return self._workflow.service.sessions.run_sync(self.asend(*args, **kwargs), instead="asend")


class NamedWorkflow(WorkflowCall[P, R_co]):
    """A workflow under a name, whose graph a function builds: call it to build the graph, or `send` it to run it.

    Attributes:
        function: the function itself.
        task: the task that builds the graph of a run.
        shape: type of the value of its runs; None for plain data.
        content: the content with which its runs begin.
    """

    def __init__(
        self,
        name: str,
        function: Callable[P, Workflow[R_co]],
        task: StepTask,
        *,
        timeout: Duration | None = None,
        max_active_runs: int | None = None,
    ) -> None:
        super().__init__(self)
        self.name: str = name
        self.function: Callable[P, Workflow[R_co]] = function
        self.task: StepTask = task
        self.shape: Shape | None = _shape_of(hints_of(function, task.name).get("return"))
        self.content: WorkflowContent = self._begin(timeout, max_active_runs)
        functools.update_wrapper(cast("Any", self), function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Workflow[R_co]:
        """Build the graph here and return it, without running it."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<NamedWorkflow {self.name}>"

    def options(
        self,
        *,
        run_id: str | None = None,
        tenant: str | None = None,
        labels: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> WorkflowCall[P, R_co]:
        """Return the workflow with options for one run.

        Args:
            run_id: default: a new time-ordered UUID. A run whose id is known is left as it is.
            tenant: tenant of the run and of the jobs of its steps.
            labels: names with values, for filters; the jobs of its steps have them too.
            timeout: maximum duration; the run is cancelled then, and fails. Default: that of the workflow.

        Raises:
            InvalidOption: the id or the timeout is invalid.
        """
        if run_id is not None:
            check_run_id(run_id)
        return WorkflowCall(self, run_id=run_id, tenant=tenant, labels=labels, timeout=timeout)

    @property
    def service(self) -> RunService:
        """Service of the app for runs."""
        return RunService(self.task.services.producer.sessions)

    def encode_params(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, msgspec.Raw]:
        """Return the parameters of a call by name, as JSON.

        Raises:
            InvalidArguments, EncodeError: the arguments do not fit.
        """
        raw_args, raw_kwargs = self.task.signature.encode(args, kwargs, JSON)
        names = [parameter.name for parameter in self.task.signature.parameters.positional]
        by_position = msgspec.json.decode(raw_args, type=list[msgspec.Raw])
        by_name = msgspec.json.decode(raw_kwargs, type=dict[str, msgspec.Raw])
        return dict(zip(names, by_position, strict=False)) | by_name

    def _begin(self, timeout: Duration | None, max_active_runs: int | None) -> WorkflowContent:
        positional, named, rest_args, rest_kwargs = self.task.signature.parameters
        every = [*positional, *named]
        if rest_args or rest_kwargs or not all(parameter.by_name for parameter in every):
            raise InvalidOption(
                f"workflow {self.name}: its parameters are passed by name: replace *args, **kwargs and parameters "
                "before `/` by named ones"
            )
        defaults = inspect.signature(self.function).parameters
        params: dict[str, dict[str, Any]] = {}
        for parameter in every:
            params[parameter.name] = schema = schema_of(parameter.kind)
            if not parameter.required:
                schema["default"] = self._encode_default(parameter.name, defaults[parameter.name].default)
        arguments = {name: f"${{params.{name}}}" for name in params}
        build = StepContent(task=self.task.name, arguments=arguments, builds=True)
        most = timeout_of_run(timeout)
        check_active_runs(max_active_runs)
        return WorkflowContent(
            workflow=self.name,
            params=params,
            timeout=None if most is None else most / 1000,
            max_active_runs=max_active_runs,
            steps={_BUILD_STEP: build},
        )

    def _encode_default(self, parameter: str, value: object) -> Any:
        try:
            return msgspec.json.decode(encode_value(value, JSON))
        except EncodeError as error:
            raise InvalidOption(
                f"workflow {self.name}: the default of parameter {parameter!r} has no form in JSON: {error}"
            ) from error


def builder_of(function: Callable[..., Any], name: str) -> Callable[..., dict[str, Any]]:
    """Return a function for a task: it calls `function`, and returns the content of the graph.

    Raises:
        InvalidOption: it is not a plain function, or an annotation cannot be resolved.
    """
    if inspect.iscoroutinefunction(function):
        raise InvalidOption(f"workflow {name}: use a plain function, which only builds the graph, not `async def`")
    try:
        hints = hints_of(function, name)
    except NameError as error:
        raise InvalidOption(
            f"workflow {name}: an annotation cannot be resolved ({error}); define or import the name above the "
            "function, outside of `if TYPE_CHECKING`"
        ) from error

    @functools.wraps(function)
    def build(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            found = function(*args, **kwargs)
            if not isinstance(found, Workflow) or isinstance(found, Batch):
                raise InvalidOption("return a step, a chain, a group or a dag, not " + repr(found))
            content: dict[str, Any] = msgspec.json.decode(encode_workflow(found.plan().content)[1])
        except (InvalidOption, InvalidArguments, EncodeError) as error:
            # The same parameters yield the same graph.
            raise Reject(f"workflow {name}: {error}") from error
        return content

    # Task parameters are those of `function`; it returns something else.
    del build.__wrapped__
    signature: Any = inspect.signature(function)
    build.__signature__ = signature  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]
    build.__annotations__ = {**hints, "return": dict[str, Any]}
    return build


def _shape_of(kind: Any) -> Shape | None:
    """Return the type of the value of an annotated workflow, such as `Workflow[int]`; None if it is unknown."""
    origin = get_origin(kind)
    if not (isinstance(origin, type) and issubclass(origin, Workflow)) or get_args(kind) == (Any,):
        return None
    (value,) = get_args(kind)
    return ListOf(ReturnType(value)) if issubclass(origin, Group) else ReturnType(value)
