/* SPDX-License-Identifier: Apache-2.0 */
/* doca_buf.h: bufs and lists of them. */
#include "emu.h"

static bool
is_head(const struct doca_buf *buf)
{
	return buf->prev == NULL;
}

static struct doca_buf *
list_last(struct doca_buf *head)
{
	return head->last != NULL ? head->last : head;
}

/* Report a change of a buf that a task is at work on, which knows the head of a list only. */
static void
check_in_flight(const char *func, const struct doca_buf *buf)
{
	const struct doca_buf *head = buf;

	while (!is_head(head)) {
		head = head->prev;
	}
	if (doca_unlikely(head->in_flight != 0)) {
		emu_violation(func, buf, EMU_MAGIC_BUF, "a task is in flight on it");
	}
}

/*
 * Return a head and its elements to their inventories; their magic says dead from now on. An element that
 * was chained while a task was at work on it follows when the task ends.
 */
void
emu_buf_release(struct doca_buf *head)
{
	while (head != NULL) {
		struct doca_buf *next = head->next;
		struct doca_buf_inventory *inventory = head->inventory;

		head->object.magic = EMU_MAGIC_BUF | EMU_DEAD;
		if (doca_unlikely(head->in_flight != 0)) {
			head->next = NULL;
			head->dropped = true;
			head = next;
			continue;
		}
		emu_mmap_put(head->mmap);
		head->refcount = 0;
		head->next = inventory->free_list;
		inventory->free_list = head;
		inventory->num_free++;
		emu_sub(&emu_stats.live_bufs, 1);
		head = next;
	}
}

doca_error_t
doca_buf_inc_refcount(struct doca_buf *buf, uint16_t *refcount)
{
	EMU_ENTER("buf_inc_refcount");
	EMU_CHECK(buf, EMU_MAGIC_BUF);
	if (!is_head(buf)) {
		return DOCA_ERROR_NOT_PERMITTED;
	}
	if (buf->refcount == UINT16_MAX) {
		return DOCA_ERROR_TOO_BIG;
	}
	if (refcount != NULL) {
		*refcount = buf->refcount;
	}
	buf->refcount++;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_dec_refcount(struct doca_buf *buf, uint16_t *refcount)
{
	EMU_ENTER("buf_dec_refcount");
	if (doca_unlikely(emu_is(buf, EMU_MAGIC_BUF | EMU_DEAD))) {
		emu_violation(__func__, buf, EMU_MAGIC_BUF, "it is freed already");
		return DOCA_ERROR_BAD_STATE;
	}
	EMU_CHECK(buf, EMU_MAGIC_BUF);
	if (!is_head(buf)) {
		return DOCA_ERROR_NOT_PERMITTED;
	}
	if (buf->refcount == 0) {
		emu_violation(__func__, buf, EMU_MAGIC_BUF, "its count is 0 already");
		return DOCA_ERROR_BAD_STATE;
	}
	if (refcount != NULL) {
		*refcount = buf->refcount;
	}
	if (--buf->refcount == 0) {
		if (doca_unlikely(buf->in_flight != 0)) {
			emu_violation(__func__, buf, EMU_MAGIC_BUF,
				      "the last reference went while a task is in flight on it");
			buf->dropped = true;
			buf->object.magic |= EMU_DEAD;
		} else {
			emu_buf_release(buf);
		}
	}
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_get_refcount(const struct doca_buf *buf, uint16_t *refcount)
{
	EMU_ENTER("buf_get_refcount");
	EMU_CHECK(buf, EMU_MAGIC_BUF);
	EMU_CHECK_OUT(refcount);
	*refcount = buf->refcount;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_get_head(const struct doca_buf *buf, void **head)
{
	EMU_ENTER("buf_get_head");
	EMU_CHECK(buf, EMU_MAGIC_BUF);
	EMU_CHECK_OUT(head);
	*head = buf->addr;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_get_len(const struct doca_buf *buf, size_t *len)
{
	EMU_ENTER("buf_get_len");
	EMU_CHECK(buf, EMU_MAGIC_BUF);
	EMU_CHECK_OUT(len);
	*len = buf->len;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_get_data(const struct doca_buf *buf, void **data)
{
	EMU_ENTER("buf_get_data");
	EMU_CHECK(buf, EMU_MAGIC_BUF);
	EMU_CHECK_OUT(data);
	*data = buf->data;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_get_data_len(const struct doca_buf *buf, size_t *data_len)
{
	EMU_ENTER("buf_get_data_len");
	EMU_CHECK(buf, EMU_MAGIC_BUF);
	EMU_CHECK_OUT(data_len);
	*data_len = buf->data_len;
	return DOCA_SUCCESS;
}

static inline bool
lies_inside(const struct doca_buf *buf, const uint8_t *data, size_t data_len)
{
	return data >= buf->addr && (size_t)(data - buf->addr) <= buf->len &&
	       data_len <= buf->len - (size_t)(data - buf->addr);
}

/* Whether [data, data+data_len) lies inside a buf; reports it if not. */
static bool
data_fits(const char *func, const struct doca_buf *buf, const uint8_t *data, size_t data_len)
{
	if (!lies_inside(buf, data, data_len)) {
		emu_violation(func, buf, EMU_MAGIC_BUF, "the data does not lie inside it");
		return false;
	}
	return true;
}

/* With all there is to say about it: whoever does it right needs no registers saved for that. */
EMU_COLD static doca_error_t
set_data_checked(const char *func, struct doca_buf *buf, void *data, size_t data_len)
{
	EMU_ENTER("buf_set_data");
	if (!emu_is(buf, EMU_MAGIC_BUF)) {
		return emu_bad_object(func, buf, EMU_MAGIC_BUF);
	}
	check_in_flight(func, buf);
	if (!data_fits(func, buf, data, data_len)) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	buf->data = data;
	buf->data_len = data_len;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_set_data(struct doca_buf *buf, void *data, size_t data_len)
{
	if (doca_unlikely(EMU_ENTER_IS_SLOW() || !emu_is(buf, EMU_MAGIC_BUF) ||
			  buf->in_flight != 0 || !is_head(buf) ||
			  !lies_inside(buf, data, data_len))) {
		return set_data_checked(__func__, buf, data, data_len);
	}
	buf->data = data;
	buf->data_len = data_len;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_set_data_len(struct doca_buf *buf, size_t data_len)
{
	EMU_ENTER("buf_set_data_len");
	EMU_CHECK(buf, EMU_MAGIC_BUF);
	check_in_flight(__func__, buf);
	if (!data_fits(__func__, buf, buf->data, data_len)) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	buf->data_len = data_len;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_reset_data_len(struct doca_buf *buf)
{
	EMU_ENTER("buf_reset_data_len");
	EMU_CHECK(buf, EMU_MAGIC_BUF);
	check_in_flight(__func__, buf);
	buf->data = buf->addr;
	buf->data_len = 0;
	return DOCA_SUCCESS;
}

static doca_error_t
chain(const char *func, struct doca_buf *list1, struct doca_buf *tail, struct doca_buf *list2)
{
	check_in_flight(func, list1);
	check_in_flight(func, list2);
	if (list1 == list2 || !is_head(list1) || !is_head(list2) || list2->refcount != 1) {
		return DOCA_ERROR_NOT_PERMITTED;
	}
	tail->next = list2;
	list2->prev = tail;
	list1->last = list_last(list2);
	list2->last = NULL;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_chain_list(struct doca_buf *list1, struct doca_buf *list2)
{
	EMU_ENTER("buf_chain_list");
	EMU_CHECK(list1, EMU_MAGIC_BUF);
	EMU_CHECK(list2, EMU_MAGIC_BUF);
	return chain(__func__, list1, list_last(list1), list2);
}

doca_error_t
doca_buf_chain_list_tail(struct doca_buf *list1_head, struct doca_buf *list1_tail,
			 struct doca_buf *list2)
{
	EMU_ENTER("buf_chain_list_tail");
	EMU_CHECK(list1_head, EMU_MAGIC_BUF);
	EMU_CHECK(list1_tail, EMU_MAGIC_BUF);
	EMU_CHECK(list2, EMU_MAGIC_BUF);
	if (!is_head(list1_head) || list_last(list1_head) != list1_tail) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	return chain(__func__, list1_head, list1_tail, list2);
}

doca_error_t
doca_buf_unchain_list(struct doca_buf *list1, struct doca_buf *list2)
{
	struct doca_buf *element;
	struct doca_buf *last;

	EMU_ENTER("buf_unchain_list");
	EMU_CHECK(list1, EMU_MAGIC_BUF);
	EMU_CHECK(list2, EMU_MAGIC_BUF);
	check_in_flight(__func__, list1);
	if (!is_head(list1) || list1 == list2) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	for (element = list1->next; element != NULL && element != list2; element = element->next) {
	}
	if (element == NULL) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	last = list_last(list1);
	list1->last = list2->prev != list1 ? list2->prev : NULL;
	list2->prev->next = NULL;
	list2->prev = NULL;
	list2->last = last != list2 ? last : NULL;
	list2->refcount = 1;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_get_next_in_list(struct doca_buf *buf, struct doca_buf **next_buf)
{
	EMU_ENTER("buf_get_next_in_list");
	EMU_CHECK(buf, EMU_MAGIC_BUF);
	EMU_CHECK_OUT(next_buf);
	*next_buf = buf->next;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_get_last_in_list(struct doca_buf *buf, struct doca_buf **last_buf)
{
	EMU_ENTER("buf_get_last_in_list");
	EMU_CHECK(buf, EMU_MAGIC_BUF);
	EMU_CHECK_OUT(last_buf);
	if (is_head(buf)) {
		buf = list_last(buf);
	}
	while (buf->next != NULL) {
		buf = buf->next;
	}
	*last_buf = buf;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_is_last_in_list(const struct doca_buf *buf, uint8_t *is_last)
{
	EMU_ENTER("buf_is_last_in_list");
	EMU_CHECK(buf, EMU_MAGIC_BUF);
	EMU_CHECK_OUT(is_last);
	*is_last = buf->next == NULL;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_is_first_in_list(const struct doca_buf *buf, uint8_t *is_first)
{
	EMU_ENTER("buf_is_first_in_list");
	EMU_CHECK(buf, EMU_MAGIC_BUF);
	EMU_CHECK_OUT(is_first);
	*is_first = is_head(buf);
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_is_in_list(const struct doca_buf *buf, uint8_t *is_in_list)
{
	EMU_ENTER("buf_is_in_list");
	EMU_CHECK(buf, EMU_MAGIC_BUF);
	EMU_CHECK_OUT(is_in_list);
	*is_in_list = buf->next != NULL || buf->prev != NULL;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_get_list_len(const struct doca_buf *buf, uint32_t *num_elements)
{
	uint32_t num = 0;

	EMU_ENTER("buf_get_list_len");
	EMU_CHECK(buf, EMU_MAGIC_BUF);
	EMU_CHECK_OUT(num_elements);
	if (!is_head(buf)) {
		return DOCA_ERROR_NOT_PERMITTED;
	}
	for (; buf != NULL; buf = buf->next) {
		num++;
	}
	*num_elements = num;
	return DOCA_SUCCESS;
}
