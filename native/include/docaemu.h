/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control of the DOCA emulator: devices, limits, faults, counters, steps.
 *
 * A program needs none of this to run on the emulator. Everything is driven by one text, given to
 * docaemu_configure(), in the environment variable DOCAEMU_CONFIG, or in the file that
 * DOCAEMU_CONFIG_FILE names (read in the order: file, variable; at the first DOCA call; a program
 * with privileges that its caller has not, as a set-user-ID one, reads neither). Lines end at a
 * newline or ';', '#' begins a comment. A line is one of
 *
 *     key=value [key=value ...]
 *     device NAME key=value ...
 *     fault op=OP key=value ...
 *
 * Sizes take the suffixes K, M, G, T (powers of 1024); status codes are names without DOCA_ERROR_,
 * or numbers. Settings with their defaults; where the behaviour of the card is not known the
 * default is the stricter one for the client:
 *
 *     engine=default            default: small copies run in doca_pe_progress, workers take the
 *                               rest; worker: workers take all; manual: docaemu_step() only; late:
 *                               no workers, a task's bytes do not move before its virtual time has
 *                               come, in the call that progresses or arms
 *     inline_max=64K            the largest copy that may run inside doca_pe_progress
 *     nt_min=256K               copies from this size on use non-temporal stores
 *     queue_depth=0             tasks in flight per context before AGAIN; 0: as many as configured
 *     edge=level                strict: in event mode ALL, a completion between the last empty
 *                               progress and the arm does not make the handle readable
 *     strict=report             off, report: count contract violations and keep their text,
 *                               abort: write the text to stderr and abort the process
 *     strict_client=0           1: doca_ctx_stop from a callback is a violation, too
 *     strict_exit=0             1: objects alive when the process exits are written to stderr; with
 *                               strict=abort the process aborts
 *     checksum=0                1: sums over source and destination show who touches them in flight;
 *                               costs about three more passes over the bytes of each task
 *     flush_status=culprit      what flushed tasks report: culprit (the failed task's own code;
 *                               IO_FAILED after doca_ctx_stop) or a status code
 *     map_lifetime=context      doca_mmap_destroy is NOT_PERMITTED while a context that used the
 *                               map exists; bufs: only while bufs point into it
 *     oversize=completion       a task above max_buf_size or max_buf_list_len: completion fails
 *                               late (IO_FAILED, fatal), alloc: alloc_init gives INVALID_VALUE
 *     zero_length=completion    a source without data: completion fails late, submit gives
 *                               INVALID_VALUE
 *     permission=completion     a map without the permission: completion fails late, submit gives
 *                               NOT_PERMITTED
 *     dst_list=fill             a list as destination: fill its elements, completion: fails late
 *     stop_idle=success         doca_ctx_stop of an idle context: success or bad_state
 *     memlock=0                 bytes that may be registered at once; 0: no limit
 *     memlock_status=NOT_PERMITTED  what doca_mmap_start gives above it
 *     peer_timeout=1000         milliseconds an importer waits for the process that exported
 *     peer_users=same           who may import what this process exports, and from whom it imports:
 *                               processes of the same user and root's, or any
 *     export_stop=not_permitted doca_mmap_stop of an exported map is NOT_PERMITTED; revoke: it ends
 *                               the exports
 *     profile=none              virtual time as on a card: bf2 or bf3 (operations and bytes per second
 *                               as measured; bf2's fixed time is a guess)
 *     direction=auto            of a profile: push (writing across the bus), pull (reading), auto: as
 *                               the imported side says, push if there is none
 *     latency=0                 nanoseconds of virtual time a copy takes at least, and
 *     bandwidth=0               bytes per second; either one turns virtual time on, or replaces what
 *                               the profile says
 *     clock=auto                virtual time moves at an arm to the next completion, and in each
 *                               progress call by progress_cost; manual: by docaemu_time_advance()
 *                               only. It ends after 213 days: what would end later ends then
 *     progress_cost=50          nanoseconds
 *     latency_real=0            microseconds of real time from execution to completion; the workers
 *                               take all copies (no effect in engine=manual)
 *     hold=0                    1: completions are withheld until docaemu_release()
 *     order=fifo                lifo, random: in which order completions that are due together are
 *                               reported; a task is overtaken by at most 63 others
 *     slot_lag=0                a task, and its place in the queue, can be used again only that many
 *                               progress calls after it was reported
 *     notify=normal             late: notifications come a tick later (engine=manual: at a step;
 *                               engine=late, chaos: their clock has no ticks, so at once);
 *                               suppress: they do not come
 *     seed=1                    of random orders
 *     chaos=0, chaos_faults=0   see docaemu_chaos.h
 *     version=3.0.0058          doca_version_runtime
 *     max_buf_size=2M           of the default device, and of device lines that do not say
 *     max_buf_list_len=32       likewise (a guess: the card's value is not known)
 *     max_num_tasks=65536       likewise (a guess)
 *     devices=default           none: an empty list; default: one device mlx5_0 at 0000:03:00.0
 *
 * A device line adds a device; the first one replaces the default list. Keys: pci, iface, dma=0|1,
 * max_buf_size, max_buf_list_len, max_num_tasks, export_pci=0|1, import_pci=0|1.
 *
 * A fault line makes a call fail: op is the call without "doca_", or "completion", or
 * "notification". Keys: kind (fail; again: as fail with status AGAIN; completion only: corrupt flips
 * one byte of the destination and reports success, hold withholds it until docaemu_release();
 * notification only: late and suppress as the setting notify, spurious: an arm is answered for no
 * reason; a submit only: accepted: the status is reported although the task is taken), status=IO_FAILED, skip=0 (calls let through first), interval=1
 * (then every so many-th), count=1 (so many times; 0: for ever), fatal=1 (completion only: the
 * context stops), src=0 (completion only: tasks that read from this address first, as from a broken
 * page; 0: all). Faults of completions count tasks in the order of their submission. faults=none
 * drops all faults.
 */
#ifndef DOCAEMU_H_
#define DOCAEMU_H_

#include <stddef.h>
#include <stdint.h>

#include <doca_compat.h>
#include <doca_error.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DOCAEMU_API __attribute__((visibility("default"))) DOCA_USED

/*
 * What happened since the start or the last docaemu_reset(). A child of fork() begins with none of its
 * parent's objects, counts, violations and copies; settings, faults and the virtual clock it takes over.
 */
struct docaemu_counters {
	uint64_t progress_calls;
	uint64_t progress_empty; /* of those, the ones that returned 0 */
	uint64_t arms;		 /* doca_pe_request_notification */
	uint64_t clears;	 /* doca_pe_clear_notification */
	uint64_t notifications;	 /* times a handle was made readable */
	uint64_t submits;	 /* successful ones */
	uint64_t doorbells;	 /* submits and flushes that let tasks begin */
	uint64_t worker_wakes;	 /* system calls that woke a worker */
	uint64_t worker_sleeps;	 /* times a worker went to sleep */
	uint64_t tasks_inline;	 /* executed inside doca_pe_progress */
	uint64_t tasks_worker;	 /* executed by a worker */
	uint64_t tasks_step;	 /* executed by docaemu_step */
	uint64_t completions_ok;
	uint64_t completions_error; /* failed tasks, the flushed ones included */
	uint64_t flushed;	    /* tasks ended because another failed or the context stopped */
	uint64_t bytes;		    /* copied by tasks that succeeded */
	uint64_t again;		    /* submits refused by a full queue */
	uint64_t no_memory;	    /* tasks and bufs refused by an empty pool */
	uint64_t faults;	    /* faults fired */
	uint64_t violations;
	uint64_t max_in_flight; /* most tasks in flight on one progress engine */
	uint64_t ctx_starts;
	uint64_t ctx_faults;		   /* contexts stopped by a failed task */
	uint64_t notifications_late;	   /* kept back for a while */
	uint64_t notifications_suppressed; /* never given */
	uint64_t notifications_spurious;   /* given for no reason, by a fault */
	uint64_t peer_reads;		   /* pieces of memory exported here that peers read */
	uint64_t peer_writes;		   /* likewise, that peers wrote */
	uint64_t peer_refused;		   /* requests of peers that were refused */
};

/* What exists now. */
struct docaemu_live {
	uint64_t devinfo_lists;
	uint64_t devs; /* open devices, not opens */
	uint64_t mmaps;
	uint64_t inventories;
	uint64_t bufs;
	uint64_t pes;
	uint64_t ctxs;
	uint64_t tasks;	    /* allocated and not freed */
	uint64_t in_flight; /* of those, submitted and not reported */
	uint64_t workers;
	uint64_t pinned_bytes; /* in started maps */
	uint64_t held;	       /* completions withheld until docaemu_release() */
	uint64_t exports;      /* descriptors in force */
	uint64_t imports;      /* maps created from an export */
};

/* One copy as it was submitted; of buf lists the first element. */
struct docaemu_copy {
	uint64_t src;
	uint64_t dst;
	uint64_t length;
};

/* Which of the tasks come first: in docaemu_step(), in docaemu_release(). */
enum docaemu_order {
	DOCAEMU_ORDER_FIFO = 0,
	DOCAEMU_ORDER_LIFO = 1,
	DOCAEMU_ORDER_RANDOM = 2, /* from the setting seed */
};

/**
 * Change settings, devices and faults.
 *
 * Lines take effect one after another; at a bad one the call stops, those before it stay.
 *
 * @param[in] text see the top of this file
 * @param[out] error what is wrong, naming line and key; may be NULL
 * @param[in] error_size bytes at error
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_INVALID_VALUE unknown key, bad value
 * @retval DOCA_ERROR_IN_USE the engine may not change while contexts are started
 * @retval DOCA_ERROR_NO_MEMORY
 *
 * Any thread.
 */
DOCAEMU_API
doca_error_t
docaemu_configure(const char *text, char *error, size_t error_size);

/**
 * Return to the defaults: settings, devices, faults, counters, violations. The environment is not
 * read again.
 *
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_IN_USE objects are alive; nothing was changed
 * @retval DOCA_ERROR_NO_MEMORY nothing was changed
 *
 * Any thread.
 */
DOCAEMU_API
doca_error_t
docaemu_reset(void);

/**
 * In engine=manual, execute up to n tasks that have not begun; doca_pe_progress reports them.
 *
 * @param[in] n how many at most
 * @param[in] order enum docaemu_order
 * @param[out] stepped how many were executed; may be NULL
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_INVALID_VALUE no such order
 *
 * Any thread. Does nothing for contexts that were started in another engine mode.
 */
DOCAEMU_API
doca_error_t
docaemu_step(size_t n, int order, size_t *stepped);

/**
 * In engine=manual, end the one task that has not begun and writes to an address: releases tasks
 * in any order, and fails the one that is meant.
 *
 * @param[in] dst where the task writes first
 * @param[in] status DOCA_SUCCESS: as it would end by itself; else it ends with this code, unexecuted
 * @param[in] fatal whether a failure stops the context
 * @retval DOCA_SUCCESS doca_pe_progress reports it
 * @retval DOCA_ERROR_NOT_FOUND no such task waits
 *
 * Any thread.
 */
DOCAEMU_API
doca_error_t
docaemu_complete(uint64_t dst, int status, int fatal);

/**
 * How many times faults are still to fire; faults without end are not counted.
 *
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_INVALID_VALUE
 */
DOCAEMU_API
doca_error_t
docaemu_faults_pending(size_t *pending);

/**
 * Read the counters.
 *
 * @param[out] counters filled as far as size goes, so that later versions can add members
 * @param[in] size sizeof(*counters) of the caller
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_INVALID_VALUE
 *
 * Any thread.
 */
DOCAEMU_API
doca_error_t
docaemu_counters(struct docaemu_counters *counters, size_t size);

/** Read how many objects are alive; as docaemu_counters(). */
DOCAEMU_API
doca_error_t
docaemu_live(struct docaemu_live *live, size_t size);

/**
 * The contract violations so far, the latest 64 as text, one a line: call, object, what is wrong.
 *
 * @param[out] buf text, cut to size and NUL-terminated; may be NULL if size is 0
 * @param[in] size bytes at buf
 * @return how many there were since the start or the last reset
 *
 * Any thread.
 */
DOCAEMU_API
uint64_t
docaemu_violations(char *buf, size_t size);

/** Make the handle of every progress engine readable, even if there is nothing to report. */
DOCAEMU_API
doca_error_t
docaemu_spurious_notification(void);

/**
 * The copies submitted last, the latest first; the emulator keeps 64.
 *
 * @param[out] copies array of max elements
 * @param[out] num how many were written
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_INVALID_VALUE
 *
 * Any thread; exact only while none submits.
 */
DOCAEMU_API
doca_error_t
docaemu_last_copies(struct docaemu_copy *copies, size_t max, size_t *num);

/**
 * Read the virtual clock. It stands at 0 unless the settings profile, latency or bandwidth ask for
 * virtual time, or it is moved by hand.
 *
 * @param[out] ns nanoseconds since the start or the last docaemu_reset()
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_INVALID_VALUE
 *
 * Any thread.
 */
DOCAEMU_API
doca_error_t
docaemu_time(uint64_t *ns);

/**
 * Move the virtual clock; armed progress engines are notified of what is due by then.
 *
 * @param[in] ns how far
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_INVALID_VALUE past the end of the clock, which is 213 days
 *
 * Any thread.
 */
DOCAEMU_API
doca_error_t
docaemu_time_advance(uint64_t ns);

/**
 * Withhold the completions of all tasks that are submitted from now on, or no longer do so. Those
 * that are withheld stay so, whatever happens to their context, until they are released.
 *
 * @param[in] on 0 or 1
 * @retval DOCA_SUCCESS
 *
 * Any thread; in every engine mode.
 */
DOCAEMU_API
doca_error_t
docaemu_hold(int on);

/**
 * Let withheld completions be reported, in the order in which they are released; one that was not
 * executed yet is reported when it was.
 *
 * @param[in] n how many at most
 * @param[in] order enum docaemu_order: which come first
 * @param[out] released how many there were; may be NULL
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_INVALID_VALUE no such order
 *
 * Any thread; in every engine mode.
 */
DOCAEMU_API
doca_error_t
docaemu_release(size_t n, int order, size_t *released);

/**
 * End all exports of this process as if their maps had been stopped: importers' copies fail with
 * IO_FAILED, their descriptors can be imported no more. A map that is exported again gets another
 * descriptor.
 *
 * @retval DOCA_SUCCESS no copy reads or writes through the old descriptors any more
 *
 * Any thread.
 */
DOCAEMU_API
doca_error_t
docaemu_revoke_exports(void);

#ifdef __cplusplus
}
#endif

#endif /* DOCAEMU_H_ */
