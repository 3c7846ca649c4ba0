/* SPDX-License-Identifier: MIT */
/* A stream's life again and again, with one allocation failing each time: something is
 * refused, with a sentence, and nothing is left behind. */
#include "lib/stream_kit.h"

#include "lib/fault.h"

int __real_posix_memalign(void **out, size_t align, size_t size);
int __wrap_posix_memalign(void **out, size_t align, size_t size);

int __wrap_posix_memalign(void **out, size_t align, size_t size)
{
	return fault_now("posix_memalign") ? ENOMEM
					   : __real_posix_memalign(out, align, size);
}

static bool is_at_rest(void)
{
	if (!kit_end(0) || kit_is_over(0))
		return true;
	return kit_info(0).state == SNT_STREAM_RUNNING && kit_end(1) &&
	       kit_info(1).state == SNT_STREAM_RUNNING;
}

static bool fails_once(bool by_card, unsigned nth)
{
	struct kit_opts opts = { .recv_size = { 4096, 4096 }, .send_size = 4096 };
	const char *text;
	bool hit;

	kit_open_world(&opts);
	world.by_card = by_card;
	world.end[0].opts.lanes = world.end[1].opts.lanes = by_card ? 0 : 1;
	fault_arm(nth);
	text = world_connect(&world);
	if (text) {
		assert_true(fault_was_hit());
		assert_true(strlen(snt_err_text()) > 0);
	} else {
		kit_until(is_at_rest());
	}
	hit = fault_was_hit();
	fault_arm(0);
	if (!hit) {
		kit_transfer(0, 0, 1000, 1000, 1000);
		kit_transfer(1, 0, 1000, 1000, 1000);
	}
	if (kit_end(0) && kit_is_over(0))
		assert_int_not_equal(kit_info(0).status, 0);
	kit_close();
	return hit;
}

static void each_allocation_fails_once(void **state)
{
	(void)state;
	for (unsigned by_card = 0; by_card < 2; by_card++) {
		unsigned nth = 1;

		while (fails_once(by_card, nth))
			nth++;
		print_message("# %u allocations\n", nth - 1);
		assert_true(nth > 20);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_allocation_fails_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
