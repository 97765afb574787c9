/* SPDX-License-Identifier: Apache-2.0 */
/* Host and DPU as two processes: this program runs itself again as the exporter. */
#define _GNU_SOURCE
#include "peers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SIZE (1u << 20)

struct exporter {
	pid_t pid;
	int to;
	int from;
	uint8_t desc[512];
	size_t desc_len;
};

static const uint32_t read_write =
	DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_PCI_READ_WRITE;

/* ---- the exporter: one letter in, one out ---- */

/* Have no calls that copy between processes, as in a sandbox, or under an emulator of machines. */
static void
forbid_process_vm(int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void
exporter_main(void)
{
	uint32_t permissions =
		getenv("TEST_PEER_READ_ONLY") != NULL ? DOCA_ACCESS_FLAG_PCI_READ_ONLY : read_write;
	struct exported exported;
	char command;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getenv("TEST_PEER_NO_VM") != NULL) {
		forbid_process_vm(atoi(getenv("TEST_PEER_NO_VM")));
	}
	if (getenv("TEST_PEER_AT") != NULL) {
		export_at = (void *)(uintptr_t)strtoull(getenv("TEST_PEER_AT"), NULL, 16);
	}
	export_open(&exported, NULL, SIZE, permissions);
	CHECK_EQ(write(STDOUT_FILENO, exported.desc, exported.desc_len), exported.desc_len);
	while (read(STDIN_FILENO, &command, 1) == 1) {
		switch (command) {
		case 'u': /* behind the map's back */
			munmap(exported.memory, SIZE);
			exported.memory = NULL;
			break;
		case 'r':
			OK(docaemu_revoke_exports());
			break;
		case 'f': /* a child that lives on must not keep clients waiting */
			if (fork() == 0) {
				prctl(PR_SET_PDEATHSIG, 0);
				close(STDIN_FILENO);
				close(STDOUT_FILENO);
				close(STDERR_FILENO);
				poll(NULL, 0, 3000);
				_exit(0);
			}
			break;
		case 'c': /* is 0xee in the memory? */
			command = exported.memory[0] == 0xee ? 'y' : 'n';
			break;
		default:
			break;
		}
		CHECK_EQ(write(STDOUT_FILENO, &command, 1), 1);
	}
	export_close(&exported);
	_exit(0);
}

__attribute__((constructor)) static void
exporter_role(void)
{
	if (getenv("TEST_PEER_EXPORTER") != NULL) {
		exporter_main();
	}
}

/* ---- starting it ---- */

static void
exporter_start_as(struct exporter *exporter, uid_t uid, bool read_only, const char *config)
{
	struct pollfd pollfd = {.events = POLLIN};
	int to[2];
	int from[2];
	ssize_t got;

	CHECK_EQ(pipe2(to, O_CLOEXEC), 0);
	CHECK_EQ(pipe2(from, O_CLOEXEC), 0);
	exporter->pid = fork();
	CHECK(exporter->pid >= 0);
	if (exporter->pid == 0) {
		dup2(to[0], STDIN_FILENO);
		dup2(from[1], STDOUT_FILENO);
		setenv("TEST_PEER_EXPORTER", "1", 1);
		if (read_only) {
			setenv("TEST_PEER_READ_ONLY", "1", 1);
		}
		if (config != NULL) {
			setenv("DOCAEMU_CONFIG", config, 1);
		}
		if (uid != 0 && setuid(uid) != 0) {
			_exit(126);
		}
		execl("/proc/self/exe", "exporter", NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	exporter->to = to[1];
	exporter->from = from[0];
	pollfd.fd = from[0];
	CHECK_EQ(poll(&pollfd, 1, 20000), 1);
	got = read(from[0], exporter->desc, sizeof(exporter->desc));
	CHECK(got > 0);
	exporter->desc_len = (size_t)got;
}

static void
exporter_start(struct exporter *exporter)
{
	exporter_start_as(exporter, 0, false, NULL);
}

static char
exporter_command(struct exporter *exporter, char command)
{
	CHECK_EQ(write(exporter->to, &command, 1), 1);
	CHECK_EQ(read(exporter->from, &command, 1), 1);
	return command;
}

static void
exporter_end(struct exporter *exporter, int signal)
{
	int status;

	if (signal != 0) {
		kill(exporter->pid, signal);
	}
	close(exporter->to);
	close(exporter->from);
	CHECK_EQ(waitpid(exporter->pid, &status, 0), exporter->pid);
	CHECK_EQ(signal != 0 ? WTERMSIG(status) : status, signal);
}

static uintptr_t
exporter_base(const struct exporter *exporter)
{
	struct emu_descriptor descriptor;

	CHECK(emu_descriptor_parse(exporter->desc, exporter->desc_len, &descriptor));
	return (uintptr_t)descriptor.base;
}

static struct doca_mmap *
import_from(struct bed *bed, const struct exporter *exporter)
{
	struct doca_mmap *imported;

	OK(doca_mmap_create_from_export(NULL, exporter->desc, exporter->desc_len, bed->dev,
					&imported));
	return imported;
}

static uint64_t
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void
open_bed(struct bed *bed, uint32_t num_tasks)
{
	configure("map_lifetime=bufs");
	bed_open(bed, 4 << 20, num_tasks);
	bed_start(bed);
}

static bool
is_pattern(const uint8_t *memory, size_t offset, size_t len)
{
	static uint8_t expected[SIZE];

	fill(expected, SIZE, 7);
	return memcmp(memory, expected + offset, len) == 0;
}

/* ---- tests ---- */

static void
test_pull_and_push(void)
{
	static const char *const engines[] = {"engine=default", "engine=worker", "engine=manual"};

	for (size_t e = 0; e < 3; e++) {
		struct exporter exporter;
		struct doca_mmap *imported;
		struct bed bed;

		configure(engines[e]);
		open_bed(&bed, 16);
		exporter_start(&exporter);
		imported = import_from(&bed, &exporter);
		OK(import_one(&bed, imported, false, 100, exporter_base(&exporter) + 7, 99999));
		CHECK(is_pattern(bed.memory + 100, 7, 99999));
		memset(bed.memory, 0xee, 64);
		OK(import_one(&bed, imported, true, 0, exporter_base(&exporter), 64));
		CHECK_EQ(exporter_command(&exporter, 'c'), 'y');
		exporter_end(&exporter, 0);
		CHECK_DOCA(import_one(&bed, imported, false, 0, exporter_base(&exporter), 64),
			   DOCA_ERROR_IO_FAILED);
		OK(doca_mmap_destroy(imported));
		bed_close(&bed);
	}
}

static void
copy_imported(struct bed *bed, struct doca_mmap *from, uintptr_t src, struct doca_mmap *to,
	      uintptr_t dst, size_t len)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = 0};
	struct doca_buf *src_buf;
	struct doca_buf *dst_buf;

	OK(doca_buf_inventory_buf_get_by_data(bed->inventory, from, (void *)src, len, &src_buf));
	OK(doca_buf_inventory_buf_get_by_addr(bed->inventory, to, (void *)dst, len, &dst_buf));
	OK(doca_dma_task_memcpy_alloc_init(bed->dma, src_buf, dst_buf, data, &task));
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
	bed_drain(bed);
	CHECK_EQ(bed->num_error, 0);
}

/* An address of one exporter is none of another's, and one of this process is none of theirs. */
static void
test_4_6_6_overlap_is_within_one_memory(void)
{
	struct exporter exporters[2];
	struct doca_mmap *imported[2];
	struct doca_mmap *again;
	struct bed bed;
	uintptr_t base;
	char at[20];

	open_bed(&bed, 4);
	exporter_start(&exporters[0]);
	base = exporter_base(&exporters[0]);
	snprintf(at, sizeof(at), "%llx", (unsigned long long)base);
	setenv("TEST_PEER_AT", at, 1);
	exporter_start(&exporters[1]);
	unsetenv("TEST_PEER_AT");
	CHECK_EQ(exporter_base(&exporters[1]), base);
	imported[0] = import_from(&bed, &exporters[0]);
	imported[1] = import_from(&bed, &exporters[1]);
	again = import_from(&bed, &exporters[0]);
	memset(bed.memory, 0xee, 64);
	copy_imported(&bed, bed.mmap, (uintptr_t)bed.memory, imported[0], base, 64);
	copy_imported(&bed, imported[0], base, imported[1], base, 64);
	expect_violations(0, NULL);
	CHECK_EQ(exporter_command(&exporters[1], 'c'), 'y');
	copy_imported(&bed, imported[0], base, imported[0], base + 63, 64);
	expect_violations(1, "overlap");
	copy_imported(&bed, imported[0], base, again, base + 63, 64);
	expect_violations(1, "overlap");
	copy_imported(&bed, imported[0], base, again, base + 64, 64);
	expect_violations(0, NULL);
	OK(doca_mmap_destroy(again));
	for (size_t i = 0; i < 2; i++) {
		OK(doca_mmap_destroy(imported[i]));
		exporter_end(&exporters[i], 0);
	}
	bed_close(&bed);
}

/* Neither the address range nor the memory of the exporter appears in this process. */
static void
test_the_importer_maps_nothing_of_the_exporter(void)
{
	struct exporter exporter;
	struct doca_mmap *imported;
	struct bed bed;
	char line[512];
	size_t stagings = 0;
	uintptr_t base;
	FILE *maps;

	open_bed(&bed, 4);
	exporter_start(&exporter);
	base = exporter_base(&exporter);
	imported = import_from(&bed, &exporter);
	OK(import_one(&bed, imported, false, 0, base, SIZE));
	maps = fopen("/proc/self/maps", "re");
	CHECK(maps != NULL);
	while (fgets(line, sizeof(line), maps) != NULL) {
		unsigned long begin;
		unsigned long end;
		char flags[8];

		CHECK_EQ(sscanf(line, "%lx-%lx %7s", &begin, &end, flags), 3);
		if (flags[3] == 's') {
			/* The one shared mapping is the staging, of its own size. */
			CHECK(strstr(line, "memfd:docaemu-staging") != NULL);
			CHECK_EQ(end - begin, EMU_PEER_CONTROL + EMU_PEER_DATA);
			stagings++;
		}
	}
	fclose(maps);
	CHECK_EQ(stagings, 1);
	OK(doca_mmap_destroy(imported));
	exporter_end(&exporter, 0);
	bed_close(&bed);
}

static void
test_killed_amid_a_thousand_copies(void)
{
	static const char *const engines[] = {"engine=default", "engine=worker"};

	for (size_t e = 0; e < 2; e++) {
		struct exporter exporter;
		struct doca_mmap *imported;
		struct bed bed;
		uintptr_t base;

		configure(engines[e]);
		open_bed(&bed, 1000);
		exporter_start(&exporter);
		base = exporter_base(&exporter);
		imported = import_from(&bed, &exporter);
		memset(bed.memory, 0, bed.size);
		for (size_t i = 0; i < 1000; i++) {
			import_copy(&bed, imported, false, i, i * 4096,
				    base + i * 1024 % (SIZE / 2), 4096);
		}
		while (bed.num_ok < 100) {
			bed_progress(&bed);
			CHECK_EQ(bed.num_error, 0);
		}
		exporter_end(&exporter, SIGKILL);
		bed_drain(&bed);
		printf("  %zu with data, %zu with an error\n", bed.num_ok, bed.num_error);
		CHECK_EQ(bed.num_ok + bed.num_error, 1000);
		for (size_t i = 0; i < 1000; i++) {
			if (bed.status[i] == DOCA_SUCCESS) {
				CHECK(is_pattern(bed.memory + bed.order[i] * 4096,
						 bed.order[i] * 1024 % (SIZE / 2), 4096));
			} else {
				CHECK_EQ(bed.status[i], DOCA_ERROR_IO_FAILED);
			}
		}
		OK(doca_mmap_destroy(imported));
		/* The importer goes on, with its own memory and another exporter. */
		bed.num_ok = 0;
		bed.num_error = 0;
		import_restart(&bed);
		exporter_start(&exporter);
		imported = import_from(&bed, &exporter);
		OK(import_one(&bed, imported, false, 0, exporter_base(&exporter), 4096));
		CHECK(is_pattern(bed.memory, 0, 4096));
		bed_submit(&bed, 0, 0, 8192, 4096);
		bed_drain(&bed);
		CHECK(is_pattern(bed.memory + 8192, 0, 4096));
		OK(doca_mmap_destroy(imported));
		exporter_end(&exporter, 0);
		bed_close(&bed);
	}
}

static void
test_frozen(void)
{
	struct exporter exporter;
	struct doca_mmap *imported;
	struct doca_mmap *other;
	struct bed bed;
	uint64_t begin;
	uintptr_t base;
	int status;

	configure("peer_timeout=200");
	open_bed(&bed, 64);
	exporter_start(&exporter);
	base = exporter_base(&exporter);
	imported = import_from(&bed, &exporter);
	memset(bed.memory, 0xee, 4096);
	OK(import_one(&bed, imported, false, 4096, base, 64));
	kill(exporter.pid, SIGSTOP);
	CHECK_EQ(waitpid(exporter.pid, &status, WUNTRACED), exporter.pid);
	begin = now_ms();
	for (size_t i = 0; i < 32; i++) {
		import_copy(&bed, imported, i % 2 == 0, i, 0, base, 64);
	}
	bed_drain(&bed);
	CHECK_EQ(bed.num_error, 32);
	printf("  32 copies failed after %llu ms\n", (unsigned long long)(now_ms() - begin));
	CHECK(now_ms() - begin >= 200 && now_ms() - begin < 5000);
	CHECK_DOCA(doca_mmap_create_from_export(NULL, exporter.desc, exporter.desc_len, bed.dev,
						&other),
		   DOCA_ERROR_DRIVER);
	/* Awake again it serves new copies, and none of those that were given up. */
	kill(exporter.pid, SIGCONT);
	import_restart(&bed);
	bed.num_error = 0;
	CHECK_EQ(exporter_command(&exporter, 'c'), 'n');
	OK(import_one(&bed, imported, false, 0, base, 4096));
	CHECK(is_pattern(bed.memory, 0, 4096));
	CHECK_EQ(exporter_command(&exporter, 'c'), 'n');
	OK(doca_mmap_destroy(imported));
	exporter_end(&exporter, 0);
	bed_close(&bed);
}

static void
test_unmapped_and_revoked(void)
{
	static const char commands[] = {'u', 'r'};

	for (size_t i = 0; i < 2; i++) {
		struct exporter exporter;
		struct doca_mmap *imported;
		struct bed bed;

		open_bed(&bed, 4);
		exporter_start(&exporter);
		imported = import_from(&bed, &exporter);
		OK(import_one(&bed, imported, false, 0, exporter_base(&exporter), 64));
		exporter_command(&exporter, commands[i]);
		CHECK_DOCA(import_one(&bed, imported, false, 0, exporter_base(&exporter), 64),
			   DOCA_ERROR_IO_FAILED);
		CHECK_DOCA(import_one(&bed, imported, true, 0, exporter_base(&exporter), 64),
			   DOCA_ERROR_IO_FAILED);
		OK(doca_mmap_destroy(imported));
		exporter_end(&exporter, 0);
		bed_close(&bed);
	}
}

/* A child of the exporter has none of its sockets: the end of the exporter is seen at once. */
static void
test_fork_of_the_exporter(void)
{
	struct exporter exporter;
	struct doca_mmap *imported;
	struct bed bed;
	uint64_t begin;

	configure("peer_timeout=2000");
	open_bed(&bed, 4);
	exporter_start(&exporter);
	imported = import_from(&bed, &exporter);
	OK(import_one(&bed, imported, false, 0, exporter_base(&exporter), 64));
	exporter_command(&exporter, 'f');
	OK(import_one(&bed, imported, false, 0, exporter_base(&exporter), 64));
	exporter_end(&exporter, SIGKILL);
	begin = now_ms();
	CHECK_DOCA(import_one(&bed, imported, false, 0, exporter_base(&exporter), 64),
		   DOCA_ERROR_IO_FAILED);
	CHECK(now_ms() - begin < 1500);
	OK(doca_mmap_destroy(imported));
	bed_close(&bed);
}

/* A child of the importer starts with nothing, and can import for itself. */
static void
test_fork_of_the_importer(void)
{
	struct exporter exporter;
	struct doca_mmap *imported;
	struct bed bed;
	int status;
	pid_t child;

	open_bed(&bed, 4);
	exporter_start(&exporter);
	imported = import_from(&bed, &exporter);
	OK(import_one(&bed, imported, false, 0, exporter_base(&exporter), 64));
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		static struct bed own;

		CHECK_EQ(live().imports, 0);
		configure("engine=manual map_lifetime=bufs");
		bed_open(&own, SIZE, 4);
		bed_start(&own);
		imported = import_from(&own, &exporter);
		OK(import_one(&own, imported, false, 0, exporter_base(&exporter), 4096));
		CHECK(is_pattern(own.memory, 0, 4096));
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	OK(import_one(&bed, imported, false, 0, exporter_base(&exporter), 64));
	OK(doca_mmap_destroy(imported));
	exporter_end(&exporter, 0);
	bed_close(&bed);
}

static void
test_users(void)
{
	struct exporter exporter;
	struct doca_mmap *imported;
	struct bed bed;

	if (geteuid() != 0) {
		printf("  skipped: only root can be another user\n");
		return;
	}
	/* Root may import from anybody only where anybody may be imported from. */
	open_bed(&bed, 4);
	exporter_start_as(&exporter, 65534, false, NULL);
	CHECK_DOCA(doca_mmap_create_from_export(NULL, exporter.desc, exporter.desc_len, bed.dev,
						&imported),
		   DOCA_ERROR_NOT_PERMITTED);
	configure("peer_users=any");
	imported = import_from(&bed, &exporter);
	OK(import_one(&bed, imported, false, 0, exporter_base(&exporter), 64));
	OK(doca_mmap_destroy(imported));
	exporter_end(&exporter, 0);
	/* Another user than the exporter's, which is root, asks. */
	for (int any = 0; any < 2; any++) {
		pid_t child;
		int status;

		exporter_start_as(&exporter, 0, false, any ? "peer_users=any" : NULL);
		child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			struct doca_dev *dev;
			doca_error_t result;

			CHECK_EQ(setuid(65534), 0);
			dev = open_dev(NULL);
			result = doca_mmap_create_from_export(NULL, exporter.desc,
							      exporter.desc_len, dev, &imported);
			_exit((int)result);
		}
		CHECK_EQ(waitpid(child, &status, 0), child);
		CHECK_EQ(WEXITSTATUS(status), any ? DOCA_SUCCESS : DOCA_ERROR_NOT_PERMITTED);
		exporter_end(&exporter, 0);
	}
	bed_close(&bed);
}

/* Where the kernel does not know, or not allow, the calls that copy between processes. */
static void
test_without_calls_between_processes(void)
{
	const int errors[] = {ENOSYS, EPERM};

	for (size_t i = 0; i < 2; i++) {
		struct exporter exporter;
		struct doca_mmap *imported;
		struct bed bed;
		uintptr_t base;
		char error[8];

		open_bed(&bed, 4);
		snprintf(error, sizeof(error), "%d", errors[i]);
		setenv("TEST_PEER_NO_VM", error, 1);
		exporter_start(&exporter);
		unsetenv("TEST_PEER_NO_VM");
		base = exporter_base(&exporter);
		imported = import_from(&bed, &exporter);
		OK(import_one(&bed, imported, false, 1, base + 7, SIZE - 7));
		CHECK(is_pattern(bed.memory + 1, 7, SIZE - 7));
		memset(bed.memory, 0xee, SIZE);
		OK(import_one(&bed, imported, true, 0, base, SIZE));
		CHECK_EQ(exporter_command(&exporter, 'c'), 'y');
		memset(bed.memory, 0, SIZE);
		OK(import_one(&bed, imported, false, 0, base, SIZE));
		CHECK(bed.memory[0] == 0xee && memcmp(bed.memory, bed.memory + 1, SIZE - 1) == 0);
		exporter_command(&exporter, 'u');
		for (int push = 0; push < 2; push++) {
			CHECK_DOCA(import_one(&bed, imported, push != 0, 0, base, 64),
				   DOCA_ERROR_IO_FAILED);
		}
		OK(doca_mmap_destroy(imported));
		exporter_end(&exporter, 0);
		bed_close(&bed);
	}
}

/* Without the right to trace others, and as a process that nobody may trace. */
static void
test_no_ptrace_is_needed(void)
{
	struct exporter exporter;
	struct doca_mmap *imported;
	struct bed bed;

	open_bed(&bed, 4);
	CHECK_EQ(prctl(PR_SET_DUMPABLE, 0), 0);
	exporter_start_as(&exporter, geteuid() == 0 ? 65534 : 0, true, "peer_users=any");
	configure("peer_users=any");
	imported = import_from(&bed, &exporter);
	OK(import_one(&bed, imported, false, 0, exporter_base(&exporter), SIZE));
	CHECK(is_pattern(bed.memory, 0, SIZE));
	CHECK_DOCA(import_one(&bed, imported, true, 0, exporter_base(&exporter), 64),
		   DOCA_ERROR_IO_FAILED);
	prctl(PR_SET_DUMPABLE, 1);
	OK(doca_mmap_destroy(imported));
	exporter_end(&exporter, 0);
	bed_close(&bed);
}

TESTS(TEST(test_pull_and_push), TEST(test_4_6_6_overlap_is_within_one_memory),
      TEST(test_the_importer_maps_nothing_of_the_exporter),
      TEST(test_killed_amid_a_thousand_copies), TEST(test_frozen), TEST(test_unmapped_and_revoked),
      TEST(test_fork_of_the_exporter), TEST(test_fork_of_the_importer), TEST(test_users),
      TEST(test_without_calls_between_processes), TEST(test_no_ptrace_is_needed));
