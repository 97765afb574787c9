"""What ``publish`` and ``pull`` have in common: addresses, certificates, and how a file is described."""

from __future__ import annotations

import argparse
import re
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiodocadma.cli._exit import Exit, ExitCode
from aiodocadma.cli._files import naming
from aiodocadma.exceptions import UsageError

if TYPE_CHECKING:
    from aiodocadma.peer import PeerAddress, Publication


def address(text: str) -> PeerAddress:
    """For argparse, which shows no reason of its own but this error's."""
    from aiodocadma.peer import PeerAddress  # here: most commands have no peer

    try:
        return PeerAddress.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_security(parser: argparse.ArgumentParser) -> None:
    """Add the options that say who is at the other end."""
    parser.add_argument("--cert", metavar="FILE", help="TLS: this side's certificate and key, PEM")
    parser.add_argument("--ca", metavar="FILE", help="TLS: who must have signed the other side's certificate, PEM")
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="allow an address that other machines reach without certificates (whoever connects gets the memory), and "
        "another user's Unix socket where anybody may write",
    )


def tls(args: argparse.Namespace, purpose: ssl.Purpose) -> ssl.SSLContext | None:
    """Make the context of ``--cert`` and ``--ca``, which go together: each side shows its certificate."""
    if args.cert is None and args.ca is None:
        return None
    if args.cert is None or args.ca is None:
        raise Exit(ExitCode.USAGE, "--cert and --ca go together: each side shows its certificate")
    with naming(args.ca):
        context = ssl.create_default_context(purpose, cafile=args.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    with naming(args.cert):
        context.load_cert_chain(args.cert)
    return context


def security_message(error: UsageError) -> str:
    """What is wrong with who is at the other end, with the options instead of the Python arguments."""
    return f"{str(error).splitlines()[0]}: see --cert, --ca and --insecure"


@dataclass(frozen=True, slots=True)
class FileInfo:
    """
    A published file, as far as the publisher tells.

    Args:
        size: Bytes of the memory that are the file; the memory has one byte more if it is empty.
        mode: Permission bits.
        sha256: Of the file, in hex, or None.
    """

    size: int
    mode: int
    sha256: str | None

    def attributes(self) -> dict[str, str | int | float | bool | None]:
        """For ``Publisher.publish()``."""
        return {"size": self.size, "mode": self.mode, "sha256": self.sha256}

    @classmethod
    def of(cls, publication: Publication) -> FileInfo:
        """Read them; what another program published is a file of all its memory."""
        size, mode, sha256 = map(publication.attributes.get, ("size", "mode", "sha256"))
        return cls(
            size if type(size) is int and 0 <= size <= publication.nbytes else publication.nbytes,
            mode & 0o777 if type(mode) is int else 0o666,
            sha256 if isinstance(sha256, str) and re.fullmatch("[0-9a-f]{64}", sha256) else None,
        )
