"""The classifier's tables and ``explain``: what holds of every code and every cause, with evidence made by hand."""

from __future__ import annotations

import ast
import datetime
from pathlib import Path

import pytest

import aiodocadma
from aiodocadma import _causes, _explain
from aiodocadma._causes import CAUSES, CODES, Checked, Evidence, LockedMemory, Log, Proof, Sides, candidates, find
from aiodocadma.exceptions import DocaError

LAYERS = ("install", "version", "build", "link", "runtime", "program", "driver")
PHASES = ("open", "register", "alloc", "submit", "complete", "stop")
TEXTS = [text for cause in CAUSES for text in (cause.text, cause.next_step)] + [step for _, step in CODES.values()]


@pytest.mark.rule("R45")
def test_nothing_but_again_is_called_retriable() -> None:
    retriable = [code for code in _explain.codes() if DocaError.from_code(code).retriable]
    assert retriable == [5]
    assert not DocaError.from_code(4711).retriable
    for code in _explain.codes():
        said = _explain.explain(code).lower()
        for word in ("retry", "retri", "try again", "again later", "repeat", "resubmit"):
            assert code == 5 or word not in said, (code, word)
        assert ("submit it again later" in said) == (code == 5)


@pytest.mark.rule("R05", "R46", "R69", "R87", "R70")
def test_the_order_is_data_and_complete() -> None:
    """Versions first, then DMA's own causes, then those below; each has a rule, a layer, a text and a next step."""
    assert CAUSES[0].name == "versions_disagree"
    assert len({cause.name for cause in CAUSES}) == len(CAUSES)
    names = [cause.name for cause in CAUSES]
    assert names.index("peer_gone") < names.index("memlock") < names.index("kernel_log")
    for cause in CAUSES:
        assert cause.layer in LAYERS
        assert cause.rule
        assert set(cause.phases) <= set(PHASES)
        assert cause.text[0].islower()
        assert cause.text[-1] != "."
        assert cause.next_step.endswith(".")


@pytest.mark.rule("R115")
@pytest.mark.parametrize(
    "word", ["sudo", "root", "reboot", "privileged", "burn", "flash", "mlxconfig", "firmware update"]
)
def test_no_text_asks_for_what_only_root_may_do(word: str) -> None:
    assert not [text for text in TEXTS if word in text.lower()]


@pytest.mark.rule("X21")
def test_every_code_is_explained_in_the_exceptions_words() -> None:
    for code in _explain.codes():
        text = _explain.explain(code)
        flat = " ".join(text.split())
        assert text.startswith(f"{DocaError._by_code[code].name} ({code})")
        assert max(map(len, text.splitlines())) <= 120
        for cause in candidates(code):
            assert cause.name in text
            assert cause.text in flat
            assert cause.next_step in flat
        nothing_known = find(Evidence(code, "doca_x", "open"))
        assert nothing_known.next_step in flat


@pytest.mark.parametrize("text", ["IO_FAILED", "DOCA_ERROR_IO_FAILED", "io_failed", "17", " 17 "])
def test_a_code_is_a_name_or_a_number(text: str) -> None:
    assert _explain.number_of(text) == 17


@pytest.mark.parametrize("text", ["IO", "0", "32", "-1", "DOCA_SUCCESS", "", "\u0661\u0667", "17.0"])
def test_no_such_code(text: str) -> None:
    with pytest.raises(ValueError, match="NOT_PERMITTED"):
        _explain.number_of(text)


def test_an_unknown_code_has_a_next_step() -> None:
    finding = find(Evidence(4711, "doca_task_submit", "submit", "copying"))
    assert (finding.name, finding.cause) == (None, "copying")
    assert finding.next_step


@pytest.mark.rule("X02")
def test_an_export_without_pci_access() -> None:
    found = find(Evidence(2, "doca_mmap_export_pci", "register", access=1))
    assert found.name == "export_without_pci_flag"
    assert "LOCAL_READ_WRITE" in found.cause
    assert find(Evidence(2, "doca_mmap_export_pci", "register", access=17)).name is None


@pytest.mark.parametrize(
    ("locked", "cause"),
    [
        (LockedMemory(8192, 4096), "memlock"),
        (LockedMemory(8192, 3192), "pages_not_pinned"),
        (LockedMemory(8192, 8192, exempt=True), "pages_not_pinned"),
        (LockedMemory(None, 8192), "pages_not_pinned"),
    ],
)
def test_locked_memory(locked: LockedMemory, cause: str) -> None:
    """The limit is the cause only if it would be passed, and binds this process."""
    evidence = Evidence(2, "doca_mmap_start", "register", nbytes=5000, checked=Checked(locked=locked))
    assert find(evidence).name == cause
    assert str(locked) in find(evidence).cause


def test_an_import_that_is_not_permitted() -> None:
    assert find(Evidence(2, "doca_mmap_create_from_export", "register")).name == "src_not_exported"


@pytest.mark.rule("X01")
def test_reading_is_always_allowed_locally() -> None:
    """LOCAL_READ_ONLY is 0 and no bit: a source has it whatever its map says, and it is never what is missing."""
    for access in (0, 1, 16, 32):
        sides = Sides(0x1000, access, 0x2000, 1, 10)
        assert find(Evidence(2, "doca_task_submit", "submit", sides=sides)).name == "permissions_hold"


@pytest.mark.rule("R34")
def test_versions_come_first() -> None:
    """While they disagree, an error says so before anything else, whatever else is true."""
    sides = Sides(0x1000, 0, 0x2000, 0, 10)
    found = find(Evidence(2, "doca_task_submit", "submit", sides=sides, skew="doca-dma.pc 2.9.4 against 3.0.0"))
    assert (found.name, found.layer) == ("versions_disagree", "version")
    assert "doca-dma.pc 2.9.4 against 3.0.0" in found.cause


@pytest.mark.rule("R64")
def test_a_proof_is_named() -> None:
    """After a first small copy went through, a later failure says that the permissions were proven, when and where."""
    at = datetime.datetime(2026, 1, 2, 12, 3, 11, tzinfo=datetime.UTC)
    sides = Sides(0x1000, 0, 0x2000, 1, 10)
    proven = Evidence(2, "doca_task_submit", "submit", sides=sides, proofs=(Proof("the imported source", at),))
    assert "permissions of the imported source proven at 12:03:11 UTC" in find(proven).cause
    counted = Evidence(2, "doca_task_submit", "submit", sides=sides, completed=7)
    assert "7 tasks of this context went well before" in find(counted).cause


@pytest.mark.rule("R91")
def test_not_readable_is_not_clean() -> None:
    unreadable = Checked(kernel_log=Log(unreadable="not readable as this user: Operation not permitted"), sdk_log=Log())
    clean = Checked(kernel_log=Log(("usb 1-1: new device",)), sdk_log=Log())
    said = [find(Evidence(21, "doca_x", "complete", checked=checked)).cause for checked in (unreadable, clean)]
    assert "not readable as this user" in said[0]
    assert "says nothing of it" in said[1]


@pytest.mark.parametrize(
    ("mappings", "start", "length", "wanted", "hole"),
    [
        (((0, 10, "rw-p"), (10, 20, "r--p")), 5, 10, "r", None),
        (((0, 10, "rw-p"), (10, 20, "r--p")), 5, 10, "w", "0xa is mapped r--p"),
        (((0, 10, "rw-p"), (12, 20, "rw-p")), 5, 10, "w", "nothing is mapped at 0xa"),
        (((0, 10, "rw-p"),), 5, 5, "w", None),
        (((0, 10, "rw-p"),), 5, 6, "w", "nothing is mapped at 0xa"),
        ((), 5, 6, "r", "nothing is mapped at 0x5"),
    ],
)
def test_holes(
    mappings: tuple[tuple[int, int, str], ...], start: int, length: int, wanted: str, hole: str | None
) -> None:
    assert _causes._hole(mappings, start, start + length, wanted) == hole


def test_the_classifier_sees_no_emulator() -> None:
    """It imports nothing of the emulator, and asks nowhere whether the device is one; a record only says so."""
    package = Path(aiodocadma.__file__).parent
    for name in ("_causes.py", "_evidence.py", "_diagnosis.py", "_examination.py", "_explain.py"):
        tree = ast.parse((package / name).read_text())
        words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        words |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        words |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        label = {"emulated"} if name == "_diagnosis.py" else set()
        assert {word for word in words if "emulat" in word or "docaemu" in word} == label, name
    assert not [name for name in Evidence._fields if "emulat" in name]
