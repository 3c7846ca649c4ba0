/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_LIST_H
#define SNT_DEV_SOFT_LIST_H

#include <stdbool.h>
#include <stddef.h>

/*
 * A circular list whose links live in its members, first in, first out. A link that
 * is in no list points to itself, or is all zero if it never was in one.
 */
struct snt__soft_link {
	struct snt__soft_link *next;
	struct snt__soft_link *prev;
};

#define snt__soft_container(pointer, type, member) \
	((type *)((char *)(pointer)-offsetof(type, member)))

static inline void snt__soft_list_init(struct snt__soft_link *list)
{
	list->next = list;
	list->prev = list;
}

static inline bool snt__soft_list_empty(const struct snt__soft_link *list)
{
	return list->next == list;
}

static inline bool snt__soft_linked(const struct snt__soft_link *link)
{
	return link->next && link->next != link;
}

static inline void snt__soft_list_append(struct snt__soft_link *list,
					 struct snt__soft_link *link)
{
	link->next = list;
	link->prev = list->prev;
	list->prev->next = link;
	list->prev = link;
}

/* Also for a link that is in no list. */
static inline void snt__soft_unlink(struct snt__soft_link *link)
{
	if (!snt__soft_linked(link))
		return;
	link->prev->next = link->next;
	link->next->prev = link->prev;
	snt__soft_list_init(link);
}

#endif
