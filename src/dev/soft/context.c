/* SPDX-License-Identifier: MIT */
#include "dev/soft/context.h"

#include <errno.h>
#include <stdio.h>

#include "dev/soft/core.h"
#include "dev/soft/cq.h"
#include "dev/soft/qp.h"
#include "dev/soft/verbs.h"
#include "dev/soft/window.h"

static void set_name(struct snt__soft_context *context, const char *name)
{
	snprintf(context->ibv.name, sizeof(context->ibv.name), "%s", name);
}

static void fill_verbs(struct snt__soft_context *context)
{
	struct ibv_context *ibv = &context->verbs.context;

	context->ibv.node_type = IBV_NODE_CA;
	context->ibv.transport_type = IBV_TRANSPORT_IB;

	context->verbs.sz = sizeof(context->verbs);
	context->verbs.query_port = snt__soft_verbs_query_port;
	context->verbs.query_device_ex = snt__soft_verbs_query_device_ex;
	/* Marks it as the inside of a verbs_context. */
	ibv->abi_compat = (void *)-1;
	ibv->device = &context->ibv;
	ibv->cmd_fd = -1;
	ibv->async_fd = context->async.fd;
	ibv->num_comp_vectors = 1;
	ibv->ops.alloc_mw = snt__soft_verbs_alloc_mw;
	ibv->ops.bind_mw = snt__soft_verbs_bind_mw;
	ibv->ops.dealloc_mw = snt__soft_dealloc_mw;
	ibv->ops.post_send = snt__soft_post_send;
	ibv->ops.post_recv = snt__soft_post_recv;
	ibv->ops.post_srq_recv = snt__soft_post_srq_recv;
	ibv->ops.poll_cq = snt__soft_poll_cq;
	ibv->ops.req_notify_cq = snt__soft_req_notify_cq;
}

int snt__soft_context_init(struct snt__soft_context *context,
			   struct snt__soft_device *device, const char *name)
{
	int err = snt__soft_bell_open(&context->async);

	if (err)
		return err;
	context->device = device;
	context->object.device = device;
	context->object.context = context;
	snt__list_init(&context->events);
	fill_verbs(context);
	set_name(context, name);
	snt__list_append(&device->contexts, &context->all);
	return 0;
}

void snt__soft_context_finish(struct snt__soft_context *context)
{
	snt__unlink(&context->all);
	snt__soft_bell_close(&context->async);
}

void snt__soft_context_count(struct ibv_context *context, int change)
{
	struct snt__soft_context *soft = snt__soft_context_of(context);

	soft->users += change;
	soft->device->object_count += change;
}

static struct snt__soft_context *context_at(struct snt__link *at)
{
	return snt__container(at, struct snt__soft_context, all);
}

void snt__soft_raise_all(struct snt__soft_device *device, enum ibv_event_type type)
{
	for (struct snt__link *at = device->contexts.next; at != &device->contexts;
	     at = at->next)
		snt__soft_raise(&context_at(at)->object, type);
}

void snt__soft_contexts_replace(struct snt__soft_device *device,
				const struct ibv_context_ops *ops)
{
	for (struct snt__link *at = device->contexts.next; at != &device->contexts;
	     at = at->next)
		context_at(at)->verbs.context.ops = *ops;
}

/*
 * Opening
 */

/* Its fd ends with a program's use of it, and with that what the program has made of it. */
static int open_bell(struct snt__soft_context *context)
{
	int err = 0;

	if (context->async.fd < 0)
		err = snt__soft_bell_open(&context->async);
	context->verbs.context.async_fd = context->async.fd;
	return err;
}

static void close_bell(struct snt__soft_context *context)
{
	snt__soft_bell_close(&context->async);
	context->async.fd = -1;
	context->async.rung = false;
}

/* The first context, unless a program has it. It may have pending events of the
 * port. */
static int take_first_context(struct snt__soft_device *device, const char *name)
{
	struct snt__soft_context *first = &device->first;
	int err = -EBUSY;

	snt__soft_lock(device);
	if (!first->opened)
		err = open_bell(first);
	if (!err) {
		first->opened = true;
		snt__soft_forget(&first->object);
		set_name(first, name);
	}
	snt__soft_unlock(device);
	return err;
}

static int make_context(struct snt__soft_device *device, const char *name,
			struct snt__soft_context **context_out)
{
	struct snt__soft_context *context = snt__soft_alloc(1, sizeof(*context));
	int err;

	if (!context)
		return -ENOMEM;
	snt__soft_lock(device);
	err = snt__soft_context_init(context, device, name);
	context->opened = true;
	snt__soft_unlock(device);
	if (err) {
		snt__soft_free(context);
		return err;
	}
	*context_out = context;
	return 0;
}

int snt__soft_context_open(struct snt__soft_device *device, const char *name,
			   struct ibv_context **context_out)
{
	struct snt__soft_context *context = &device->first;
	int err = take_first_context(device, name);

	if (err == -EBUSY)
		err = make_context(device, name, &context);
	if (err)
		return err;
	*context_out = &context->verbs.context;
	return 0;
}

int snt__soft_context_close(struct ibv_context *ibv)
{
	struct snt__soft_context *context = snt__soft_context_of(ibv);
	struct snt__soft_device *device = context->device;
	bool first = context == &device->first, busy;

	snt__soft_lock(device);
	busy = context->users;
	if (!busy)
		context->opened = false;
	if (!busy && first)
		close_bell(context);
	else if (!busy)
		snt__soft_context_finish(context);
	snt__soft_unlock(device);
	if (busy)
		return -EBUSY;
	if (!first)
		snt__soft_free(context);
	return 0;
}
