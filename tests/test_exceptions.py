"""The exception hierarchy and its code table."""

import copy
import pickle
from typing import Any

import pytest
from tblib import pickling_support

from aiodocadma import exceptions
from aiodocadma.exceptions import CopyManyError, DocaError, FlushedError, LibraryError

# The rest of doca_error_t by value: 1, 2, ... (0 is DOCA_SUCCESS).
CODES = [
    "UNKNOWN",
    "NOT_PERMITTED",
    "IN_USE",
    "NOT_SUPPORTED",
    "AGAIN",
    "INVALID_VALUE",
    "NO_MEMORY",
    "INITIALIZATION",
    "TIME_OUT",
    "SHUTDOWN",
    "CONNECTION_RESET",
    "CONNECTION_ABORTED",
    "CONNECTION_INPROGRESS",
    "NOT_CONNECTED",
    "NO_LOCK",
    "NOT_FOUND",
    "IO_FAILED",
    "BAD_STATE",
    "UNSUPPORTED_VERSION",
    "OPERATING_SYSTEM",
    "DRIVER",
    "UNEXPECTED",
    "ALREADY_EXIST",
    "FULL",
    "EMPTY",
    "IN_PROGRESS",
    "TOO_BIG",
    "AUTHENTICATION",
    "BAD_CONFIG",
    "SKIPPED",
    "DEVICE_FATAL_ERROR",
]

FIELDS: dict[str, Any] = {
    "name": "DOCA_ERROR_IO_FAILED",
    "descr": "Input/Output Operation Failed",
    "call": "doca_task_submit",
    "phase": "complete",
    "device": "mlx5_0",
    "layer": "engine",
    "cause": "the memory is gone",
    "next_step": "Map it again.",
    "caps_diff": {"max_buf_size": (2, 1)},
    "tag": ("request", 7),
}


def instances() -> list[exceptions.AiodocadmaError]:
    """One instance of every exception class, with every attribute set that it has."""
    made: list[exceptions.AiodocadmaError] = []
    for name in exceptions.__all__:
        cls = getattr(exceptions, name)
        if not isinstance(cls, type):
            continue
        if issubclass(cls, DocaError):
            made.append(cls(**FIELDS))
        elif cls is CopyManyError:
            made.append(CopyManyError({3: DocaError.from_code(17, **FIELDS), 1: KeyError("x")}, 5))
        elif cls is LibraryError:
            made.append(LibraryError("no", hint="do", name="libdoca_dma.so.2", path="/lib/x", symbol="doca_pe_create"))
        elif cls is FlushedError:
            made.append(FlushedError("flushed", hint="do", culprit=DocaError.from_code(17, **FIELDS), tag=1))
        else:
            made.append(cls("line", hint="do"))
    return made


def state(error: BaseException) -> Any:
    """Everything that must survive a copy, with nested exceptions resolved."""
    items = sorted((key, state(v) if isinstance(v, BaseException) else v) for key, v in vars(error).items())
    nested = [state(e) for e in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    return type(error), str(error), items, nested


@pytest.mark.parametrize("error", instances(), ids=lambda error: type(error).__name__)
def test_pickle_and_copy(error: exceptions.AiodocadmaError) -> None:
    error.add_note("a note")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert state(pickle.loads(pickle.dumps(error, protocol))) == state(error)
    # Installed or not by somebody's import of Dask: what it makes of an exception that leaves a worker.
    rebuild, arguments, *rest = pickling_support.pickle_exception(error)
    made = rebuild(*arguments)
    for attributes in rest:
        vars(made).update(attributes)
    assert state(made) == state(error)
    assert state(copy.copy(error)) == state(error)
    assert state(copy.deepcopy(error)) == state(error)


@pytest.mark.parametrize("error", instances(), ids=lambda error: type(error).__name__)
def test_str_is_a_line_and_a_hint(error: exceptions.AiodocadmaError) -> None:
    lines = str(error).split("\n")
    assert lines[0]
    assert lines[1:] == ([error.hint] if error.hint else [])


@pytest.mark.parametrize("error", instances(), ids=lambda error: type(error).__name__)
def test_repr(error: exceptions.AiodocadmaError) -> None:
    assert type(error).__name__ in repr(error)


@pytest.mark.rule("X21")
@pytest.mark.parametrize(("code", "suffix"), list(enumerate(CODES, 1)))
def test_class_of_code(code: int, suffix: str) -> None:
    error = DocaError.from_code(code)
    words = suffix.removesuffix("_ERROR").split("_")
    assert type(error).__name__ == f"Doca{''.join(word.capitalize() for word in words)}Error"
    assert type(error).__name__ in exceptions.__all__
    assert (error.code, error.name) == (code, f"DOCA_ERROR_{suffix}")
    assert (type(error).code, type(error)().code) == (code, code)


@pytest.mark.rule("X21")
def test_unknown_code_is_kept() -> None:
    error = DocaError.from_code(4711, call="doca_task_submit", descr="unrecognized error code")
    assert type(error) is DocaError
    assert error.code == 4711
    assert str(error) == "doca_task_submit: DOCA error 4711 (unrecognized error code)"
    assert pickle.loads(pickle.dumps(error)).code == 4711


@pytest.mark.rule("R105")
def test_library_words_win() -> None:
    error = DocaError.from_code(17, name="DOCA_ERROR_NEW_NAME", descr="New words")
    assert (error.name, error.descr) == ("DOCA_ERROR_NEW_NAME", "New words")


def test_full_message() -> None:
    assert str(DocaError.from_code(17, **FIELDS)) == (
        "doca_task_submit: DOCA_ERROR_IO_FAILED (Input/Output Operation Failed) at complete on mlx5_0, "
        "tag ('request', 7): the memory is gone; capabilities changed: max_buf_size 2 -> 1\nMap it again."
    )


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("BoundsError", ValueError),
        ("OverlapError", ValueError),
        ("AccessError", PermissionError),
        ("BufferInUseError", BufferError),
        ("LibraryError", ImportError),
        ("DrainTimeoutError", TimeoutError),
        ("DocaNotPermittedError", PermissionError),
        ("DocaNoMemoryError", MemoryError),
        ("CopyManyError", ExceptionGroup),
    ],
)
def test_builtin_bases(name: str, builtin: type[BaseException]) -> None:
    assert issubclass(getattr(exceptions, name), builtin)


def test_subclass_of_a_subclass_leaves_the_table_alone() -> None:
    class Mine(exceptions.DocaAgainError):
        pass

    assert type(DocaError.from_code(5)) is exceptions.DocaAgainError
    assert Mine().code == 5


def test_copy_many_keeps_indices_when_split() -> None:
    failures = {index: (ValueError if index % 2 else OSError)(index) for index in range(20, 0, -1)}
    group = CopyManyError(failures, 100)
    assert group.indices == tuple(range(1, 21))
    assert str(group).startswith("20 of 100 pairs failed: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...")
    matched, rest = group.split(ValueError)
    assert isinstance(matched, CopyManyError)
    assert isinstance(rest, CopyManyError)
    assert matched.indices == tuple(range(1, 21, 2))
    assert rest.indices == tuple(range(2, 21, 2))
    caught: list[BaseException] = []
    try:
        raise group
    except* ValueError as part:
        caught.append(part)
    except* OSError as part:
        caught.append(part)
    assert [(type(part), part.indices) for part in caught if isinstance(part, CopyManyError)] == [
        (CopyManyError, matched.indices),
        (CopyManyError, rest.indices),
    ]
