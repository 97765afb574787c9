/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Insides of the emulator, shared by its files. Nothing here is exported.
 *
 * Who may touch what:
 *   the PE's thread   a progress engine, its contexts and tasks, and the bufs in them
 *   workers           tasks they claimed, and the done list of a context
 *   any thread        what is atomic, and what emu_lock or the engine's lock guards
 */
#ifndef EMU_H_
#define EMU_H_

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_error.h>
#include <doca_log.h>
#include <doca_mmap.h>
#include <doca_pe.h>
#include <doca_types.h>
#include <doca_version.h>
#include <docaemu.h>

/* Keeps what is rarely needed out of the short paths, and their compiled form short. */
#define EMU_COLD __attribute__((cold, noinline))

/* ---- settings (control.c) ---- */

enum emu_setting {
	EMU_ENGINE,
	EMU_INLINE_MAX,
	EMU_NT_MIN,
	EMU_QUEUE_DEPTH,
	EMU_EDGE_STRICT,
	EMU_STRICT,
	EMU_STRICT_CLIENT,
	EMU_STRICT_EXIT,
	EMU_CHECKSUM,
	EMU_FLUSH_STATUS, /* 0: the culprit's */
	EMU_MAP_LIFETIME_BUFS,
	EMU_OVERSIZE_AT_ALLOC,
	EMU_ZERO_AT_SUBMIT,
	EMU_PERMISSION_AT_SUBMIT,
	EMU_DST_LIST_FAILS,
	EMU_STOP_IDLE_BAD_STATE,
	EMU_MEMLOCK,
	EMU_MEMLOCK_STATUS,
	EMU_SEED,
	EMU_MAX_BUF_SIZE,
	EMU_MAX_BUF_LIST_LEN,
	EMU_MAX_NUM_TASKS,
	EMU_PEER_TIMEOUT, /* milliseconds */
	EMU_PEER_USERS,	  /* 1: any */
	EMU_EXPORT_STOP_REVOKES,
	EMU_PROFILE,
	EMU_DIRECTION,
	EMU_LATENCY,   /* nanoseconds of virtual time */
	EMU_BANDWIDTH, /* bytes per second of virtual time */
	EMU_CLOCK,
	EMU_PROGRESS_COST, /* nanoseconds of virtual time */
	EMU_LATENCY_REAL,  /* microseconds */
	EMU_HOLD,
	EMU_ORDER,
	EMU_SLOT_LAG,
	EMU_NOTIFY,
	EMU_CHAOS, /* the seed */
	EMU_CHAOS_FAULTS,
	EMU_NUM_SETTINGS,
};

enum emu_engine_mode { EMU_ENGINE_DEFAULT, EMU_ENGINE_WORKER, EMU_ENGINE_MANUAL, EMU_ENGINE_LATE };
enum emu_strict { EMU_STRICT_OFF, EMU_STRICT_REPORT, EMU_STRICT_ABORT };

extern _Atomic uint64_t emu_settings[EMU_NUM_SETTINGS];

static inline uint64_t
emu_get(enum emu_setting setting)
{
	return atomic_load_explicit(&emu_settings[setting], memory_order_relaxed);
}

/* One lock for everything rare: devices, lists of objects, violations, faults. Taken last. */
extern pthread_mutex_t emu_lock;

/* ---- entering a call: the first one reads the environment, and faults (faults.c) ---- */

#define EMU_FLAG_UNINITIALISED 1u
#define EMU_FLAG_FAULTS 2u
extern _Atomic uint32_t emu_flags;

doca_error_t
emu_enter_slow(const char *op);
void
emu_init(void);

/* What a submit must look at beyond the bufs; 0 while it is only those. */
#define EMU_SPECIAL_FAULTS 1u  /* faults are set */
#define EMU_SPECIAL_IMPORTS 2u /* a map was imported once */
#define EMU_SPECIAL_SCHED 4u   /* completions are scheduled: schedule.h */
extern _Atomic uint32_t emu_special;

/* Fail the calling function if a fault is set for it; `op` is its name without "doca_". */
#define EMU_ENTER_IS_SLOW() (atomic_load_explicit(&emu_flags, memory_order_relaxed) != 0)
#define EMU_ENTER(op) \
	do { \
		if (doca_unlikely(EMU_ENTER_IS_SLOW())) { \
			doca_error_t emu_result_ = emu_enter_slow(op); \
			if (emu_result_ != DOCA_SUCCESS) { \
				return emu_result_; \
			} \
		} \
	} while (0)

struct emu_completion_fault {
	doca_error_t status; /* SUCCESS with corrupt */
	bool corrupt;
	bool hold;
	bool fatal;
};

enum emu_notify { EMU_NOTIFY_NORMAL, EMU_NOTIFY_LATE, EMU_NOTIFY_SUPPRESS, EMU_NOTIFY_SPURIOUS };

enum emu_notify
emu_fault_notification(bool arm);

doca_error_t
emu_fault_accepted(const char *op);
bool
emu_fault_completion(const void *src, struct emu_completion_fault *fault);
doca_error_t
emu_fault_add(char *words, char *error, size_t error_size);
void
emu_faults_reset(void);
doca_error_t
emu_parse_status(const char *text, doca_error_t *status);
doca_error_t
emu_parse_number(const char *text, uint64_t *value);
doca_error_t
emu_version_set(const char *text);

/* ---- objects: a magic word in front, another one when dead ---- */

struct emu_object {
	uint32_t magic;
	uint32_t reserved;
};

#define EMU_DEAD 0x80000000u
#define EMU_MAGIC_DEVINFO 0x0e5d0001u
#define EMU_MAGIC_DEV 0x0e5d0002u
#define EMU_MAGIC_MMAP 0x0e5d0003u
#define EMU_MAGIC_BUF 0x0e5d0004u
#define EMU_MAGIC_INVENTORY 0x0e5d0005u
#define EMU_MAGIC_PE 0x0e5d0006u
#define EMU_MAGIC_CTX 0x0e5d0007u
#define EMU_MAGIC_TASK 0x0e5d0008u

static inline bool
emu_is(const void *object, uint32_t magic)
{
	return object != NULL && ((const struct emu_object *)object)->magic == magic;
}

doca_error_t
emu_bad_object(const char *func, const void *object, uint32_t magic);
void
emu_violation(const char *func, const void *object, uint32_t magic, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
void
emu_violations_forget(void);
void
emu_read_live(struct docaemu_live *now);
void
emu_retire(void *object, size_t size);
void
emu_log(uint32_t level, const char *func, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Leave the calling function with INVALID_VALUE unless the object is what it should be. */
#define EMU_CHECK(object, magic) \
	do { \
		if (doca_unlikely(!emu_is((object), (magic)))) { \
			return emu_bad_object(__func__, (object), (magic)); \
		} \
	} while (0)

#define EMU_CHECK_OUT(pointer) \
	do { \
		if (doca_unlikely((pointer) == NULL)) { \
			return DOCA_ERROR_INVALID_VALUE; \
		} \
	} while (0)

/* ---- counters ---- */

/* Counts written by one thread (the PE's) and read by any. */
struct emu_pe_stats {
	_Atomic uint64_t progress_calls;
	_Atomic uint64_t progress_empty;
	_Atomic uint64_t arms;
	_Atomic uint64_t clears;
	_Atomic uint64_t submits;
	_Atomic uint64_t doorbells;
	_Atomic uint64_t tasks_inline;
	_Atomic uint64_t completions_ok;
	_Atomic uint64_t completions_error;
	_Atomic uint64_t flushed;
	_Atomic uint64_t bytes;
	_Atomic uint64_t again;
	_Atomic uint64_t max_in_flight;
	_Atomic uint64_t in_flight;
};

/* Counts and live objects written by any thread. */
struct emu_global_stats {
	_Atomic uint64_t notifications;
	_Atomic uint64_t worker_wakes;
	_Atomic uint64_t worker_sleeps;
	_Atomic uint64_t tasks_worker;
	_Atomic uint64_t tasks_step;
	_Atomic uint64_t no_memory;
	_Atomic uint64_t faults;
	_Atomic uint64_t violations;
	_Atomic uint64_t ctx_starts;
	_Atomic uint64_t ctx_faults;
	_Atomic uint64_t live_lists;
	_Atomic uint64_t live_devs;
	_Atomic uint64_t live_mmaps;
	_Atomic uint64_t live_inventories;
	_Atomic uint64_t live_bufs;
	_Atomic uint64_t live_pes;
	_Atomic uint64_t live_ctxs;
	_Atomic uint64_t live_tasks;
	_Atomic uint64_t live_workers;
	_Atomic uint64_t pinned_bytes;
	_Atomic uint64_t live_exports;
	_Atomic uint64_t live_imports;
	_Atomic uint64_t live_held;
	_Atomic uint64_t notifications_late;
	_Atomic uint64_t notifications_suppressed;
	_Atomic uint64_t notifications_spurious;
	_Atomic uint64_t peer_reads;
	_Atomic uint64_t peer_writes;
	_Atomic uint64_t peer_refused;
};

extern struct emu_global_stats emu_stats;

static inline void
emu_add_own(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static inline void
emu_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static inline void
emu_sub(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_sub_explicit(counter, n, memory_order_relaxed);
}

/*
 * With checksum=1, sums of a task's bytes: taken at its submission, compared when it begins, taken
 * anew when it is done, compared when it is reported.
 */
void
emu_sum_submitted(struct doca_dma_task_memcpy *task);
void
emu_sum_begins(struct doca_dma_task_memcpy *task);
void
emu_sum_done(struct doca_dma_task_memcpy *task);
void
emu_sum_reported(struct doca_dma_task_memcpy *task);

void
emu_trace_copy(const void *src, const void *dst, size_t length);

/* ---- devices (dev.c) ---- */

/* A device as configured; lives as long as the library. */
struct emu_device {
	struct emu_device *next;
	char ibdev[DOCA_DEVINFO_IBDEV_NAME_SIZE];
	char iface[DOCA_DEVINFO_IFACE_NAME_SIZE];
	char pci[DOCA_DEVINFO_PCI_ADDR_SIZE];
	bool dma;
	bool export_pci;
	bool import_pci;
	uint64_t max_buf_size;	   /* 0: the setting */
	uint64_t max_buf_list_len; /* likewise */
	uint64_t max_num_tasks;	   /* likewise */
	uint16_t index;
	struct doca_dev *open; /* emu_lock */
	uint64_t busy_until;   /* virtual picoseconds; the engine's lock */
};

struct doca_devinfo {
	struct emu_object object;
	struct emu_device *device;
};

struct doca_dev {
	struct emu_object object;
	struct emu_device *device;
	struct doca_devinfo info;
	uint32_t opens;		    /* emu_lock */
	_Atomic uint32_t num_users; /* mmaps and contexts */
};

doca_error_t
emu_device_add(char *words, char *error, size_t error_size);
doca_error_t
emu_devices_default(void);
void
emu_devices_forget_past(void);
void
emu_devices_none(void);
doca_error_t
emu_parse_pci(const char *text, char out[DOCA_DEVINFO_PCI_ADDR_SIZE]);
uint64_t
emu_device_max_buf_size(const struct emu_device *device);
uint64_t
emu_device_max_list_len(const struct emu_device *device);
uint64_t
emu_device_max_tasks(const struct emu_device *device);

/* ---- memory maps and bufs ---- */

/*
 *   create           start               stop
 *  --------> SETTABLE ----> STARTED (---------> SETTABLE, range fixed)
 *               |              |
 *               +---destroy----+  not while bufs point into it
 */
struct doca_mmap {
	struct emu_object object;
	struct doca_mmap *next; /* emu_lock: list of all */
	struct doca_mmap *prev;
	uint8_t *addr;
	size_t len;
	struct doca_dev **devs;
	uint32_t num_devs;
	uint32_t num_registered; /* with how many of them: none while it is not started */
	uint32_t max_devs;
	uint32_t permissions;
	bool range_set;
	bool started;
	bool ever_started;
	bool from_export;
	bool exported;
	bool thread_safe;
	bool writable; /* by a local device */
	doca_mmap_memrange_free_cb_t *free_cb;
	void *free_cookie;
	bool free_cb_changed; /* after the last start */
	union doca_data user_data;
	_Atomic uint32_t refs;	/* the bufs that point into it, and one until it is destroyed */
	_Atomic uint64_t users; /* bits of the contexts that used it */
	uint64_t generation;	/* how often its exports ended */
	struct emu_export *exports;
	struct emu_import *import; /* of a map created from an export */
};

bool
emu_mmap_has_dev(const struct doca_mmap *mmap, const struct doca_dev *dev);
void
emu_mmaps_forget_user(uint64_t bit);

/* Whether a device can reach the memory. */
static inline bool
emu_mmap_is_reached(const struct doca_mmap *mmap, const struct doca_dev *dev)
{
	return doca_likely(mmap->num_registered != 0 && mmap->devs[0] == dev) ||
	       (mmap->num_registered != 0 && emu_mmap_has_dev(mmap, dev));
}

/* Drop a reference; the last one of a map that was destroyed frees it. */
static inline void
emu_mmap_put(struct doca_mmap *mmap)
{
	if (doca_unlikely(atomic_fetch_sub_explicit(&mmap->refs, 1, memory_order_acq_rel) == 1)) {
		emu_retire(mmap, sizeof(*mmap));
	}
}

/*
 *          get                 last dec_refcount
 *   FREE --------> OUT (head) -------------------> FREE (magic says dead)
 *                  ^   | chain
 *          unchain |   v
 *                ELEMENT, freed with its head
 */
struct doca_buf {
	struct emu_object object;
	struct doca_buf_inventory *inventory;
	struct doca_mmap *mmap;
	uint8_t *addr;
	size_t len;
	uint8_t *data;
	size_t data_len;
	struct doca_buf *next; /* in its list; in the free list when dead */
	struct doca_buf *prev;
	struct doca_buf *last; /* of a head with elements, else NULL */
	uint32_t in_flight;    /* tasks at work on it */
	uint16_t refcount;
	bool dropped; /* refcount fell to 0 in flight: dead, but used until the task ends */
};

struct emu_buf_chunk {
	struct emu_buf_chunk *next;
	size_t num;
	struct doca_buf bufs[];
};

struct doca_buf_inventory {
	struct emu_object object;
	struct emu_buf_chunk *chunks;
	struct doca_buf *free_list;
	uint32_t num;
	uint32_t num_free;
	bool started;
	union doca_data user_data;
};

void
emu_buf_release(struct doca_buf *head);

/* Whether what a list points into is registered. */
static inline bool
emu_maps_are_started(const struct doca_buf *buf)
{
	while (buf != NULL && doca_likely(buf->mmap->started)) {
		buf = buf->next;
	}
	return buf == NULL;
}

static inline size_t
emu_buf_room(const struct doca_buf *buf)
{
	return buf->len - (size_t)(buf->data - buf->addr) - buf->data_len;
}

/* ---- tasks ---- */

/*
 *          alloc_init           submit               report (in progress)
 *   FREE ------------> OWNED --------> SUBMITTED ---------------> OWNED
 *    ^                  |
 *    +----task_free-----+        claimed by exactly one of: doca_pe_progress, a worker, a step
 */
enum emu_task_state { EMU_TASK_FREE, EMU_TASK_OWNED, EMU_TASK_SUBMITTED };

struct doca_task {
	struct emu_object object;
	struct doca_ctx *ctx;
	union doca_data user_data;
	doca_error_t status; /* what the user sees */
	uint8_t state;	     /* enum emu_task_state */
	uint8_t fatal;	     /* a failure stops the context */
	uint8_t flushed;
	uint8_t finished;
	doca_error_t result;	 /* of the execution */
	uint64_t seq;		 /* manual engine: order of submission */
	struct doca_task *next;	 /* free, done or ready list */
	struct doca_task *order; /* ordered completions: the one submitted next */
	/* scheduled contexts; the engine's lock */
	uint8_t sched; /* enum emu_sched_place */
	uint8_t executed;
	uint8_t held;
	uint64_t due; /* virtual picoseconds; 0: at once */
	uint64_t key; /* order among those due together */
	struct doca_task *held_next;
	struct doca_task *held_prev;
	uint64_t lag_until; /* progress calls; the PE's thread */
	uint64_t real_due;  /* latency_real: when it may be finished */
	uint64_t run_at; /* clocked: when its bytes move, virtual picoseconds; the engine's lock */
	uint64_t number; /* chaos: of the submit */
};

enum emu_sched_place { EMU_SCHED_NONE, EMU_SCHED_HEAP, EMU_SCHED_HELD };

struct doca_dma_task_memcpy {
	struct doca_task base;
	const struct doca_buf *src;
	struct doca_buf *dst;
	/* what submit found, so that nobody else reads the bufs of a plain copy */
	const uint8_t *from;
	uint8_t *to;
	size_t len;
	doca_error_t planned; /* how the execution will end */
	uint8_t special;      /* EMU_TASK_ flags; 0: one memcpy does it */
	uint8_t held;	      /* in_flight of the bufs was raised */
	bool summed;	      /* checksum=1, see strict.c */
	uint64_t src_sum;     /* with summed */
	uint64_t dst_sum;     /* likewise */
};

#define EMU_TASK_LISTS 1u   /* src or dst is a list */
#define EMU_TASK_CORRUPT 2u /* flip a byte of the destination */
#define EMU_TASK_REMOTE 4u  /* src or dst is imported */
#define EMU_TASK_PULL 8u    /* only src is */
#define EMU_TASK_HOLD 16u   /* withhold the completion */

/* Claimed from the front by compare-and-swap, filled at the back by the PE's thread. */
struct emu_ring {
	_Atomic(struct doca_task *) *slots;
	uint32_t mask;
	uint32_t pending; /* submitted, the doorbell not rung */
	alignas(64) _Atomic uint32_t tail;
	alignas(64) _Atomic uint32_t head;
};

/* ---- contexts ---- */

/*
 *            ctx_start                  ctx_stop, or a task failed
 *   IDLE ------------------> RUNNING ------------------------------> STOPPING
 *    ^                         |                                        |
 *    |     ctx_stop, no task   |                                        |
 *    +-------------------------+                                        |
 *    +------- a step of progress, once every task was freed ------------+
 *
 * The state changes on the PE's thread only; `broken` may say earlier that nothing more begins.
 */
struct doca_ctx {
	struct emu_object object;
	/* the PE's thread */
	struct doca_pe *pe;
	struct doca_ctx *pe_next; /* circular */
	enum doca_ctx_states state;
	uint8_t engine;	    /* enum emu_engine_mode, as of the start */
	uint8_t ordered;    /* setting of the user */
	uint8_t reporting;  /* enum emu_report */
	uint8_t watch_free; /* a freed task may need more than a place in the pool */
	uint8_t clocked;    /* the clock runs the tasks, see schedule.h; as of the start */
	uint8_t chaos;	    /* clocked by chance, see chaos.c; as of the start */
	uint8_t serve_idle; /* SELECTIVE: it was about to become idle when the PE was armed */
	uint32_t in_flight;
	uint32_t allocated;
	uint32_t queue_depth;
	uint64_t inline_max;
	uint64_t latency_real; /* microseconds */
	union doca_data user_data;
	doca_ctx_state_changed_callback_t state_cb;
	struct doca_task *ready_first; /* finished, to be reported */
	struct doca_task *ready_last;
	struct doca_task *order_first; /* ordered completions: in flight */
	struct doca_task *order_last;
	uint64_t *lags; /* when the queue slots of reported tasks can be used again: a ring */
	uint32_t lag_first;
	uint32_t lag_num;
	uint64_t last_due;
	uint64_t user_bit; /* in doca_mmap.users */
	struct doca_dev *dev;
	struct emu_ring small; /* may run in doca_pe_progress */
	struct emu_ring large; /* for workers */
	/* any thread */
	_Atomic(struct doca_task *) done; /* finished elsewhere */
	_Atomic uint32_t broken;	  /* the code flushed tasks get, 0 while all is well */
	_Atomic uint32_t handed;	  /* small tasks before this one are the workers', too */
	/* the engine's lock */
	struct doca_ctx *engine_next;
	struct doca_task **heap; /* scheduled: in flight, the one due first on top */
	uint32_t heap_num;
	_Atomic uint64_t break_time; /* when it broke, virtual picoseconds */
	bool listed;
	uint32_t seen; /* tails at the last tick, and at the one before */
	uint32_t aged;
	uint32_t seen_large;
};

enum emu_report { EMU_REPORT_ASAP, EMU_REPORT_ORDERED, EMU_REPORT_SCHEDULED };

struct doca_dma {
	struct doca_ctx ctx;
	doca_dma_task_memcpy_completion_cb_t ok_cb;
	doca_dma_task_memcpy_completion_cb_t error_cb;
	uint32_t num_tasks;
	uint32_t ring_size;
	uint32_t slab_tasks;
	uint32_t slab_used;
	struct doca_dma_task_memcpy *slab;
	struct doca_task *free_list;
	struct doca_task *parked; /* freed, their slots not usable yet; earliest first */
	uint64_t max_buf_size;
	uint64_t max_list_len;
};

void
emu_ctx_init(struct doca_ctx *ctx, struct doca_dev *dev);
void
emu_ctx_fini(struct doca_ctx *ctx);
void
emu_ctx_break(struct doca_ctx *ctx, doca_error_t culprit);
void
emu_ctx_set_state(struct doca_ctx *ctx, enum doca_ctx_states state);
void
emu_ctx_to_idle(struct doca_ctx *ctx);
doca_error_t
emu_dma_start(struct doca_dma *dma);
doca_error_t
emu_dma_plan(struct doca_dma_task_memcpy *task, bool validate);
void
emu_dma_execute(struct doca_dma_task_memcpy *task);
void
emu_dma_land(struct doca_dma_task_memcpy *task);
void
emu_dma_unhold(struct doca_dma_task_memcpy *task);

/* ---- progress engines ---- */

/*
 *                request                      something to report
 *   UNARMED -----------------> ARMED ------------------------------> SIGNALLED (handle readable)
 *      ^                         ^                                       |  |
 *      |                         +------- request (mode ALL) ------------+  |
 *      +------------------------------------- clear ------------------------+
 */
enum emu_arm_state { EMU_UNARMED, EMU_ARMED, EMU_SIGNALLED };

struct doca_pe {
	struct emu_object object;
	struct doca_ctx *cursor; /* circular list; the next to be served */
	uint32_t num_ctxs;
	enum doca_pe_event_mode event_mode;
	int fd;
	_Atomic(const void *) owner; /* the thread inside, see emu_pe_enter */
	uint64_t charged;	     /* the progress call that moved the virtual clock last */
	/* any thread */
	_Atomic uint32_t arm;
	_Atomic uint32_t readable; /* fd was written since it was last emptied */
	_Atomic uint32_t late;	   /* a notification is being kept back */
	_Atomic uint32_t clocked; /* had a context that the clock runs, for which no worker ticks */
	/* emu_lock */
	struct doca_pe *next;
	struct doca_pe *prev;
	struct emu_pe_stats stats;
};

extern _Thread_local char emu_self __attribute__((tls_model("initial-exec"), visibility("hidden")));

void
emu_pe_signal(struct doca_pe *pe);
void
emu_pe_signal_late(struct doca_pe *pe);
bool
emu_ctx_step(struct doca_ctx *ctx);
bool
emu_pe_foreign_thread(struct doca_pe *pe, const char *func);
void
emu_pes_spurious(void);
void
emu_pes_collect(struct docaemu_counters *counters, uint64_t *in_flight);
void
emu_pes_forget_past(void);

/* Whether another thread is inside this progress engine. */
static inline bool
emu_pe_is_foreign(struct doca_pe *pe, const char *func)
{
	const void *owner = atomic_load_explicit(&pe->owner, memory_order_relaxed);

	return doca_unlikely(owner != NULL && owner != &emu_self) &&
	       emu_pe_foreign_thread(pe, func);
}

/* Be the one thread inside a progress engine; false if one is, the calling one included. */
static inline bool
emu_pe_enter(struct doca_pe *pe)
{
	const void *none = NULL;

	return atomic_compare_exchange_strong_explicit(&pe->owner, &none, &emu_self,
						       memory_order_acquire, memory_order_relaxed);
}

static inline void
emu_pe_leave(struct doca_pe *pe)
{
	atomic_store_explicit(&pe->owner, NULL, memory_order_release);
}

/* Whether the calling thread is inside doca_pe_progress, in a callback. */
static inline bool
emu_pe_in_callback(struct doca_pe *pe)
{
	return atomic_load_explicit(&pe->owner, memory_order_relaxed) == &emu_self;
}

/* ---- engine (engine.c) ---- */

doca_error_t
emu_ring_create(struct emu_ring *ring, uint32_t size);
void
emu_ring_destroy(struct emu_ring *ring);
struct doca_task *
emu_ring_claim(struct emu_ring *ring, uint32_t limit);
struct doca_task *
emu_ring_take(struct emu_ring *ring, uint32_t index);

static inline uint32_t
emu_ring_tail(struct emu_ring *ring)
{
	return atomic_load_explicit(&ring->tail, memory_order_seq_cst);
}

static inline uint32_t
emu_ring_waiting(struct emu_ring *ring)
{
	return emu_ring_tail(ring) - atomic_load_explicit(&ring->head, memory_order_acquire);
}

doca_error_t
emu_engine_add(struct doca_ctx *ctx);
void
emu_engine_remove(struct doca_ctx *ctx);
void
emu_engine_barrier(void);
void
emu_engine_doorbell(struct doca_ctx *ctx, bool large);
void
emu_engine_handoff(struct doca_pe *pe);
void
emu_engine_late(void);
struct doca_task *
emu_engine_claim_flush(struct doca_ctx *ctx);
doca_error_t
emu_engine_step(size_t n, int order, size_t *stepped);
doca_error_t
emu_engine_complete(uint64_t dst, doca_error_t status, bool fatal);
void
emu_engine_reseed(void);
bool
emu_engine_idle(void);
void
emu_engine_fork_prepare(void);
void
emu_engine_fork_parent(void);
void
emu_engine_fork_child(void);
void
emu_dev_fork_child(void);
void
emu_mmap_fork_child(void);
void
emu_pe_fork_child(void);
void
emu_log_fork_prepare(void);
void
emu_log_fork_done(void);
void
emu_copy(uint8_t *dst, const uint8_t *src, size_t len);

#endif /* EMU_H_ */
