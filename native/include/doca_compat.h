/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stability markers of the calls, and the C headers that programs get through any DOCA header.
 *
 * A call marked DOCA_EXPERIMENTAL warns at its use unless DOCA_ALLOW_EXPERIMENTAL_API is defined,
 * one marked DOCA_DEPRECATED unless DOCA_ALLOW_DEPRECATED_API is.
 */
#ifndef DOCA_COMPAT_H_
#define DOCA_COMPAT_H_

#include <doca_config.h>

#define DOCA_USED __attribute__((used))
#define DOCA_STABLE __attribute__((visibility("default"))) DOCA_USED

#ifdef DOCA_ALLOW_EXPERIMENTAL_API
#define DOCA_EXPERIMENTAL DOCA_STABLE
#else
#define DOCA_EXPERIMENTAL __attribute__((deprecated("this DOCA call is experimental"))) DOCA_STABLE
#endif

#ifdef DOCA_ALLOW_DEPRECATED_API
#define DOCA_DEPRECATED DOCA_STABLE
#else
#define DOCA_DEPRECATED __attribute__((deprecated("this DOCA call is deprecated"))) DOCA_STABLE
#endif

#ifdef DOCA_COMPAT_HELPERS

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <doca_version.h>

/* First member of a structure whose layout may grow: the version its user was built with. */
#define DOCA_STRUCT_START size_t __doca_api_version

#endif /* DOCA_COMPAT_HELPERS */

#endif /* DOCA_COMPAT_H_ */
