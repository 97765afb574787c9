"""
What can go wrong, sorted by who must act.

``UsageError`` is the caller's to fix, ``LibraryError`` the installation's; ``DocaError`` is DOCA's answer, one class
per ``doca_error_t``; ``FlushedError``, ``DrainTimeoutError`` and ``EngineLostError`` are consequences for copies that
did nothing wrong themselves; ``InternalError`` is a bug in aiodocadma. All derive from ``AiodocadmaError``.

``str()`` of each is one line, with the hint, if there is one, on the next. All of them pickle and copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, TypeAlias

from aiodocadma._counted import counted
from aiodocadma._tags import in_words

__all__ = [
    "AccessError",
    "AiodocadmaError",
    "BoundsError",
    "BufferInUseError",
    "ClosedError",
    "CopyManyError",
    "DescriptorError",
    "DocaAgainError",
    "DocaAlreadyExistError",
    "DocaAuthenticationError",
    "DocaBadConfigError",
    "DocaBadStateError",
    "DocaConnectionAbortedError",
    "DocaConnectionInprogressError",
    "DocaConnectionResetError",
    "DocaDeviceFatalError",
    "DocaDriverError",
    "DocaEmptyError",
    "DocaError",
    "DocaFullError",
    "DocaInProgressError",
    "DocaInUseError",
    "DocaInitializationError",
    "DocaInvalidValueError",
    "DocaIoFailedError",
    "DocaNoLockError",
    "DocaNoMemoryError",
    "DocaNotConnectedError",
    "DocaNotFoundError",
    "DocaNotPermittedError",
    "DocaNotSupportedError",
    "DocaOperatingSystemError",
    "DocaShutdownError",
    "DocaSkippedError",
    "DocaTimeOutError",
    "DocaTooBigError",
    "DocaUnexpectedError",
    "DocaUnknownError",
    "DocaUnsupportedVersionError",
    "DrainTimeoutError",
    "EngineLostError",
    "FlushedError",
    "ForkedError",
    "InternalError",
    "LibraryError",
    "MemlockError",
    "OverlapError",
    "PeerError",
    "Phase",
    "QueueFullError",
    "UsageError",
    "WrongLoopError",
]

Phase: TypeAlias = Literal["open", "register", "alloc", "submit", "complete", "stop"]
"""Where in the life of a device, a map or a copy DOCA refused."""


class AiodocadmaError(Exception):
    """
    The base of every exception this package defines.

    Args:
        message: One line: what happened, in DOCA's words where it was DOCA.
        hint: What to do about it, or None.

    Source: aiodocadma.
    """

    hint: str | None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        line = super().__str__()
        return f"{line}\n{self.hint}" if self.hint else line

    # Said, not inherited: what picklers of tracebacks (tblib, which Dask uses) make of an inherited one is not for
    # classes with an __init__ of their own.
    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, self.__dict__


# ---- The caller must act


class UsageError(AiodocadmaError):
    """
    The call cannot be carried out as made; nothing was started and nothing is left pinned.

    Args:
        message: One line that names the argument.
        hint: What to do about it, or None.

    Source: aiodocadma.
    """


class ClosedError(UsageError):
    """
    The DMA or the map is closed, or was closed before this waiting copy reached DOCA.

    Source: aiodocadma.
    """


class BoundsError(UsageError, ValueError):
    """
    A length or an offset reaches outside a map or a destination.

    Source: aiodocadma.
    """


class OverlapError(UsageError, ValueError):
    """
    Source and destination share bytes, which DOCA DMA does not define.

    Source: DOCA DMA guide, Task Memcpy.
    """


class AccessError(UsageError, PermissionError):
    """
    The memory does not allow what its role needs, for example a read-only destination.

    Source: ``doca_mmap_set_permissions``.
    """


class DescriptorError(UsageError, ValueError):
    """
    An export descriptor is damaged, cut short, or of memory that this device can never reach.

    Source: aiodocadma.
    """


class BufferInUseError(UsageError, BufferError):
    """
    Memory cannot be given back: copies or exported buffers still use it.

    Source: aiodocadma.
    """


class MemlockError(UsageError, MemoryError):
    """
    What is to be registered cannot be locked in memory: the limit ``RLIMIT_MEMLOCK`` of this process is too low.

    Source: ``getrlimit(2)``.
    """


class QueueFullError(UsageError):
    """
    ``max_waiting`` copies wait already; ``await dma.submit()`` waits for room instead of raising.

    Source: aiodocadma.
    """


class WrongLoopError(UsageError):
    """
    The object belongs to another event loop or thread.

    Source: aiodocadma.
    """


class ForkedError(UsageError):
    """
    The object was made before ``os.fork()``; in the child, open a new one.

    Source: aiodocadma.
    """


# ---- The installation must be mended


class LibraryError(AiodocadmaError, ImportError):
    """
    No usable DOCA library: not found, damaged, a symbol missing, or the wrong version.

    Args:
        message: One line with the dynamic linker's own words.
        hint: What to do about it, or None.
        name: The library asked for, for example ``libdoca_dma.so.2``.
        path: The file that was opened, or None if none was.
        symbol: The missing symbol, or None.

    Source: ``dlopen(3)``, ``dlsym(3)``.
    """

    symbol: str | None

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        name: str | None = None,
        path: str | None = None,
        symbol: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.name = name
        self.path = path
        self.symbol = symbol


# ---- DOCA refused, or the engine failed


class DocaError(AiodocadmaError):
    """
    A DOCA call or task ended with an error; ``from_code()`` picks the subclass.

    The same class is raised for a code whether the submission or the completion reports it. A code this version does
    not know is a plain ``DocaError`` that keeps it.

    Args:
        code: The ``doca_error_t``; a subclass knows its own.
        name: What ``doca_error_get_name`` says, verbatim.
        descr: What ``doca_error_get_descr`` says, verbatim.
        call: The DOCA function that answered so, or None.
        phase: Where in the life of the copy, map or device, or None.
        device: The device, for example ``mlx5_0``, or None.
        layer: Where to look first: the layer of the debug ladder (install, version, build, link, runtime, program,
            driver), or None.
        cause: What was done, and what caused the failure as far as checking could tell, or None.
        next_step: What to do next; it is the hint.
        caps_diff: Capabilities that changed since the device was opened, as ``{name: (before, now)}``, or None.
        tag: The ``tag`` given to ``copy()``, or None.
        rule: The rule of DOCA DMA that applies, an identifier of ``docs/reference/rules.md``, or None.
        cause_name: The cause's name, as ``aiodocadma explain`` lists it, or None if none was found.
        evidence: What was collected below DMA when it failed there (the latest lines of DOCA's and of the kernel's log,
            the devices), as JSON can hold it, or None. Not redacted.

    Source: ``doca_error_t``.
    """

    code: int = 1
    name: str = "DOCA_ERROR_UNKNOWN"

    _by_code: ClassVar[dict[int, type[DocaError]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # setdefault: a user's subclass of a subclass does not take its code over.
        DocaError._by_code.setdefault(cls.code, cls)

    def __init__(
        self,
        code: int | None = None,
        *,
        name: str | None = None,
        descr: str | None = None,
        call: str | None = None,
        phase: Phase | None = None,
        device: str | None = None,
        layer: str | None = None,
        cause: str | None = None,
        next_step: str | None = None,
        caps_diff: Mapping[str, tuple[object, object]] | None = None,
        tag: object = None,
        rule: str | None = None,
        cause_name: str | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> None:
        code = type(self).code if code is None else code
        # The code alone in args: with __dict__ it is all that pickle and copy need.
        Exception.__init__(self, code)
        self.args = (code,)
        self.code = code
        self.name = name or (type(self).name if code == type(self).code else f"DOCA error {code}")
        self.descr = descr
        self.call = call
        self.phase = phase
        self.device = device
        self.layer = layer
        self.cause = cause
        self.next_step = next_step
        self.caps_diff = caps_diff
        self.tag = tag
        self.rule = rule
        self.cause_name = cause_name
        self.evidence = evidence
        self.hint = next_step

    @property
    def retriable(self) -> bool:
        """
        Whether the same call may succeed later, with nothing changed.

        Returns:
            True for ``DOCA_ERROR_AGAIN``, and for nothing else.

        Source: ``doca_task_submit``.
        """
        return self.code == DocaAgainError.code

    @classmethod
    def from_code(
        cls,
        code: int,
        *,
        name: str | None = None,
        descr: str | None = None,
        call: str | None = None,
        phase: Phase | None = None,
        device: str | None = None,
        layer: str | None = None,
        cause: str | None = None,
        next_step: str | None = None,
        caps_diff: Mapping[str, tuple[object, object]] | None = None,
        tag: object = None,
        rule: str | None = None,
        cause_name: str | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> DocaError:
        """
        Make the exception for a code.

        Args:
            code: A ``doca_error_t``, known or not.
            name: As for the class.
            descr: As for the class.
            call: As for the class.
            phase: As for the class.
            device: As for the class.
            layer: As for the class.
            cause: As for the class.
            next_step: As for the class.
            caps_diff: As for the class.
            tag: As for the class.
            rule: As for the class.
            cause_name: As for the class.
            evidence: As for the class.

        Returns:
            An instance of the code's subclass, or of ``DocaError`` for an unknown code.

        Source: ``doca_error_t``.
        """
        return DocaError._by_code.get(code, DocaError)(
            code,
            name=name,
            descr=descr,
            call=call,
            phase=phase,
            device=device,
            layer=layer,
            cause=cause,
            next_step=next_step,
            caps_diff=caps_diff,
            tag=tag,
            rule=rule,
            cause_name=cause_name,
            evidence=evidence,
        )

    def __str__(self) -> str:
        line = f"{self.call}: {self.name}" if self.call else self.name
        if self.descr:
            line += f" ({self.descr})"
        if self.phase:
            line += f" at {self.phase}"
        if self.device:
            line += f" on {self.device}"
        if self.tag is not None:
            line += f", tag {in_words(self.tag)}"
        if self.cause:
            line += f": {self.cause}"
        if self.caps_diff:
            changes = ", ".join(f"{key} {before} -> {now}" for key, (before, now) in self.caps_diff.items())
            line += f"; capabilities changed: {changes}"
        return f"{line}\n{self.next_step}" if self.next_step else line


class DocaUnknownError(DocaError):
    """``DOCA_ERROR_UNKNOWN``: no more is known."""

    code = 1
    name = "DOCA_ERROR_UNKNOWN"


class DocaNotPermittedError(DocaError, PermissionError):
    """``DOCA_ERROR_NOT_PERMITTED``: not allowed, or not in this state of the object."""

    code = 2
    name = "DOCA_ERROR_NOT_PERMITTED"


class DocaInUseError(DocaError):
    """``DOCA_ERROR_IN_USE``: something still uses the object."""

    code = 3
    name = "DOCA_ERROR_IN_USE"


class DocaNotSupportedError(DocaError):
    """``DOCA_ERROR_NOT_SUPPORTED``: the device or this library cannot do it."""

    code = 4
    name = "DOCA_ERROR_NOT_SUPPORTED"


class DocaAgainError(DocaError):
    """``DOCA_ERROR_AGAIN``: the queue is full; seen only where waiting for a completion cannot help."""

    code = 5
    name = "DOCA_ERROR_AGAIN"


class DocaInvalidValueError(DocaError):
    """``DOCA_ERROR_INVALID_VALUE``: an argument is wrong."""

    code = 6
    name = "DOCA_ERROR_INVALID_VALUE"


class DocaNoMemoryError(DocaError, MemoryError):
    """``DOCA_ERROR_NO_MEMORY``: no memory, or a pool of DOCA's is exhausted."""

    code = 7
    name = "DOCA_ERROR_NO_MEMORY"


class DocaInitializationError(DocaError):
    """``DOCA_ERROR_INITIALIZATION``: a resource could not be set up."""

    code = 8
    name = "DOCA_ERROR_INITIALIZATION"


class DocaTimeOutError(DocaError):
    """
    ``DOCA_ERROR_TIME_OUT``: DOCA's own time ran out.

    Not a ``TimeoutError``: ``except TimeoutError`` around ``asyncio.timeout()`` means the caller's deadline.
    """

    code = 9
    name = "DOCA_ERROR_TIME_OUT"


class DocaShutdownError(DocaError):
    """``DOCA_ERROR_SHUTDOWN``: shut down in the middle of the operation."""

    code = 10
    name = "DOCA_ERROR_SHUTDOWN"


class DocaConnectionResetError(DocaError):
    """``DOCA_ERROR_CONNECTION_RESET``: the peer reset the connection."""

    code = 11
    name = "DOCA_ERROR_CONNECTION_RESET"


class DocaConnectionAbortedError(DocaError):
    """``DOCA_ERROR_CONNECTION_ABORTED``: the connection was aborted."""

    code = 12
    name = "DOCA_ERROR_CONNECTION_ABORTED"


class DocaConnectionInprogressError(DocaError):
    """``DOCA_ERROR_CONNECTION_INPROGRESS``: the connection is not made yet."""

    code = 13
    name = "DOCA_ERROR_CONNECTION_INPROGRESS"


class DocaNotConnectedError(DocaError):
    """``DOCA_ERROR_NOT_CONNECTED``: there is no connection."""

    code = 14
    name = "DOCA_ERROR_NOT_CONNECTED"


class DocaNoLockError(DocaError):
    """``DOCA_ERROR_NO_LOCK``: a lock could not be taken."""

    code = 15
    name = "DOCA_ERROR_NO_LOCK"


class DocaNotFoundError(DocaError):
    """``DOCA_ERROR_NOT_FOUND``: no such thing, for example no such device."""

    code = 16
    name = "DOCA_ERROR_NOT_FOUND"


class DocaIoFailedError(DocaError):
    """``DOCA_ERROR_IO_FAILED``: the engine could not read or write the memory."""

    code = 17
    name = "DOCA_ERROR_IO_FAILED"


class DocaBadStateError(DocaError):
    """``DOCA_ERROR_BAD_STATE``: the object is in a state that forbids the call."""

    code = 18
    name = "DOCA_ERROR_BAD_STATE"


class DocaUnsupportedVersionError(DocaError):
    """``DOCA_ERROR_UNSUPPORTED_VERSION``: versions do not fit together."""

    code = 19
    name = "DOCA_ERROR_UNSUPPORTED_VERSION"


class DocaOperatingSystemError(DocaError):
    """``DOCA_ERROR_OPERATING_SYSTEM``: a system call failed underneath."""

    code = 20
    name = "DOCA_ERROR_OPERATING_SYSTEM"


class DocaDriverError(DocaError):
    """``DOCA_ERROR_DRIVER``: the driver failed underneath."""

    code = 21
    name = "DOCA_ERROR_DRIVER"


class DocaUnexpectedError(DocaError):
    """``DOCA_ERROR_UNEXPECTED``: DOCA met something it does not expect."""

    code = 22
    name = "DOCA_ERROR_UNEXPECTED"


class DocaAlreadyExistError(DocaError):
    """``DOCA_ERROR_ALREADY_EXIST``: it exists already."""

    code = 23
    name = "DOCA_ERROR_ALREADY_EXIST"


class DocaFullError(DocaError):
    """``DOCA_ERROR_FULL``: no room."""

    code = 24
    name = "DOCA_ERROR_FULL"


class DocaEmptyError(DocaError):
    """``DOCA_ERROR_EMPTY``: nothing there."""

    code = 25
    name = "DOCA_ERROR_EMPTY"


class DocaInProgressError(DocaError):
    """``DOCA_ERROR_IN_PROGRESS``: begun and not ended."""

    code = 26
    name = "DOCA_ERROR_IN_PROGRESS"


class DocaTooBigError(DocaError):
    """``DOCA_ERROR_TOO_BIG``: more than the object can hold."""

    code = 27
    name = "DOCA_ERROR_TOO_BIG"


class DocaAuthenticationError(DocaError):
    """``DOCA_ERROR_AUTHENTICATION``: authentication failed."""

    code = 28
    name = "DOCA_ERROR_AUTHENTICATION"


class DocaBadConfigError(DocaError):
    """``DOCA_ERROR_BAD_CONFIG``: the configuration is wrong."""

    code = 29
    name = "DOCA_ERROR_BAD_CONFIG"


class DocaSkippedError(DocaError):
    """``DOCA_ERROR_SKIPPED``: the operation was left out."""

    code = 30
    name = "DOCA_ERROR_SKIPPED"


class DocaDeviceFatalError(DocaError):
    """``DOCA_ERROR_DEVICE_FATAL_ERROR``: the device is lost."""

    code = 31
    name = "DOCA_ERROR_DEVICE_FATAL_ERROR"


# ---- Consequences


class FlushedError(AiodocadmaError):
    """
    Another task's failure ended this copy and it was not replayed; what the destination holds is not defined.

    Args:
        message: One line that says why it was not replayed.
        hint: What to do about it, or None.
        culprit: The error of the task that failed, or None if it is not known.
        tag: The ``tag`` given to ``copy()``, or None.

    Source: ``doca_ctx_stop``: a failed task makes the context flush all others.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, culprit: DocaError | None = None, tag: object = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.culprit = culprit
        self.tag = tag


class DrainTimeoutError(AiodocadmaError, TimeoutError):
    """
    The engine did not let go of memory within ``drain_timeout``; the memory stays quarantined until it does.

    Source: aiodocadma.
    """


class EngineLostError(AiodocadmaError):
    """
    The context could not be restarted after a fault; close the DMA and open a new one.

    Source: aiodocadma.
    """


class PeerError(AiodocadmaError):
    """
    The other side of a rendezvous refused, went away, or sent what nobody should send.

    Source: aiodocadma.
    """


class InternalError(AiodocadmaError):
    """
    A bug in aiodocadma; please report it.

    Source: aiodocadma.
    """


class CopyManyError(AiodocadmaError, ExceptionGroup[Exception]):
    """
    Some pairs of a ``copy_many()`` failed; all others are done.

    Args:
        failures: The exception of each failed pair by the pair's index; at least one.
        num_pairs: How many pairs the call had.

    Attributes:
        indices: Of the pairs that failed, ascending; ``exceptions`` has their exceptions in the same order.

    Source: aiodocadma.
    """

    indices: tuple[int, ...]
    num_pairs: int

    def __new__(cls, failures: Mapping[int, Exception], num_pairs: int) -> Self:
        """See the class."""
        indices = sorted(failures)
        shown = ", ".join(map(str, indices[:10])) + (", ..." if len(indices) > 10 else "")
        message = f"{len(indices)} of {counted(num_pairs, 'pair')} failed: {shown}"
        self = super().__new__(cls, message, [failures[index] for index in indices])
        self.indices = tuple(indices)
        self.num_pairs = num_pairs
        return self

    def __init__(self, failures: Mapping[int, Exception], num_pairs: int) -> None:
        # The arguments in args are all that pickle and copy need.
        Exception.__init__(self, failures, num_pairs)
        self.hint = None

    def derive(self, excs: Sequence[Exception], /) -> CopyManyError:  # type: ignore[override]
        """
        Make the group that ``split()`` and ``except*`` hand out for a part of the failures.

        Args:
            excs: Some of this group's exceptions.

        Returns:
            A group that keeps their indices.

        Source: ``ExceptionGroup.derive``.
        """
        index_of = {id(exc): index for index, exc in zip(self.indices, self.exceptions, strict=True)}
        return CopyManyError({index_of[id(exc)]: exc for exc in excs}, self.num_pairs)
