/* SPDX-License-Identifier: MIT */
/* Tests do not meet on the addresses that they take for their own. */
#include "lib/test.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/loopback.h"

#define SOME_BLOCK 4711

static void blocks_are_claimed_once(void **state)
{
	unsigned one = loopback_claim(SOME_BLOCK), other = loopback_claim(one);

	(void)state;
	assert_int_not_equal(one, other);
}

static void a_child_has_its_own(void **state)
{
	const char *ours = loopback_text(0);
	char theirs[16] = "", before[16];
	int ends[2], status;
	pid_t child;

	(void)state;
	snprintf(before, sizeof(before), "%s", ours);
	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (!child)
		_exit(write(ends[1], loopback_text(0), sizeof(theirs)) !=
		      sizeof(theirs));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(read(ends[0], theirs, sizeof(theirs)), sizeof(theirs));
	assert_string_not_equal(theirs, before);
	assert_string_equal(loopback_text(0), before);
	close(ends[0]);
	close(ends[1]);
}

static void addresses_move(void **state)
{
	char before[16];

	(void)state;
	snprintf(before, sizeof(before), "%s", loopback_text(0));
	loopback_move();
	assert_string_not_equal(loopback_text(0), before);
}

/* By a program that knows nothing of blocks. */
static void taken_ports_are_avoided(void **state)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(4791) };
	unsigned block = loopback_claim(SOME_BLOCK + 1000);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)state;
	/* The next one, which may be another test's, is avoided then as well. */
	loopback_in_block(block + 1, LOOPBACK_ADDRESSES - 1, (uint8_t *)&at.sin_addr);
	assert_true(fd >= 0);
	bind(fd, (struct sockaddr *)&at, sizeof(at));
	assert_int_not_equal(loopback_claim(block + 1), block + 1);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_are_claimed_once),
		cmocka_unit_test(a_child_has_its_own),
		cmocka_unit_test(addresses_move),
		cmocka_unit_test(taken_ports_are_avoided),
	};

	return cmocka_run_group_tests_name("loopback", tests, NULL, NULL);
}
