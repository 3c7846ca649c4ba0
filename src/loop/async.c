/* SPDX-License-Identifier: MIT */
/*
 * Asynchronous events of devices, translated into sennit's own, with the device's name.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loop/loop.h"
#include "util/err.h"
#include "vqp/srq.h"
#include "vqp/view.h"

enum element {
	OF_DEVICE,
	OF_PORT,
	OF_QP,
	OF_CQ,
	OF_SRQ,
};

static const struct kind {
	enum snt_event_type type;
	enum element element;
} kinds[] = {
	[IBV_EVENT_CQ_ERR] = { SNT_EVENT_CQ_ERROR, OF_CQ },
	[IBV_EVENT_QP_FATAL] = { SNT_EVENT_QP_FATAL, OF_QP },
	[IBV_EVENT_QP_REQ_ERR] = { SNT_EVENT_QP_REQUEST, OF_QP },
	[IBV_EVENT_QP_ACCESS_ERR] = { SNT_EVENT_QP_ACCESS, OF_QP },
	[IBV_EVENT_COMM_EST] = { SNT_EVENT_QP_ESTABLISHED, OF_QP },
	[IBV_EVENT_SQ_DRAINED] = { SNT_EVENT_QP_DRAINED, OF_QP },
	[IBV_EVENT_PATH_MIG] = { SNT_EVENT_QP_MIGRATED, OF_QP },
	[IBV_EVENT_PATH_MIG_ERR] = { SNT_EVENT_QP_MIGRATED, OF_QP },
	[IBV_EVENT_DEVICE_FATAL] = { SNT_EVENT_DEVICE_FATAL, OF_DEVICE },
	[IBV_EVENT_PORT_ACTIVE] = { SNT_EVENT_PORT_ACTIVE, OF_PORT },
	[IBV_EVENT_PORT_ERR] = { SNT_EVENT_PORT_DOWN, OF_PORT },
	[IBV_EVENT_LID_CHANGE] = { SNT_EVENT_LID_CHANGE, OF_PORT },
	[IBV_EVENT_PKEY_CHANGE] = { SNT_EVENT_PKEY_CHANGE, OF_PORT },
	[IBV_EVENT_SM_CHANGE] = { SNT_EVENT_SM_CHANGE, OF_PORT },
	[IBV_EVENT_SRQ_ERR] = { SNT_EVENT_SRQ_ERROR, OF_SRQ },
	[IBV_EVENT_SRQ_LIMIT_REACHED] = { SNT_EVENT_SRQ_LIMIT, OF_SRQ },
	[IBV_EVENT_QP_LAST_WQE_REACHED] = { SNT_EVENT_QP_LAST_WQE, OF_QP },
	[IBV_EVENT_CLIENT_REREGISTER] = { SNT_EVENT_OTHER, OF_PORT },
	[IBV_EVENT_GID_CHANGE] = { SNT_EVENT_GID_CHANGE, OF_PORT },
};

static struct snt_qp *owner_in(const struct snt__link *list, unsigned device,
			       uint32_t qp_num)
{
	for (const struct snt__link *at = list->next; at != list; at = at->next) {
		struct snt_cq *cq = snt__container(at, struct snt_cq, notify.all);
		struct snt_qp *owner = snt_cq_find_qp(cq, device, qp_num);

		if (owner)
			return owner;
	}
	return NULL;
}

static struct snt_qp *owner_of(const struct snt_loop *loop, unsigned device,
			       uint32_t qp_num)
{
	struct snt_qp *found = owner_in(&loop->base.event_cqs, device, qp_num);

	return found ? found : owner_in(&loop->base.polled_cqs, device, qp_num);
}

static struct snt_srq *find_in(const struct snt__link *list,
			       const struct ibv_srq *physical)
{
	struct snt_srq *found = NULL;

	for (const struct snt__link *at = list->next; !found && at != list;
	     at = at->next)
		found = snt__srq_find(snt__container(at, struct snt_cq, notify.all),
				      physical);
	return found;
}

static struct snt_srq *find_srq(const struct snt_loop *loop,
				const struct ibv_srq *physical)
{
	struct snt_srq *found = find_in(&loop->base.event_cqs, physical);

	return found ? found : find_in(&loop->base.polled_cqs, physical);
}

/* An event that has been taken and acknowledged: its object may be gone by now. */
struct news {
	struct snt_call call;
	struct snt_loop *loop; /* the loop that it is for */
	const struct snt_device *device;
	int verbs_type;
	uint8_t port;
	uint32_t qp_num;
	const struct ibv_srq *srq;
};

static void describe_event(const struct snt_event *event, char *text, size_t size)
{
	const char *what = ibv_event_type_str(event->verbs_type),
		   *name = event->device_name;

	if (event->qp_num && event->qp)
		snprintf(text, size, "%s: QP 0x%06x, a lane of QP %u: %s", name,
			 event->qp_num, snt_qp_num(event->qp), what);
	else if (event->qp_num)
		snprintf(text, size, "%s: QP 0x%06x: %s", name, event->qp_num, what);
	else if (event->port)
		snprintf(text, size, "%s port %u: %s", name, event->port, what);
	else
		snprintf(text, size, "%s: %s", name, what);
}

static struct kind event_kind(int verbs_type)
{
	if ((unsigned)verbs_type < sizeof(kinds) / sizeof(kinds[0]))
		return kinds[verbs_type];
	return (struct kind){ SNT_EVENT_OTHER, OF_DEVICE };
}

static void read_event(const struct ibv_async_event *from, struct news *news)
{
	news->verbs_type = from->event_type;
	switch (event_kind(from->event_type).element) {
	case OF_PORT:
		news->port = from->element.port_num;
		break;
	case OF_QP:
		news->qp_num = from->element.qp->qp_num;
		break;
	case OF_SRQ:
		news->srq = from->element.srq;
		break;
	default:
		break;
	}
}

/* As the loop sees it: the loop knows its own QPs and SRQs. */
static struct snt_event translate_event(const struct snt_loop *loop,
					const struct news *news)
{
	return (struct snt_event){
		.type = event_kind(news->verbs_type).type,
		.verbs_type = news->verbs_type,
		.device = news->device->index,
		.device_name = news->device->name,
		.port = news->port,
		.qp_num = news->qp_num,
		.qp = news->qp_num ? owner_of(loop, news->device->index, news->qp_num)
				   : NULL,
		.srq = news->srq ? find_srq(loop, news->srq) : NULL,
	};
}

static bool is_bad_event(enum snt_event_type type)
{
	return type == SNT_EVENT_DEVICE_FATAL || type == SNT_EVENT_PORT_DOWN ||
	       type == SNT_EVENT_QP_FATAL || type == SNT_EVENT_QP_REQUEST ||
	       type == SNT_EVENT_QP_ACCESS || type == SNT_EVENT_CQ_ERROR ||
	       type == SNT_EVENT_SRQ_ERROR;
}

static void report_event(struct snt_loop *loop, const struct news *news, bool logs)
{
	struct snt_event event = translate_event(loop, news);
	char text[160];

	describe_event(&event, text, sizeof(text));
	event.text = text;
	if (logs)
		snt__log(&loop->base.ctx->log,
			 is_bad_event(event.type) ? SNT_LOG_WARN : SNT_LOG_INFO, "%s",
			 text);
	if (loop->happened)
		loop->happened(loop->happened_arg, &event);
}

/* Runs in the loop that it is for. */
static void deliver_event(struct snt_call *call)
{
	struct news *news = snt__container(call, struct news, call);

	report_event(news->loop, news, false);
	free(news);
}

/* To all other loops that want events. With the lock. */
static void pass_on_event(const struct snt_loop *from, const struct news *news)
{
	struct snt__link *list = &from->base.ctx->event_loops;

	for (struct snt__link *at = list->next; at != list; at = at->next) {
		struct snt_loop *loop =
			snt__container(at, struct snt_loop, in_event_loops);
		struct news *copy;

		if (loop == from)
			continue;
		copy = malloc(sizeof(*copy));
		if (!copy) {
			snt__log(&from->base.ctx->log, SNT_LOG_ERROR,
				 "no memory to tell a loop of an event of %s",
				 news->device->name);
			continue;
		}
		*copy = *news;
		copy->loop = loop;
		copy->call = (struct snt_call){ .run = deliver_event };
		snt__call_post(loop, &copy->call);
	}
}

/* The event is acknowledged before it is reported: the callback may destroy its object,
 * which would wait for the acknowledgment. 0, or a negative errno: there is none. */
static int take_async_event(const struct snt_loop *loop, struct news *news)
{
	const struct snt_device *device = news->device;
	struct snt_ctx *ctx = loop->base.ctx;
	struct ibv_async_event event;
	int ret;

	pthread_mutex_lock(&ctx->events_lock);
	ret = device->control.get_async_event(device->context, &event);
	if (!ret) {
		read_event(&event, news);
		device->control.ack_async_event(&event);
		pass_on_event(loop, news);
	}
	pthread_mutex_unlock(&ctx->events_lock);
	return ret;
}

static int async_ready(struct snt__source *source, int budget)
{
	struct snt__channel *async =
		snt__container(source, struct snt__channel, source);
	const struct snt_device *device = async->device;
	struct snt__round *run = async->loop->run;
	int count = 0, ret = 0;

	while (count < budget) {
		struct news news = { .device = device };

		ret = take_async_event(run->loop, &news);
		if (ret)
			break;
		report_event(run->loop, &news, true);
		count++;
		if (run->gone || !run->loop->happened)
			return count;
	}
	if (!ret || ret == -EAGAIN)
		return count;
	return snt__fail(-ret, "%s: cannot read an asynchronous event: %s",
			 device->name, strerror(-ret));
}

static int watch_async_events(struct snt_loop *loop, const struct snt_device *device)
{
	struct snt__channel *async = &loop->async[device->index];
	int fd = device->context->async_fd;
	int flags, ret;

	if (async->device || !device->control.get_async_event ||
	    !device->control.ack_async_event)
		return 0;
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return snt__fail(
			errno,
			"%s: cannot make its asynchronous events non-blocking: %s",
			device->name, strerror(errno));
	async->source = (struct snt__source){ .fd = fd, .ready = async_ready };
	ret = snt__loop_add(loop, &async->source);
	if (ret)
		return ret;
	async->device = device;
	async->loop = loop;
	return 0;
}

static void list_loop(struct snt_loop *loop, bool wants)
{
	struct snt_ctx *ctx = loop->base.ctx;

	snt__ctx_lock_with(ctx, &ctx->events_lock);
	snt__unlink(&loop->in_event_loops);
	if (wants)
		snt__list_append(&ctx->event_loops, &loop->in_event_loops);
	snt__ctx_unlock_with(ctx, &ctx->events_lock);
}

void snt__async_stop(struct snt_loop *loop)
{
	loop->happened = NULL;
	list_loop(loop, false);
	for (unsigned i = 0; i < loop->base.ctx->device_count; i++) {
		if (loop->async[i].device)
			snt__loop_remove(loop, &loop->async[i].source);
		loop->async[i].device = NULL;
	}
}

int snt_loop_set_event_handler(struct snt_loop *loop,
			       void (*happened)(void *arg,
						const struct snt_event *event),
			       void *arg)
{
	struct snt_ctx *ctx = loop->base.ctx;
	int ret = snt__loop_check(loop);

	if (ret)
		return ret;
	loop->happened = happened;
	loop->happened_arg = arg;
	for (unsigned i = 0; happened && !ret && i < ctx->device_count; i++)
		ret = watch_async_events(loop, ctx->device[i]);
	if (ret || !happened)
		snt__async_stop(loop);
	else
		list_loop(loop, true);
	return ret;
}
