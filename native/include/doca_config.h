/* SPDX-License-Identifier: Apache-2.0 */
/* Build-time switches of the headers. */
#ifndef DOCA_CONFIG_H_
#define DOCA_CONFIG_H_

#include <doca_build_config.h>

/* doca_compat.h brings the C headers and helpers that programs rely on. */
#define DOCA_COMPAT_HELPERS

#endif /* DOCA_CONFIG_H_ */
