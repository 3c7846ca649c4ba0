/* SPDX-License-Identifier: MIT */
#include "vqp/ready_list.h"

#include "vqp/cq.h"

void snt__cq_list(struct snt_cq *cq, struct snt__ready *ready)
{
	ready->listed = true;
	ready->next = NULL;
	*cq->ready_end = ready;
	cq->ready_end = &ready->next;
	if (__builtin_expect(cq->notify.idle != NULL, 0))
		cq->notify.idle(cq);
}

void snt__cq_forget(struct snt_cq *cq, struct snt__ready *ready)
{
	struct snt__ready **link = &cq->front.ready;

	while (*link && *link != ready)
		link = &(*link)->next;
	if (!*link)
		return;
	*link = ready->next;
	if (!*link)
		cq->ready_end = link;
	ready->listed = false;
}
