/* SPDX-License-Identifier: Apache-2.0 */
/* docaemu.h: settings and their text, counters, reset, fork. */
#define _GNU_SOURCE
#include "emu.h"
#include "peer.h"
#include "schedule.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_SIZE, KIND_FLAG, KIND_WORD, KIND_STATUS };

/* A setting: its default, what it may be, and for words the words by value. */
struct setting {
	const char *key;
	enum kind kind;
	uint64_t initial;
	uint64_t min;
	uint64_t max;
	const char *words[4];
};

static const struct setting settings[EMU_NUM_SETTINGS] = {
	[EMU_ENGINE] = {"engine", KIND_WORD, 0, 0, 0, {"default", "worker", "manual", "late"}},
	[EMU_INLINE_MAX] = {"inline_max", KIND_SIZE, 64 << 10, 0, UINT64_MAX, {NULL}},
	[EMU_NT_MIN] = {"nt_min", KIND_SIZE, 256 << 10, 0, UINT64_MAX, {NULL}},
	[EMU_QUEUE_DEPTH] = {"queue_depth", KIND_SIZE, 0, 0, UINT32_MAX, {NULL}},
	[EMU_EDGE_STRICT] = {"edge", KIND_WORD, 0, 0, 0, {"level", "strict"}},
	[EMU_STRICT] = {"strict", KIND_WORD, EMU_STRICT_REPORT, 0, 0, {"off", "report", "abort"}},
	[EMU_STRICT_CLIENT] = {"strict_client", KIND_FLAG, 0, 0, 1, {NULL}},
	[EMU_STRICT_EXIT] = {"strict_exit", KIND_FLAG, 0, 0, 1, {NULL}},
	[EMU_CHECKSUM] = {"checksum", KIND_FLAG, 0, 0, 1, {NULL}},
	[EMU_FLUSH_STATUS] = {"flush_status", KIND_STATUS, 0, 0, 0, {"culprit"}},
	[EMU_MAP_LIFETIME_BUFS] = {"map_lifetime", KIND_WORD, 0, 0, 0, {"context", "bufs"}},
	[EMU_OVERSIZE_AT_ALLOC] = {"oversize", KIND_WORD, 0, 0, 0, {"completion", "alloc"}},
	[EMU_ZERO_AT_SUBMIT] = {"zero_length", KIND_WORD, 0, 0, 0, {"completion", "submit"}},
	[EMU_PERMISSION_AT_SUBMIT] = {"permission", KIND_WORD, 0, 0, 0, {"completion", "submit"}},
	[EMU_DST_LIST_FAILS] = {"dst_list", KIND_WORD, 0, 0, 0, {"fill", "completion"}},
	[EMU_STOP_IDLE_BAD_STATE] = {"stop_idle", KIND_WORD, 0, 0, 0, {"success", "bad_state"}},
	[EMU_MEMLOCK] = {"memlock", KIND_SIZE, 0, 0, UINT64_MAX, {NULL}},
	[EMU_MEMLOCK_STATUS] =
		{"memlock_status", KIND_STATUS, DOCA_ERROR_NOT_PERMITTED, 1, 0, {NULL}},
	[EMU_SEED] = {"seed", KIND_SIZE, 1, 0, UINT64_MAX, {NULL}},
	[EMU_MAX_BUF_SIZE] = {"max_buf_size", KIND_SIZE, 2 << 20, 1, UINT64_MAX, {NULL}},
	[EMU_MAX_BUF_LIST_LEN] = {"max_buf_list_len", KIND_SIZE, 32, 1, UINT32_MAX, {NULL}},
	[EMU_MAX_NUM_TASKS] = {"max_num_tasks", KIND_SIZE, 65536, 1, 1u << 30, {NULL}},
	[EMU_PEER_TIMEOUT] = {"peer_timeout", KIND_SIZE, 1000, 1, 3600000, {NULL}},
	[EMU_PEER_USERS] = {"peer_users", KIND_WORD, 0, 0, 0, {"same", "any"}},
	[EMU_EXPORT_STOP_REVOKES] =
		{"export_stop", KIND_WORD, 0, 0, 0, {"not_permitted", "revoke"}},
	[EMU_PROFILE] = {"profile", KIND_WORD, 0, 0, 0, {"none", "bf2", "bf3"}},
	[EMU_DIRECTION] = {"direction", KIND_WORD, 0, 0, 0, {"auto", "push", "pull"}},
	[EMU_LATENCY] = {"latency", KIND_SIZE, 0, 0, UINT64_C(1) << 50, {NULL}},
	[EMU_BANDWIDTH] = {"bandwidth", KIND_SIZE, 0, 0, UINT64_C(1000000000000000), {NULL}},
	[EMU_CLOCK] = {"clock", KIND_WORD, 0, 0, 0, {"auto", "manual"}},
	[EMU_PROGRESS_COST] = {"progress_cost", KIND_SIZE, 50, 0, UINT64_C(1) << 50, {NULL}},
	[EMU_LATENCY_REAL] = {"latency_real", KIND_SIZE, 0, 0, 3600000000u, {NULL}},
	[EMU_HOLD] = {"hold", KIND_FLAG, 0, 0, 1, {NULL}},
	[EMU_ORDER] = {"order", KIND_WORD, 0, 0, 0, {"fifo", "lifo", "random"}},
	[EMU_SLOT_LAG] = {"slot_lag", KIND_SIZE, 0, 0, UINT32_MAX, {NULL}},
	[EMU_NOTIFY] = {"notify", KIND_WORD, 0, 0, 0, {"normal", "late", "suppress"}},
	[EMU_CHAOS] = {"chaos", KIND_SIZE, 0, 0, UINT64_MAX, {NULL}},
	[EMU_CHAOS_FAULTS] = {"chaos_faults", KIND_SIZE, 0, 0, UINT64_MAX, {NULL}},
};

_Atomic uint64_t emu_settings[EMU_NUM_SETTINGS];

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- the text ---- */

/*
 * Read a number with an optional K, M, G or T behind it.
 *
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_INVALID_VALUE no number, or too large
 */
doca_error_t
emu_parse_number(const char *text, uint64_t *value)
{
	static const char suffixes[] = "KMGT";
	unsigned long long number;
	unsigned int shift = 0;
	char *end;

	if (text[0] < '0' || text[0] > '9') {
		return DOCA_ERROR_INVALID_VALUE;
	}
	errno = 0;
	number = strtoull(text, &end, 0);
	if (errno != 0) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	if (*end != '\0') {
		const char *suffix = strchr(suffixes, *end & ~0x20);

		if (suffix == NULL || *suffix == '\0' || end[1] != '\0') {
			return DOCA_ERROR_INVALID_VALUE;
		}
		shift = 10 * (unsigned int)(suffix - suffixes + 1);
	}
	if (shift != 0 && number >> (64 - shift) != 0) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	*value = (uint64_t)number << shift;
	return DOCA_SUCCESS;
}

static doca_error_t
parse_value(const struct setting *setting, const char *text, uint64_t *value)
{
	doca_error_t status;

	for (size_t i = 0; i < 4 && setting->words[i] != NULL; i++) {
		if (strcmp(text, setting->words[i]) == 0) {
			*value = i;
			return DOCA_SUCCESS;
		}
	}
	switch (setting->kind) {
	case KIND_STATUS:
		if (emu_parse_status(text, &status) != DOCA_SUCCESS || status == DOCA_SUCCESS) {
			return DOCA_ERROR_INVALID_VALUE;
		}
		*value = (uint64_t)status;
		return DOCA_SUCCESS;
	case KIND_SIZE:
	case KIND_FLAG:
		if (emu_parse_number(text, value) != DOCA_SUCCESS || *value < setting->min ||
		    *value > setting->max) {
			return DOCA_ERROR_INVALID_VALUE;
		}
		return DOCA_SUCCESS;
	case KIND_WORD:
	default:
		return DOCA_ERROR_INVALID_VALUE;
	}
}

/* Set one setting. */
static doca_error_t
set(const char *key, const char *value, char *error, size_t error_size)
{
	uint64_t number;

	if (strcmp(key, "version") == 0) {
		doca_error_t result = emu_version_set(value);

		if (result != DOCA_ERROR_INVALID_VALUE) {
			return result;
		}
		goto bad_value;
	}
	if (strcmp(key, "faults") == 0) {
		if (strcmp(value, "none") != 0) {
			goto bad_value;
		}
		emu_faults_reset();
		return DOCA_SUCCESS;
	}
	if (strcmp(key, "devices") == 0) {
		if (strcmp(value, "none") == 0) {
			emu_devices_none();
			return DOCA_SUCCESS;
		}
		if (strcmp(value, "default") == 0) {
			return emu_devices_default();
		}
		goto bad_value;
	}
	for (size_t i = 0; i < EMU_NUM_SETTINGS; i++) {
		if (strcmp(key, settings[i].key) != 0) {
			continue;
		}
		if (parse_value(&settings[i], value, &number) != DOCA_SUCCESS) {
			goto bad_value;
		}
		if (i == EMU_ENGINE && number != emu_get(EMU_ENGINE) && !emu_engine_idle()) {
			snprintf(error, error_size, "'engine' cannot change, contexts are started");
			return DOCA_ERROR_IN_USE;
		}
		atomic_store(&emu_settings[i], number);
		if (i == EMU_SEED) {
			emu_engine_reseed();
		} else if (i == EMU_CHAOS) {
			emu_chaos_configured();
		}
		emu_sched_configured();
		return DOCA_SUCCESS;
	}
	snprintf(error, error_size, "unknown key '%s'", key);
	return DOCA_ERROR_INVALID_VALUE;

bad_value:
	snprintf(error, error_size, "bad value of '%s': '%s'", key, value);
	return DOCA_ERROR_INVALID_VALUE;
}

/* Obey one line, which is cut to pieces. */
static doca_error_t
configure_line(char *line, char *error, size_t error_size)
{
	char *save = NULL;
	char *comment = strchr(line, '#');
	size_t word;

	if (comment != NULL) {
		*comment = '\0';
	}
	line += strspn(line, " \t\r");
	line[strcspn(line, "\r")] = '\0';
	word = strcspn(line, " \t");
	if (word == 6 && strncmp(line, "device", word) == 0) {
		return emu_device_add(line + word, error, error_size);
	}
	if (word == 5 && strncmp(line, "fault", word) == 0) {
		return emu_fault_add(line + word, error, error_size);
	}
	for (char *key = strtok_r(line, " \t", &save); key != NULL;
	     key = strtok_r(NULL, " \t", &save)) {
		char *value = strchr(key, '=');
		doca_error_t result;

		if (value == NULL) {
			snprintf(error, error_size, "'=' is missing behind '%s'", key);
			return DOCA_ERROR_INVALID_VALUE;
		}
		*value++ = '\0';
		result = set(key, value, error, error_size);
		if (result != DOCA_SUCCESS) {
			return result;
		}
	}
	return DOCA_SUCCESS;
}

static doca_error_t
configure(const char *text, char *error, size_t error_size)
{
	doca_error_t result = DOCA_SUCCESS;
	char message[200] = "";
	char *copy = strdup(text);
	char *line = copy;
	size_t number = 1;

	if (copy == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	while (line != NULL && result == DOCA_SUCCESS) {
		char *end = line + strcspn(line, ";\n");
		char *next = *end != '\0' ? end + 1 : NULL;

		*end = '\0';
		result = configure_line(line, message, sizeof(message));
		if (result != DOCA_SUCCESS && error != NULL && error_size != 0) {
			snprintf(error, error_size, "line %zu: %s", number, message);
		}
		number++;
		line = next;
	}
	free(copy);
	return result;
}

static void
settings_default(void)
{
	for (size_t i = 0; i < EMU_NUM_SETTINGS; i++) {
		atomic_store(&emu_settings[i], settings[i].initial);
	}
	emu_version_set(NULL);
	emu_engine_reseed();
	emu_chaos_configured();
	emu_sched_configured();
}

/* ---- first use, and fork ---- */

static void
fork_prepare(void)
{
	emu_engine_fork_prepare();
	emu_import_fork_prepare();
	emu_export_fork_prepare();
	pthread_mutex_lock(&emu_lock);
	emu_log_fork_prepare();
}

static void
fork_parent(void)
{
	emu_log_fork_done();
	pthread_mutex_unlock(&emu_lock);
	emu_export_fork_parent();
	emu_import_fork_parent();
	emu_engine_fork_parent();
}

/* The child begins with no objects, and has counted nothing; what is the parent's is memory it does not touch. */
static void
fork_child(void)
{
	emu_log_fork_done();
	emu_dev_fork_child();
	emu_mmap_fork_child();
	emu_pe_fork_child();
	emu_export_fork_child();
	emu_import_fork_child();
	emu_sched_fork_child();
	emu_violations_forget();
	memset(&emu_stats, 0, sizeof(emu_stats));
	pthread_mutex_unlock(&emu_lock);
	emu_engine_fork_child();
}

static void
configure_env(const char *origin, const char *text)
{
	char error[256] = "";

	if (configure(text, error, sizeof(error)) != DOCA_SUCCESS) {
		emu_log(DOCA_LOG_LEVEL_CRIT, __func__, "%s: %s", origin, error);
		fprintf(stderr, "docaemu: %s: %s\n", origin, error);
	}
}

/* Read a whole file, which the caller frees; NULL if it cannot be read to its end. */
static char *
read_file(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t used = 0;

	while (file != NULL && !feof(file)) {
		char *more = realloc(text, used + 4097);

		if (more != NULL) {
			text = more;
			used += fread(text + used, 1, 4096, file);
			text[used] = '\0';
		}
		if (more == NULL || ferror(file)) {
			free(text);
			text = NULL;
			break;
		}
	}
	if (file != NULL) {
		fclose(file);
	}
	return text;
}

static void
init_once(void)
{
	const char *path = secure_getenv("DOCAEMU_CONFIG_FILE");
	const char *text = secure_getenv("DOCAEMU_CONFIG");

	settings_default();
	/* Without memory there is no device; docaemu_reset() tries again, and says so. */
	(void)emu_devices_default();
	pthread_atfork(fork_prepare, fork_parent, fork_child);
	if (path != NULL && path[0] != '\0') {
		char *content = read_file(path);

		if (content != NULL) {
			configure_env(path, content);
			free(content);
		} else {
			emu_log(DOCA_LOG_LEVEL_CRIT, __func__, "%s cannot be read", path);
			fprintf(stderr, "docaemu: %s cannot be read\n", path);
		}
	}
	if (text != NULL) {
		configure_env("DOCAEMU_CONFIG", text);
	}
	/* Last: whoever sees it goes on without pthread_once. */
	atomic_fetch_and(&emu_flags, ~EMU_FLAG_UNINITIALISED);
}

/* Read the environment, once. */
void
emu_init(void)
{
	pthread_once(&once, init_once);
}

/* ---- the control API ---- */

doca_error_t
docaemu_configure(const char *text, char *error, size_t error_size)
{
	if (error != NULL && error_size != 0) {
		error[0] = '\0';
	}
	if (text == NULL) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	emu_init();
	return configure(text, error, error_size);
}

doca_error_t
docaemu_counters(struct docaemu_counters *counters, size_t size)
{
	struct docaemu_counters now;
	uint64_t in_flight;

	if (counters == NULL) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	emu_init();
	emu_pes_collect(&now, &in_flight);
	now.notifications = atomic_load(&emu_stats.notifications);
	now.worker_wakes = atomic_load(&emu_stats.worker_wakes);
	now.worker_sleeps = atomic_load(&emu_stats.worker_sleeps);
	now.tasks_worker = atomic_load(&emu_stats.tasks_worker);
	now.tasks_step = atomic_load(&emu_stats.tasks_step);
	now.no_memory = atomic_load(&emu_stats.no_memory);
	now.faults = atomic_load(&emu_stats.faults);
	now.violations = atomic_load(&emu_stats.violations);
	now.ctx_starts = atomic_load(&emu_stats.ctx_starts);
	now.ctx_faults = atomic_load(&emu_stats.ctx_faults);
	now.notifications_late = atomic_load(&emu_stats.notifications_late);
	now.notifications_suppressed = atomic_load(&emu_stats.notifications_suppressed);
	now.notifications_spurious = atomic_load(&emu_stats.notifications_spurious);
	now.peer_reads = atomic_load(&emu_stats.peer_reads);
	now.peer_writes = atomic_load(&emu_stats.peer_writes);
	now.peer_refused = atomic_load(&emu_stats.peer_refused);
	memset(counters, 0, size);
	memcpy(counters, &now, size < sizeof(now) ? size : sizeof(now));
	return DOCA_SUCCESS;
}

void
emu_read_live(struct docaemu_live *now)
{
	struct docaemu_counters ignored;

	now->devinfo_lists = atomic_load(&emu_stats.live_lists);
	now->devs = atomic_load(&emu_stats.live_devs);
	now->mmaps = atomic_load(&emu_stats.live_mmaps);
	now->inventories = atomic_load(&emu_stats.live_inventories);
	now->bufs = atomic_load(&emu_stats.live_bufs);
	now->pes = atomic_load(&emu_stats.live_pes);
	now->ctxs = atomic_load(&emu_stats.live_ctxs);
	now->tasks = atomic_load(&emu_stats.live_tasks);
	now->workers = atomic_load(&emu_stats.live_workers);
	now->pinned_bytes = atomic_load(&emu_stats.pinned_bytes);
	now->held = atomic_load(&emu_stats.live_held);
	now->exports = atomic_load(&emu_stats.live_exports);
	now->imports = atomic_load(&emu_stats.live_imports);
	emu_pes_collect(&ignored, &now->in_flight);
}

doca_error_t
docaemu_live(struct docaemu_live *live, size_t size)
{
	struct docaemu_live now;

	if (live == NULL) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	emu_init();
	emu_read_live(&now);
	memset(live, 0, size);
	memcpy(live, &now, size < sizeof(now) ? size : sizeof(now));
	return DOCA_SUCCESS;
}

doca_error_t
docaemu_reset(void)
{
	struct docaemu_live live;
	doca_error_t result;

	emu_init();
	emu_read_live(&live);
	if (live.devinfo_lists + live.devs + live.mmaps + live.inventories + live.bufs + live.pes +
		    live.ctxs + live.tasks !=
	    0) {
		return DOCA_ERROR_IN_USE;
	}
	/* First what can fail. */
	result = emu_devices_default();
	if (result != DOCA_SUCCESS) {
		return result;
	}
	emu_faults_reset();
	atomic_store(&emu_special, 0);
	settings_default();
	emu_devices_forget_past();
	emu_sched_reset();
	pthread_mutex_lock(&emu_lock);
	emu_violations_forget();
	emu_pes_forget_past();
	pthread_mutex_unlock(&emu_lock);
	memset(&emu_stats, 0, sizeof(emu_stats));
	return DOCA_SUCCESS;
}

doca_error_t
docaemu_step(size_t n, int order, size_t *stepped)
{
	emu_init();
	return emu_engine_step(n, order, stepped);
}

doca_error_t
docaemu_complete(uint64_t dst, int status, int fatal)
{
	return emu_engine_complete(dst, (doca_error_t)status, fatal != 0);
}

doca_error_t
docaemu_spurious_notification(void)
{
	emu_init();
	emu_pes_spurious();
	return DOCA_SUCCESS;
}
