/* SPDX-License-Identifier: MIT */
#include "stream_world.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "conn/conn_loop.h"
#include "lib/sim/switch.h"
#include "loop/loop.h"

#define POLLS 200

uint32_t world_cq_depth = 1024;

static char fault[512];

__attribute__((format(printf, 1, 2))) static const char *stream_fault(
	const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(fault, sizeof(fault), format, args);
	va_end(args);
	return fault;
}

/*
 * Making
 */

const char *world_open(struct world *world, bool real, uint64_t seed,
		       const char *capture)
{
	struct snt__sim_opts opts = { .seed = seed, .capture = capture };

	memset(world, 0, sizeof(*world));
	world->real = real;
	if (real)
		return NULL;
	if (snt__sim_create(&opts, &world->sim))
		return "no fabric";
	for (unsigned i = 0; i < 2; i++)
		if (snt__sim_host_create(world->sim, &world->end[i].host))
			return "no host";
	return NULL;
}

const char *world_add_device(struct world *world, unsigned end,
			     const struct snt__sim_device_opts *opts)
{
	struct world_end *at = &world->end[end];

	if (snt__sim_device_create(at->host, opts, &at->device[at->devices++]))
		return "no device";
	return NULL;
}

static const char *open_stream_end(struct world *world, struct world_end *end)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts) };
	struct snt_cq_opts cq = { .size = sizeof(cq),
				  .depth = world_cq_depth,
				  .ops = SNT_CQ_OPS_EVENTS };

	if (!world->real)
		snt__sim_host_ctx_opts(end->host, &opts);
	if (snt_ctx_create(&opts, &end->ctx) ||
	    snt_loop_create(end->ctx, NULL, &end->loop))
		return stream_fault("no context: %s", snt_err_text());
	cq.loop = end->loop;
	if (snt_cq_create(end->ctx, &cq, &end->cq))
		return stream_fault("no CQ: %s", snt_err_text());
	end->opts = (struct snt_stream_opts){ .size = sizeof(end->opts) };
	end->qp_opts = (struct snt_qp_opts){ .size = sizeof(end->qp_opts),
					     .cq = end->cq,
					     .lane_depth = 64,
					     .send_depth = 32,
					     .recv_depth = 48 };
	return NULL;
}

static void on_world_accepted(void *arg, struct snt_stream_listener *listener,
			      struct snt_stream *stream)
{
	struct world *world = arg;

	(void)listener;
	if (world->end[1].stream) {
		snt_stream_destroy(stream);
		return;
	}
	world->end[1].stream = stream;
	snt_stream_set_ready_handler(stream, world->end[1].opts.ready,
				     world->end[1].opts.arg);
}

const char *world_ready(struct world *world)
{
	for (unsigned i = 0; i < 2; i++) {
		const char *text = open_stream_end(world, &world->end[i]);

		if (text)
			return text;
	}
	world->at = (struct snt_endpoint){ .size = sizeof(world->at) };
	world->listen =
		(struct snt_stream_listener_opts){ .size = sizeof(world->listen),
						   .stream = &world->end[1].opts,
						   .accepted = on_world_accepted,
						   .arg = world };
	return NULL;
}

/* The best address of the first device. */
static void find_host(struct world *world)
{
	struct snt_device *device = snt_ctx_device(world->end[1].ctx, 0);
	struct snt_gid_info gid = { .size = sizeof(gid) };
	int best = INT32_MIN;

	for (unsigned i = 0; !snt_device_query_gid(device, i, &gid); i++)
		if (gid.score > best) {
			best = gid.score;
			memcpy(world->host, gid.text, sizeof(gid.text));
		}
}

const char *world_listen(struct world *world)
{
	find_host(world);
	world->at.host = world->host;
	if (snt_stream_listener_create(world->end[1].loop, &world->at, &world->listen,
				       &world->listener))
		return stream_fault("cannot listen: %s", snt_err_text());
	world->to = world->at;
	world->to.port = snt_stream_listener_port(world->listener);
	return NULL;
}

static const char *connect_cards(struct world *world)
{
	struct snt_card card[2];
	uint8_t offer[2][SNT_STREAM_OFFER_MAX];
	ssize_t length[2];

	for (unsigned i = 0; i < 2; i++) {
		struct world_end *end = &world->end[i];

		if (snt_qp_create(end->ctx, &end->qp_opts, &end->qp) ||
		    snt_stream_create(end->qp, &end->opts, &end->stream) ||
		    snt_qp_card(end->qp, &card[i]))
			return stream_fault("no stream: %s", snt_err_text());
		length[i] = snt_stream_offer(end->stream, offer[i], sizeof(offer[i]));
	}
	for (unsigned i = 0; i < 2; i++)
		if (length[i] < 0 || snt_qp_connect(world->end[i].qp, &card[!i]))
			return stream_fault("no connection: %s", snt_err_text());
	for (unsigned i = 0; i < 2; i++)
		if (snt_stream_start(world->end[i].stream, offer[!i],
				     (size_t)length[!i]))
			return stream_fault("no start: %s", snt_err_text());
	return NULL;
}

const char *world_connect(struct world *world)
{
	const char *text;

	if (world->by_card)
		return connect_cards(world);
	text = world->listener ? NULL : world_listen(world);
	if (text)
		return text;
	if (snt_stream_connect(world->end[0].loop, &world->to, &world->end[0].opts,
			       &world->end[0].stream))
		return stream_fault("cannot connect: %s", snt_err_text());
	return NULL;
}

static bool is_open(struct snt_stream *stream)
{
	struct snt_stream_info info = { .size = sizeof(info) };

	return stream && !snt_stream_query(stream, &info) &&
	       info.state == SNT_STREAM_RUNNING;
}

const char *world_connected(struct world *world)
{
	uint64_t until = world_now(world) + 20000 * WORLD_MS;
	const char *text = world_connect(world);
	bool goes_on = true;

	while (!text &&
	       (!is_open(world->end[0].stream) || !is_open(world->end[1].stream))) {
		if (!goes_on)
			text = "no connection in time";
		goes_on = world_step(world, until);
	}
	return text;
}

const char *world_simple(struct world *world, bool real)
{
	const char *text = world_open(world, real, 1, NULL);
	struct snt__sim_link_opts cable = { .delay_ns = 1000 };
	struct snt__sim_device_opts opts = { .out = &cable, .in = &cable };

	for (unsigned i = 0; !text && !real && i < 2; i++)
		text = world_add_device(world, i, &opts);
	return text ? text : world_ready(world);
}

/*
 * Time
 */

uint64_t world_now(const struct world *world)
{
	return world->real ? snt_loop_now(world->end[0].loop)
			   : snt__sim_now(world->sim);
}

uint64_t world_next(const struct world *world)
{
	uint64_t next = snt__sim_queue_next(&world->sim->queue);

	for (unsigned i = 0; i < 2; i++) {
		const struct snt_loop *loop = world->end[i].loop;

		if (loop && loop->timers && loop->timers->deadline_ns < next)
			next = loop->timers->deadline_ns;
	}
	return next;
}

static bool step_real(struct world *world, uint64_t until)
{
	struct pollfd fds[2];
	uint64_t now, left;
	int done = 0;

	for (unsigned i = 0; i < 2; i++) {
		fds[i] = (struct pollfd){ .fd = snt_loop_fd(world->end[i].loop),
					  .events = POLLIN };
		done += snt_loop_dispatch(world->end[i].loop, 0);
	}
	now = world_now(world);
	if (now >= until)
		return false;
	left = until - now < WORLD_MS ? until - now : WORLD_MS;
	if (!done)
		ppoll(fds, 2, &(struct timespec){ .tv_nsec = (long)left }, NULL);
	return true;
}

/* Is there more than one dispatch did? */
static bool has_work(const struct world_end *end)
{
	const struct snt_loop *loop = end->loop;

	return loop && (atomic_load(&loop->rung) || !snt__list_empty(&loop->pending));
}

static void serve_ends(struct world *world, unsigned times)
{
	while (times--)
		for (unsigned i = 0; i < 2; i++)
			if (world->end[i].loop && world->polls)
				snt_loop_poll(world->end[i].loop, 0);
			else if (world->end[i].loop)
				snt_loop_dispatch(world->end[i].loop, 0);
}

bool world_step(struct world *world, uint64_t until)
{
	uint64_t next;

	if (world->real)
		return step_real(world, until);
	serve_ends(world, 1);
	if (!world->polls && (has_work(&world->end[0]) || has_work(&world->end[1])))
		return true;
	next = world_next(world);
	if (next > until) {
		/* Not every completion has a callback. */
		if (world->polls && until - snt__sim_now(world->sim) > WORLD_MS)
			serve_ends(world, POLLS);
		if (until != UINT64_MAX)
			snt__sim_run(world->sim, until);
		return false;
	}
	if (next < snt__sim_now(world->sim))
		next = snt__sim_now(world->sim);
	if (snt__sim_queue_next(&world->sim->queue) <= next)
		snt__sim_step(world->sim);
	else
		snt__sim_run(world->sim, next);
	return true;
}

uint64_t world_rnr(const struct world *world)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < 2; i++)
		for (unsigned j = 0; j < world->end[i].devices; j++)
			count += snt__soft_device_stats(world->end[i].device[j]->core)
					 ->rnr_out;
	return count;
}

/*
 * The end
 */

static const char *close_stream_qp(struct world *world, struct world_end *end)
{
	uint64_t until = world_now(world) + 60000 * WORLD_MS;
	bool goes_on = true;

	while (snt_qp_destroy(end->qp)) {
		if (!goes_on)
			return stream_fault("a QP cannot be destroyed: %s",
					    snt_err_text());
		goes_on = world_step(world, until);
	}
	end->qp = NULL;
	return NULL;
}

static const char *close_stream_end(struct world *world, struct world_end *end)
{
	uint64_t until = world_now(world) + 60000 * WORLD_MS;
	const char *text = close_stream_qp(world, end);
	bool goes_on = true;

	while (!text && end->loop->conn_loop && end->loop->conn_loop->lingering) {
		if (!goes_on)
			text = stream_fault("%u are left",
					    end->loop->conn_loop->lingering);
		goes_on = world_step(world, until);
	}
	return text;
}

const char *world_close(struct world *world)
{
	const char *text = NULL;

	for (unsigned i = 0; i < 2; i++) {
		snt_stream_destroy(world->end[i].stream);
		world->end[i].stream = NULL;
	}
	snt_stream_listener_destroy(world->listener);
	for (unsigned i = 0; !text && i < 2; i++)
		text = close_stream_end(world, &world->end[i]);
	for (unsigned i = 0; !text && i < 2; i++) {
		struct snt_loop *loop = world->end[i].loop;

		if (snt_cq_destroy(world->end[i].cq))
			text = stream_fault("the CQ of end %u: %s", i, snt_err_text());
		world->end[i].loop = NULL;
		if (!text && snt_loop_destroy(loop))
			text = stream_fault("the loop of end %u: %s", i,
					    snt_err_text());
		if (!text && snt_ctx_destroy(world->end[i].ctx))
			text = stream_fault("the context of end %u: %s", i,
					    snt_err_text());
	}
	if (!text && world->sim && snt__sim_destroy(world->sim))
		text = "a device has something left";
	return text;
}
