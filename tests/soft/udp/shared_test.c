/* SPDX-License-Identifier: MIT */
/* Contexts of one process that name the same address share its device, as they would share a
 * NIC. */
#include "lib/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sennit/sennit.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "dev/soft/udp/device.h"
#include "lib/fds.h"
#include "lib/loopback.h"
#include "lib/patience.h"

#define BYTES 4096

struct end {
	struct snt_ctx *ctx;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	struct snt_token token;
	struct snt_card card;
	uint8_t *bytes;
};

static int open_at(const char *addresses, struct snt_ctx **ctx_out)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .soft = SNT_SOFT_ONLY,
				     .soft_addresses = addresses };

	return snt_ctx_create(&opts, ctx_out);
}

static void make_qp(struct end *end)
{
	struct snt_cq_opts cq = { .size = sizeof(cq) };
	struct snt_qp_opts qp = { .size = sizeof(qp) };

	end->bytes = calloc(1, BYTES);
	assert_non_null(end->bytes);
	assert_success(
		snt_mem_register(end->ctx, end->bytes, BYTES,
				 SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE,
				 &end->mem));
	assert_success(snt_mem_token(end->mem, &end->token));
	assert_success(snt_qp_create_with_cq(end->ctx, &cq, &qp, &end->cq, &end->qp));
	assert_success(snt_qp_card(end->qp, &end->card));
}

static void open_end(struct end *end, const char *addresses)
{
	assert_success(open_at(addresses, &end->ctx));
	make_qp(end);
}

static void connect_ends(struct end *a, struct end *b)
{
	assert_success(snt_qp_connect(a->qp, &b->card));
	assert_success(snt_qp_connect(b->qp, &a->card));
}

static struct snt_wc wait_for_wc(struct end *end)
{
	struct snt_wc wc;

	while (!snt_cq_poll(end->cq, &wc, 1))
		sched_yield();
	return wc;
}

static struct snt__udp_device *device_of(struct snt_ctx *ctx, unsigned position)
{
	return snt__udp_device_of(snt_device_context(snt_ctx_device(ctx, position)));
}

/* What a device has written it has written with its lock. */
static void see_writes(struct end *end)
{
	struct snt__udp_device *device = device_of(end->ctx, 0);

	snt__udp_lock(device);
	snt__udp_unlock(device);
}

/* All of the memory, from one to the other. */
static void write_all(struct end *from, struct end *to, uint8_t fill)
{
	struct snt_sge sge = { from->mem, from->bytes, BYTES };
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE,
				  .flags = SNT_SEND_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1,
				  .remote = &to->token,
				  .remote_addr = (uintptr_t)to->bytes };

	memset(from->bytes, fill, BYTES);
	assert_int_equal(snt_qp_post_send(from->qp, &wr, 1), 1);
	assert_int_equal(wait_for_wc(from).status, SNT_WC_SUCCESS);
	see_writes(to);
	assert_memory_equal(from->bytes, to->bytes, BYTES);
}

static void destroy_qp(struct end *end)
{
	assert_success(snt_qp_destroy(end->qp));
	assert_success(snt_cq_destroy(end->cq));
	assert_success(snt_mem_release(end->mem));
	free(end->bytes);
}

static void close_qp(struct end *end)
{
	assert_success(snt_qp_close(end->qp, 0));
	while (wait_for_wc(end).opcode != SNT_OP_CLOSED)
		;
	destroy_qp(end);
}

static void close_end(struct end *end)
{
	close_qp(end);
	assert_success(snt_ctx_destroy(end->ctx));
}

static const char *name_of(struct snt_ctx *ctx, unsigned position)
{
	static struct snt_device_info info;

	info = (struct snt_device_info){ .size = sizeof(info) };
	assert_success(snt_device_query(snt_ctx_device(ctx, position), &info));
	return info.name;
}

static void two_contexts_have_one_device(void **state)
{
	unsigned fds = count_fds();
	struct end one, two, peer;

	(void)state;
	open_end(&one, loopback_text(0));
	open_end(&two, loopback_text(0));
	open_end(&peer, loopback_text(1));
	assert_ptr_equal(device_of(one.ctx, 0), device_of(two.ctx, 0));
	connect_ends(&two, &peer);
	write_all(&two, &peer, 2);
	write_all(&peer, &two, 3);
	/* The one that opened the device first goes first. */
	destroy_qp(&one);
	assert_success(snt_ctx_destroy(one.ctx));
	write_all(&two, &peer, 4);
	close_end(&two);
	close_end(&peer);
	assert_int_equal(count_fds(), fds);
}

/* A QP of one context and a QP of another, on one device. */
static void a_device_reaches_itself(void **state)
{
	struct end one, two;

	(void)state;
	open_end(&one, loopback_text(0));
	open_end(&two, loopback_text(0));
	connect_ends(&one, &two);
	write_all(&one, &two, 1);
	write_all(&two, &one, 2);
	close_end(&two);
	close_end(&one);
}

/* Each context counts devices as they are in its own list. */
static void each_context_has_its_own_names(void **state)
{
	struct snt_ctx *one, *two, *three;
	char list[128];

	(void)state;
	snprintf(list, sizeof(list), "%s,%s", loopback_text(1), loopback_text(0));
	assert_success(open_at(loopback_text(0), &one));
	assert_success(open_at(list, &two));
	assert_success(open_at(loopback_text(1), &three));
	assert_ptr_equal(device_of(one, 0), device_of(two, 1));
	assert_ptr_equal(device_of(three, 0), device_of(two, 0));
	assert_string_equal(name_of(one, 0), "soft0");
	assert_string_equal(name_of(two, 1), "soft1");
	assert_string_equal(name_of(three, 0), "soft0");
	assert_success(snt_ctx_destroy(two));
	assert_string_equal(name_of(one, 0), "soft0");
	assert_success(snt_ctx_destroy(one));
	assert_success(snt_ctx_destroy(three));
}

/* How the device is to reach others is for the first context to say. */
static void other_options_are_refused(void **state)
{
	struct snt_ctx *one, *two;

	(void)state;
	assert_success(open_at(loopback_text(0), &one));
	setenv("SENNIT_SOFT_SHM", "off", 1);
	assert_error(open_at(loopback_text(0), &two), EADDRINUSE, "SENNIT_SOFT_SHM");
	unsetenv("SENNIT_SOFT_SHM");
	assert_success(open_at(loopback_text(0), &two));
	assert_success(snt_ctx_destroy(two));
	assert_success(snt_ctx_destroy(one));
}

struct heard {
	unsigned ports;
};

static void hear(void *arg, const struct snt_event *event)
{
	struct heard *heard = arg;

	heard->ports += event->type == SNT_EVENT_PORT_DOWN ||
			event->type == SNT_EVENT_PORT_ACTIVE;
}

static struct snt_loop *hear_events(struct snt_ctx *ctx, struct heard *heard)
{
	struct snt_loop *loop;

	assert_success(snt_loop_create(ctx, NULL, &loop));
	assert_success(snt_loop_set_event_handler(loop, hear, heard));
	return loop;
}

static void run_until(struct snt_loop *loop, const unsigned *count)
{
	uint64_t end = snt__udp_now() + patience_ns(60);

	while (!*count) {
		assert_true(snt__udp_now() < end);
		assert_true(snt_loop_wait(loop, 10000000) >= 0);
	}
}

static void set_port(struct snt_ctx *ctx, bool up)
{
	struct snt__udp_device *device = device_of(ctx, 0);

	snt__udp_lock(device);
	snt__soft_device_set_port(device->core, up);
	snt__udp_unlock(device);
}

/* Events of the port are for all contexts, even if one of them has taken its own. */
static void events_reach_every_context(void **state)
{
	struct heard heard[2] = { 0 };
	struct snt_loop *loop[2];
	struct snt_ctx *ctx[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		assert_success(open_at(loopback_text(0), &ctx[i]));
		loop[i] = hear_events(ctx[i], &heard[i]);
	}
	set_port(ctx[0], false);
	for (unsigned i = 0; i < 2; i++)
		run_until(loop[i], &heard[i].ports);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(heard[i].ports, 1);
		assert_success(snt_loop_destroy(loop[i]));
		assert_success(snt_ctx_destroy(ctx[i]));
	}
}

/* A context that comes later has not heard what came before. */
static void old_events_are_not_for_new_contexts(void **state)
{
	struct heard heard = { 0 };
	struct snt_loop *loop;
	struct snt_ctx *ctx, *other;

	(void)state;
	assert_success(open_at(loopback_text(0), &ctx));
	assert_success(open_at(loopback_text(0), &other));
	set_port(ctx, false);
	set_port(ctx, true);
	assert_success(snt_ctx_destroy(ctx));
	assert_success(open_at(loopback_text(0), &ctx));
	loop = hear_events(ctx, &heard);
	snt_loop_wake(loop);
	assert_true(snt_loop_wait(loop, 0) >= 0);
	assert_int_equal(heard.ports, 0);
	assert_success(snt_loop_destroy(loop));
	assert_success(snt_ctx_destroy(ctx));
	assert_success(snt_ctx_destroy(other));
}

static int async_fd_of(struct snt_ctx *ctx)
{
	return snt_device_context(snt_ctx_device(ctx, 0))->async_fd;
}

/* What a context has made of its fd for events ends with it, as that of a NIC does. */
static void events_have_an_fd_per_context(void **state)
{
	struct epoll_event event = { .events = EPOLLIN };
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	struct snt_ctx *ctx, *other;

	(void)state;
	assert_true(epoll_fd >= 0);
	assert_success(open_at(loopback_text(0), &ctx));
	assert_success(open_at(loopback_text(0), &other));
	assert_int_equal(fcntl(async_fd_of(ctx), F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, async_fd_of(ctx), &event),
			 0);
	assert_success(snt_ctx_destroy(ctx));
	set_port(other, false);
	set_port(other, true);
	assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 0);
	assert_success(open_at(loopback_text(0), &ctx));
	assert_int_equal(fcntl(async_fd_of(ctx), F_GETFL) & O_NONBLOCK, 0);
	assert_success(snt_ctx_destroy(ctx));
	assert_success(snt_ctx_destroy(other));
	close(epoll_fd);
}

#define THREADS 4
#define ROUNDS	25

struct visitor {
	const char *where;
	struct end peer;
};

static void *come_and_go(void *arg)
{
	struct visitor *visitor = arg;
	struct end *peer = &visitor->peer, end;

	for (unsigned i = 0; i < ROUNDS; i++) {
		open_end(&end, visitor->where);
		make_qp(peer);
		connect_ends(&end, peer);
		write_all(&end, peer, (uint8_t)i);
		close_end(&end);
		close_qp(peer);
	}
	return NULL;
}

/* The device comes with the first and goes with the last, in whatever thread that is. */
static void threads_come_and_go(void **state)
{
	pthread_t thread[THREADS];
	struct visitor visitor[THREADS];
	unsigned fds = count_fds();

	(void)state;
	alarm(patience_s(100)); /* ends it, if one waits for the other */
	for (unsigned i = 0; i < THREADS; i++) {
		visitor[i].where = loopback_text(0);
		assert_success(open_at(loopback_text(1 + i), &visitor[i].peer.ctx));
	}
	for (unsigned i = 0; i < THREADS; i++)
		assert_success(
			pthread_create(&thread[i], NULL, come_and_go, &visitor[i]));
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		assert_success(snt_ctx_destroy(visitor[i].peer.ctx));
	}
	assert_int_equal(count_fds(), fds);
	alarm(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_contexts_have_one_device),
		cmocka_unit_test(a_device_reaches_itself),
		cmocka_unit_test(each_context_has_its_own_names),
		cmocka_unit_test(other_options_are_refused),
		cmocka_unit_test(events_reach_every_context),
		cmocka_unit_test(old_events_are_not_for_new_contexts),
		cmocka_unit_test(events_have_an_fd_per_context),
		cmocka_unit_test(threads_come_and_go),
	};

	return cmocka_run_group_tests_name("udp_shared", tests, NULL, NULL);
}
