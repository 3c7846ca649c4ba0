/* SPDX-License-Identifier: MIT */
/* Histograms and spreads, beside the same reckoned from all values. */
#include "lib/test.h"
#include "lib/seeds.h"

#include "histogram.h"
#include "spread.h"

static struct histogram histogram;

static void buckets_follow_each_other(void **state)
{
	uint64_t value = 0;

	(void)state;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		uint64_t last = histogram_bucket_last(i);

		assert_int_equal(histogram_bucket_of(value), i);
		assert_int_equal(histogram_bucket_of(last), i);
		/* Exact at first, then as wide as 1/128 of the value. */
		assert_true(last - value <= value / 128);
		value = last + 1;
	}
	assert_int_equal(value, 0); /* all 64 bits */
}

static int compare(const void *one, const void *other)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return (a > b) - (a < b);
}

/* The least of the sorted values that so many do not exceed. */
static uint64_t exact(const uint64_t *sorted, unsigned count, double share)
{
	unsigned rank = (unsigned)(share * count);

	if (rank < share * count || !rank)
		rank++;
	return sorted[rank - 1];
}

static void percentiles_are_those_of_all_values(void **state)
{
	static const double share[] = { 0, 0.1, 0.5, 0.9, 0.99, 0.999, 1 };
	static uint64_t value[5000];
	uint64_t random = 1;

	(void)state;
	for (unsigned round = 0; round < 20; round++) {
		unsigned count = 1 + random_below(&random, 5000);

		histogram_clear(&histogram);
		for (unsigned i = 0; i < count; i++) {
			value[i] = random_next(&random) >> random_below(&random, 64);
			histogram_record(&histogram, value[i]);
		}
		qsort(value, count, sizeof(*value), compare);
		assert_int_equal(histogram.min, value[0]);
		assert_int_equal(histogram_at(&histogram, 1), value[count - 1]);
		for (unsigned i = 0; i < ARRAY_SIZE(share); i++) {
			uint64_t is = histogram_at(&histogram, share[i]),
				 should = exact(value, count, share[i]);

			assert_true(is >= should && is - should <= should / 128);
		}
	}
}

static void an_empty_histogram_has_no_values(void **state)
{
	(void)state;
	histogram_clear(&histogram);
	assert_int_equal(histogram_at(&histogram, 0.5), 0);
	assert_true(histogram_mean(&histogram) == 0);
}

static void sums_of_histograms(void **state)
{
	static struct histogram other;

	(void)state;
	histogram_clear(&histogram);
	histogram_clear(&other);
	histogram_record(&histogram, 10);
	histogram_record(&other, 30);
	histogram_record(&other, 1);
	histogram_add(&histogram, &other);
	assert_int_equal(histogram.count, 3);
	assert_int_equal(histogram.min, 1);
	assert_int_equal(histogram.max, 30);
	assert_int_equal(histogram_at(&histogram, 0.5), 10);
	assert_true(histogram_mean(&histogram) > 13.6 &&
		    histogram_mean(&histogram) < 13.7);
}

static void spreads(void **state)
{
	double five[] = { 50, 10, 40, 20, 100 }, one[] = { 7 }, two[] = { 4, 2 };
	struct spread spread = spread_of(five, 5);

	(void)state;
	assert_true(spread.median == 40 && spread.min == 10 && spread.max == 100);
	assert_true(spread.low == 20 && spread.high == 50);
	assert_true(spread.deviation == 20); /* of 30, 20, 0, 10, 60 */
	spread = spread_of(one, 1);
	assert_true(spread.median == 7 && spread.low == 7 && spread.deviation == 0);
	spread = spread_of(two, 2);
	assert_true(spread.median == 3 && spread.deviation == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buckets_follow_each_other),
		cmocka_unit_test(percentiles_are_those_of_all_values),
		cmocka_unit_test(an_empty_histogram_has_no_values),
		cmocka_unit_test(sums_of_histograms),
		cmocka_unit_test(spreads),
	};

	return cmocka_run_group_tests_name("perf-figures", tests, NULL, NULL);
}
