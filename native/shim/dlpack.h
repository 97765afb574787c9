/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The DLPack exchange structs, as far as we read them; declared from the layout that the C API of DLPack fixes. A
 * capsule named "dltensor" holds a struct dl_managed, one named "dltensor_versioned" a struct dl_managed_versioned;
 * whoever takes it renames the capsule and calls the deleter once.
 */
#ifndef ADMA_DLPACK_H
#define ADMA_DLPACK_H

#include <stdint.h>

#define DL_MAJOR_VERSION 1

enum dl_device_type {
	DL_CPU = 1,
	DL_CUDA = 2,
	DL_CUDA_HOST = 3, /* pinned host memory */
	DL_ROCM_HOST = 11,
};

enum dl_type_code {
	DL_INT = 0,
	DL_UINT = 1,
	DL_FLOAT = 2,
	DL_BOOL = 6,
};

enum dl_flags {
	DL_READ_ONLY = 1,
	DL_IS_COPIED = 2,
	DL_SUBBYTE_PADDED = 4, /* a type of less than a byte takes a byte */
};

struct dl_tensor {
	void *data;
	int32_t device_type;
	int32_t device_id;
	int32_t ndim;
	uint8_t code;
	uint8_t bits;
	uint16_t lanes;
	int64_t *shape;
	int64_t *strides; /* in elements; NULL: C-contiguous */
	uint64_t byte_offset;
};

struct dl_managed {
	struct dl_tensor tensor;
	void *context;
	void (*deleter)(struct dl_managed *self);
};

struct dl_managed_versioned {
	uint32_t major; /* of another major version only the deleter may be used */
	uint32_t minor;
	void *context;
	void (*deleter)(struct dl_managed_versioned *self);
	uint64_t flags;
	struct dl_tensor tensor;
};

#endif
