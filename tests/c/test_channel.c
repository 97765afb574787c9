/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's channel without Python: driven turn by turn, on the emulator in manual mode where a test decides when
 * the engine does something, and in worker mode where threads race. Each test runs in event mode ALL and, through the
 * library without experimental symbols, in SELECTIVE.
 */
#include "check.h"

#include <dlfcn.h>
#include <poll.h>

#include "channel_impl.h"

#define MAX_COPIES 2000

/* With and without experimental symbols. */
static const char *const paths[2] = {DOCAEMU_PATH, DOCAEMU_2_6_PATH};
static struct adma_library *libs[2];
static void *controls[2];

struct client {
	struct adma_library *lib;
	struct adma_device *device;
	struct adma_channel *channel;
	struct adma_mmap *src;
	struct adma_mmap *dst;
	struct adma_copy copies[MAX_COPIES];
	int which;
};

static struct client *client;

/* ---- the emulator behind the library under test: each has its own settings ---- */

static void *
control(const char *name)
{
	void *symbol = dlsym(controls[client->which], name);

	CHECK(symbol != NULL);
	return symbol;
}

static void
set(const char *text)
{
	char error[256] = "";
	doca_error_t (*configure_)(const char *, char *, size_t);

	*(void **)&configure_ = control("docaemu_configure");
	if (configure_(text, error, sizeof(error)) != DOCA_SUCCESS) {
		check_failed(__FILE__, __LINE__, "%s", error);
	}
}

static size_t
step(size_t n)
{
	size_t stepped;
	doca_error_t (*step_)(size_t, int, size_t *);

	*(void **)&step_ = control("docaemu_step");
	OK(step_(n, DOCAEMU_ORDER_FIFO, &stepped));
	return stepped;
}

static struct docaemu_counters
count(void)
{
	struct docaemu_counters result;
	doca_error_t (*counters_)(struct docaemu_counters *, size_t);

	*(void **)&counters_ = control("docaemu_counters");
	OK(counters_(&result, sizeof(result)));
	return result;
}

static struct docaemu_live
alive(void)
{
	struct docaemu_live result;
	doca_error_t (*live_)(struct docaemu_live *, size_t);

	*(void **)&live_ = control("docaemu_live");
	OK(live_(&result, sizeof(result)));
	return result;
}

/* ---- a client with two maps ---- */

static void
open_client(const char *settings, uint32_t num_tasks, size_t size)
{
	struct adma_failure failure = {0};
	struct adma_channel_config config = {.num_tasks = num_tasks,
					     .graveyard_bytes = 1 << 20,
					     .graveyard_maps = 4,
					     .replay = 1};

	set(settings);
	OK(adma_device_open(client->lib, "0000:03:00.0", &client->device, &failure));
	OK(adma_channel_open(client->device, &config, &client->channel, &failure));
	OK(adma_mmap_alloc(client->device, size, 0, 0, DOCA_ACCESS_FLAG_LOCAL_READ_ONLY,
			   &client->src, &failure));
	OK(adma_mmap_alloc(client->device, size, 0, 0, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE,
			   &client->dst, &failure));
	adma_channel_adopt(client->channel, client->src);
	adma_channel_adopt(client->channel, client->dst);
	fill((uint8_t *)client->src->addr, size, 7);
}

static struct adma_channel_status
status(void)
{
	struct adma_channel_status result;

	adma_channel_get_status(client->channel, &result);
	return result;
}

static struct adma_counters
counted(void)
{
	struct adma_counters result;

	adma_channel_get_counters(client->channel, &result);
	return result;
}

static struct adma_copy *
new_copy(size_t i, size_t offset, size_t length)
{
	struct adma_copy *copy = &client->copies[i];

	adma_copy_init(copy, client->src, client->src->addr + offset, client->dst,
		       client->dst->addr + offset, length);
	return copy;
}

static struct adma_copy *
start(size_t i, size_t offset, size_t length)
{
	struct adma_copy *copy = new_copy(i, offset, length);

	adma_channel_start(client->channel, copy);
	return copy;
}

/* Turns, as a loop would do them, until no turn asks for another. Returns the last turn's bits. */
static unsigned
settle_turns(void)
{
	struct pollfd pollfd = {.fd = adma_channel_fd(client->channel), .events = POLLIN};
	unsigned bits = adma_channel_turn(client->channel);

	for (;;) {
		if ((bits & ADMA_TURN_PARKED) != 0) {
			return bits;
		}
		if (poll(&pollfd, 1, 0) > 0) {
			bits = adma_channel_readable(client->channel);
		} else if ((bits & ADMA_TURN_AGAIN) != 0) {
			bits = adma_channel_turn(client->channel);
		} else {
			return bits;
		}
	}
}

static size_t
take_done(void)
{
	size_t n = 0;

	for (struct adma_copy *copy = adma_channel_take_done(client->channel); copy != NULL;
	     copy = copy->next) {
		CHECK_EQ(copy->state, ADMA_COPY_ENDED);
		n++;
	}
	return n;
}

static bool
same(size_t offset, size_t length)
{
	return memcmp(client->src->addr + offset, client->dst->addr + offset, length) == 0;
}

static void
close_client(void)
{
	struct adma_failure failures[4];

	adma_channel_retire(client->channel, client->src);
	adma_channel_retire(client->channel, client->dst);
	adma_channel_park(client->channel);
	while (status().state < ADMA_CHANNEL_PARKED) {
		(void)settle_turns();
	}
	CHECK_EQ(adma_channel_close(client->channel, failures, 4), 0);
	CHECK_EQ(adma_channel_close(client->channel, failures, 4), 0); /* idempotent */
	adma_channel_free(client->channel);
	OK(adma_device_close(client->device));
}

static void
recycle(doca_error_t expected)
{
	struct adma_failure failure = {0};
	int changed = 0;
	doca_error_t result = adma_channel_recycle(client->channel, &failure, &changed);

	CHECK_DOCA(result, expected);
	adma_channel_resume(client->channel, result == DOCA_SUCCESS);
}

static void
load(int which)
{
	char error[512] = "";

	if (libs[which] != NULL) {
		return;
	}
	if (adma_library_load(paths[which], paths[which], &libs[which], error, sizeof(error)) !=
	    DOCA_SUCCESS) {
		check_failed(__FILE__, __LINE__, "%s: %s", paths[which], error);
	}
	controls[which] = dlopen(paths[which], RTLD_NOW | RTLD_LOCAL);
	CHECK(controls[which] != NULL);
	CHECK_EQ(libs[which]->doca_pe_set_event_mode != NULL, which == 0);
}

/* Run a test against each library, and check that it leaves nothing behind. */
static void
on_each_library(void (*test)(void))
{
	for (int which = 0; which < 2; which++) {
		doca_error_t (*reset)(void);
		uint64_t (*violations)(char *, size_t);
		char text[4096];
		struct docaemu_live left;
		static const struct docaemu_live none;

		load(which);
		client = calloc(1, sizeof(*client));
		CHECK(client != NULL);
		client->which = which;
		client->lib = libs[which];
		*(void **)&reset = control("docaemu_reset");
		*(void **)&violations = control("docaemu_violations");
		OK(reset());
		test();
		left = alive();
		CHECK(memcmp(&left, &none, sizeof(left)) == 0);
		if (violations(text, sizeof(text)) != 0) {
			check_failed(__FILE__, __LINE__, "%s", text);
		}
		OK(reset());
		free(client);
	}
}

#define ON_EACH_LIBRARY(name) \
	static void name##_(void); \
	static void name(void) \
	{ \
		on_each_library(name##_); \
	} \
	static void name##_(void)

/* ---- tests ---- */

ON_EACH_LIBRARY(test_one_copy_finishes_at_once)
{
	struct adma_copy *copy;

	open_client("engine=default", 4, 4096);
	copy = new_copy(0, 0, 4096);
	CHECK(adma_channel_start_alone(client->channel, copy));
	CHECK_EQ(copy->completed, 4096);
	CHECK_EQ(take_done(), 0);
	CHECK(same(0, 4096));
	CHECK_EQ(count().arms, 0);
	CHECK_EQ(count().doorbells, 1);
	close_client();
}

/* Bufs are kept for the next copy of the same maps: whichever bytes it moves, and no others. */
ON_EACH_LIBRARY(test_kept_bufs_follow_the_copies)
{
	struct adma_failure failure;
	struct adma_mmap *map;
	struct adma_copy *copy;

	open_client("engine=default", 1, 4096);
	OK(adma_mmap_alloc(client->device, 300, 0, 0, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE, &map,
			   &failure));
	adma_channel_adopt(client->channel, map);
	for (size_t offset = 100; offset < 2000; offset += 300) {
		CHECK(adma_channel_start_alone(client->channel, new_copy(0, offset, 200)));
		CHECK(same(offset, 200));
		CHECK(client->dst->addr[offset - 1] == 0 && client->dst->addr[offset + 200] == 0);
		CHECK_EQ(alive().bufs, 2);
	}
	/* Another map's buf takes the place of the one before. */
	copy = &client->copies[0];
	adma_copy_init(copy, client->src, client->src->addr + 7, map, map->addr + 50, 200);
	CHECK(adma_channel_start_alone(client->channel, copy));
	CHECK(memcmp(client->src->addr + 7, map->addr + 50, 200) == 0);
	CHECK_EQ(alive().bufs, 2);
	/* None outlives its context: the map can go. */
	adma_channel_retire(client->channel, map);
	adma_channel_park(client->channel);
	CHECK((settle_turns() & ADMA_TURN_PARKED) != 0);
	recycle(DOCA_SUCCESS);
	CHECK_EQ(alive().bufs, 0);
	CHECK_EQ(status().buried_maps, 0);
	CHECK(adma_channel_start_alone(client->channel, new_copy(0, 0, 4096)));
	CHECK(same(0, 4096));
	close_client();
}

ON_EACH_LIBRARY(test_a_copy_is_cut_at_the_devices_limit)
{
	open_client("engine=worker max_buf_size=1000", 3, 10001);
	start(0, 0, 10001);
	while (take_done() == 0) {
		(void)settle_turns();
	}
	CHECK(same(0, 10001));
	CHECK_EQ(count().submits, 11);
	CHECK_EQ(counted().segments_completed, 11);
	CHECK(count().max_in_flight <= 3);
	close_client();
}

ON_EACH_LIBRARY(test_quanta_let_a_small_copy_pass_a_large_one)
{
	open_client("engine=manual max_buf_size=100", 1, 10000);
	start(0, 0, 9000);
	start(1, 9000, 100);
	/* One segment is in flight; the large copy has its quantum of 4, then the small one's turn is due. */
	for (int i = 0; i < 5; i++) {
		(void)settle_turns();
		CHECK_EQ(step(1), 1);
	}
	(void)settle_turns();
	CHECK_EQ(client->copies[1].state, ADMA_COPY_ENDED);
	CHECK_EQ(client->copies[0].state, ADMA_COPY_PENDING);
	while (client->copies[0].state != ADMA_COPY_ENDED) {
		(void)step(1);
		(void)settle_turns();
	}
	CHECK_EQ(take_done(), 2);
	CHECK(same(0, 9100));
	close_client();
}

ON_EACH_LIBRARY(test_many_copies_in_order_through_a_small_window)
{
	open_client("engine=worker", 8, 100 * MAX_COPIES);
	for (size_t i = 0; i < MAX_COPIES; i++) {
		start(i, i * 100, 100);
	}
	CHECK_EQ(status().waiting, MAX_COPIES - 8);
	for (size_t done = 0; done < MAX_COPIES; done += take_done()) {
		(void)settle_turns();
	}
	CHECK(same(0, 100 * MAX_COPIES));
	CHECK_EQ(count().submits, MAX_COPIES);
	CHECK(count().max_in_flight <= 8);
	close_client();
}

static doca_error_t (*request_notification)(struct doca_pe *);

/* Let the engine finish a task between the channel's last empty progress and its arm. */
static doca_error_t
step_then_request(struct doca_pe *pe)
{
	(void)step(1);
	return request_notification(pe);
}

ON_EACH_LIBRARY(test_a_completion_just_before_the_arm_is_found)
{
	unsigned bits;

	/* In mode ALL with the strict edge the fd stays silent then: only the progress after the arm finds it. In
	 * SELECTIVE the arm itself signals. */
	open_client("engine=manual edge=strict", 2, 200);
	request_notification = client->lib->doca_pe_request_notification;
	client->lib->doca_pe_request_notification = step_then_request;
	start(0, 0, 100);
	bits = adma_channel_turn(client->channel);
	if (client->which == 1) {
		struct pollfd pollfd = {.fd = adma_channel_fd(client->channel), .events = POLLIN};

		CHECK(poll(&pollfd, 1, 0) == 1);
		bits = adma_channel_readable(client->channel);
	} else if ((bits & ADMA_TURN_AGAIN) != 0) {
		bits = adma_channel_turn(client->channel);
	}
	CHECK_EQ(bits, ADMA_TURN_IDLE);
	CHECK_EQ(take_done(), 1);
	client->lib->doca_pe_request_notification = request_notification;
	close_client();
}

ON_EACH_LIBRARY(test_no_wakeup_is_lost_on_the_strict_edge)
{
	/* A completion between the last empty progress and the arm leaves the fd silent: only the post-arm progress
	 * finds it. One that only the fd would tell of is waited for with a deadline. */
	open_client("engine=worker edge=strict", 2, 200);
	for (int i = 0; i < 3000; i++) {
		struct pollfd pollfd = {.fd = adma_channel_fd(client->channel), .events = POLLIN};
		unsigned bits;

		start(0, 0, 100);
		start(1, 100, 100);
		bits = adma_channel_turn(client->channel);
		for (size_t done = take_done(); done < 2; done += take_done()) {
			if ((bits & ADMA_TURN_AGAIN) != 0) {
				bits = adma_channel_turn(client->channel);
				continue;
			}
			CHECK(poll(&pollfd, 1, 5000) == 1);
			bits = adma_channel_readable(client->channel);
		}
	}
	close_client();
}

ON_EACH_LIBRARY(test_backpressure_of_every_pool)
{
	const char *submit =
		client->which == 0 ? "fault op=task_submit_ex kind=again skip=3 interval=2 count=9"
				   : "fault op=task_submit kind=again skip=3 interval=2 count=9";

	open_client("engine=worker", 8, 100 * 100);
	set(submit);
	set("fault op=buf_inventory_buf_get_by_args status=NO_MEMORY skip=2 interval=5 count=7");
	set("fault op=dma_task_memcpy_alloc_init status=NO_MEMORY skip=1 interval=3 count=2");
	for (size_t i = 0; i < 100; i++) {
		start(i, i * 100, 100);
	}
	for (size_t done = 0; done < 100; done += take_done()) {
		(void)settle_turns();
	}
	CHECK(same(0, 10000));
	CHECK_EQ(counted().again, 9);
	CHECK_EQ(counted().no_memory, 9);
	CHECK_EQ(counted().copies_completed, 100);
	close_client();
}

ON_EACH_LIBRARY(test_starved_with_nothing_in_flight)
{
	unsigned turns = 0;

	open_client("engine=manual", 4, 100);
	set("fault op=dma_task_memcpy_alloc_init status=NO_MEMORY count=66");
	start(0, 0, 100);
	while (take_done() == 0) {
		(void)adma_channel_turn(client->channel);
		turns++;
	}
	CHECK_EQ(turns, 65); /* 64 attempts, one a turn, and the turn that gives up */
	CHECK_EQ(client->copies[0].code, DOCA_ERROR_NO_MEMORY);
	CHECK_EQ(client->copies[0].phase, ADMA_PHASE_ALLOC);
	close_client();
}

ON_EACH_LIBRARY(test_cancel_waiting_and_in_flight)
{
	open_client("engine=manual", 1, 300);
	start(0, 0, 100);
	start(1, 100, 100);
	start(2, 200, 100);
	adma_channel_cancel(client->channel, &client->copies[1]);
	CHECK_EQ(client->copies[1].state, ADMA_COPY_ENDED); /* DOCA never saw it */
	adma_channel_cancel(client->channel, &client->copies[0]);
	CHECK_EQ(client->copies[0].state, ADMA_COPY_PENDING); /* DOCA has it */
	(void)settle_turns();
	CHECK_EQ(step(10), 1);
	(void)settle_turns();
	CHECK_EQ(client->copies[0].state, ADMA_COPY_ENDED);
	CHECK_EQ(step(10), 1);
	(void)settle_turns();
	CHECK_EQ(take_done(), 3);
	CHECK_EQ(counted().copies_cancelled, 2);
	CHECK_EQ(counted().copies_completed, 1);
	CHECK_EQ(count().submits, 2);
	close_client();
}

ON_EACH_LIBRARY(test_a_fault_flushes_and_the_flushed_are_replayed)
{
	open_client("engine=manual", 8, 800);
	set("fault op=completion status=IO_FAILED skip=2");
	for (size_t i = 0; i < 8; i++) {
		start(i, i * 100, 100);
	}
	(void)settle_turns();
	CHECK_EQ(step(8), 8);
	CHECK((settle_turns() & ADMA_TURN_PARKED) != 0);
	CHECK_EQ(take_done(), 3); /* two done, the culprit */
	CHECK_EQ(client->copies[2].code, DOCA_ERROR_IO_FAILED);
	CHECK_EQ(status().in_flight, 0);
	recycle(DOCA_SUCCESS);
	for (int i = 0; i < 5; i++) {
		/* Suspects are replayed one at a time: alone, a failure is its own. */
		(void)settle_turns();
		CHECK_EQ(step(8), 1);
	}
	(void)settle_turns();
	CHECK_EQ(take_done(), 5);
	CHECK(same(0, 200) && same(300, 500));
	CHECK_EQ(counted().restarts, 1);
	CHECK_EQ(counted().segments_flushed, 5);
	CHECK_EQ(counted().segments_replayed, 5);
	close_client();
}

ON_EACH_LIBRARY(test_a_cancelled_copy_is_not_replayed)
{
	open_client("engine=manual", 8, 300);
	set("fault op=completion status=IO_FAILED");
	for (size_t i = 0; i < 3; i++) {
		start(i, i * 100, 100);
	}
	(void)settle_turns();
	adma_channel_cancel(client->channel, &client->copies[1]);
	CHECK_EQ(step(8), 3);
	(void)settle_turns();
	/* Flushed and waiting for the replay, the third is cancelled, too. */
	adma_channel_cancel(client->channel, &client->copies[2]);
	CHECK_EQ(take_done(), 3);
	recycle(DOCA_SUCCESS);
	(void)settle_turns();
	CHECK_EQ(step(8), 0);
	close_client();
}

/* Another device of this process stands for the peer. */
struct peer {
	struct adma_device *device;
	struct adma_mmap *memory;
	const void *descriptor;
	size_t length;
};

static void
open_peer(struct peer *peer, uint32_t access, size_t size)
{
	struct adma_failure failure = {0};

	OK(adma_device_open(client->lib, "0000:04:00.0", &peer->device, &failure));
	OK(adma_mmap_alloc(peer->device, size, 0, 0, access, &peer->memory, &failure));
	OK(adma_mmap_export(peer->memory, &peer->descriptor, &peer->length, &failure));
	fill((uint8_t *)peer->memory->addr, size, 9);
}

static void
close_peer(struct peer *peer)
{
	OK(adma_mmap_unregister(peer->memory));
	adma_mmap_free(peer->memory);
	OK(adma_device_close(peer->device));
}

#define TWO_DEVICES "\ndevice mlx5_0 pci=0000:03:00.0\ndevice mlx5_1 pci=0000:04:00.0"

ON_EACH_LIBRARY(test_a_peers_memory_is_read_and_never_written_twice)
{
	struct adma_failure failure = {0};
	struct adma_mmap *remote;
	struct peer peer;

	open_client("engine=manual" TWO_DEVICES, 8, 300);
	open_peer(&peer, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_PCI_READ_WRITE, 300);
	OK(adma_mmap_import(client->device, peer.descriptor, peer.length,
			    DOCA_ACCESS_FLAG_LOCAL_READ_WRITE, 5, &remote, &failure));
	adma_channel_adopt(client->channel, remote);
	CHECK(remote->imported && remote->space == 5 && remote->length == 300);
	CHECK(remote->addr == peer.memory->addr); /* the exporter's addresses */
	set("fault op=completion status=IO_FAILED");
	start(0, 0, 100);
	adma_copy_init(&client->copies[1], client->src, client->src->addr, remote, remote->addr,
		       100);
	adma_channel_start(client->channel, &client->copies[1]);
	adma_copy_init(&client->copies[2], remote, remote->addr + 200, client->dst,
		       client->dst->addr + 200, 100);
	adma_channel_start(client->channel, &client->copies[2]);
	(void)settle_turns();
	CHECK_EQ(step(8), 3);
	CHECK((settle_turns() & ADMA_TURN_PARKED) != 0);
	CHECK_EQ(take_done(), 2);
	CHECK_EQ(client->copies[1].flushed, 1);
	recycle(DOCA_SUCCESS);
	(void)settle_turns();
	CHECK_EQ(step(8), 1); /* the one that only reads the peer's memory */
	(void)settle_turns();
	CHECK_EQ(take_done(), 1);
	CHECK_DOCA(client->copies[2].code, DOCA_SUCCESS);
	CHECK(memcmp(client->dst->addr + 200, peer.memory->addr + 200, 100) == 0);
	adma_channel_retire(client->channel, remote);
	close_client();
	close_peer(&peer);
}

ON_EACH_LIBRARY(test_an_import_that_fails_leaves_nothing)
{
	static const char *const calls[] = {"doca_mmap_create_from_export",
					    "doca_mmap_get_memrange"};
	struct adma_failure failure = {0};
	struct adma_mmap *remote = NULL;
	struct peer peer;

	open_client("engine=default" TWO_DEVICES, 4, 100);
	open_peer(&peer, DOCA_ACCESS_FLAG_PCI_READ_ONLY, 100);
	for (size_t i = 0; i < 2; i++) {
		char fault[128];

		snprintf(fault, sizeof(fault), "fault op=%s status=DRIVER",
			 calls[i] + strlen("doca_"));
		set(fault);
		CHECK_DOCA(adma_mmap_import(client->device, peer.descriptor, peer.length, 0, 5,
					    &remote, &failure),
			   DOCA_ERROR_DRIVER);
		CHECK(remote == NULL && strcmp(failure.call, calls[i]) == 0);
		CHECK_EQ(alive().imports, 0);
	}
	CHECK_DOCA(adma_mmap_import(client->device, peer.descriptor, peer.length - 1, 0, 5, &remote,
				    &failure),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(adma_mmap_export(client->src, &peer.descriptor, &peer.length, &failure),
		   DOCA_ERROR_NOT_PERMITTED); /* it has no PCI flag */
	CHECK(strcmp(failure.call, "doca_mmap_export_pci") == 0);
	close_client();
	close_peer(&peer);
}

ON_EACH_LIBRARY(test_a_context_that_cannot_be_made_is_lost)
{
	struct adma_failure failure = {0};
	int changed;

	open_client("engine=manual", 1, 200);
	set("fault op=completion status=IO_FAILED");
	set("fault op=dma_create status=DRIVER");
	start(0, 0, 100);
	start(1, 100, 100);
	(void)settle_turns();
	CHECK_EQ(step(8), 1);
	CHECK((settle_turns() & ADMA_TURN_PARKED) != 0);
	CHECK_DOCA(adma_channel_recycle(client->channel, &failure, &changed), DOCA_ERROR_DRIVER);
	CHECK(strcmp(failure.call, "doca_dma_create") == 0);
	adma_channel_resume(client->channel, false);
	CHECK_EQ(status().state, ADMA_CHANNEL_LOST);
	adma_channel_abandon(client->channel);
	CHECK_EQ(take_done(), 2);
	CHECK_EQ(client->copies[1].abandoned, 1);
	close_client();
}

ON_EACH_LIBRARY(test_abandon_lets_go_of_what_doca_has_not)
{
	open_client("engine=manual max_buf_size=100", 2, 1000);
	start(0, 0, 500);
	start(1, 500, 100);
	(void)settle_turns();
	adma_channel_abandon(client->channel);
	CHECK_EQ(client->copies[1].state, ADMA_COPY_ENDED);
	CHECK_EQ(client->copies[0].state, ADMA_COPY_PENDING);
	CHECK_EQ(step(9), 2);
	(void)settle_turns();
	CHECK_EQ(client->copies[0].state, ADMA_COPY_ENDED);
	CHECK_EQ(client->copies[0].abandoned, 1);
	CHECK_EQ(take_done(), 2);
	close_client();
}

ON_EACH_LIBRARY(test_maps_outlive_the_context_that_knew_them)
{
	struct adma_failure failure = {0};

	open_client("engine=default", 4, 100);
	for (int i = 0; i < 20; i++) {
		struct adma_mmap *map;
		struct adma_copy *copy = &client->copies[0];

		OK(adma_mmap_alloc(client->device, 100, 0, 0, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE,
				   &map, &failure));
		adma_channel_adopt(client->channel, map);
		adma_copy_init(copy, client->src, client->src->addr, map, map->addr, 100);
		if (!adma_channel_start_alone(client->channel, copy)) {
			CHECK((settle_turns() & ADMA_TURN_PARKED) != 0); /* the graveyard is full */
			recycle(DOCA_SUCCESS);
			CHECK_EQ(status().buried_maps, 0);
			(void)settle_turns();
			CHECK_EQ(take_done(), 1);
		}
		CHECK(memcmp(client->src->addr, map->addr, 100) == 0);
		adma_channel_retire(client->channel, map);
		CHECK(status().buried_maps <= 5);
	}
	CHECK_EQ(counted().recycles, 3);
	CHECK_EQ(counted().restarts, 0);
	close_client();
}

ON_EACH_LIBRARY(test_an_error_of_clear_never_keeps_from_the_drain)
{
	open_client("engine=worker", 4, 5000);
	set("fault op=pe_clear_notification status=OPERATING_SYSTEM skip=2 interval=3 count=20");
	for (int round = 0; round < 100; round++) {
		struct pollfd pollfd = {.fd = adma_channel_fd(client->channel), .events = POLLIN};

		for (size_t i = 0; i < 50; i++) {
			start(i, i * 100, 100);
		}
		for (size_t done = 0; done < 50; done += take_done()) {
			if ((settle_turns() & ADMA_TURN_IDLE) == 0) {
				(void)poll(&pollfd, 1, 1000);
			}
		}
	}
	CHECK_EQ(counted().copies_completed, 5000);
	close_client();
}

static doca_error_t (*clear_notification)(struct doca_pe *, doca_notification_handle_t);

static doca_error_t
clear_and_complain(struct doca_pe *pe, doca_notification_handle_t handle)
{
	(void)clear_notification(pe, handle);
	return DOCA_ERROR_OPERATING_SYSTEM;
}

ON_EACH_LIBRARY(test_a_clear_that_complains_does_not_hide_completions)
{
	struct pollfd pollfd;

	/* The fd is silent afterwards: what finished is found in the same call or never. */
	open_client("engine=manual", 2, 200);
	pollfd = (struct pollfd){.fd = adma_channel_fd(client->channel), .events = POLLIN};
	clear_notification = client->lib->doca_pe_clear_notification;
	client->lib->doca_pe_clear_notification = clear_and_complain;
	start(0, 0, 100);
	(void)settle_turns();
	CHECK_EQ(step(1), 1);
	CHECK(poll(&pollfd, 1, 0) == 1);
	CHECK_EQ(adma_channel_readable(client->channel), ADMA_TURN_IDLE | ADMA_TURN_CLEAR_FAILED);
	CHECK_EQ(adma_channel_clear_code(client->channel), DOCA_ERROR_OPERATING_SYSTEM);
	CHECK_EQ(take_done(), 1);
	CHECK_EQ(counted().clear_errors, 1);
	client->lib->doca_pe_clear_notification = clear_notification;
	close_client();
}

ON_EACH_LIBRARY(test_nothing_is_replayed_after_a_driver_fault)
{
	open_client("engine=manual", 4, 400);
	set("fault op=completion status=DRIVER");
	for (size_t i = 0; i < 4; i++) {
		start(i, i * 100, 100);
	}
	(void)settle_turns();
	CHECK_EQ(step(8), 4);
	(void)settle_turns();
	CHECK_EQ(take_done(), 4);
	CHECK_EQ(client->copies[0].flushed, 0);
	CHECK_EQ(client->copies[0].code, DOCA_ERROR_DRIVER);
	CHECK_EQ(client->copies[3].flushed, 1);
	recycle(DOCA_SUCCESS);
	CHECK_EQ(counted().segments_replayed, 0);
	close_client();
}

ON_EACH_LIBRARY(test_close_reports_what_fails_and_goes_on)
{
	struct adma_failure failures[4];

	open_client("engine=default", 4, 100);
	set("fault op=ctx_stop status=DRIVER count=2"); /* a stop is tried three times */
	set("fault op=pe_destroy status=DRIVER");
	adma_channel_retire(client->channel, client->src);
	adma_channel_retire(client->channel, client->dst);
	adma_channel_park(client->channel);
	CHECK((settle_turns() & ADMA_TURN_PARKED) != 0);
	CHECK_EQ(adma_channel_close(client->channel, failures, 4), 1);
	CHECK(strcmp(failures[0].call, "doca_pe_destroy") == 0);
	CHECK_EQ(failures[0].code, DOCA_ERROR_DRIVER);
	CHECK_EQ(alive().ctxs, 0);
	CHECK_EQ(alive().inventories, 0);
	CHECK_EQ(alive().pes, 1);
	{
		/* Take the leak away, as only a test can. */
		OK(client->lib->doca_pe_destroy(client->channel->pe));
	}
	adma_channel_free(client->channel);
	OK(adma_device_close(client->device));
}

ON_EACH_LIBRARY(test_finalize_waits_for_a_while_then_leaks)
{
	open_client("engine=manual", 4, 100);
	start(0, 0, 100);
	(void)settle_turns();
	CHECK(!adma_channel_finalize(client->channel, 1000000)); /* 1 ms */
	CHECK_EQ(alive().in_flight, 1);
	CHECK_EQ(step(1), 1);
	adma_channel_retire(client->channel, client->src);
	adma_channel_retire(client->channel, client->dst);
	CHECK(adma_channel_finalize(client->channel, 1000000000));
	CHECK_EQ(take_done(), 1);
	adma_channel_free(client->channel);
	OK(adma_device_close(client->device));
}

ON_EACH_LIBRARY(test_each_step_of_opening_may_fail)
{
	static const char *const ops[] = {
		"pe_create",
		"pe_get_notification_handle",
		"dma_create",
		"dma_cap_get_max_num_tasks",
		"pe_connect_ctx",
		"ctx_set_user_data",
		"ctx_set_state_changed_cb",
		"dma_task_memcpy_set_conf",
		"ctx_start",
		"buf_inventory_create",
		"buf_inventory_start",
	};
	struct adma_channel_config config = {.num_tasks = 4};

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct adma_failure failure = {0};
		struct adma_channel *channel = NULL;
		char fault[128];

		OK(adma_device_open(client->lib, "0000:03:00.0", &client->device, &failure));
		snprintf(fault, sizeof(fault), "fault op=%s status=DRIVER", ops[i]);
		set(fault);
		CHECK_DOCA(adma_channel_open(client->device, &config, &channel, &failure),
			   DOCA_ERROR_DRIVER);
		CHECK(channel == NULL);
		CHECK(strcmp(failure.call + strlen("doca_"), ops[i]) == 0);
		OK(adma_device_close(client->device));
	}
}

ON_EACH_LIBRARY(test_a_turn_ends_when_its_budget_is_spent)
{
	size_t done;

	open_client("engine=default", 4, 100 * MAX_COPIES);
	client->channel->config.turn_budget_ns = 1;
	for (size_t i = 0; i < MAX_COPIES; i++) {
		start(i, i * 100, 100);
	}
	CHECK((adma_channel_turn(client->channel) & ADMA_TURN_AGAIN) != 0);
	done = take_done();
	CHECK(done > 0 && done < 100);
	while (done < MAX_COPIES) {
		(void)settle_turns();
		done += take_done();
	}
	CHECK(same(0, 100 * MAX_COPIES));
	close_client();
}

ON_EACH_LIBRARY(test_nothing_progresses_between_the_arm_and_the_event)
{
	uint64_t calls;

	/* In SELECTIVE; it would be of no use there, and may be a stall on a card. */
	open_client("engine=manual", 4, 200);
	start(0, 0, 100);
	(void)settle_turns();
	CHECK(status().armed);
	calls = count().progress_calls;
	start(1, 100, 100);
	(void)adma_channel_turn(client->channel);
	CHECK_EQ(count().submits, 2);
	if (client->which == 1) {
		CHECK_EQ(count().progress_calls, calls);
	}
	CHECK_EQ(step(2), 2);
	(void)settle_turns();
	CHECK_EQ(take_done(), 2);
	close_client();
}

ON_EACH_LIBRARY(test_the_window_shrinks_with_the_pool)
{
	open_client("engine=manual", 8, 800);
	CHECK_EQ(status().window, 8);
	adma_channel_park(client->channel);
	CHECK((settle_turns() & ADMA_TURN_PARKED) != 0);
	set("max_num_tasks=2");
	recycle(DOCA_SUCCESS);
	CHECK_EQ(status().num_tasks, 2);
	CHECK_EQ(status().window, 2);
	for (size_t i = 0; i < 8; i++) {
		start(i, i * 100, 100);
	}
	for (size_t done = 0; done < 8; done += take_done()) {
		(void)settle_turns();
		(void)step(8);
	}
	CHECK_EQ(counted().no_memory, 0);
	adma_channel_park(client->channel);
	CHECK((settle_turns() & ADMA_TURN_PARKED) != 0);
	set("max_num_tasks=6");
	recycle(DOCA_SUCCESS);
	CHECK_EQ(status().window, 6);
	close_client();
}

/* Whichever segments kept a task or bufs, all are given back before the context goes: also those beyond a smaller window. */
ON_EACH_LIBRARY(test_nothing_is_kept_beyond_a_smaller_window)
{
	open_client("engine=manual", 8, 800);
	for (size_t i = 0; i < 8; i++) {
		start(i, i * 100, 100);
	}
	(void)settle_turns();
	CHECK_EQ(step(8), 8);
	(void)settle_turns();
	CHECK_EQ(take_done(), 8);
	set("max_num_tasks=2");
	for (int i = 0; i < 2; i++) {
		adma_channel_park(client->channel);
		CHECK((settle_turns() & ADMA_TURN_PARKED) != 0);
		recycle(DOCA_SUCCESS);
		CHECK_EQ(alive().bufs, 0);
		CHECK_EQ(alive().tasks, 0);
		start(0, 0, 100); /* in the segment that ended last: the eighth */
		(void)settle_turns();
		CHECK_EQ(step(8), 1);
		(void)settle_turns();
		CHECK_EQ(take_done(), 1);
	}
	close_client();
}

/* More segments were flushed than the pool has tasks for since the restart. */
ON_EACH_LIBRARY(test_replay_with_a_smaller_pool)
{
	open_client("engine=manual", 8, 800);
	set("fault op=completion status=IO_FAILED");
	for (size_t i = 0; i < 8; i++) {
		start(i, i * 100, 100);
	}
	(void)settle_turns();
	CHECK_EQ(step(8), 8);
	CHECK((settle_turns() & ADMA_TURN_PARKED) != 0);
	CHECK_EQ(take_done(), 1);
	set("max_num_tasks=2");
	recycle(DOCA_SUCCESS);
	CHECK_EQ(status().window, 2);
	for (int i = 0; i < 7; i++) {
		(void)settle_turns();
		CHECK_EQ(step(8), 1);
	}
	(void)settle_turns();
	CHECK_EQ(take_done(), 7);
	CHECK(same(100, 700));
	close_client();
}

/* Nobody clears the notification of a parked channel: a loop would be woken again and again. */
ON_EACH_LIBRARY(test_a_parked_channel_wakes_nobody)
{
	struct pollfd pollfd = {.events = POLLIN};
	unsigned bits;

	open_client("engine=manual", 4, 100);
	pollfd.fd = adma_channel_fd(client->channel);
	start(0, 0, 100);
	(void)settle_turns();
	CHECK(status().armed);
	CHECK_EQ(step(1), 1);
	adma_channel_park(client->channel);
	bits = adma_channel_turn(client->channel); /* comes before the fd's reader */
	if (client->which == 1) {
		bits = adma_channel_readable(client->channel);
	}
	CHECK((bits & ADMA_TURN_PARKED) != 0);
	CHECK_EQ(poll(&pollfd, 1, 0), 0);
	CHECK_EQ(take_done(), 1);
	close_client();
}

/* The client learns of it twice: at the submit, and when DOCA lets go. */
ON_EACH_LIBRARY(test_a_pair_that_doca_refused_and_took_fails_once)
{
	struct adma_piece pieces[2];
	struct adma_plan plan = {.pieces = pieces, .num = 2, .count = 2, .independent = true};
	struct adma_copy *copy = &client->copies[0];

	open_client("engine=manual", 4, 200);
	for (int i = 0; i < 2; i++) {
		pieces[i] =
			(struct adma_piece){client->src, client->dst, client->src->addr + 100 * i,
					    client->dst->addr + 100 * i, 100};
	}
	set("fault op=completion status=IO_FAILED");
	set(client->which == 0 ? "fault op=task_submit_ex kind=accepted status=DRIVER"
			       : "fault op=task_submit kind=accepted status=DRIVER");
	adma_copy_init(copy, NULL, NULL, NULL, NULL, 200);
	copy->plan = &plan;
	adma_channel_start(client->channel, copy);
	(void)settle_turns();
	CHECK_EQ(plan.num_failures, 1);
	CHECK_EQ(step(8), 2);
	CHECK((settle_turns() & ADMA_TURN_PARKED) != 0);
	recycle(DOCA_SUCCESS);
	(void)settle_turns();
	CHECK_EQ(step(8), 1); /* the other pair, flushed */
	(void)settle_turns();
	CHECK_EQ(take_done(), 1);
	CHECK_EQ(plan.num_failures, 1);
	CHECK_EQ(plan.failures[0].index, 0);
	CHECK_EQ(plan.failures[0].code, DOCA_ERROR_DRIVER);
	CHECK(same(100, 100));
	adma_plan_finish(&plan);
	close_client();
}

ON_EACH_LIBRARY(test_doca_knows_the_least_permission)
{
	struct adma_copy *copy = &client->copies[0];

	/* Nothing above the channel keeps this copy from being started: DOCA refuses to write a source. */
	open_client("engine=default", 4, 100);
	adma_copy_init(copy, client->dst, client->dst->addr, client->src, client->src->addr, 100);
	adma_channel_start(client->channel, copy);
	while (copy->state != ADMA_COPY_ENDED) {
		if ((settle_turns() & ADMA_TURN_PARKED) != 0) {
			recycle(DOCA_SUCCESS);
		}
	}
	CHECK_EQ(take_done(), 1);
	CHECK_DOCA(copy->code, DOCA_ERROR_IO_FAILED);
	close_client();
}

ON_EACH_LIBRARY(test_a_turn_rings_the_doorbell_once)
{
	/* In SELECTIVE each submit rings: the calls to hold it back are experimental, too. */
	open_client("engine=manual", 4, 300);
	for (size_t i = 0; i < 3; i++) {
		start(i, i * 100, 100);
	}
	CHECK_EQ(count().doorbells, client->which == 0 ? 0 : 3);
	(void)adma_channel_turn(client->channel);
	CHECK_EQ(count().doorbells, client->which == 0 ? 1 : 3);
	CHECK_EQ(step(3), 3);
	(void)settle_turns();
	CHECK_EQ(take_done(), 3);
	close_client();
}

ON_EACH_LIBRARY(test_the_window_has_bytes_as_well_as_tasks)
{
	open_client("engine=manual", 8, 800);
	client->channel->config.window_bytes = 250;
	for (size_t i = 0; i < 8; i++) {
		start(i, i * 100, 100);
	}
	(void)settle_turns();
	CHECK_EQ(status().in_flight, 3); /* the third begins below the bound */
	CHECK_EQ(status().in_flight_bytes, 300);
	CHECK_EQ(step(1), 1);
	(void)settle_turns();
	CHECK_EQ(status().in_flight, 3);
	for (size_t done = take_done(); done < 8; done += take_done()) {
		(void)step(8);
		(void)settle_turns();
	}
	CHECK(same(0, 800));
	close_client();
}

TESTS(TEST(test_one_copy_finishes_at_once), TEST(test_kept_bufs_follow_the_copies),
      TEST(test_a_copy_is_cut_at_the_devices_limit),
      TEST(test_quanta_let_a_small_copy_pass_a_large_one),
      TEST(test_many_copies_in_order_through_a_small_window),
      TEST(test_a_completion_just_before_the_arm_is_found),
      TEST(test_no_wakeup_is_lost_on_the_strict_edge), TEST(test_backpressure_of_every_pool),
      TEST(test_starved_with_nothing_in_flight), TEST(test_cancel_waiting_and_in_flight),
      TEST(test_a_fault_flushes_and_the_flushed_are_replayed),
      TEST(test_a_cancelled_copy_is_not_replayed),
      TEST(test_a_peers_memory_is_read_and_never_written_twice),
      TEST(test_an_import_that_fails_leaves_nothing),
      TEST(test_a_context_that_cannot_be_made_is_lost),
      TEST(test_abandon_lets_go_of_what_doca_has_not),
      TEST(test_maps_outlive_the_context_that_knew_them),
      TEST(test_an_error_of_clear_never_keeps_from_the_drain),
      TEST(test_a_clear_that_complains_does_not_hide_completions),
      TEST(test_nothing_is_replayed_after_a_driver_fault),
      TEST(test_close_reports_what_fails_and_goes_on),
      TEST(test_finalize_waits_for_a_while_then_leaks), TEST(test_each_step_of_opening_may_fail),
      TEST(test_a_turn_ends_when_its_budget_is_spent),
      TEST(test_nothing_progresses_between_the_arm_and_the_event),
      TEST(test_the_window_shrinks_with_the_pool),
      TEST(test_nothing_is_kept_beyond_a_smaller_window), TEST(test_replay_with_a_smaller_pool),
      TEST(test_a_parked_channel_wakes_nobody),
      TEST(test_a_pair_that_doca_refused_and_took_fails_once),
      TEST(test_a_turn_rings_the_doorbell_once), TEST(test_the_window_has_bytes_as_well_as_tasks),
      TEST(test_doca_knows_the_least_permission));
