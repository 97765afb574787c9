/* SPDX-License-Identifier: Apache-2.0 */
/* The Python types of the copy path. fast.c is the only file of the shim with Python API. */
#ifndef ADMA_FAST_H
#define ADMA_FAST_H

/**
 * Put the types CopyFuture, Buffer and Channel into the module aiodocadma._fast, making the module if need be.
 * Calling it again changes nothing.
 *
 * @retval 0 they are there
 * @retval -1 they are not; why was written to sys.unraisablehook
 * Threads: any; takes the GIL itself.
 */
int
adma_fast_install(void);

#endif
