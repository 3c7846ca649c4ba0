/* SPDX-License-Identifier: MIT */
#include "vqp/cq_physical.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dev/ctx.h"
#include "util/err.h"
#include "vqp/loop_base.h"

static int create_physical_cq(struct snt_cq *cq, unsigned device_index,
			      struct ibv_cq **cq_out)
{
	const struct snt_device *device = cq->ctx->device[device_index];
	struct snt__physical *physical = &cq->physical[cq->physical_count];
	struct ibv_comp_channel *channel = NULL;
	int ret;

	if (!device->control.create_cq)
		return snt__fail(EOPNOTSUPP,
				 "%s has no control table; give its CQ in "
				 "snt_cq_opts.adopted",
				 device->name);
	ret = cq->notify.events
		      ? snt__loop_base(cq->loop)->channel(cq->loop, device, &channel)
		      : 0;
	if (ret)
		return ret;
	ret = device->control.create_cq(device->context, cq->depth, physical, channel,
					(int)cq->comp_vector, cq_out);
	return ret ? snt__fail(-ret, "%s: no CQ with %u entries on vector %u: %s",
			       device->name, cq->depth, cq->comp_vector, strerror(-ret))
		   : 0;
}

/* QPs are served alike if the turns of their CQs are in proportion to the CQEs that
 * these may hold. */
static void share_turns(struct snt_cq *cq)
{
	cq->reserved_max = 0;
	for (uint32_t i = 0; i < cq->physical_count; i++) {
		if (cq->physical[i].reserved > cq->reserved_max)
			cq->reserved_max = cq->physical[i].reserved;
		cq->physical[i].due_rest = 0;
	}
}

int snt__cq_add_physical(struct snt_cq *cq, unsigned device_index,
			 struct ibv_cq *adopted)
{
	struct snt__physical *physical = &cq->physical[cq->physical_count];
	struct ibv_cq *made = adopted;
	int ret = adopted ? 0 : create_physical_cq(cq, device_index, &made);

	if (ret)
		return ret;
	*physical = (struct snt__physical){ .cq = made,
					    .device = device_index,
					    .depth = made->cqe,
					    .adopted = adopted != NULL,
					    .owner = cq };
	cq->physical_count++;
	share_turns(cq);
	snt__cq_find_only(cq);
	if (cq->notify.events)
		snt__loop_base(cq->loop)->cq_grown(cq);
	return 0;
}

static int no_room(const struct snt_cq *cq, unsigned device, uint32_t count,
		   uint32_t on_device)
{
	return snt__fail(
		ENOSPC,
		"%s: a lane may have %u completions at once, and the virtual "
		"CQ has no CQ with that much room (depth %u, %u of them); raise "
		"snt_cq_opts.depth or per_device",
		cq->ctx->device[device]->name, count, cq->depth, on_device);
}

int snt__cq_find(const struct snt_cq *cq, const struct ibv_cq *physical,
		 uint32_t *index_out)
{
	for (uint32_t i = 0; i < cq->physical_count; i++) {
		if (cq->physical[i].cq != physical)
			continue;
		*index_out = i;
		return 0;
	}
	return -ENOENT;
}

static void reserve_at(struct snt_cq *cq, uint32_t index, uint32_t count)
{
	cq->physical[index].reserved += count;
	share_turns(cq);
}

int snt__cq_reserve_at(struct snt_cq *cq, uint32_t index, uint32_t count)
{
	struct snt__physical *physical = &cq->physical[index];

	if (physical->depth - physical->reserved < count)
		return no_room(cq, physical->device, count, 1);
	reserve_at(cq, index, count);
	return 0;
}

/* The first with that much room, beginning with the hinted one. */
static bool find_physical_with_room(const struct snt_cq *cq, unsigned device,
				    uint32_t room, uint32_t hint, uint32_t *index_out)
{
	for (uint32_t i = 0; i < cq->physical_count; i++) {
		uint32_t at = (hint + i) % cq->physical_count;
		const struct snt__physical *one = &cq->physical[at];

		if (one->device != device || one->depth - one->reserved < room)
			continue;
		*index_out = at;
		return true;
	}
	return false;
}

static uint32_t count_on(const struct snt_cq *cq, unsigned device)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < cq->physical_count; i++)
		count += cq->physical[i].device == device;
	return count;
}

int snt__cq_reserve(struct snt_cq *cq, unsigned device, uint32_t count, uint32_t room,
		    uint32_t hint, uint32_t *index_out)
{
	uint32_t on_device = count_on(cq, device);
	bool may_grow =
		!cq->adopted && on_device * cq->ctx->device_count < cq->physical_max;
	bool found = find_physical_with_room(cq, device, room, hint, index_out);
	int ret;

	if (!found && !(may_grow && room <= cq->depth)) {
		room = count;
		found = find_physical_with_room(cq, device, room, hint, index_out);
	}
	if (!found) {
		if (!may_grow || room > cq->depth)
			return no_room(cq, device, count, on_device);
		ret = snt__cq_add_physical(cq, device, NULL);
		if (ret)
			return ret;
		*index_out = cq->physical_count - 1;
	}
	reserve_at(cq, *index_out, count);
	return 0;
}

void snt__cq_unreserve(struct snt_cq *cq, uint32_t index, uint32_t count)
{
	cq->physical[index].reserved -= count;
	share_turns(cq);
}

void snt__cq_ack(struct snt__physical *physical)
{
	const struct snt_cq *cq = physical->owner;

	if (!physical->unacked)
		return;
	cq->ctx->device[physical->device]->control.ack_cq_events(physical->cq,
								 physical->unacked);
	physical->unacked = 0;
}

int snt__cq_free_physical(struct snt_cq *cq)
{
	while (cq->physical_count) {
		struct snt__physical *physical = &cq->physical[cq->physical_count - 1];
		const struct snt_device *device = cq->ctx->device[physical->device];
		int ret;

		snt__cq_ack(physical);
		ret = physical->adopted ? 0 : device->control.destroy_cq(physical->cq);
		if (ret)
			return snt__fail(-ret, "%s: a CQ cannot be destroyed: %s",
					 device->name, strerror(-ret));
		cq->physical_count--;
	}
	free(cq->physical);
	cq->physical = NULL;
	return 0;
}

__attribute__((noinline, cold)) int snt__cq_cannot_poll(
	struct snt_cq *cq, const struct snt__physical *from)
{
	cq->unpollable = true;
	return snt__fail(EIO, "%s: a CQ cannot be polled any more",
			 cq->ctx->device[from->device]->name);
}
