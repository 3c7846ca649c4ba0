/* SPDX-License-Identifier: MIT */
#ifndef SNT_UTIL_LIST_H
#define SNT_UTIL_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "util/assert.h"

/*
 * A ring of links. A link that is not in a list points to itself, or is zero; a list is
 * a link that stands for its beginning and its end.
 */
struct snt__link {
	struct snt__link *next, *prev;
};

#define snt__container(link, type, member) \
	((type *)((char *)(link)-offsetof(type, member)))

static inline void snt__list_init(struct snt__link *list)
{
	list->next = list->prev = list;
}

static inline bool snt__list_empty(const struct snt__link *list)
{
	return list->next == list;
}

static inline bool snt__linked(const struct snt__link *link)
{
	return link->next && link->next != link;
}

static inline void snt__list_append(struct snt__link *list, struct snt__link *link)
{
	snt__assert(!snt__linked(link));
	link->next = list;
	link->prev = list->prev;
	list->prev->next = link;
	list->prev = link;
}

/* Also valid for a link that is not in a list. */
static inline void snt__unlink(struct snt__link *link)
{
	if (!link->next)
		return;
	snt__assert(link->prev->next == link && link->next->prev == link);
	link->prev->next = link->next;
	link->next->prev = link->prev;
	snt__list_init(link);
}

#endif
