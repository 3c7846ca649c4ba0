/* SPDX-License-Identifier: MIT */
#include "lib/sim/queue.h"

#include <errno.h>
#include <stdlib.h>

/* Four children: half the levels of a binary heap, and siblings lie together. */
#define FAN	   4
#define ROOM_FIRST 256

static bool is_before(const struct snt__sim_event *a, const struct snt__sim_event *b)
{
	return a->time != b->time ? a->time < b->time : a->order < b->order;
}

static int grow_heap(struct snt__sim_queue *queue)
{
	size_t room = queue->room ? 2 * queue->room : ROOM_FIRST;
	struct snt__sim_event *heap = realloc(queue->heap, room * sizeof(*heap));

	if (!heap)
		return -ENOMEM;
	queue->heap = heap;
	queue->room = room;
	return 0;
}

int snt__sim_queue_add(struct snt__sim_queue *queue, uint64_t time,
		       enum snt__sim_kind kind, void *subject)
{
	struct snt__sim_event event = { time, queue->added << 2 | kind, subject };
	size_t at = queue->count;

	if (queue->count == queue->room && grow_heap(queue))
		return -ENOMEM;
	queue->added++;
	queue->count++;
	while (at && is_before(&event, &queue->heap[(at - 1) / FAN])) {
		queue->heap[at] = queue->heap[(at - 1) / FAN];
		at = (at - 1) / FAN;
	}
	queue->heap[at] = event;
	return 0;
}

/* The earliest child, or count if there is none. */
static size_t first_child(const struct snt__sim_queue *queue, size_t at)
{
	size_t first = at * FAN + 1, last = first + FAN;

	if (last > queue->count)
		last = queue->count;
	if (first >= last)
		return queue->count;
	for (size_t i = first + 1; i < last; i++)
		if (is_before(&queue->heap[i], &queue->heap[first]))
			first = i;
	return first;
}

bool snt__sim_queue_take(struct snt__sim_queue *queue, struct snt__sim_event *event_out)
{
	struct snt__sim_event last;
	size_t at = 0, child;

	if (!queue->count)
		return false;
	*event_out = queue->heap[0];
	last = queue->heap[--queue->count];
	while ((child = first_child(queue, at)) < queue->count &&
	       is_before(&queue->heap[child], &last)) {
		queue->heap[at] = queue->heap[child];
		at = child;
	}
	queue->heap[at] = last;
	return true;
}

void snt__sim_queue_free(struct snt__sim_queue *queue)
{
	free(queue->heap);
	*queue = (struct snt__sim_queue){ 0 };
}
