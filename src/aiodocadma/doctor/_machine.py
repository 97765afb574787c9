"""What kind of machine this is, and what it has: devices, drivers, huge pages, limits. From procfs, sysfs and /etc."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, Literal

from aiodocadma import _host
from aiodocadma._host import HostKind
from aiodocadma._root import Root
from aiodocadma.doctor._system import System
from aiodocadma.doctor._tools import caps_devices

__all__ = [
    "bluefield_mode",
    "container",
    "device_records",
    "firmware_versions",
    "group_names",
    "host_kind",
    "hugepages",
    "loaded_modules",
    "locked_memory_limit",
    "pci_functions",
]

_VENDOR: Final = "0x15b3"  # Mellanox, now NVIDIA networking


def host_kind(system: System) -> HostKind:
    """On which side of the PCIe link this is; a container is on the side of its machine."""
    return _host.host_kind(Path(system.root.locate("/")))


def container(system: System) -> str | None:
    """How it is known that this is a container, or None."""
    root = system.root
    for name in ("/.dockerenv", "/run/.containerenv", "/run/systemd/container"):
        if root.exists(name):
            return name
    if "container" in system.environ:
        return "$container"
    groups = root.read("/proc/1/cgroup").text or ""
    return "/proc/1/cgroup" if re.search(r"docker|kubepods|containerd|libpod|/lxc", groups) else None


def bluefield_mode(system: System) -> str | None:
    """
    The card's mode, as far as it can be seen without privilege: None where only firmware tools would tell.

    On the card's own side a representor of the host's function exists in DPU mode only.
    """
    if host_kind(system) != "dpu":
        return None
    ports = [system.root.line(name) or "" for name in system.root.glob("/sys/class/net/*/phys_port_name")]
    return "dpu" if any(re.fullmatch(r"(c\d+)?pf\d+(hpf)?", port) for port in ports) else None


def loaded_modules(root: Root) -> tuple[str, ...] | None:
    """Names of the mlx5 modules that are loaded; None where the list is not readable."""
    text = root.read("/proc/modules").text
    if text is None:
        return None
    return tuple(sorted(line.split()[0] for line in text.splitlines() if line.startswith("mlx5")))


def hugepages(root: Root) -> dict[str, Any]:
    """Free huge pages of both sizes, and where hugetlbfs is mounted."""

    def free(size: str) -> int | None:
        text = root.line(f"/sys/kernel/mm/hugepages/hugepages-{size}/free_hugepages")
        return int(text) if text and text.isdigit() else None

    mounts = [line.split() for line in (root.read("/proc/mounts").text or "").splitlines()]
    mounted = next((fields[1] for fields in mounts if len(fields) > 2 and fields[2] == "hugetlbfs"), None)
    return {"available_2m": free("2048kB"), "available_1g": free("1048576kB"), "mount_point": mounted}


def locked_memory_limit(root: Root) -> int | Literal["unlimited"] | None:
    """The soft limit of locked memory in bytes; None where it is not readable."""
    match = re.search(r"^Max locked memory\s+(\S+)", root.read("/proc/self/limits").text or "", re.MULTILINE)
    if match is None:
        return None
    return "unlimited" if match[1] == "unlimited" else int(match[1])


def group_names(root: Root) -> list[str]:
    """The groups this process is in, by name where /etc/group has one."""
    status = root.read("/proc/self/status").text or ""
    ids = [match[1] for match in re.finditer(r"^Gid:\s+(\d+)", status, re.MULTILINE)]
    if match := re.search(r"^Groups:[ \t]*([\d ]*)$", status, re.MULTILINE):
        ids += match[1].split()
    entries = [line.split(":") for line in (root.read("/etc/group").text or "").splitlines()]
    names = {entry[2]: entry[0] for entry in entries if len(entry) > 2}
    return sorted({names.get(id_, id_) for id_ in ids})


def pci_functions(root: Root) -> list[str]:
    """Addresses of the functions of NVIDIA's network cards, BlueField or not."""
    return [
        name.split("/")[-2]
        for name in root.glob("/sys/bus/pci/devices/*/vendor")
        if (root.line(name) or "").lower() == _VENDOR
    ]


def firmware_versions(root: Root) -> list[str]:
    """What the drivers tell of the cards' firmware, each version once."""
    return sorted({line for name in root.glob("/sys/class/infiniband/*/fw_ver") if (line := root.line(name))})


def device_records(system: System) -> list[dict[str, Any]]:
    """The cards' functions and network devices in the env schema: from sysfs, else from doca_caps. Never emulated."""
    root = system.root
    found: list[dict[str, Any]] = []
    for address in pci_functions(root):
        folder = f"/sys/bus/pci/devices/{address}"
        kind = "vf" if root.link(f"{folder}/physfn") is not None else "pf"
        names = [name.rpartition("/")[2] for name in root.glob(f"{folder}/net/*")]
        rdma = [name.rpartition("/")[2] for name in root.glob(f"{folder}/infiniband/*")]
        if not names:
            found.append(_record(address, kind, rdma[0] if rdma else None))
        for name in names:
            representor = re.match(r"(c\d+)?pf\d", root.line(f"{folder}/net/{name}/phys_port_name") or "")
            mtu = root.line(f"{folder}/net/{name}/mtu")
            found.append(
                _record(
                    address,
                    "representor" if representor else kind,
                    name,
                    representor_of=address if representor else None,
                    state=root.line(f"{folder}/net/{name}/operstate"),
                    mtu=int(mtu) if mtu and mtu.isdigit() else None,
                )
            )
    if not found:
        for device in caps_devices(system)[0]:
            function = device.attributes.get("pci_func_type", "pf").lower()
            name_of = device.attributes.get("iface_name") or device.attributes.get("ibdev_name")
            found.append(_record(device.pci_address, function, name_of))
    return found


def _record(
    address: str,
    kind: str,
    name: str | None,
    *,
    representor_of: str | None = None,
    state: str | None = None,
    mtu: int | None = None,
) -> dict[str, Any]:
    return {
        "pcie_address": address,
        "kind": kind,
        "name": name,
        "representor_of": representor_of,
        "state": state,
        "mtu": mtu,
    }
