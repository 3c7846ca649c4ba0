/* SPDX-License-Identifier: MIT */
/*
 * Completion channels. One serves all CQs of a device, and each event says which one it
 * is for. A channel is always read until it is empty: edge-triggered polling does not
 * report what was left.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

#include "loop/loop.h"
#include "util/err.h"
#include "vqp/cq.h"
#include "vqp/notify.h"

int snt__channel_drain(struct snt__channel *channel)
{
	const struct snt_device *device = channel->device;
	struct ibv_cq *cq;
	void *physical;
	int ret;

	while (!(ret = snt__device_take_cq_event(device, channel->channel, &cq,
						 &physical))) {
		struct snt__physical *from = physical;

		snt__cq_take_event(from);
		snt__serve_later(from->owner);
	}
	return ret == -EAGAIN
		       ? 0
		       : snt__fail(-ret, "%s: cannot read its completion channel: %s",
				   device->name, strerror(-ret));
}

int snt__channel_drain_all(struct snt_loop *loop)
{
	for (unsigned i = 0; i < loop->base.ctx->device_count; i++) {
		int ret = loop->channel[i].device
				  ? snt__channel_drain(&loop->channel[i])
				  : 0;

		if (ret)
			return ret;
	}
	return 0;
}

/* Drains all of them, even if one fails. */
int snt__channel_drain_signalled(struct snt_loop *loop)
{
	int ret = 0;

	while (!snt__list_empty(&loop->signalled)) {
		struct snt__source *source =
			snt__container(loop->signalled.next, struct snt__source,
				       readable);
		int one;

		snt__unlink(&source->readable);
		one = snt__channel_drain(
			snt__container(source, struct snt__channel, source));
		ret = one ? one : ret;
	}
	return ret;
}

struct ibv_comp_channel *snt__channel_find(const struct snt_loop *loop,
					   const struct snt_device *device)
{
	const struct snt__channel *channel = &loop->channel[device->index];

	return channel->device ? channel->channel : NULL;
}

/* The events of packets that are moved here do not make the channel's fd readable: the
 * next round takes them. */
void snt__channel_rx_return(struct snt_loop *loop, const struct snt_device *device,
			    unsigned readable)
{
	struct snt__channel *channel = &loop->channel[device->index];

	snt__device_rx_return(device, readable, snt__channel_find(loop, device));
	if (channel->device && !snt__linked(&channel->source.readable))
		snt__list_append(&loop->signalled, &channel->source.readable);
}

int snt__channel_get(struct snt_loop *loop, const struct snt_device *device,
		     struct ibv_comp_channel **channel_out)
{
	struct snt__channel *channel = &loop->channel[device->index];
	int ret = 0;

	if (!channel->channel)
		ret = snt__device_make_channel(device, &channel->channel);
	if (ret)
		return ret;
	if (!channel->device) {
		channel->source = (struct snt__source){ .fd = channel->channel->fd,
							.type = SNT__SOURCE_CHANNEL };
		ret = snt__loop_add(loop, &channel->source);
		if (ret)
			return ret;
		channel->device = device;
		channel->loop = loop;
	}
	*channel_out = channel->channel;
	return 0;
}

void snt__channel_close_all(struct snt_loop *loop)
{
	for (unsigned i = 0; i < loop->base.ctx->device_count; i++) {
		const struct snt_device *device = loop->base.ctx->device[i];

		/* A program could not act on a failure to close an fd. */
		if (loop->channel[i].channel)
			device->control.destroy_channel(loop->channel[i].channel);
		loop->channel[i].channel = NULL;
	}
}
