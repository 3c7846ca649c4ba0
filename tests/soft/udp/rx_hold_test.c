/* SPDX-License-Identifier: MIT */
/* Held messages: whatever is sent comes out once and in order, a thread that sleeps hears
 * of it, and a kernel that lacks support for this costs only speed. */
#include "lib/test.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "dev/soft/udp/rx_hold.h"
#include "lib/seeds.h"

#define SEEDS	   200
#define STEPS	   400
#define BATCH	   8
#define LONG	   40000
#define BUFFER	   (8 << 20)
#define BUFFER_MIN (4 << 20)

#define NO_SHELF "net.core.rmem_max grants this user no buffer that is large enough"

/* A socket that holds messages, and one that sends to it. */
struct pair {
	struct snt__udp_rx_hold rx_hold;
	int from, to;
	uint32_t sent, received; /* messages */
};

static bool no_peek_off, vain_peek_off, no_epoll, no_epoll_ctl, no_epoll_wait;

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t size);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size);
int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags);
int __real_epoll_ctl(int fd, int what, int of, struct epoll_event *event);
int __wrap_epoll_ctl(int fd, int what, int of, struct epoll_event *event);
int __real_epoll_wait(int fd, struct epoll_event *events, int count, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int count, int timeout);

static int refuse(void)
{
	errno = ENOSYS;
	return -1;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	if (no_peek_off && level == SOL_SOCKET && name == SO_PEEK_OFF)
		return refuse();
	if (vain_peek_off && level == SOL_SOCKET && name == SO_PEEK_OFF)
		return 0;
	return __real_setsockopt(fd, level, name, value, size);
}

int __wrap_epoll_create1(int flags)
{
	return no_epoll ? refuse() : __real_epoll_create1(flags);
}

int __wrap_epoll_ctl(int fd, int what, int of, struct epoll_event *event)
{
	return no_epoll_ctl ? refuse() : __real_epoll_ctl(fd, what, of, event);
}

int __wrap_epoll_wait(int fd, struct epoll_event *events, int count, int timeout)
{
	return no_epoll_wait ? refuse() : __real_epoll_wait(fd, events, count, timeout);
}

static uint32_t buffer_of(int fd)
{
	socklen_t size = sizeof(int);
	int bytes = 0;

	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size), 0);
	return bytes;
}

static void open_pair(struct pair *pair, int buffer)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	struct snt__udp_socket at = { 0 };

	*pair = (struct pair){ 0 };
	pair->from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	pair->to = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(pair->from >= 0 && pair->to >= 0);
	assert_int_equal(bind(pair->to, (struct sockaddr *)&address, size), 0);
	assert_int_equal(getsockname(pair->to, (struct sockaddr *)&address, &size), 0);
	assert_int_equal(connect(pair->from, (struct sockaddr *)&address, size), 0);
	setsockopt(pair->to, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
	setsockopt(pair->to, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer));
	at.fd = pair->to;
	at.receive_bytes = at.spare_bytes = buffer_of(pair->to) / 2;
	snt__udp_rx_hold_init(&pair->rx_hold, &at);
}

static void close_pair(struct pair *pair)
{
	snt__udp_rx_hold_finish(&pair->rx_hold);
	close(pair->from);
	close(pair->to);
}

/* Can messages be held? The system may grant no buffer that is large enough. */
static bool open_large(struct pair *pair, int buffer)
{
	open_pair(pair, buffer);
	if (pair->rx_hold.bytes_max)
		return true;
	close_pair(pair);
	return false;
}

static void send_one(struct pair *pair, uint32_t length)
{
	static uint8_t bytes[LONG];

	assert_true(length <= sizeof(bytes));
	memcpy(bytes, &pair->sent, sizeof(pair->sent));
	assert_int_equal(send(pair->from, bytes, length, 0), length);
	pair->sent++;
}

/* Returns how many there were. Messages of no bytes have no number. */
static int receive(struct pair *pair, unsigned max)
{
	static uint8_t bytes[BATCH][65536];
	struct mmsghdr headers[BATCH] = { 0 };
	struct iovec pieces[BATCH];
	int flags = snt__udp_rx_hold_flags(&pair->rx_hold);
	uint32_t number, sum = 0;
	int count;

	for (unsigned i = 0; i < max; i++) {
		pieces[i] = (struct iovec){ bytes[i], sizeof(bytes[i]) };
		headers[i].msg_hdr =
			(struct msghdr){ .msg_iov = &pieces[i], .msg_iovlen = 1 };
	}
	count = recvmmsg(pair->to, headers, max, MSG_DONTWAIT | flags, NULL);
	if (count < 0) {
		assert_int_equal(errno, EAGAIN);
		return 0;
	}
	for (int i = 0; i < count; i++) {
		memcpy(&number, bytes[i], sizeof(number));
		assert_true(headers[i].msg_len == 0 || number == pair->received);
		pair->received++;
		sum += headers[i].msg_len;
	}
	snt__udp_rx_hold_put(&pair->rx_hold, flags, count, sum);
	assert_true(pair->rx_hold.bytes <= pair->rx_hold.bytes_max);
	return count;
}

static void receive_all(struct pair *pair)
{
	while (receive(pair, BATCH))
		;
	assert_int_equal(pair->received, pair->sent);
}

static bool readable(int fd)
{
	struct pollfd at = { .fd = fd, .events = POLLIN };

	return poll(&at, 1, 0) == 1;
}

/* Until there are some held. */
static void fill(struct pair *pair)
{
	while (pair->rx_hold.count < 5) {
		send_one(pair, LONG);
		receive_all(pair);
	}
}

/* As long as nothing comes, and when something does. */
static void sleep_once(struct pair *pair, bool alone, uint32_t length)
{
	int fd = snt__udp_rx_hold_sleep(&pair->rx_hold, alone);

	if (fd != pair->to)
		receive_all(pair);
	if (pair->sent == pair->received)
		assert_false(readable(fd));
	send_one(pair, length);
	assert_true(readable(fd));
}

static uint32_t some_length(uint64_t *random)
{
	switch (random_below(random, 8)) {
	case 0:
		return 0;
	case 1:
	case 2:
		return 4 + random_below(random, 200);
	default:
		return 20000 + random_below(random, LONG - 20000);
	}
}

static void step(struct pair *pair, uint64_t *random)
{
	uint32_t count = random_below(random, 8);

	switch (random_below(random, 16)) {
	case 0:
		snt__udp_rx_hold_clear(&pair->rx_hold);
		assert_int_equal(pair->rx_hold.bytes, 0);
		break;
	case 1:
		receive_all(pair);
		sleep_once(pair, random_below(random, 2), some_length(random));
		break;
	default:
		for (uint32_t i = 0; i < count && pair->sent - pair->received < 32; i++)
			send_one(pair, some_length(random));
		receive(pair, 1 + random_below(random, BATCH));
	}
}

static void each_message_once(void **state)
{
	uint64_t held = 0;

	(void)state;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		uint64_t random = seed;
		struct pair pair;

		/* Some are no larger than a few messages. */
		if (!open_large(&pair, seed % 2 ? BUFFER : BUFFER_MIN))
			skip_because(NO_SHELF);
		for (unsigned i = 0; i < STEPS; i++) {
			step(&pair, &random);
			held += pair.rx_hold.count;
		}
		receive_all(&pair);
		snt__udp_rx_hold_clear(&pair.rx_hold);
		assert_false(readable(pair.to));
		assert_true(pair.rx_hold.bytes_max);
		close_pair(&pair);
	}
	assert_true(held > SEEDS * STEPS);
}

/* Only what is likely to go on is worth it, and short messages end it. */
static void long_messages_only(void **state)
{
	struct pair pair;

	(void)state;
	if (!open_large(&pair, BUFFER))
		skip_because(NO_SHELF);
	for (unsigned i = 0; i < 100; i++) {
		send_one(&pair, i % 3 ? LONG : 100);
		receive_all(&pair);
		assert_int_equal(pair.rx_hold.count, 0);
	}
	fill(&pair);
	for (unsigned i = 0; i < 100; i++) {
		send_one(&pair, 100);
		receive_all(&pair);
	}
	assert_int_equal(pair.rx_hold.count, 0);
	assert_int_equal(snt__udp_rx_hold_flags(&pair.rx_hold), 0);
	close_pair(&pair);
}

/* What does not fit goes, but nothing that was not looked at yet. */
static void full_at_once(void **state)
{
	struct pair pair;

	(void)state;
	if (!open_large(&pair, BUFFER))
		skip_because(NO_SHELF);
	pair.rx_hold.bytes_max = (BATCH - 2) * LONG;
	while (!snt__udp_rx_hold_flags(&pair.rx_hold)) {
		send_one(&pair, LONG);
		receive_all(&pair);
	}
	while (pair.rx_hold.count < BATCH - 1) {
		send_one(&pair, 100);
		receive_all(&pair);
	}
	for (unsigned i = 0; i <= BATCH; i++)
		send_one(&pair, LONG);
	assert_int_equal(receive(&pair, BATCH), BATCH);
	receive_all(&pair);
	close_pair(&pair);
}

/* A sleeping program is told of each message, but not of the same twice; and the kernel
 * is not asked to watch for longer than needed. */
static void sleepers(void **state)
{
	struct pair pair;

	(void)state;
	if (!open_large(&pair, BUFFER))
		skip_because(NO_SHELF);
	fill(&pair);
	for (unsigned i = 0; i < 100; i++) {
		sleep_once(&pair, i % 2, LONG);
		receive_all(&pair);
	}
	assert_true(pair.rx_hold.watched);
	snt__udp_rx_hold_clear(&pair.rx_hold);
	assert_int_equal(snt__udp_rx_hold_sleep(&pair.rx_hold, false), pair.to);
	assert_true(pair.rx_hold.watched);
	assert_int_equal(snt__udp_rx_hold_sleep(&pair.rx_hold, true), pair.to);
	assert_false(pair.rx_hold.watched);
	close_pair(&pair);
}

static void small_buffer(void **state)
{
	struct pair pair;

	(void)state;
	open_pair(&pair, 65536);
	for (unsigned i = 0; i < 20; i++) {
		send_one(&pair, LONG);
		receive_all(&pair);
		assert_int_equal(snt__udp_rx_hold_flags(&pair.rx_hold), 0);
	}
	close_pair(&pair);
}

static void kernel_without(void **state)
{
	bool *const refused[] = { &no_peek_off, &vain_peek_off, &no_epoll };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(refused); i++) {
		struct pair pair;

		*refused[i] = true;
		open_pair(&pair, BUFFER);
		*refused[i] = false;
		assert_int_equal(pair.rx_hold.bytes_max, 0);
		for (unsigned j = 0; j < 20; j++) {
			send_one(&pair, LONG);
			receive_all(&pair);
			assert_int_equal(snt__udp_rx_hold_sleep(&pair.rx_hold, true),
					 pair.to);
		}
		assert_int_equal(pair.rx_hold.count, 0);
		close_pair(&pair);
	}
}

/* Then nothing may be left on it that would wake the sleeper. */
static void cannot_be_watched(void **state)
{
	bool *const refused[] = { &no_epoll_ctl, &no_epoll_wait };
	struct pair pair;

	(void)state;
	if (!open_large(&pair, BUFFER))
		skip_because(NO_SHELF);
	for (unsigned i = 0; i < ARRAY_SIZE(refused); i++) {
		fill(&pair);
		*refused[i] = true;
		assert_int_equal(snt__udp_rx_hold_sleep(&pair.rx_hold, true), pair.to);
		*refused[i] = false;
		assert_int_equal(pair.rx_hold.count, 0);
		assert_false(readable(pair.to));
	}
	close_pair(&pair);
}

static void drain(struct pair *pair)
{
	char byte;

	while (recv(pair->to, &byte, 0, MSG_DONTWAIT | MSG_TRUNC) >= 0)
		;
}

/* As if the kernel had lost what it was to keep. After many times it is not asked
 * again. */
static void held_messages_may_be_lost_by_the_kernel(void **state)
{
	struct pair pair;

	(void)state;
	if (!open_large(&pair, BUFFER))
		skip_because(NO_SHELF);
	for (unsigned i = 0; pair.rx_hold.bytes_max; i++) {
		assert_true(i < 1000);
		fill(&pair);
		drain(&pair);
		snt__udp_rx_hold_clear(&pair.rx_hold);
		assert_int_equal(pair.rx_hold.losses, i + 1);
		assert_int_equal(pair.rx_hold.count, 0);
		assert_int_equal(pair.rx_hold.bytes, 0);
	}
	for (unsigned i = 0; i < 20; i++) {
		send_one(&pair, LONG);
		receive_all(&pair);
	}
	assert_int_equal(pair.rx_hold.count, 0);
	close_pair(&pair);
}

/* Sends a message whose bytes are still the sender's, with a checksum. */
static void send_changeable(struct pair *pair, uint8_t *bytes)
{
	struct iovec piece = { bytes, LONG - 1 };
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	memcpy(bytes, &pair->sent, sizeof(pair->sent));
	assert_int_equal(vmsplice(ends[1], &piece, 1, 0), LONG - 1);
	assert_int_equal(splice(ends[0], NULL, pair->from, NULL, LONG - 1,
				SPLICE_F_MORE),
			 LONG - 1);
	assert_int_equal(send(pair->from, bytes, 1, 0), 1);
	close(ends[0]);
	close(ends[1]);
	pair->sent++;
}

/* The kernel then drops another one instead, without notice. It must not go on like
 * that for ever. */
static void message_changed_by_its_sender_after_the_check(void **state)
{
	uint8_t *bytes = mmap(NULL, LONG, PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct pair pair;

	(void)state;
	assert_true(bytes != MAP_FAILED);
	if (!open_large(&pair, BUFFER)) {
		munmap(bytes, LONG);
		skip_because(NO_SHELF);
	}
	fill(&pair);
	send_changeable(&pair, bytes);
	receive_all(&pair);
	memset(bytes + 100, 9, LONG - 100);
	send_one(&pair, 20000);
	snt__udp_rx_hold_clear(&pair.rx_hold);
	assert_int_equal(pair.rx_hold.losses, 1);
	drain(&pair);
	pair.received = pair.sent;
	fill(&pair);
	snt__udp_rx_hold_clear(&pair.rx_hold);
	assert_int_equal(pair.rx_hold.losses, 1);
	close_pair(&pair);
	munmap(bytes, LONG);
}

/* How many messages has a socket room for? */
static unsigned fit(struct pair *pair)
{
	uint32_t before = pair->sent;
	unsigned count = 0;

	while (pair->sent - before < 1000)
		send_one(pair, LONG);
	while (receive(pair, 1))
		count++;
	return count;
}

/* Half of the buffer is for held messages; the other half holds as much as it would by
 * itself. */
static void room_for_others(void **state)
{
	struct pair with, without;

	(void)state;
	if (!open_large(&with, BUFFER))
		skip_because(NO_SHELF);
	/* Of what was granted, which net.core.rmem_max may limit; the kernel doubles
	 * it. */
	open_pair(&without, buffer_of(with.to) / 4);
	assert_int_equal(buffer_of(without.to), buffer_of(with.to) / 2);
	without.rx_hold.bytes_max = 0;
	for (unsigned i = 0; i < 1000; i++) {
		send_one(&with, LONG);
		receive_all(&with);
	}
	assert_true(with.rx_hold.count > 10);
	assert_true(fit(&with) >= fit(&without));
	close_pair(&with);
	close_pair(&without);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_message_once),
		cmocka_unit_test(long_messages_only),
		cmocka_unit_test(full_at_once),
		cmocka_unit_test(room_for_others),
		cmocka_unit_test(sleepers),
		cmocka_unit_test(small_buffer),
		cmocka_unit_test(kernel_without),
		cmocka_unit_test(cannot_be_watched),
		cmocka_unit_test(held_messages_may_be_lost_by_the_kernel),
		cmocka_unit_test(message_changed_by_its_sender_after_the_check),
	};

	return cmocka_run_group_tests_name("udp_rx_hold", tests, NULL, NULL);
}
