/* SPDX-License-Identifier: MIT */
/*
 * Two threads with a manager each, on the same two soft devices, whose packets move in
 * threads of their own. Each listens, connects to the other's port and serves what comes, or
 * moves it to the other manager; connections end in every way there is. Managers are opened
 * and closed in rounds, each thread at its own pace. What is checked under ThreadSanitizer is
 * that everything that they share is behind the devices' locks.
 */
#include "lib/test.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "dev/soft/core.h"
#include "lib/cm_check.h"
#include "lib/udp_side.h"
#include "lib/soft_mover.h"

#define ROUNDS	40
#define PORT	7000
#define WORKERS 2
#define DEVICES 2
#define WAIT_MS 60000

/* cmocka's own are for the main thread only. */
#define must(condition)                                                        \
	do {                                                                   \
		if (!(condition)) {                                            \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, \
				#condition, snt_err_text());                   \
			abort();                                               \
		}                                                              \
	} while (0)

/* How a connection ends. */
enum fate {
	SERVER_REJECTS,
	CLIENT_REJECTS,
	CLIENT_DISCONNECTS,
	SERVER_DISCONNECTS,
	CLIENT_DESTROYS,
	SERVER_DESTROYS,
	CLIENT_GIVES_UP,
	FATES
};

/* What the client tells the server, as data of its request. */
struct plan {
	uint8_t fate;
	bool moves;
	uint8_t client; /* the worker */
};

#define PLANS (2 * FATES)

/* One end of a connection; it belongs to the thread that has its id. */
struct end {
	struct snt__cm_id *id; /* NULL: destroyed */
	struct plan plan;
	bool passive;
	bool on_its_way; /* to the other worker, which has not heard of it */
	struct end *next;
};

struct worker {
	struct world *world;
	unsigned index;
	struct snt__cm *cm;
	int bell; /* rung for the inbox, and when the last client is done */
	pthread_mutex_t lock;
	struct end *inbox;   /* under the lock */
	atomic_uint servers; /* ends */
	unsigned moved_here;
};

struct world {
	struct snt__soft_device *device[DEVICES];
	bool loops_back; /* a device reaches itself */
	struct worker worker[WORKERS];
	pthread_barrier_t barrier;
	atomic_uint clients; /* ends of both sides */
	atomic_uint qpn;
};

static const struct snt__cm_table *const table = &snt__cm_soft;

static struct sockaddr_in address(const struct world *world, unsigned device,
				  unsigned port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons((uint16_t)port) };

	memcpy(&address.sin_addr, world->device[device]->gids[0] + 12, 4);
	return address;
}

static struct snt__cm_param new_param(struct world *world, const struct plan *plan)
{
	return (struct snt__cm_param){ .qpn = 100 + world->qpn++,
				       .data = plan,
				       .data_length = sizeof(*plan) };
}

/*
 * Ends
 */

static struct end *new_end(struct snt__cm_id *id, struct plan plan)
{
	struct end *end = calloc(1, sizeof(*end));

	must(end);
	*end = (struct end){ .id = id, .plan = plan };
	id->user = end;
	return end;
}

static void ring(struct worker *worker)
{
	must(!eventfd_write(worker->bell, 1));
}

static void free_end(struct worker *worker, struct end *end)
{
	if (end->passive)
		worker->servers--;
	else if (!--worker->world->clients)
		for (unsigned i = 0; i < WORKERS; i++)
			ring(&worker->world->worker[i]);
	free(end);
}

static void destroy_end(struct worker *worker, struct end *end)
{
	must(end->id->cm == worker->cm);
	table->destroy(end->id);
	end->id = NULL;
	if (!end->on_its_way)
		free_end(worker, end);
}

static void start_client(struct worker *worker, unsigned number)
{
	struct plan plan = { .fate = (uint8_t)(number % FATES),
			     .moves = number >= FATES,
			     .client = (uint8_t)worker->index };
	unsigned device = number % DEVICES;
	bool to_itself = worker->world->loops_back && number / DEVICES % 2;
	struct sockaddr_in from = address(worker->world, device, 0);
	struct sockaddr_in to = address(worker->world, to_itself ? device : !device,
					PORT + !worker->index);
	struct snt__cm_id *id = NULL;

	must(!table->resolve(worker->cm, (struct sockaddr *)&from,
			     (struct sockaddr *)&to, 1, &id));
	new_end(id, plan);
}

/* The peer may have given up: its end is an event that comes, or has come. */
static bool worked(int ret)
{
	must(!ret || ret == -ENOTCONN);
	return !ret;
}

static void serve(struct worker *worker, struct end *end)
{
	struct snt__cm_param param = new_param(worker->world, &end->plan);

	/* A client's request that was moved is back with the client's thread. */
	must(end->plan.moves == (end->plan.client == worker->index));
	if (end->plan.fate != SERVER_REJECTS) {
		worked(table->accept(end->id, &param));
		return;
	}
	if (worked(table->reject(end->id, "no", 3)))
		destroy_end(worker, end);
}

static void move_to(struct worker *to, struct end *end)
{
	end->on_its_way = true;
	to->servers++;
	must(!table->move(end->id, to->cm));
	pthread_mutex_lock(&to->lock);
	end->next = to->inbox;
	to->inbox = end;
	pthread_mutex_unlock(&to->lock);
	ring(to);
}

static void open_inbox(struct worker *worker)
{
	struct end *end, *next;

	pthread_mutex_lock(&worker->lock);
	end = worker->inbox;
	worker->inbox = NULL;
	pthread_mutex_unlock(&worker->lock);
	for (; end; end = next) {
		next = end->next;
		end->on_its_way = false;
		worker->moved_here++;
		if (end->id)
			serve(worker, end);
		else
			free_end(worker, end);
	}
}

/*
 * Events
 */

static void on_request(struct worker *worker, const struct snt__cm_event *event)
{
	struct plan plan;
	struct end *end;

	memcpy(&plan, event->data, sizeof(plan));
	must(plan.client == !worker->index);
	end = new_end(event->id, plan);
	end->passive = true;
	if (plan.moves) {
		move_to(&worker->world->worker[!worker->index], end);
		return;
	}
	worker->servers++;
	serve(worker, end);
}

static void on_resolved(struct worker *worker, struct end *end)
{
	struct snt__cm_param param = new_param(worker->world, &end->plan);

	must(!table->connect(end->id, &param));
	if (end->plan.fate == CLIENT_GIVES_UP)
		destroy_end(worker, end);
}

static void on_response(struct worker *worker, struct end *end)
{
	if (end->plan.fate == CLIENT_REJECTS) {
		must(!table->reject(end->id, "no", 3));
		destroy_end(worker, end);
		return;
	}
	must(!table->establish(end->id));
	if (end->plan.fate == CLIENT_DISCONNECTS)
		must(!table->disconnect(end->id));
	if (end->plan.fate == CLIENT_DESTROYS)
		destroy_end(worker, end);
}

static void on_established(struct worker *worker, struct end *end)
{
	must(end->passive);
	if (end->plan.fate == SERVER_DISCONNECTS)
		must(!table->disconnect(end->id));
	if (end->plan.fate == SERVER_DESTROYS)
		destroy_end(worker, end);
}

static void on_final(struct worker *worker, struct end *end,
		     enum snt__cm_event_type type)
{
	bool refused = end->plan.fate == SERVER_REJECTS ||
		       end->plan.fate == CLIENT_REJECTS ||
		       end->plan.fate == CLIENT_GIVES_UP;

	must(type == (refused ? SNT__CM_EVENT_REJECTED : SNT__CM_EVENT_DISCONNECTED));
	destroy_end(worker, end);
}

static void happen(struct worker *worker, const struct snt__cm_event *event)
{
	struct end *end = event->id->user;

	must(event->id->cm == worker->cm && event->id->device < DEVICES);
	if (event->type == SNT__CM_EVENT_REQUEST)
		on_request(worker, event);
	else if (event->type == SNT__CM_EVENT_RESOLVED)
		on_resolved(worker, end);
	else if (event->type == SNT__CM_EVENT_RESPONSE)
		on_response(worker, end);
	else if (event->type == SNT__CM_EVENT_ESTABLISHED)
		on_established(worker, end);
	else
		on_final(worker, end, event->type);
}

static void run_until_zero(struct worker *worker, const atomic_uint *count)
{
	struct pollfd wait[] = { { .fd = table->fd(worker->cm), .events = POLLIN },
				 { .fd = worker->bell, .events = POLLIN } };

	while (*count) {
		struct snt__cm_event event;
		eventfd_t rings;

		must(poll(wait, ARRAY_SIZE(wait), WAIT_MS) > 0);
		if (wait[1].revents)
			must(!eventfd_read(worker->bell, &rings));
		open_inbox(worker);
		while (!table->next_event(worker->cm, &event))
			happen(worker, &event);
	}
}

/*
 * Rounds
 */

static void meet(struct world *world)
{
	int ret = pthread_barrier_wait(&world->barrier);

	must(!ret || ret == PTHREAD_BARRIER_SERIAL_THREAD);
}

/* The second numbers its devices the other way round. */
static void open_manager(struct worker *worker)
{
	struct snt__cm_device on[DEVICES];
	struct snt__cm_opts opts = { .devices = on,
				     .device_count = DEVICES,
				     .connection_max = 4 * PLANS };

	for (unsigned i = 0; i < DEVICES; i++)
		on[i ^ worker->index] = (struct snt__cm_device){
			snt__soft_device_context(worker->world->device[i]), 1
		};
	must(!table->open(&opts, &worker->cm));
}

static void check_machines(struct world *world)
{
	for (unsigned i = 0; i < DEVICES; i++) {
		snt__soft_lock(world->device[i]);
		must(!cm_check(world->device[i]->mads.arg));
		snt__soft_unlock(world->device[i]);
	}
}

static void one_round(struct worker *worker)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct snt__cm_id *listener = NULL, *none;
	struct world *world = worker->world;

	open_manager(worker);
	at.sin_port = htons((uint16_t)(PORT + worker->index));
	must(!table->listen(worker->cm, (struct sockaddr *)&at, 0, &listener));
	world->clients += PLANS;
	meet(world);
	at.sin_port = htons((uint16_t)(PORT + !worker->index));
	must(table->listen(worker->cm, (struct sockaddr *)&at, 0, &none) ==
	     -EADDRINUSE);
	for (unsigned i = 0; i < PLANS; i++)
		start_client(worker, i);
	run_until_zero(worker, &world->clients);
	check_machines(world);
	must(table->close(worker->cm) == -EBUSY);
	table->destroy(listener);
	/* Nothing is moved any more, once the other listener has gone as well. */
	meet(world);
	run_until_zero(worker, &worker->servers);
	check_machines(world);
	must(!table->close(worker->cm));
}

static void *run_worker(void *arg)
{
	for (unsigned round = 0; round < ROUNDS; round++)
		one_round(arg);
	return NULL;
}

static void open_worker(struct world *world, unsigned index)
{
	world->worker[index] = (struct worker){ .world = world,
						.index = index,
						.bell = eventfd(0, EFD_CLOEXEC),
						.lock = PTHREAD_MUTEX_INITIALIZER };
	assert_true(world->worker[index].bell >= 0);
}

static void run_workers(struct world *world)
{
	pthread_t thread[WORKERS];

	assert_int_equal(pthread_barrier_init(&world->barrier, NULL, WORKERS), 0);
	for (unsigned i = 0; i < WORKERS; i++)
		open_worker(world, i);
	for (unsigned i = 0; i < WORKERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, run_worker,
						&world->worker[i]),
				 0);
	for (unsigned i = 0; i < WORKERS; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	for (unsigned i = 0; i < WORKERS; i++) {
		/* All but those whose clients gave up, at least. */
		assert_true(world->worker[i].moved_here >= ROUNDS * (FATES - 1));
		close(world->worker[i].bell);
	}
	pthread_barrier_destroy(&world->barrier);
}

/*
 * Devices
 */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Both devices have one lock, and no packet is lost. */
static void two_threads_without_sockets(void **state)
{
	static struct world world;
	struct soft_mover mover;

	(void)state;
	soft_mover_open(&mover, now_ns);
	soft_mover_start(&mover);
	for (unsigned i = 0; i < DEVICES; i++)
		world.device[i] = mover.device[i];
	run_workers(&world);
	soft_mover_stop(&mover);
	soft_mover_close(&mover);
}

/* Each device has a lock, a socket and a thread of its own. */
static void two_threads_on_sockets(void **state)
{
	static struct world world = { .loops_back = true };
	struct side side[DEVICES];

	(void)state;
	for (unsigned i = 0; i < DEVICES; i++) {
		side_open(&side[i], i + 1, NULL);
		world.device[i] = side[i].device->core;
	}
	run_workers(&world);
	sides_close(side);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_threads_without_sockets),
		cmocka_unit_test(two_threads_on_sockets),
	};

	return cmocka_run_group_tests_name("cm_managers", tests, NULL, NULL);
}
