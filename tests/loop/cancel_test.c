/* SPDX-License-Identifier: MIT */
/*
 * Threads that are cancelled in a wait leave their loop to another, in which it goes on as if
 * the wait had timed out.
 */
#include "lib/test.h"

#include <pthread.h>
#include <sched.h>
#include <sennit/sennit.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/loopback.h"
#include "lib/patience.h"

#define BYTES 256
#define RING  (8 << 10)

/* Two ends in one context: the loop of the thread that is cancelled, and of its peer. */
enum {
	MINE,
	PEER,
	ENDS
};

static struct {
	struct snt_ctx *ctx;
	struct snt_mem *mem;
	unsigned char bytes[ENDS][BYTES];
	struct snt_loop *loop[ENDS];
	struct snt_cq *cq[ENDS];
	struct snt_qp *qp[ENDS];
	struct snt_op op[ENDS];
	struct snt_op_group group;
	struct snt_conn *conn[ENDS];
	struct snt_listener *listener;
	struct snt_stream *stream[ENDS];
	struct snt_stream_listener *stream_listener;
	FILE *file;
	atomic_uint callbacks,
		enabled; /* how many ran; and with cancellation enabled */
} world;

static void woken(void *arg, struct snt_loop *loop)
{
	int state;

	(void)arg;
	(void)loop;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_setcancelstate(state, NULL);
	atomic_fetch_add(&world.callbacks, 1);
	atomic_fetch_add(&world.enabled, state == PTHREAD_CANCEL_ENABLE);
}

static void open_world(void)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .soft = SNT_SOFT_ONLY,
				     .soft_addresses = loopback_text(0) };
	struct snt_cq_opts cq = { .size = sizeof(cq), .ops = SNT_CQ_OPS_EVENTS };

	memset(&world, 0, sizeof(world));
	assert_success(snt_ctx_create(&opts, &world.ctx));
	assert_success(snt_mem_register(world.ctx, world.bytes, sizeof(world.bytes),
					SNT_ACCESS_LOCAL_WRITE, &world.mem));
	for (unsigned i = 0; i < ENDS; i++) {
		assert_success(snt_loop_create(world.ctx, NULL, &world.loop[i]));
		cq.loop = world.loop[i];
		assert_success(snt_cq_create(world.ctx, &cq, &world.cq[i]));
	}
	assert_success(snt_loop_set_wake_handler(world.loop[MINE], woken, NULL));
}

static void close_world(void)
{
	assert_int_equal(atomic_load(&world.enabled), 0);
	for (unsigned i = 0; i < ENDS; i++) {
		assert_success(snt_cq_destroy(world.cq[i]));
		assert_success(snt_loop_destroy(world.loop[i]));
	}
	assert_success(snt_mem_release(world.mem));
	assert_success(snt_ctx_destroy(world.ctx));
}

static void turn(void)
{
	for (unsigned i = 0; i < ENDS; i++)
		assert_success(snt_loop_wait(world.loop[i], 1000000));
}

static struct snt_sge sge_of(unsigned end)
{
	return (struct snt_sge){ world.mem, world.bytes[end], BYTES };
}

/*
 * Waits. Each is prepared, waited in by threads that are cancelled, and then fulfilled.
 */

struct wait {
	const char *name;
	void (*prepare)(void);
	void (*wait)(void);
	void (*fulfil)(void);
	void (*clean_up)(void);
};

static void nothing(void)
{
}

/* Of the loop */

static void wait_for_loop(void)
{
	while (snt_loop_wait(world.loop[MINE], -1) >= 0)
		;
}

static void wake_loop(void)
{
	unsigned before = atomic_load(&world.callbacks);

	assert_success(snt_loop_wake(world.loop[MINE]));
	while (atomic_load(&world.callbacks) == before)
		assert_success(snt_loop_wait(world.loop[MINE], -1));
}

/* Of an op */

static void prepare_op(void)
{
	struct snt_qp_opts opts = { .size = sizeof(opts), .lanes = 1 };
	struct snt_sge sge = sge_of(MINE);
	struct snt_card card[ENDS];

	for (unsigned i = 0; i < ENDS; i++) {
		opts.cq = world.cq[i];
		assert_success(snt_qp_create(world.ctx, &opts, &world.qp[i]));
		assert_success(snt_qp_card(world.qp[i], &card[i]));
	}
	for (unsigned i = 0; i < ENDS; i++)
		assert_success(snt_qp_connect(world.qp[i], &card[!i]));
	assert_success(snt_op_recv(world.qp[MINE], &world.op[MINE], &sge));
}

static void wait_for_op(void)
{
	snt_op_wait(&world.op[MINE], -1);
}

static void complete_op(void)
{
	struct snt_sge sge = sge_of(PEER);

	assert_success(snt_op_send(world.qp[PEER], &world.op[PEER], &sge));
	assert_success(snt_op_wait(&world.op[MINE], -1));
	assert_success(snt_op_wait(&world.op[PEER], -1));
}

/* Of a group of ops */

static void prepare_group(void)
{
	prepare_op();
	assert_success(snt_op_group_add(&world.group, &world.op[MINE]));
}

static void wait_for_group(void)
{
	snt_op_group_wait(&world.group, -1);
}

static void complete_group(void)
{
	struct snt_sge sge = sge_of(PEER);

	assert_success(snt_op_send(world.qp[PEER], &world.op[PEER], &sge));
	assert_success(snt_op_group_wait(&world.group, -1));
	assert_int_equal(snt_op_pending(&world.op[MINE]), 0);
	assert_success(snt_op_wait(&world.op[PEER], -1));
}

static void close_qps(void)
{
	for (unsigned i = 0; i < ENDS; i++) {
		struct snt_op op = { 0 };

		assert_success(snt_op_close(world.qp[i], &op));
		assert_success(snt_op_wait(&op, -1));
		assert_success(snt_qp_destroy(world.qp[i]));
	}
}

/* Of connections */

static struct snt_qp_opts qp_opts(unsigned end)
{
	return (struct snt_qp_opts){ .size = sizeof(struct snt_qp_opts),
				     .cq = world.cq[end],
				     .lanes = 1 };
}

static void listen_at(unsigned end)
{
	struct snt_endpoint at = { .size = sizeof(at), .detect_ns = patience_ns(60) };

	assert_success(
		snt_listener_create(world.loop[end], &at, NULL, &world.listener));
}

static void connect_from(unsigned end)
{
	char host[SNT_ADDRESS_MAX];
	struct snt_qp_opts qp = qp_opts(end);
	struct snt_conn_opts opts = { .size = sizeof(opts), .qp = &qp };
	struct snt_endpoint to = { .size = sizeof(to),
				   .host = host,
				   .port = snt_listener_port(world.listener),
				   .setup_ns = patience_ns(60),
				   .detect_ns = patience_ns(60) };

	assert_success(snt_listener_address(world.listener, 0, host, sizeof(host)));
	assert_success(snt_conn_connect(world.loop[end], &to, &opts, &world.conn[end]));
}

/* The listener's end gets its connection. */
static void accept_at(unsigned end)
{
	struct snt_qp_opts qp = qp_opts(end);
	struct snt_conn_opts opts = { .size = sizeof(opts), .qp = &qp };

	while (snt_listener_wait(world.listener, 0, &world.conn[end]))
		turn();
	assert_success(snt_conn_accept(world.conn[end], &opts));
	for (unsigned i = 0; i < ENDS; i++)
		while (snt_conn_wait(world.conn[i], 0))
			turn();
}

static void close_conns(void)
{
	assert_success(snt_conn_disconnect(world.conn[PEER], 0));
	for (unsigned i = 0; i < ENDS; i++)
		while (snt_conn_wait_over(world.conn[i], 0))
			turn();
	for (unsigned i = 0; i < ENDS; i++)
		assert_success(snt_conn_destroy(world.conn[i]));
	assert_success(snt_listener_destroy(world.listener));
}

static void prepare_connecting(void)
{
	listen_at(PEER);
	connect_from(MINE);
}

static void wait_for_conn(void)
{
	snt_conn_wait(world.conn[MINE], -1);
}

static void accept_mine(void)
{
	accept_at(PEER);
}

static void prepare_connected(void)
{
	prepare_connecting();
	accept_mine();
}

static void wait_for_end(void)
{
	snt_conn_wait_over(world.conn[MINE], -1);
}

static void prepare_listening(void)
{
	listen_at(MINE);
}

static void wait_for_request(void)
{
	snt_listener_wait(world.listener, -1, &world.conn[MINE]);
}

static void request(void)
{
	connect_from(PEER);
	accept_at(MINE);
}

/* Of streams */

static void listen_for_streams(unsigned end)
{
	struct snt_stream_opts stream = { .size = sizeof(stream),
					  .recv_size = RING,
					  .send_size = RING };
	struct snt_endpoint at = { .size = sizeof(at), .detect_ns = patience_ns(60) };
	struct snt_stream_listener_opts opts = { .size = sizeof(opts),
						 .stream = &stream };

	assert_success(snt_stream_listener_create(world.loop[end], &at, &opts,
						  &world.stream_listener));
}

static void connect_stream(unsigned end)
{
	struct snt_stream_listener *listener = world.stream_listener;
	char host[SNT_ADDRESS_MAX];
	struct snt_stream_opts opts = { .size = sizeof(opts),
					.recv_size = RING,
					.send_size = RING };
	struct snt_endpoint to = { .size = sizeof(to),
				   .host = host,
				   .port = snt_stream_listener_port(listener),
				   .setup_ns = patience_ns(60),
				   .detect_ns = patience_ns(60) };

	assert_success(snt_stream_listener_address(listener, 0, host, sizeof(host)));
	assert_success(
		snt_stream_connect(world.loop[end], &to, &opts, &world.stream[end]));
	while (snt_stream_listener_wait(listener, 0, &world.stream[!end]))
		turn();
	while (snt_stream_wait(world.stream[end], SNT_STREAM_OPEN, 0) < 0)
		turn();
}

static void prepare_stream(void)
{
	listen_for_streams(PEER);
	connect_stream(MINE);
}

static void close_streams(void)
{
	for (unsigned i = 0; i < ENDS; i++) {
		assert_success(snt_stream_destroy(world.stream[i]));
		turn();
	}
	assert_success(snt_stream_listener_destroy(world.stream_listener));
}

static void wait_for_stream(void)
{
	snt_stream_wait(world.stream[MINE], SNT_STREAM_READABLE, -1);
}

static void wait_for_bytes(void)
{
	unsigned char bytes[BYTES];

	snt_stream_read_all(world.stream[MINE], bytes, BYTES, -1);
}

static void write_bytes(void)
{
	unsigned char bytes[BYTES] = { 0 };

	assert_int_equal(snt_stream_write(world.stream[PEER], bytes, BYTES), BYTES);
	assert_int_equal(snt_stream_read_all(world.stream[MINE], bytes, BYTES, -1),
			 BYTES);
}

/* More than the peer, which does not read, has room for. */
static void wait_for_room(void)
{
	static const unsigned char bytes[8 * RING];

	snt_stream_write_all(world.stream[MINE], bytes, sizeof(bytes), -1);
}

/* What the cancelled calls had written arrives. */
static void read_bytes(void)
{
	struct snt_stream_info info = { .size = sizeof(info) };
	unsigned char bytes[RING];
	uint64_t left;

	assert_success(snt_stream_query(world.stream[MINE], &info));
	assert_int_not_equal(info.bytes_written, 0);
	for (left = info.bytes_written; left;) {
		ssize_t got = snt_stream_read(world.stream[PEER], bytes, sizeof(bytes));

		if (got > 0)
			left -= (uint64_t)got;
		else
			assert_int_equal(got, -EAGAIN);
		turn();
	}
}

static void wait_for_close(void)
{
	snt_stream_close(world.stream[MINE], -1);
}

static void close_both(void)
{
	while (snt_stream_close(world.stream[PEER], 0) == -ETIME)
		turn();
	assert_success(snt_stream_close(world.stream[MINE], -1));
	assert_success(snt_stream_listener_destroy(world.stream_listener));
}

static void prepare_stream_listener(void)
{
	listen_for_streams(MINE);
}

static void wait_for_accepted(void)
{
	snt_stream_listener_wait(world.stream_listener, -1, &world.stream[MINE]);
}

static void connect_peer(void)
{
	connect_stream(PEER);
}

static void prepare_file(void)
{
	prepare_stream();
	assert_success(snt_stream_file(world.stream[MINE], "r", &world.file));
}

static void wait_for_character(void)
{
	fgetc(world.file);
}

static void write_character(void)
{
	assert_int_equal(snt_stream_write(world.stream[PEER], "a", 1), 1);
	assert_int_equal(fgetc(world.file), 'a');
	assert_int_equal(fclose(world.file), 0);
}

static const struct wait waits[] = {
	{ "snt_loop_wait", nothing, wait_for_loop, wake_loop, nothing },
	{ "snt_op_wait", prepare_op, wait_for_op, complete_op, close_qps },
	{ "snt_op_group_wait", prepare_group, wait_for_group, complete_group,
	  close_qps },
	{ "snt_conn_wait", prepare_connecting, wait_for_conn, accept_mine,
	  close_conns },
	{ "snt_conn_wait_over", prepare_connected, wait_for_end, nothing, close_conns },
	{ "snt_listener_wait", prepare_listening, wait_for_request, request,
	  close_conns },
	{ "snt_stream_wait", prepare_stream, wait_for_stream, write_bytes,
	  close_streams },
	{ "snt_stream_read_all", prepare_stream, wait_for_bytes, write_bytes,
	  close_streams },
	{ "snt_stream_write_all", prepare_stream, wait_for_room, read_bytes,
	  close_streams },
	{ "snt_stream_close", prepare_stream, wait_for_close, close_both, nothing },
	{ "snt_stream_listener_wait", prepare_stream_listener, wait_for_accepted,
	  connect_peer, close_streams },
	{ "a FILE of a stream", prepare_file, wait_for_character, write_character,
	  close_streams },
};

/*
 * Cancelling
 */

enum moment {
	BEFORE, /* it is cancelled already when it begins to wait */
	ASLEEP,
	RACING,
	MOMENTS
};

struct victim {
	const struct wait *wait;
	enum moment moment;
	atomic_int id;
};

static void *wait_in_vain(void *arg)
{
	struct victim *victim = arg;

	if (victim->moment == BEFORE)
		pthread_cancel(pthread_self());
	snt_loop_wake(world.loop[MINE]); /* something to do before it sleeps */
	atomic_store(&victim->id, (int)syscall(SYS_gettid));
	victim->wait->wait();
	return NULL;
}

static char state_of_thread(int id)
{
	char path[64], text[512] = "";
	char *end;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", id);
	file = fopen(path, "r");
	if (!file)
		return 0;
	end = fgets(text, sizeof(text), file) ? strrchr(text, ')') : NULL;
	fclose(file);
	return end && end[1] ? end[2] : 0;
}

/* Or waits for a lock, but not for long. */
static void await_sleep(const struct victim *victim)
{
	unsigned seen = 0;

	while (seen < 10) {
		int id = atomic_load(&victim->id);

		seen = id && state_of_thread(id) == 'S' ? seen + 1 : 0;
		sched_yield();
	}
}

static void cancel_once(const struct wait *wait, enum moment moment)
{
	struct victim victim = { wait, moment, 0 };
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_create(&thread, NULL, wait_in_vain, &victim), 0);
	if (moment == ASLEEP)
		await_sleep(&victim);
	if (moment != BEFORE)
		pthread_cancel(thread);
	assert_int_equal(pthread_join(thread, &result), 0);
	if (result != PTHREAD_CANCELED)
		fail_msg("%s is no cancellation point: %s", wait->name, snt_err_text());
}

static void waits_can_be_cancelled(void **state)
{
	const struct wait *wait = *(const struct wait **)*state;

	open_world();
	wait->prepare();
	for (unsigned i = 0; i < 3 * MOMENTS; i++)
		cancel_once(wait, i % MOMENTS);
	wait->fulfil();
	wait->clean_up();
	close_world();
}

int main(void)
{
	struct CMUnitTest tests[ARRAY_SIZE(waits)];
	static const struct wait *state[ARRAY_SIZE(waits)];
	static char name[ARRAY_SIZE(waits)][64];

	for (unsigned i = 0; i < ARRAY_SIZE(waits); i++) {
		state[i] = &waits[i];
		snprintf(name[i], sizeof(name[i]), "waits_can_be_cancelled (%s)",
			 waits[i].name);
		tests[i] = (struct CMUnitTest){ .name = name[i],
						.test_func = waits_can_be_cancelled,
						.initial_state = &state[i] };
	}
	return cmocka_run_group_tests_name("cancel", tests, NULL, NULL);
}
