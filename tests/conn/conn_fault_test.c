/* SPDX-License-Identifier: MIT */
/* The setup of a connection again and again, with one allocation failing each time: at
 * either end something is refused, or goes on without it; nothing is left behind. */
#include "lib/test.h"

#include "lib/conn_world.h"
#include "lib/fault.h"

int __real_posix_memalign(void **out, size_t align, size_t size);
int __wrap_posix_memalign(void **out, size_t align, size_t size);

int __wrap_posix_memalign(void **out, size_t align, size_t size)
{
	return fault_now("posix_memalign") ? ENOMEM
					   : __real_posix_memalign(out, align, size);
}

static void good(const char *text)
{
	if (text)
		fail_msg("%s", text);
}

/* Both are connected, or have come to an end. */
static bool at_rest(const struct conn_world *world)
{
	const struct conn_end *a = &world->end[0], *b = &world->end[1];

	if (a->events[SNT_CONN_OVER])
		return !b->conn || b->events[SNT_CONN_OVER];
	return a->events[SNT_CONN_CONNECTED] && b->events[SNT_CONN_CONNECTED];
}

/* How many calls it took, until the armed one. */
static bool fails_once(unsigned nth, enum snt_carrier carrier)
{
	struct snt__sim_device_opts opts = { 0 };
	struct conn_world world;
	uint64_t until;
	bool hit;

	good(conn_world_open(&world, nth));
	for (unsigned i = 0; i < 2; i++) {
		good(conn_world_add_device(&world, 0, &opts));
		good(conn_world_add_device(&world, 1, &opts));
	}
	good(conn_world_ready(&world));
	world.to.carrier = world.at.carrier = carrier;
	if (carrier == SNT_CARRIER_PLAIN)
		world.end[0].qp.flags = world.end[1].qp.flags = SNT_QP_PASS_THROUGH;
	fault_arm(nth);
	if (!conn_world_connect(&world)) {
		until = snt__sim_now(world.sim) + 40000 * CONN_MS;
		while (!at_rest(&world))
			if (!conn_world_step(&world, until))
				fail_msg("call %u: both wait in vain", nth);
	} else {
		assert_true(fault_was_hit());
	}
	hit = fault_was_hit();
	fault_arm(0);
	if (!hit) {
		assert_int_equal(world.end[0].events[SNT_CONN_CONNECTED], 1);
		good(conn_world_send(&world, 0, 1));
	}
	if (world.end[0].events[SNT_CONN_OVER])
		assert_int_not_equal(conn_world_status(&world, 0), 0);
	good(conn_world_close(&world));
	return hit;
}

static void each_allocation_fails_once(void **state)
{
	unsigned nth = 1;

	(void)state;
	while (fails_once(nth, SNT_CARRIER_CM))
		nth++;
	print_message("# %u allocations\n", nth - 1);
	assert_true(nth > 20);
}

static void each_allocation_of_plain_ones_fails_once(void **state)
{
	unsigned nth = 1;

	(void)state;
	while (fails_once(nth, SNT_CARRIER_PLAIN))
		nth++;
	print_message("# %u allocations\n", nth - 1);
	assert_true(nth > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_allocation_fails_once),
		cmocka_unit_test(each_allocation_of_plain_ones_fails_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
