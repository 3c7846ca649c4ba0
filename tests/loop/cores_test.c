/* SPDX-License-Identifier: MIT */
/*
 * A thread per core: four threads with a loop each share a context and its memory. The first
 * has the ports, the others serve what comes there, all of them connect, and a fifth thread
 * registers and releases memory all the while.
 */
#include "lib/test.h"

#include <pthread.h>
#include <sennit/sennit.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "lib/loopback.h"
#include "lib/patience.h"

#define CORES	4
#define CLIENTS 3 /* of each kind and core */
#define ALL	(CORES * CLIENTS)
#define MESSAGE 4096
#define RING	(8 << 10)
#define BYTES	(64 << 10) /* through each stream, in both directions */
#define ROUNDS	3
/* Each connection and stream has two ends. */
#define ENDS (2 * 2 * ALL)

struct core {
	pthread_t thread;
	unsigned index, seed;
	struct snt_loop *loop;
	struct snt_cq *cq;
	struct snt_listener *conns;
	struct snt_stream_listener *streams;
	unsigned conns_served, streams_served;
};

static struct {
	struct snt_ctx *ctx;
	enum snt_carrier carrier;
	struct core core[CORES];
	pthread_barrier_t barrier; /* of the cores and the test */
	pthread_t registrar;
	struct snt_mem *last; /* of the registrar */
	/* Registered once, for the messages of all connections: a place for each end's
	 * message, and one for what comes back. */
	struct snt_mem *mem;
	unsigned char messages[3 * ALL][MESSAGE];
	unsigned char payload[BYTES];
	atomic_uint served; /* places taken by servers */
	atomic_uint open;   /* ends that are not over */
} world;

/* The asserts of cmocka are for the thread that runs the test. */
static void expect(bool good, const char *format, ...)
{
	va_list args;

	if (good)
		return;
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, ": %s\n", snt_err_text());
	abort();
}

static struct snt_endpoint endpoint_of(const char *host, uint16_t port)
{
	return (struct snt_endpoint){ .size = sizeof(struct snt_endpoint),
				      .host = host,
				      .port = port,
				      .carrier = world.carrier,
				      .setup_ns = patience_ns(60),
				      .detect_ns = patience_ns(60) };
}

static void must(long ret, const char *what)
{
	expect(ret >= 0, "%s", what);
}

static unsigned dice(struct core *core, unsigned sides)
{
	return (unsigned)rand_r(&core->seed) % sides;
}

static void end_is_over(void)
{
	if (atomic_fetch_sub(&world.open, 1) > 1)
		return;
	/* No loop is closed before the barrier. */
	for (unsigned i = 0; i < CORES; i++)
		must(snt_loop_wake(world.core[i].loop), "wake");
}

/*
 * Connections: a message there and back
 */

struct end {
	struct core *core;
	struct snt_op send, recv;
	unsigned char *out, *in;
	bool answered;
};

static struct snt_sge sge_of(unsigned char *message)
{
	return (struct snt_sge){ world.mem, message, MESSAGE };
}

static void post_recv(struct end *end, struct snt_conn *conn)
{
	struct snt_sge sge = sge_of(end->in);

	must(snt_op_recv(snt_conn_qp(conn), &end->recv, &sge), "receive");
}

static void post_send(struct end *end, struct snt_conn *conn)
{
	struct snt_sge sge = sge_of(end->out);

	must(snt_op_send(snt_conn_qp(conn), &end->send, &sge), "send");
}

static void end_conn(struct end *end, struct snt_conn *conn)
{
	must(snt_conn_destroy(conn), "destroy a connection");
	free(end);
	end_is_over();
}

struct caller {
	struct end end;
	struct snt_conn *conn;
};

static void conn_answered(struct snt_op *op)
{
	struct caller *caller = op->arg;
	struct end *end = &caller->end;

	if (op->result)
		return;
	expect(!memcmp(end->in, end->out, MESSAGE), "another message came back");
	end->answered = true;
	if (dice(end->core, 2))
		must(snt_conn_disconnect(caller->conn, 0), "disconnect");
	else
		must(snt_conn_abort(caller->conn, NULL), "abort");
}

static void caller_event(void *arg, struct snt_conn *conn, enum snt_conn_event event)
{
	struct caller *caller = arg;
	struct snt_conn_info info = { .size = sizeof(info) };

	if (event == SNT_CONN_PREPARE)
		post_recv(&caller->end, conn);
	if (event == SNT_CONN_CONNECTED)
		post_send(&caller->end, conn);
	if (event != SNT_CONN_OVER)
		return;
	must(snt_conn_query(conn, &info), "query");
	expect(caller->end.answered, "no answer: %s", info.text);
	end_conn(&caller->end, conn);
}

static void call(struct core *core, unsigned number)
{
	struct caller *caller = calloc(1, sizeof(*caller));
	struct end *end = &caller->end;
	char host[SNT_ADDRESS_MAX];
	struct snt_qp_opts qp = { .size = sizeof(qp),
				  .cq = core->cq,
				  .lanes = 1,
				  .devices = 1u << number % 2 };
	struct snt_conn_opts opts = {
		.size = sizeof(opts), .qp = &qp, .event = caller_event, .arg = caller
	};
	struct snt_endpoint to = endpoint_of(host, snt_listener_port(core->conns));

	end->core = core;
	end->out = world.messages[number];
	end->in = world.messages[ALL + number];
	end->recv.done = conn_answered;
	end->recv.arg = caller;
	memset(end->out, (int)number + 1, MESSAGE);
	must(snt_listener_address(core->conns, 0, host, sizeof(host)), "address");
	must(snt_conn_connect(core->loop, &to, &opts, &caller->conn), "connect");
}

/* It sends what came from where it came. */
struct server {
	struct end end;
	struct snt_conn *conn;
};

static void conn_asked(struct snt_op *op)
{
	struct server *server = op->arg;

	if (!op->result)
		post_send(&server->end, server->conn);
}

static void server_event(void *arg, struct snt_conn *conn, enum snt_conn_event event)
{
	struct server *server = arg;

	if (event == SNT_CONN_PREPARE)
		post_recv(&server->end, conn);
	if (event == SNT_CONN_PEER_DONE)
		must(snt_conn_disconnect(conn, 0), "disconnect");
	if (event == SNT_CONN_OVER)
		end_conn(&server->end, conn);
}

static void requested(void *arg, struct snt_listener *listener, struct snt_conn *conn)
{
	struct core *core = arg;
	struct server *server = calloc(1, sizeof(*server));
	struct end *end = &server->end;
	struct snt_qp_opts qp = { .size = sizeof(qp), .cq = core->cq, .lanes = 1 };
	struct snt_conn_opts opts = {
		.size = sizeof(opts), .qp = &qp, .event = server_event, .arg = server
	};
	unsigned place = atomic_fetch_add(&world.served, 1);

	expect(listener == core->conns, "the listener of another thread");
	expect(place < ALL, "more connections than there are");
	end->core = core;
	end->out = end->in = world.messages[2 * ALL + place];
	end->recv.done = conn_asked;
	end->recv.arg = server;
	server->conn = conn;
	core->conns_served++;
	must(snt_conn_accept(conn, &opts), "accept");
}

/*
 * Streams: bytes there and back, through rings that are shorter than that
 */

struct exchange {
	struct core *core;
	size_t sent, received;
	bool over;
};

static void end_stream(struct snt_stream *stream)
{
	must(snt_stream_destroy(stream), "destroy a stream");
	end_is_over();
}

/* Everything has come back. */
static void finish(struct exchange *exchange, struct snt_stream *stream)
{
	switch (dice(exchange->core, 3)) {
	case 0:
		must(snt_stream_shutdown(stream), "shut down");
		return;
	case 1:
		must(snt_stream_abort(stream, NULL), "abort");
		return;
	default:
		exchange->over = true;
	}
}

static void exchange(void *arg, struct snt_stream *stream, unsigned events)
{
	struct exchange *exchange = arg;
	unsigned char bytes[4096];
	bool before = exchange->received < BYTES;
	ssize_t n;

	while (exchange->sent < BYTES &&
	       (n = snt_stream_write(stream, world.payload + exchange->sent,
				     BYTES - exchange->sent)) > 0)
		exchange->sent += (size_t)n;
	while ((n = snt_stream_read(stream, bytes, sizeof(bytes))) > 0) {
		expect(!memcmp(bytes, world.payload + exchange->received, (size_t)n),
		       "other bytes came back");
		exchange->received += (size_t)n;
	}
	if (before && exchange->received == BYTES)
		finish(exchange, stream);
	if (!(events & SNT_STREAM_OVER) && !exchange->over)
		return;
	expect(exchange->received == BYTES, "%zu bytes came back", exchange->received);
	free(exchange);
	end_stream(stream);
}

static void stream_to(struct core *core, unsigned number)
{
	struct exchange *arg = calloc(1, sizeof(*arg));
	char host[SNT_ADDRESS_MAX];
	struct snt_stream_opts opts = {
		.size = sizeof(opts),
		.recv_size = RING,
		.send_size = RING,
		.lanes = 1,
		.devices = 1u << number % 2,
		.ready = exchange,
		.arg = arg,
	};
	struct snt_endpoint to =
		endpoint_of(host, snt_stream_listener_port(core->streams));
	struct snt_stream *stream;

	arg->core = core;
	must(snt_stream_listener_address(core->streams, 0, host, sizeof(host)),
	     "address");
	must(snt_stream_connect(core->loop, &to, &opts, &stream), "connect a stream");
	exchange(arg, stream, 0);
}

static void echo(void *arg, struct snt_stream *stream, unsigned events)
{
	struct iovec at[2];
	ssize_t got, sent;

	(void)arg;
	while ((got = snt_stream_peek(stream, 0, at)) > 0 &&
	       (sent = snt_stream_writev(stream, at, 2)) > 0)
		must(snt_stream_consume(stream, (size_t)sent), "consume");
	if (!got)
		snt_stream_shutdown(stream);
	if (events & SNT_STREAM_OVER)
		end_stream(stream);
}

static void accepted(void *arg, struct snt_stream_listener *listener,
		     struct snt_stream *stream)
{
	struct core *core = arg;

	expect(listener == core->streams, "the stream listener of another thread");
	core->streams_served++;
	snt_stream_set_ready_handler(stream, echo, core);
	echo(core, stream, 0);
}

/*
 * Threads
 */

/* The first thread has the ports; it accepts nothing itself. */
static void listen_on_ports(struct core *core)
{
	struct snt_endpoint at = endpoint_of(NULL, 0);

	must(snt_listener_create(core->loop, &at, NULL, &core->conns), "listen");
	must(snt_stream_listener_create(core->loop, &at, NULL, &core->streams),
	     "listen for streams");
}

static void share_ports(struct core *core)
{
	struct snt_stream_opts stream = {
		.size = sizeof(stream), .recv_size = RING, .send_size = RING, .lanes = 1
	};
	struct snt_listener_opts conns = { .size = sizeof(conns),
					   .requested = requested,
					   .arg = core,
					   .share = world.core->conns };
	struct snt_stream_listener_opts streams = { .size = sizeof(streams),
						    .stream = &stream,
						    .accepted = accepted,
						    .arg = core,
						    .share = world.core->streams };
	struct snt_endpoint at = endpoint_of(NULL, 0);

	must(snt_listener_create(core->loop, &at, &conns, &core->conns), "share");
	must(snt_stream_listener_create(core->loop, &at, &streams, &core->streams),
	     "share a port of streams");
}

static void open_core(struct core *core)
{
	struct snt_cq_opts opts = { .size = sizeof(opts), .ops = SNT_CQ_OPS_EVENTS };

	must(snt_loop_create(world.ctx, NULL, &core->loop), "loop");
	opts.loop = core->loop;
	must(snt_cq_create(world.ctx, &opts, &core->cq), "CQ");
	if (!core->index)
		listen_on_ports(core);
}

/* In any order, while other threads do the same. */
static void close_core(struct core *core)
{
	bool streams_first = dice(core, 2);

	if (streams_first)
		must(snt_stream_listener_destroy(core->streams), "destroy");
	must(snt_listener_destroy(core->conns), "destroy");
	if (!streams_first)
		must(snt_stream_listener_destroy(core->streams), "destroy");
	must(snt_cq_destroy(core->cq), "destroy a CQ");
	must(snt_loop_destroy(core->loop), "close a loop");
}

static void *run_core(void *arg)
{
	struct core *core = arg;

	open_core(core);
	pthread_barrier_wait(&world.barrier); /* the ports are open */
	if (core->index)
		share_ports(core);
	pthread_barrier_wait(&world.barrier); /* and are served */
	pthread_barrier_wait(&world.barrier); /* the context was not closed */
	for (unsigned i = 0; i < CLIENTS; i++) {
		call(core, core->index * CLIENTS + i);
		stream_to(core, core->index * CLIENTS + i);
	}
	while (atomic_load(&world.open))
		must(snt_loop_wait(core->loop, -1), "wait");
	pthread_barrier_wait(&world.barrier); /* all ends are over */
	close_core(core);
	return NULL;
}

static void refresh_devices(void)
{
	struct snt_device_info info = { .size = sizeof(info) };

	for (unsigned i = 0; i < snt_ctx_device_count(world.ctx); i++) {
		struct snt_device *device = snt_ctx_device(world.ctx, i);

		must(snt_device_refresh(device), "refresh");
		must(snt_device_query(device, &info), "query a device");
	}
}

static void *register_all_the_time(void *arg)
{
	static unsigned char bytes[1 << 20];
	struct snt_token token;
	unsigned turns = 0;

	(void)arg;
	do {
		if (turns++ % 16 == 0)
			refresh_devices();
		must(snt_mem_release(world.last), "release");
		must(snt_mem_register(world.ctx, bytes, sizeof(bytes),
				      SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE,
				      &world.last),
		     "register");
		must(snt_mem_token(world.last, &token), "token");
	} while (atomic_load(&world.open));
	return NULL;
}

static void *release_last(void *arg)
{
	must(snt_mem_release(arg), "release");
	return NULL;
}

/*
 * The test
 */

static void open_world(enum snt_carrier carrier, unsigned round)
{
	char list[64];
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .soft = SNT_SOFT_ONLY,
				     .soft_addresses = list };

	snprintf(list, sizeof(list), "%s,%s", loopback_text(0), loopback_text(1));
	memset(&world, 0, sizeof(world));
	world.carrier = carrier;
	for (unsigned i = 0; i < BYTES; i++)
		world.payload[i] = (unsigned char)(i * i >> 8);
	atomic_store(&world.open, ENDS);
	assert_success(snt_ctx_create(&opts, &world.ctx));
	assert_success(snt_mem_register(world.ctx, world.messages,
					sizeof(world.messages), SNT_ACCESS_LOCAL_WRITE,
					&world.mem));
	pthread_barrier_init(&world.barrier, NULL, CORES + 1);
	for (unsigned i = 0; i < CORES; i++) {
		struct core *core = &world.core[i];

		core->index = i;
		core->seed = round * CORES + i;
		assert_int_equal(pthread_create(&core->thread, NULL, run_core, core),
				 0);
	}
}

static void run_world(void)
{
	pthread_barrier_wait(&world.barrier);
	pthread_barrier_wait(&world.barrier);
	assert_error(snt_ctx_destroy(world.ctx), EBUSY, "4 loops left");
	assert_int_equal(pthread_create(&world.registrar, NULL, register_all_the_time,
					NULL),
			 0);
	pthread_barrier_wait(&world.barrier);
	pthread_barrier_wait(&world.barrier);
	for (unsigned i = 0; i < CORES; i++)
		pthread_join(world.core[i].thread, NULL);
	pthread_join(world.registrar, NULL);
}

static void close_world(void)
{
	pthread_t thread;

	assert_error(snt_ctx_destroy(world.ctx), EBUSY, "2 memory registrations left");
	assert_int_equal(pthread_create(&thread, NULL, release_last, world.last), 0);
	pthread_join(thread, NULL);
	assert_error(snt_ctx_destroy(world.ctx), EBUSY, "1 memory registrations left");
	assert_success(snt_mem_release(world.mem));
	assert_success(snt_ctx_destroy(world.ctx));
	pthread_barrier_destroy(&world.barrier);
}

/* They were dealt out in turns. */
static void check_shares(void)
{
	unsigned conns = 0, streams = 0;

	assert_int_equal(world.core[0].conns_served, 0);
	assert_int_equal(world.core[0].streams_served, 0);
	for (unsigned i = 1; i < CORES; i++) {
		assert_int_equal(world.core[i].conns_served, ALL / (CORES - 1));
		assert_int_equal(world.core[i].streams_served, ALL / (CORES - 1));
		conns += world.core[i].conns_served;
		streams += world.core[i].streams_served;
	}
	assert_int_equal(conns, ALL);
	assert_int_equal(streams, ALL);
}

static void four_threads_share_a_context(void **state)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		open_world(*(enum snt_carrier *)*state, round);
		run_world();
		check_shares();
		close_world();
	}
}

/*
 * Listeners that come and go, while peers arrive
 */

#define VISITS 40
#define CALLS  60

struct visitor {
	pthread_t thread;
	struct snt_loop *loop;
	struct snt_listener *port;
	unsigned seed, requests;
};

/* One that would accept might not live long enough. */
static void turn_away(void *arg, struct snt_listener *listener, struct snt_conn *conn)
{
	struct visitor *visitor = arg;

	(void)listener;
	visitor->requests++;
	must(snt_conn_reject(conn, "another time", NULL, 0), "reject");
}

/* Loops come and go as well. */
static void *visit(void *arg)
{
	struct visitor *visitor = arg;
	struct snt_listener_opts opts = { .size = sizeof(opts),
					  .requested = turn_away,
					  .arg = visitor,
					  .share = visitor->port };

	for (unsigned i = 0; i < VISITS; i++) {
		unsigned turns = (unsigned)rand_r(&visitor->seed) % 8;
		struct snt_listener *listener;

		must(snt_loop_create(world.ctx, NULL, &visitor->loop), "loop");
		must(snt_listener_create(visitor->loop, NULL, &opts, &listener),
		     "share");
		while (turns--)
			must(snt_loop_wait(visitor->loop, 1000000), "wait");
		must(snt_listener_destroy(listener), "destroy");
		must(snt_loop_destroy(visitor->loop), "close a loop");
	}
	return NULL;
}

/* Whichever listener gets it refuses it, or goes in the middle of the handshake. */
static void call_in_vain(struct snt_loop *loop, const struct snt_listener *port)
{
	char host[SNT_ADDRESS_MAX];
	struct snt_qp_opts qp = { .size = sizeof(qp),
				  .lanes = 1,
				  .cq = world.core->cq };
	struct snt_conn_opts opts = { .size = sizeof(opts), .qp = &qp };
	struct snt_endpoint to = endpoint_of(host, snt_listener_port(port));
	struct snt_conn *conn;
	int ret;

	assert_success(snt_listener_address(port, 0, host, sizeof(host)));
	assert_success(snt_conn_connect(loop, &to, &opts, &conn));
	ret = snt_conn_wait_over(conn, -1);
	if (ret != -ECONNREFUSED && ret != -ECONNRESET)
		fail_msg("%d: %s", ret, snt_err_text());
	assert_success(snt_conn_destroy(conn));
}

static void listeners_come_and_go(void **state)
{
	struct snt_ctx_opts ctx_opts = { .size = sizeof(ctx_opts),
					 .soft = SNT_SOFT_ONLY,
					 .soft_addresses = loopback_text(0) };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .ops = SNT_CQ_OPS_EVENTS };
	struct visitor visitors[CORES - 1] = { { 0 } }, own = { 0 };
	struct snt_listener_opts opts = { .size = sizeof(opts),
					  .requested = turn_away,
					  .arg = &own };
	struct snt_endpoint at;

	memset(&world, 0, sizeof(world));
	world.carrier = *(enum snt_carrier *)*state;
	assert_success(snt_ctx_create(&ctx_opts, &world.ctx));
	assert_success(snt_loop_create(world.ctx, NULL, &own.loop));
	cq_opts.loop = own.loop;
	assert_success(snt_cq_create(world.ctx, &cq_opts, &world.core->cq));
	at = endpoint_of(NULL, 0);
	assert_success(snt_listener_create(own.loop, &at, &opts, &own.port));
	for (unsigned i = 0; i < ARRAY_SIZE(visitors); i++) {
		visitors[i].port = own.port;
		visitors[i].seed = i;
		assert_int_equal(pthread_create(&visitors[i].thread, NULL, visit,
						&visitors[i]),
				 0);
	}
	for (unsigned i = 0; i < CALLS; i++)
		call_in_vain(own.loop, own.port);
	for (unsigned i = 0; i < ARRAY_SIZE(visitors); i++)
		pthread_join(visitors[i].thread, NULL);
	call_in_vain(own.loop, own.port);
	assert_int_not_equal(own.requests, 0);
	assert_success(snt_listener_destroy(own.port));
	assert_success(snt_cq_destroy(world.core->cq));
	assert_success(snt_loop_destroy(own.loop));
	assert_success(snt_ctx_destroy(world.ctx));
}

int main(void)
{
	static enum snt_carrier tcp = SNT_CARRIER_TCP, cm = SNT_CARRIER_CM;
	const struct CMUnitTest tests[] = {
		{ "four_threads_share_a_context (TCP)", four_threads_share_a_context,
		  NULL, NULL, &tcp },
		{ "four_threads_share_a_context (CM)", four_threads_share_a_context,
		  NULL, NULL, &cm },
		{ "listeners_come_and_go (TCP)", listeners_come_and_go, NULL, NULL,
		  &tcp },
		{ "listeners_come_and_go (CM)", listeners_come_and_go, NULL, NULL,
		  &cm },
	};

	return cmocka_run_group_tests_name("cores", tests, NULL, NULL);
}
