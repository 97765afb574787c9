/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bufs: references to a piece of an mmap, and lists of them.
 *
 * Bufs, like their inventory, belong to one thread at a time. What a task works on stays the
 * user's, who must neither touch nor drop it before the task's callback.
 */
#ifndef DOCA_BUF_H_
#define DOCA_BUF_H_

#include <stddef.h>
#include <stdint.h>

#include <doca_compat.h>
#include <doca_error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_buf;

/**
 * Take one more reference; the count before goes to `refcount` unless that is NULL.
 * @retval DOCA_ERROR_NOT_PERMITTED in a list and not its head
 * @retval DOCA_ERROR_TOO_BIG the counter is full
 */
DOCA_STABLE
doca_error_t
doca_buf_inc_refcount(struct doca_buf *buf, uint16_t *refcount);

/**
 * Drop a reference; the last one returns the buf, or the whole list, to its inventory.
 * The count before goes to `refcount` unless that is NULL.
 * @retval DOCA_ERROR_NOT_PERMITTED in a list and not its head
 * @retval DOCA_ERROR_BAD_STATE the count is already 0
 */
DOCA_STABLE
doca_error_t
doca_buf_dec_refcount(struct doca_buf *buf, uint16_t *refcount);

/** The number of references. */
DOCA_STABLE
doca_error_t
doca_buf_get_refcount(const struct doca_buf *buf, uint16_t *refcount);

/** Where the buf's memory begins. */
DOCA_STABLE
doca_error_t
doca_buf_get_head(const struct doca_buf *buf, void **head);

/** How much memory the buf spans. */
DOCA_STABLE
doca_error_t
doca_buf_get_len(const struct doca_buf *buf, size_t *len);

/** Where the data inside the buf begins. */
DOCA_STABLE
doca_error_t
doca_buf_get_data(const struct doca_buf *buf, void **data);

/** How many bytes of data the buf holds. */
DOCA_STABLE
doca_error_t
doca_buf_get_data_len(const struct doca_buf *buf, size_t *data_len);

/** Place the data; it must lie inside the buf (a violation otherwise). */
DOCA_STABLE
doca_error_t
doca_buf_set_data(struct doca_buf *buf, void *data, size_t data_len);

/** Set the length of the data, leaving its begin; it must lie inside the buf. */
DOCA_STABLE
doca_error_t
doca_buf_set_data_len(struct doca_buf *buf, size_t data_len);

/** Make the data empty, at the buf's begin. */
DOCA_STABLE
doca_error_t
doca_buf_reset_data_len(struct doca_buf *buf);

/**
 * Append list2 to list1 (heads both); afterwards only the head of list1 is counted.
 * @retval DOCA_ERROR_NOT_PERMITTED list2 has not exactly one reference
 */
DOCA_STABLE
doca_error_t
doca_buf_chain_list(struct doca_buf *list1, struct doca_buf *list2);

/**
 * Cut the list before list2, which becomes a head with one reference.
 * @retval DOCA_ERROR_INVALID_VALUE list2 is not in list1
 */
DOCA_STABLE
doca_error_t
doca_buf_unchain_list(struct doca_buf *list1, struct doca_buf *list2);

/** The element behind this one, NULL at the end. */
DOCA_STABLE
doca_error_t
doca_buf_get_next_in_list(struct doca_buf *buf, struct doca_buf **next_buf);

/**
 * The last element.
 * @retval DOCA_ERROR_INVALID_VALUE
 */
DOCA_STABLE
doca_error_t
doca_buf_get_last_in_list(struct doca_buf *buf, struct doca_buf **last_buf);

/** 1 for the last element of a list or a buf in no list. */
DOCA_STABLE
doca_error_t
doca_buf_is_last_in_list(const struct doca_buf *buf, uint8_t *is_last);

/** 1 for the head of a list or a buf in no list. */
DOCA_STABLE
doca_error_t
doca_buf_is_first_in_list(const struct doca_buf *buf, uint8_t *is_first);

/** 1 for a buf that is chained to another. */
DOCA_STABLE
doca_error_t
doca_buf_is_in_list(const struct doca_buf *buf, uint8_t *is_in_list);

/**
 * The number of elements, from the head.
 * @retval DOCA_ERROR_NOT_PERMITTED not a head
 */
DOCA_STABLE
doca_error_t
doca_buf_get_list_len(const struct doca_buf *buf, uint32_t *num_elements);

/** As doca_buf_chain_list, given the tail of list1 as well. */
DOCA_EXPERIMENTAL
doca_error_t
doca_buf_chain_list_tail(struct doca_buf *list1_head, struct doca_buf *list1_tail,
			 struct doca_buf *list2);

#ifdef __cplusplus
}
#endif

#endif /* DOCA_BUF_H_ */
