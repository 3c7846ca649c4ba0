/* SPDX-License-Identifier: MIT */
/* The timers of soft devices, against a model that looks at all of them. */
#include "lib/test.h"

#include "dev/soft/timer.h"
#include "lib/seeds.h"

#define TIMERS 50
#define STEPS  20000

static uint64_t earliest(const uint64_t *deadline)
{
	uint64_t first = UINT64_MAX;

	for (unsigned i = 0; i < TIMERS; i++)
		if (deadline[i] < first)
			first = deadline[i];
	return first;
}

/* Everything that is due, and nothing else, in order. */
static void expire(struct snt__soft_timers *timers, struct snt__soft_timer *timer,
		   uint64_t *deadline, uint64_t now)
{
	struct snt__soft_timer *expired;
	uint64_t last = 0;

	while ((expired = snt__soft_timers_expired(timers, now))) {
		unsigned i = (unsigned)(expired - timer);

		assert_true(deadline[i] <= now);
		assert_true(deadline[i] >= last);
		assert_true(expired->deadline == UINT64_MAX);
		last = deadline[i];
		deadline[i] = UINT64_MAX;
	}
	assert_true(earliest(deadline) > now);
}

static void random_operations(void **state)
{
	struct snt__soft_timer timer[TIMERS] = { 0 };
	struct snt__soft_timers timers;
	uint64_t deadline[TIMERS];
	uint64_t now = 0, random = 1;

	(void)state;
	assert_int_equal(snt__soft_timers_init(&timers, TIMERS), 0);
	for (unsigned i = 0; i < TIMERS; i++) {
		deadline[i] = UINT64_MAX;
		snt__soft_timer_stop(&timer[i]);
	}
	for (unsigned step = 0; step < STEPS; step++) {
		unsigned i = random_below(&random, TIMERS);

		switch (random_below(&random, 8)) {
		case 0:
			snt__soft_timer_stop(&timer[i]);
			deadline[i] = UINT64_MAX;
			break;
		case 1:
			snt__soft_timer_remove(&timers, &timer[i]);
			deadline[i] = UINT64_MAX;
			break;
		case 2:
			now += random_below(&random, 20);
			expire(&timers, timer, deadline, now);
			break;
		default:
			deadline[i] = now + 1 + random_below(&random, 100);
			snt__soft_timer_set(&timers, &timer[i], deadline[i]);
			break;
		}
		assert_in_range(timers.count, 0, TIMERS);
		if (random_below(&random, 3) == 0)
			assert_true(snt__soft_timers_deadline(&timers) ==
				    earliest(deadline));
	}
	snt__soft_timers_finish(&timers);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(random_operations) };

	return cmocka_run_group_tests_name("soft_timer", tests, NULL, NULL);
}
