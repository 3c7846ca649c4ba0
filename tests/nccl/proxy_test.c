/* SPDX-License-Identifier: MIT */

/*
 * Two processes drive the plugin as NCCL's proxy does. In each, one thread sets connections
 * up, one after the other and interleaved, registers memory and closes; another thread sends
 * and receives meanwhile. Both ends know by the seed what each message is, and compare every
 * byte.
 *
 * usage: proxy_test [--version N] [--seed N] [--messages N]
 */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/test.h"
#include "net_kit.h"

#define COMMS	   6 /* half of them in each direction */
#define WINDOW	   NCCL_REQUESTS_MAX
#define SMALL_MAX  (64 * 1024)
#define LARGE_MAX  (8 * 1024 * 1024)
#define GUARD	   64
#define SLOT_BYTES (SMALL_MAX + GUARD)

static unsigned version = 11, seed = 1, messages = 150;

static void die(const char *format, ...)
	__attribute__((format(printf, 1, 2), noreturn));

static void die(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fprintf(stderr, " (seed %u, last warning: %s)\n", seed, net_last_warning());
	_exit(1);
}

static void must(int ret, const char *what)
{
	if (ret)
		die("%s: %d", what, ret);
}

/*
 * What message k of a comm is: the same at both ends
 */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	return x ^ x >> 32;
}

static uint64_t draw(unsigned comm, unsigned k, unsigned what)
{
	return mix(mix(mix(seed) + comm) + k * UINT64_C(16) + what);
}

static size_t message_size(unsigned comm, unsigned k)
{
	static const size_t sizes[] = { 0,    1,     8,	    127, 128,  4095,  4096,
					4097, 65535, 65536, 8,	 1000, 40000, 0 };
	static const size_t large[] = { 128 * 1024, 131073, 1024 * 1024, 3000000,
					LARGE_MAX };

	if (draw(comm, k, 0) % 24 == 0)
		return large[draw(comm, k, 1) % ARRAY_SIZE(large)];
	return sizes[draw(comm, k, 1) % ARRAY_SIZE(sizes)];
}

static bool is_large(unsigned comm, unsigned k)
{
	return message_size(comm, k) > SMALL_MAX;
}

/* Receives are often longer than what comes. */
static size_t receive_size(unsigned comm, unsigned k)
{
	const size_t size = message_size(comm, k);

	if (draw(comm, k, 2) % 2)
		return size;
	return is_large(comm, k) ? LARGE_MAX : SMALL_MAX;
}

static uint8_t *fill(uint8_t *data, unsigned comm, unsigned k)
{
	const uint64_t first = draw(comm, k, 3);
	const size_t size = message_size(comm, k);

	for (size_t i = 0; i < size; i++)
		data[i] = first + i + (i >> 8) * 31;
	return data;
}

/*
 * A receive's buffer is written by the device after the other rank has got the grant: an order
 * that goes through another process, which ThreadSanitizer does not see.
 */
#define NOT_WATCHED __attribute__((no_sanitize("thread")))

NOT_WATCHED static void fill_guard(volatile uint8_t *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		data[i] = 0xee;
}

NOT_WATCHED static void check(const uint8_t *data, unsigned comm, unsigned k)
{
	const uint64_t first = draw(comm, k, 3);
	const size_t size = message_size(comm, k);
	size_t i;

	for (i = 0; i < size; i++) {
		if (data[i] != (uint8_t)(first + i + (i >> 8) * 31))
			die("comm %u, message %u: byte %zu of %zu is wrong", comm, k, i,
			    size);
	}
	for (; i < size + GUARD; i++) {
		if (data[i] != 0xee)
			die("comm %u, message %u: byte %zu behind its end was written",
			    comm, k, i - size);
	}
}

/*
 * One comm: its buffers, and what is in flight
 */

struct lane {
	unsigned index;
	bool sends;
	void *listener, *comm, *memory;
	uint8_t *arena; /* WINDOW small buffers, and a large one */
	unsigned posted, done;
	void *request[WINDOW];
	bool large_in_use;
	/* Between the two threads: */
	bool ready, finished;
};

struct rank {
	int number, other; /* the socket to the other one */
	pthread_mutex_t lock;
	struct lane lane[COMMS];
	uint64_t random;
	unsigned refused; /* requests that came back NULL */
};

static uint64_t next_random(struct rank *rank)
{
	return rank->random = mix(rank->random + 1);
}

static uint8_t *buffer_of(const struct lane *lane, unsigned k)
{
	return lane->arena +
	       (is_large(lane->index, k) ? WINDOW : k % WINDOW) * (size_t)SLOT_BYTES;
}

static bool post(struct rank *rank, struct lane *lane)
{
	const unsigned k = lane->posted;
	const size_t size = message_size(lane->index, k);
	uint8_t *data = buffer_of(lane, k);
	void **request = &lane->request[k % WINDOW];

	*request = NULL;
	if (lane->sends) {
		must(net_isend(lane->comm, fill(data, lane->index, k), size,
			       lane->memory, request),
		     "isend");
	} else {
		fill_guard(data, size + GUARD);
		if (next_random(rank) % 2)
			*request = NCCL_OPTIONAL_COMPLETION;
		must(net_irecv(lane->comm, data, receive_size(lane->index, k),
			       lane->memory, request),
		     "irecv");
	}
	return *request;
}

static void post_some(struct rank *rank, struct lane *lane)
{
	unsigned wanted = next_random(rank) % (WINDOW + 4);

	while (wanted-- && lane->posted < messages) {
		const bool large = is_large(lane->index, lane->posted);

		if (lane->posted - lane->done >= WINDOW ||
		    (large && lane->large_in_use))
			return;
		if (!post(rank, lane)) {
			rank->refused++;
			return;
		}
		lane->large_in_use |= large;
		lane->posted++;
	}
}

static void test_some(struct rank *rank, struct lane *lane)
{
	unsigned wanted = next_random(rank) % WINDOW;

	while (wanted-- && lane->done < lane->posted) {
		const unsigned k = lane->done;
		int done = 0, size = -1;

		must(net_test(lane->request[k % WINDOW], &done, &size), "test");
		if (!done)
			return;
		if ((size_t)size != message_size(lane->index, k))
			die("comm %u, message %u: %d bytes instead of %zu", lane->index,
			    k, size, message_size(lane->index, k));
		if (!lane->sends)
			check(buffer_of(lane, k), lane->index, k);
		if (is_large(lane->index, k))
			lane->large_in_use = false;
		lane->done++;
	}
}

static bool get_flag(struct rank *rank, const bool *flag)
{
	bool value;

	pthread_mutex_lock(&rank->lock);
	value = *flag;
	pthread_mutex_unlock(&rank->lock);
	return value;
}

static void set_flag(struct rank *rank, bool *flag)
{
	pthread_mutex_lock(&rank->lock);
	*flag = true;
	pthread_mutex_unlock(&rank->lock);
}

static void *progress(void *arg)
{
	struct rank *rank = arg;
	unsigned left = COMMS;

	while (left) {
		struct lane *lane = &rank->lane[next_random(rank) % COMMS];
		const unsigned before = lane->done + lane->posted;

		if (!get_flag(rank, &lane->ready) || get_flag(rank, &lane->finished))
			continue;
		post_some(rank, lane);
		test_some(rank, lane);
		if (lane->done == messages) {
			set_flag(rank, &lane->finished);
			left--;
		} else if (lane->done + lane->posted == before) {
			sched_yield();
		}
	}
	return NULL;
}

/*
 * The thread that sets up
 */

static void exchange(int fd, void *mine, void *theirs, size_t size)
{
	size_t got = 0;

	if (write(fd, mine, size) != (ssize_t)size)
		die("no handles were sent");
	while (got < size) {
		const ssize_t count = read(fd, (char *)theirs + got, size - got);

		if (count <= 0)
			die("the other rank is gone");
		got += count;
	}
}

static void register_arena(struct lane *lane)
{
	const size_t size = (size_t)WINDOW * SLOT_BYTES + LARGE_MAX + GUARD;

	lane->arena = malloc(size);
	if (!lane->arena)
		die("no memory");
	must(net_reg(lane->comm, lane->arena, size, &lane->memory), "regMr");
}

/* One step of the setup of a comm. */
static bool set_up(struct rank *rank, struct lane *lane,
		   char (*handles)[NCCL_HANDLE_BYTES])
{
	if (lane->sends)
		must(net_connect(0, handles[lane->index], &lane->comm), "connect");
	else
		must(net_accept(lane->listener, &lane->comm), "accept");
	if (!lane->comm)
		return false;
	register_arena(lane);
	if (lane->listener)
		must(net_close_listen(lane->listener), "closeListen");
	set_flag(rank, &lane->ready);
	return true;
}

static void set_all_up(struct rank *rank)
{
	static char mine[COMMS][NCCL_HANDLE_BYTES], theirs[COMMS][NCCL_HANDLE_BYTES];
	unsigned left = COMMS;
	uint64_t random = rank->number;

	for (unsigned i = 0; i < COMMS; i++) {
		if (!rank->lane[i].sends)
			must(net_listen(0, mine[i], &rank->lane[i].listener), "listen");
	}
	exchange(rank->other, mine, theirs, sizeof(mine));
	while (left) {
		struct lane *lane = &rank->lane[(random = mix(random + 1)) % COMMS];

		if (!lane->comm && set_up(rank, lane, theirs))
			left--;
	}
}

/* Registers while the other thread sends and receives, until that is done. */
static void register_meanwhile(struct rank *rank)
{
	static uint8_t extra[256 * 1024];
	void *memory;

	for (unsigned i = 0; i < COMMS; i++) {
		while (!get_flag(rank, &rank->lane[i].finished)) {
			must(net_reg(rank->lane[i].comm, extra, sizeof(extra), &memory),
			     "regMr");
			must(net_dereg(rank->lane[i].comm, memory), "deregMr");
			sched_yield();
		}
	}
}

static void close_all(struct rank *rank)
{
	const unsigned first = draw(0, rank->number, 9) % COMMS;

	for (unsigned i = 0; i < COMMS; i++) {
		struct lane *lane = &rank->lane[(first + i * 5) % COMMS];

		must(net_dereg(lane->comm, lane->memory), "deregMr");
		must(lane->sends ? net_close_send(lane->comm)
				 : net_close_recv(lane->comm),
		     "close");
		free(lane->arena);
	}
}

static void run_rank(int number, int other)
{
	static struct rank rank;
	pthread_t thread;
	int count = 0;

	rank.number = number;
	rank.other = other;
	rank.random = mix(seed * 2 + number);
	pthread_mutex_init(&rank.lock, NULL);
	for (unsigned i = 0; i < COMMS; i++) {
		rank.lane[i].index = i;
		rank.lane[i].sends = i % 2 == (unsigned)number;
	}
	net_load(version);
	must(net_init(), "init");
	must(net_devices(&count), "devices");
	if (count != 1)
		die("%d devices", count);
	must(pthread_create(&thread, NULL, progress, &rank), "pthread_create");
	set_all_up(&rank);
	register_meanwhile(&rank);
	must(pthread_join(thread, NULL), "pthread_join");
	close_all(&rank);
	if (!net_info_with("messages"))
		die("no statistics in the log");
	if (!rank.refused)
		die("no request came back NULL");
	net_finalize();
}

/*
 * A peer that is killed
 */

static void set_one_up(struct rank *rank)
{
	static char mine[COMMS][NCCL_HANDLE_BYTES], theirs[COMMS][NCCL_HANDLE_BYTES];

	for (unsigned i = 0; i < 2; i++) {
		if (!rank->lane[i].sends)
			must(net_listen(0, mine[i], &rank->lane[i].listener), "listen");
	}
	exchange(rank->other, mine, theirs, sizeof(mine));
	while (!rank->lane[0].comm || !rank->lane[1].comm) {
		for (unsigned i = 0; i < 2; i++) {
			if (!rank->lane[i].comm)
				set_up(rank, &rank->lane[i], theirs);
		}
	}
}

/* Until the peer is gone; returns what the plugin says then. */
static int move_until_error(struct lane *lane)
{
	const uint64_t limit = patience_ns(20);
	struct timespec begin, now;
	void *request;
	int ret = 0, done;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (request = NULL; !ret;) {
		if (!request && lane->sends)
			ret = net_isend(lane->comm, lane->arena, SMALL_MAX,
					lane->memory, &request);
		else if (!request)
			ret = net_irecv(lane->comm, lane->arena, SMALL_MAX,
					lane->memory, &request);
		done = 0;
		if (request && !ret)
			ret = net_test(request, &done, NULL);
		if (done)
			request = NULL;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((uint64_t)(now.tv_sec - begin.tv_sec) * 1000000000 > limit)
			die("nothing is said about a peer that is gone");
	}
	return ret;
}

/* Rank 1 kills itself, in the middle of it or before it does anything. */
static void run_killed(int number, int other, bool idle)
{
	static struct rank rank;

	rank.number = number;
	rank.other = other;
	pthread_mutex_init(&rank.lock, NULL);
	for (unsigned i = 0; i < 2; i++) {
		rank.lane[i].index = i;
		rank.lane[i].sends = i % 2 == (unsigned)number;
	}
	net_load(version);
	must(net_init(), "init");
	set_one_up(&rank);
	if (number == 1) {
		void *request;

		for (unsigned i = 0; !idle && i < 2; i++) {
			struct lane *lane = &rank.lane[i];

			must(lane->sends ? net_isend(lane->comm, lane->arena, 1,
						     lane->memory, &request)
					 : net_irecv(lane->comm, lane->arena, SMALL_MAX,
						     lane->memory, &request),
			     "post");
		}
		/* A child, as of a data loader, lives until the other rank has ended. */
		if (idle && !fork())
			_exit(read(rank.other, &request, 1));
		kill(getpid(), SIGKILL);
	}
	for (unsigned i = 0; i < 2; i++) {
		const int ret = move_until_error(&rank.lane[i]);

		if (ret != NCCL_REMOTE_ERROR)
			die("%d for a peer that is gone", ret);
		must(net_dereg(rank.lane[i].comm, rank.lane[i].memory), "deregMr");
		must(rank.lane[i].sends ? net_close_send(rank.lane[i].comm)
					: net_close_recv(rank.lane[i].comm),
		     "close");
		free(rank.lane[i].arena);
	}
	net_finalize();
}

/*
 * Both processes
 */

enum scenario {
	TRAFFIC,
	KILLED,
	KILLED_IDLE
};

static pid_t start_rank(int number, const int *fds, enum scenario scenario)
{
	const pid_t child = fork();
	const int fd = fds[number];

	if (child)
		return child;
	close(fds[!number]);
	alarm(patience_s(100));
	if (scenario == TRAFFIC)
		run_rank(number, fd);
	else
		run_killed(number, fd, scenario == KILLED_IDLE);
	exit(0);
}

static void play(enum scenario scenario)
{
	int fd[2], status;
	pid_t rank[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	for (int i = 0; i < 2; i++)
		rank[i] = start_rank(i, fd, scenario);
	close(fd[0]);
	close(fd[1]);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(waitpid(rank[i], &status, 0), rank[i]);
		if (scenario != TRAFFIC && i == 1)
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		else
			assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
}

static void traffic_in_both_directions_is_right_to_the_last_byte(void **state)
{
	(void)state;
	play(TRAFFIC);
}

static void a_peer_killed_while_it_moves_data_is_a_remote_error(void **state)
{
	(void)state;
	play(KILLED);
}

static void a_peer_killed_while_idle_is_a_remote_error_even_if_its_child_lives(
	void **state)
{
	(void)state;
	play(KILLED_IDLE);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(traffic_in_both_directions_is_right_to_the_last_byte),
		cmocka_unit_test(a_peer_killed_while_it_moves_data_is_a_remote_error),
		cmocka_unit_test(
			a_peer_killed_while_idle_is_a_remote_error_even_if_its_child_lives),
	};

	for (int i = 1; i + 1 < argc; i += 2) {
		const unsigned value = strtoul(argv[i + 1], NULL, 10);

		if (!strcmp(argv[i], "--version"))
			version = value;
		else if (!strcmp(argv[i], "--seed"))
			seed = value;
		else if (!strcmp(argv[i], "--messages"))
			messages = value;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
