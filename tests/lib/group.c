/* SPDX-License-Identifier: MIT */
#include "lib/test.h"

/*
 * cmocka up to 1.1.5 reports a skipped test as "not ok N # SKIP name", which TAP counts as a
 * failure, and without a reason. A skipped test therefore returns like one that passed, and
 * its name gets the directive: cmocka prints names after the test, and tests run in order.
 */
static const struct CMUnitTest *given;
static struct CMUnitTest *shown;
static size_t started;

static int begin_test(void **state)
{
	const struct CMUnitTest *test = &given[started++];

	return test->setup_func ? test->setup_func(state) : 0;
}

void test_skip(const char *format, ...)
{
	struct CMUnitTest *test = &shown[started - 1];
	char reason[256], *name;
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	assert_true(asprintf(&name, "%s # SKIP %s", test->name, reason) > 0);
	test->name = name;
}

int test_run_group(const char *name, const struct CMUnitTest *tests, size_t count,
		   CMFixtureFunction setup, CMFixtureFunction teardown)
{
	int failed;

	given = tests;
	started = 0;
	shown = calloc(count, sizeof(*shown));
	if (!shown)
		return 1;
	for (size_t i = 0; i < count; i++) {
		shown[i] = tests[i];
		shown[i].setup_func = begin_test;
	}
	failed = _cmocka_run_group_tests(name, shown, count, setup, teardown);
	for (size_t i = 0; i < count; i++)
		if (shown[i].name != tests[i].name)
			free((char *)shown[i].name);
	free(shown);
	return failed;
}
