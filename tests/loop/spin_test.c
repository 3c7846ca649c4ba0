/* SPDX-License-Identifier: MIT */
/* How waits with SNT_SPIN_AUTO adapt to the time that answers take. */
#include "lib/test.h"

#include "loop/spin.h"

#define FAST 5000
#define SLOW 1000000

/* Waits for answers that take so long; a sleep takes `sleep_ns` longer. Returns how long they
 * polled, all together, for nothing. */
static uint64_t wait_for(struct snt__spin *spin, unsigned count, uint64_t answer_ns,
			 uint64_t sleep_ns)
{
	uint64_t wasted_ns = 0;

	for (unsigned i = 0; i < count; i++) {
		uint64_t spin_ns = snt__spin_for(spin);
		bool found = answer_ns <= spin_ns;

		wasted_ns += found ? 0 : spin_ns;
		snt__spin_learn(spin, found ? answer_ns : answer_ns + sleep_ns);
	}
	return wasted_ns;
}

/* Also just after a few waits that try to sleep instead. */
static void assert_polls(struct snt__spin *spin, uint64_t sleep_ns)
{
	if (!snt__spin_for(spin))
		wait_for(spin, SNT__SPIN_TRIAL, FAST, sleep_ns);
	assert_true(snt__spin_for(spin) >= 2 * FAST);
}

static void fast_answers_are_found_by_polling(void **state)
{
	struct snt__spin spin = { 0 };

	(void)state;
	wait_for(&spin, 100, FAST, 20000);
	assert_true(snt__spin_for(&spin) >= 2 * FAST);
	assert_true(snt__spin_for(&spin) < 4 * FAST);
	assert_int_equal(wait_for(&spin, 100, FAST, 20000), 0);
}

static void slow_answers_are_slept_for(void **state)
{
	struct snt__spin spin = { 0 };

	(void)state;
	wait_for(&spin, 100, SLOW, 20000);
	assert_true(wait_for(&spin, 10, SLOW, 20000) <= SNT__SPIN_MAX);
}

/* At most 0.05 % of the time, and less and less. */
static void idling_costs_nothing(void **state)
{
	struct snt__spin spin = { 0 };
	uint64_t wasted_ns;

	(void)state;
	wait_for(&spin, 4 * SNT__SPIN_PROBE_MAX, SLOW, 20000);
	wasted_ns = wait_for(&spin, 10000, SLOW, 20000);
	assert_true(wasted_ns <= UINT64_C(10000) * SLOW / 2000);
	assert_true(wasted_ns > 0);
}

/* A pause among fast answers is no reason to sleep. */
static void one_slow_answer_does_not_decide(void **state)
{
	struct snt__spin spin = { 0 };

	(void)state;
	wait_for(&spin, 100, FAST, 20000);
	wait_for(&spin, 1, 100 * SLOW, 20000);
	assert_true(snt__spin_for(&spin) >= 2 * FAST);
	assert_int_equal(wait_for(&spin, 10, FAST, 20000), 0);
}

/* They are noticed at once, although they are slept for: waking up takes less than the
 * longest spin. */
static void answers_that_become_fast_are_noticed(void **state)
{
	struct snt__spin spin = { 0 };

	(void)state;
	wait_for(&spin, 1000, SLOW, 20000);
	wait_for(&spin, 4, FAST, 20000);
	assert_true(snt__spin_for(&spin) >= 2 * FAST);
}

/* If waking up takes longer than that, by a probe: soon after a short time of slow answers,
 * and in any case. */
static void a_probe_notices_where_waking_up_is_slow(void **state)
{
	struct snt__spin spin = { 0 };

	(void)state;
	wait_for(&spin, 20, SLOW, 500000);
	wait_for(&spin, 4 * SNT__SPIN_PROBE, FAST, 500000);
	assert_polls(&spin, 500000);
	wait_for(&spin, 10 * SNT__SPIN_PROBE_MAX, SLOW, 500000);
	wait_for(&spin, 4 * SNT__SPIN_PROBE_MAX, FAST, 500000);
	assert_polls(&spin, 500000);
}

/* Whatever the answers take, no wait polls for longer than a sleep could cost. */
static void no_spin_is_longer_than_it_can_pay_off(void **state)
{
	struct snt__spin spin = { 0 };

	(void)state;
	for (uint64_t i = 1; i < 100000; i++) {
		assert_true(snt__spin_for(&spin) <= SNT__SPIN_MAX);
		snt__spin_learn(&spin, i * i * 7919 % (i % 2 ? 300000 : 30000000));
	}
}

/* Answers take longer while a wait polls, as on a machine with few processors, or not. */
static unsigned count_polling(struct snt__spin *spin, unsigned count,
			      uint64_t polled_ns, uint64_t slept_ns)
{
	unsigned polling = 0;

	for (unsigned i = 0; i < count; i++) {
		uint64_t spin_ns = snt__spin_for(spin);

		polling += spin_ns > 0;
		snt__spin_learn(spin, spin_ns ? polled_ns : slept_ns);
	}
	return polling;
}

static void polling_that_delays_answers_ends(void **state)
{
	struct snt__spin spin = { 0 };

	(void)state;
	count_polling(&spin, 100, 80000, 30000);
	assert_true(count_polling(&spin, 10000, 80000, 30000) < 10000 / 20);
	/* And begins again when processors are free. */
	count_polling(&spin, 2 * SNT__SPIN_TERM_MAX, 5000, 20000);
	assert_true(count_polling(&spin, 10000, 5000, 20000) > 10000 * 19 / 20);
}

/* The peer, or the device's thread, needs the processor. */
static void an_only_processor_is_left_to_others(void **state)
{
	struct snt__spin spin = { .alone = true };

	(void)state;
	assert_int_equal(snt__spin_for(&spin), 0);
	assert_int_equal(wait_for(&spin, 4 * SNT__SPIN_PROBE_MAX, FAST, 20000), 0);
	assert_int_equal(snt__spin_for(&spin), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fast_answers_are_found_by_polling),
		cmocka_unit_test(slow_answers_are_slept_for),
		cmocka_unit_test(idling_costs_nothing),
		cmocka_unit_test(one_slow_answer_does_not_decide),
		cmocka_unit_test(answers_that_become_fast_are_noticed),
		cmocka_unit_test(a_probe_notices_where_waking_up_is_slow),
		cmocka_unit_test(no_spin_is_longer_than_it_can_pay_off),
		cmocka_unit_test(polling_that_delays_answers_ends),
		cmocka_unit_test(an_only_processor_is_left_to_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
