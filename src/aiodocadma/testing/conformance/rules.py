"""
The rules of the DOCA C ABI that the suite tests: the one list, from which ``docs/reference/emulator-rules.md`` is made.

A rule's row is its name everywhere: in the conformance suite, in the C tests, in the table.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["RULES", "Rule"]


class Rule(NamedTuple):
    """
    One rule.

    Attributes:
        row: Its number, for example ``4.3.13``; return codes and devices have a word, as ``4.1.mmap_start``.
        text: What holds.
        origin: Where it was read: header (DOCA 2.6 to 3.0), sample (NVIDIA's), third party (code and notes of people
            with a card), prose (NVIDIA's guides), inferred (from what the samples need).
        setting: The emulator's setting, where sources leave a choice.
        same_as: The row whose test shows it, if it says nothing new.
        untested: Why no test shows it; empty for the others.

    Source: aiodocadma.
    """

    row: str
    text: str
    origin: str
    setting: str = ""
    same_as: str = ""
    untested: str = ""


def _codes(call: str, text: str, origin: str = "header") -> Rule:
    return Rule(f"4.1.{call}", text, origin)


RULES: Final[tuple[Rule, ...]] = (
    # ---- 4.1: return codes, besides SUCCESS ----
    _codes("devinfo_create_list", "INVALID_VALUE for a missing output"),
    _codes("devinfo_destroy_list", "INVALID_VALUE for no list; IN_USE for a damaged one"),
    _codes("devinfo_is_equal_pci_addr", "INVALID_VALUE for what is no PCI address"),
    _codes("devinfo_get_pci_addr_str", "INVALID_VALUE for a missing output; writes 13 bytes, there is no size"),
    _codes("devinfo_get_ibdev_name", "INVALID_VALUE below 64 bytes of room"),
    _codes("devinfo_get_iface_name", "INVALID_VALUE below 256 bytes of room; OPERATING_SYSTEM"),
    _codes("devinfo_get_mac_addr", "INVALID_VALUE below 6 bytes of room; NOT_SUPPORTED off Ethernet"),
    _codes("devinfo_get_ipv4_addr", "INVALID_VALUE below 4 bytes of room; NOT_FOUND when none is assigned"),
    _codes("dev_open", "INVALID_VALUE for a missing argument"),
    _codes("dev_close", "IN_USE while maps or contexts use the last open"),
    _codes("dev_as_devinfo", "NULL for an invalid device"),
    _codes("mmap_create", "INVALID_VALUE; NO_MEMORY"),
    _codes("mmap_destroy", "INVALID_VALUE; NOT_PERMITTED while bufs point into the map"),
    _codes("mmap_start", "INVALID_VALUE without range or device; NOT_PERMITTED if created from an export"),
    _codes("mmap_stop", "NOT_PERMITTED while bufs point into the map"),
    _codes("mmap_add_dev", "NOT_PERMITTED once started; NO_MEMORY beyond the limit; ALREADY_EXIST"),
    _codes("mmap_rm_dev", "NOT_FOUND for a device that was not added; NOT_PERMITTED once started"),
    _codes(
        "mmap_set_memrange",
        "INVALID_VALUE, also past the end of the address space; BAD_STATE once started; NOT_PERMITTED the second time",
    ),
    _codes("mmap_set_dmabuf_memrange", "as `mmap_set_memrange`; the emulator has no dma-buf: NOT_SUPPORTED in the end"),
    _codes("mmap_get_memrange", "BAD_STATE when no range was set"),
    _codes("mmap_set_permissions", "INVALID_VALUE for an undefined bit or combination; BAD_STATE once started"),
    _codes("mmap_set_max_num_devices", "INVALID_VALUE; NOT_PERMITTED after the first start"),
    _codes("mmap_set_free_cb", "BAD_STATE once started; so `mmap_set_user_data`"),
    _codes(
        "mmap_export_pci", "NOT_FOUND for a device not added; NOT_PERMITTED unstarted or without permission; so `_rdma`"
    ),
    _codes("mmap_create_from_export", "INVALID_VALUE for what is no descriptor"),
    _codes("mmap_enable_thread_safety", "NOT_PERMITTED once started, or while bufs point into the map"),
    _codes("buf_inventory_create", "INVALID_VALUE for no elements or no output; start and stop for no inventory"),
    _codes("buf_inventory_destroy", "IN_USE while bufs are out"),
    _codes("buf_inventory_buf_get_by_args", "INVALID_VALUE outside the map; NO_MEMORY from an empty inventory"),
    _codes("buf_inventory_buf_dup", "BAD_STATE unstarted; NOT_PERMITTED inside a list; NO_MEMORY"),
    _codes("buf_inventory_expand", "BAD_STATE unstarted; INVALID_VALUE by nothing"),
    _codes("buf_inc_refcount", "NOT_PERMITTED inside a list; TOO_BIG at 65,535"),
    _codes("buf_dec_refcount", "NOT_PERMITTED inside a list; gives the count before; the output may be NULL"),
    _codes("buf_chain_list", "NOT_PERMITTED unless the second list has one reference"),
    _codes("buf_unchain_list", "INVALID_VALUE unless the second is in the first"),
    _codes("buf_get_last_in_list", "the last element from any element"),
    _codes("buf_get_list_len", "NOT_PERMITTED inside a list"),
    _codes("buf_getters", "the other getters and setters of bufs succeed"),
    _codes("pe_create", "INVALID_VALUE; NO_MEMORY"),
    _codes("pe_destroy", "INVALID_VALUE; IN_USE while contexts are connected"),
    _codes("pe_connect_ctx", "INVALID_VALUE for NULL; NOT_PERMITTED when connected already"),
    _codes("pe_get_notification_handle", "INVALID_VALUE"),
    _codes("pe_request_notification", "succeeds"),
    _codes("pe_clear_notification", "succeeds, also unarmed; OPERATING_SYSTEM"),
    _codes("pe_get_num_inflight_tasks", "INVALID_VALUE; so of a context"),
    _codes("pe_set_event_mode", "INVALID_VALUE for an unknown mode"),
    _codes("ctx_start", "INVALID_VALUE; NOT_CONNECTED without an engine"),
    _codes("ctx_stop", "IN_PROGRESS while tasks are out; INVALID_VALUE; NOT_CONNECTED"),
    _codes("ctx_setters", "INVALID_VALUE: `ctx_set_user_data`, `ctx_set_state_changed_cb`, `ctx_get_*`"),
    _codes("task_submit", "any code leaves the task with the user; so `task_submit_ex`"),
    _codes("task_try_submit", "INVALID_VALUE for a task that fails validation; it was not submitted"),
    _codes("dma_create", "INVALID_VALUE; NO_MEMORY"),
    _codes("dma_destroy", "IN_USE unless idle"),
    _codes("dma_task_memcpy_set_conf", "INVALID_VALUE without callbacks or tasks; NOT_SUPPORTED"),
    _codes(
        "dma_task_memcpy_alloc_init",
        "NO_MEMORY when all tasks are out; BAD_STATE unless running",
        "header, third party",
    ),
    _codes("dma_caps", "INVALID_VALUE; `is_supported` also NOT_SUPPORTED"),
    # ---- 4.2: notification ----
    Rule(
        "4.2.1",
        "The handle is one fd, the same for the life of the engine, to be had before a ctx connects",
        "header, sample",
    ),
    Rule("4.2.2", "Cycle: arm, wait for the fd, clear, progress until 0, arm again", "header"),
    Rule("4.2.3", "Order of the sample: progress until 0, arm, wait for ever, clear", "sample"),
    Rule("4.2.4", "Arming makes the fd readable when a completion is pending already", "inferred"),
    Rule("4.2.5", "The handle given to clear is ignored", "header, sample"),
    Rule(
        "4.2.6",
        "The fd stays readable until the clear (SELECTIVE) or the next arm (ALL); nobody reads it",
        "header, third party",
    ),
    Rule("4.2.7", "An unarmed engine need not signal; the emulator does not", "inferred"),
    Rule("4.2.8", "SELECTIVE is the default: armed, progress serves only what had an event or was pending", "header"),
    Rule("4.2.9", "ALL: progress serves everything at any time, and the next arm clears", "header"),
    Rule("4.2.10", "ALL: an armed engine may be progressed", "header, third party"),
    Rule("4.2.11", "SELECTIVE: armed, a completion is delivered after the clear, not before", "third party"),
    Rule("4.2.12", "ALL: arming and progressing once more closes the race", "third party", "edge"),
    Rule("4.2.13", "The event mode may change at run time, not in a callback", "header"),
    Rule("4.2.14", "Tasks submitted while armed make the fd readable when they complete", "third party"),
    Rule("4.2.15", "An engine's fd may be polled inside another epoll set, several together", "sample, third party"),
    Rule("4.2.16", "Arming twice is tolerated", "inferred"),
    # ---- 4.3: progress, callbacks, tasks ----
    Rule("4.3.1", "progress takes one step and gives 1 or 0; 1 also for a change of state", "header"),
    Rule("4.3.2", "1 also for an error completion", "third party"),
    Rule(
        "4.3.3", "Progressing until 0 drains; at most one callback per step is not to be relied on", "header, inferred"
    ),
    Rule(
        "4.3.4",
        "Callbacks run inside progress, or for states inside start and stop, in the calling thread",
        "header, sample",
    ),
    Rule("4.3.5", "A callback must not progress; the emulator gives 0 and reports a violation", "header"),
    Rule("4.3.6", "A callback may submit, free and allocate tasks, drop bufs, and stop the ctx", "header, sample"),
    Rule("4.3.7", "The state callback may submit on RUNNING and destroy on IDLE", "sample, third party"),
    Rule("4.3.8", "Other libraries misbehave when called from a callback", "third party", untested="not about DMA"),
    Rule(
        "4.3.9",
        "A task is the user's until a successful submit and from its callback on, also after a failed submit",
        "header",
    ),
    Rule("4.3.10", "A task may be freed anywhere while not submitted", "header"),
    Rule(
        "4.3.11",
        "task_get_status gives SUCCESS or the failure; success and failure have a callback each",
        "header, sample",
    ),
    Rule("4.3.12", "User data come by value; they, source and destination can change before a resubmit", "sample"),
    Rule("4.3.13", "set_conf fixes the pool: the next alloc gives NO_MEMORY; freed tasks come back", "header"),
    Rule("4.3.14", "alloc needs a running ctx, else BAD_STATE", "third party"),
    Rule("4.3.15", "Submitting to a ctx that a fault stopped gives BAD_STATE", "third party"),
    Rule("4.3.16", "alloc takes NULL for bufs that are set before the submit", "third party"),
    Rule("4.3.17", "submit does not validate, try_submit does", "header, sample"),
    Rule("4.3.18", "A full queue gives AGAIN at submit", "prose, third party", "queue_depth"),
    Rule("4.3.19", "submit is submit_ex with FLUSH; without it a task may wait for a later flush", "header, sample"),
    Rule("4.3.20", "What is submitted without FLUSH needs one, or ctx_flush_tasks", "inferred"),
    Rule(
        "4.3.21", "Completions come in any order unless ordered completions were asked for before the start", "sample"
    ),
    Rule("4.3.22", "One thread at a time per engine; the emulator reports two", "prose, third party"),
    Rule("4.3.23", "num_inflight counts what is submitted and not reported", "header, sample"),
    # ---- 4.4: contexts ----
    Rule("4.4.1", "Create, connect and configure in any order, then start; set_conf must come before", "sample"),
    Rule("4.4.2", "A connection ends with the ctx; one engine has many ctxs", "header"),
    Rule("4.4.3", "A start goes from IDLE to RUNNING at once, through the state callback", "sample"),
    Rule("4.4.4", "Running, the properties are frozen", "header"),
    Rule(
        "4.4.5",
        "A stop with tasks out gives IN_PROGRESS and STOPPING; tasks in flight end in the error callback",
        "header, sample",
    ),
    Rule("4.4.6", "What status flushed tasks carry is not known", "uncertain", "flush_status"),
    Rule(
        "4.4.7", "STOPPING ends when every task is freed, by one more step of progress", "header, sample, third party"
    ),
    Rule("4.4.8", "A stop with no task out succeeds, and the ctx is IDLE", "sample"),
    Rule("4.4.9", "After a stop in the last callback, IDLE comes in the stop or in a later progress", "sample"),
    Rule("4.4.10", "A stop in a callback with tasks in flight gives IN_PROGRESS", "sample"),
    Rule("4.4.11", "A stop of an idle ctx succeeds", "inferred", "stop_idle"),
    Rule("4.4.12", "Destroying a ctx that is not idle gives IN_USE", "header, sample"),
    Rule("4.4.13", "A task that fails in hardware stops the ctx, which flushes the others", "sample, third party"),
    Rule("4.4.14", "After such a failure the same ctx starts again", "third party"),
    Rule("4.4.15", "The state callback gets the ctx's user data", "header, sample"),
    Rule("4.4.16", "A second state callback replaces the first", "inferred"),
    # ---- 4.5: memory maps ----
    Rule("4.5.1", "Setters in any order before the start; after it they fail", "header"),
    Rule("4.5.2", "The range is set once in the life of a map", "header"),
    Rule("4.5.3", "Local read and write is the permission unless set", "inferred"),
    Rule(
        "4.5.4",
        "PCI read-only and read-write exclude each other; undefined bits are refused; the emulator refuses relaxed "
        "ordering with PCI read-write, too",
        "header, third party",
    ),
    Rule("4.5.4a", "A device of the process that made the map is a local one", "header"),
    Rule("4.5.5", "Local and PCI write, with RDMA bits, or with relaxed ordering, combine", "sample"),
    Rule("4.5.6", "PCI write alone is enough for a destination", "third party"),
    Rule("4.5.7", "A local device can always read", "header"),
    Rule("4.5.8", "An export needs a started map, a PCI permission and an added device", "header"),
    Rule("4.5.9", "PCI read-only is enough to be read, read-write to be written", "sample"),
    Rule(
        "4.5.10",
        "An imported map is usable at once, at the exporter's addresses, and takes no setters",
        "header, sample",
    ),
    Rule("4.5.11", "An imported map tells the exporter's range", "third party"),
    Rule("4.5.12", "A descriptor has at most 512 bytes", "sample, third party"),
    Rule("4.5.13", "A copy through an import of one's own export fails with IO_FAILED", "third party"),
    Rule("4.5.14", "Destroy stops first; the free callback runs if the map was started", "header"),
    Rule("4.5.15", "An exported map can be destroyed", "header, sample"),
    Rule("4.5.16", "With thread safety, bufs do not keep a map", "header"),
    Rule("4.5.17", "Destroy does not touch the memory, which may be freed before", "sample"),
    Rule("4.5.18", "No alignment is needed", "third party, inferred"),
    # ---- 4.6: bufs ----
    Rule("4.6.1", "A buf has its range and data inside; by address the data are empty, by data they are all", "header"),
    Rule("4.6.2", "The source is the data segment", "sample, third party"),
    Rule("4.6.3", "After a success the destination's data are what was copied", "sample"),
    Rule("4.6.4", "A destination that holds data is appended to", "sample, inferred"),
    Rule("4.6.5", "try_submit refuses a destination that is too small", "sample, uncertain"),
    Rule(
        "4.6.6",
        "After a failure the lengths of the bufs are unchanged; source and destination must not overlap",
        "sample",
    ),
    Rule("4.6.7", "In flight, the source must not change nor the destination be used", "prose", "checksum"),
    Rule("4.6.8", "Only the head of a list counts references; dropping it returns the list", "header"),
    Rule("4.6.9", "A source may be a list, up to max_buf_list_len", "header, third party"),
    Rule(
        "4.6.10",
        "A destination may be a list, filled element by element",
        "sample, contradicted by a sample",
        "dst_list",
    ),
    Rule("4.6.11", "Freeing a task does not drop its bufs; either order works", "sample"),
    Rule("4.6.12", "Tasks take no references on bufs", "inferred"),
    Rule("4.6.13", "get_src and get_dst give the bufs of the task", "sample"),
    # ---- 4.7: failures ----
    Rule(
        "4.7.zero_length",
        "A source without data is submitted and fails with IO_FAILED",
        "sample, third party",
        "zero_length",
    ),
    Rule(
        "4.7.oversize",
        "A task above max_buf_size is submitted and fails with IO_FAILED",
        "third party; prose: at alloc",
        "oversize",
    ),
    Rule(
        "4.7.own_export",
        "A copy through an import of one's own export fails with IO_FAILED",
        "third party",
        same_as="4.5.13",
    ),
    Rule(
        "4.7.vanished",
        "Memory whose exporter died fails with IO_FAILED, and the ctx restarts",
        "third party",
    ),
    Rule("4.7.after_reset", "A submit after the failure gives BAD_STATE", "third party"),
    Rule("4.7.permission", "A missing permission fails with IO_FAILED", "prose, inferred", "permission"),
    Rule("4.7.description", "IO_FAILED is described as 'Input/Output Operation Failed'", "third party"),
    # ---- 4.8: devices ----
    Rule("4.8.list", "A device stays valid when the list it came from is destroyed, and tells its devinfo", "header"),
    Rule("4.8.open_counted", "Opens are counted per device", "header"),
    Rule("4.8.close_null", "Closing NULL succeeds", "inferred"),
    Rule("4.8.pci_match", "Addresses match in full, or without the domain 0000", "header"),
    Rule("4.8.first_device", "Some device supports memcpy and tells its limits", "sample"),
    Rule("4.8.by_address", "A device is found by the address it tells", "sample"),
    Rule("4.8.max_num_devices", "A map takes at least one device; how many is not stated", "uncertain"),
    # ---- 4.9: the order of destruction ----
    Rule(
        "4.9.order", "Stop, IDLE, ctx, engine, bufs, inventory, map, device, memory", "header, sample", "map_lifetime"
    ),
    # ---- 4.10: what NVIDIA's samples need ----
    Rule("4.10.1", "Arming with a completion pending, for pe_event", "sample", same_as="4.2.4"),
    Rule("4.10.2", "The IDLE callback may destroy its own ctx, inside stop or progress", "sample"),
    Rule(
        "4.10.3",
        "255 submits with one bad among them, before any progress: all come back, then STOPPING and IDLE",
        "sample",
    ),
    Rule("4.10.4", "A stop in the 8th of 16 callbacks: some succeed, the rest are flushed", "sample"),
    Rule("4.10.5", "Stopping an idle ctx, for dma_local_copy", "sample", same_as="4.4.11"),
    Rule("4.10.6", "The destination's data length and address are readable in the callback", "sample"),
    Rule("4.10.7", "A short descriptor, for dma_copy_host", "sample", same_as="4.5.12"),
    Rule(
        "4.10.8",
        "Both DOCA_ARCH_HOST and DOCA_ARCH_DPU are defined",
        "sample",
        untested="about building; the SDK's tests",
    ),
    Rule("4.10.9", "The default permission, for dma_local_copy", "sample", same_as="4.5.3"),
    Rule("4.10.10", "doca_log works before main and without a backend", "sample"),
)
