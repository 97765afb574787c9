"""
Installations of DOCA that somebody may have, as folders: what the doctor is tested with.

Each is a healthy machine with a few files changed, so that a tree shows what is wrong with it. The libraries are ELF
files with symbols and no code. Run as a program (``python -m tests.doctor.trees``), this writes the golden records
anew; read the diff before you commit it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from aiodocadma import _native
from aiodocadma._library import emulator_folder
from aiodocadma._root import Root
from aiodocadma.doctor import Loaded, LoadedDevice, Output, Report, System, examine

GOLDEN = Path(__file__).with_name("golden")
DOCA = "/opt/mellanox/doca"
CAPS = f"{DOCA}/tools/doca_caps"
EMULATOR = Loaded(
    "/site-packages/aiodocadma/_emulator/lib/libdocaemu.so",
    "3.0.0058",
    emulated=True,
    devices=(LoadedDevice("0000:03:00.0", "mlx5_0", dma=True),),
)
MACHINES = {"x86_64": 62, "aarch64": 183}

# The two shapes of `doca_caps --list-devs`, and of `doca_caps --version`.
OLD_LIST = """\
PCI: 0000:3b:00.0
\tibdev_name                mlx5_0
\tiface_name                ens1f0np0
\tmac_addr                  b8:3f:d2:00:11:22
\tipv4_addr                 192.0.2.7
\tipv6_addr                 fe80:0000:0000:0000:ba3f:d2ff:fe00:1122
\tgid_table_size            255
\tGID[0]                    fe80:0000:0000:0000:ba3f:d2ff:fe00:1122
"""
NEW_LIST = """\
PCI: 0000:3b:00.0
    ibdev_name        mlx5_0
    iface_name        ens1f0np0
    iface_index       4
    pci_func_type     PF
    uplink_ib_port    1
    mac_addr          b8:3f:d2:00:11:22
    ipv4_addr         192.0.2.7
    ipv6_addr         fe80:0000:0000:0000:ba3f:d2ff:fe00:1122
"""


def bare(version: str) -> str:
    """The output of ``doca_caps --version`` that NVIDIA's text promises."""
    return f"{version}\n"


def labelled(compiled: str, runtime: str) -> str:
    """The output that DOCA's argument parser really prints."""
    return f"DOCA SDK     Version (Compilation): {compiled}\nDOCA Runtime Version (Runtime):     {runtime}\n"


def elf(machine: str, soname: str, symbols: list[str]) -> bytes:
    """A library that defines symbols and has no code: sections .dynsym, .dynstr and .dynamic."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in [soname, *symbols])
    offsets = [1]
    for name in [soname, *symbols]:
        offsets.append(offsets[-1] + len(name) + 1)
    table = b"\0" * 24 + b"".join(struct.pack("<IBBHQQ", at, 0x12, 0, 1, 0, 0) for at in offsets[1:-1])
    dynamic = struct.pack("<qQqQ", 14, offsets[0], 0, 0)
    at = 64
    sections = [struct.pack("<IIQQQQIIQQ", *([0] * 10))]
    for kind, data, link, size in ((11, table, 2, 24), (3, names, 0, 0), (6, dynamic, 2, 16)):
        sections.append(struct.pack("<IIQQQQIIQQ", 0, kind, 2, 0, at, len(data), link, 1, 8, size))
        at += len(data)
    header = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    header += struct.pack("<HHIQQQIHHHHHH", 3, MACHINES[machine], 1, 0, 0, at, 0, 64, 0, 0, 64, len(sections), 0)
    return header + table + names + dynamic + b"".join(sections)


@functools.cache
def symbols_of(name: str) -> list[str]:
    """What the client calls in ``libdoca_common`` or ``libdoca_dma``."""
    every = (*_native.required_symbols(), *_native.optional_symbols())
    return [symbol for symbol in every if symbol.startswith("doca_dma_") == (name == "dma")]


@dataclasses.dataclass
class Tree:
    """
    A machine: files by absolute name (text, bytes, or ``-> TARGET`` for a link), and what is not files.

    Args:
        version: As its packages spell it.
        machine: ``uname -m``.
        libdir: Where the libraries are.
    """

    version: str = "3.0.0058"
    machine: str = "x86_64"
    libdir: str = f"{DOCA}/lib/x86_64-linux-gnu"
    files: dict[str, str | bytes] = dataclasses.field(default_factory=dict)
    environ: dict[str, str] = dataclasses.field(default_factory=lambda: {"PATH": "/usr/bin"})
    caps: dict[str, str] = dataclasses.field(default_factory=dict)
    loaded: Loaded | None = None

    def library(self, name: str, version: str | None = None, folder: str | None = None) -> None:
        """Put a library there with its links, as packages do."""
        version, folder = version or self.version, folder or self.libdir
        file = f"libdoca_{name}.so.{version}"
        self.files[f"{folder}/{file}"] = elf(self.machine, f"libdoca_{name}.so.2", symbols_of(name))
        self.files[f"{folder}/libdoca_{name}.so.2"] = f"-> {file}"
        self.files[f"{folder}/libdoca_{name}.so"] = f"-> libdoca_{name}.so.2"

    def module(self, name: str, version: str | None = None, folder: str | None = None) -> None:
        """Put a .pc file there."""
        self.files[f"{folder or self.libdir}/pkgconfig/{name}.pc"] = (
            f"prefix={DOCA}\nincludedir=${{prefix}}/include\nlibdir={self.libdir}\n\n"
            f"Name: {name}\nDescription: DOCA\nVersion: {version or self.version}\nLibs: -L${{libdir}}\n"
        )

    def headers(self, folder: str = f"{DOCA}/include") -> None:
        """Put headers there: ours, with this version."""
        for path in (emulator_folder() / "include").glob("doca_*.h"):
            text = path.read_text()
            if path.name == "doca_version.h":
                text = text.replace('"3.0.0058"', f'"{self.version}"')
            self.files[f"{folder}/{path.name}"] = text

    def card(self, address: str = "0000:3b:00.0", ibdev: str = "mlx5_0", iface: str = "ens1f0np0") -> None:
        """Put a card into sysfs, with its drivers and device nodes."""
        pci = f"/sys/bus/pci/devices/{address}"
        self.files |= {
            f"{pci}/vendor": "0x15b3\n",
            f"{pci}/net/{iface}/mtu": "1500\n",
            f"{pci}/net/{iface}/operstate": "up\n",
            f"{pci}/infiniband/{ibdev}/node_desc": "card\n",
            f"/sys/class/infiniband/{ibdev}/fw_ver": "32.43.1014\n",
            "/dev/infiniband/uverbs0": "",
            "/proc/modules": "mlx5_ib 1 0 - Live 0x0\nmlx5_core 1 1 mlx5_ib, Live 0x0\next4 1 0 - Live 0x0\n",
        }

    def remove(self, *prefixes: str) -> None:
        """Take away all files whose names begin so."""
        self.files = {name: data for name, data in self.files.items() if not name.startswith(prefixes)}

    def system(self, folder: Path) -> System:
        """Write it into an empty folder, and look at that."""
        for name, data in self.files.items():
            path = folder / name[1:]
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(data, bytes):
                path.write_bytes(data)
            elif data.startswith("-> "):
                path.symlink_to(data[3:])
            else:
                path.write_text(data)

        def tool(path: str, argument: str) -> Output:
            text = self.caps.get(argument)
            return Output(text, None if text is not None else "ended with code 127")

        return System(Root(folder), self.environ, self.machine, tool, self.loaded, "auto")


def machine(version: str = "3.0.0058", **fields: Any) -> Tree:
    """A machine without DOCA, as procfs and /etc show it."""
    tree = Tree(version, **fields)
    tree.files |= {
        "/proc/sys/kernel/osrelease": "5.15.0-122-generic\n",
        "/proc/modules": "ext4 1 0 - Live 0x0\n",
        "/proc/mounts": "hugetlbfs /dev/hugepages hugetlbfs rw 0 0\n",
        "/proc/self/limits": "Limit             Soft Limit  Hard Limit\nMax locked memory unlimited   unlimited\n",
        "/proc/self/status": "Name:\tpython\nGid:\t1000\t1000\t1000\t1000\nGroups:\t27 1000 \n",
        "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "512\n",
        "/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages": "0\n",
        "/etc/group": "rdma:x:27:\nservice:x:1000:\n",
        "/etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
    }
    return tree


def healthy(version: str = "3.0.0058", **fields: Any) -> Tree:
    """A host with all of DOCA and a card."""
    tree = machine(version, **fields)
    for name in ("common", "dma"):
        tree.library(name)
        tree.module(f"doca-{name}")
    tree.module("doca-argp")
    tree.headers()
    tree.card()
    tree.files |= {
        "/etc/ld.so.conf.d/doca.conf": f"# DOCA\n{tree.libdir}\n",
        f"{DOCA}/applications/VERSION": f"{version}\n",
        f"{DOCA}/samples/doca_dma/dma_local_copy/main.c": "",
        CAPS: "",
        "/var/lib/dpkg/status": "".join(
            f"Package: {name}\nStatus: install ok installed\nVersion: {version}-1\n\n"
            for name in ("doca-sdk-common", "doca-sdk-dma", "doca-caps", "doca-samples")
        )
        + "Package: bash\nStatus: install ok installed\nVersion: 5.1\n",
    }
    tree.caps = {"--version": labelled(version, version), "--list-devs": OLD_LIST}
    tree.loaded = Loaded(
        f"{tree.libdir}/libdoca_common.so.{version}",
        version,
        devices=(LoadedDevice("0000:3b:00.0", "mlx5_0", dma=True),),
    )
    return tree


# ---- the trees: what each is, the lowest layer that fails, and the checks that do


@dataclasses.dataclass(frozen=True)
class Case:
    """A tree and what must be found."""

    name: str
    make: Callable[[], Tree]
    layer: int | None
    failing: frozenset[str]


CASES: list[Case] = []


def case(layer: int | None = None, *failing: str) -> Callable[[Callable[[], Tree]], Callable[[], Tree]]:
    """Register a tree."""

    def register(make: Callable[[], Tree]) -> Callable[[], Tree]:
        CASES.append(Case(make.__name__, make, layer, frozenset(failing)))
        return make

    return register


@case()
def full_3_0() -> Tree:
    """All of one release, the versions padded."""
    return healthy()


@case()
def full_3_3() -> Tree:
    """The layout of 3.3: a plain version in one place, the new list of devices, another suffix."""
    tree = healthy("3.3.0088")
    tree.files[f"{DOCA}/applications/VERSION"] = "3.3.0\n"
    tree.caps["--list-devs"] = NEW_LIST
    return tree


@case()
def full_2_6() -> Tree:
    """The layout of 2.6: modules doca and doca-libs only, a bare version, packages of other names."""
    tree = healthy("2.6.0058")
    tree.remove(f"{tree.libdir}/pkgconfig", "/var/lib/dpkg")
    tree.module("doca", folder=f"{DOCA}/infrastructure/lib/x86_64-linux-gnu")
    tree.module("doca-libs", folder=f"{DOCA}/infrastructure/lib/x86_64-linux-gnu")
    tree.caps["--version"] = bare("2.6.0058")
    return tree


@case()
def rpm_3_2() -> Tree:
    """lib64, no list of Debian's packages, a patch release."""
    tree = healthy("3.2.1025", libdir=f"{DOCA}/lib64")
    tree.remove("/var/lib/dpkg")
    tree.files[f"{DOCA}/applications/VERSION"] = "3.2.1\n"
    return tree


@case()
def runtime_only() -> Tree:
    """No headers, no samples, no tools: absent, and nothing disagrees."""
    tree = healthy()
    tree.remove(f"{DOCA}/include", f"{DOCA}/applications", f"{DOCA}/samples", f"{DOCA}/tools")
    return tree


@case(1, "DOCA")
def no_doca() -> Tree:
    """A laptop: the emulator is used."""
    tree = machine()
    tree.loaded = EMULATOR
    return tree


def _with_emulator_sdk(tree: Tree) -> Tree:
    """As one builds C programs on the emulator: PKG_CONFIG_PATH leads to its modules."""
    folder = "/site-packages/aiodocadma/_emulator/sdk/lib/pkgconfig"
    for name in ("doca-common", "doca-dma"):
        tree.files[f"{folder}/{name}.pc"] = (
            f"root=${{pcfiledir}}/../../..\ndropindir=${{root}}/dropin\n\nName: {name}\nVersion: 3.0.0058\n"
        )
    tree.environ["PKG_CONFIG_PATH"] = folder
    return tree


@case(1, "DOCA")
def emulator_sdk() -> Tree:
    """The emulator's modules are no installation of DOCA."""
    tree = _with_emulator_sdk(machine())
    tree.loaded = EMULATOR
    return tree


@case()
def emulator_sdk_beside_doca() -> Tree:
    """Nor do they disagree with one of another release."""
    return _with_emulator_sdk(healthy("2.9.4005"))


@case(1, "DOCA")
def container_without_doca() -> Tree:
    tree = machine()
    tree.files["/.dockerenv"] = ""
    tree.loaded = EMULATOR
    return tree


@case()
def container_with_doca() -> Tree:
    """NVIDIA's image: fine to build in, and no device is expected."""
    tree = healthy()
    tree.remove("/sys/bus/pci", "/sys/class/infiniband", "/dev/infiniband")
    tree.files["/proc/1/cgroup"] = "0::/kubepods/besteffort/pod1\n"
    assert tree.loaded is not None
    tree.loaded = dataclasses.replace(tree.loaded, devices=())
    tree.caps["--list-devs"] = ""
    return tree


@case(1, "libdoca_common", "libdoca_dma", "library")
def empty_prefix() -> Tree:
    """A folder that an uninstallation left behind."""
    tree = machine()
    tree.files[f"{DOCA}/include/doca_version.h"] = '#define DOCA_VERSION_STRING "3.0.0058"\n'
    tree.remove(f"{DOCA}/include")
    tree.files[f"{DOCA}/lib/README"] = ""
    tree.loaded = Loaded(error="/opt/mellanox/doca exists, but holds no libdoca_common")
    return tree


@case(1, "libdoca_dma", "library")
def partial_without_dma() -> Tree:
    """The package of one library was forgotten."""
    tree = healthy()
    tree.remove(f"{tree.libdir}/libdoca_dma", f"{tree.libdir}/pkgconfig/doca-dma.pc")
    tree.loaded = Loaded(error="libdoca_dma.so.2: cannot open shared object file: No such file or directory")
    return tree


@case(1, "packages")
def half_installed() -> Tree:
    """An installation that was interrupted."""
    tree = healthy()
    status = tree.files["/var/lib/dpkg/status"]
    assert isinstance(status, str)
    tree.files["/var/lib/dpkg/status"] = status.replace("install ok installed", "install ok half-configured", 1)
    return tree


@case(2, "versions agree")
def stale_pc() -> Tree:
    """After an upgrade one .pc file is that of the old release."""
    tree = healthy()
    tree.module("doca-dma", "2.9.4005")
    return tree


@case(2, "versions agree", "one libdoca_common", "one libdoca_dma")
def two_installs() -> Tree:
    """LD_LIBRARY_PATH leads to an older one, which is then loaded."""
    tree = healthy()
    for name in ("common", "dma"):
        tree.library(name, "2.9.4005", "/home/user/doca/lib")
    tree.environ["LD_LIBRARY_PATH"] = "/home/user/doca/lib"
    tree.loaded = dataclasses.replace(
        EMULATOR, path="/home/user/doca/lib/libdoca_common.so.2.9.4005", version="2.9.4005", emulated=False
    )
    return tree


@case(2, "versions agree")
def caps_of_another_release() -> Tree:
    """doca_caps was compiled with a release that is not the one it runs on."""
    tree = healthy()
    tree.caps["--version"] = labelled("2.9.0065", "3.0.0058")
    return tree


@case()
def caps_does_not_run() -> Tree:
    """A tool that fails tells nothing; that is no skew."""
    tree = healthy()
    tree.caps = {}
    return tree


@case(2, "versions agree", "release", "symbols of libdoca_common", "library")
def too_old() -> Tree:
    """2.2 has jobs and work queues, no tasks and no progress engine."""
    tree = healthy("2.2.0080")
    tree.module("doca-argp", "2.2.1")
    tree.files[f"{DOCA}/applications/VERSION"] = "2.2.1\n"
    tree.files[f"{tree.libdir}/libdoca_common.so.2.2.0080"] = elf(
        "x86_64", "libdoca_common.so.2", [name for name in symbols_of("common") if name != "doca_pe_create"]
    )
    tree.loaded = Loaded(error="libdoca_common.so.2 has no symbol doca_pe_create")
    return tree


@case(3, "interface")
def header_drift() -> Tree:
    """A constant was renumbered and a prototype changed: the installed headers count."""
    tree = healthy()
    for name, old, new in (
        ("doca_error.h", "DOCA_ERROR_AGAIN = 5", "DOCA_ERROR_AGAIN = 6"),
        (
            "doca_dma.h",
            "doca_dma_create(struct doca_dev *dev,",
            "doca_dma_create(struct doca_dev *dev, uint32_t flags,",
        ),
    ):
        text = tree.files[f"{DOCA}/include/{name}"]
        assert isinstance(text, str)
        assert old in text
        tree.files[f"{DOCA}/include/{name}"] = text.replace(old, new, 1)
    return tree


@case()
def headers_of_a_later_release() -> Tree:
    """A library without a call that is optional to the client, and headers that declare it."""
    tree = healthy()
    symbols = [name for name in symbols_of("common") if name != "doca_task_submit_ex"]
    tree.files[f"{tree.libdir}/libdoca_common.so.3.0.0058"] = elf("x86_64", "libdoca_common.so.2", symbols)
    return tree


@case(4, "symbols of libdoca_dma", "library")
def damaged_library() -> Tree:
    tree = healthy()
    tree.files[f"{tree.libdir}/libdoca_dma.so.3.0.0058"] = b"<html>404</html>"
    tree.loaded = Loaded(error="libdoca_dma.so.2: invalid ELF header")
    return tree


@case(4, "symbols of libdoca_common", "symbols of libdoca_dma", "library")
def other_architecture() -> Tree:
    """The card's packages, unpacked on the host."""
    tree = healthy(machine="aarch64")
    tree.machine = "x86_64"
    tree.loaded = Loaded(error="libdoca_common.so.2: cannot open shared object file: wrong ELF class")
    return tree


@case(5, "locked memory")
def little_locked_memory() -> Tree:
    tree = healthy()
    tree.files["/proc/self/limits"] = "Max locked memory         65536                65536                bytes     \n"
    return tree


@case(5, "devices")
def nic_mode() -> Tree:
    """The library lists the card, and the card cannot."""
    tree = healthy()
    assert tree.loaded is not None
    tree.loaded = dataclasses.replace(
        tree.loaded,
        devices=(
            LoadedDevice(
                "0000:3b:00.0", "mlx5_0", dma=False, reason="DOCA_ERROR_NOT_SUPPORTED (Operation not supported)"
            ),
        ),
    )
    return tree


@case(5, "library in memory")
def other_library_in_memory() -> Tree:
    """A preloaded library goes before the one that was asked for."""
    tree = healthy()
    tree.files["/proc/self/maps"] = (
        "7f0000000000-7f0000001000 r-xp 00000000 08:01 42     /usr/lib/libc.so.6\n"
        "7f0000002000-7f0000003000 r-xp 00000000 08:01 43     /tmp/trace/libdoca_common.so.3.0.0058\n"
        "7f0000004000-7f0000005000 rw-p 00000000 00:00 0 \n"
    )
    return tree


@case(5, "devices", "drivers")
def drivers_not_loaded() -> Tree:
    tree = healthy()
    tree.files["/proc/modules"] = "mlx5_core 1 0 - Live 0x0\n"
    assert tree.loaded is not None
    tree.loaded = dataclasses.replace(tree.loaded, devices=())
    return tree


@case(7, "device nodes")
def no_device_nodes() -> Tree:
    tree = healthy()
    tree.remove("/dev/infiniband")
    tree.files["/dev/kmsg"] = "6,1,100,-;mlx5_core 0000:3b:00.0: firmware version: 32.43.1014\n"
    return tree


def _bluefield(image: str) -> Tree:
    tree = healthy(machine="aarch64", libdir=f"{DOCA}/lib/aarch64-linux-gnu")
    tree.remove("/sys/bus/pci")
    tree.card("0000:03:00.0", "mlx5_0", "p0")
    pci = "/sys/bus/pci/devices/0000:03:00.0"
    tree.files |= {
        "/etc/mlnx-release": f"{image}\n",
        "/etc/nvidia/bf-release": "BF_NAME=BlueField\n",
        f"{pci}/net/p0/phys_port_name": "p0\n",
        f"{pci}/net/pf0hpf/phys_port_name": "pf0hpf\n",
        f"{pci}/net/pf0hpf/operstate": "up\n",
        f"{pci}/net/pf0hpf/mtu": "9000\n",
        "/sys/class/net/p0": "-> ../../bus/pci/devices/0000:03:00.0/net/p0",
        "/sys/class/net/pf0hpf": "-> ../../bus/pci/devices/0000:03:00.0/net/pf0hpf",
    }
    assert tree.loaded is not None
    tree.loaded = dataclasses.replace(tree.loaded, devices=(LoadedDevice("0000:03:00.0", "mlx5_0", dma=True),))
    return tree


@case()
def bluefield() -> Tree:
    """The card's own side, in DPU mode."""
    return _bluefield("bf-bundle-3.0.0-135_25.04_ubuntu-22.04_prod")


@case(2, "versions agree")
def bluefield_old_image() -> Tree:
    """DOCA was upgraded on the card, its image was not."""
    return _bluefield("DOCA_2.9.0_BSP_4.9.0_Ubuntu_22.04-5.24-10.prod")


def record(report: Report) -> dict[str, Any]:
    """A report as JSON, without what changes with every release of ours: our version, the lines of our headers."""
    text = re.sub(r"(doca_\w+\.h):\d+", r"\1:LINE", json.dumps(report.env()))
    env: dict[str, Any] = json.loads(text)
    env["x_aiodocadma"]["aiodocadma_version"] = "VERSION"
    return env


def write() -> Iterator[str]:
    """Write all golden records anew."""
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            text = json.dumps(record(examine(case.make().system(Path(folder)))), indent=1) + "\n"
        GOLDEN.joinpath(f"{case.name}.json").write_text(text)
        yield case.name


if __name__ == "__main__":
    print(*write(), sep="\n")
    sys.exit(0)
