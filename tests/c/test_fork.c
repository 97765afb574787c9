/* SPDX-License-Identifier: Apache-2.0 */
/* Fork, the environment, and strict=abort: what needs a process of its own. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int
wait_for(pid_t child)
{
	int status;

	CHECK_EQ(waitpid(child, &status, 0), child);
	return status;
}

/*
 * Sanitizers have limits of their own at a fork: the run-time of gcc 12's ASan does not release
 * its allocator in the child when a thread that just started holds it, TSan cannot start threads
 * in the child. Without sanitizers neither is avoided.
 */
static void
wait_for_workers(const struct docaemu_counters *before)
{
#ifdef __SANITIZE_ADDRESS__
	while (counters().worker_sleeps < before->worker_sleeps + 4) {
		poll(NULL, 0, 1);
	}
#else
	(void)before;
#endif
}

static const char *
child_engine(const char *engine)
{
#ifdef __SANITIZE_THREAD__
	(void)engine;
	return "engine=manual";
#else
	return engine;
#endif
}

static void
test_fork_leaves_the_library_usable(void)
{
	static const char *const engines[] = {"engine=default", "engine=worker"};
	struct bed bed;

	for (size_t e = 0; e < 2; e++) {
		struct docaemu_counters before = counters();
		pid_t child;

		configure(engines[e]);
		bed_open(&bed, 8192, 16);
		bed_start(&bed);
		wait_for_workers(&before);
		for (size_t i = 0; i < 8; i++) {
			bed_submit(&bed, i, 0, 4096 + i * 8, 8);
		}
		child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			static struct bed fresh;
			struct docaemu_live alive;

			alive = live();
			CHECK_EQ(alive.pes + alive.mmaps + alive.tasks + alive.workers, 0);
			configure(child_engine(engines[e]));
			bed_open(&fresh, 8192, 16);
			CHECK(fresh.dev != bed.dev);
			bed_start(&fresh);
			for (size_t i = 0; i < 16; i++) {
				bed_submit(&fresh, i, 0, 4096 + i * 8, 8);
			}
			OK(docaemu_step(SIZE_MAX, DOCAEMU_ORDER_FIFO, NULL));
			bed_drain(&fresh);
			CHECK_EQ(fresh.num_ok, 16);
			bed_close(&fresh);
			_exit(0);
		}
		CHECK_EQ(wait_for(child), 0);
		bed_drain(&bed);
		CHECK_EQ(bed.num_ok, 8);
		bed_close(&bed);
	}
}

/* A child has counted nothing, neither objects nor what its parent did; how it is configured stays. */
static void
test_fork_begins_to_count(void)
{
	struct docaemu_counters now;
	struct docaemu_copy copies[1];
	struct doca_pe *pe;
	struct bed bed;
	size_t num;
	pid_t child;

	configure("version=7.0.1");
	for (int i = 0; i < 2; i++) {
		bed_open(&bed, 4096, 4);
		bed_start(&bed);
		bed_submit(&bed, 0, 0, 2048, 8);
		bed_drain(&bed);
		if (i == 0) {
			bed_close(&bed);
		}
	}
	OK(doca_pe_create(&pe));
	OK(doca_pe_destroy(pe));
	CHECK_DOCA(doca_pe_destroy(pe), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(counters().submits, 2);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		now = counters();
		for (size_t i = 0; i < sizeof(now) / sizeof(uint64_t); i++) {
			CHECK_EQ(((uint64_t *)&now)[i] * 1000 + i, i);
		}
		CHECK_EQ(docaemu_violations(NULL, 0), 0);
		OK(docaemu_last_copies(copies, 1, &num));
		CHECK_EQ(num, 0);
		CHECK(strcmp(doca_version_runtime(), "7.0.1") == 0);
		_exit(0);
	}
	CHECK_EQ(wait_for(child), 0);
	CHECK_EQ(counters().submits, 2);
	expect_violations(1, "it is freed");
	bed_close(&bed);
}

/* What the parent exported and imported can be destroyed in the child, which takes it from nobody. */
static void
test_fork_with_exports_and_imports(void)
{
	struct doca_mmap *imported;
	const void *desc;
	struct bed bed;
	pid_t child;
	size_t len;

	configure("devices=none\ndevice a\ndevice b");
	bed_open(&bed, 8192, 4);
	OK(doca_mmap_stop(bed.mmap));
	OK(doca_mmap_set_permissions(bed.mmap, DOCA_ACCESS_FLAG_PCI_READ_WRITE));
	OK(doca_mmap_start(bed.mmap));
	OK(doca_mmap_export_pci(bed.mmap, bed.dev, &desc, &len));
	{
		struct doca_dev *dev = open_dev("b");

		OK(doca_mmap_create_from_export(NULL, desc, len, dev, &imported));
		child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			OK(doca_mmap_destroy(imported));
			OK(doca_mmap_destroy(bed.mmap));
			_exit(0);
		}
		CHECK_EQ(wait_for(child), 0);
		OK(doca_mmap_destroy(imported));
		/* The parent still serves. */
		OK(doca_mmap_create_from_export(NULL, desc, len, dev, &imported));
		OK(doca_mmap_destroy(imported));
		OK(doca_dev_close(dev));
	}
	configure("export_stop=revoke");
	bed_close(&bed);
}

static void
test_strict_abort(void)
{
	char text[256] = "";
	int pipes[2];
	int status;
	pid_t child;

	CHECK_EQ(pipe(pipes), 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		const struct rlimit none = {0, 0};
		struct doca_pe *pe;

		setrlimit(RLIMIT_CORE, &none);
		signal(SIGABRT, SIG_DFL);
		dup2(pipes[1], STDERR_FILENO);
		configure("strict=abort");
		OK(doca_pe_create(&pe));
		OK(doca_pe_destroy(pe));
		doca_pe_destroy(pe);
		_exit(0);
	}
	close(pipes[1]);
	status = wait_for(child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	CHECK(read(pipes[0], text, sizeof(text) - 1) > 0);
	CHECK(strstr(text, "doca_pe_destroy: pe") != NULL);
	close(pipes[0]);
}

/* Run this program again with an environment; the test below sees the result. */
static int
run_again(const char *config, const char *file)
{
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		setenv("TEST_FORK_CHILD", "1", 1);
		if (config != NULL) {
			setenv("DOCAEMU_CONFIG", config, 1);
		}
		if (file != NULL) {
			setenv("DOCAEMU_CONFIG_FILE", file, 1);
		}
		execl("/proc/self/exe", "test_fork", "test_child_of_environment", NULL);
		_exit(127);
	}
	return WEXITSTATUS(wait_for(child));
}

/* A thread's first call: how many devices there are. */
static void *
first_call(void *num)
{
	struct doca_devinfo **list;

	if (doca_devinfo_create_list(&list, num) != DOCA_SUCCESS) {
		_exit(100);
	}
	return NULL;
}

/* While one thread reads the environment, which takes a while, no other goes on without it. */
static int
two_first_calls(const char *path)
{
	static const char text[] = "device a\ndevice b\n";
	pthread_t threads[2];
	uint32_t nums[2];
	int fd;

	pthread_create(&threads[0], NULL, first_call, &nums[0]);
	fd = open(path, O_WRONLY); /* waits for the reader */
	pthread_create(&threads[1], NULL, first_call, &nums[1]);
	poll(NULL, 0, 50);
	if (fd < 0 || write(fd, text, sizeof(text) - 1) < 0) {
		_exit(101);
	}
	close(fd);
	for (size_t i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
	}
	return (int)(nums[0] * 10 + nums[1]);
}

/* Before anything else touches the library: what the environment configured. */
__attribute__((constructor)) static void
child_of_environment(void)
{
	struct doca_devinfo **list;
	uint32_t num;

	if (getenv("TEST_FORK_CHILD") == NULL) {
		return;
	}
	if (getenv("TEST_FORK_FIFO") != NULL) {
		exit(two_first_calls(getenv("DOCAEMU_CONFIG_FILE")));
	}
	if (doca_devinfo_create_list(&list, &num) != DOCA_SUCCESS) {
		_exit(100);
	}
	exit((int)num * 10 + (doca_version_runtime()[0] - '0'));
}

static void
test_environment(void)
{
	char path[] = "/tmp/docaemu-test-XXXXXX";
	static const char content[] = "version=7.0.1\ndevice a\ndevice b\n";
	int fd = mkstemp(path);

	CHECK(fd >= 0);
	CHECK_EQ(write(fd, content, sizeof(content) - 1), sizeof(content) - 1);
	close(fd);
	CHECK_EQ(run_again(NULL, NULL), 13);
	CHECK_EQ(run_again("device x; device y; device z; version=2.9.1", NULL), 32);
	CHECK_EQ(run_again(NULL, path), 27);
	CHECK_EQ(run_again("version=4.0.0", path), 24);
	CHECK_EQ(run_again("nonsense", NULL), 13);
	CHECK_EQ(run_again(NULL, "/nonexistent/file"), 13);
	unlink(path);
}

static void
test_environment_that_takes_a_while(void)
{
	char folder[] = "/tmp/docaemu-test-XXXXXX";
	char path[64];

	CHECK(mkdtemp(folder) != NULL);
	snprintf(path, sizeof(path), "%s/config", folder);
	CHECK_EQ(mkfifo(path, 0600), 0);
	setenv("TEST_FORK_FIFO", "1", 1);
	CHECK_EQ(run_again(NULL, path), 22);
	unsetenv("TEST_FORK_FIFO");
	unlink(path);
	rmdir(folder);
}

/* What is no file is told, not taken for an empty one. */
static void
test_environment_that_cannot_be_read(void)
{
	static const char *const paths[] = {"/nonexistent/file", "/tmp"};

	for (size_t i = 0; i < 2; i++) {
		int saved = dup(STDERR_FILENO);
		char text[256] = "";
		int pipes[2];

		CHECK_EQ(pipe(pipes), 0);
		CHECK(saved >= 0 && dup2(pipes[1], STDERR_FILENO) >= 0);
		close(pipes[1]);
		CHECK_EQ(run_again(NULL, paths[i]), 13);
		CHECK(dup2(saved, STDERR_FILENO) >= 0);
		close(saved);
		CHECK(read(pipes[0], text, sizeof(text) - 1) >= 0);
		close(pipes[0]);
		CHECK(strstr(text, paths[i]) != NULL && strstr(text, "cannot be read") != NULL);
	}
}

TESTS(TEST(test_fork_leaves_the_library_usable), TEST(test_fork_begins_to_count),
      TEST(test_fork_with_exports_and_imports), TEST(test_strict_abort), TEST(test_environment),
      TEST(test_environment_that_takes_a_while), TEST(test_environment_that_cannot_be_read));
