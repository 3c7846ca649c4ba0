/* SPDX-License-Identifier: MIT */
#include "perf_sweep.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "options.h"

/*
 * Lists
 */

static int add_list_value(struct perf_list *list, uint64_t value)
{
	if (list->count == PERF_LIST_MAX)
		return -EINVAL;
	list->value[list->count++] = value;
	return 0;
}

/* From first to last, multiplied or added to at each step; the last is always there. */
static int add_range(struct perf_list *list, uint64_t first, uint64_t last,
		     uint64_t factor, uint64_t step)
{
	if (first > last || (!step && (factor < 2 || !first)))
		return -EINVAL;
	for (uint64_t value = first; value < last;) {
		if (add_list_value(list, value))
			return -EINVAL;
		if (step ? value > UINT64_MAX - step : value > UINT64_MAX / factor)
			break;
		value = step ? value + step : value * factor;
	}
	return add_list_value(list, last);
}

/* "64", "1-8", "64-1m*4", "10-50+10" */
static int add_item(struct perf_list *list, char *item)
{
	uint64_t first, last, by = 2;
	char *dash = strchr(item, '-'), *step;
	char sign = '*';

	if (!dash)
		return options_number(item, &first) ? -EINVAL
						    : add_list_value(list, first);
	*dash++ = 0;
	step = strpbrk(dash, "*+");
	if (step) {
		sign = *step;
		*step++ = 0;
		if (options_number(step, &by) || !by)
			return -EINVAL;
	}
	if (options_number(item, &first) || options_number(dash, &last))
		return -EINVAL;
	return add_range(list, first, last, sign == '*' ? by : 0, sign == '+' ? by : 0);
}

static int each_item(const char *text, int (*take)(void *arg, char *item), void *arg)
{
	char item[64];

	for (;;) {
		size_t length = strcspn(text, ",");

		if (!length || length >= sizeof(item))
			return -EINVAL;
		memcpy(item, text, length);
		item[length] = 0;
		if (take(arg, item))
			return -EINVAL;
		if (!text[length])
			return 0;
		text += length + 1;
	}
}

static int take_number(void *arg, char *item)
{
	return add_item(arg, item);
}

int perf_list_parse(const char *text, struct perf_list *list)
{
	list->count = 0;
	return each_item(text, take_number, list);
}

struct words {
	const char *(*name)(unsigned);
	unsigned last;
	struct perf_list *list;
};

static int take_word(void *arg, char *item)
{
	struct words *words = arg;
	bool found = false;

	for (unsigned i = 1; i <= words->last; i++) {
		if (strcmp(item, words->name(i)) && strcmp(item, "all"))
			continue;
		found = true;
		if (add_list_value(words->list, i))
			return -EINVAL;
	}
	return found ? 0 : -EINVAL;
}

int perf_list_words(const char *text, const char *(*name)(unsigned), unsigned last,
		    struct perf_list *list)
{
	struct words words = { name, last, list };

	list->count = 0;
	return each_item(text, take_word, &words);
}

/*
 * Cases
 */

/* The sizes unless the user gives some. */
static const struct perf_list *standard_sizes(unsigned kind)
{
	static const struct perf_list some = { 4, { 64, 4096, 65536, 1048576 } },
				      small = { 1, { 64 } };

	return kind == PERF_RATE ? &small : &some;
}

/* Settings that differ in a latency test. */
static void suit_kind(struct perf_case *c)
{
	if (c->kind == PERF_LATENCY)
		c->depth = c->batch = 1;
	else if (c->kind == PERF_RATE && c->batch == 1)
		c->batch = c->depth < 16 ? c->depth : 16;
	if (c->batch > c->depth)
		c->batch = c->depth;
}

static int add_sizes(const struct perf_sweep *sweep, const struct perf_case *of,
		     int count, struct perf_case *cases)
{
	static const struct perf_list eight = { 1, { 8 } };
	const struct perf_list *sizes = &sweep->size;

	if (!sweep->sizes_given)
		sizes = standard_sizes(of->kind);
	if (perf_case_is_atomic(of))
		sizes = &eight;
	for (unsigned i = 0; i < sizes->count; i++) {
		if (count == PERF_CASES_MAX)
			return -E2BIG;
		cases[count] = *of;
		cases[count++].size = sizes->value[i];
	}
	return count;
}

/* Counts through all lists as through the digits of a number. */
int perf_sweep_cases(const struct perf_sweep *sweep, struct perf_case *cases)
{
	const struct perf_list *const list[] = { &sweep->op,	 &sweep->kind,
						 &sweep->scheme, &sweep->lanes,
						 &sweep->depth,	 &sweep->fragment };
	enum {
		LISTS = sizeof(list) / sizeof(*list)
	};
	unsigned at[LISTS] = { 0 };
	int count = 0, digit;

	do {
		struct perf_case c = sweep->common;

		c.op = (uint8_t)list[0]->value[at[0]];
		c.kind = (uint8_t)list[1]->value[at[1]];
		c.scheme = (uint8_t)list[2]->value[at[2]];
		c.lanes = (uint32_t)list[3]->value[at[3]];
		c.depth = (uint32_t)list[4]->value[at[4]];
		c.fragment = list[5]->value[at[5]];
		suit_kind(&c);
		/* Latency is the same whatever the depth; a single lane has no
		 * scheme. */
		if ((c.kind != PERF_LATENCY || !at[4]) && (c.lanes > 1 || !at[2]))
			count = add_sizes(sweep, &c, count, cases);
		for (digit = LISTS - 1;
		     digit >= 0 && ++at[digit] == list[digit]->count;)
			at[digit--] = 0;
	} while (count >= 0 && digit >= 0);
	return count;
}
