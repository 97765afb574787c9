"""The suite on a card: an emulator that is not told to be one, so nobody steers it, is asked the open questions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiodocadma.testing.conformance import Abi, Outcome, run_case, variants
from aiodocadma.testing.conformance.__main__ import profile


@pytest.fixture
def control() -> Iterator[Abi]:
    abi = Abi("emulator")
    assert abi.control.docaemu_reset() == 0
    yield abi
    assert abi.control.docaemu_reset() == 0, "the suite leaves objects on a card"


def ask(control: Abi, settings: str) -> list[Outcome]:
    assert control.control.docaemu_configure(settings.encode(), control.control_ffi.NULL, 0) == 0
    card = Abi("emulator")
    card.emulated = False
    outcomes = [run_case(card, variant) for variant in variants(card)]
    assert [outcome for outcome in outcomes if outcome.outcome == "fail"] == []
    return outcomes


@pytest.mark.parametrize(
    "settings",
    [
        {
            "zero_length": "completion",
            "oversize": "completion",
            "permission": "completion",
            "stop_idle": "success",
            "dst_list": "fill",
            "map_lifetime": "context",
            "flush_status": "culprit",
            "max_buf_size": "65536",
            "max_buf_list_len": "7",
            "max_num_tasks": "333",
        },
        {
            "zero_length": "completion",
            "oversize": "alloc",
            "permission": "submit",
            "stop_idle": "bad_state",
            "dst_list": "completion",
            "map_lifetime": "bufs",
            "flush_status": "SHUTDOWN",
            "max_buf_size": "131072",
            "max_buf_list_len": "2",
            "max_num_tasks": "4096",
        },
    ],
    ids=["one", "other"],
)
def test_the_profile_of_a_card_is_how_it_is(control: Abi, settings: dict[str, str]) -> None:
    outcomes = ask(control, " ".join(f"{key}={value}" for key, value in settings.items()))
    findings = {key: value for outcome in outcomes for key, value in outcome.findings.items()}
    assert findings == settings | {"edge": "level"}
    text = profile(outcomes, "3.2.1025")
    assert control.control.docaemu_configure(text.encode(), control.control_ffi.NULL, 0) == 0
    assert "# what the handle is: anon_inode:[eventfd]" in text
    assert "# a destination that holds data is: appended to" in text


def test_a_card_without_lists(control: Abi) -> None:
    outcomes = ask(control, "max_buf_list_len=1")
    assert [one.detail for one in outcomes if one.row == "4.6.10"] == ["the device takes no lists"]


def test_zero_length_at_submit_is_seen(control: Abi) -> None:
    card = Abi("emulator")
    assert control.control.docaemu_configure(b"zero_length=submit", control.control_ffi.NULL, 0) == 0
    card.emulated = False
    found = [run_case(card, variant) for variant in variants(card) if variant.case.row == "4.7.zero_length"]
    assert [(one.outcome, one.findings) for one in found] == [("pass", {"zero_length": "submit"})]


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("4.7.zero_length", "op=dma_task_memcpy_alloc_init status=INVALID_VALUE"),
        ("4.7.permission", "op=dma_task_memcpy_alloc_init status=NOT_PERMITTED"),
        ("4.7.oversize", "op=task_submit status=INVALID_VALUE skip=1"),
    ],
)
def test_a_place_that_no_setting_knows_is_a_note(control: Abi, row: str, fault: str) -> None:
    card = Abi("emulator")
    card.emulated = False
    assert control.control.docaemu_configure(f"fault {fault}".encode(), control.control_ffi.NULL, 0) == 0
    found = [run_case(card, variant) for variant in variants(card) if variant.case.row == row]
    assert [one.outcome for one in found] == ["pass"]
    assert any("refused" in question for question in found[0].notes)
    text = profile(found, "3.2.1025")
    assert control.control.docaemu_configure(text.encode(), control.control_ffi.NULL, 0) == 0, text
