/* SPDX-License-Identifier: MIT */
/* The table from (device, QP number) to lane, against one that is searched linearly. */
#include "lib/test.h"

#include "lib/seeds.h"
#include "vqp/lane.h"
#include "vqp/route.h"

#define ENTRIES 600

static void entries_are_found_by_both_halves_of_their_key(void **state)
{
	struct snt__lane lane[2];
	struct snt__route route;

	(void)state;
	assert_success(snt__route_init(&route));
	assert_null(snt__route_find(&route, 0, 0x11));
	assert_success(snt__route_add(&route, 0, 0x11, &lane[0]));
	assert_success(snt__route_add(&route, 1, 0x11, &lane[1]));
	assert_ptr_equal(snt__route_find(&route, 0, 0x11), &lane[0]);
	assert_ptr_equal(snt__route_find(&route, 1, 0x11), &lane[1]);
	assert_null(snt__route_find(&route, 2, 0x11));
	assert_null(snt__route_find(&route, 0, 0x12));
	snt__route_remove(&route, 0, 0x11);
	assert_null(snt__route_find(&route, 0, 0x11));
	assert_ptr_equal(snt__route_find(&route, 1, 0x11), &lane[1]);
	/* One that is not there is no harm. */
	snt__route_remove(&route, 0, 0x11);
	snt__route_remove(&route, 5, 0x99);
	assert_ptr_equal(snt__route_find(&route, 1, 0x11), &lane[1]);
	snt__route_finish(&route);
}

static void an_entry_is_not_overwritten(void **state)
{
	struct snt__lane lane[2];
	struct snt__route route;

	(void)state;
	assert_success(snt__route_init(&route));
	assert_success(snt__route_add(&route, 3, 0xffffff, &lane[0]));
	assert_error(snt__route_add(&route, 3, 0xffffff, &lane[1]), EEXIST, "0xffffff");
	assert_ptr_equal(snt__route_find(&route, 3, 0xffffff), &lane[0]);
	snt__route_finish(&route);
}

static struct snt__lane lanes[ENTRIES];
static unsigned present[ENTRIES];

static unsigned device_of(unsigned i)
{
	return i % 4;
}

/* Anywhere: numbers close to each other are spread so well that none collide. */
static uint32_t qp_num_of(unsigned i)
{
	uint64_t random = i;

	return random_next(&random) & 0xffffff;
}

static void expect_all(struct snt__route *route)
{
	unsigned count = 0;

	for (unsigned i = 0; i < ENTRIES; i++) {
		assert_ptr_equal(snt__route_find(route, device_of(i), qp_num_of(i)),
				 present[i] ? &lanes[i] : NULL);
		count += present[i];
	}
	assert_int_equal(route->count, count);
}

/* Grown many times, with gaps closed in all places. */
static void any_order_of_adding_and_removing(void **state)
{
	uint64_t random = 1;
	struct snt__route route;

	(void)state;
	assert_success(snt__route_init(&route));
	for (unsigned round = 0; round < 20000; round++) {
		unsigned i = random_below(&random, ENTRIES);

		/* Phases of growth and of decline. */
		if (present[i] && (round / 4000 % 2 || random_below(&random, 4) == 0)) {
			snt__route_remove(&route, device_of(i), qp_num_of(i));
			present[i] = 0;
		} else if (!present[i]) {
			assert_success(snt__route_add(&route, device_of(i),
						      qp_num_of(i), &lanes[i]));
			present[i] = 1;
		}
		if (round % 100 == 0)
			expect_all(&route);
	}
	expect_all(&route);
	snt__route_finish(&route);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_are_found_by_both_halves_of_their_key),
		cmocka_unit_test(an_entry_is_not_overwritten),
		cmocka_unit_test(any_order_of_adding_and_removing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
