"""Protocols of calls by their number of arguments, so that type checkers accept only tasks that fit a method."""

from typing import ParamSpec, Protocol, TypeVar

from taskmq.jobs.handle import Job

Q = ParamSpec("Q")
A_contra = TypeVar("A_contra", contravariant=True)
B_contra = TypeVar("B_contra", contravariant=True)
C_contra = TypeVar("C_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class TakesFirst(Protocol[A_contra, Q, R_co]):
    """A sender of calls of a function with a first parameter."""

    def send(self, first: A_contra, /, *args: Q.args, **kwargs: Q.kwargs) -> Job[R_co]: ...


class TakesOne(Protocol[A_contra, R_co]):
    """A sender of calls of a function that can be called with its first parameter alone."""

    def send(self, first: A_contra, /) -> Job[R_co]: ...


class CallOfNone(Protocol[R_co]):
    """A call without arguments."""

    def send(self) -> Job[R_co]: ...


class CallOfOne(Protocol[A_contra, R_co]):
    """A call with one argument."""

    def send(self, a: A_contra, /) -> Job[R_co]: ...


class CallOfTwo(Protocol[A_contra, B_contra, R_co]):
    """A call with two arguments."""

    def send(self, a: A_contra, b: B_contra, /) -> Job[R_co]: ...


class CallOfThree(Protocol[A_contra, B_contra, C_contra, R_co]):
    """A call with three arguments."""

    def send(self, a: A_contra, b: B_contra, c: C_contra, /) -> Job[R_co]: ...
