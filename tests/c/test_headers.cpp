/* SPDX-License-Identifier: Apache-2.0 */
/* Every header compiles as C++, alone and together, and links. */
#define DOCA_ALLOW_EXPERIMENTAL_API
#include <doca_pe.h>

#include <doca_argp.h>
#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_build_config.h>
#include <doca_common_defines.h>
#include <doca_compat.h>
#include <doca_config.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_error.h>
#include <doca_log.h>
#include <doca_mmap.h>
#include <doca_types.h>
#include <doca_version.h>
#include <docaemu.h>

DOCA_LOG_REGISTER(HEADERS::CPP)

int
main()
{
	struct doca_pe *pe = nullptr;

	static_assert(sizeof(union doca_data) == 8, "passed by value");
	static_assert(sizeof(enum doca_error) == 4, "an int");
	DOCA_LOG_INFO("%s", doca_version());
	if (doca_pe_create(&pe) != DOCA_SUCCESS || doca_pe_destroy(pe) != DOCA_SUCCESS) {
		return 1;
	}
	return docaemu_violations(nullptr, 0) == 0 ? 0 : 1;
}
