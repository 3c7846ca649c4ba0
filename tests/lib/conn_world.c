/* SPDX-License-Identifier: MIT */
#include "conn_world.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "conn/conn_loop.h"
#include "lib/sim/switch.h"
#include "loop/loop.h"

static char address_text[2][64];
static char fault[512];

__attribute__((format(printf, 1, 2))) static const char *conn_fault(const char *format,
								    ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(fault, sizeof(fault), format, args);
	va_end(args);
	return fault;
}

const char *conn_world_open(struct conn_world *world, uint64_t seed)
{
	struct snt__sim_opts opts = { .seed = seed };

	memset(world, 0, sizeof(*world));
	if (snt__sim_create(&opts, &world->sim))
		return "no fabric";
	for (unsigned i = 0; i < 2; i++)
		if (snt__sim_host_create(world->sim, &world->end[i].host))
			return "no host";
	return NULL;
}

const char *conn_world_add_device(struct conn_world *world, unsigned end,
				  const struct snt__sim_device_opts *opts)
{
	struct conn_end *at = &world->end[end];

	if (snt__sim_device_create(at->host, opts, &at->device[at->devices++]))
		return "no device";
	return NULL;
}

static void on_world_event(void *arg, struct snt_conn *conn, enum snt_conn_event event)
{
	struct conn_end *end = arg;

	if (conn == end->conn)
		end->events[event]++;
	if (event == SNT_CONN_PEER_DONE && !end->stays)
		snt_conn_disconnect(conn, 0);
}

static void on_world_request(void *arg, struct snt_listener *listener,
			     struct snt_conn *conn)
{
	struct conn_world *world = arg;

	(void)listener;
	if (world->end[1].reject) {
		snt_conn_reject(conn, "no", NULL, 0);
		return;
	}
	world->end[1].conn = conn;
	/* A peer that has gone meanwhile is told about by an event. */
	snt_conn_accept(conn, &world->accept);
}

static const char *open_conn_end(struct conn_world *world, unsigned number)
{
	struct conn_end *end = &world->end[number];
	struct snt_ctx_opts opts = { .size = sizeof(opts) };
	struct snt_cq_opts cq = { .size = sizeof(cq), .ops = SNT_CQ_OPS_EVENTS };
	struct snt_gid_info gid = { .size = sizeof(gid) };

	snt__sim_host_ctx_opts(end->host, &opts);
	if (snt_ctx_create(&opts, &end->ctx))
		return conn_fault("no context: %s", snt_err_text());
	if (snt_loop_create(end->ctx, NULL, &end->loop))
		return conn_fault("no loop: %s", snt_err_text());
	cq.loop = end->loop;
	if (snt_cq_create(end->ctx, &cq, &end->cq) ||
	    snt_mem_register(end->ctx, end->bytes, CONN_BYTES,
			     SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE,
			     &end->mem) ||
	    snt_mem_token(end->mem, &end->token))
		return conn_fault("no memory or CQ: %s", snt_err_text());
	end->qp = (struct snt_qp_opts){ .size = sizeof(end->qp), .cq = end->cq };
	snt_device_query_gid(snt_ctx_device(end->ctx, 0), 0, &gid);
	snprintf(address_text[number], sizeof(address_text[0]), "%s", gid.text);
	return NULL;
}

const char *conn_world_ready(struct conn_world *world)
{
	for (unsigned i = 0; i < 2; i++) {
		const char *text = open_conn_end(world, i);

		if (text)
			return text;
	}
	world->to = world->at = (struct snt_endpoint){ .size = sizeof(world->to),
						       .host = address_text[1] };
	world->connect = (struct snt_conn_opts){ .size = sizeof(world->connect),
						 .qp = &world->end[0].qp,
						 .event = on_world_event,
						 .arg = &world->end[0],
						 .data = "x",
						 .data_length = 1 };
	world->accept = (struct snt_conn_opts){ .size = sizeof(world->accept),
						.qp = &world->end[1].qp,
						.event = on_world_event,
						.arg = &world->end[1] };
	world->listen = (struct snt_listener_opts){ .size = sizeof(world->listen),
						    .requested = on_world_request,
						    .arg = world };
	return NULL;
}

const char *conn_world_connect(struct conn_world *world)
{
	if (snt_listener_create(world->end[1].loop, &world->at, &world->listen,
				&world->listener))
		return conn_fault("cannot listen: %s", snt_err_text());
	world->to.port = snt_listener_port(world->listener);
	if (snt_conn_connect(world->end[0].loop, &world->to, &world->connect,
			     &world->end[0].conn))
		return conn_fault("cannot connect: %s", snt_err_text());
	return NULL;
}

/*
 * Time
 */

static uint64_t next_world_time(const struct conn_world *world)
{
	uint64_t next = snt__sim_queue_next(&world->sim->queue);

	for (unsigned i = 0; i < 2; i++) {
		const struct snt_loop *loop = world->end[i].loop;

		if (loop->timers && loop->timers->deadline_ns < next)
			next = loop->timers->deadline_ns;
	}
	return next;
}

bool conn_world_step(struct conn_world *world, uint64_t until)
{
	uint64_t next;

	for (unsigned i = 0; i < 2; i++)
		snt_loop_dispatch(world->end[i].loop, 0);
	next = next_world_time(world);
	if (next > until) {
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

static const char *explain_fault(const struct conn_world *world, const char *what)
{
	char text[2][1500] = { "", "" };

	for (unsigned i = 0; i < 2; i++)
		if (world->end[i].conn)
			snt_conn_explain(world->end[i].conn, text[i], sizeof(text[i]));
	printf("# end 0: %s# end 1: %s", text[0], text[1]);
	return conn_fault("%s", what);
}

const char *conn_world_run(struct conn_world *world, enum snt_conn_event event,
			   uint64_t patience_ns)
{
	uint64_t until = snt__sim_now(world->sim) + patience_ns;

	while (!world->end[0].events[event] || !world->end[1].events[event]) {
		if (!conn_world_step(world, until))
			return explain_fault(world, "an event does not come");
		if (event != SNT_CONN_OVER && world->end[0].events[SNT_CONN_OVER])
			return explain_fault(world, "it is over");
	}
	return NULL;
}

static struct snt_conn_info info_of(const struct conn_world *world, unsigned end)
{
	struct snt_conn_info info = { .size = sizeof(info) };

	snt_conn_query(world->end[end].conn, &info);
	return info;
}

int conn_world_status(const struct conn_world *world, unsigned end)
{
	return info_of(world, end).status;
}

const char *conn_world_text(const struct conn_world *world, unsigned end)
{
	return info_of(world, end).text;
}

/*
 * Traffic
 */

static const char *begin_exchange(struct conn_world *world, unsigned from, uint8_t salt,
				  struct snt_op *recv, struct snt_op *send)
{
	struct conn_end *a = &world->end[from], *b = &world->end[!from];
	struct snt_sge sge = { a->mem, a->bytes, CONN_BYTES };

	for (unsigned i = 0; i < CONN_BYTES; i++)
		a->bytes[i] = (uint8_t)(i * 5 + salt);
	if (snt_op_recv(snt_conn_qp(b->conn), recv, NULL) ||
	    snt_op_post(snt_conn_qp(a->conn), send,
			&(struct snt_send_wr){ .opcode = SNT_OP_WRITE_IMM,
					       .imm = salt,
					       .sge = &sge,
					       .sge_count = 1,
					       .remote = &b->token,
					       .remote_addr = b->token.addr }))
		return conn_fault("it takes no WRs: %s", snt_err_text());
	return NULL;
}

static const char *judge_exchange(struct conn_world *world, const struct snt_op *recv,
				  const struct snt_op *send)
{
	if (send->result || recv->result)
		return conn_fault("a write ends with %d, its notification with %d",
				  send->result, recv->result);
	if (memcmp(world->end[0].bytes, world->end[1].bytes, CONN_BYTES))
		return "bytes differ";
	return NULL;
}

const char *conn_world_send(struct conn_world *world, unsigned from, uint8_t salt)
{
	struct snt_op recv = { 0 }, send = { 0 };
	uint64_t until = snt__sim_now(world->sim) + 20000 * CONN_MS;
	const char *text = begin_exchange(world, from, salt, &recv, &send);

	while (!text && (snt_op_pending(&recv) || snt_op_pending(&send)))
		if (!conn_world_step(world, until))
			text = "data does not come";
	return text ? text : judge_exchange(world, &recv, &send);
}

const char *conn_world_leave(struct conn_world *world, unsigned from)
{
	static struct snt_op recv, send;
	const char *text;

	memset(&recv, 0, sizeof(recv));
	memset(&send, 0, sizeof(send));
	text = begin_exchange(world, from, 99, &recv, &send);
	if (text)
		return text;
	if (snt_conn_disconnect(world->end[from].conn, 0))
		return conn_fault("it cannot be disconnected: %s", snt_err_text());
	text = conn_world_run(world, SNT_CONN_OVER, 30000 * CONN_MS);
	if (text)
		return text;
	for (unsigned i = 0; i < 2; i++)
		if (conn_world_status(world, i))
			return explain_fault(world, "it was to end well");
	return judge_exchange(world, &recv, &send);
}

/*
 * The end
 */

static const char *close_conn_end(struct conn_world *world, struct conn_end *end)
{
	uint64_t until = snt__sim_now(world->sim) + 20000 * CONN_MS;

	/* Devices have to do something before QPs and carriers are gone. */
	while (snt_conn_destroy(end->conn)) {
		snt_conn_abort(end->conn, NULL);
		if (!conn_world_step(world, until))
			return conn_fault("a connection cannot be destroyed: %s",
					  snt_err_text());
	}
	end->conn = NULL;
	return NULL;
}

static const char *drain_conn_events(struct conn_world *world)
{
	uint64_t until = snt__sim_now(world->sim) + 60000 * CONN_MS;

	for (unsigned i = 0; i < 2; i++)
		while (world->end[i].loop->conn_loop &&
		       world->end[i].loop->conn_loop->lingering)
			if (!conn_world_step(world, until))
				return conn_fault(
					"%u carriers or probe QPs of end %u are left",
					world->end[i].loop->conn_loop->lingering, i);
	return NULL;
}

const char *conn_world_close(struct conn_world *world)
{
	const char *text = close_conn_end(world, &world->end[0]);

	if (!text)
		text = close_conn_end(world, &world->end[1]);
	snt_listener_destroy(world->listener);
	if (!text)
		text = drain_conn_events(world);
	for (unsigned i = 0; !text && i < 2; i++) {
		struct conn_end *end = &world->end[i];

		if (snt_cq_destroy(end->cq) || snt_mem_release(end->mem) ||
		    snt_loop_destroy(end->loop) || snt_ctx_destroy(end->ctx))
			text = conn_fault("something is left: %s", snt_err_text());
	}
	if (!text && snt__sim_destroy(world->sim))
		text = "a device has something left";
	return text;
}
