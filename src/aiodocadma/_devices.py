"""Devices and what they can do."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os

from aiodocadma import _native
from aiodocadma._causes import CODES, Evidence
from aiodocadma._library import Library, open_library
from aiodocadma.exceptions import DocaError, DocaNotFoundError, DocaNotSupportedError

__all__ = ["Capabilities", "DeviceInfo", "devices", "list_devices", "select_device"]


@dataclasses.dataclass(frozen=True, slots=True)
class Capabilities:
    """
    What a device answered to the capability queries: a snapshot; every size decision of the client reads it.

    Args:
        max_buf_size: Bytes one memcpy task may move.
        max_buf_list_len: Elements a buffer list may have; 1 means that lists are not supported.
        max_num_tasks: Tasks one context may have; None where no context could be made to ask.
        export_pci: Whether memory can be exported to the PCI peer.
        create_from_export_pci: Whether a peer's export can be imported.
        queried_at: When, in UTC.
        device: The PCI address of the device that answered.
        version: Of the library that asked, or None if it does not tell.

    Source: ``doca_dma_cap_task_memcpy_get_max_buf_size``, ``doca_dma_cap_task_memcpy_get_max_buf_list_len``,
        ``doca_dma_cap_get_max_num_tasks``, ``doca_mmap_cap_is_export_pci_supported``,
        ``doca_mmap_cap_is_create_from_export_pci_supported``.
    """

    max_buf_size: int
    max_buf_list_len: int
    max_num_tasks: int | None
    export_pci: bool
    create_from_export_pci: bool
    queried_at: datetime.datetime
    device: str
    version: str | None

    @classmethod
    def _from_native(cls, caps: _native.Caps, device: str, version: str | None) -> Capabilities:
        return cls(
            caps.max_buf_size,
            caps.max_buf_list_len,
            caps.max_num_tasks or None,
            caps.export_pci,
            caps.create_from_export_pci,
            datetime.datetime.now(datetime.UTC),
            device,
            version,
        )

    def diff(self, other: Capabilities) -> dict[str, tuple[object, object]]:
        """
        What another snapshot says otherwise.

        Args:
            other: For example a later one of the same device, or one of another device.

        Returns:
            ``{field: (here, there)}``; empty if both say the same. When they were taken is not compared.

        Source: aiodocadma.
        """
        names = [field.name for field in dataclasses.fields(self) if field.name != "queried_at"]
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceInfo:
    """
    A listed device.

    Args:
        pci_address: ``dddd:bb:dd.f``.
        ibdev_name: For example ``mlx5_0``; empty if it has none.
        iface_name: For example ``p0``; empty if it has none.
        dma_supported: Whether it can do memcpy tasks.
        reason: Why it cannot, in DOCA's words, or None.
        capabilities: What it answered, or None where DMA is not supported.
        emulated: True for the software device: no card moves these bytes.
        library: The file of the library that lists it.
        version: The library's version, or None if it does not tell.

    Source: ``doca_devinfo_create_list``, ``doca_dma_cap_task_memcpy_is_supported``.
    """

    pci_address: str
    ibdev_name: str
    iface_name: str
    dma_supported: bool
    reason: str | None
    capabilities: Capabilities | None
    emulated: bool
    library: str
    version: str | None

    @property
    def name(self) -> str:
        """
        The name to show.

        Returns:
            The ibdev name, else the PCI address.

        Source: ``doca_devinfo_get_ibdev_name``, ``doca_devinfo_get_pci_addr_str``.
        """
        return self.ibdev_name or self.pci_address

    @property
    def names(self) -> frozenset[str]:
        """
        Everything that ``open_dma(device=...)`` knows it by.

        Returns:
            The PCI address, with and without the domain ``0000``, the names of the ibdev and the interface.

        Source: aiodocadma.
        """
        names = {self.pci_address, self.pci_address.removeprefix("0000:"), self.ibdev_name, self.iface_name}
        return frozenset(names - {""})


def list_devices(library: Library, *, num_tasks: bool = False) -> list[DeviceInfo]:
    """
    List the devices of a loaded library.

    Args:
        library: Where to look.
        num_tasks: Whether to ask for ``max_num_tasks``, too: that opens each device and makes a context on it.

    Returns:
        One entry per device, in DOCA's order.

    Raises:
        DocaError: If DOCA cannot list them.

    Source: ``doca_devinfo_create_list``.
    """
    try:
        listed = library.native.devices()
    except _native.Failure as failure:
        raise library.error(Evidence(failure.code, failure.call, failure.phase, "listing the devices")) from None
    return [
        DeviceInfo(
            pci_address=info.pci_address,
            ibdev_name=info.ibdev_name,
            iface_name=info.iface_name,
            dma_supported=info.memcpy_supported == 0,
            reason=None
            if info.memcpy_supported == 0
            else f"{library.native.error_name(info.memcpy_supported)} "
            f"({library.native.error_descr(info.memcpy_supported)})",
            capabilities=_capabilities(library, info, num_tasks) if info.memcpy_supported == 0 else None,
            emulated=library.emulated,
            library=library.path,
            version=library.version,
        )
        for info in listed
    ]


def _capabilities(library: Library, info: _native.DevInfo, num_tasks: bool) -> Capabilities:
    caps = info.caps
    if num_tasks:
        # A device that cannot be opened now is listed all the same.
        with contextlib.suppress(_native.Failure):
            caps = caps._replace(max_num_tasks=library.native.num_tasks(info.pci_address))
    return Capabilities._from_native(caps, info.pci_address, library.version)


def devices(library: str | os.PathLike[str] | None = None) -> list[DeviceInfo]:
    """
    List the devices, also those that cannot do DMA. Each that can is opened for a moment, to ask for all it can do.

    Args:
        library: As for ``open_dma()``.

    Returns:
        One entry per device, in DOCA's order; empty if there is none.

    Raises:
        LibraryError: If no usable DOCA library is found.
        DocaError: If DOCA cannot list them.

    Source: ``doca_devinfo_create_list``.
    """
    return list_devices(open_library(library), num_tasks=True)


def select_device(library: Library, wanted: str | None) -> DeviceInfo:
    """
    Choose the device to open.

    Args:
        library: Where to look.
        wanted: A PCI address (the domain may be left out), an ibdev or an interface name; None takes the first device
            that can do DMA.

    Returns:
        A device that supports memcpy tasks.

    Raises:
        DocaNotFoundError: If there is no such device; it names those that exist.
        DocaNotSupportedError: If the device cannot do DMA, or none can; it names those that can.

    Source: ``doca_dma_cap_task_memcpy_is_supported``.
    """
    listed = list_devices(library)
    able = [device for device in listed if device.dma_supported]
    if wanted is None:
        if able:
            return able[0]
        if not listed:
            raise _refusal(library, DocaNotFoundError, "no device is listed", None)
        raise _refusal(library, DocaNotSupportedError, f"no device can do DMA: {_names(listed)}", None)
    for device in listed:
        if wanted in device.names:
            if device.dma_supported:
                return device
            hint = f"Devices that can do DMA: {_names(able)}." if able else "No device here can do DMA."
            hint += " A BlueField must be in DPU mode for it, not in NIC mode."
            raise _refusal(library, DocaNotSupportedError, f"{device.name} cannot do DMA: {device.reason}", hint)
    raise _refusal(library, DocaNotFoundError, f"no device {wanted!r}", f"Devices here: {_names(listed) or 'none'}.")


def _names(listed: list[DeviceInfo]) -> str:
    return ", ".join(f"{device.name} ({device.pci_address})" for device in listed)


def _refusal(library: Library, kind: type[DocaError], cause: str, hint: str | None) -> DocaError:
    layer, step = CODES[kind.code]
    return kind(
        descr=library.native.error_descr(kind.code),
        phase="open",
        cause=cause,
        cause_name="device_cannot" if kind is DocaNotSupportedError else "device_not_listed",
        layer=layer,
        rule="R13",
        next_step=hint or step,
    )
