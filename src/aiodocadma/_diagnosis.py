"""
From a native failure to the exception that names the cause: what is known at once, and what has to be asked.

``evidence()`` and ``error()`` block nobody. ``check()`` and ``of()`` ask the device and the system, for at most
``CHECK_TIMEOUT``, and belong into a worker thread; what does not answer, or fails to, is told beside what did.
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from aiodocadma import _evidence, _native, _worker
from aiodocadma._causes import Check, Checked, Evidence, Proof, as_record, checks_for
from aiodocadma._devices import Capabilities, DeviceInfo, list_devices

if TYPE_CHECKING:
    from pathlib import Path

    from aiodocadma._library import Library
    from aiodocadma.exceptions import DocaError

__all__ = ["Diagnosis"]

logger = logging.getLogger("aiodocadma")

CHECK_TIMEOUT: Final = 2.0  # seconds that looking for a cause may take
INCIDENT_TIME: Final = 10.0  # seconds for which what was collected below DMA stands for further failures
NOT_SUPPORTED: Final = 4  # DOCA_ERROR_NOT_SUPPORTED


class Diagnosis:
    """
    Makes the exceptions of one opened device.

    Args:
        library: That opened it.
        device: It.
        query: Asks the device what it can; None if it is not open. May raise ``_native.Failure``.
        folder: Where evidence of failures below DMA is written, or None to keep it in memory only.

    Source: aiodocadma.
    """

    def __init__(
        self, library: Library, device: DeviceInfo, query: Callable[[], _native.Caps | None], folder: Path | None
    ) -> None:
        self._library = library
        self._device = device
        self._query = query
        self._folder = folder
        self._proofs: dict[str, Proof] = {}
        self._lock = threading.Lock()  # one incident is collected at a time
        self._incident: tuple[float, tuple[Check, ...], int | None, Checked] | None = None

    def prove(self, path: str) -> None:
        """Take note that a first small copy over a path went well: its permissions are not what fails later."""
        self._proofs[path] = Proof(path, datetime.datetime.now(datetime.UTC))

    def evidence(self, failure: _native.Failure, operation: str, **known: Any) -> Evidence:
        """What is known of a failure at once."""
        return Evidence(
            failure.code,
            failure.call,
            failure.phase,
            operation,
            device=self._device.name,
            proofs=tuple(self._proofs.values()),
            skew=self._library.skew,
            **known,
        )

    def error(self, evidence: Evidence, tag: object = None) -> DocaError:
        """Make the exception from what is known."""
        return self._library.error(evidence, device=self._device.name, tag=tag)

    def of(self, evidence: Evidence, tag: object = None) -> DocaError:
        """Make the exception after asking for whatever can tell the cause."""
        return self.error(evidence._replace(checked=self.check(evidence)), tag)

    def check(self, evidence: Evidence) -> Checked:
        """
        Ask for whatever can tell the cause of a failure.

        What is collected below DMA is collected once per incident, which lasts until a task goes well again, at most
        ``INCIDENT_TIME``.

        Args:
            evidence: What is known.

        Returns:
            The answers that came in time.

        Source: aiodocadma.
        """
        checks = checks_for(evidence.code, evidence.phase)
        if "logs" not in checks:
            return self._ask(checks, CHECK_TIMEOUT) if checks else Checked()
        deadline = time.monotonic() + CHECK_TIMEOUT
        if not self._lock.acquire(timeout=CHECK_TIMEOUT):
            return Checked(trouble="another incident is being collected")
        try:
            now = time.monotonic()
            if self._incident is not None:
                since, those, completed, checked = self._incident
                went_well = None not in (completed, evidence.completed) and completed != evidence.completed
                if those == checks and not went_well and now - since < INCIDENT_TIME:
                    return checked
            checked = self._ask(checks, deadline - now, report=evidence)
            self._incident = (now, checks, evidence.completed, checked)
            return checked
        finally:
            self._lock.release()

    def _ask(self, checks: Iterable[Check], seconds: float, report: Evidence | None = None) -> Checked:
        answers: dict[str, Any] = {}
        troubles: list[str] = []

        def attempt(what: str, step: Callable[[], dict[str, object]]) -> None:
            """Whatever a step raises must not keep the others from being tried, nor hide the failure."""
            try:
                for key, answer in step().items():
                    answers.setdefault(key, answer)  # an opened device answers for itself, before it is looked up
            except Exception as exc:
                troubles.append(f"{what}: {exc!r}")

        def so_far() -> Checked:
            return Checked(**answers.copy(), trouble="; ".join(troubles) or None)

        def write(report: Evidence, folder: Path) -> dict[str, object]:
            record = as_record(report._replace(checked=so_far())) | self._identity()
            path = _evidence.write_bundle(folder, record)
            logger.warning("%s: evidence of a failure below DMA is in %s", self._device.name, path)
            return {}

        def ask() -> bool:
            for check in checks:
                attempt(check, getattr(self, f"_ask_{check}"))
            if report is not None and self._folder is not None:
                folder = self._folder
                attempt("writing", lambda: write(report, folder))
            return True

        try:
            if _worker.within(seconds, ask) is None:
                troubles.append(f"no answer within {CHECK_TIMEOUT} s")
        except RuntimeError as exc:  # no thread can be had
            troubles.append(str(exc))
        return so_far()

    def _identity(self) -> dict[str, object]:
        return {
            "library": self._library.path,
            "doca_version": self._library.version,
            "emulated": self._library.emulated,
            "at": datetime.datetime.now(datetime.UTC).isoformat(),
        }

    # ---- the checks, by name

    def _ask_caps(self) -> dict[str, object]:
        try:
            caps = self._query()
        except _native.Failure as failure:
            if failure.call != "doca_dma_cap_task_memcpy_is_supported":
                raise
            return {"supported": failure.code}
        if caps is None:
            return {}
        snapshot = Capabilities._from_native(caps, self._device.pci_address, self._library.version)
        return {"supported": 0, "caps": snapshot}

    def _ask_devices(self) -> dict[str, object]:
        listed = list_devices(self._library)
        answers: dict[str, object] = {
            "listed": tuple(device.name for device in listed),
            "able": tuple(device.name for device in listed if device.dma_supported),
        }
        for device in listed:
            if device.pci_address == self._device.pci_address:
                answers["supported"] = 0 if device.dma_supported else NOT_SUPPORTED
        return answers

    def _ask_locked(self) -> dict[str, object]:
        return {"locked": _evidence.locked_memory(), "iommus": _evidence.iommus()}

    def _ask_nodes(self) -> dict[str, object]:
        return {"forbidden": _evidence.device_nodes()}

    def _ask_mappings(self) -> dict[str, object]:
        return {"mappings": _evidence.mappings()}

    def _ask_files(self) -> dict[str, object]:
        return {"files": _evidence.open_files()}

    def _ask_logs(self) -> dict[str, object]:
        return {"kernel_log": _evidence.kernel_log(), "sdk_log": self._library.sdk_log.tail()}
