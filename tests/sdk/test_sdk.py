"""C and C++ programs on the installed emulator: built with pkg-config, run, and their bytes checked."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests import decoys

from aiodocadma import _library
from aiodocadma.exceptions import LibraryError

EXAMPLES = Path(__file__).parents[2] / "examples" / "c"
PROGRAMS = ("copy_polling", "copy_events", "copy")
MODULES = ("doca-common", "doca-dma", "doca-argp")
DEADLINE = 50  # seconds; no command here takes more than a few
BYTES = bytes(i * 7 % 251 for i in range(100_000))

pytestmark = [
    pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")
    for tool in ("pkg-config", "make", "gcc", "g++")
]


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH")}
    return subprocess.run(
        command, env=env | environment, capture_output=True, text=True, timeout=DEADLINE, stdin=subprocess.DEVNULL
    )


def checked(*command: str | Path, **environment: str) -> str:
    done = run(*command, **environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def root() -> Path:
    """Where the emulator is installed."""
    return _library.emulator_folder()


@pytest.fixture(scope="module")
def pkgconfigdir(root: Path) -> str:
    """Where the modules of pkg-config are."""
    return str(root / "sdk" / "lib" / "pkgconfig")


def flags(pkgconfigdir: str, *modules: str) -> list[str]:
    return shlex.split(checked("pkg-config", "--cflags", "--libs", *modules, PKG_CONFIG_PATH=pkgconfigdir))


def make_examples(folder: Path, **environment: str) -> None:
    """Build all examples as a user does, away from the checkout."""
    sources = folder / "sources"
    shutil.copytree(EXAMPLES, sources)
    checked("make", "-C", sources, f"O={folder}", CFLAGS="-Werror", CXXFLAGS="-Werror", **environment)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, pkgconfigdir: str) -> Path:
    """Build the examples, once."""
    folder = tmp_path_factory.mktemp("programs")
    make_examples(folder, PKG_CONFIG_PATH=pkgconfigdir)
    return folder


# ---- the examples


@pytest.mark.parametrize("engine", ["default", "worker"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_prints_what_its_header_says(programs: Path, name: str, engine: str) -> None:
    source = next(EXAMPLES.glob(f"{name}.*")).read_text()
    promise = re.search(r"Prints: (.*)", source)
    assert promise is not None
    # A broken rule of DOCA's aborts the program.
    assert checked(programs / name, DOCAEMU_CONFIG=f"engine={engine};strict=abort") == f"{promise[1]}\n"


@pytest.mark.parametrize(
    ("options", "copies"),
    [((), 2), (("-bs", "999", "-p", "03:00.0"), 101), (("--block-size=1000000", "--pci-addr", "0000:03:00.0"), 1)],
)
def test_a_file_is_copied(programs: Path, tmp_path: Path, options: tuple[str, ...], copies: int) -> None:
    src, dst = tmp_path / "src", tmp_path / "dst"
    src.write_bytes(BYTES)
    command = (programs / "copy_file", "-i", src, "--out", dst, *options)
    assert checked(*command, DOCAEMU_CONFIG="strict=abort") == ""
    assert dst.read_bytes() == BYTES
    assert checked(*command, "--verbose") == f"{copies} copies\n"


def test_a_file_is_copied_in_pieces_the_device_takes(programs: Path, tmp_path: Path) -> None:
    src, dst = tmp_path / "src", tmp_path / "dst"
    src.write_bytes(BYTES)
    command = (programs / "copy_file", "-i", src, "-o", dst, "--verbose")
    assert checked(*command, DOCAEMU_CONFIG="max_buf_size=1000") == "100 copies\n"
    assert dst.read_bytes() == BYTES


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-i", "x"], "out: this option is missing"),
        (["-x"], "-x: no such option"),
        (["-bs", "0", "-i", "x", "-o", "y"], "doca_argp_start"),
    ],
)
def test_wrong_usage(programs: Path, arguments: list[str], message: str) -> None:
    done = run(programs / "copy_file", *arguments)
    assert done.returncode == 1
    assert message in done.stderr


def test_a_failed_copy_is_seen(programs: Path) -> None:
    done = run(programs / "copy_polling", DOCAEMU_CONFIG="fault op=completion status=IO_FAILED")
    assert done.returncode == 1
    assert "a copy failed" in done.stderr


# ---- pkg-config and the linker


def test_modules(root: Path, pkgconfigdir: str) -> None:
    header = (root / "include" / "doca_version.h").read_text()
    version = re.search(r'DOCA_VERSION_STRING "(.*)"', header)
    assert version is not None
    for module in MODULES:
        assert checked("pkg-config", "--modversion", module, PKG_CONFIG_PATH=pkgconfigdir) == f"{version[1]}\n"
        checked("pkg-config", "--validate", module, PKG_CONFIG_PATH=pkgconfigdir)
        assert f"-l{module.replace('-', '_')}" in flags(pkgconfigdir, module)
        for flag in flags(pkgconfigdir, module):
            if flag.startswith(("-I", "-L")):
                assert Path(flag[2:]).is_dir()
    assert "-ldoca_common" in flags(pkgconfigdir, "doca-dma")
    assert "-ldoca_argp" not in flags(pkgconfigdir, "doca-dma")


def test_a_program_needs_the_real_names_and_nothing_else_of_ours(programs: Path) -> None:
    """So that it runs on a card without being built again."""
    needed = set(re.findall(r"\(NEEDED\).*\[(lib\w+\.so\.2)\]", checked("readelf", "-d", programs / "copy_file")))
    assert needed >= {"libdoca_common.so.2", "libdoca_dma.so.2", "libdoca_argp.so.2"}
    undefined = re.findall(
        r" (docaemu_\w+|doca_\w+@\w+)", checked("nm", "-D", "--undefined-only", programs / "copy_file")
    )
    assert {name.split("@")[1] for name in undefined} == {"DOCA_2", "EXPERIMENTAL"}


def test_the_folder_may_be_moved(root: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(root, moved)
    make_examples(tmp_path, PKG_CONFIG_PATH=str(moved / "sdk" / "lib" / "pkgconfig"))
    assert checked(tmp_path / "copy_polling") == "copied 1048576 bytes\n"
    libraries = checked("ldd", tmp_path / "copy_polling")
    assert str(moved) in libraries
    assert str(root) not in libraries


def test_link_names_without_pkg_config(root: Path, tmp_path: Path) -> None:
    """As a build system does that turns -l into paths."""
    libdir = root / "sdk" / "lib"
    sources = [str(EXAMPLES / name) for name in ("copy_polling.c", "common.c")]
    libraries = [str(libdir / f"lib{name}.so") for name in ("doca_dma", "doca_common")]
    output = tmp_path / "program"
    checked("gcc", *sources, f"-I{root / 'include'}", *libraries, "-o", output)
    assert "libdoca_dma.so.2" in run(output).stderr  # no run path, so it is not found
    assert checked(output, LD_LIBRARY_PATH=str(root / "dropin")) == "copied 1048576 bytes\n"


# ---- headers

HEADERS = sorted(path.name for path in (Path(__file__).parents[2] / "native" / "include").glob("doca*.h"))

# What programs written for DOCA 2.9 to 3.3 get from the headers without asking for it: C headers, macros, enumerators.
TRANSITIVE = """
#include <doca_pe.h>
#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_mmap.h>
#include <doca_argp.h>

DOCA_LOG_REGISTER(TRANSITIVE::PROGRAM);

#ifndef DOCA_ARCH_DPU
#error "the card's side"
#endif
#ifndef DOCA_ARCH_HOST
#error "the host's side"
#endif

static doca_error_t codes(enum doca_ctx_states state, enum doca_devinfo_rep_filter filter)
{
    doca_error_t result = DOCA_SUCCESS;
    const doca_error_t all[] = {DOCA_ERROR_EMPTY, DOCA_ERROR_INVALID_VALUE, DOCA_ERROR_IN_PROGRESS,
        DOCA_ERROR_IO_FAILED, DOCA_ERROR_NOT_FOUND, DOCA_ERROR_NO_MEMORY, DOCA_ERROR_OPERATING_SYSTEM,
        DOCA_ERROR_TOO_BIG, DOCA_ERROR_AUTHENTICATION, DOCA_ERROR_DEVICE_FATAL_ERROR};
    switch (state) {
    case DOCA_CTX_STATE_IDLE:
    case DOCA_CTX_STATE_STARTING:
    case DOCA_CTX_STATE_RUNNING:
    case DOCA_CTX_STATE_STOPPING:
        DOCA_ERROR_PROPAGATE(result, all[filter == DOCA_DEVINFO_REP_FILTER_NET]);
    }
    if (DOCA_IS_ERROR(result) && doca_unlikely(doca_event_invalid_handle == 0))
        DOCA_LOG_ERR("%s", doca_error_get_descr(result));
    return result;
}

int main(void)
{
    char ibdev[DOCA_DEVINFO_IBDEV_NAME_SIZE], iface[DOCA_DEVINFO_IFACE_NAME_SIZE];
    char address[DOCA_DEVINFO_PCI_ADDR_SIZE], vuid[DOCA_DEVINFO_REP_VUID_SIZE];
    char *memory = (char *)malloc(64);
    uint32_t flags = DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_PCI_READ_ONLY;
    enum doca_pci_func_type function = DOCA_PCI_FUNC_TYPE_SF;
    struct doca_log_backend *backend;
    doca_event_handle_t event = 0;
    doca_notification_handle_t handle = event;
    union doca_data data = {0};

    assert(memory != NULL);
    memset(memory, 0, 64);
    strcpy(memory, "x");
    (void)ibdev, (void)iface, (void)address, (void)vuid, (void)data, (void)handle, (void)function;
    if (doca_log_backend_create_standard() != DOCA_SUCCESS ||
        doca_log_backend_create_with_file_sdk(stderr, &backend) != DOCA_SUCCESS ||
        doca_log_backend_set_sdk_level(backend, DOCA_LOG_LEVEL_WARNING) != DOCA_SUCCESS)
        return EXIT_FAILURE;
    DOCA_LOG_INFO("flags %u", flags);
    DOCA_LOG_WARN("no arguments");
    DOCA_LOG_DBG("not shown %d", 1);
    DOCA_LOG_TRC("not compiled");
    free(memory);
    return DOCA_ARGP_TYPE_INT == 2 && DOCA_ARGP_TYPE_STRING == 1 && DOCA_VERSION_LTE_CURRENT(2, 9, 72) &&
        codes(DOCA_CTX_STATE_IDLE, DOCA_DEVINFO_REP_FILTER_ALL) == DOCA_ERROR_EMPTY ? EXIT_SUCCESS : EXIT_FAILURE;
}
"""

LANGUAGES = [("gcc", "c", "gnu11"), ("gcc", "c", "c11"), ("g++", "c++", "c++17"), ("g++", "c++", "gnu++17")]


def compile_text(tmp_path: Path, text: str, language: tuple[str, str, str], *options: str) -> Path:
    compiler, name, standard = language
    source = tmp_path / "program.txt"
    source.write_text(text)
    output = tmp_path / "program"
    strict = ("-Wall", "-Wextra", "-Werror")
    checked(compiler, f"-std={standard}", *strict, "-x", name, source, "-x", "none", "-o", output, *options)
    return output


def test_every_header_is_installed(root: Path) -> None:
    assert sorted(path.name for path in (root / "include").iterdir()) == HEADERS


@pytest.mark.parametrize("language", LANGUAGES, ids="-".join)
@pytest.mark.parametrize("header", HEADERS)
def test_a_header_alone(root: Path, tmp_path: Path, header: str, language: tuple[str, str, str]) -> None:
    text = f"#include <{header}>\n#include <{header}>\n"
    compile_text(tmp_path, text, language, "-fsyntax-only", f"-I{root / 'include'}")


@pytest.mark.parametrize("language", LANGUAGES, ids="-".join)
def test_what_programs_take_for_granted(pkgconfigdir: str, tmp_path: Path, language: tuple[str, str, str]) -> None:
    options = ("-DDOCA_ALLOW_EXPERIMENTAL_API", *flags(pkgconfigdir, "doca-dma", "doca-argp"))
    program = compile_text(tmp_path, TRANSITIVE, language, *options)
    done = run(program)
    assert done.returncode == 0
    assert "flags 17" in done.stdout
    assert "TRANSITIVE::PROGRAM" in done.stdout
    assert "no arguments" in done.stderr
    assert "not" not in done.stdout


def test_experimental_calls_warn_unless_allowed(root: Path, tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text("#include <doca_log.h>\nint main(void) { return doca_log_backend_create_standard(); }\n")
    command = ("gcc", "-fsyntax-only", f"-I{root / 'include'}", source)
    assert "deprecated" in run(*command).stderr
    assert checked(*command, "-DDOCA_ALLOW_EXPERIMENTAL_API") == ""


# ---- programs that were linked with a real DOCA


def test_a_program_of_a_real_doca_runs_on_the_drop_ins(root: Path, tmp_path: Path) -> None:
    decoys.build(tmp_path)
    names = (EXAMPLES / "copy_file.c", EXAMPLES / "common.c")
    program, src, dst = tmp_path / "program", tmp_path / "src", tmp_path / "dst"
    libraries = [f"-ldoca_{library}" for library in decoys.LIBRARIES]
    allow = "-DDOCA_ALLOW_EXPERIMENTAL_API"
    checked("gcc", allow, f"-I{root / 'include'}", *names, f"-L{tmp_path}", *libraries, "-o", program)
    src.write_bytes(BYTES)
    command = (program, "-i", src, "-o", dst, "--verbose")
    assert run(*command, LD_LIBRARY_PATH=str(tmp_path)).returncode != 0  # on the library it was linked with
    assert not dst.exists()
    assert checked(*command, LD_LIBRARY_PATH=str(root / "dropin")) == "2 copies\n"
    assert dst.read_bytes() == BYTES


def test_the_run_path_gives_way_to_a_real_doca(programs: Path, tmp_path: Path) -> None:
    """A program built on the emulator runs on a card: LD_LIBRARY_PATH goes first."""
    decoys.build(tmp_path)
    done = run(programs / "copy_polling", LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode != 0


def test_the_2_6_drop_ins_have_no_experimental_call(root: Path, programs: Path) -> None:
    folder = root / "dropin-2.6"
    exported = "".join(checked("nm", "-D", "--defined-only", path) for path in folder.iterdir())
    stable = {
        name for library in ("common", "dma") for name, node in decoys.symbols(library).items() if node == "DOCA_2"
    }
    assert set(re.findall(r" (doca_\w+)@@DOCA_2", exported)) == stable - {"doca_buf_set_data_len"}
    assert "EXPERIMENTAL" not in exported
    # A program that uses only stable calls runs on them.
    assert checked(programs / "copy", LD_LIBRARY_PATH=str(folder)) == "copied 300000 bytes\n"
    assert str(folder) in checked("ldd", programs / "copy", LD_LIBRARY_PATH=str(folder))


def test_the_client_never_takes_a_link_name_for_a_library(root: Path) -> None:
    with pytest.raises(LibraryError, match=r"file too short|invalid ELF header"):
        _library.open_library(root / "sdk" / "lib")
