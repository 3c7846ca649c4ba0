/* SPDX-License-Identifier: MIT */
/*
 * Connections over soft devices whose packets move in a thread of their own, while the
 * program sleeps on the fds of its managers: all that is between them is the drivers' lock.
 */
#include "lib/test.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>

#include "dev/cm.h"
#include "dev/soft/device.h"

#define ROUNDS 300
#define BATCH  4
#define PORT   7000

enum {
	A,
	B,
	ENDS
};

struct world {
	pthread_mutex_t lock;
	pthread_cond_t kicked;
	pthread_t thread;
	bool kick;
	bool over;
	unsigned random;
	struct snt__soft_device *device[ENDS];
	struct snt__cm *cm[ENDS];
};

static const struct snt__cm_table *const table = &snt__cm_soft;

/*
 * The driver
 */

static void driver_random(void *arg, void *buffer, size_t length)
{
	struct world *world = arg;
	uint8_t *bytes = buffer;

	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)((world->random = world->random * 69069 + 1) >> 16);
}

static void driver_lock(void *arg)
{
	pthread_mutex_lock(&((struct world *)arg)->lock);
}

static void driver_unlock(void *arg)
{
	pthread_mutex_unlock(&((struct world *)arg)->lock);
}

static void driver_kick(void *arg)
{
	struct world *world = arg;

	pthread_mutex_lock(&world->lock);
	world->kick = true;
	pthread_cond_signal(&world->kicked);
	pthread_mutex_unlock(&world->lock);
}

static const struct snt__soft_driver driver = {
	.random = driver_random,
	.lock = driver_lock,
	.unlock = driver_unlock,
	.kick = driver_kick,
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static bool shuttle(struct world *world, unsigned from)
{
	struct snt__soft_packet packets[16];
	uint8_t bytes[SNT__WIRE_HEADER_MAX + SNT__SOFT_MAD_SIZE];
	unsigned count = snt__soft_output(world->device[from], packets, 16, now_ns());

	for (unsigned i = 0; i < count; i++) {
		size_t length = packets[i].header_length;

		memcpy(bytes, packets[i].header, length);
		memcpy(bytes + length, packets[i].payload[0].iov_base,
		       SNT__SOFT_MAD_SIZE);
		snt__soft_input(world->device[!from], packets[i].path, bytes,
				length + SNT__SOFT_MAD_SIZE, now_ns());
	}
	return count;
}

static void *move_packets(void *arg)
{
	struct world *world = arg;

	pthread_mutex_lock(&world->lock);
	while (!world->over) {
		bool moved = shuttle(world, A);

		moved |= shuttle(world, B);
		for (unsigned end = 0; end < ENDS; end++)
			if (snt__soft_deadline(world->device[end]) <= now_ns())
				snt__soft_timer(world->device[end], now_ns());
		/* Others want to have a turn, or nobody wants anything. */
		if (moved) {
			pthread_mutex_unlock(&world->lock);
			pthread_mutex_lock(&world->lock);
		} else if (!world->kick) {
			pthread_cond_wait(&world->kicked, &world->lock);
		}
		world->kick = false;
	}
	pthread_mutex_unlock(&world->lock);
	return NULL;
}

/*
 * The program
 */

static void open_world(struct world *world)
{
	for (unsigned end = 0; end < ENDS; end++) {
		const uint8_t gid[1][16] = {
			{ [10] = 0xff, 0xff, 10, 0, 0, (uint8_t)(end + 1) }
		};
		struct snt__soft_config config = {
			.name = "soft",
			.driver = &driver,
			.driver_arg = world,
			.gids = gid,
			.gid_count = 1,
		};
		struct snt__cm_device on = { .port = 1 };
		struct snt__cm_opts opts = { .devices = &on, .device_count = 1 };

		assert_int_equal(snt__soft_device_create(&config, &world->device[end]),
				 0);
		on.context = snt__soft_device_context(world->device[end]);
		assert_success(table->open(&opts, &world->cm[end]));
	}
	assert_int_equal(pthread_create(&world->thread, NULL, move_packets, world), 0);
}

static void close_world(struct world *world)
{
	pthread_mutex_lock(&world->lock);
	world->over = true;
	pthread_cond_signal(&world->kicked);
	pthread_mutex_unlock(&world->lock);
	pthread_join(world->thread, NULL);
	for (unsigned end = 0; end < ENDS; end++) {
		assert_success(table->close(world->cm[end]));
		assert_int_equal(snt__soft_device_destroy(world->device[end]), 0);
	}
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
	static struct world world = { .lock = PTHREAD_MUTEX_INITIALIZER,
				      .kicked = PTHREAD_COND_INITIALIZER };
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
