/* SPDX-License-Identifier: MIT */

/*
 * NCCL's protocol LL has no other sign of arrival than the data: lines of 8-byte words, each
 * with 4 bytes of data and 4 of a flag, which the reader polls while they are written. So each
 * aligned 8-byte word must be seen whole: the old one or the new one, never half of each.
 *
 * One process sends; the other has a thread that reads all words of the buffer all the time,
 * as a GPU would, while a second one receives. The upper half of each word is the number of
 * the message, and the lower half follows from it and from the word's place.
 */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/test.h"
#include "net_kit.h"

#define WORDS	 (64 * 1024)
#define MESSAGES 200

/* Where in the buffer, and how long. */
struct piece {
	unsigned begin, count;
};

static struct piece piece_of(uint32_t message)
{
	static const unsigned counts[] = { WORDS, 16,	1,    4096, 511,
					   2,	  8191, 1024, 3,    WORDS / 2 };
	const unsigned count = counts[message % ARRAY_SIZE(counts)];

	return (struct piece){ (message * 2654435761u >> 8) % (WORDS - count + 1),
			       count };
}

static uint64_t word_of(uint32_t message, unsigned place)
{
	const uint32_t low = (message ^ place * 40503u) * 2654435761u;

	return (uint64_t)message << 32 | low;
}

/* In memory of its own, on whose alignment the copy may depend. */
static void send_all(void *comm)
{
	const size_t size = (WORDS + 512) * sizeof(uint64_t); /* whole pages */
	uint64_t *words = aligned_alloc(4096, size);
	void *memory, *request;
	int done;

	if (!words || net_reg(comm, words, size, &memory))
		_exit(1);
	for (uint32_t message = 1; message <= MESSAGES; message++) {
		const struct piece piece = piece_of(message);
		uint64_t *from = words + message % 8;

		for (unsigned i = 0; i < piece.count; i++)
			from[i] = word_of(message, piece.begin + i);
		for (request = NULL; !request;) {
			if (net_isend(comm, from, piece.count * sizeof(*from), memory,
				      &request))
				_exit(2);
		}
		for (done = 0; !done;) {
			if (net_test(request, &done, NULL))
				_exit(3);
		}
	}
	net_dereg(comm, memory);
	free(words);
}

struct watch {
	_Atomic uint64_t *words;
	atomic_bool stop;
	uint64_t torn, changes;
	unsigned torn_at;
};

static void *watch_words(void *arg)
{
	struct watch *watch = arg;
	static uint32_t last[WORDS];

	while (!atomic_load(&watch->stop)) {
		for (unsigned i = 0; i < WORDS; i++) {
			const uint64_t word =
				atomic_load_explicit(&watch->words[i],
						     memory_order_relaxed);

			if (word != word_of(word >> 32, i)) {
				watch->torn = word;
				watch->torn_at = i;
			}
			watch->changes += last[i] != word >> 32;
			last[i] = word >> 32;
		}
	}
	return NULL;
}

/* Returns how many receives were over before the bytes were there. */
static unsigned receive_all(void *comm, _Atomic uint64_t *words, void *memory)
{
	unsigned early = 0;

	for (uint32_t message = 1; message <= MESSAGES; message++) {
		const struct piece piece = piece_of(message);
		void *request = NCCL_OPTIONAL_COMPLETION;
		int done = 0;

		assert_int_equal(net_irecv(comm, (void *)&words[piece.begin],
					   piece.count * sizeof(*words), memory,
					   &request),
				 0);
		while (!done)
			assert_int_equal(net_test(request, &done, NULL), 0);
		for (unsigned i = piece.begin; i < piece.begin + piece.count; i++)
			early += words[i] != word_of(message, i);
	}
	return early;
}

static void run_sender(int fd)
{
	char handle[NCCL_HANDLE_BYTES];
	void *comm = NULL;

	alarm(patience_s(100));
	net_load(11);
	if (net_init() || read(fd, handle, sizeof(handle)) != sizeof(handle))
		_exit(4);
	while (!comm) {
		if (net_connect(0, handle, &comm))
			_exit(5);
	}
	send_all(comm);
	net_close_send(comm);
	net_finalize();
	exit(0);
}

static void *accept_from(int fd)
{
	char handle[NCCL_HANDLE_BYTES];
	void *listener, *comm = NULL;

	net_load(11);
	assert_int_equal(net_init(), 0);
	assert_int_equal(net_listen(0, handle, &listener), 0);
	assert_int_equal(write(fd, handle, sizeof(handle)), sizeof(handle));
	while (!comm)
		assert_int_equal(net_accept(listener, &comm), 0);
	net_close_listen(listener);
	return comm;
}

static void aligned_words_are_seen_whole(void **state)
{
	struct watch watch = { 0 };
	pthread_t thread;
	void *comm, *memory;
	int fd[2], status;
	pid_t sender;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	sender = fork();
	if (!sender)
		run_sender(fd[0]);
	comm = accept_from(fd[1]);
	watch.words = aligned_alloc(4096, WORDS * sizeof(*watch.words));
	assert_non_null(watch.words);
	for (unsigned i = 0; i < WORDS; i++)
		watch.words[i] = word_of(0, i);
	assert_int_equal(net_reg(comm, (void *)watch.words,
				 WORDS * sizeof(*watch.words), &memory),
			 0);
	assert_int_equal(pthread_create(&thread, NULL, watch_words, &watch), 0);
	assert_int_equal(receive_all(comm, watch.words, memory), 0);
	atomic_store(&watch.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	if (watch.torn)
		print_error("word %u was seen as %016llx\n", watch.torn_at,
			    (unsigned long long)watch.torn);
	assert_int_equal(watch.torn, 0);
	/* It was reading while they were written. */
	assert_true(watch.changes > WORDS);
	assert_int_equal(waitpid(sender, &status, 0), sender);
	assert_int_equal(status, 0);
	net_close_recv(comm);
	assert_int_equal(net_dereg(NULL, memory), 0);
	free((void *)watch.words);
	net_finalize();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(aligned_words_are_seen_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
