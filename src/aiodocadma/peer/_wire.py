"""
The protocol, without input and output: frames, messages, and the check of everything that arrives.

A frame is the length of a message, 4 bytes, big-endian, and the message, a JSON object in UTF-8. First both sides say
hello, the client before the publisher. Then the client asks and the publisher answers each request, in order:

    {"id": 1, "op": "list", "after": ""}            {"id": 1, "publications": [...], "more": false}
    {"id": 2, "op": "get", "name": "x", "wait": 1}  {"id": 2, "descriptor": "base64"}
    {"id": 3, "op": "renew", "name": "x"}           {"id": 3, "lifetime": 60}
                                                    {"id": 3, "error": "what is wrong"}

Nothing that arrives is believed before it was checked, and no error repeats it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from aiodocadma._export import Access, machine
from aiodocadma._version import __version__
from aiodocadma.exceptions import PeerError

if TYPE_CHECKING:
    from aiodocadma._dma import DMA

__all__ = ["Attributes", "Decoder", "PeerInfo", "Publication", "encode", "take"]

PROTOCOL: Final = 1
MAX_MESSAGE_BYTES: Final = 64 * 1024
MAX_NAME_LENGTH: Final = 255
MAX_PUBLICATIONS: Final = 10_000
MAX_ATTRIBUTES_BYTES: Final = 4096
MAX_ERROR_LENGTH: Final = 500

_HEADER_BYTES: Final = 4

T = TypeVar("T")
Attributes = Mapping[str, str | int | float | bool | None]


def encode(message: dict[str, Any]) -> bytes:
    """
    Make a frame.

    Args:
        message: What JSON can say.

    Returns:
        The frame.

    Raises:
        PeerError: If it is longer than the other side would take.

    Source: aiodocadma.
    """
    text = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(text) > MAX_MESSAGE_BYTES:
        raise PeerError(f"a message of {len(text)} bytes is longer than the {MAX_MESSAGE_BYTES} that a peer takes")
    return len(text).to_bytes(_HEADER_BYTES, "big") + text


class Decoder:
    """
    Finds the messages in what arrives, however it is cut.

    Source: aiodocadma.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take what has arrived."""
        self._buffer += data

    def next(self) -> dict[str, Any] | None:
        """
        Take the next message.

        Returns:
            The message, or None if it is not whole yet.

        Raises:
            PeerError: If it is too long, or no JSON object; nothing more can be read then.

        Source: aiodocadma.
        """
        if len(self._buffer) < _HEADER_BYTES:
            return None
        length = int.from_bytes(self._buffer[:_HEADER_BYTES], "big")
        if length > MAX_MESSAGE_BYTES:
            raise PeerError(f"the peer announces {length} bytes, and {MAX_MESSAGE_BYTES} are the most a message has")
        end = _HEADER_BYTES + length
        if len(self._buffer) < end:
            return None
        text = bytes(self._buffer[_HEADER_BYTES:end])
        del self._buffer[:end]
        try:
            message = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            message = None  # not raised in here: the error would keep the text
        if not isinstance(message, dict):
            raise PeerError("the peer's message is no JSON object")
        return message


def _refuse_constant(name: str) -> NoReturn:
    """NaN and Infinity are no JSON, although Python's reader takes them."""
    raise ValueError


def take(message: Mapping[str, Any], key: str, kind: type[T], what: str = "message") -> T:
    """
    Read a field of a message.

    Args:
        message: From anywhere.
        key: The field.
        kind: The type it must have exactly; a float is finite, and may be an int, too.
        what: The message's name, for the error.

    Returns:
        Its value.

    Raises:
        PeerError: If it is missing or of another type.

    Source: aiodocadma.
    """
    value = message.get(key)
    if kind is float and type(value) is int and abs(value) < 1 << 53:
        value = float(value)
    if type(value) is kind and not (isinstance(value, float) and math.isinf(value)):  # as 1e999 is read
        return value
    raise PeerError(f"the peer's {what} has no valid {key!r}")


def take_name(message: Mapping[str, Any], key: str = "name") -> str:
    """As ``take()``, for the name of a publication."""
    name = take(message, key, str)
    if not is_name(name):
        raise PeerError(f"the peer's message has no valid {key!r}")
    return name


def is_name(name: str) -> bool:
    """Whether a publication can have this name: 1 to 255 characters that can be printed."""
    return 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable()


def one_line(text: str) -> str:
    """What a peer says, fit to be shown."""
    line = text[:MAX_ERROR_LENGTH].replace("\n", " ")
    return line if line.isprintable() else ascii(line)


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """
    What a side of a rendezvous says of itself.

    Args:
        aiodocadma: Its version of this package.
        doca: Its version of DOCA; None where that does not tell.
        emulated: Whether its device is the emulator.
        machine: Its host name; None if it has none.

    Source: aiodocadma.
    """

    aiodocadma: str
    doca: str | None
    emulated: bool
    machine: str | None

    def differences(self, other: PeerInfo) -> dict[str, tuple[object, object]]:
        """
        Compare the versions of two sides.

        Args:
            other: The other side.

        Returns:
            ``{what: (here, there)}`` for what differs; the machine does not count.

        Source: aiodocadma.
        """
        mine, theirs = asdict(self), asdict(other)
        return {key: (mine[key], theirs[key]) for key in mine if key != "machine" and mine[key] != theirs[key]}


def shown_differences(differences: Mapping[str, tuple[object, object]]) -> str:
    """For one line: what is what here, and what there."""
    known = {what: ["unknown" if side is None else side for side in sides] for what, sides in differences.items()}
    return ", ".join(f"{what} is {here} here, {there} there" for what, (here, there) in known.items())


def info_of(dma: DMA) -> PeerInfo:
    """What this side says of itself."""
    return PeerInfo(__version__, dma.device.version, dma.emulated, machine())


def hello(info: PeerInfo) -> dict[str, Any]:
    """The first message of a side."""
    return {"hello": PROTOCOL, **asdict(info)}


def take_hello(message: Mapping[str, Any]) -> PeerInfo:
    """Read the first message of the other side; raises PeerError."""
    protocol = take(message, "hello", int, "greeting")
    if protocol != PROTOCOL:
        raise PeerError(
            f"the peer speaks version {protocol} of the protocol, and this side {PROTOCOL}",
            hint="Have both sides use one version of aiodocadma.",
        )

    def word(key: str) -> str:
        return one_line(take(message, key, str, "greeting"))

    def word_or_none(key: str) -> str | None:
        return None if message.get(key) is None else word(key)

    emulated = take(message, "emulated", bool, "greeting")
    return PeerInfo(word("aiodocadma"), word_or_none("doca"), emulated, word_or_none("machine"))


@dataclass(frozen=True, slots=True)
class Publication:
    """
    Something that can be imported.

    Args:
        name: Its name: 1 to 255 characters that can be printed.
        nbytes: Bytes of the memory.
        access: What an importer may do with it.
        lifetime: Seconds that a descriptor of it is good for after it was handed out or renewed last; None without end.
        attributes: What the publisher tells about it: a few numbers and texts.

    Source: aiodocadma.
    """

    name: str
    nbytes: int
    access: Access
    lifetime: float | None = None
    attributes: Attributes = field(default_factory=dict)


def take_publication(message: object) -> Publication:
    """Read an entry of a list, which is a publication's fields; raises PeerError."""
    if not isinstance(message, dict):
        raise PeerError("the peer's list holds what is no publication")
    access = take(message, "access", str, "publication")
    lifetime = None if message.get("lifetime") is None else take(message, "lifetime", float, "publication")
    attributes = take(message, "attributes", dict, "publication")
    nbytes = take(message, "nbytes", int, "publication")
    if access not in ("read", "write") or not 0 < nbytes < 1 << 63 or not are_attributes(attributes):
        raise PeerError("the peer's publication is not valid")
    return Publication(take_name(message), nbytes, "write" if access == "write" else "read", lifetime, attributes)


def are_attributes(attributes: Mapping[Any, Any]) -> bool:
    """Whether these are a few numbers and texts."""
    try:
        text = json.dumps(dict(attributes), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return len(text) <= MAX_ATTRIBUTES_BYTES and all(
        isinstance(key, str) and (value is None or isinstance(value, str | int | float))
        for key, value in attributes.items()
    )
