/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python types of the copy path: Channel (base of DMA), Buffer (base of MemoryMap) and CopyFuture.
 *
 * Theory of operation
 *
 * A CopyFuture embeds its struct adma_copy, so a copy costs one object and no table. From start to native end (the
 * channel handed the copy back: the engine no longer touches its memory) the Channel holds a reference to the future,
 * and the future holds the Channel and both Buffers. The garbage collector does not see the Channel's reference, on
 * purpose: a pending copy keeps its memory alive although everybody else has dropped it.
 *
 *             _reserve()            _start_plan()
 *   (nothing) ----------> RESERVED -------------> STARTED -- native end --> ended: result, exception
 *        |                    |                      |           |                      ^
 *        +--------------------|------ copy() --------+           | cancel() was called  | the cohort is over
 *                             |                                  v                      |
 *                             +- _start_plan() after cancel() > HELD -------------------+--> ended: cancelled
 *
 * Cohorts. Copies cancelled in one turn of the loop end together: when the last of them has reached its native end and
 * that turn is over (a callback scheduled by the first cancel says so). asyncio.gather() raises as soon as its first
 * child ends in cancellation; with cohorts the others are then quiescent too.
 *
 * Awaiting. A task takes its fast path for an exact asyncio.Future only, so a pending await yields one of those, the
 * waiter, and completes it at the end. Each await has its own waiter, because Task.cancel() cancels what its task waits
 * for. A CancelledError thrown into the await cancels the copy and waits on with a new waiter; it is raised when the
 * copy has ended. From the second cancel on, if anyio is loaded, this waiting is done in a shielded scope, for anyio
 * cancels again in every turn of the loop until the task obeys.
 *
 * Reentrancy. No Python code runs inside a call into the channel. Anything that may run Python (a callback's
 * scheduling, a hook, dropping a reference) comes after the C state of all copies involved is consistent, and lists are
 * taken before they are walked.
 *
 * Threads. The GIL guards everything here. Objects may be dropped in any thread and coroutines closed in any (by the
 * garbage collector); everything else belongs to the thread of the loop, and copy() checks that.
 *
 * Fork. A child must not touch the parent's DOCA objects; a counter bumped in the child tells it that it is one.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "dlpack.h"
#include "fast.h"
#include "memory.h"

/* Every INLINE_COPIES-th copy that the engine finished at once resolves in the loop's next turn, so that a loop of
 * awaits that never suspend lets others run; more than INLINE_BYTES in one turn wait for the next one altogether. */
#define INLINE_COPIES 1024
#define INLINE_BYTES (UINT64_C(8) << 20)

/* Of copies that the engine finishes at once one in so many is timed, if latencies are measured. */
#define TIMED_AT_ONCE 16

/* Objects kept for reuse. */
#define FREE_FUTURES 64
#define FREE_AWAITINGS 64

#define DST_WRITABLE \
	((uint32_t)DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | (uint32_t)DOCA_ACCESS_FLAG_PCI_READ_WRITE)

#define METHOD(function) ((PyCFunction)(void (*)(void))(function))

struct future;
struct plan;

/* A list of pending futures, with the channel as its head. */
struct link {
	struct link *next;
	struct link *prev;
};

/* Copies cancelled in one turn of the loop; see above. */
struct cohort {
	size_t remaining; /* members that have not reached their native end, plus 1 while the turn lasts */
	struct adma_copy *
		first; /* of members held back, oldest first, each with a reference; linked by next */
	struct adma_copy *last;
};

struct channel {
	PyObject_HEAD
	struct adma_channel *native; /* NULL: not attached, or detached */
	PyObject *loop;
	PyObject *call_soon;	/* loop.call_soon */
	PyObject *turn_args;	/* (self._turn,) */
	PyObject *settle_args;	/* (self._settle,) */
	PyObject *loop_keyword; /* {"loop": loop} */
	PyObject *
		holder; /* what the thread's dict says while our loop runs in it, when that is not the loop */
	unsigned generation; /* of forks, when attached */
	uint8_t closing;
	uint8_t scheduled; /* _turn is in the loop's queue */
	uint8_t want_idle;
	uint8_t want_room;   /* _on_room() after each turn */
	uint8_t want_starts; /* _on_started() for each copy */
	uint8_t want_events; /* _on_events() after a turn in which some were noted */
	uint8_t watched;     /* _on_armed() was called and the watch has not ended */
	uint8_t faulty;	     /* _on_fault() was called for the fault that is on */
	uint8_t orphaned; /* the loop was closed: pending futures are the garbage collector's to see */
	uint8_t turn_due;	/* the next turn has work besides copies: a map was retired */
	uint32_t inline_copies; /* since the last turn, or the last that was deferred */
	uint64_t inline_bytes;	/* since the last turn */
	uint64_t max_waiting;	/* 0: no bound */
	uint64_t result_bytes;	/* the last result that was asked for, */
	PyObject *result;	/* as an object: copies of one length share it; NULL at first */
	uint64_t started;	/* copies the native channel has, or has on its done list */
	uint64_t num_pending;	/* futures on the pending list */
	struct link pending;
	struct adma_copy *deferred; /* ended, to be resolved in the next turn; linked by next */
	struct adma_copy **deferred_end;
	struct cohort *cohort; /* of the current turn */
	struct future *asking; /* whose exception the hook is making; not held */
	uint64_t num_events;   /* noted when _on_events() was called last */
	int64_t turn_ns; /* when a turn was scheduled last: since when its copies are pending */
	struct adma_latency *latency; /* the native channel's; NULL: not measured */
	uint64_t at_once_ns; /* what the copy took that was finished at once and timed last */
	uint32_t untimed;    /* copies finished at once since then, it included */
};

struct buffer {
	PyObject_HEAD
	struct buffer *base; /* who owns the map: self (not counted), or held; NULL if unattached */
	struct channel *channel; /* NULL if unattached */
	struct adma_mmap *map;	 /* in the owner only; NULL once retired */
	char *addr;
	uint64_t length;
	PyObject *keep; /* held until this Buffer is closed or dropped: whose memory it is */
};

enum future_state {
	FUTURE_PENDING,
	FUTURE_RESULT,
	FUTURE_FAILED,
	FUTURE_CANCELLED,
};

/* What few futures have. */
struct extra {
	PyObject *tag;
	PyObject *message;     /* of the first cancel() */
	struct cohort *cohort; /* NULL once left */
};

/* There may be as many as memory holds, so they are small: what can be told from the copy is not kept beside it. */
struct future {
	PyObject_HEAD
	struct adma_copy copy;
	struct link link; /* on the channel's pending list; next is NULL if not */
	struct channel *channel;
	struct extra *extra; /* NULL: none of it */
	PyObject
		*error; /* FAILED: the exception; CANCELLED: the device's error, if there was one */
	PyObject *callback; /* the callback, or a waiter; or the list, if there are several */
	PyObject *context;  /* the callback's; NULL for a waiter or the list */
	PyObject *weakrefs;
	uint32_t since_low; /* when it was started, in 256 ns; 0 if nobody has asked the clock */
	uint8_t since_high;
	uint8_t state;	       /* enum future_state */
	uint8_t blocking : 1;  /* _asyncio_future_blocking */
	uint8_t several : 1;   /* callback is a list of (callback, context) or (waiter,) */
	uint8_t pinned : 1;    /* holds, and uses, both maps or the plan, until the native end */
	uint8_t reserved : 1;  /* made by _reserve, not started yet */
	uint8_t started : 1;   /* the native channel has the copy */
	uint8_t asked : 1;     /* cancel() was called */
	uint8_t lost : 1;      /* given up: ended although the engine may still hold it */
	uint8_t unseen : 1;    /* an exception that nobody has retrieved */
	uint8_t finalized : 1; /* the garbage collector remembers it: not for reuse */
	uint8_t retrieved : 1; /* somebody has asked for the outcome */
	uint8_t examined : 1;  /* ended, but the cause of its error is still looked for */
};

/* With the garbage collector's two words that is 1.3 times a bare asyncio.Future. */
_Static_assert(sizeof(struct future) <= 22 * sizeof(void *), "a waiting copy takes too much");

/* What `await future` runs. */
struct awaiting {
	PyObject_HEAD
	struct future *future; /* NULL once finished */
	PyObject *waiter;
	PyObject *stop;	 /* the CancelledError to raise at the end */
	PyObject *scope; /* anyio.CancelScope, entered */
};

static PyTypeObject *channel_type;
static PyTypeObject *buffer_type;
static PyTypeObject *future_type;
static PyTypeObject *awaiting_type;
static PyTypeObject *plan_type;
static PyTypeObject *tensor_type;

/* asyncio's and contextvars' own */
static PyObject *asyncio_future;
static PyObject *asyncio_set_result;	  /* Future's; a waiter is exactly one */
static PyObject *asyncio_blocking;	  /* Future's descriptor of _asyncio_future_blocking, */
static descrsetfunc asyncio_set_blocking; /* and how it is set; NULL: it is no descriptor */
static PyObject *asyncio_running_loop;
static PyObject *cancelled_error;
static PyObject *invalid_state_error;
static PyObject *copy_context;
static PyObject *tag_in_words; /* ours, in Python */

static PyObject *empty_tuple;
static PyObject *name_blocking;
static PyObject *name_call_soon;
static PyObject *name_context;
static PyObject *name_running_loop;
static PyObject *name_value;

static struct future *free_futures[FREE_FUTURES];
static unsigned num_free_futures;
static struct awaiting *free_awaitings[FREE_AWAITINGS];
static unsigned num_free_awaitings;

static volatile unsigned fork_generation;

static void
after_fork_in_child(void)
{
	fork_generation++;
}

static inline struct future *
future_of_copy(struct adma_copy *copy)
{
	return (struct future *)((char *)copy - offsetof(struct future, copy));
}

static inline struct future *
future_of_link(struct link *link)
{
	return (struct future *)((char *)link - offsetof(struct future, link));
}

/* The plan of a copy that has one. */
static inline struct plan *
plan_of_copy(const struct adma_copy *copy);

/* Who owns the memory of a map. */
static inline PyObject *
owner_of(const struct adma_mmap *map)
{
	return map->owner;
}

static inline bool
is_forked(const struct channel *self)
{
	return self->generation != fork_generation;
}

/* ---- errors ---- */

/* Put a new reference where an old one may be. */
static void
replace(PyObject **place, PyObject *value)
{
	PyObject *old = *place;

	*place = value;
	Py_XDECREF(old);
}

/* Take the current error as one object with its traceback. */
static PyObject *
take_error(void)
{
	PyObject *type, *value, *traceback;

	PyErr_Fetch(&type, &value, &traceback);
	PyErr_NormalizeException(&type, &value, &traceback);
	if (traceback != NULL) {
		PyException_SetTraceback(value, traceback);
	}
	Py_XDECREF(type);
	Py_XDECREF(traceback);
	return value;
}

/* Raise an exception object; steals it. */
static void
raise_error(PyObject *error)
{
	PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	Py_DECREF(error);
}

static bool
loop_is_closed(PyObject *loop)
{
	PyObject *answer = PyObject_CallMethod(loop, "is_closed", NULL);
	int closed;

	if (answer == NULL) {
		PyErr_Clear();
		return true;
	}
	closed = PyObject_IsTrue(answer);
	Py_DECREF(answer);
	if (closed < 0) {
		PyErr_Clear();
	}
	return closed != 0;
}

/* Tell the loop's exception handler; nothing is raised. */
static void
report(PyObject *loop, const char *message, PyObject *error)
{
	PyObject *answer;
	PyObject *context = Py_BuildValue("{s:s,s:O}", "message", message, "exception", error);

	if (context == NULL) {
		PyErr_WriteUnraisable(loop);
		return;
	}
	answer = PyObject_CallMethod(loop, "call_exception_handler", "O", context);
	if (answer == NULL) {
		PyErr_WriteUnraisable(loop);
	}
	Py_XDECREF(answer);
	Py_DECREF(context);
}

static bool
is_fatal(PyObject *error)
{
	return PyErr_GivenExceptionMatches(error, PyExc_KeyboardInterrupt) ||
	       PyErr_GivenExceptionMatches(error, PyExc_SystemExit);
}

/*
 * Dispose of the current error where the work must go on: KeyboardInterrupt and SystemExit go to *fatal, to be raised
 * when the work is done, everything else to the loop's exception handler. A closed loop has nobody left to tell.
 */
static void
absorb_error(struct channel *self, const char *message, PyObject **fatal)
{
	PyObject *error = take_error();

	if (is_fatal(error) && fatal != NULL && *fatal == NULL) {
		*fatal = error;
		return;
	}
	if (!loop_is_closed(self->loop)) {
		report(self->loop, message, error);
	}
	Py_DECREF(error);
}

/* Raise what absorb_error() kept, if anything. */
static PyObject *
none_unless(PyObject *fatal)
{
	if (fatal != NULL) {
		raise_error(fatal);
		return NULL;
	}
	Py_RETURN_NONE;
}

static int
wrong_number(const char *name, const char *expected, Py_ssize_t given)
{
	PyErr_Format(PyExc_TypeError, "%s() takes %s (%zd given)", name, expected, given);
	return -1;
}

/* The one optional keyword of a call, borrowed; *out is NULL before unless it was given by position. */
static int
take_keyword(const char *name, PyObject *const *args, Py_ssize_t num_args, PyObject *names,
	     const char *keyword, PyObject **out)
{
	Py_ssize_t i, num_names = names == NULL ? 0 : PyTuple_Size(names);

	for (i = 0; i < num_names; i++) {
		PyObject *given = PyTuple_GetItem(names, i);

		if (PyUnicode_CompareWithASCIIString(given, keyword) != 0 || *out != NULL) {
			PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R",
				     name, given);
			return -1;
		}
		*out = args[num_args + i];
	}
	return 0;
}

/* ---- the loop ---- */

/*
 * Does the channel's loop run in this thread? 1 yes, 0 no, -1 error.
 *
 * asyncio keeps the running loop in the thread's dict: 3.12 and 3.13 the loop, 3.11 a holder made by each run of a
 * loop. asyncio._get_running_loop() would do, but makes a system call each time on 3.11 (it asks for the process id), and
 * so a holder it vouched for is remembered. Where there is no such key (3.14) it is asked every time.
 */
static int
is_on_loop(struct channel *self)
{
	PyObject *dict = PyThreadState_GetDict();
	PyObject *holder = NULL;
	PyObject *running;
	int same;

	if (dict != NULL) {
		holder = PyDict_GetItemWithError(dict, name_running_loop);
		if (holder == NULL) {
			if (PyErr_Occurred()) {
				return -1;
			}
		} else if (holder == self->holder || holder == self->loop) {
			return 1;
		}
	}
	running = PyObject_CallNoArgs(asyncio_running_loop);
	if (running == NULL) {
		return -1;
	}
	same = running == self->loop;
	Py_DECREF(running);
	if (same && holder != NULL) {
		PyObject *old = self->holder;

		self->holder = Py_NewRef(holder);
		Py_XDECREF(old);
	}
	return same;
}

/* call_soon(*args), from any thread. */
static int
call_soon_anywhere(struct channel *self, PyObject *args)
{
	PyObject *handle;
	int here = is_on_loop(self);

	if (here < 0) {
		PyErr_Clear();
	}
	if (args == NULL) {
		PyErr_SetString(PyExc_RuntimeError, "the channel is detached");
		return -1;
	}
	if (here > 0) {
		handle = PyObject_CallObject(self->call_soon, args);
	} else {
		PyObject *method = PyObject_GetAttrString(self->loop, "call_soon_threadsafe");

		if (method == NULL) {
			return -1;
		}
		handle = PyObject_CallObject(method, args);
		Py_DECREF(method);
	}
	if (handle == NULL) {
		return -1;
	}
	Py_DECREF(handle);
	return 0;
}

/* Have a turn run soon; for the loop's thread. */
static inline int
schedule(struct channel *self)
{
	PyObject *handle;

	if (self->scheduled) {
		return 0;
	}
	handle = PyObject_CallObject(self->call_soon, self->turn_args);
	if (handle == NULL) {
		return -1;
	}
	Py_DECREF(handle);
	self->scheduled = 1;
	self->turn_ns = adma_clock_ns();
	return 0;
}

/* Have a turn run soon, for any thread; nothing is raised, and a loop that is closed runs nothing. */
static void
wake(struct channel *self)
{
	if (self->scheduled || self->turn_args == NULL) {
		return;
	}
	/* First: from another thread, the turn may have begun before the call is back. */
	self->scheduled = 1;
	self->turn_ns = adma_clock_ns();
	if (call_soon_anywhere(self, self->turn_args) < 0) {
		self->scheduled = 0;
		absorb_error(self, "aiodocadma could not schedule its turn", NULL);
	}
}

/* ---- CopyFuture: life ---- */

/* Its extra, made if need be; NULL without memory, and nothing is raised. */
static struct extra *
future_extra(struct future *self)
{
	if (self->extra == NULL) {
		self->extra = PyMem_Calloc(1, sizeof(*self->extra));
	}
	return self->extra;
}

static struct future *
future_new(struct channel *channel, uint64_t length, PyObject *tag)
{
	struct future *self;

	if (num_free_futures > 0) {
		self = free_futures[--num_free_futures]; /* its reference to the type was kept */
		Py_SET_REFCNT((PyObject *)self, 1);
	} else {
		self = PyObject_GC_New(struct future, future_type);
		if (self == NULL) {
			return NULL;
		}
	}
	self->copy.length = length;
	self->copy.completed = 0;
	self->copy.segments = 0;
	self->copy.code = DOCA_SUCCESS;
	self->copy.state = ADMA_COPY_NEW;
	self->copy.flushed = 0;
	self->copy.abandoned = 0;
	self->link.next = NULL;
	self->channel = (struct channel *)Py_NewRef((PyObject *)channel);
	self->copy.plan = NULL;
	self->extra = NULL;
	self->error = NULL;
	self->callback = NULL;
	self->context = NULL;
	self->weakrefs = NULL;
	self->since_low = 0;
	self->since_high = 0;
	self->state = FUTURE_PENDING;
	self->blocking = 0;
	self->several = 0;
	self->pinned = 0;
	self->reserved = 0;
	self->started = 0;
	self->asked = 0;
	self->lost = 0;
	self->unseen = 0;
	self->retrieved = 0;
	self->examined = 0;
	self->finalized = 0;
	PyObject_GC_Track(self);
	if (tag != NULL) {
		if (future_extra(self) == NULL) {
			Py_DECREF((PyObject *)self);
			PyErr_NoMemory();
			return NULL;
		}
		self->extra->tag = Py_NewRef(tag);
	}
	return self;
}

static inline void
future_set_since(struct future *self, int64_t ns)
{
	self->since_low = (uint32_t)(ns >> 8);
	self->since_high = (uint8_t)(ns >> 40);
}

/* How long ago it was started; right for 78 hours. */
static int64_t
future_age_ns(const struct future *self, int64_t now_ns)
{
	int64_t since = ((int64_t)self->since_high << 32) | self->since_low;

	return (((now_ns >> 8) - since) & ((INT64_C(1) << 40) - 1)) << 8;
}

static void
pending_add(struct channel *channel, struct future *self)
{
	self->link.prev = channel->pending.prev;
	self->link.next = &channel->pending;
	self->link.prev->next = &self->link;
	self->link.next->prev = &self->link;
	channel->num_pending++;
}

static void
pending_remove(struct future *self)
{
	if (self->link.next == NULL) {
		return;
	}
	self->link.prev->next = self->link.next;
	self->link.next->prev = self->link.prev;
	self->link.next = NULL;
	self->channel->num_pending--;
}

/* Once per exception, as asyncio does: when the future is dropped, unless somebody looked. */
static void
future_report_unseen(struct future *self)
{
	PyObject *type, *value, *traceback;

	if (!self->unseen || self->error == NULL) {
		return;
	}
	self->unseen = 0;
	PyErr_Fetch(&type, &value, &traceback);
	if (!loop_is_closed(self->channel->loop)) {
		report(self->channel->loop, "CopyFuture exception was never retrieved",
		       self->error);
	}
	PyErr_Restore(type, value, traceback);
}

static void
future_finalize(PyObject *object)
{
	((struct future *)object)->finalized = 1;
	future_report_unseen((struct future *)object);
}

static int
future_clear(PyObject *object)
{
	struct future *self = (struct future *)object;

	if (self->extra != NULL) {
		Py_CLEAR(self->extra->tag);
		Py_CLEAR(self->extra->message);
	}
	Py_CLEAR(self->error);
	self->several = 0;
	Py_CLEAR(self->callback);
	Py_CLEAR(self->context);
	return 0;
}

static int
future_traverse(PyObject *object, visitproc visit, void *arg)
{
	struct future *self = (struct future *)object;

	Py_VISIT(Py_TYPE(object));
	Py_VISIT(self->channel);
	if (self->pinned && self->copy.plan != NULL) {
		Py_VISIT(plan_of_copy(&self->copy));
	} else if (self->pinned) {
		Py_VISIT(owner_of(self->copy.src_map));
		Py_VISIT(owner_of(self->copy.dst_map));
	}
	if (self->extra != NULL) {
		Py_VISIT(self->extra->tag);
		Py_VISIT(self->extra->message);
	}
	Py_VISIT(self->error);
	Py_VISIT(self->callback);
	Py_VISIT(self->context);
	return 0;
}

/* ---- CopyFuture: the end ---- */

/* loop.call_soon(callback, self, context=context), or complete the waiter. */
static void
future_run(struct future *self, PyObject *callback, PyObject *context, PyObject **fatal)
{
	PyObject *answer = NULL;

	if (context == NULL) {
		answer = PyObject_CallFunctionObjArgs(asyncio_set_result, callback, Py_None, NULL);
		if (answer == NULL && PyErr_ExceptionMatches(invalid_state_error)) {
			/* Its task was cancelled in this turn, and the waiter with it: the task wakes anyway. */
			PyErr_Clear();
			return;
		}
	} else {
		PyObject *args = PyTuple_Pack(2, callback, (PyObject *)self);
		PyObject *keywords = PyDict_New();

		if (args != NULL && keywords != NULL &&
		    PyDict_SetItem(keywords, name_context, context) == 0) {
			answer = PyObject_Call(self->channel->call_soon, args, keywords);
		}
		Py_XDECREF(args);
		Py_XDECREF(keywords);
	}
	if (answer == NULL) {
		absorb_error(self->channel, "aiodocadma could not schedule a callback of a copy",
			     fatal);
		return;
	}
	Py_DECREF(answer);
}

/* The one place where a future ends. */
static void
future_end(struct future *self, enum future_state state, PyObject **fatal)
{
	PyObject *callback = self->callback;
	PyObject *context = self->context;
	bool several = self->several;
	Py_ssize_t i;

	self->state = (uint8_t)state;
	self->unseen = state == FUTURE_FAILED;
	if (callback == NULL) {
		return;
	}
	self->callback = NULL;
	self->context = NULL;
	self->several = 0;
	if (!several) {
		future_run(self, callback, context, fatal);
	} else {
		for (i = 0; i < PyList_Size(callback); i++) {
			PyObject *entry = PyList_GetItem(callback, i);

			future_run(self, PyTuple_GetItem(entry, 0),
				   PyTuple_Size(entry) > 1 ? PyTuple_GetItem(entry, 1) : NULL,
				   fatal);
		}
	}
	Py_DECREF(callback);
	Py_XDECREF(context);
}

/* One less to wait for; the last one ends all. */
static void
cohort_release(struct cohort *cohort, PyObject **fatal)
{
	struct adma_copy *copy;

	if (--cohort->remaining > 0) {
		return;
	}
	copy = cohort->first;
	PyMem_Free(cohort);
	while (copy != NULL) {
		struct future *member = future_of_copy(copy);

		copy = copy->next;
		if (member->state == FUTURE_PENDING) {
			future_end(member, FUTURE_CANCELLED, fatal);
		}
		Py_DECREF((PyObject *)member);
	}
}

/* The exception for a copy that failed: whatever the hook gives, or raises. */
/* What failed by itself in a copy of many pieces: a list of (index, code, phase, flushed). */
static PyObject *
plan_failures(const struct adma_plan *plan)
{
	PyObject *list = PyList_New((Py_ssize_t)plan->num_failures);

	for (uint64_t i = 0; list != NULL && i < plan->num_failures; i++) {
		const struct adma_piece_failure *failure = &plan->failures[i];
		PyObject *item = Py_BuildValue("(KiiO)", (unsigned long long)failure->index,
					       (int)failure->code, (int)failure->phase,
					       failure->flushed ? Py_True : Py_False);

		if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) {
			Py_CLEAR(list);
		}
	}
	return list;
}

/* Ask the hook for the exception of a copy of many pieces that stand for themselves. */
static PyObject *
future_many_failure(struct future *self)
{
	PyObject *failures = plan_failures(self->copy.plan);
	PyObject *error;

	if (failures == NULL) {
		return NULL;
	}
	error = PyObject_CallMethod((PyObject *)self->channel, "_many_failure", "OOK",
				    (PyObject *)self, failures,
				    (unsigned long long)self->copy.plan->count);
	Py_DECREF(failures);
	return error;
}

static PyObject *
future_failure(struct future *self, PyObject **fatal)
{
	bool many = self->copy.code == DOCA_SUCCESS && !self->copy.flushed && !self->copy.abandoned;
	struct future *before =
		self->channel->asking; /* a finaliser may start a copy in the hook */
	PyObject *error;

	self->channel->asking = self;
	error = many ? future_many_failure(self)
		     : PyObject_CallMethod((PyObject *)self->channel, "_failure", "OiiOO",
					   (PyObject *)self, (int)self->copy.code,
					   (int)self->copy.phase,
					   self->copy.flushed ? Py_True : Py_False,
					   self->copy.abandoned ? Py_True : Py_False);
	self->channel->asking = before;
	if (error != NULL && !PyExceptionInstance_Check(error)) {
		PyErr_Format(PyExc_TypeError, "_failure() gave %R, which is no exception", error);
		Py_CLEAR(error);
	}
	if (error == NULL) {
		error = take_error();
		self->examined = 0; /* whoever wanted to look for a cause has failed */
		if (is_fatal(error) && *fatal == NULL) {
			*fatal = Py_NewRef(error);
		}
	}
	return error;
}

static inline bool
copy_has_failed(const struct adma_copy *copy)
{
	return copy->code != DOCA_SUCCESS || copy->flushed || copy->abandoned ||
	       (copy->plan != NULL && copy->plan->num_failures > 0);
}

/* How a copy that reached its native end ends for those who wait for it; self->error is its own already. */
static void
future_conclude(struct future *self, PyObject **fatal)
{
	if (self->state != FUTURE_PENDING) {
		return; /* given up before */
	}
	if (self->asked) {
		struct cohort *cohort = self->extra != NULL ? self->extra->cohort : NULL;

		if (cohort == NULL) {
			future_end(self, FUTURE_CANCELLED, fatal);
			return;
		}
		self->extra->cohort = NULL;
		Py_INCREF((PyObject *)self);
		self->copy.next = NULL;
		if (cohort->last != NULL) {
			cohort->last->next = &self->copy;
		} else {
			cohort->first = &self->copy;
		}
		cohort->last = &self->copy;
		cohort_release(cohort, fatal);
		return;
	}
	future_end(self, self->error != NULL ? FUTURE_FAILED : FUTURE_RESULT, fatal);
}

static void
plan_release_users(struct plan *plan);

/* Resolve copies that reached their native end, linked by next; their references are ours. */
static void
channel_resolve(struct channel *channel, struct adma_copy *list, PyObject **fatal)
{
	struct adma_copy *copy;
	int64_t now_ns = list != NULL && channel->latency != NULL ? adma_clock_ns() : 0;

	/* First what needs no Python, for all of them. */
	for (copy = list; copy != NULL; copy = copy->next) {
		struct future *future = future_of_copy(copy);

		if (channel->latency != NULL && future->started && !copy->cancelled &&
		    !copy_has_failed(copy)) {
			adma_latency_observe(channel->latency,
					     (uint64_t)future_age_ns(future, now_ns));
		}

		pending_remove(future);
		if (future->started) {
			future->started = 0;
			channel->started--;
		}
		if (future->pinned && copy->plan != NULL) {
			plan_release_users(plan_of_copy(copy));
		} else if (future->pinned) {
			copy->src_map->users--;
			copy->dst_map->users--;
		}
	}
	while (list != NULL) {
		struct future *future = future_of_copy(list);
		struct plan *plan = plan_of_copy(list);
		PyObject *src = NULL;
		PyObject *dst = NULL;

		if (future->pinned && plan == NULL) {
			src = owner_of(list->src_map);
			dst = owner_of(list->dst_map);
		}
		list = list->next;
		if (copy_has_failed(&future->copy) && future->state == FUTURE_PENDING &&
		    !(future->asked && (future->copy.flushed || future->copy.abandoned))) {
			replace(&future->error, future_failure(future, fatal));
		}
		future->pinned = 0;
		future->copy.plan = NULL;
		if (future->examined) {
			pending_add(channel, future);
		} else {
			future_conclude(future, fatal);
		}
		Py_XDECREF(src);
		Py_XDECREF(dst);
		Py_XDECREF((PyObject *)plan);
		Py_DECREF((PyObject *)future);
	}
}

/* Leave the cohort of a future that ends otherwise, so that the others do not wait for it. */
static void
future_leave_cohort(struct future *self, PyObject **fatal)
{
	struct cohort *cohort = self->extra != NULL ? self->extra->cohort : NULL;

	if (cohort != NULL) {
		self->extra->cohort = NULL;
		cohort_release(cohort, fatal);
	}
}

/* A reserved future is dropped by whoever was to start it. */
static void
future_desert(struct future *self)
{
	struct channel *channel = self->channel;
	PyObject *type, *value, *traceback;
	PyObject *fatal = NULL;

	pending_remove(self);
	PyErr_Fetch(&type, &value, &traceback);
	future_leave_cohort(self, &fatal);
	if (channel->num_pending == 0 && channel->want_idle && !is_forked(channel)) {
		wake(channel);
	}
	if (fatal != NULL) {
		raise_error(fatal);
		PyErr_WriteUnraisable(NULL);
	}
	PyErr_Restore(type, value, traceback);
}

static void
future_dealloc(PyObject *object)
{
	struct future *self = (struct future *)object;
	struct channel *channel = self->channel;

	PyObject_GC_UnTrack(object);
	if (self->link.next != NULL) {
		future_desert(self); /* first: what runs below must not find it on the list */
	}
	if (self->weakrefs != NULL) {
		PyObject_ClearWeakRefs(object);
	}
	if (self->unseen) {
		future_report_unseen(self);
	}
	if (self->extra != NULL) {
		Py_XDECREF(self->extra->tag);
		Py_XDECREF(self->extra->message);
		PyMem_Free(self->extra);
	}
	Py_XDECREF(self->error);
	Py_XDECREF(self->callback);
	Py_XDECREF(self->context);
	if (num_free_futures < FREE_FUTURES && !self->finalized) {
		free_futures[num_free_futures++] = self;
	} else {
		PyObject_GC_Del(self);
		Py_DECREF((PyObject *)future_type);
	}
	Py_DECREF((PyObject *)channel);
}

/* Everything that ended since last time, oldest first. */
static struct adma_copy *
channel_take(struct channel *self)
{
	struct adma_copy *list = self->deferred;
	struct adma_copy *done = self->native != NULL ? adma_channel_take_done(self->native) : NULL;

	if (list == NULL) {
		return done;
	}
	*self->deferred_end = done;
	self->deferred = NULL;
	self->deferred_end = &self->deferred;
	return list;
}

/* Have a copy that needs nothing more resolved in the next turn; takes a reference. */
static void
channel_defer(struct channel *self, struct future *future)
{
	self->inline_copies = 0;
	Py_INCREF((PyObject *)future);
	pending_add(self, future);
	future->copy.next = NULL;
	*self->deferred_end = &future->copy;
	self->deferred_end = &future->copy.next;
}

/* ---- CopyFuture: cancelling ---- */

/* The cohort of this turn; NULL if none can be had, and then the copy ends by itself. */
static struct cohort *
channel_cohort(struct channel *self)
{
	struct cohort *cohort = self->cohort;

	if (cohort != NULL) {
		return cohort;
	}
	cohort = PyMem_Calloc(1, sizeof(*cohort));
	if (cohort == NULL) {
		return NULL;
	}
	cohort->remaining = 1;
	/* Published first: scheduling may run Python that cancels as well. */
	self->cohort = cohort;
	if (call_soon_anywhere(self, self->settle_args) < 0) {
		PyErr_Clear();
		if (self->cohort == cohort) {
			self->cohort = NULL;
			cohort_release(cohort, NULL);
		}
		return NULL;
	}
	return self->cohort;
}

/* The search for the cause is over, or nobody waits for it any more. */
static void
future_conclude_examined(struct future *self, PyObject **fatal)
{
	struct channel *channel = self->channel;

	Py_INCREF((PyObject *)self);
	self->examined = 0;
	pending_remove(self);
	future_conclude(self, fatal);
	Py_DECREF((PyObject *)self);
	if (channel->num_pending == 0 && channel->want_idle && !is_forked(channel)) {
		wake(channel);
	}
}

/* Mark a pending copy as cancelled; what DOCA does not have yet is withdrawn. Nothing is raised. */
static void
future_ask(struct future *self, PyObject *message)
{
	struct channel *channel = self->channel;
	struct cohort *cohort;
	PyObject *answer;

	if (self->state != FUTURE_PENDING || self->asked || is_forked(channel)) {
		return;
	}
	self->asked = 1;
	if (message != NULL && message != Py_None && future_extra(self) != NULL) {
		self->extra->message = Py_NewRef(message);
	}
	if (self->started && channel->native != NULL) {
		adma_channel_cancel(channel->native, &self->copy);
	}
	cohort = channel_cohort(channel);
	if (cohort != NULL && self->state == FUTURE_PENDING && future_extra(self) != NULL) {
		cohort->remaining++;
		self->extra->cohort = cohort;
	}
	if (self->examined) {
		future_conclude_examined(self, NULL); /* the engine has let go long ago */
		return;
	}
	if (self->started) {
		wake(channel);
	}
	if (self->reserved || self->copy.segments > 0) {
		/* It is prepared, or the engine has part of it; how long may it take? */
		answer = PyObject_CallMethod((PyObject *)channel,
					     self->reserved ? "_on_unwanted" : "_on_held", "O",
					     (PyObject *)self);
		if (answer == NULL) {
			absorb_error(channel, "aiodocadma failed to watch a cancelled copy", NULL);
		}
		Py_XDECREF(answer);
	}
}

/* ---- Channel: refusing ---- */

/* Turn the answer of the hook into an error, should it have returned. */
static PyObject *
refused(PyObject *answer)
{
	if (answer != NULL) {
		Py_DECREF(answer);
		PyErr_SetString(PyExc_RuntimeError, "_refuse() must raise");
	}
	return NULL;
}

static PyObject *
refuse(struct channel *self, const char *reason)
{
	return refused(PyObject_CallMethod((PyObject *)self, "_refuse", "s", reason));
}

static PyObject *
refuse_side(struct channel *self, const char *reason, const char *side)
{
	return refused(PyObject_CallMethod((PyObject *)self, "_refuse", "ss", reason, side));
}

/* ---- CopyFuture: the protocol ---- */

/* What the caller gave as tag, or None; borrowed. */
static PyObject *
future_tag(const struct future *self)
{
	return self->extra != NULL && self->extra->tag != NULL ? self->extra->tag : Py_None;
}

static PyObject *
future_cancelled_error(struct future *self)
{
	PyObject *error;

	if (self->extra != NULL && self->extra->message != NULL) {
		error = PyObject_CallFunctionObjArgs(cancelled_error, self->extra->message, NULL);
	} else {
		error = PyObject_CallNoArgs(cancelled_error);
	}
	if (error != NULL && self->error != NULL && self->error != error &&
	    PyExceptionInstance_Check(error)) {
		PyException_SetContext(error, Py_NewRef(self->error));
	}
	return error;
}

/* How many bytes were copied. */
static PyObject *
future_bytes(struct future *self)
{
	struct channel *channel = self->channel;

	if (channel->result == NULL || channel->result_bytes != self->copy.length) {
		PyObject *bytes = PyLong_FromUnsignedLongLong(self->copy.length);

		if (bytes == NULL) {
			return NULL;
		}
		replace(&channel->result, bytes);
		channel->result_bytes = self->copy.length;
	}
	return Py_NewRef(channel->result);
}

/* The result, or the exception raised. */
static PyObject *
future_outcome(struct future *self)
{
	PyObject *error;

	self->retrieved = self->state != FUTURE_PENDING;
	switch ((enum future_state)self->state) {
	case FUTURE_RESULT:
		return future_bytes(self);
	case FUTURE_FAILED:
		self->unseen = 0;
		error = Py_XNewRef(self->error);
		if (error == NULL) {
			break; /* collected as garbage */
		}
		/* Else each raise would lengthen the traceback of the one before. */
		PyException_SetTraceback(error, Py_None);
		raise_error(error);
		return NULL;
	case FUTURE_CANCELLED:
		error = future_cancelled_error(self);
		if (error != NULL) {
			raise_error(error);
		}
		return NULL;
	case FUTURE_PENDING:
		break;
	}
	PyErr_SetString(invalid_state_error, "Result is not set.");
	return NULL;
}

PyDoc_STRVAR(future_result_doc,
	     "result($self, /)\n"
	     "--\n"
	     "\n"
	     "The number of bytes copied, if the copy has ended well.\n"
	     "\n"
	     "Returns:\n"
	     "    The length of the source.\n"
	     "\n"
	     "Raises:\n"
	     "    asyncio.InvalidStateError: If the copy has not ended.\n"
	     "    asyncio.CancelledError: If it was cancelled.\n"
	     "    DocaError: If DOCA refused or failed it; or whichever exception() gives.\n"
	     "\n"
	     "Source: asyncio.Future.\n");

static PyObject *
future_result(PyObject *self, PyObject *unused)
{
	(void)unused;
	return future_outcome((struct future *)self);
}

PyDoc_STRVAR(future_exception_doc, "exception($self, /)\n"
				   "--\n"
				   "\n"
				   "Why the copy failed.\n"
				   "\n"
				   "Returns:\n"
				   "    The exception, or None if the copy ended well.\n"
				   "\n"
				   "Raises:\n"
				   "    asyncio.InvalidStateError: If the copy has not ended.\n"
				   "    asyncio.CancelledError: If it was cancelled.\n"
				   "\n"
				   "Source: asyncio.Future.\n");

static PyObject *
future_exception(PyObject *object, PyObject *unused)
{
	struct future *self = (struct future *)object;

	(void)unused;
	self->retrieved = self->state != FUTURE_PENDING;
	switch ((enum future_state)self->state) {
	case FUTURE_RESULT:
		Py_RETURN_NONE;
	case FUTURE_FAILED:
		self->unseen = 0;
		return Py_NewRef(self->error != NULL ? self->error : Py_None);
	case FUTURE_CANCELLED:
		return future_outcome(self);
	case FUTURE_PENDING:
		break;
	}
	PyErr_SetString(invalid_state_error, "Exception is not set.");
	return NULL;
}

PyDoc_STRVAR(future_done_doc,
	     "done($self, /)\n"
	     "--\n"
	     "\n"
	     "Whether the copy has ended, in whichever way.\n"
	     "\n"
	     "Returns:\n"
	     "    True if the engine has let go of both sides and the outcome is known.\n"
	     "\n"
	     "Source: asyncio.Future.\n");

static PyObject *
future_done(PyObject *self, PyObject *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct future *)self)->state != FUTURE_PENDING);
}

PyDoc_STRVAR(future_cancelled_doc,
	     "cancelled($self, /)\n"
	     "--\n"
	     "\n"
	     "Whether the copy has ended as cancelled.\n"
	     "\n"
	     "Returns:\n"
	     "    False also while a cancelled copy waits for the engine to let go.\n"
	     "\n"
	     "Source: asyncio.Future.\n");

static PyObject *
future_cancelled(PyObject *self, PyObject *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct future *)self)->state == FUTURE_CANCELLED);
}

PyDoc_STRVAR(future_get_loop_doc, "get_loop($self, /)\n"
				  "--\n"
				  "\n"
				  "The event loop the copy belongs to.\n"
				  "\n"
				  "Returns:\n"
				  "    The loop that opened the DMA.\n"
				  "\n"
				  "Source: asyncio.Future.\n");

static PyObject *
future_get_loop(PyObject *self, PyObject *unused)
{
	(void)unused;
	return Py_NewRef(((struct future *)self)->channel->loop);
}

PyDoc_STRVAR(future_cancel_doc,
	     "cancel($self, /, msg=None)\n"
	     "--\n"
	     "\n"
	     "Ask for the copy to end early.\n"
	     "\n"
	     "DOCA cannot recall what it has: those segments run to their end, the others are "
	     "dropped, and only then the\n"
	     "future is done, as cancelled, whatever became of them. Copies cancelled in one turn "
	     "of the loop end together.\n"
	     "\n"
	     "Args:\n"
	     "    msg: Message of the CancelledError; the first call's is kept.\n"
	     "\n"
	     "Returns:\n"
	     "    False if the copy has ended; True if it will end as cancelled, also when asked "
	     "again.\n"
	     "\n"
	     "Raises:\n"
	     "    UsageError: In a forked child.\n"
	     "\n"
	     "Cancellation: This is it.\n"
	     "Source: asyncio.Future; doca_pe_progress (a submitted task has no cancel).\n");

static PyObject *
future_cancel(PyObject *object, PyObject *const *args, Py_ssize_t num_args, PyObject *names)
{
	struct future *self = (struct future *)object;
	PyObject *message = NULL;

	if (num_args > 1) {
		wrong_number("cancel", "at most 1 positional argument", num_args);
		return NULL;
	}
	if (num_args == 1) {
		message = args[0];
	}
	if (take_keyword("cancel", args, num_args, names, "msg", &message) < 0) {
		return NULL;
	}
	if (self->state != FUTURE_PENDING) {
		Py_RETURN_FALSE;
	}
	if (is_forked(self->channel)) {
		return refuse(self->channel, "forked");
	}
	future_ask(self, message);
	Py_RETURN_TRUE;
}

static int
append_callback(PyObject *list, PyObject *callback, PyObject *context)
{
	PyObject *entry =
		context != NULL ? PyTuple_Pack(2, callback, context) : PyTuple_Pack(1, callback);
	int code = entry != NULL ? PyList_Append(list, entry) : -1;

	Py_XDECREF(entry);
	return code;
}

/* Append a callback with its context, or a waiter with none. */
static int
future_add(struct future *self, PyObject *callback, PyObject *context)
{
	PyObject *list;

	if (self->callback == NULL) {
		self->callback = Py_NewRef(callback);
		self->context = Py_XNewRef(context);
		return 0;
	}
	if (self->several) {
		return append_callback(self->callback, callback, context);
	}
	list = PyList_New(0);
	if (list == NULL || append_callback(list, self->callback, self->context) < 0 ||
	    append_callback(list, callback, context) < 0) {
		Py_XDECREF(list);
		return -1;
	}
	self->several = 1;
	replace(&self->callback, list); /* the list holds what it held */
	replace(&self->context, NULL);
	return 0;
}

/* Remove a waiter, if it is still there. */
static void
future_forget(struct future *self, PyObject *waiter)
{
	Py_ssize_t i;

	if (self->callback == waiter) {
		Py_CLEAR(self->callback);
		return;
	}
	for (i = 0; self->several && i < PyList_Size(self->callback); i++) {
		if (PyTuple_GetItem(PyList_GetItem(self->callback, i), 0) == waiter) {
			if (PyList_SetSlice(self->callback, i, i + 1, NULL) < 0) {
				PyErr_Clear(); /* then it is completed with the others, which hurts nobody */
			}
			return;
		}
	}
}

PyDoc_STRVAR(
	future_add_done_callback_doc,
	"add_done_callback($self, fn, /, *, context=None)\n"
	"--\n"
	"\n"
	"Have fn(future) called by the loop when the copy has ended.\n"
	"\n"
	"Args:\n"
	"    fn: Called with the future, in the loop's next turn if the copy has ended already.\n"
	"    context: The contextvars.Context to run it in; a copy of the current one if None.\n"
	"\n"
	"Source: asyncio.Future.\n");

static PyObject *
future_add_done_callback(PyObject *object, PyObject *const *args, Py_ssize_t num_args,
			 PyObject *names)
{
	struct future *self = (struct future *)object;
	PyObject *context = NULL;
	int code;

	if (num_args != 1) {
		wrong_number("add_done_callback", "exactly 1 positional argument", num_args);
		return NULL;
	}
	if (take_keyword("add_done_callback", args, num_args, names, "context", &context) < 0) {
		return NULL;
	}
	if (context == NULL || context == Py_None) {
		context = PyObject_CallNoArgs(copy_context);
		if (context == NULL) {
			return NULL;
		}
	} else {
		Py_INCREF(context);
	}
	if (self->state == FUTURE_PENDING) {
		code = future_add(self, args[0], context);
	} else {
		PyObject *method = PyObject_GetAttr(self->channel->loop, name_call_soon);
		PyObject *positional = PyTuple_Pack(2, args[0], object);
		PyObject *keywords = PyDict_New();
		PyObject *handle = NULL;

		if (method != NULL && positional != NULL && keywords != NULL &&
		    PyDict_SetItem(keywords, name_context, context) == 0) {
			handle = PyObject_Call(method, positional, keywords);
		}
		Py_XDECREF(method);
		Py_XDECREF(positional);
		Py_XDECREF(keywords);
		code = handle == NULL ? -1 : 0;
		Py_XDECREF(handle);
	}
	Py_DECREF(context);
	if (code < 0) {
		return NULL;
	}
	Py_RETURN_NONE;
}

PyDoc_STRVAR(future_remove_done_callback_doc, "remove_done_callback($self, fn, /)\n"
					      "--\n"
					      "\n"
					      "Take back every add_done_callback(fn).\n"
					      "\n"
					      "Args:\n"
					      "    fn: Compared by ==.\n"
					      "\n"
					      "Returns:\n"
					      "    How many were removed.\n"
					      "\n"
					      "Source: asyncio.Future.\n");

static PyObject *
future_remove_done_callback(PyObject *object, PyObject *fn)
{
	struct future *self = (struct future *)object;
	Py_ssize_t removed = 0;
	Py_ssize_t i = 0;
	int equal;

	/* Comparing may run anything, so everything is looked up anew after it. */
	if (!self->several && self->callback != NULL && self->context != NULL) {
		PyObject *callback = Py_NewRef(self->callback);

		equal = PyObject_RichCompareBool(callback, fn, Py_EQ);
		if (equal > 0 && !self->several && self->callback == callback) {
			Py_CLEAR(self->callback);
			Py_CLEAR(self->context);
			removed++;
		}
		Py_DECREF(callback);
		if (equal < 0) {
			return NULL;
		}
	}
	while (self->several && i < PyList_Size(self->callback)) {
		PyObject *entry = Py_NewRef(PyList_GetItem(self->callback, i));

		equal = 0;
		if (PyTuple_Size(entry) > 1) {
			equal = PyObject_RichCompareBool(PyTuple_GetItem(entry, 0), fn, Py_EQ);
		}
		if (equal > 0 && self->several && i < PyList_Size(self->callback) &&
		    PyList_GetItem(self->callback, i) == entry) {
			equal = PyList_SetSlice(self->callback, i, i + 1, NULL);
			removed++;
		} else {
			i++;
		}
		Py_DECREF(entry);
		if (equal < 0) {
			return NULL;
		}
	}
	return PyLong_FromSsize_t(removed);
}

PyDoc_STRVAR(future_make_cancelled_error_doc,
	     "_make_cancelled_error($self, /)\n"
	     "--\n"
	     "\n"
	     "The CancelledError to raise; asyncio.gather() asks for it.\n");

static PyObject *
future_make_cancelled_error(PyObject *self, PyObject *unused)
{
	(void)unused;
	return future_cancelled_error((struct future *)self);
}

static PyObject *
future_get_cancel_message(PyObject *object, void *unused)
{
	struct future *self = (struct future *)object;

	(void)unused;
	return Py_NewRef(self->extra != NULL && self->extra->message != NULL ? self->extra->message
									     : Py_None);
}

static PyObject *
future_get_blocking(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct future *)self)->blocking);
}

static int
future_set_blocking(PyObject *self, PyObject *value, void *unused)
{
	int blocking;

	(void)unused;
	if (value == NULL) {
		PyErr_SetString(PyExc_AttributeError, "cannot delete attribute");
		return -1;
	}
	blocking = PyObject_IsTrue(value);
	if (blocking < 0) {
		return -1;
	}
	((struct future *)self)->blocking = blocking != 0;
	return 0;
}

static PyObject *
future_get_log_traceback(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct future *)self)->unseen);
}

static int
future_set_log_traceback(PyObject *self, PyObject *value, void *unused)
{
	int log;

	(void)unused;
	if (value == NULL) {
		PyErr_SetString(PyExc_AttributeError, "cannot delete attribute");
		return -1;
	}
	log = PyObject_IsTrue(value);
	if (log < 0) {
		return -1;
	}
	if (log) {
		PyErr_SetString(PyExc_ValueError, "_log_traceback can only be set to False");
		return -1;
	}
	((struct future *)self)->unseen = 0;
	return 0;
}

static PyObject *
future_get_retrieved(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct future *)self)->retrieved);
}

static PyObject *
future_get_admitted(PyObject *object, void *unused)
{
	struct future *self = (struct future *)object;

	(void)unused;
	return PyBool_FromLong(self->state != FUTURE_PENDING ||
			       (self->started && self->copy.submitted > 0) ||
			       self->copy.state == ADMA_COPY_ENDED);
}

static PyObject *
future_get_nbytes(PyObject *object, void *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLongLong(((struct future *)object)->copy.length);
}

static PyObject *
future_get_segments(PyObject *object, void *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLong(((struct future *)object)->copy.segments);
}

static PyObject *
future_get_stage(PyObject *object, void *unused)
{
	struct future *self = (struct future *)object;

	(void)unused;
	if (self->asked) {
		return PyUnicode_FromString("cancelling");
	}
	if (self->examined) {
		return PyUnicode_FromString("failing");
	}
	if (self->reserved) {
		return PyUnicode_FromString("registering");
	}
	return PyUnicode_FromString(self->copy.segments > 0 ? "in flight" : "waiting");
}

static PyObject *
future_get_failure(PyObject *object, void *unused)
{
	struct future *self = (struct future *)object;

	(void)unused;
	return Py_NewRef(self->state == FUTURE_FAILED ? self->error : Py_None);
}

static PyObject *
future_get_started_ns(PyObject *object, void *unused)
{
	int64_t now_ns = adma_clock_ns() & ~INT64_C(0xff);

	(void)unused;
	return PyLong_FromLongLong(now_ns - future_age_ns((struct future *)object, now_ns));
}

static PyObject *
future_get_waiters(PyObject *object, void *unused)
{
	struct future *self = (struct future *)object;
	PyObject *list = PyList_New(0);

	(void)unused;
	if (list == NULL ||
	    (self->callback != NULL && !self->several && PyList_Append(list, self->callback) < 0)) {
		goto failed;
	}
	for (Py_ssize_t i = 0; self->several && i < PyList_Size(self->callback); i++) {
		if (PyList_Append(list, PyTuple_GetItem(PyList_GetItem(self->callback, i), 0)) <
		    0) {
			goto failed;
		}
	}
	return list;

failed:
	Py_XDECREF(list);
	return NULL;
}

static PyObject *
future_get_bytes_done(PyObject *object, void *unused)
{
	struct future *self = (struct future *)object;

	(void)unused;
	return PyLong_FromUnsignedLongLong(self->state == FUTURE_RESULT ? self->copy.length
									: self->copy.completed);
}

static PyObject *
future_get_tag(PyObject *object, void *unused)
{
	struct future *self = (struct future *)object;

	(void)unused;
	return Py_NewRef(future_tag(self));
}

static PyObject *
future_repr(PyObject *object)
{
	struct future *self = (struct future *)object;
	unsigned long long length = self->copy.length;
	unsigned segments = self->copy.segments;
	PyObject *text = NULL;
	PyObject *tag;
	PyObject *whole;

	switch ((enum future_state)self->state) {
	case FUTURE_PENDING:
		text = PyUnicode_FromFormat("%s %llu bytes, %u segments in flight",
					    self->asked ? "cancelling" : "pending", length,
					    segments);
		break;
	case FUTURE_RESULT:
		text = PyUnicode_FromFormat("finished %llu bytes", length);
		break;
	case FUTURE_FAILED:
		text = PyUnicode_FromFormat("failed %llu bytes, exception=%R", length,
					    self->error != NULL ? self->error : Py_None);
		break;
	case FUTURE_CANCELLED:
		text = PyUnicode_FromFormat("cancelled %llu bytes", length);
		break;
	}
	if (text == NULL) {
		return NULL;
	}
	if (future_tag(self) != Py_None) {
		tag = PyObject_CallFunctionObjArgs(tag_in_words, future_tag(self), NULL);
		whole = tag != NULL ? PyUnicode_FromFormat("<CopyFuture %U, tag=%U>", text, tag)
				    : NULL;
		Py_XDECREF(tag);
	} else {
		whole = PyUnicode_FromFormat("<CopyFuture %U>", text);
	}
	Py_DECREF(text);
	return whole;
}

static PyObject *
future_await(PyObject *object)
{
	static struct awaiting *spare;
	bool done = ((struct future *)object)->state != FUTURE_PENDING;
	struct awaiting *it;

	if (done && spare != NULL && Py_REFCNT((PyObject *)spare) == 1) {
		/* It ends in its first step and nobody keeps it: always the same one will do. */
		replace((PyObject **)&spare->future, Py_NewRef(object));
		return Py_NewRef((PyObject *)spare);
	}
	if (num_free_awaitings > 0) {
		it = free_awaitings[--num_free_awaitings];
		PyObject_Init((PyObject *)it, awaiting_type);
	} else {
		it = PyObject_GC_New(struct awaiting, awaiting_type);
		if (it == NULL) {
			return NULL;
		}
	}
	it->future = (struct future *)Py_NewRef(object);
	it->waiter = NULL;
	it->stop = NULL;
	it->scope = NULL;
	PyObject_GC_Track(it);
	if (done && spare == NULL) {
		/* Not one that waits: kept here, it would keep its task and the channel alive. */
		spare = (struct awaiting *)Py_NewRef((PyObject *)it);
	}
	return (PyObject *)it;
}

PyDoc_STRVAR(future_doc, "A copy under way; awaiting it gives the number of bytes copied.\n"
			 "\n"
			 "It has started when you get it; awaiting is separate, by any number of "
			 "tasks. It is an asyncio future in all but\n"
			 "its base class: gather, wait, as_completed, shield, timeout and "
			 "TaskGroup take it. Only DMA makes it.\n"
			 "\n"
			 "Cancellation: A cancelled await cancels the copy, waits for the device "
			 "to let go of both sides, then raises.\n"
			 "Source: aiodocadma; asyncio.Future.\n");

static PyMethodDef future_methods[] = {
	{"result", future_result, METH_NOARGS, future_result_doc},
	{"exception", future_exception, METH_NOARGS, future_exception_doc},
	{"done", future_done, METH_NOARGS, future_done_doc},
	{"cancelled", future_cancelled, METH_NOARGS, future_cancelled_doc},
	{"get_loop", future_get_loop, METH_NOARGS, future_get_loop_doc},
	{"cancel", METHOD(future_cancel), METH_FASTCALL | METH_KEYWORDS, future_cancel_doc},
	{"add_done_callback", METHOD(future_add_done_callback), METH_FASTCALL | METH_KEYWORDS,
	 future_add_done_callback_doc},
	{"remove_done_callback", future_remove_done_callback, METH_O,
	 future_remove_done_callback_doc},
	{"_make_cancelled_error", future_make_cancelled_error, METH_NOARGS,
	 future_make_cancelled_error_doc},
	{"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, PyDoc_STR("See PEP 585.")},
	{NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(future_bytes_done_doc,
	     "Bytes the device has written so far; not necessarily from the start on.\n"
	     "\n"
	     "Source: aiodocadma.\n");

PyDoc_STRVAR(future_retrieved_doc,
	     "Whether somebody has awaited the copy since it ended, or called result() or "
	     "exception().\n"
	     "\n"
	     "Source: aiodocadma.\n");

PyDoc_STRVAR(future_tag_doc, "What the caller gave as tag, or None.\n"
			     "\n"
			     "Source: aiodocadma.\n");

static PyGetSetDef future_getset[] = {
	{"_asyncio_future_blocking", future_get_blocking, future_set_blocking, NULL, NULL},
	{"_log_traceback", future_get_log_traceback, future_set_log_traceback, NULL, NULL},
	{"_cancel_message", future_get_cancel_message, NULL, NULL, NULL},
	{"_admitted", future_get_admitted, NULL,
	 PyDoc_STR("Whether DOCA has, or had, part of the copy, or it ended."), NULL},
	{"_nbytes", future_get_nbytes, NULL, NULL, NULL},
	{"_segments", future_get_segments, NULL,
	 PyDoc_STR("Tasks of the copy that DOCA holds, or that wait for their replay."), NULL},
	{"_stage", future_get_stage, NULL, PyDoc_STR("What is waited for, in a word."), NULL},
	{"_failure", future_get_failure, NULL,
	 PyDoc_STR("The exception, or None; it does not count as retrieved."), NULL},
	{"_started_ns", future_get_started_ns, NULL,
	 PyDoc_STR("Since when it is pending, by CLOCK_MONOTONIC, to a turn of the loop."), NULL},
	{"_waiters", future_get_waiters, NULL,
	 PyDoc_STR("A new list of what awaits it: futures of tasks, callbacks."), NULL},
	{"bytes_done", future_get_bytes_done, NULL, future_bytes_done_doc, NULL},
	{"retrieved", future_get_retrieved, NULL, future_retrieved_doc, NULL},
	{"tag", future_get_tag, NULL, future_tag_doc, NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef future_members[] = {
	{"__weaklistoffset__", T_PYSSIZET, offsetof(struct future, weakrefs), READONLY, NULL},
	{NULL, 0, 0, 0, NULL},
};

static PyType_Slot future_slots[] = {
	{Py_tp_doc, (void *)future_doc},   {Py_tp_dealloc, future_dealloc},
	{Py_tp_finalize, future_finalize}, {Py_tp_traverse, future_traverse},
	{Py_tp_clear, future_clear},	   {Py_tp_repr, future_repr},
	{Py_tp_iter, future_await},	   {Py_am_await, future_await},
	{Py_tp_methods, future_methods},   {Py_tp_getset, future_getset},
	{Py_tp_members, future_members},   {0, NULL},
};

static PyType_Spec future_spec = {
	.name = "aiodocadma._fast.CopyFuture",
	.basicsize = sizeof(struct future),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = future_slots,
};

/* ---- awaiting ---- */

static int
awaiting_clear(PyObject *object)
{
	struct awaiting *self = (struct awaiting *)object;

	Py_CLEAR(self->future);
	Py_CLEAR(self->waiter);
	Py_CLEAR(self->stop);
	Py_CLEAR(self->scope);
	return 0;
}

static void
awaiting_dealloc(PyObject *object)
{
	struct awaiting *self = (struct awaiting *)object;

	PyObject_GC_UnTrack(object);
	if (self->waiter != NULL && self->future != NULL) {
		future_forget(self->future, self->waiter);
	}
	Py_XDECREF(self->waiter);
	Py_XDECREF((PyObject *)self->future);
	Py_XDECREF(self->stop);
	Py_XDECREF(self->scope);
	if (num_free_awaitings < FREE_AWAITINGS) {
		free_awaitings[num_free_awaitings++] = self;
	} else {
		PyObject_GC_Del(self);
	}
	Py_DECREF((PyObject *)awaiting_type);
}

static int
awaiting_traverse(PyObject *object, visitproc visit, void *arg)
{
	struct awaiting *self = (struct awaiting *)object;

	Py_VISIT(Py_TYPE(object));
	Py_VISIT(self->future);
	Py_VISIT(self->waiter);
	Py_VISIT(self->stop);
	Py_VISIT(self->scope);
	return 0;
}

/* Keep anyio from cancelling again in every turn while we wait. Trouble with it must not end the wait. */
static void
awaiting_shield(struct awaiting *self)
{
	PyObject *name, *anyio, *class, *keywords, *scope, *answer;

	name = PyUnicode_FromString("anyio");
	anyio = name != NULL ? PyImport_GetModule(name) : NULL;
	Py_XDECREF(name);
	if (anyio == NULL) {
		PyErr_Clear();
		return;
	}
	class = PyObject_GetAttrString(anyio, "CancelScope");
	keywords = Py_BuildValue("{s:O}", "shield", Py_True);
	scope = class != NULL && keywords != NULL ? PyObject_Call(class, empty_tuple, keywords)
						  : NULL;
	answer = scope != NULL ? PyObject_CallMethod(scope, "__enter__", NULL) : NULL;
	if (answer == NULL) {
		/* Not a task that anyio knows, or anyio half imported: then nothing of it cancels us either. */
		PyErr_Clear();
	} else {
		self->scope = Py_NewRef(scope);
	}
	Py_XDECREF(answer);
	Py_XDECREF(scope);
	Py_XDECREF(keywords);
	Py_XDECREF(class);
	Py_DECREF(anyio);
}

/* Leave anyio's scope; the current error, if any, stays. */
static void
awaiting_unshield(struct awaiting *self)
{
	PyObject *scope = self->scope;
	PyObject *type, *value, *traceback, *answer;

	if (scope == NULL) {
		return;
	}
	self->scope = NULL;
	PyErr_Fetch(&type, &value, &traceback);
	answer = PyObject_CallMethod(scope, "__exit__", "OOO", Py_None, Py_None, Py_None);
	if (answer == NULL) {
		/* The coroutine is being closed outside of its task: there is no scope to restore. */
		PyErr_Clear();
	}
	Py_XDECREF(answer);
	Py_DECREF(scope);
	PyErr_Restore(type, value, traceback);
}

static void
awaiting_drop_waiter(struct awaiting *self)
{
	PyObject *waiter = self->waiter;

	if (waiter != NULL) {
		self->waiter = NULL;
		future_forget(self->future, waiter);
		Py_DECREF(waiter);
	}
}

/* Whoever awaits cannot wait any longer: mark the copy, let go of everything. */
static void
awaiting_abort(struct awaiting *self)
{
	struct future *future = self->future;

	if (future == NULL) {
		return;
	}
	awaiting_drop_waiter(self);
	self->future = NULL;
	future_ask(future, NULL);
	awaiting_unshield(self);
	Py_CLEAR(self->stop);
	Py_DECREF((PyObject *)future);
}

/* What yielding a future asks of it; the short way past the attribute's look-up, where there is one. */
static inline int
waiter_block(PyObject *waiter)
{
	return asyncio_set_blocking != NULL
		       ? asyncio_set_blocking(asyncio_blocking, waiter, Py_True)
		       : PyObject_SetAttr(waiter, name_blocking, Py_True);
}

/* Yield a new waiter. */
static PySendResult
awaiting_suspend(struct awaiting *self, PyObject **result)
{
	struct future *future = self->future;
	PyObject *waiter;

	if (is_forked(future->channel)) {
		refuse(future->channel, "forked");
		return PYGEN_ERROR;
	}
	waiter = PyObject_Call(asyncio_future, empty_tuple, future->channel->loop_keyword);
	if (waiter == NULL) {
		return PYGEN_ERROR;
	}
	if (waiter_block(waiter) < 0 || future_add(future, waiter, NULL) < 0) {
		Py_DECREF(waiter);
		return PYGEN_ERROR;
	}
	self->waiter = Py_NewRef(waiter);
	*result = waiter;
	return PYGEN_NEXT;
}

/* The future is done: return its result or raise. */
static PySendResult
awaiting_finish(struct awaiting *self, PyObject **result)
{
	struct future *future = self->future;
	PyObject *stop = self->stop;

	self->future = NULL;
	if (stop != NULL) {
		self->stop = NULL;
		future->retrieved = 1;
		awaiting_unshield(self);
		if (future->lost && future->error != NULL) {
			/* It must be known that the memory is not quiescent. */
			future->unseen = 0;
			PyException_SetContext(future->error, stop);
			raise_error(Py_NewRef(future->error));
		} else {
			if (future->error != NULL && future->error != stop) {
				future->unseen = 0;
				PyException_SetContext(stop, Py_NewRef(future->error));
			}
			raise_error(stop);
		}
	} else {
		*result = future_outcome(future);
	}
	Py_DECREF((PyObject *)future);
	return *result != NULL ? PYGEN_RETURN : PYGEN_ERROR;
}

static PySendResult
awaiting_send(PyObject *object, PyObject *value, PyObject **result)
{
	struct awaiting *self = (struct awaiting *)object;
	PySendResult code;

	(void)value;
	*result = NULL;
	if (self->future == NULL) {
		*result = Py_NewRef(Py_None);
		return PYGEN_RETURN;
	}
	awaiting_drop_waiter(self);
	if (self->future->state != FUTURE_PENDING) {
		return awaiting_finish(self, result);
	}
	code = awaiting_suspend(self, result);
	if (code == PYGEN_ERROR) {
		/* Cannot wait: as if that had been thrown in. */
		PyObject *error = take_error();

		awaiting_abort(self);
		raise_error(error);
	}
	return code;
}

/*
 * StopIteration(value), raised. From 3.12 on `await` goes through tp_iternext although there is an am_send, and making
 * the exception is half of an await that does not suspend; so one is kept and used again whenever nobody else has it.
 */
static void
raise_stop(PyObject *value)
{
	static PyObject *kept;

	if (kept == NULL) {
		kept = PyObject_CallNoArgs(PyExc_StopIteration);
		if (kept == NULL) {
			return;
		}
	}
	if (Py_REFCNT(kept) > 1) {
		PyErr_SetObject(PyExc_StopIteration, value);
	} else if (PyObject_SetAttr(kept, name_value, value) == 0) {
		PyErr_Restore(Py_NewRef(PyExc_StopIteration), Py_NewRef(kept), NULL);
	}
}

/* The same as iteration has it: a return is StopIteration. */
static PyObject *
awaiting_next(PyObject *object)
{
	PyObject *result;

	switch (awaiting_send(object, Py_None, &result)) {
	case PYGEN_NEXT:
		return result;
	case PYGEN_RETURN:
		raise_stop(result);
		Py_DECREF(result);
		return NULL;
	case PYGEN_ERROR:
		break;
	}
	return NULL;
}

PyDoc_STRVAR(awaiting_send_doc, "send($self, value, /)\n"
				"--\n"
				"\n"
				"Resume; the value is ignored.\n");

static PyObject *
awaiting_send_method(PyObject *self, PyObject *value)
{
	(void)value;
	return awaiting_next(self);
}

/* An exception object from the arguments of throw(): (value) or (type, value, traceback). */
static PyObject *
thrown(PyObject *const *args, Py_ssize_t num_args)
{
	PyObject *type = args[0];
	PyObject *value = num_args > 1 && args[1] != Py_None ? args[1] : NULL;
	PyObject *traceback = num_args > 2 && args[2] != Py_None ? args[2] : NULL;
	PyObject *error;

	if (PyExceptionInstance_Check(type)) {
		if (value != NULL) {
			PyErr_SetString(PyExc_TypeError,
					"instance exception may not have a separate value");
			return NULL;
		}
		error = Py_NewRef(type);
	} else if (PyExceptionClass_Check(type)) {
		if (value != NULL && PyExceptionInstance_Check(value)) {
			error = Py_NewRef(value);
		} else {
			error = PyObject_CallFunctionObjArgs(type, value, NULL);
		}
	} else {
		PyErr_Format(PyExc_TypeError, "throw() takes an exception or its class, not %R",
			     (PyObject *)Py_TYPE(type));
		return NULL;
	}
	if (error != NULL && !PyExceptionInstance_Check(error)) {
		PyErr_Format(PyExc_TypeError, "calling %R gave %R, which is no exception", type,
			     error);
		Py_CLEAR(error);
	}
	if (error != NULL && traceback != NULL && PyException_SetTraceback(error, traceback) < 0) {
		PyErr_SetString(PyExc_TypeError,
				"throw() third argument must be a traceback object");
		Py_CLEAR(error);
	}
	return error;
}

/* The message a CancelledError carries; NULL if none. */
static PyObject *
message_of(PyObject *error)
{
	PyObject *message = NULL;
	PyObject *args = PyObject_GetAttrString(error, "args");

	if (args != NULL && PyTuple_Check(args) && PyTuple_Size(args) > 0) {
		message = Py_NewRef(PyTuple_GetItem(args, 0));
	}
	Py_XDECREF(args);
	PyErr_Clear();
	return message;
}

PyDoc_STRVAR(awaiting_throw_doc, "throw($self, value, /, *args)\n"
				 "--\n"
				 "\n"
				 "Throw into the await: a CancelledError cancels the copy and is "
				 "raised when it has ended, anything else at once.\n");

static PyObject *
awaiting_throw(PyObject *object, PyObject *const *args, Py_ssize_t num_args)
{
	struct awaiting *self = (struct awaiting *)object;
	struct future *future = self->future;
	PyObject *error, *message;
	bool again;

	if (num_args < 1 || num_args > 3) {
		wrong_number("throw", "1 to 3 arguments", num_args);
		return NULL;
	}
	error = thrown(args, num_args);
	if (error == NULL) {
		return NULL;
	}
	if (future == NULL || is_forked(future->channel) ||
	    !PyErr_GivenExceptionMatches(error, cancelled_error)) {
		awaiting_abort(self);
		raise_error(error);
		return NULL;
	}
	awaiting_drop_waiter(self);
	again = self->stop != NULL;
	/* The latest counts: one that comes while anyio's are shielded off is from somebody else. */
	replace(&self->stop, error);
	if (future->state == FUTURE_PENDING) {
		message = message_of(error);
		future_ask(future, message);
		Py_XDECREF(message);
		/*
		 * A scope of anyio repeats itself in the next turn. At the first cancel it is left alone: it keeps the
		 * task alive as long as it is entered, also when the loop is closed and the task abandoned.
		 */
		if (again && self->scope == NULL) {
			awaiting_shield(self);
		}
	}
	return awaiting_next(object);
}

PyDoc_STRVAR(awaiting_close_doc, "close($self, /)\n"
				 "--\n"
				 "\n"
				 "Stop waiting; a copy still under way is cancelled.\n");

static PyObject *
awaiting_close(PyObject *object, PyObject *unused)
{
	struct awaiting *self = (struct awaiting *)object;

	(void)unused;
	if (self->waiter != NULL) {
		awaiting_abort(self);
	} else {
		awaiting_unshield(self);
		Py_CLEAR(self->stop);
		Py_CLEAR(self->future);
	}
	Py_RETURN_NONE;
}

static PyMethodDef awaiting_methods[] = {
	{"send", awaiting_send_method, METH_O, awaiting_send_doc},
	{"throw", METHOD(awaiting_throw), METH_FASTCALL, awaiting_throw_doc},
	{"close", awaiting_close, METH_NOARGS, awaiting_close_doc},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot awaiting_slots[] = {
	{Py_tp_dealloc, awaiting_dealloc}, {Py_tp_traverse, awaiting_traverse},
	{Py_tp_clear, awaiting_clear},	   {Py_tp_iter, PyObject_SelfIter},
	{Py_tp_iternext, awaiting_next},   {Py_am_send, awaiting_send},
	{Py_tp_methods, awaiting_methods}, {0, NULL},
};

static PyType_Spec awaiting_spec = {
	.name = "aiodocadma._fast._CopyFutureIterator",
	.basicsize = sizeof(struct awaiting),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = awaiting_slots,
};

/* ---- Buffer ---- */

static inline struct adma_mmap *
buffer_map(const struct buffer *self)
{
	return self->base != NULL ? self->base->map : NULL;
}

static inline bool
buffer_is_closed(const struct buffer *self)
{
	struct adma_mmap *map = buffer_map(self);

	return map == NULL || map->closed;
}

/* Whose addresses these are; not of a closed one. */
static inline uint64_t
buffer_space(const struct buffer *self)
{
	return self->base->map->space;
}

/* Why a map without the permission to write cannot be a destination. */
static inline const char *
unwritable(const struct adma_mmap *map)
{
	return map->imported ? "remote_access" : "access";
}

static inline bool
buffer_is_writable(const struct buffer *self)
{
	struct adma_mmap *map = buffer_map(self);

	return map != NULL && (map->access & DST_WRITABLE) != 0;
}

/* Give the map back to the native channel, once; its struct is not ours afterwards. */
static void
buffer_retire(struct buffer *self)
{
	struct adma_mmap *map = self->map;
	struct channel *channel = self->channel;
	PyObject *type, *value, *traceback;

	self->map = NULL;
	if (map == NULL || is_forked(channel)) {
		return;
	}
	map->closed = 1;
	if (channel->native != NULL) {
		channel->turn_due = 1;
		if (adma_channel_retire(channel->native, map)) {
			PyErr_Fetch(&type, &value, &traceback);
			wake(channel); /* perhaps nobody copies any more */
			PyErr_Restore(type, value, traceback);
		}
	} else if (map->mmap == NULL) {
		adma_mmap_free(map); /* closing the channel has unregistered it */
	}
}

static PyObject *
buffer_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	allocfunc alloc;

	(void)args;
	(void)keywords;
	if (type == buffer_type) {
		PyErr_SetString(PyExc_TypeError,
				"cannot create 'Buffer' instances: slice a MemoryMap");
		return NULL;
	}
	alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	return alloc(type, 0);
}

static int
buffer_traverse(PyObject *object, visitproc visit, void *arg)
{
	struct buffer *self = (struct buffer *)object;

	Py_VISIT(Py_TYPE(object));
	if (self->base != self) {
		Py_VISIT(self->base);
	}
	Py_VISIT(self->channel);
	Py_VISIT(self->keep);
	return 0;
}

static void
buffer_dealloc(PyObject *object)
{
	struct buffer *self = (struct buffer *)object;
	PyTypeObject *type = Py_TYPE(object);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	PyObject_GC_UnTrack(object);
	/* Nobody uses or views the map: copies and views hold a Buffer, and slices hold their owner. */
	buffer_retire(self);
	if (self->base != self) {
		Py_XDECREF((PyObject *)self->base);
	}
	Py_XDECREF(self->keep);
	Py_XDECREF((PyObject *)self->channel);
	release(object);
	Py_DECREF((PyObject *)type);
}

static Py_ssize_t
buffer_length(PyObject *self)
{
	return (Py_ssize_t)((struct buffer *)self)->length;
}

static PyObject *
buffer_subscript(PyObject *object, PyObject *key)
{
	struct buffer *self = (struct buffer *)object;
	struct buffer *part;
	Py_ssize_t start, stop, step, length;

	if (!PySlice_Check(key)) {
		PyErr_Format(PyExc_TypeError,
			     "a Buffer is cut by a slice, not by %R: buffer[start:stop]",
			     (PyObject *)Py_TYPE(key));
		return NULL;
	}
	if (PySlice_Unpack(key, &start, &stop, &step) < 0) {
		return NULL;
	}
	if (step != 1) {
		PyErr_SetString(PyExc_ValueError,
				"a Buffer is contiguous: the step of a slice must be 1");
		return NULL;
	}
	if (self->base == NULL) {
		PyErr_SetString(PyExc_RuntimeError, "the map is not attached");
		return NULL;
	}
	length = PySlice_AdjustIndices((Py_ssize_t)self->length, &start, &stop, step);
	part = PyObject_GC_New(struct buffer, buffer_type);
	if (part == NULL) {
		return NULL;
	}
	part->base = (struct buffer *)Py_NewRef((PyObject *)self->base);
	part->channel = (struct channel *)Py_NewRef((PyObject *)self->channel);
	part->map = NULL;
	part->addr = self->addr + start;
	part->length = (uint64_t)length;
	part->keep = NULL;
	PyObject_GC_Track(part);
	return (PyObject *)part;
}

/* Export the buffer, whoever's memory it is. */
static int
buffer_fill(struct buffer *self, Py_buffer *view, int flags)
{
	if (buffer_is_closed(self) || is_forked(self->channel)) {
		view->obj = NULL;
		PyErr_SetString(PyExc_BufferError,
				buffer_is_closed(self)
					? "the memory map is closed"
					: "the memory map belongs to the parent of this process");
		return -1;
	}
	if (PyBuffer_FillInfo(view, (PyObject *)self, self->addr, (Py_ssize_t)self->length,
			      !buffer_is_writable(self), flags) < 0) {
		return -1;
	}
	self->base->map->views++;
	return 0;
}

static int
buffer_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
	struct buffer *self = (struct buffer *)object;

	if (!buffer_is_closed(self) && self->base->map->imported) {
		view->obj = NULL;
		PyErr_SetString(PyExc_BufferError,
				"the memory is a peer's: only the engine can reach it");
		return -1;
	}
	return buffer_fill(self, view, flags);
}

static void
buffer_releasebuffer(PyObject *object, Py_buffer *view)
{
	struct adma_mmap *map = buffer_map((struct buffer *)object);

	(void)view;
	if (map != NULL) {
		map->views--;
	}
}

static PyObject *
buffer_repr(PyObject *object)
{
	struct buffer *self = (struct buffer *)object;

	return PyUnicode_FromFormat(
		"<Buffer %llu bytes at %zd%s%s>", (unsigned long long)self->length,
		(Py_ssize_t)(self->base != NULL ? self->addr - self->base->addr : 0),
		buffer_is_writable(self) ? "" : " readonly",
		buffer_is_closed(self) ? " closed" : "");
}

static PyObject *
buffer_get_nbytes(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLongLong(((struct buffer *)self)->length);
}

static PyObject *
buffer_get_offset(PyObject *object, void *unused)
{
	struct buffer *self = (struct buffer *)object;

	(void)unused;
	return PyLong_FromSsize_t(self->base != NULL ? self->addr - self->base->addr : 0);
}

static PyObject *
buffer_get_readonly(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(!buffer_is_writable((struct buffer *)self));
}

static PyObject *
buffer_get_closed(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(buffer_is_closed((struct buffer *)self));
}

static PyObject *
buffer_get_imported(PyObject *object, void *unused)
{
	struct adma_mmap *map = buffer_map((struct buffer *)object);

	(void)unused;
	return PyBool_FromLong(map != NULL && map->imported);
}

static PyObject *
buffer_get_address(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromVoidPtr(((struct buffer *)self)->addr);
}

static PyObject *
buffer_get_space(PyObject *object, void *unused)
{
	struct adma_mmap *map = buffer_map((struct buffer *)object);

	(void)unused;
	return PyLong_FromUnsignedLongLong(map != NULL ? map->space : 0);
}

static PyObject *
buffer_get_map_address(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromVoidPtr(buffer_map((struct buffer *)self));
}

static PyObject *
buffer_get_users(PyObject *self, void *unused)
{
	struct adma_mmap *map = buffer_map((struct buffer *)self);

	(void)unused;
	return PyLong_FromUnsignedLong(map != NULL ? map->users : 0);
}

static PyObject *
buffer_get_views(PyObject *self, void *unused)
{
	struct adma_mmap *map = buffer_map((struct buffer *)self);

	(void)unused;
	return PyLong_FromUnsignedLong(map != NULL ? map->views : 0);
}

PyDoc_STRVAR(
	buffer_attach_doc,
	"_attach($self, map_address, channel, keep, /)\n"
	"--\n"
	"\n"
	"Become the owner of a struct adma_mmap; once.\n"
	"\n"
	"Args:\n"
	"    map_address: Of a registered map that was made for the channel.\n"
	"    channel: The Channel it was made for.\n"
	"    keep: An object to hold until the map is closed, for the memory's sake; or None.\n"
	"\n"
	"Source: aiodocadma.\n");

static PyObject *
buffer_attach(PyObject *object, PyObject *const *args, Py_ssize_t num_args)
{
	struct buffer *self = (struct buffer *)object;
	struct adma_mmap *map;

	if (num_args != 3) {
		wrong_number("_attach", "exactly 3 arguments", num_args);
		return NULL;
	}
	if (!PyObject_TypeCheck(args[1], channel_type)) {
		PyErr_SetString(PyExc_TypeError, "_attach() takes a Channel");
		return NULL;
	}
	map = PyLong_AsVoidPtr(args[0]);
	if (map == NULL) {
		if (!PyErr_Occurred()) {
			PyErr_SetString(PyExc_ValueError, "the map's address is 0");
		}
		return NULL;
	}
	if (self->base != NULL) {
		PyErr_SetString(PyExc_RuntimeError, "the map is attached already");
		return NULL;
	}
	self->base = self;
	map->owner = self;
	self->channel = (struct channel *)Py_NewRef(args[1]);
	self->map = map;
	self->addr = map->addr;
	self->length = map->length;
	self->keep = Py_NewRef(args[2]);
	Py_RETURN_NONE;
}

PyDoc_STRVAR(buffer_close_doc,
	     "_close($self, /)\n"
	     "--\n"
	     "\n"
	     "Refuse further use of the map and hand it back to its channel, unless it is in use.\n"
	     "\n"
	     "Returns:\n"
	     "    False if started copies or exported views still need the map, which then stays "
	     "open; else True.\n"
	     "\n"
	     "Source: aiodocadma.\n");

static PyObject *
buffer_close(PyObject *object, PyObject *unused)
{
	struct buffer *self = (struct buffer *)object;
	PyObject *keep;

	(void)unused;
	if (self->base != NULL && self->base != self) {
		PyErr_SetString(PyExc_TypeError,
				"a slice cannot be closed, only the map it was cut from");
		return NULL;
	}
	if (self->map == NULL) {
		Py_RETURN_TRUE;
	}
	if (self->map->users > 0 || self->map->views > 0) {
		Py_RETURN_FALSE;
	}
	buffer_retire(self);
	if (self->channel->native != NULL && !is_forked(self->channel)) {
		wake(self->channel);
	}
	keep = self->keep;
	self->keep = NULL;
	Py_XDECREF(keep);
	Py_RETURN_TRUE;
}

PyDoc_STRVAR(buffer_locked_doc,
	     "_locked($self, keep, /)\n"
	     "--\n"
	     "\n"
	     "The whole Buffer, with an object that lives as long as the result.\n"
	     "\n"
	     "Args:\n"
	     "    keep: For example an export of the memory's owner.\n"
	     "\n"
	     "Returns:\n"
	     "    A new Buffer.\n"
	     "\n"
	     "Source: aiodocadma.\n");

static PyObject *
buffer_locked(PyObject *object, PyObject *keep)
{
	PyObject *whole = PySlice_New(NULL, NULL, NULL);
	PyObject *part = whole != NULL ? buffer_subscript(object, whole) : NULL;

	Py_XDECREF(whole);
	if (part != NULL) {
		((struct buffer *)part)->keep = Py_NewRef(keep);
	}
	return part;
}

PyDoc_STRVAR(buffer_doc, "A range of registered memory: what copies read and write.\n"
			 "\n"
			 "Cut from a MemoryMap, or from another Buffer, by a slice; nothing is "
			 "copied and the slice keeps the map alive.\n"
			 "memoryview(buffer) sees the bytes.\n"
			 "\n"
			 "Source: aiodocadma; doca_buf, doca_mmap.\n");

static PyMethodDef buffer_methods[] = {
	{"_attach", METHOD(buffer_attach), METH_FASTCALL, buffer_attach_doc},
	{"_close", buffer_close, METH_NOARGS, buffer_close_doc},
	{"_locked", buffer_locked, METH_O, buffer_locked_doc},
	{"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS,
	 PyDoc_STR("Name the access in an annotation.")},
	{NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(buffer_nbytes_doc, "Length in bytes.\n"
				"\n"
				"Source: aiodocadma.\n");

PyDoc_STRVAR(buffer_address_doc, "Where the memory begins, in the address space it is of; for C "
				 "code, while the map is open.\n"
				 "\n"
				 "Source: doca_mmap_set_memrange.\n");

PyDoc_STRVAR(buffer_offset_doc, "Bytes from the start of the map.\n"
				"\n"
				"Source: aiodocadma.\n");

PyDoc_STRVAR(buffer_readonly_doc,
	     "Whether the device may not write it, so that it cannot be a destination.\n"
	     "\n"
	     "Source: doca_mmap_set_permissions.\n");

PyDoc_STRVAR(buffer_imported_doc, "Whether the memory is a peer's, which only the engine reaches.\n"
				  "\n"
				  "Source: doca_mmap_create_from_export.\n");

PyDoc_STRVAR(buffer_closed_doc, "Whether the map was closed, so that no copy can name it.\n"
				"\n"
				"Source: aiodocadma.\n");

static PyGetSetDef buffer_getset[] = {
	{"nbytes", buffer_get_nbytes, NULL, buffer_nbytes_doc, NULL},
	{"offset", buffer_get_offset, NULL, buffer_offset_doc, NULL},
	{"address", buffer_get_address, NULL, buffer_address_doc, NULL},
	{"readonly", buffer_get_readonly, NULL, buffer_readonly_doc, NULL},
	{"closed", buffer_get_closed, NULL, buffer_closed_doc, NULL},
	{"imported", buffer_get_imported, NULL, buffer_imported_doc, NULL},
	{"_space", buffer_get_space, NULL,
	 PyDoc_STR("Whose addresses these are: 0 for this process; 0 once closed."), NULL},
	{"_map_address", buffer_get_map_address, NULL,
	 PyDoc_STR("Of the struct adma_mmap; 0 once closed."), NULL},
	{"_users", buffer_get_users, NULL,
	 PyDoc_STR("Started copies that name the map and have not ended."), NULL},
	{"_views", buffer_get_views, NULL, PyDoc_STR("Exported views onto the map."), NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot buffer_slots[] = {
	{Py_tp_doc, (void *)buffer_doc},
	{Py_tp_new, buffer_new},
	{Py_tp_dealloc, buffer_dealloc},
	{Py_tp_traverse, buffer_traverse},
	{Py_tp_repr, buffer_repr},
	{Py_mp_length, buffer_length},
	{Py_mp_subscript, buffer_subscript},
	{Py_bf_getbuffer, buffer_getbuffer},
	{Py_bf_releasebuffer, buffer_releasebuffer},
	{Py_tp_methods, buffer_methods},
	{Py_tp_getset, buffer_getset},
	{0, NULL},
};

static PyType_Spec buffer_spec = {
	.name = "aiodocadma._fast.Buffer",
	.basicsize = sizeof(struct buffer),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
	.slots = buffer_slots,
};

/* ---- Channel ---- */

/* May this thread use the channel for new work? 0, or -1 with the error raised. */
static int
channel_check(struct channel *self)
{
	int here;

	if (self->native == NULL || self->closing) {
		refuse(self, "closed");
		return -1;
	}
	if (is_forked(self)) {
		refuse(self, "forked");
		return -1;
	}
	here = is_on_loop(self);
	if (here > 0) {
		return 0;
	}
	if (here == 0) {
		refuse(self, "loop");
	}
	return -1;
}

/* May these two be copied? Everything is checked before DOCA is asked. 0, or -1 with the error raised. */
static int
channel_check_sides(struct channel *self, struct buffer *src, struct buffer *dst)
{
	if (buffer_is_closed(dst)) {
		refuse_side(self, "map_closed", "dst");
		return -1;
	}
	if (buffer_is_closed(src)) {
		refuse_side(self, "map_closed", "src");
		return -1;
	}
	if (dst->channel != self) {
		refuse_side(self, "foreign", "dst");
		return -1;
	}
	if (src->channel != self) {
		refuse_side(self, "foreign", "src");
		return -1;
	}
	if (src->length > dst->length) {
		refused(PyObject_CallMethod((PyObject *)self, "_refuse", "sKK", "bounds",
					    (unsigned long long)src->length,
					    (unsigned long long)dst->length));
		return -1;
	}
	if ((dst->base->map->access & DST_WRITABLE) == 0) {
		refuse_side(self, unwritable(dst->base->map), "dst");
		return -1;
	}
	if ((uintptr_t)src->addr < (uintptr_t)dst->addr + src->length &&
	    (uintptr_t)dst->addr < (uintptr_t)src->addr + src->length &&
	    buffer_space(src) == buffer_space(dst)) {
		refuse(self, "overlap");
		return -1;
	}
	return 0;
}

static inline void
future_init_copy(struct future *self, struct buffer *src, struct buffer *dst)
{
	adma_copy_init(&self->copy, src->base->map, src->addr, dst->base->map, dst->addr,
		       src->length);
}

/* Pin both sides until the native end. */
static inline void
future_pin(struct future *self)
{
	self->pinned = 1;
	Py_INCREF(owner_of(self->copy.src_map));
	Py_INCREF(owner_of(self->copy.dst_map));
	self->copy.src_map->users++;
	self->copy.dst_map->users++;
}

/* Have a turn take care of a copy that is pending now. Should that fail, the copy is cancelled and the error stays. */
static int
channel_schedule_for(struct channel *self, struct future *future)
{
	PyObject *error;

	if (schedule(self) == 0) {
		return 0;
	}
	error = take_error();
	future_ask(future, NULL);
	wake(self);
	raise_error(error);
	return -1;
}

/* Is there room for one more waiting copy? 0, or -1 with the error raised. */
static int
channel_check_full(struct channel *self)
{
	if (self->max_waiting != 0 && adma_channel_num_waiting(self->native) >= self->max_waiting) {
		refuse(self, "full");
		return -1;
	}
	return 0;
}

/*
 * Since when a copy is pending: since its turn was scheduled. A look at the clock for each is worth its price only if
 * latencies are measured.
 */
static inline void
future_stamp(struct future *self)
{
	if (self->since_low == 0 && self->since_high == 0) {
		struct channel *channel = self->channel;

		future_set_since(self,
				 channel->latency != NULL ? adma_clock_ns() : channel->turn_ns);
	}
}

/*
 * A copy was finished at once. One in so many is timed, and the others count like it: two looks at the clock would cost a
 * fifth of such a copy.
 */
static void
channel_observe_at_once(struct channel *self, int64_t began_ns)
{
	if (began_ns != 0) {
		self->at_once_ns = (uint64_t)(adma_clock_ns() - began_ns);
	}
	self->untimed = (self->untimed + 1) % TIMED_AT_ONCE;
	adma_latency_observe(self->latency, self->at_once_ns);
}

/* Tell who wants to know that a copy has started; what that raises does not touch the copy. Steals the future. */
static PyObject *
channel_announce(struct channel *self, struct future *future)
{
	PyObject *fatal = NULL;
	PyObject *answer = PyObject_CallMethod((PyObject *)self, "_on_started", "O", future);

	if (answer == NULL) {
		absorb_error(self, "aiodocadma: a start callback failed", &fatal);
	}
	Py_XDECREF(answer);
	if (fatal != NULL) {
		raise_error(fatal);
		Py_DECREF((PyObject *)future);
		return NULL;
	}
	return (PyObject *)future;
}

static inline PyObject *
announced(struct channel *self, struct future *future)
{
	return self->want_starts ? channel_announce(self, future) : (PyObject *)future;
}

/* Return the future of a copy of nothing: done, unless others are due a turn of the loop. Steals it. */
static PyObject *
channel_finish_empty(struct channel *self, struct future *future)
{
	if (++self->inline_copies < INLINE_COPIES) {
		future->state = FUTURE_RESULT;
		return announced(self, future);
	}
	channel_defer(self, future);
	if (!self->scheduled && channel_schedule_for(self, future) < 0) {
		Py_DECREF((PyObject *)future);
		return NULL;
	}
	future_stamp(future);
	return announced(self, future);
}

PyDoc_STRVAR(channel_empty_doc, "_empty($self, tag, /)\n"
				"--\n"
				"\n"
				"The future of a copy of zero bytes, which needs no engine.\n"
				"\n"
				"Args:\n"
				"    tag: As for copy().\n"
				"\n"
				"Returns:\n"
				"    A CopyFuture of 0.\n"
				"\n"
				"Source: aiodocadma.\n");

static PyObject *
channel_empty(PyObject *object, PyObject *tag)
{
	struct channel *self = (struct channel *)object;
	struct future *future;

	if (channel_check(self) < 0) {
		return NULL;
	}
	future = future_new(self, 0, tag != Py_None ? tag : NULL);
	return future == NULL ? NULL : channel_finish_empty(self, future);
}

/* May a copy that starts now end before its future is returned? Only beside no other, and not for ever. */
static inline bool
channel_may_finish_alone(const struct channel *self)
{
	return self->started == 0 && self->inline_bytes <= INLINE_BYTES;
}

/* Start a copy that nothing else goes beside; true if it has ended. */
static inline bool
channel_start_alone(struct channel *self, struct future *future)
{
	bool timed = self->latency != NULL && self->untimed == 0;
	int64_t began_ns = timed ? adma_clock_ns() : 0;

	if (!adma_channel_start_alone(self->native, &future->copy)) {
		return false;
	}
	if (self->latency != NULL && !copy_has_failed(&future->copy)) {
		channel_observe_at_once(self, began_ns);
	}
	return true;
}

/* Return the future of a copy that ended as it was started: done, unless others are due a turn of the loop. Steals it. */
static inline PyObject *
channel_finish_alone(struct channel *self, struct future *future)
{
	PyObject *fatal = NULL;

	self->inline_bytes += future->copy.length;
	if (++self->inline_copies >= INLINE_COPIES) {
		channel_defer(self, future);
		if (!self->scheduled && channel_schedule_for(self, future) < 0) {
			goto refused;
		}
		future_stamp(future);
		return announced(self, future);
	}
	if (!copy_has_failed(&future->copy)) {
		future->state = FUTURE_RESULT;
	} else {
		future->error = future_failure(future, &fatal);
		if (fatal != NULL) {
			raise_error(fatal);
			goto refused;
		}
		if (future->examined) {
			pending_add(self, future);
		} else {
			future_end(future, FUTURE_FAILED, &fatal);
		}
	}
	/* A fault stops the context: the turn begins the restart. */
	if ((self->turn_due || copy_has_failed(&future->copy)) && schedule(self) < 0) {
		goto refused;
	}
	return announced(self, future);

refused:
	Py_DECREF((PyObject *)future);
	return NULL;
}

PyDoc_STRVAR(channel_copy_doc,
	     "copy($self, /, src, dst, *, tag=None)\n"
	     "--\n"
	     "\n"
	     "Start copying src into the start of dst; the future resolves when the engine has let "
	     "go of both.\n"
	     "\n"
	     "The copy has started when this returns; awaiting is separate. A copy that the engine "
	     "finishes at once comes back as\n"
	     "a future that is done. Copies in flight together have no order among them.\n"
	     "\n"
	     "Args:\n"
	     "    src: Bytes to read, any length; longer than the device limit is split. Must not "
	     "change until the future ends.\n"
	     "        A MemoryMap, a Buffer, a list of them, or any C-contiguous object with the "
	     "buffer protocol.\n"
	     "    dst: Where to write; at least as long as src, not overlapping it, writable by "
	     "the device.\n"
	     "    tag: Any object, to know the copy again by in errors and events.\n"
	     "\n"
	     "Returns:\n"
	     "    A CopyFuture of the number of bytes copied, always the length of src.\n"
	     "\n"
	     "Raises:\n"
	     "    ClosedError: If the DMA or the map of a side was closed.\n"
	     "    WrongLoopError: If called from another loop or thread than the DMA's.\n"
	     "    UsageError: In a forked child, or if a side belongs to another DMA.\n"
	     "    BoundsError: If dst is too short.\n"
	     "    AccessError: If dst is read-only.\n"
	     "    OverlapError: If src and dst overlap.\n"
	     "    QueueFullError: If max_waiting copies wait already.\n"
	     "    TypeError: If a side is nothing that can be copied.\n"
	     "    DocaError: From the future: DOCA refused or failed the task; the subclass tells "
	     "the code.\n"
	     "\n"
	     "Cancellation: An await that is cancelled waits for the device to let go of both "
	     "sides, then raises.\n"
	     "Source: doca_dma_task_memcpy_alloc_init, doca_task_submit; DOCA DMA guide.\n");

/* The arguments of copy(), in any form but two positional ones; borrowed, and NULL for an absent tag. */
static int
copy_arguments(PyObject *const *args, Py_ssize_t num_args, PyObject *names, PyObject *out[3])
{
	static const char *const known[] = {"src", "dst", "tag"};
	Py_ssize_t i, num_names = names == NULL ? 0 : PyTuple_Size(names);
	int k;

	if (num_args > 2) {
		return wrong_number("copy", "at most 2 positional arguments", num_args);
	}
	for (i = 0; i < num_args; i++) {
		out[i] = args[i];
	}
	for (i = 0; i < num_names; i++) {
		PyObject *name = PyTuple_GetItem(names, i);

		for (k = 0; k < 3 && PyUnicode_CompareWithASCIIString(name, known[k]) != 0; k++) {
		}
		if (k == 3) {
			PyErr_Format(PyExc_TypeError,
				     "copy() got an unexpected keyword argument %R", name);
			return -1;
		}
		if (out[k] != NULL) {
			PyErr_Format(PyExc_TypeError, "copy() got multiple values for argument %R",
				     name);
			return -1;
		}
		out[k] = args[num_args + i];
	}
	for (k = 0; k < 2; k++) {
		if (out[k] == NULL) {
			PyErr_Format(PyExc_TypeError, "copy() needs the argument '%s'", known[k]);
			return -1;
		}
	}
	return 0;
}

static PyObject *
channel_copy(PyObject *object, PyObject *const *args, Py_ssize_t num_args, PyObject *names)
{
	struct channel *self = (struct channel *)object;
	struct buffer *src, *dst;
	struct future *future;
	PyObject *given[3] = {NULL, NULL, NULL};
	PyObject *tag = NULL;
	uint64_t length;

	if (num_args != 2 || names != NULL) {
		if (copy_arguments(args, num_args, names, given) < 0) {
			return NULL;
		}
		args = given;
		tag = given[2] != Py_None ? given[2] : NULL;
	}
	if (!PyObject_TypeCheck(args[0], buffer_type) ||
	    !PyObject_TypeCheck(args[1], buffer_type)) {
		return PyObject_CallMethod(object, "_copy_objects", "OOO", args[0], args[1],
					   tag != NULL ? tag : Py_None);
	}
	src = (struct buffer *)args[0];
	dst = (struct buffer *)args[1];
	length = src->length;
	/* Before the checks: allocating may collect garbage, which may run anything. */
	future = future_new(self, length, tag);
	if (future == NULL) {
		return NULL;
	}
	if (channel_check(self) < 0 || channel_check_sides(self, src, dst) < 0) {
		goto refused;
	}
	if (length == 0) {
		return channel_finish_empty(self, future);
	}
	if (channel_check_full(self) < 0) {
		goto refused;
	}
	future_init_copy(future, src, dst);
	if (!channel_may_finish_alone(self)) {
		adma_channel_start(self->native, &future->copy);
	} else if (channel_start_alone(self, future)) {
		return channel_finish_alone(self, future);
	}
	self->started++;
	future->started = 1;
	future_pin(future);
	pending_add(self, future);
	Py_INCREF((PyObject *)future); /* the channel's, until the native end */
	if (!self->scheduled && channel_schedule_for(self, future) < 0) {
		goto refused;
	}
	future_stamp(future);
	return announced(self, future);

refused:
	Py_DECREF((PyObject *)future);
	return NULL;
}

/* Tell a drain that waits: nothing is pending any more. */
static void
channel_tell_idle(struct channel *self, PyObject **fatal)
{
	PyObject *answer;

	if (self->num_pending > 0 || !self->want_idle) {
		return;
	}
	answer = PyObject_CallMethod((PyObject *)self, "_on_idle", NULL);
	if (answer == NULL) {
		absorb_error(self, "aiodocadma failed when its last copy ended", fatal);
	}
	Py_XDECREF(answer);
}

/* Tell the subclass of something; it cannot fail the turn. */
static void
call_hook(struct channel *self, const char *hook, PyObject **fatal)
{
	PyObject *answer = PyObject_CallMethod((PyObject *)self, hook, NULL);

	if (answer == NULL) {
		absorb_error(self, "aiodocadma failed in a hook of its channel", fatal);
	}
	Py_XDECREF(answer);
}

/* One turn of the native channel, by the step given, and all that follows from it. */
static PyObject *
channel_step(struct channel *self, unsigned (*step)(struct adma_channel *))
{
	PyObject *fatal = NULL;
	unsigned asks = 0;

	if (is_forked(self)) {
		Py_RETURN_NONE;
	}
	self->inline_copies = 0;
	self->inline_bytes = 0;
	self->turn_due = 0;
	if (self->native != NULL) {
		asks = step(self->native);
	}
	channel_resolve(self, channel_take(self), &fatal);
	if ((asks & ADMA_TURN_AGAIN) != 0 || (self->turn_due && self->native != NULL)) {
		wake(self);
	}
	if ((asks & ADMA_TURN_FAULT) != 0 && !self->faulty) {
		self->faulty = 1;
		call_hook(self, "_on_fault", &fatal);
	}
	if ((asks & ADMA_TURN_CLEAR_FAILED) != 0 && self->native != NULL) {
		PyObject *answer = PyObject_CallMethod((PyObject *)self, "_on_clear_failed", "i",
						       (int)adma_channel_clear_code(self->native));

		if (answer == NULL) {
			absorb_error(self, "aiodocadma failed to report an error", &fatal);
		}
		Py_XDECREF(answer);
	}
	if ((asks & ADMA_TURN_PARKED) != 0) {
		self->faulty = 0;
		call_hook(self, "_on_parked", &fatal);
	}
	if ((asks & ADMA_TURN_ARMED) != 0 && !self->watched) {
		self->watched = 1;
		call_hook(self, "_on_armed", &fatal);
	}
	if (self->want_room) {
		call_hook(self, "_on_room", &fatal);
	}
	if (self->want_events && self->native != NULL) {
		uint64_t num_events = adma_channel_num_events(self->native);

		if (num_events != self->num_events) {
			self->num_events = num_events;
			call_hook(self, "_on_events", &fatal);
		}
	}
	channel_tell_idle(self, &fatal);
	return none_unless(fatal);
}

PyDoc_STRVAR(channel_turn_doc,
	     "_turn($self, /)\n"
	     "--\n"
	     "\n"
	     "One turn of the channel; the loop calls it when asked by call_soon.\n"
	     "\n"
	     "Raises:\n"
	     "    KeyboardInterrupt, SystemExit: If one came up, after all copies were resolved.\n"
	     "\n"
	     "Source: doca_pe_progress, doca_pe_request_notification.\n");

static PyObject *
channel_turn(PyObject *object, PyObject *unused)
{
	struct channel *self = (struct channel *)object;

	(void)unused;
	self->scheduled = 0;
	return channel_step(self, adma_channel_turn);
}

PyDoc_STRVAR(channel_readable_doc,
	     "_readable($self, /)\n"
	     "--\n"
	     "\n"
	     "The loop's reader of the progress engine's notification fd.\n"
	     "\n"
	     "Raises:\n"
	     "    KeyboardInterrupt, SystemExit: If one came up, after all copies were resolved.\n"
	     "\n"
	     "Source: doca_pe_clear_notification, doca_pe_progress.\n");

static PyObject *
channel_readable(PyObject *object, PyObject *unused)
{
	(void)unused;
	return channel_step((struct channel *)object, adma_channel_readable);
}

/* The turn in which the cohort's copies were cancelled is over. */
static void
channel_close_cohort(struct channel *self, PyObject **fatal)
{
	struct cohort *cohort = self->cohort;

	if (cohort != NULL) {
		self->cohort = NULL;
		cohort_release(cohort, fatal);
	}
}

PyDoc_STRVAR(channel_settle_doc,
	     "_settle($self, /)\n"
	     "--\n"
	     "\n"
	     "The turn of the loop in which copies were cancelled is over; the loop calls it.\n"
	     "\n"
	     "Source: aiodocadma.\n");

static PyObject *
channel_settle(PyObject *object, PyObject *unused)
{
	PyObject *fatal = NULL;

	(void)unused;
	channel_close_cohort((struct channel *)object, &fatal);
	return none_unless(fatal);
}

PyDoc_STRVAR(channel_attach_doc,
	     "_attach($self, channel_address, loop, /)\n"
	     "--\n"
	     "\n"
	     "Take over a struct adma_channel for the given loop; once.\n"
	     "\n"
	     "Args:\n"
	     "    channel_address: Of an open channel; it is not freed by this object.\n"
	     "    loop: The event loop it belongs to from now on.\n"
	     "\n"
	     "Source: aiodocadma.\n");

static PyObject *
channel_attach(PyObject *object, PyObject *const *args, Py_ssize_t num_args)
{
	struct channel *self = (struct channel *)object;
	struct adma_channel *native;
	PyObject *call_soon = NULL, *turn = NULL, *settle = NULL;
	PyObject *turn_args = NULL, *settle_args = NULL, *loop_keyword = NULL;

	if (num_args != 2) {
		wrong_number("_attach", "exactly 2 arguments", num_args);
		return NULL;
	}
	native = PyLong_AsVoidPtr(args[0]);
	if (native == NULL) {
		if (!PyErr_Occurred()) {
			PyErr_SetString(PyExc_ValueError, "the channel's address is 0");
		}
		return NULL;
	}
	if (self->loop != NULL) {
		PyErr_SetString(PyExc_RuntimeError, "the channel is attached already");
		return NULL;
	}
	call_soon = PyObject_GetAttr(args[1], name_call_soon);
	turn = PyObject_GetAttrString(object, "_turn");
	settle = PyObject_GetAttrString(object, "_settle");
	if (call_soon == NULL || turn == NULL || settle == NULL) {
		goto failed;
	}
	turn_args = PyTuple_Pack(1, turn);
	settle_args = PyTuple_Pack(1, settle);
	loop_keyword = Py_BuildValue("{s:O}", "loop", args[1]);
	if (turn_args == NULL || settle_args == NULL || loop_keyword == NULL) {
		goto failed;
	}
	Py_DECREF(turn);
	Py_DECREF(settle);
	self->native = native;
	self->latency = adma_channel_latency(native);
	self->loop = Py_NewRef(args[1]);
	self->call_soon = call_soon;
	self->turn_args = turn_args;
	self->settle_args = settle_args;
	self->loop_keyword = loop_keyword;
	self->generation = fork_generation;
	Py_RETURN_NONE;

failed:
	Py_XDECREF(call_soon);
	Py_XDECREF(turn);
	Py_XDECREF(settle);
	Py_XDECREF(turn_args);
	Py_XDECREF(settle_args);
	Py_XDECREF(loop_keyword);
	return NULL;
}

PyDoc_STRVAR(channel_detach_doc,
	     "_detach($self, /)\n"
	     "--\n"
	     "\n"
	     "Resolve what has ended and forget the struct adma_channel, which was closed or is "
	     "leaked. Idempotent.\n"
	     "\n"
	     "A copy that has not ended keeps its memory pinned for ever.\n"
	     "\n"
	     "Raises:\n"
	     "    KeyboardInterrupt, SystemExit: If one came up, after all copies were resolved.\n"
	     "\n"
	     "Source: aiodocadma.\n");

static PyObject *
channel_detach(PyObject *object, PyObject *unused)
{
	struct channel *self = (struct channel *)object;
	struct adma_copy *list;
	PyObject *fatal = NULL;

	(void)unused;
	self->closing = 1;
	if (is_forked(self)) {
		self->native = NULL;
		self->latency = NULL;
		Py_RETURN_NONE;
	}
	list = channel_take(self);
	self->native = NULL;
	self->latency = NULL;
	self->orphaned = 0; /* what has not ended by now never will, and must never be collected */
	channel_resolve(self, list, &fatal);
	channel_close_cohort(self, &fatal);
	channel_tell_idle(self, &fatal);
	/* Bound methods: without them a dropped channel goes at once. call_soon stays for the futures. */
	Py_CLEAR(self->turn_args);
	Py_CLEAR(self->settle_args);
	return none_unless(fatal);
}

PyDoc_STRVAR(
	channel_reserve_doc,
	"_reserve($self, length, tag, /)\n"
	"--\n"
	"\n"
	"A pending future for a copy to be started later, by _start_plan(), or ended by "
	"_fail().\n"
	"\n"
	"Args:\n"
	"    length: Bytes it will copy.\n"
	"    tag: As in copy().\n"
	"\n"
	"Returns:\n"
	"    A CopyFuture that counts as pending; who started the preparations must hold it.\n"
	"\n"
	"Raises:\n"
	"    ClosedError, WrongLoopError, UsageError: As in copy().\n"
	"\n"
	"Cancellation: Cancelled before _start_plan(), DOCA never sees it; it ends there or in "
	"_fail().\n"
	"Source: aiodocadma.\n");

static PyObject *
channel_reserve(PyObject *object, PyObject *const *args, Py_ssize_t num_args)
{
	struct channel *self = (struct channel *)object;
	struct future *future;
	unsigned long long length;

	if (num_args != 2) {
		wrong_number("_reserve", "exactly 2 arguments", num_args);
		return NULL;
	}
	length = PyLong_AsUnsignedLongLong(args[0]);
	if (length == (unsigned long long)-1 && PyErr_Occurred()) {
		return NULL;
	}
	if (channel_check(self) < 0) {
		return NULL;
	}
	future = future_new(self, length, args[1] == Py_None ? NULL : args[1]);
	if (future == NULL) {
		return NULL;
	}
	future->reserved = 1;
	future_set_since(future, adma_clock_ns());
	pending_add(self, future);
	return announced(self, future);
}

/* The future argument of _start_plan() and _fail(). */
static struct future *
reserved_argument(struct channel *self, PyObject *object)
{
	struct future *future = (struct future *)object;

	if (Py_TYPE(object) != future_type) {
		PyErr_Format(PyExc_TypeError, "a CopyFuture is needed, not %R",
			     (PyObject *)Py_TYPE(object));
		return NULL;
	}
	if (future->channel != self || !future->reserved) {
		PyErr_SetString(PyExc_RuntimeError,
				"the future is not a reserved one of this channel");
		return NULL;
	}
	return future;
}

/* A reserved future ends without DOCA. */
static PyObject *
channel_conclude_reserved(struct channel *self, struct future *future)
{
	PyObject *fatal = NULL;

	Py_INCREF((PyObject *)future);
	future->reserved = 0;
	pending_remove(future);
	future_conclude(future, &fatal);
	Py_DECREF((PyObject *)future);
	if (self->num_pending == 0 && self->want_idle) {
		wake(self);
	}
	return none_unless(fatal);
}

PyDoc_STRVAR(channel_fail_doc, "_fail($self, future, error, /)\n"
			       "--\n"
			       "\n"
			       "End a reserved future that will not be started.\n"
			       "\n"
			       "Args:\n"
			       "    future: From _reserve().\n"
			       "    error: The exception; only the context of the CancelledError "
			       "if the future was cancelled.\n"
			       "\n"
			       "Source: aiodocadma.\n");

static PyObject *
channel_fail(PyObject *object, PyObject *const *args, Py_ssize_t num_args)
{
	struct channel *self = (struct channel *)object;
	struct future *future;

	if (num_args != 2) {
		wrong_number("_fail", "exactly 2 arguments", num_args);
		return NULL;
	}
	future = reserved_argument(self, args[0]);
	if (future == NULL) {
		return NULL;
	}
	if (!PyExceptionInstance_Check(args[1])) {
		PyErr_SetString(PyExc_TypeError, "_fail() takes an exception");
		return NULL;
	}
	if (future->state == FUTURE_PENDING) {
		replace(&future->error, Py_NewRef(args[1]));
	}
	return channel_conclude_reserved(self, future);
}

PyDoc_STRVAR(
	channel_examine_doc,
	"_examine($self, future, /)\n"
	"--\n"
	"\n"
	"Keep a failed future pending until _conclude(), while the cause is looked for. Only "
	"inside _failure() and _many_failure(), for their future.\n"
	"\n"
	"Returns:\n"
	"    False if it was cancelled: nobody waits for the cause. If True, the caller must hold "
	"the future.\n"
	"\n"
	"Cancellation: Ends the future at once, as cancelled.\n"
	"Source: aiodocadma.\n");

static PyObject *
channel_examine(PyObject *object, PyObject *argument)
{
	struct channel *self = (struct channel *)object;
	struct future *future = self->asking;

	if (future == NULL || (PyObject *)future != argument) {
		PyErr_SetString(PyExc_RuntimeError, "not the future that is failing now");
		return NULL;
	}
	future->examined = future->state == FUTURE_PENDING && !future->asked;
	return PyBool_FromLong(future->examined);
}

PyDoc_STRVAR(channel_conclude_doc,
	     "_conclude($self, future, /)\n"
	     "--\n"
	     "\n"
	     "End a future of which _examine() was true, with the exception that the "
	     "hook gave; nothing if it was cancelled meanwhile.\n"
	     "\n"
	     "Source: aiodocadma.\n");

static PyObject *
channel_conclude(PyObject *object, PyObject *argument)
{
	struct future *future = (struct future *)argument;
	PyObject *fatal = NULL;

	if (Py_TYPE(argument) != future_type || future->channel != (struct channel *)object) {
		PyErr_SetString(PyExc_TypeError, "_conclude() takes a CopyFuture of this channel");
		return NULL;
	}
	if (future->examined) {
		future_conclude_examined(future, &fatal);
	}
	return none_unless(fatal);
}

/* ---- Plan: a copy of many pieces ---- */

/* So many pieces of columns are put together at a time. */
#define PIECES_AHEAD 32

/* One column of copy_many(): a value for each pair, or a first one and a step. */
struct column {
	int64_t start;
	int64_t step;
	int64_t *values; /* NULL: start + index * step */
	uint64_t signs;	 /* of the values, and of the room that is left behind them: bit 63 */
};

/*
 * What _plan_lists(), _plan_pairs() and _plan_offsets() make: checked, holding its Buffers, to be started once. It is
 * the copy's from the start to the native end.
 */
struct plan {
	PyObject_HEAD
	struct adma_plan base;
	struct channel *channel;
	uint64_t nbytes;
	Py_ssize_t num_buffers;
	struct buffer **buffers;   /* held; users of their maps while started */
	struct adma_piece *pieces; /* all of them, or room for those that are next in the columns */
	char *src;		   /* what the columns count from */
	char *dst;
	struct column src_offsets;
	struct column dst_offsets;
	struct column lengths;
	uint8_t used; /* started once */
};

static inline struct plan *
plan_of_copy(const struct adma_copy *copy)
{
	return copy->plan != NULL
		       ? (struct plan *)((char *)copy->plan - offsetof(struct plan, base))
		       : NULL;
}

static inline int64_t
column_at(const struct column *column, uint64_t index)
{
	return column->values != NULL
		       ? column->values[index]
		       : (int64_t)((uint64_t)column->start + index * (uint64_t)column->step);
}

static inline bool
is_constant(const struct column *column)
{
	return column->values == NULL && column->step == 0;
}

/* The next pieces of columns; their maps, and a length that all have, are there from the start. */
static void
load_columns(struct adma_plan *base, uint64_t index)
{
	struct plan *plan = (struct plan *)((char *)base - offsetof(struct plan, base));
	struct adma_piece *pieces = plan->pieces;
	uint64_t left = base->count - index;
	uint64_t num = left < PIECES_AHEAD ? left : PIECES_AHEAD;

	for (uint64_t i = 0; i < num; i++) {
		pieces[i].src = plan->src + column_at(&plan->src_offsets, index + i);
		pieces[i].dst = plan->dst + column_at(&plan->dst_offsets, index + i);
	}
	if (!is_constant(&plan->lengths)) {
		for (uint64_t i = 0; i < num; i++) {
			pieces[i].length = (uint64_t)column_at(&plan->lengths, index + i);
		}
	}
	base->first = index;
	base->num = num;
}

static int
plan_traverse(PyObject *object, visitproc visit, void *arg)
{
	struct plan *self = (struct plan *)object;

	Py_VISIT(Py_TYPE(object));
	Py_VISIT(self->channel);
	for (Py_ssize_t i = 0; i < self->num_buffers; i++) {
		Py_VISIT(self->buffers[i]);
	}
	return 0;
}

static void
plan_dealloc(PyObject *object)
{
	struct plan *self = (struct plan *)object;
	PyTypeObject *type = Py_TYPE(object);

	PyObject_GC_UnTrack(object);
	for (Py_ssize_t i = 0; i < self->num_buffers; i++) {
		Py_DECREF((PyObject *)self->buffers[i]);
	}
	adma_plan_finish(&self->base);
	PyMem_Free(self->buffers);
	PyMem_Free(self->pieces);
	PyMem_Free(self->src_offsets.values);
	PyMem_Free(self->dst_offsets.values);
	PyMem_Free(self->lengths.values);
	Py_XDECREF((PyObject *)self->channel);
	PyObject_GC_Del(object);
	Py_DECREF((PyObject *)type);
}

static struct plan *
plan_new(struct channel *channel, Py_ssize_t num_buffers)
{
	struct plan *self = PyObject_GC_New(struct plan, plan_type);

	if (self == NULL) {
		return NULL;
	}
	memset((char *)self + offsetof(struct plan, base), 0,
	       sizeof(*self) - offsetof(struct plan, base));
	self->channel = (struct channel *)Py_NewRef((PyObject *)channel);
	self->buffers =
		PyMem_Calloc(num_buffers > 0 ? (size_t)num_buffers : 1, sizeof(*self->buffers));
	PyObject_GC_Track((PyObject *)self);
	if (self->buffers == NULL) {
		PyErr_NoMemory();
		Py_CLEAR(self);
	}
	return self;
}

static PyObject *
plan_get_nbytes(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLongLong(((struct plan *)self)->nbytes);
}

static PyGetSetDef plan_getset[] = {
	{"nbytes", plan_get_nbytes, NULL, PyDoc_STR("Bytes of all pieces together."), NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot plan_slots[] = {
	{Py_tp_doc, (void *)"The checked pieces of one copy."},
	{Py_tp_dealloc, plan_dealloc},
	{Py_tp_traverse, plan_traverse},
	{Py_tp_getset, plan_getset},
	{0, NULL},
};

static PyType_Spec plan_spec = {
	.name = "aiodocadma._fast.Plan",
	.basicsize = sizeof(struct plan),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = plan_slots,
};

/* Say no to a piece; index < 0: to the copy as a whole. */
static int
refuse_piece(struct channel *self, const char *reason, const char *side, Py_ssize_t index)
{
	if (index < 0) {
		refuse_side(self, reason, side);
	} else {
		refused(PyObject_CallMethod((PyObject *)self, "_refuse", "ssn", reason, side,
					    index));
	}
	return -1;
}

/*
 * Take the items of a list that must be Buffers of this channel; dst ones writable. Errors have the index of the item,
 * unless it is the whole side. 0, or -1 with the error raised.
 */
static int
plan_take(struct plan *self, PyObject *items, const char *side, bool writable, bool whole)
{
	struct channel *channel = self->channel;
	Py_ssize_t num = PyList_Size(items);

	for (Py_ssize_t i = 0; i < num; i++) {
		struct buffer *buffer = (struct buffer *)PyList_GetItem(items, i);

		if (buffer == NULL || !PyObject_TypeCheck((PyObject *)buffer, buffer_type)) {
			PyErr_SetString(PyExc_TypeError, "a plan is made of Buffers");
			return -1;
		}
		if (buffer_is_closed(buffer)) {
			return refuse_piece(channel, "map_closed", side, whole ? -1 : i);
		}
		if (buffer->channel != channel) {
			return refuse_piece(channel, "foreign", side, whole ? -1 : i);
		}
		if (writable && (buffer->base->map->access & DST_WRITABLE) == 0) {
			return refuse_piece(channel, unwritable(buffer->base->map), side,
					    whole ? -1 : i);
		}
		self->buffers[self->num_buffers++] = (struct buffer *)Py_NewRef((PyObject *)buffer);
	}
	return 0;
}

static bool
ranges_overlap(const char *a, uint64_t a_length, const char *b, uint64_t b_length)
{
	return (uintptr_t)a < (uintptr_t)b + b_length && (uintptr_t)b < (uintptr_t)a + a_length;
}

/* Order by address space, then by address. */
static int
compare_places(const struct adma_mmap *a_map, const char *a, const struct adma_mmap *b_map,
	       const char *b)
{
	if (a_map->space != b_map->space) {
		return a_map->space < b_map->space ? -1 : 1;
	}
	return (uintptr_t)a<(uintptr_t)b ? -1 : (uintptr_t)a>(uintptr_t) b;
}

static int
compare_destinations(const void *a, const void *b)
{
	const struct adma_piece *x = a, *y = b;

	return compare_places(x->dst_map, x->dst, y->dst_map, y->dst);
}

/* Does any source, or another destination, overlap a destination? -1 without memory. */
static int
pieces_overlap(const struct adma_piece *pieces, uint64_t count)
{
	struct adma_piece *sorted = PyMem_Malloc((count > 0 ? count : 1) * sizeof(*sorted));
	int overlap = 0;

	if (sorted == NULL) {
		PyErr_NoMemory();
		return -1;
	}
	memcpy(sorted, pieces, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), compare_destinations);
	for (uint64_t i = 1; i < count && !overlap; i++) {
		overlap = sorted[i - 1].dst_map->space == sorted[i].dst_map->space &&
			  ranges_overlap(sorted[i - 1].dst, sorted[i - 1].length, sorted[i].dst,
					 sorted[i].length);
	}
	for (uint64_t i = 0; i < count && !overlap; i++) {
		/* The last destination that begins before the source ends, and, since none overlap, only that one. */
		uint64_t low = 0, high = count;

		while (low < high) {
			uint64_t middle = low + (high - low) / 2;

			if (compare_places(sorted[middle].dst_map, sorted[middle].dst,
					   pieces[i].src_map,
					   pieces[i].src + pieces[i].length) < 0) {
				low = middle + 1;
			} else {
				high = middle;
			}
		}
		overlap = low > 0 && sorted[low - 1].dst_map->space == pieces[i].src_map->space &&
			  ranges_overlap(pieces[i].src, pieces[i].length, sorted[low - 1].dst,
					 sorted[low - 1].length);
	}
	PyMem_Free(sorted);
	return overlap;
}

/* Pair the lists up: each piece ends where a source or a destination does. */
static void
plan_join_lists(struct plan *self, Py_ssize_t num_src, Py_ssize_t num_dst)
{
	uint64_t src_at = 0, dst_at = 0;
	Py_ssize_t s = 0, d = num_src;

	while (s < num_src && d < num_src + num_dst) {
		struct buffer *src = self->buffers[s], *dst = self->buffers[d];
		uint64_t left = src->length - src_at, room = dst->length - dst_at;
		uint64_t length = left < room ? left : room;

		if (length > 0) {
			self->pieces[self->base.count++] =
				(struct adma_piece){src->base->map, dst->base->map,
						    src->addr + src_at, dst->addr + dst_at, length};
			self->nbytes += length;
		}
		src_at += length;
		dst_at += length;
		if (src_at == src->length) {
			s++;
			src_at = 0;
		}
		if (dst_at == dst->length) {
			d++;
			dst_at = 0;
		}
	}
}

PyDoc_STRVAR(channel_plan_lists_doc,
	     "_plan_lists($self, srcs, dsts, /)\n"
	     "--\n"
	     "\n"
	     "Plan a copy of all sources, one after the other, into all destinations.\n"
	     "\n"
	     "Args:\n"
	     "    srcs: A list of Buffers.\n"
	     "    dsts: A list of Buffers.\n"
	     "\n"
	     "Returns:\n"
	     "    A Plan.\n"
	     "\n"
	     "Source: aiodocadma.\n");

static PyObject *
channel_plan_lists(PyObject *object, PyObject *const *args, Py_ssize_t num_args)
{
	struct channel *self = (struct channel *)object;
	struct plan *plan;
	Py_ssize_t num_src, num_dst;
	uint64_t src_bytes = 0, dst_bytes = 0;
	int overlap;

	if (num_args != 2 || !PyList_Check(args[0]) || !PyList_Check(args[1])) {
		PyErr_SetString(PyExc_TypeError, "_plan_lists() takes two lists");
		return NULL;
	}
	num_src = PyList_Size(args[0]);
	num_dst = PyList_Size(args[1]);
	plan = plan_new(self, num_src + num_dst);
	if (plan == NULL || channel_check(self) < 0 ||
	    plan_take(plan, args[0], "src", false, num_src == 1) < 0 ||
	    plan_take(plan, args[1], "dst", true, num_dst == 1) < 0) {
		goto failed;
	}
	for (Py_ssize_t i = 0; i < num_src + num_dst; i++) {
		*(i < num_src ? &src_bytes : &dst_bytes) += plan->buffers[i]->length;
	}
	if (src_bytes > dst_bytes) {
		refused(PyObject_CallMethod(object, "_refuse", "sKK", "bounds",
					    (unsigned long long)src_bytes,
					    (unsigned long long)dst_bytes));
		goto failed;
	}
	plan->pieces = PyMem_Malloc((size_t)(num_src + num_dst + 1) * sizeof(*plan->pieces));
	if (plan->pieces == NULL) {
		PyErr_NoMemory();
		goto failed;
	}
	plan->base.pieces = plan->pieces;
	plan_join_lists(plan, num_src, num_dst);
	plan->base.num = plan->base.count;
	overlap = pieces_overlap(plan->pieces, plan->base.count);
	if (overlap != 0) {
		if (overlap > 0) {
			refuse(self, "overlap");
		}
		goto failed;
	}
	return (PyObject *)plan;

failed:
	Py_XDECREF((PyObject *)plan);
	return NULL;
}

PyDoc_STRVAR(channel_plan_pairs_doc, "_plan_pairs($self, srcs, dsts, /)\n"
				     "--\n"
				     "\n"
				     "Plan a copy of each source into the destination at the same "
				     "place of its list; each stands for itself.\n"
				     "\n"
				     "Args:\n"
				     "    srcs: A list of Buffers.\n"
				     "    dsts: A list of as many Buffers.\n"
				     "\n"
				     "Returns:\n"
				     "    A Plan.\n"
				     "\n"
				     "Source: aiodocadma.\n");

static PyObject *
channel_plan_pairs(PyObject *object, PyObject *const *args, Py_ssize_t num_args)
{
	struct channel *self = (struct channel *)object;
	struct plan *plan;
	Py_ssize_t num;

	if (num_args != 2 || !PyList_Check(args[0]) || !PyList_Check(args[1]) ||
	    PyList_Size(args[0]) != PyList_Size(args[1])) {
		PyErr_SetString(PyExc_TypeError, "_plan_pairs() takes two lists of one length");
		return NULL;
	}
	num = PyList_Size(args[0]);
	plan = plan_new(self, 2 * num);
	if (plan == NULL || channel_check(self) < 0 ||
	    plan_take(plan, args[0], "src", false, false) < 0 ||
	    plan_take(plan, args[1], "dst", true, false) < 0) {
		goto failed;
	}
	plan->pieces = PyMem_Malloc((num > 0 ? (size_t)num : 1) * sizeof(*plan->pieces));
	if (plan->pieces == NULL) {
		PyErr_NoMemory();
		goto failed;
	}
	plan->base.pieces = plan->pieces;
	plan->base.independent = true;
	for (Py_ssize_t i = 0; i < num; i++) {
		struct buffer *src = plan->buffers[i], *dst = plan->buffers[num + i];

		if (src->length > dst->length) {
			refused(PyObject_CallMethod(object, "_refuse", "sKKn", "bounds",
						    (unsigned long long)src->length,
						    (unsigned long long)dst->length, i));
			goto failed;
		}
		if (ranges_overlap(src->addr, src->length, dst->addr, src->length) &&
		    buffer_space(src) == buffer_space(dst)) {
			refuse_piece(self, "overlap", "dst", i);
			goto failed;
		}
		plan->pieces[plan->base.count++] = (struct adma_piece){
			src->base->map, dst->base->map, src->addr, dst->addr, src->length};
		plan->nbytes += src->length;
	}
	plan->base.num = plan->base.count;
	return (PyObject *)plan;

failed:
	Py_XDECREF((PyObject *)plan);
	return NULL;
}

/* Copy a column, and see on the way whether its values are in order. */
static void
column_copy(struct column *column, const void *given, uint64_t count, uint64_t most)
{
	const char *restrict from = given; /* perhaps not aligned */
	int64_t *restrict to = column->values;
	uint64_t signs = 0;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t value;

		memcpy(&value, from + i * sizeof(value), sizeof(value));
		signs |= value | (most - value);
		to[i] = (int64_t)value;
	}
	column->signs = signs;
}

/*
 * Read a column: a (start, step) tuple, or a one-dimensional buffer of count int64, none of which should be below 0 or above
 * `most`. 0, or -1 with the error raised.
 */
static int
column_read(struct column *column, PyObject *given, uint64_t count, const char *name, uint64_t most)
{
	Py_buffer view;
	const char *format;

	if (PyTuple_Check(given)) {
		return PyArg_ParseTuple(given, "LL", &column->start, &column->step) ? 0 : -1;
	}
	if (PyObject_GetBuffer(given, &view, PyBUF_FORMAT | PyBUF_ND) < 0) {
		return -1;
	}
	format = view.format != NULL ? view.format : "B";
	format += strchr("@=<", format[0]) != NULL && format[0] != '\0';
	if (view.ndim != 1 || view.itemsize != 8 || format[0] == '\0' ||
	    strchr("qlQLn", format[0]) == NULL || format[1] != '\0') {
		PyErr_Format(PyExc_TypeError,
			     "%s must be one-dimensional and of int64, not of format '%s'", name,
			     view.format != NULL ? view.format : "B");
		goto failed;
	}
	if ((uint64_t)view.len / 8 != count) {
		PyErr_Format(PyExc_ValueError, "%s has %zd entries, but there are %llu pairs", name,
			     view.len / 8, (unsigned long long)count);
		goto failed;
	}
	/* A copy: what was checked must not change while the engine follows it. */
	column->values = PyMem_Malloc(count > 0 ? (size_t)view.len : 1);
	if (column->values == NULL) {
		PyErr_NoMemory();
		goto failed;
	}
	column_copy(column, view.buf, count, most);
	PyBuffer_Release(&view);
	return 0;

failed:
	PyBuffer_Release(&view);
	return -1;
}

/* Does a column that has a step go further than numbers do? */
static bool
is_endless(const struct column *column, uint64_t count)
{
	int64_t last;

	return count > INT64_MAX ||
	       __builtin_mul_overflow(column->step, (int64_t)(count - 1), &last) ||
	       __builtin_add_overflow(column->start, last, &last);
}

/*
 * Does a range of these columns leave a side of so many bytes? There is no branch for a pair: the signs of all numbers that
 * must not be negative are collected. None of them overflows unless one before it is negative already.
 */
static bool
columns_stray(const struct column *offsets, const struct column *lengths, uint64_t count,
	      uint64_t limit)
{
	uint64_t signs = limit | offsets->signs | lengths->signs, between = 1;

	if (is_constant(lengths) && offsets->values != NULL) {
		uint64_t length = (uint64_t)lengths->start;

		return (signs | length | (limit - length)) >> 63 != 0;
	}
	if (offsets->values == NULL && lengths->values == NULL && count > 2) {
		/* Both go straight from the first pair to the last, and there may be any number between. */
		if (is_endless(offsets, count) || is_endless(lengths, count)) {
			return true;
		}
		between = count - 1;
	}
	for (uint64_t i = 0; i < count; i += between) {
		uint64_t offset = (uint64_t)column_at(offsets, i);
		uint64_t length = (uint64_t)column_at(lengths, i), room = limit - length;

		signs |= offset | length | room | (room - offset);
	}
	return signs >> 63 != 0;
}

/* Are all pairs of columns in order, as a quick look shows? Counts their bytes if so. */
static bool
columns_fit(struct plan *self)
{
	const struct buffer *src = self->buffers[0], *dst = self->buffers[1];
	const struct column *lengths = &self->lengths;
	uint64_t count = self->base.count, most, nbytes = 0;

	if (__builtin_mul_overflow(count, src->length, &most) ||
	    (ranges_overlap(src->addr, src->length, dst->addr, dst->length) &&
	     buffer_space(src) == buffer_space(dst)) ||
	    columns_stray(&self->src_offsets, lengths, count, src->length) ||
	    columns_stray(&self->dst_offsets, lengths, count, dst->length)) {
		return false;
	}
	if (is_constant(lengths)) {
		nbytes = count * (uint64_t)lengths->start;
	} else {
		for (uint64_t i = 0; i < count; i++) {
			nbytes += (uint64_t)column_at(lengths, i);
		}
	}
	self->nbytes = nbytes;
	return true;
}

/* Check all pairs of columns. 0, or -1 with the error raised. */
static int
columns_check(struct plan *self)
{
	struct channel *channel = self->channel;
	struct buffer *src = self->buffers[0], *dst = self->buffers[1];

	if (columns_fit(self)) {
		return 0;
	}
	for (uint64_t i = 0; i < self->base.count; i++) {
		int64_t from = column_at(&self->src_offsets, i),
			to = column_at(&self->dst_offsets, i);
		int64_t length = column_at(&self->lengths, i);
		const char *side = NULL;

		if (length < 0 || from < 0 || (uint64_t)from > src->length ||
		    (uint64_t)length > src->length - (uint64_t)from) {
			side = "src";
		} else if (to < 0 || (uint64_t)to > dst->length ||
			   (uint64_t)length > dst->length - (uint64_t)to) {
			side = "dst";
		}
		if (side != NULL) {
			struct buffer *buffer = side[0] == 's' ? src : dst;

			refused(PyObject_CallMethod(
				(PyObject *)channel, "_refuse", "ssKLLK", "pair", side,
				(unsigned long long)i, (long long)(buffer == src ? from : to),
				(long long)length, (unsigned long long)buffer->length));
			return -1;
		}
		if (ranges_overlap(src->addr + from, (uint64_t)length, dst->addr + to,
				   (uint64_t)length) &&
		    buffer_space(src) == buffer_space(dst)) {
			return refuse_piece(channel, "overlap", "dst", (Py_ssize_t)i);
		}
		if (__builtin_add_overflow(self->nbytes, (uint64_t)length, &self->nbytes)) {
			PyErr_SetString(PyExc_OverflowError,
					"the lengths add up to more than 2**64 bytes");
			return -1;
		}
	}
	return 0;
}

PyDoc_STRVAR(channel_plan_offsets_doc,
	     "_plan_offsets($self, src, dst, count, src_offsets, dst_offsets, lengths, /)\n"
	     "--\n"
	     "\n"
	     "Plan copies between two Buffers at many offsets; each stands for itself.\n"
	     "\n"
	     "Args:\n"
	     "    src: A Buffer.\n"
	     "    dst: A Buffer.\n"
	     "    count: How many pairs.\n"
	     "    src_offsets: (start, step), or a buffer of count int64; it is copied.\n"
	     "    dst_offsets: The same.\n"
	     "    lengths: The same.\n"
	     "\n"
	     "Returns:\n"
	     "    A Plan.\n"
	     "\n"
	     "Source: aiodocadma.\n");

static PyObject *
channel_plan_offsets(PyObject *object, PyObject *const *args, Py_ssize_t num_args)
{
	struct channel *self = (struct channel *)object;
	struct plan *plan;
	unsigned long long count;
	uint64_t length;
	PyObject *srcs = NULL, *dsts = NULL;

	if (num_args != 6) {
		wrong_number("_plan_offsets", "exactly 6 arguments", num_args);
		return NULL;
	}
	count = PyLong_AsUnsignedLongLong(args[2]);
	if (count == (unsigned long long)-1 && PyErr_Occurred()) {
		return NULL;
	}
	plan = plan_new(self, 2);
	srcs = Py_BuildValue("[O]", args[0]);
	dsts = Py_BuildValue("[O]", args[1]);
	if (plan == NULL || srcs == NULL || dsts == NULL || channel_check(self) < 0 ||
	    plan_take(plan, srcs, "src", false, false) < 0 ||
	    plan_take(plan, dsts, "dst", true, false) < 0) {
		goto failed;
	}
	plan->src = plan->buffers[0]->addr;
	plan->dst = plan->buffers[1]->addr;
	plan->base.load = load_columns;
	plan->base.independent = true;
	plan->base.count = count;
	if (column_read(&plan->lengths, args[5], count, "lengths", INT64_MAX) < 0) {
		goto failed;
	}
	length = is_constant(&plan->lengths) ? (uint64_t)plan->lengths.start : 0;
	if (column_read(&plan->src_offsets, args[3], count, "src_offsets",
			plan->buffers[0]->length - length) < 0 ||
	    column_read(&plan->dst_offsets, args[4], count, "dst_offsets",
			plan->buffers[1]->length - length) < 0 ||
	    columns_check(plan) < 0) {
		goto failed;
	}
	plan->pieces = PyMem_Malloc(PIECES_AHEAD * sizeof(*plan->pieces));
	if (plan->pieces == NULL) {
		PyErr_NoMemory();
		goto failed;
	}
	for (size_t i = 0; i < PIECES_AHEAD; i++) {
		plan->pieces[i].src_map = plan->buffers[0]->base->map;
		plan->pieces[i].dst_map = plan->buffers[1]->base->map;
		plan->pieces[i].length = (uint64_t)plan->lengths.start;
	}
	plan->base.pieces = plan->pieces;
	Py_DECREF(srcs);
	Py_DECREF(dsts);
	return (PyObject *)plan;

failed:
	Py_XDECREF(srcs);
	Py_XDECREF(dsts);
	Py_XDECREF((PyObject *)plan);
	return NULL;
}

/* The engine has let go of all pieces. */
static void
plan_release_users(struct plan *self)
{
	for (Py_ssize_t i = 0; i < self->num_buffers; i++) {
		self->buffers[i]->base->map->users--;
	}
}

/* Make a reserved or fresh future's copy that of a plan; takes a reference to it. */
static void
future_init_plan(struct future *self, struct plan *plan)
{
	plan->used = 1;
	Py_INCREF((PyObject *)plan);
	adma_copy_init(&self->copy, NULL, NULL, NULL, NULL, plan->nbytes);
	self->copy.plan = &plan->base;
}

/* Pin what a plan's copy uses until the native end: the channel has it. */
static void
future_pin_plan(struct future *self)
{
	struct plan *plan = plan_of_copy(&self->copy);

	self->pinned = 1;
	for (Py_ssize_t i = 0; i < plan->num_buffers; i++) {
		plan->buffers[i]->base->map->users++;
	}
	self->started = 1;
	self->channel->started++;
	Py_INCREF((PyObject *)self); /* the channel's, until the native end */
}

/* May this plan be started now? 0, or -1 with the error raised. */
static int
plan_check(struct channel *self, PyObject *object)
{
	struct plan *plan = (struct plan *)object;

	if (Py_TYPE(object) != plan_type || plan->channel != self || plan->used ||
	    plan->nbytes == 0) {
		PyErr_SetString(PyExc_RuntimeError,
				"an unused Plan of this channel that copies something is needed");
		return -1;
	}
	if (channel_check(self) < 0) {
		return -1;
	}
	for (Py_ssize_t i = 0; i < plan->num_buffers; i++) {
		if (buffer_is_closed(plan->buffers[i])) {
			refuse_side(self, "map_closed", "a map of the copy");
			return -1;
		}
	}
	return 0;
}

/* As channel_finish_alone(), for the copy of a plan, which it lets go of. */
static PyObject *
channel_finish_plan_alone(struct channel *self, struct future *future)
{
	struct plan *plan = plan_of_copy(&future->copy);
	PyObject *result;

	Py_INCREF((PyObject *)future);
	result = channel_finish_alone(self, future);
	if (future->state != FUTURE_PENDING || future->examined || result == NULL) {
		future->copy.plan = NULL;
		Py_DECREF((PyObject *)plan);
	} /* else it is deferred, and the turn that ends it lets go */
	Py_DECREF((PyObject *)future);
	return result;
}

PyDoc_STRVAR(channel_copy_plan_doc, "_copy_plan($self, plan, tag, /)\n"
				    "--\n"
				    "\n"
				    "Start the copy of a plan.\n"
				    "\n"
				    "Args:\n"
				    "    plan: Not started before, of at least one byte.\n"
				    "    tag: As for copy().\n"
				    "\n"
				    "Returns:\n"
				    "    A CopyFuture of the bytes of all pieces.\n"
				    "\n"
				    "Source: aiodocadma.\n");

static PyObject *
channel_copy_plan(PyObject *object, PyObject *const *args, Py_ssize_t num_args)
{
	struct channel *self = (struct channel *)object;
	struct future *future;

	if (num_args != 2) {
		wrong_number("_copy_plan", "exactly 2 arguments", num_args);
		return NULL;
	}
	if (plan_check(self, args[0]) < 0 || channel_check_full(self) < 0) {
		return NULL;
	}
	future = future_new(self, ((struct plan *)args[0])->nbytes,
			    args[1] != Py_None ? args[1] : NULL);
	if (future == NULL) {
		return NULL;
	}
	future_init_plan(future, (struct plan *)args[0]);
	if (!channel_may_finish_alone(self)) {
		adma_channel_start(self->native, &future->copy);
	} else if (channel_start_alone(self, future)) {
		return channel_finish_plan_alone(self, future);
	}
	future_pin_plan(future);
	pending_add(self, future);
	if (!self->scheduled && channel_schedule_for(self, future) < 0) {
		Py_DECREF((PyObject *)future);
		return NULL;
	}
	future_stamp(future);
	return announced(self, future);
}

PyDoc_STRVAR(
	channel_start_plan_doc,
	"_start_plan($self, future, plan, /)\n"
	"--\n"
	"\n"
	"Start the copy of a plan for a reserved future. If it was cancelled meanwhile it ends so, "
	"and DOCA never sees it.\n"
	"\n"
	"Args:\n"
	"    future: From _reserve().\n"
	"    plan: Not started before, of at least one byte.\n"
	"\n"
	"Raises:\n"
	"    ClosedError, WrongLoopError, UsageError: As in copy(); the future is still reserved "
	"then.\n"
	"\n"
	"Source: aiodocadma.\n");

static PyObject *
channel_start_plan(PyObject *object, PyObject *const *args, Py_ssize_t num_args)
{
	struct channel *self = (struct channel *)object;
	struct future *future;

	if (num_args != 2) {
		wrong_number("_start_plan", "exactly 2 arguments", num_args);
		return NULL;
	}
	future = reserved_argument(self, args[0]);
	if (future == NULL) {
		return NULL;
	}
	if (future->asked || future->state != FUTURE_PENDING) {
		return channel_conclude_reserved(self, future);
	}
	if (plan_check(self, args[1]) < 0) {
		return NULL;
	}
	future->reserved = 0;
	future_init_plan(future, (struct plan *)args[1]);
	adma_channel_start(self->native, &future->copy);
	future_pin_plan(future);
	if (channel_schedule_for(self, future) < 0) {
		return NULL;
	}
	Py_RETURN_NONE;
}

PyDoc_STRVAR(
	channel_sides_doc,
	"_sides($self, future, index=0, /)\n"
	"--\n"
	"\n"
	"Where a failing copy reads and writes. Only inside _failure() and _many_failure(), for "
	"their future.\n"
	"\n"
	"Args:\n"
	"    future: The hook's.\n"
	"    index: Of the pair, for a copy of many.\n"
	"\n"
	"Returns:\n"
	"    (source address, source access, destination address, destination access, length, "
	"whether the source is a peer's, whether the destination is); "
	"access is the map's DOCA_ACCESS_FLAG_... bits. None for a copy of many pieces where it "
	"is not known which failed.\n"
	"\n"
	"Source: aiodocadma.\n");

static PyObject *
channel_sides(PyObject *object, PyObject *const *args, Py_ssize_t num_args)
{
	struct channel *self = (struct channel *)object;
	struct future *future = self->asking;
	unsigned long long index = 0;
	struct adma_piece piece;

	if (num_args < 1 || num_args > 2) {
		wrong_number("_sides", "1 or 2 arguments", num_args);
		return NULL;
	}
	if (num_args == 2) {
		index = PyLong_AsUnsignedLongLong(args[1]);
		if (index == (unsigned long long)-1 && PyErr_Occurred()) {
			return NULL;
		}
	}
	if (future == NULL || (PyObject *)future != args[0]) {
		PyErr_SetString(PyExc_RuntimeError, "not the future that is failing now");
		return NULL;
	}
	if (future->copy.plan == NULL) {
		const struct adma_copy *copy = &future->copy;

		piece = (struct adma_piece){copy->src_map, copy->dst_map, copy->src, copy->dst,
					    copy->length};
	} else if (num_args == 1 && future->copy.plan->count != 1) {
		Py_RETURN_NONE;
	} else if (index < future->copy.plan->count) {
		piece = *adma_plan_piece(future->copy.plan, index);
	} else {
		PyErr_SetString(PyExc_IndexError, "no such pair");
		return NULL;
	}
	return Py_BuildValue("(KIKIKOO)", (unsigned long long)(uintptr_t)piece.src,
			     (unsigned)piece.src_map->access,
			     (unsigned long long)(uintptr_t)piece.dst,
			     (unsigned)piece.dst_map->access, (unsigned long long)piece.length,
			     piece.src_map->imported ? Py_True : Py_False,
			     piece.dst_map->imported ? Py_True : Py_False);
}

PyDoc_STRVAR(channel_want_room_doc, "_want_room($self, wanted, /)\n"
				    "--\n"
				    "\n"
				    "Whether _on_room() is called after each turn.\n"
				    "\n"
				    "Source: aiodocadma.\n");

static PyObject *
channel_want_room(PyObject *object, PyObject *wanted)
{
	((struct channel *)object)->want_room = PyObject_IsTrue(wanted) > 0;
	Py_RETURN_NONE;
}

PyDoc_STRVAR(channel_want_starts_doc, "_want_starts($self, wanted, /)\n"
				      "--\n"
				      "\n"
				      "Whether _on_started() is called with each copy's future.\n"
				      "\n"
				      "Source: aiodocadma.\n");

static PyObject *
channel_want_starts(PyObject *object, PyObject *wanted)
{
	((struct channel *)object)->want_starts = PyObject_IsTrue(wanted) > 0;
	Py_RETURN_NONE;
}

PyDoc_STRVAR(channel_want_events_doc, "_want_events($self, wanted, /)\n"
				      "--\n"
				      "\n"
				      "Whether _on_events() is called after a turn in which events "
				      "were noted.\n"
				      "\n"
				      "Source: aiodocadma.\n");

static PyObject *
channel_want_events(PyObject *object, PyObject *wanted)
{
	((struct channel *)object)->want_events = PyObject_IsTrue(wanted) > 0;
	Py_RETURN_NONE;
}

PyDoc_STRVAR(channel_unwatch_doc, "_unwatch($self, /)\n"
				  "--\n"
				  "\n"
				  "The watch that _on_armed() began has ended: call it again when "
				  "the channel waits for the engine again.\n"
				  "\n"
				  "Source: aiodocadma.\n");

static PyObject *
channel_unwatch(PyObject *object, PyObject *unused)
{
	(void)unused;
	((struct channel *)object)->watched = 0;
	Py_RETURN_NONE;
}

PyDoc_STRVAR(channel_limit_waiting_doc,
	     "_limit_waiting($self, num, /)\n"
	     "--\n"
	     "\n"
	     "Refuse copies as 'full' while that many wait; 0 for no bound.\n"
	     "\n"
	     "Source: aiodocadma.\n");

static PyObject *
channel_limit_waiting(PyObject *object, PyObject *num)
{
	unsigned long long value = PyLong_AsUnsignedLongLong(num);

	if (value == (unsigned long long)-1 && PyErr_Occurred()) {
		return NULL;
	}
	((struct channel *)object)->max_waiting = value;
	Py_RETURN_NONE;
}

PyDoc_STRVAR(channel_futures_doc,
	     "_futures($self, /)\n"
	     "--\n"
	     "\n"
	     "The futures of this channel that have not reached their native end.\n"
	     "\n"
	     "Returns:\n"
	     "    A new list of CopyFuture, oldest first.\n"
	     "\n"
	     "Source: aiodocadma.\n");

static PyObject *
channel_futures(PyObject *object, PyObject *unused)
{
	struct channel *self = (struct channel *)object;
	PyObject *list = PyList_New(0);
	struct link *link;

	(void)unused;
	if (list == NULL) {
		return NULL;
	}
	for (link = self->pending.next; link != &self->pending; link = link->next) {
		if (PyList_Append(list, (PyObject *)future_of_link(link)) < 0) {
			Py_DECREF(list);
			return NULL;
		}
	}
	return list;
}

PyDoc_STRVAR(channel_orphan_doc, "_orphan($self, /)\n"
				 "--\n"
				 "\n"
				 "The loop was closed: pending copies no longer keep the channel "
				 "alive, so that it can be collected and finalised.\n"
				 "\n"
				 "Source: aiodocadma.\n");

static PyObject *
channel_orphan(PyObject *object, PyObject *unused)
{
	struct channel *self = (struct channel *)object;
	PyObject *fatal = NULL;
	PyObject *futures = channel_futures(object, unused);

	/* Nobody awaits copies that are to end together any more, and the collector does not see those held back. */
	channel_close_cohort(self, &fatal);
	for (Py_ssize_t i = 0; futures != NULL && i < PyList_Size(futures); i++) {
		future_leave_cohort((struct future *)PyList_GetItem(futures, i), &fatal);
	}
	Py_XDECREF(futures);
	PyErr_Clear(); /* without memory for the list */
	self->orphaned = 1;
	return none_unless(fatal);
}

PyDoc_STRVAR(
	channel_users_doc,
	"_users_of($self, buffer, /)\n"
	"--\n"
	"\n"
	"The futures of copies that use a Buffer's map and have not reached their native end.\n"
	"\n"
	"Args:\n"
	"    buffer: Of an open map.\n"
	"\n"
	"Returns:\n"
	"    A new list of CopyFuture, oldest first.\n"
	"\n"
	"Source: aiodocadma.\n");

static bool
future_uses(struct future *self, const struct adma_mmap *map)
{
	struct plan *plan = plan_of_copy(&self->copy);

	if (!self->pinned) {
		return false;
	}
	for (Py_ssize_t i = 0; plan != NULL && i < plan->num_buffers; i++) {
		if (plan->buffers[i]->base->map == map) {
			return true;
		}
	}
	return plan == NULL && (self->copy.src_map == map || self->copy.dst_map == map);
}

static PyObject *
channel_users_of(PyObject *object, PyObject *buffer)
{
	struct channel *self = (struct channel *)object;
	PyObject *list = PyList_New(0);
	struct link *link;

	if (list == NULL || !PyObject_TypeCheck(buffer, buffer_type)) {
		if (list != NULL) {
			PyErr_SetString(PyExc_TypeError, "_users_of() takes a Buffer");
		}
		Py_XDECREF(list);
		return NULL;
	}
	for (link = self->pending.next; link != &self->pending; link = link->next) {
		struct future *future = future_of_link(link);

		if (future_uses(future, buffer_map((struct buffer *)buffer)) &&
		    PyList_Append(list, (PyObject *)future) < 0) {
			Py_DECREF(list);
			return NULL;
		}
	}
	return list;
}

PyDoc_STRVAR(channel_give_up_doc,
	     "_give_up($self, future, error, /)\n"
	     "--\n"
	     "\n"
	     "End a future although the engine has not let go: the memory stays pinned until it "
	     "does, if ever.\n"
	     "\n"
	     "Args:\n"
	     "    future: A started one of this channel.\n"
	     "    error: What awaiting it raises, also if it was cancelled before.\n"
	     "\n"
	     "Returns:\n"
	     "    False if the future has ended or the engine has let go of its copy, else True.\n"
	     "\n"
	     "Source: aiodocadma.\n");

static PyObject *
channel_give_up(PyObject *object, PyObject *const *args, Py_ssize_t num_args)
{
	struct channel *self = (struct channel *)object;
	struct future *future;
	PyObject *fatal = NULL;

	if (num_args != 2) {
		wrong_number("_give_up", "exactly 2 arguments", num_args);
		return NULL;
	}
	future = (struct future *)args[0];
	if (Py_TYPE(args[0]) != future_type || !PyExceptionInstance_Check(args[1])) {
		PyErr_SetString(PyExc_TypeError, "_give_up() takes a CopyFuture and an exception");
		return NULL;
	}
	if (future->channel != self || future->reserved) {
		PyErr_SetString(PyExc_RuntimeError,
				"the future is not a started one of this channel");
		return NULL;
	}
	if (future->state != FUTURE_PENDING || future->link.next == NULL || future->examined) {
		/* Ended, or let go by the engine and only waiting for its cohort or its cause. */
		Py_RETURN_FALSE;
	}
	replace(&future->error, Py_NewRef(args[1]));
	future->lost = 1;
	future_end(future, FUTURE_FAILED, &fatal);
	future_leave_cohort(future, &fatal);
	if (fatal != NULL) {
		raise_error(fatal);
		return NULL;
	}
	Py_RETURN_TRUE;
}

PyDoc_STRVAR(channel_abandon_doc, "_abandon($self, /)\n"
				  "--\n"
				  "\n"
				  "End every copy of which DOCA holds nothing; they resolve as "
				  "abandoned in the loop's next turn.\n"
				  "\n"
				  "Source: aiodocadma.\n");

static PyObject *
channel_abandon(PyObject *object, PyObject *unused)
{
	struct channel *self = (struct channel *)object;

	(void)unused;
	if (self->native != NULL && !is_forked(self)) {
		adma_channel_abandon(self->native);
		wake(self);
	}
	Py_RETURN_NONE;
}

PyDoc_STRVAR(channel_close_begin_doc, "_close_begin($self, /)\n"
				      "--\n"
				      "\n"
				      "Refuse new copies from now on.\n"
				      "\n"
				      "Source: aiodocadma.\n");

static PyObject *
channel_close_begin(PyObject *self, PyObject *unused)
{
	(void)unused;
	((struct channel *)self)->closing = 1;
	Py_RETURN_NONE;
}

PyDoc_STRVAR(channel_want_idle_doc,
	     "_want_idle($self, wanted, /)\n"
	     "--\n"
	     "\n"
	     "Whether to call _on_idle() at the end of each turn after which nothing is pending.\n"
	     "\n"
	     "Source: aiodocadma.\n");

static PyObject *
channel_want_idle(PyObject *self, PyObject *wanted)
{
	int truth = PyObject_IsTrue(wanted);

	if (truth < 0) {
		return NULL;
	}
	((struct channel *)self)->want_idle = (uint8_t)truth;
	Py_RETURN_NONE;
}

PyDoc_STRVAR(channel_wake_doc, "_wake($self, /)\n"
			       "--\n"
			       "\n"
			       "Have a turn run soon; from any thread.\n"
			       "\n"
			       "Source: aiodocadma.\n");

static PyObject *
channel_wake(PyObject *object, PyObject *unused)
{
	struct channel *self = (struct channel *)object;

	(void)unused;
	if (self->native != NULL && !is_forked(self)) {
		wake(self);
	}
	Py_RETURN_NONE;
}

static PyObject *
channel_get_pending(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLongLong(((struct channel *)self)->num_pending);
}

static PyObject *
channel_get_scheduled(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct channel *)self)->scheduled);
}

static PyObject *
channel_get_forked(PyObject *object, void *unused)
{
	struct channel *self = (struct channel *)object;

	(void)unused;
	return PyBool_FromLong(self->loop != NULL && is_forked(self));
}

static PyObject *
channel_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	struct channel *self = (struct channel *)alloc(type, 0);

	(void)args;
	(void)keywords;
	if (self != NULL) {
		self->pending.next = &self->pending;
		self->pending.prev = &self->pending;
		self->deferred_end = &self->deferred;
	}
	return (PyObject *)self;
}

static int
channel_traverse(PyObject *object, visitproc visit, void *arg)
{
	struct channel *self = (struct channel *)object;

	Py_VISIT(Py_TYPE(object));
	Py_VISIT(self->loop);
	Py_VISIT(self->call_soon);
	Py_VISIT(self->turn_args);
	Py_VISIT(self->settle_args);
	Py_VISIT(self->loop_keyword);
	Py_VISIT(self->holder);
	if (self->holder != NULL && Py_REFCNT(self->holder) == 1) {
		/* 3.11's holder is no container, but has a reference to the loop; only ours keeps that one alive. */
		Py_VISIT(self->loop);
	}
	if (self->orphaned) {
		/* Nobody will ever collect these copies: they no longer keep the channel from being finalised. */
		for (struct link *link = self->pending.next; link != &self->pending;
		     link = link->next) {
			struct future *future = future_of_link(link);

			if (!future->reserved && !future->examined) {
				Py_VISIT(future);
			}
		}
	}
	return 0;
}

static int
channel_clear(PyObject *object)
{
	struct channel *self = (struct channel *)object;

	/* The loop and its call_soon stay: futures may still ask for them, and the loop breaks its cycles itself. */
	Py_CLEAR(self->turn_args);
	Py_CLEAR(self->settle_args);
	Py_CLEAR(self->holder);
	return 0;
}

static void
channel_dealloc(PyObject *object)
{
	struct channel *self = (struct channel *)object;
	PyTypeObject *type = Py_TYPE(object);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	PyObject_GC_UnTrack(object);
	/* No future is pending: each holds its channel. What is native is the subclass's to close or leak. */
	if (self->cohort != NULL) {
		PyMem_Free(self->cohort);
	}
	channel_clear(object);
	Py_XDECREF(self->result);
	Py_XDECREF(self->call_soon);
	Py_XDECREF(self->loop_keyword);
	Py_XDECREF(self->loop);
	release(object);
	Py_DECREF((PyObject *)type);
}

PyDoc_STRVAR(channel_doc, "The part of a DMA that starts copies and resolves their futures.\n"
			  "\n"
			  "Source: aiodocadma.\n");

static PyMethodDef channel_copy_method = {"copy", METHOD(channel_copy),
					  METH_FASTCALL | METH_KEYWORDS, channel_copy_doc};

/*
 * Give a new subclass a copy() of its own: CPython has a quick way to call a C method, but takes it only for objects of
 * the very type that the method was made for, not for those of a subclass.
 */
static PyObject *
channel_init_subclass(PyObject *type, PyObject *unused)
{
	PyObject *own = PyDescr_NewMethod((PyTypeObject *)type, &channel_copy_method);
	PyObject *found = PyObject_GetAttrString(type, "copy");
	int code = own != NULL && found != NULL ? 0 : -1;

	(void)unused;
	/* What a subclass, or one between, defines in Python stays. */
	if (code == 0 && Py_TYPE(found) == Py_TYPE(own)) {
		code = PyObject_SetAttrString(type, "copy", own);
	}
	Py_XDECREF(own);
	Py_XDECREF(found);
	if (code < 0) {
		return NULL;
	}
	Py_RETURN_NONE;
}

static PyMethodDef channel_methods[] = {
	{"copy", METHOD(channel_copy), METH_FASTCALL | METH_KEYWORDS, channel_copy_doc},
	{"__init_subclass__", channel_init_subclass, METH_NOARGS | METH_CLASS,
	 PyDoc_STR("Give a subclass a copy() of its own.")},
	{"_empty", channel_empty, METH_O, channel_empty_doc},
	{"_turn", channel_turn, METH_NOARGS, channel_turn_doc},
	{"_readable", channel_readable, METH_NOARGS, channel_readable_doc},
	{"_settle", channel_settle, METH_NOARGS, channel_settle_doc},
	{"_attach", METHOD(channel_attach), METH_FASTCALL, channel_attach_doc},
	{"_detach", channel_detach, METH_NOARGS, channel_detach_doc},
	{"_reserve", METHOD(channel_reserve), METH_FASTCALL, channel_reserve_doc},
	{"_fail", METHOD(channel_fail), METH_FASTCALL, channel_fail_doc},
	{"_plan_lists", METHOD(channel_plan_lists), METH_FASTCALL, channel_plan_lists_doc},
	{"_plan_pairs", METHOD(channel_plan_pairs), METH_FASTCALL, channel_plan_pairs_doc},
	{"_plan_offsets", METHOD(channel_plan_offsets), METH_FASTCALL, channel_plan_offsets_doc},
	{"_copy_plan", METHOD(channel_copy_plan), METH_FASTCALL, channel_copy_plan_doc},
	{"_start_plan", METHOD(channel_start_plan), METH_FASTCALL, channel_start_plan_doc},
	{"_want_room", channel_want_room, METH_O, channel_want_room_doc},
	{"_want_starts", channel_want_starts, METH_O, channel_want_starts_doc},
	{"_want_events", channel_want_events, METH_O, channel_want_events_doc},
	{"_unwatch", channel_unwatch, METH_NOARGS, channel_unwatch_doc},
	{"_limit_waiting", channel_limit_waiting, METH_O, channel_limit_waiting_doc},
	{"_orphan", channel_orphan, METH_NOARGS, channel_orphan_doc},
	{"_futures", channel_futures, METH_NOARGS, channel_futures_doc},
	{"_users_of", channel_users_of, METH_O, channel_users_doc},
	{"_give_up", METHOD(channel_give_up), METH_FASTCALL, channel_give_up_doc},
	{"_examine", channel_examine, METH_O, channel_examine_doc},
	{"_conclude", channel_conclude, METH_O, channel_conclude_doc},
	{"_sides", METHOD(channel_sides), METH_FASTCALL, channel_sides_doc},
	{"_abandon", channel_abandon, METH_NOARGS, channel_abandon_doc},
	{"_close_begin", channel_close_begin, METH_NOARGS, channel_close_begin_doc},
	{"_want_idle", channel_want_idle, METH_O, channel_want_idle_doc},
	{"_wake", channel_wake, METH_NOARGS, channel_wake_doc},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef channel_getset[] = {
	{"_pending", channel_get_pending, NULL,
	 PyDoc_STR("Copies, reserved ones included, before their native end."), NULL},
	{"_scheduled", channel_get_scheduled, NULL,
	 PyDoc_STR("Whether a turn is in the loop's queue."), NULL},
	{"_forked", channel_get_forked, NULL,
	 PyDoc_STR("Whether this process is a child of the one that attached."), NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot channel_slots[] = {
	{Py_tp_doc, (void *)channel_doc}, {Py_tp_new, channel_new},
	{Py_tp_dealloc, channel_dealloc}, {Py_tp_traverse, channel_traverse},
	{Py_tp_clear, channel_clear},	  {Py_tp_methods, channel_methods},
	{Py_tp_getset, channel_getset},	  {0, NULL},
};

static PyType_Spec channel_spec = {
	.name = "aiodocadma._fast.Channel",
	.basicsize = sizeof(struct channel),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
	.slots = channel_slots,
};

/* ---- Tensor ---- */

/*
 * Memory taken over from a DLPack capsule: the producer's until the deleter is called, which the last reference, a buffer
 * export included, does.
 */
struct tensor {
	PyObject_HEAD
	void *managed; /* a struct dl_managed, or dl_managed_versioned; NULL until it is ours */
	bool versioned;
	bool readonly;
	bool contiguous;
	char *addr;
	Py_ssize_t nbytes;
	Py_ssize_t itemsize;
	int32_t device_type;
	int32_t device_id;
	int ndim;
	Py_ssize_t *shape; /* then the strides, in bytes */
	char format[16];
};

static void
tensor_dealloc(PyObject *object)
{
	struct tensor *self = (struct tensor *)object;
	PyTypeObject *type = Py_TYPE(object);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	if (self->managed != NULL && self->versioned) {
		struct dl_managed_versioned *managed = self->managed;

		if (managed->deleter != NULL) {
			managed->deleter(managed);
		}
	} else if (self->managed != NULL) {
		struct dl_managed *managed = self->managed;

		if (managed->deleter != NULL) {
			managed->deleter(managed);
		}
	}
	PyMem_Free(self->shape);
	release(object);
	Py_DECREF((PyObject *)type);
}

static bool
tensor_is_on_host(const struct tensor *self)
{
	return self->device_type == DL_CPU || self->device_type == DL_CUDA_HOST ||
	       self->device_type == DL_ROCM_HOST;
}

/* The struct module's letter for an item, or bytes of its size. */
static void
tensor_set_format(struct tensor *self, const struct dl_tensor *given)
{
	static const char *const letters[] = {
		[DL_INT] = " bh i   q", [DL_UINT] = " BH I   Q", [DL_FLOAT] = "  e f   d"};
	Py_ssize_t size = self->itemsize;

	self->format[0] = ' ';
	self->format[1] = '\0';
	if (given->lanes == 1 && given->bits == 8 * size) {
		if (given->code <= DL_FLOAT && size <= 8) {
			self->format[0] = letters[given->code][size];
		} else if (given->code == DL_BOOL && size == 1) {
			self->format[0] = '?';
		}
	}
	if (self->format[0] == ' ') {
		PyOS_snprintf(self->format, sizeof(self->format), "%zds", size);
	}
}

/* Read shape and strides; 0, or -1 with the error raised. */
static int
tensor_set_layout(struct tensor *self, const struct dl_tensor *given, uint64_t flags)
{
	uint64_t bits = (uint64_t)given->bits * given->lanes;
	Py_ssize_t *strides;
	Py_ssize_t items = 1;

	if (given->ndim < 0 || given->ndim > 64 || bits == 0 ||
	    (given->ndim > 0 && given->shape == NULL)) {
		PyErr_SetString(PyExc_BufferError, "a DLPack tensor with an impossible layout");
		return -1;
	}
	self->ndim = given->ndim;
	self->shape = PyMem_Calloc(2 * (size_t)self->ndim + 2, sizeof(*self->shape));
	if (self->shape == NULL) {
		PyErr_NoMemory();
		return -1;
	}
	if ((flags & DL_SUBBYTE_PADDED) != 0 && bits < 8) {
		bits = 8;
	}
	self->itemsize = (Py_ssize_t)((bits + 7) / 8);
	self->contiguous = true;
	strides = self->shape + self->ndim;
	for (int i = self->ndim - 1; i >= 0; i--) {
		int64_t extent = given->shape[i];
		int64_t stride = given->strides != NULL ? given->strides[i] : items;

		if (extent < 0 || __builtin_mul_overflow(stride, self->itemsize, &strides[i])) {
			PyErr_SetString(PyExc_BufferError,
					"a DLPack tensor with an impossible layout");
			return -1;
		}
		self->shape[i] = extent;
		self->contiguous = self->contiguous && (extent <= 1 || stride == items);
		if (__builtin_mul_overflow(items, extent, &items)) {
			PyErr_SetString(PyExc_BufferError,
					"a DLPack tensor with an impossible layout");
			return -1;
		}
	}
	self->contiguous = self->contiguous || items == 0;
	if (__builtin_mul_overflow(items, self->itemsize, &self->nbytes)) {
		PyErr_SetString(PyExc_BufferError, "a DLPack tensor with an impossible layout");
		return -1;
	}
	if (bits % 8 != 0) {
		/* Items of less than a byte, packed: as bytes, which only a contiguous tensor can be. */
		if (!self->contiguous) {
			PyErr_SetString(PyExc_BufferError,
					"a DLPack tensor of packed items that is not contiguous");
			return -1;
		}
		self->itemsize = 1;
		self->nbytes = (Py_ssize_t)(((uint64_t)items * bits + 7) / 8);
		self->ndim = 1;
		self->shape[0] = self->nbytes;
		self->shape[1] = 1;
	}
	return 0;
}

PyDoc_STRVAR(tensor_of_doc, "_tensor(capsule, /)\n"
			    "--\n"
			    "\n"
			    "Take over the memory of a DLPack capsule.\n"
			    "\n"
			    "Args:\n"
			    "    capsule: What __dlpack__() gave; it is used up.\n"
			    "\n"
			    "Returns:\n"
			    "    A Tensor; memoryview() of it sees the memory if the CPU can.\n"
			    "\n"
			    "Source: DLPack, Python specification.\n");

static PyObject *
tensor_of(PyObject *module, PyObject *capsule)
{
	bool versioned = PyCapsule_IsValid(capsule, "dltensor_versioned");
	allocfunc alloc = (allocfunc)PyType_GetSlot(tensor_type, Py_tp_alloc);
	const struct dl_tensor *given;
	struct tensor *self;
	uint64_t flags = 0;
	void *managed;

	(void)module;
	managed = PyCapsule_GetPointer(capsule, versioned ? "dltensor_versioned" : "dltensor");
	if (managed == NULL) {
		return NULL;
	}
	if (versioned) {
		const struct dl_managed_versioned *head = managed;

		if (head->major > DL_MAJOR_VERSION) {
			/* The capsule's own destructor calls the deleter. */
			PyErr_Format(PyExc_BufferError, "DLPack version %u.%u is not known",
				     (unsigned)head->major, (unsigned)head->minor);
			return NULL;
		}
		flags = head->flags;
		given = &head->tensor;
	} else {
		given = &((const struct dl_managed *)managed)->tensor;
	}
	self = (struct tensor *)alloc(tensor_type, 0);
	if (self == NULL) {
		return NULL;
	}
	self->addr = (char *)given->data + given->byte_offset;
	self->device_type = given->device_type;
	self->device_id = given->device_id;
	/* What is written to a copy is lost. */
	self->readonly = (flags & (DL_READ_ONLY | DL_IS_COPIED)) != 0;
	if (tensor_set_layout(self, given, flags) < 0) {
		goto refused;
	}
	tensor_set_format(self, given);
	if (PyCapsule_SetName(capsule, versioned ? "used_dltensor_versioned" : "used_dltensor") <
	    0) {
		goto refused;
	}
	self->managed = managed;
	self->versioned = versioned;
	return (PyObject *)self;

refused:
	Py_DECREF((PyObject *)self);
	return NULL;
}

static int
tensor_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
	struct tensor *self = (struct tensor *)object;
	const char *problem = NULL;

	view->obj = NULL;
	if (!tensor_is_on_host(self)) {
		problem = "the tensor is in a device's memory";
	} else if (self->readonly && (flags & PyBUF_WRITABLE) == PyBUF_WRITABLE) {
		problem = "the tensor is read-only";
	} else if (!self->contiguous && (flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
		problem = "the tensor is not contiguous";
	}
	if (problem != NULL) {
		PyErr_SetString(PyExc_BufferError, problem);
		return -1;
	}
	*view = (Py_buffer){
		.buf = self->addr,
		.obj = Py_NewRef(object),
		.len = self->nbytes,
		.itemsize = self->itemsize,
		.readonly = self->readonly,
		.ndim = self->ndim,
		.format = (flags & PyBUF_FORMAT) == PyBUF_FORMAT ? self->format : NULL,
		.shape = (flags & PyBUF_ND) == PyBUF_ND ? self->shape : NULL,
		.strides =
			(flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->shape + self->ndim : NULL,
	};
	return 0;
}

static PyObject *
tensor_get_address(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromVoidPtr(((struct tensor *)self)->addr);
}

static PyObject *
tensor_get_nbytes(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromSsize_t(((struct tensor *)self)->nbytes);
}

static PyObject *
tensor_get_readonly(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct tensor *)self)->readonly);
}

static PyObject *
tensor_get_contiguous(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct tensor *)self)->contiguous);
}

static PyGetSetDef tensor_getset[] = {
	{"address", tensor_get_address, NULL, PyDoc_STR("Where the first item is."), NULL},
	{"nbytes", tensor_get_nbytes, NULL, PyDoc_STR("Bytes of all items."), NULL},
	{"readonly", tensor_get_readonly, NULL,
	 PyDoc_STR("Whether the producer's memory must not, or cannot, be written."), NULL},
	{"contiguous", tensor_get_contiguous, NULL, PyDoc_STR("Whether C-contiguous."), NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot tensor_slots[] = {
	{Py_tp_dealloc, tensor_dealloc},
	{Py_bf_getbuffer, tensor_getbuffer},
	{Py_tp_getset, tensor_getset},
	{0, NULL},
};

static PyType_Spec tensor_spec = {
	.name = "aiodocadma._fast.Tensor",
	.basicsize = sizeof(struct tensor),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = tensor_slots,
};

/* ---- installing ---- */

/* An attribute of a module, imported. */
static PyObject *
imported(const char *module_name, const char *name)
{
	PyObject *module = PyImport_ImportModule(module_name);
	PyObject *value = module != NULL ? PyObject_GetAttrString(module, name) : NULL;

	Py_XDECREF(module);
	return value;
}

PyDoc_STRVAR(address_doc, "_address(obj, /)\n"
			  "--\n"
			  "\n"
			  "Where an object's buffer begins, whatever its shape and strides.\n"
			  "\n"
			  "Source: PyObject_GetBuffer.\n");

static PyObject *
address(PyObject *module, PyObject *object)
{
	Py_buffer view;
	PyObject *answer;

	(void)module;
	if (PyObject_GetBuffer(object, &view, PyBUF_FULL_RO) < 0) {
		return NULL;
	}
	answer = PyLong_FromVoidPtr(view.buf);
	PyBuffer_Release(&view);
	return answer;
}

static const char export_name[] = "aiodocadma._fast.export";

static void
export_release(PyObject *capsule)
{
	Py_buffer *view = PyCapsule_GetPointer(capsule, export_name);

	PyBuffer_Release(view);
	PyMem_Free(view);
}

PyDoc_STRVAR(
	export_doc,
	"_export(obj, /)\n"
	"--\n"
	"\n"
	"Hold an export of an object's C-contiguous buffer for as long as the result lives; also "
	"of a peer's memory,\n"
	"which nobody can look at.\n"
	"\n"
	"The result is hidden from the garbage collector: found in a cycle, an exported "
	"memoryview is\n"
	"cleared before its export ends, and CPython then crashes.\n"
	"\n"
	"Source: PEP 3118.\n");

static PyObject *
export(PyObject *self, PyObject *obj)
{
	Py_buffer *view = PyMem_Malloc(sizeof(*view));
	PyObject *capsule;

	(void)self;
	if (view == NULL) {
		return PyErr_NoMemory();
	}
	if ((PyObject_TypeCheck(obj, buffer_type)
		     ? buffer_fill((struct buffer *)obj, view, PyBUF_FULL_RO)
		     : PyObject_GetBuffer(obj, view, PyBUF_FULL_RO)) < 0) {
		PyMem_Free(view);
		return NULL;
	}
	capsule = PyCapsule_New(view, export_name, export_release);
	if (capsule == NULL) {
		PyBuffer_Release(view);
		PyMem_Free(view);
	}
	return capsule;
}

static PyMethodDef functions[] = {
	{"_address", address, METH_O, address_doc},
	{"_export", export, METH_O, export_doc},
	{"_tensor", tensor_of, METH_O, tensor_of_doc},
	{NULL, NULL, 0, NULL},
};

/* Everything that the types use; what was made before a failure stays for the next try. */
static int
install(void)
{
	static bool watches_forks;
	PyObject *module;
	const struct {
		PyObject **place;
		const char *module;
		const char *name;
	} foreign[] = {
		{&asyncio_future, "asyncio", "Future"},
		{&asyncio_running_loop, "asyncio", "_get_running_loop"},
		{&cancelled_error, "asyncio", "CancelledError"},
		{&invalid_state_error, "asyncio", "InvalidStateError"},
		{&copy_context, "contextvars", "copy_context"},
		{&tag_in_words, "aiodocadma._tags", "in_words"},
	};
	const struct {
		PyObject **place;
		const char *text;
	} names[] = {
		{&name_blocking, "_asyncio_future_blocking"},
		{&name_call_soon, "call_soon"},
		{&name_context, "context"},
		{&name_running_loop, "__asyncio_running_event_loop__"},
		{&name_value, "value"},
	};
	const struct {
		PyTypeObject **place;
		PyType_Spec *spec;
		const char *name; /* in the module, or NULL */
	} types[] = {
		{&channel_type, &channel_spec, "Channel"},
		{&plan_type, &plan_spec, "Plan"},
		{&buffer_type, &buffer_spec, "Buffer"},
		{&future_type, &future_spec, "CopyFuture"},
		{&awaiting_type, &awaiting_spec, NULL},
		{&tensor_type, &tensor_spec, "Tensor"},
	};
	size_t i;

	if (!watches_forks) {
		if (pthread_atfork(NULL, NULL, after_fork_in_child) != 0) {
			PyErr_NoMemory();
			return -1;
		}
		watches_forks = true;
	}
	for (i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
		if (*foreign[i].place == NULL) {
			*foreign[i].place = imported(foreign[i].module, foreign[i].name);
			if (*foreign[i].place == NULL) {
				return -1;
			}
		}
	}
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (*names[i].place == NULL) {
			*names[i].place = PyUnicode_InternFromString(names[i].text);
			if (*names[i].place == NULL) {
				return -1;
			}
		}
	}
	if (asyncio_blocking == NULL) {
		asyncio_set_result = PyObject_GetAttrString(asyncio_future, "set_result");
		asyncio_blocking = PyObject_GetAttr(asyncio_future, name_blocking);
		if (asyncio_set_result == NULL || asyncio_blocking == NULL) {
			Py_CLEAR(asyncio_set_result);
			return -1;
		}
		asyncio_set_blocking =
			(descrsetfunc)PyType_GetSlot(Py_TYPE(asyncio_blocking), Py_tp_descr_set);
	}
	if (empty_tuple == NULL) {
		empty_tuple = PyTuple_New(0);
		if (empty_tuple == NULL) {
			return -1;
		}
	}
	module = PyImport_AddModule("aiodocadma._fast"); /* borrowed */
	if (module == NULL || PyModule_AddFunctions(module, functions) < 0) {
		return -1;
	}
	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (*types[i].place == NULL) {
			*types[i].place = (PyTypeObject *)PyType_FromSpec(types[i].spec);
			if (*types[i].place == NULL) {
				return -1;
			}
		}
		if (types[i].name != NULL &&
		    PyModule_AddObjectRef(module, types[i].name, (PyObject *)*types[i].place) < 0) {
			return -1;
		}
	}
	return 0;
}

int
adma_fast_install(void)
{
	PyGILState_STATE state = PyGILState_Ensure();
	int code = install();

	if (code < 0) {
		PyErr_WriteUnraisable(NULL);
	}
	PyGILState_Release(state);
	return code;
}
