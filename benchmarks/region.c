/* SPDX-License-Identifier: Apache-2.0 */
/* Marks the region that callgrind counts; built by instructions.py. */
#include <valgrind/callgrind.h>

void
region_start(void);
void
region_stop(void);

void
region_start(void)
{
	CALLGRIND_START_INSTRUMENTATION;
	CALLGRIND_ZERO_STATS;
}

void
region_stop(void)
{
	CALLGRIND_DUMP_STATS;
	CALLGRIND_STOP_INSTRUMENTATION;
}
