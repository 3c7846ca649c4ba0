/* SPDX-License-Identifier: MIT */
/* What is said of packets that were lost, or were not. */
#include "lib/test.h"

#include "loss.h"

static void nothing_is_said_of_what_was_not_lost(void **state)
{
	const struct loss client = { .resends = 3, .probes = 3, .timeouts = 2 };
	const struct loss server = { .duplicates = 3 };
	char text[LOSS_NOTE];

	(void)state;
	assert_null(loss_note(&client, &server, text));
	assert_null(loss_note(&server, &client, text));
}

static void probes_are_told_from_other_resends(void **state)
{
	const struct loss client = { .resends = 12, .probes = 10, .timeouts = 9 };
	const struct loss server = { .duplicates = 10, .out_of_order = 1 };
	char text[LOSS_NOTE];

	(void)state;
	assert_string_equal(
		loss_note(&client, &server, text),
		"loss: the client sent 12 packets again, 10 of them as "
		"probes of a silent peer, and waited 9 times, its sockets "
		"dropped 0, 0 came out of order and 0 twice; the server sent "
		"0 packets again and waited 0 times, its sockets dropped 0, "
		"1 came out of order and 10 twice");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_said_of_what_was_not_lost),
		cmocka_unit_test(probes_are_told_from_other_resends),
	};

	return cmocka_run_group_tests_name("perf-loss", tests, NULL, NULL);
}
