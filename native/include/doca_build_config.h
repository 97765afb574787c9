/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this set of headers was made for.
 *
 * A DOCA package is made either for the host or for the card, and programs refuse to build for the
 * wrong one. The emulator is both sides at once, so both are defined.
 */
#ifndef DOCA_BUILD_CONFIG_H_
#define DOCA_BUILD_CONFIG_H_

#define DOCA_ARCH_HOST
#define DOCA_ARCH_DPU

#if defined(__aarch64__)
#define DOCA_ARCH_ARM
#else
#define DOCA_ARCH_X86
#endif

#define DOCA_ARCH_DPU_BF2 false

#endif /* DOCA_BUILD_CONFIG_H_ */
