/* SPDX-License-Identifier: Apache-2.0 */
/* What Python may call through cffi. These calls release the GIL and may block; the hot path is in fast.c. */

typedef int... doca_error_t;
static const int DOCA_ERROR_UNSUPPORTED_VERSION;

/* library.h */
struct adma_library;

enum adma_phase {
	ADMA_PHASE_OPEN,
	ADMA_PHASE_REGISTER,
	ADMA_PHASE_ALLOC,
	ADMA_PHASE_SUBMIT,
	ADMA_PHASE_COMPLETE,
	ADMA_PHASE_STOP,
};

struct adma_failure {
	doca_error_t code;
	enum adma_phase phase;
	const char *call;
};

doca_error_t
adma_library_load(const char *common_path, const char *dma_path, struct adma_library **library,
		  char *error, size_t error_size);
const char *
adma_symbol(size_t index, int *required);
const char *
adma_library_optional(const struct adma_library *library, size_t index, int *present);
const char *
adma_library_version(const struct adma_library *library);
const char *
adma_library_error_name(const struct adma_library *library, int code);
const char *
adma_library_error_descr(const struct adma_library *library, int code);
const char *
adma_library_path(const struct adma_library *library);
int
adma_is_privileged(void);

/* log.h */
struct adma_log;

doca_error_t
adma_log_open(const struct adma_library *library, int fd, uint32_t level, struct adma_log **log);
doca_error_t
adma_log_set_level(const struct adma_library *library, struct adma_log *log, uint32_t level);
uint64_t
adma_log_dropped(const struct adma_log *log);

/* device.h */
struct adma_device;

struct adma_caps {
	uint64_t max_buf_size;
	uint32_t max_buf_list_len;
	uint32_t max_num_tasks;
	uint8_t export_pci;
	uint8_t create_from_export_pci;
};

struct adma_devinfo {
	char pci_addr[...];
	char ibdev_name[...];
	char iface_name[...];
	doca_error_t memcpy_supported;
	struct adma_caps caps;
};

doca_error_t
adma_devices_list(struct adma_library *library, struct adma_devinfo **list, uint32_t *count,
		  struct adma_failure *failure);
void
adma_devices_free(struct adma_devinfo *list);
doca_error_t
adma_device_open(struct adma_library *library, const char *pci_addr, struct adma_device **device,
		 struct adma_failure *failure);
doca_error_t
adma_device_close(struct adma_device *device);
doca_error_t
adma_device_query(struct adma_device *device, struct adma_caps *caps, struct adma_failure *failure);
doca_error_t
adma_device_num_tasks(struct adma_library *library, const char *pci_addr, uint32_t *num_tasks,
		      struct adma_failure *failure);
void *
adma_device_doca(const struct adma_device *device);

/* memory.h */
struct adma_mmap;

doca_error_t
adma_mmap_register(struct adma_device *device, void *addr, uint64_t length, uint32_t access,
		   struct adma_mmap **map, struct adma_failure *failure);
doca_error_t
adma_mmap_register_dmabuf(struct adma_device *device, int fd, uint64_t offset, void *addr,
			  uint64_t length, uint32_t access, struct adma_mmap **map,
			  struct adma_failure *failure);
doca_error_t
adma_mmap_alloc(struct adma_device *device, uint64_t length, uint64_t align, uint32_t huge_shift,
		uint32_t access, struct adma_mmap **map, struct adma_failure *failure);
void *
adma_mmap_doca(const struct adma_mmap *map);
doca_error_t
adma_mmap_export(struct adma_mmap *map, const void **descriptor, size_t *length,
		 struct adma_failure *failure);
doca_error_t
adma_mmap_import(struct adma_device *device, const void *descriptor, size_t length, uint32_t access,
		 uint64_t space, struct adma_mmap **map, struct adma_failure *failure);

/* channel.h */
struct adma_channel;

struct adma_counters {
	uint64_t copies_started;
	uint64_t copies_completed;
	uint64_t copies_failed;
	uint64_t copies_flushed;
	uint64_t copies_cancelled;
	uint64_t copies_abandoned;
	uint64_t copies_below_crossover;
	uint64_t segments_submitted;
	uint64_t segments_completed;
	uint64_t segments_failed;
	uint64_t segments_flushed;
	uint64_t segments_replayed;
	uint64_t bytes_completed;
	uint64_t again;
	uint64_t no_memory;
	uint64_t recycles;
	uint64_t restarts;
	uint64_t turns;
	uint64_t wakeups;
	uint64_t arms;
	uint64_t clear_errors;
	uint64_t doorbells;
	uint64_t peak_in_flight;
	uint64_t spins;
	uint64_t spin_hits;
};

struct adma_channel_config {
	uint32_t num_tasks;
	uint32_t window;
	uint64_t graveyard_bytes;
	uint32_t graveyard_maps;
	uint64_t window_bytes;
	uint64_t stripe_bytes;
	uint64_t fair_bytes;
	uint64_t fair_window_bytes;
	uint32_t turn_budget_ns;
	uint32_t spin_ns;
	uint64_t crossover_bytes;
	uint8_t replay;
	uint8_t measure_latency;
};

enum adma_channel_state {
	ADMA_CHANNEL_RUNNING,
	ADMA_CHANNEL_FAILING,
	ADMA_CHANNEL_DRAINING,
	ADMA_CHANNEL_PARKED,
	ADMA_CHANNEL_LOST,
	ADMA_CHANNEL_CLOSED,
};

struct adma_channel_status {
	int state;
	uint32_t num_tasks;
	uint32_t window;
	uint32_t in_flight;
	uint64_t in_flight_bytes;
	uint32_t faults_in_a_row;
	uint8_t transitions[8];
	uint64_t pending;
	uint64_t waiting;
	uint64_t buried_bytes;
	uint32_t buried_maps;
	int event_mode_all;
	int armed;
};

doca_error_t
adma_channel_open(struct adma_device *device, const struct adma_channel_config *config,
		  struct adma_channel **channel, struct adma_failure *failure);
int
adma_channel_fd(const struct adma_channel *channel);
void
adma_channel_park(struct adma_channel *channel);
doca_error_t
adma_channel_recycle(struct adma_channel *channel, struct adma_failure *failure, int *caps_changed);
void
adma_channel_resume(struct adma_channel *channel, bool recycled);
unsigned
adma_channel_close(struct adma_channel *channel, struct adma_failure *failures, unsigned max);
bool
adma_channel_finalize(struct adma_channel *channel, uint64_t timeout_ns);
void
adma_channel_free(struct adma_channel *channel);
void
adma_channel_adopt(struct adma_channel *channel, struct adma_mmap *map);
bool
adma_channel_retire(struct adma_channel *channel, struct adma_mmap *map);
void
adma_channel_get_status(const struct adma_channel *channel, struct adma_channel_status *status);
void
adma_channel_get_counters(const struct adma_channel *channel, struct adma_counters *counters);
void
adma_channel_get_caps(const struct adma_channel *channel, struct adma_caps *caps);

uint64_t adma_channel_num_reported(const struct adma_channel *channel);

#define ADMA_NUM_CODES ...
void
adma_channel_get_failed(const struct adma_channel *channel, uint64_t *failed);

/* recorder.h */
#define ADMA_RECORDER_EVENTS ...
#define ADMA_LATENCY_SHIFT ...
#define ADMA_LATENCY_BUCKETS ...

enum adma_event_kind {
	ADMA_EVENT_CONTEXT,
	ADMA_EVENT_CHANNEL,
	ADMA_EVENT_FAILED,
	ADMA_EVENT_FLUSHED,
	ADMA_EVENT_REFUSED,
	ADMA_EVENT_RECYCLED,
	ADMA_EVENT_RESTARTED,
	ADMA_EVENT_CAPABILITIES,
	ADMA_EVENT_UNCLEARED,
	ADMA_EVENT_STALLED,
	ADMA_EVENT_PEER_LOST,
	ADMA_EVENT_BELOW_CROSSOVER,
	ADMA_EVENT_LOST,
};

struct adma_event {
	uint64_t number;
	int64_t time_ns;
	uint64_t bytes;
	uint32_t kind;
	uint32_t from;
	uint32_t to;
	uint32_t code;
};

struct adma_latency {
	uint64_t count;
	uint64_t sum_ns;
	uint64_t buckets[...];
};

bool
adma_channel_get_latency(const struct adma_channel *channel, struct adma_latency *latency);
uint64_t
adma_channel_num_events(const struct adma_channel *channel);
size_t
adma_channel_events(struct adma_channel *channel, uint64_t from, struct adma_event *events,
		    size_t max);
void
adma_channel_note(struct adma_channel *channel, enum adma_event_kind kind, uint32_t from,
		  uint32_t to, uint32_t code);
int64_t
adma_clock_ns(void);

/* fast.h */
int
adma_fast_install(void);
