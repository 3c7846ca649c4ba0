/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include "scripted_internal.h"

static struct scripted_qp *next_qp(struct scripted_fabric *fabric,
				   struct scripted_qp *qp)
{
	struct scripted_device *device = qp ? qp->object.device : NULL;
	struct scripted_object *object = qp ? qp->object.next : NULL;

	while (!object) {
		device = device ? device->next : fabric->devices;
		if (!device)
			return NULL;
		object = device->objects[SCRIPTED_QP];
	}
	return container_of(object, struct scripted_qp, object);
}

void scripted__settle(struct scripted_fabric *fabric)
{
	struct scripted_qp *qp;
	bool moved;

	do {
		moved = false;
		for (qp = next_qp(fabric, NULL); qp; qp = next_qp(fabric, qp)) {
			int result = scripted_complete(&qp->ibv, IBV_WC_SUCCESS);

			if (result == -ENOTCONN)
				result = scripted_complete(&qp->ibv,
							   IBV_WC_RETRY_EXC_ERR);
			moved |= result >= 0;
		}
	} while (moved);
}

/* The WR that lands next has tried, and failed for good. */
static bool next_has_failed(const struct scripted_qp *qp)
{
	const struct scripted_send_queue *queue = &qp->send;

	return queue->landed < queue->tail &&
	       queue->slots[queue->landed % queue->depth].fate != IBV_WC_SUCCESS;
}

static bool move_one(struct scripted_qp *qp, uint64_t *random)
{
	const struct scripted_send_queue *queue = &qp->send;
	bool failed = next_has_failed(qp);
	bool can_complete = queue->head < queue->landed || failed;
	bool can_land = queue->landed < queue->tail && !failed;
	int result;

	if (can_land && (!can_complete || scripted__random(random) & 1)) {
		result = scripted_land(&qp->ibv);
		if (result >= 0)
			return true;
		if (!can_complete && result == -ENOTCONN)
			return scripted_complete(&qp->ibv, IBV_WC_RETRY_EXC_ERR) == 0;
	}
	return can_complete && scripted_complete(&qp->ibv, IBV_WC_SUCCESS) >= 0;
}

static bool may_move(const struct scripted_qp *qp)
{
	return qp->send.head < qp->send.tail && !qp->stuck;
}

static struct scripted_qp *pick_qp(struct scripted_fabric *fabric, uint64_t *random)
{
	struct scripted_qp *qp;
	unsigned count = 0;
	unsigned index;

	for (qp = next_qp(fabric, NULL); qp; qp = next_qp(fabric, qp))
		count += may_move(qp);
	if (!count)
		return NULL;
	index = scripted__random(random) % count;
	for (qp = next_qp(fabric, NULL); qp; qp = next_qp(fabric, qp)) {
		if (may_move(qp) && index-- == 0)
			break;
	}
	return qp;
}

bool scripted_step(struct scripted_fabric *fabric, uint64_t *random)
{
	struct scripted_qp *qp;
	bool moved = false;

	while (!moved && (qp = pick_qp(fabric, random))) {
		moved = move_one(qp, random);
		qp->stuck = !moved;
	}
	/* What moved may have freed others, and the test may do so before the
	 * next step. */
	for (qp = next_qp(fabric, NULL); qp; qp = next_qp(fabric, qp))
		qp->stuck = false;
	return moved;
}

unsigned scripted_run(struct scripted_fabric *fabric, uint64_t seed)
{
	unsigned steps = 0;

	while (scripted_step(fabric, &seed))
		steps++;
	return steps;
}
