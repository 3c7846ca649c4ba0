/* SPDX-License-Identifier: MIT */
/*
 * Connections over soft devices whose packets move in a thread of their own, while the
 * program sleeps on the fds of its managers: all that is between them is the drivers' lock.
 */
#include "lib/test.h"

#include <arpa/inet.h>
#include <poll.h>
#include <time.h>

#include "dev/cm.h"
#include "lib/soft_mover.h"

#define ROUNDS 300
#define BATCH  4
#define PORT   7000

enum {
	A,
	B,
	ENDS
};

struct world {
	struct soft_mover mover;
	struct snt__cm *cm[ENDS];
};

static const struct snt__cm_table *const table = &snt__cm_soft;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void open_world(struct world *world)
{
	soft_mover_open(&world->mover, now_ns);
	for (unsigned end = 0; end < ENDS; end++) {
		struct snt__cm_device on = {
			.context = snt__soft_device_context(world->mover.device[end]),
			.port = 1,
		};
		struct snt__cm_opts opts = { .devices = &on, .device_count = 1 };

		assert_success(table->open(&opts, &world->cm[end]));
	}
	soft_mover_start(&world->mover);
}

static void close_world(struct world *world)
{
	soft_mover_stop(&world->mover);
	for (unsigned end = 0; end < ENDS; end++)
		assert_success(table->close(world->cm[end]));
	soft_mover_close(&world->mover);
}

static struct snt__cm_event expect(struct world *world, unsigned end,
				   enum snt__cm_event_type type)
{
	struct pollfd wait = { .fd = table->fd(world->cm[end]), .events = POLLIN };
	struct snt__cm_event event;

	assert_int_equal(poll(&wait, 1, 30000), 1);
	assert_success(table->next_event(world->cm[end], &event));
	assert_int_equal(event.type, type);
	return event;
}

static void start_connect(struct world *world, uint32_t qpn)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(PORT),
				  .sin_addr.s_addr = htonl(0x0a000002) };
	struct snt__cm_param param = { .qpn = qpn };
	struct snt__cm_id *id = NULL;

	assert_success(
		table->resolve(world->cm[A], NULL, (struct sockaddr *)&to, 1, &id));
	assert_ptr_equal(expect(world, A, SNT__CM_EVENT_RESOLVED).id, id);
	assert_success(table->connect(id, &param));
}

/* Some at a time, while others are on their way. */
static void one_round(struct world *world, unsigned round)
{
	struct snt__cm_id *id[ENDS][BATCH];

	for (unsigned i = 0; i < BATCH; i++)
		start_connect(world, 100 + BATCH * round + i);
	for (unsigned i = 0; i < BATCH; i++) {
		struct snt__cm_event event = expect(world, B, SNT__CM_EVENT_REQUEST);
		struct snt__cm_param param = { .qpn = event.qpn + 100000 };

		id[B][i] = event.id;
		assert_success(table->accept(event.id, &param));
	}
	for (unsigned i = 0; i < BATCH; i++) {
		id[A][i] = expect(world, A, SNT__CM_EVENT_RESPONSE).id;
		assert_success(table->establish(id[A][i]));
	}
	for (unsigned i = 0; i < BATCH; i++)
		expect(world, B, SNT__CM_EVENT_ESTABLISHED);
	for (unsigned i = 0; i < BATCH; i++) {
		assert_success(table->disconnect(id[i & 1][i]));
		expect(world, A, SNT__CM_EVENT_DISCONNECTED);
		expect(world, B, SNT__CM_EVENT_DISCONNECTED);
	}
	for (unsigned i = 0; i < BATCH; i++) {
		table->destroy(id[A][i]);
		table->destroy(id[B][i]);
	}
}

static void packets_move_elsewhere(void **state)
{
	static struct world world;
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct snt__cm_id *listener = NULL;

	(void)state;
	open_world(&world);
	assert_success(
		table->listen(world.cm[B], (struct sockaddr *)&any, 0, &listener));
	for (unsigned round = 0; round < ROUNDS; round++)
		one_round(&world, round);
	table->destroy(listener);
	close_world(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(packets_move_elsewhere) };

	return cmocka_run_group_tests_name("cm_threads", tests, NULL, NULL);
}
