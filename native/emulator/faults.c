/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults: make a call, or the completion of a task, fail by plan.
 *
 * A fault looks at each call of its operation: `skip` of them pass, then every `interval`-th is
 * hit, `count` times in all (0: for ever). The first fault of the list that hits decides; those
 * behind it do not see the call.
 */
#include "emu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum fault_kind {
	FAULT_FAIL,
	FAULT_CORRUPT,
	FAULT_HOLD,
	FAULT_LATE,
	FAULT_SUPPRESS,
	FAULT_SPURIOUS,
	FAULT_ACCEPTED,
};

/* Where a call looks for a fault. */
enum fault_place {
	AT_ENTRY,  /* of a call, or where a completion or notification is due */
	AT_ARM,	   /* of the notification */
	AT_RETURN, /* of a submit that has succeeded */
};

struct fault {
	struct fault *next;
	char op[64];
	enum fault_kind kind;
	doca_error_t status;
	bool fatal;
	uint64_t skip;
	uint64_t interval;
	uint64_t count; /* left; with `endless` not counted down */
	bool endless;
	uint64_t seen; /* calls after those skipped */
	uint64_t src;  /* completion only: tasks that read from this address first; 0: all */
};

static struct fault *faults; /* emu_lock */

_Atomic uint32_t emu_flags = EMU_FLAG_UNINITIALISED;
_Atomic uint32_t emu_special;

/* Whether a fault hits this call, counting the call; emu_lock is held. */
static bool
hits(struct fault *fault)
{
	if (!fault->endless && fault->count == 0) {
		return false;
	}
	if (fault->skip != 0) {
		fault->skip--;
		return false;
	}
	if (fault->seen++ % fault->interval != 0) {
		return false;
	}
	if (!fault->endless) {
		fault->count--;
	}
	emu_add(&emu_stats.faults, 1);
	return true;
}

static enum fault_place
place_of(const struct fault *fault)
{
	switch (fault->kind) {
	case FAULT_SPURIOUS:
		return AT_ARM;
	case FAULT_ACCEPTED:
		return AT_RETURN;
	default:
		return AT_ENTRY;
	}
}

/* Find the fault that hits a call of op here; for a completion that of a task that reads from src. */
static bool
find(const char *op, enum fault_place place, uint64_t src, struct fault *hit)
{
	bool found = false;

	pthread_mutex_lock(&emu_lock);
	for (struct fault *fault = faults; fault != NULL && !found; fault = fault->next) {
		if (strcmp(fault->op, op) == 0 && place_of(fault) == place &&
		    (fault->src == 0 || fault->src == src) && hits(fault)) {
			*hit = *fault;
			found = true;
		}
	}
	pthread_mutex_unlock(&emu_lock);
	return found;
}

/* The part of EMU_ENTER that is rarely needed: initialise, or look for a fault. */
doca_error_t
emu_enter_slow(const char *op)
{
	struct fault hit;

	emu_init();
	if ((atomic_load(&emu_flags) & EMU_FLAG_FAULTS) == 0 || !find(op, AT_ENTRY, 0, &hit)) {
		return DOCA_SUCCESS;
	}
	emu_log(DOCA_LOG_LEVEL_WARNING, op, "made to fail: %s", doca_error_get_name(hit.status));
	return hit.status;
}

/*
 * What a submit that has succeeded reports: with a fault of kind "accepted" an error, although the task is on its way.
 *
 * DOCA says that a failed submit leaves the task to the user; this is the library that breaks its word.
 */
doca_error_t
emu_fault_accepted(const char *op)
{
	struct fault hit;

	if (!find(op, AT_RETURN, 0, &hit)) {
		return DOCA_SUCCESS;
	}
	emu_log(DOCA_LOG_LEVEL_WARNING, op, "made to report failure of a task that it accepted: %s",
		doca_error_get_name(hit.status));
	return hit.status;
}

/* Whether a fault hits the completion of the task being submitted. */
bool
emu_fault_completion(const void *src, struct emu_completion_fault *fault)
{
	struct fault hit;

	if (!find("completion", AT_ENTRY, (uint64_t)(uintptr_t)src, &hit)) {
		return false;
	}
	fault->status = hit.status;
	fault->corrupt = hit.kind == FAULT_CORRUPT;
	fault->hold = hit.kind == FAULT_HOLD;
	fault->fatal = hit.fatal;
	return true;
}

/*
 * What becomes of a notification that is due.
 *
 * @param[in] arm whether this is an arm, which may be answered for no reason
 */
enum emu_notify
emu_fault_notification(bool arm)
{
	enum emu_notify notify = arm ? EMU_NOTIFY_NORMAL : (enum emu_notify)emu_get(EMU_NOTIFY);
	struct fault hit;

	if ((atomic_load(&emu_special) & EMU_SPECIAL_FAULTS) != 0 &&
	    find("notification", arm ? AT_ARM : AT_ENTRY, 0, &hit)) {
		notify = hit.kind == FAULT_LATE	      ? EMU_NOTIFY_LATE
			 : hit.kind == FAULT_SUPPRESS ? EMU_NOTIFY_SUPPRESS
						      : EMU_NOTIFY_SPURIOUS;
	}
	switch (notify) {
	case EMU_NOTIFY_LATE:
		emu_add(&emu_stats.notifications_late, 1);
		break;
	case EMU_NOTIFY_SUPPRESS:
		emu_add(&emu_stats.notifications_suppressed, 1);
		break;
	case EMU_NOTIFY_SPURIOUS:
		emu_add(&emu_stats.notifications_spurious, 1);
		break;
	default:
		break;
	}
	return notify;
}

/* Calls that give no code: a fault of theirs would never fire. */
static bool
cannot_fail(const char *op)
{
	static const char *const ops[] = {
		"error_get_descr",
		"error_get_name",
		"version_runtime",
		"dev_as_devinfo",
		"dev_rep_as_devinfo",
		"pe_progress",
		"task_free",
		"task_get_status",
		"task_set_user_data",
		"task_get_user_data",
		"task_get_ctx",
		"ctx_flush_tasks",
		"dma_as_ctx",
		"dma_task_memcpy_as_task",
		"dma_task_memcpy_set_src",
		"dma_task_memcpy_get_src",
		"dma_task_memcpy_set_dst",
		"dma_task_memcpy_get_dst",
		"log_level_get_global_lower_limit",
		"log_level_get_global_sdk_limit",
		"log_level_get_global_upper_limit",
		"task_batch_get_ctx",
		"task_batch_get_tasks_num",
		"task_batch_get_ctx_user_data",
		"task_batch_get_user_data",
		"task_batch_free",
		"task_batch_set_user_data",
		"argp_usage",
		"argp_param_set_short_name",
		"argp_param_set_long_name",
		"argp_param_set_arguments",
		"argp_param_set_description",
		"argp_param_set_callback",
		"argp_param_set_type",
		"argp_param_set_mandatory",
		"argp_cmd_set_callback",
		"argp_cmd_set_description",
		"argp_cmd_set_hidden",
		"argp_cmd_set_name",
		"argp_param_set_cli_only",
		"argp_param_set_hidden",
		"argp_param_set_inherited",
		"argp_param_set_multiplicity",
		"argp_param_set_singular",
		"argp_set_dpdk_program",
	};

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (strcmp(op, ops[i]) == 0) {
			return true;
		}
	}
	return false;
}

/* Whether a kind of fault makes sense for an operation. */
static bool
fits(const struct fault *fault)
{
	bool notification = strcmp(fault->op, "notification") == 0;

	switch (fault->kind) {
	case FAULT_CORRUPT:
	case FAULT_HOLD:
		return strcmp(fault->op, "completion") == 0;
	case FAULT_LATE:
	case FAULT_SUPPRESS:
	case FAULT_SPURIOUS:
		return notification;
	case FAULT_ACCEPTED:
		return strcmp(fault->op, "task_submit") == 0 ||
		       strcmp(fault->op, "task_submit_ex") == 0 ||
		       strcmp(fault->op, "task_try_submit") == 0;
	default:
		return !notification;
	}
}

static bool
known_op(const char *op)
{
	static const char *const ops[] = {
		"completion",
#define DOCAEMU_SYMBOL(library, name, stability) #name,
#include "doca_symbols.h"
#undef DOCAEMU_SYMBOL
	};
	static const char prefix[] = "doca_";

	if (strcmp(op, "completion") == 0 || strcmp(op, "notification") == 0) {
		return true;
	}
	if (cannot_fail(op)) {
		return false;
	}
	for (size_t i = 1; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (strncmp(ops[i], prefix, sizeof(prefix) - 1) == 0 &&
		    strcmp(ops[i] + sizeof(prefix) - 1, op) == 0) {
			return true;
		}
	}
	return false;
}

static doca_error_t
fault_set(struct fault *fault, const char *key, const char *value)
{
	uint64_t number;

	if (strcmp(key, "op") == 0) {
		if (!known_op(value)) {
			return DOCA_ERROR_INVALID_VALUE;
		}
		snprintf(fault->op, sizeof(fault->op), "%s", value);
		return DOCA_SUCCESS;
	}
	if (strcmp(key, "kind") == 0) {
		static const char *const kinds[] = {"fail",	"corrupt",  "hold",    "late",
						    "suppress", "spurious", "accepted"};

		if (strcmp(value, "again") == 0) {
			fault->kind = FAULT_FAIL;
			fault->status = DOCA_ERROR_AGAIN;
			return DOCA_SUCCESS;
		}
		for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
			if (strcmp(value, kinds[i]) == 0) {
				fault->kind = (enum fault_kind)i;
				return DOCA_SUCCESS;
			}
		}
		return DOCA_ERROR_INVALID_VALUE;
	}
	if (strcmp(key, "status") == 0) {
		doca_error_t result = emu_parse_status(value, &fault->status);

		return fault->status != DOCA_SUCCESS ? result : DOCA_ERROR_INVALID_VALUE;
	}
	if (emu_parse_number(value, &number) != DOCA_SUCCESS) {
		number = UINT64_MAX;
	}
	if (strcmp(key, "skip") == 0) {
		fault->skip = number;
	} else if (strcmp(key, "interval") == 0) {
		fault->interval = number;
		number = number == 0 ? UINT64_MAX : number;
	} else if (strcmp(key, "count") == 0) {
		fault->count = number;
		fault->endless = number == 0;
	} else if (strcmp(key, "src") == 0) {
		fault->src = number;
	} else if (strcmp(key, "fatal") == 0) {
		fault->fatal = number != 0;
		number = number > 1 ? UINT64_MAX : number;
	} else {
		return DOCA_ERROR_NOT_FOUND;
	}
	return number != UINT64_MAX ? DOCA_SUCCESS : DOCA_ERROR_INVALID_VALUE;
}

/* Add a fault from the words behind "fault". */
doca_error_t
emu_fault_add(char *words, char *error, size_t error_size)
{
	struct fault *fault = calloc(1, sizeof(*fault));
	struct fault **link;
	char *save = NULL;

	if (fault == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	fault->status = DOCA_ERROR_IO_FAILED;
	fault->fatal = true;
	fault->interval = 1;
	fault->count = 1;
	for (char *word = strtok_r(words, " \t", &save); word != NULL;
	     word = strtok_r(NULL, " \t", &save)) {
		char *value = strchr(word, '=');
		doca_error_t result = DOCA_ERROR_NOT_FOUND;

		if (value != NULL) {
			*value++ = '\0';
			result = fault_set(fault, word, value);
		}
		if (result != DOCA_SUCCESS) {
			snprintf(error, error_size, "fault: %s '%s'",
				 result == DOCA_ERROR_NOT_FOUND ? "unknown key" : "bad value of",
				 word);
			goto bad;
		}
	}
	if (fault->op[0] == '\0') {
		snprintf(error, error_size, "fault: 'op' is missing");
		goto bad;
	}
	if (!fits(fault)) {
		snprintf(
			error, error_size,
			"fault: corrupt and hold need op=completion; late, suppress and spurious "
			"need op=notification, which takes no other kind; accepted needs a submit");
		goto bad;
	}
	if (fault->src != 0 && strcmp(fault->op, "completion") != 0) {
		snprintf(error, error_size, "fault: 'src' needs op=completion");
		goto bad;
	}
	pthread_mutex_lock(&emu_lock);
	for (link = &faults; *link != NULL; link = &(*link)->next) {
	}
	*link = fault;
	atomic_fetch_or(&emu_flags, EMU_FLAG_FAULTS);
	atomic_fetch_or(&emu_special, EMU_SPECIAL_FAULTS);
	pthread_mutex_unlock(&emu_lock);
	return DOCA_SUCCESS;

bad:
	free(fault);
	return DOCA_ERROR_INVALID_VALUE;
}

/* Drop all faults. */
void
emu_faults_reset(void)
{
	pthread_mutex_lock(&emu_lock);
	while (faults != NULL) {
		struct fault *fault = faults;

		faults = fault->next;
		free(fault);
	}
	atomic_fetch_and(&emu_flags, ~EMU_FLAG_FAULTS);
	atomic_fetch_and(&emu_special, ~EMU_SPECIAL_FAULTS);
	pthread_mutex_unlock(&emu_lock);
}

doca_error_t
docaemu_faults_pending(size_t *pending)
{
	size_t sum = 0;

	if (pending == NULL) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	emu_init();
	pthread_mutex_lock(&emu_lock);
	for (struct fault *fault = faults; fault != NULL; fault = fault->next) {
		sum += fault->endless ? 0 : (size_t)fault->count;
	}
	pthread_mutex_unlock(&emu_lock);
	*pending = sum;
	return DOCA_SUCCESS;
}
