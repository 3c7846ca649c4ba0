/* SPDX-License-Identifier: MIT */
#ifndef TEST_H
#define TEST_H

/* What every unit test starts with: cmocka, in the order it insists on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/err.h>

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

static inline void test_expect_error(long ret, int err, const char *phrase,
				     const char *file, int line)
{
	if (ret == -err && strstr(snt_err_text(), phrase))
		return;
	print_error("expected -%d (%s) and \"%s\", got %ld and \"%s\"\n", err,
		    strerror(err), phrase, ret, snt_err_text());
	_fail(file, line);
}

/* The call failed with this errno, and its sentence has this phrase. */
#define assert_error(ret, err, phrase) \
	test_expect_error(ret, err, phrase, __FILE__, __LINE__)

static inline void test_expect_success(long ret, const char *file, int line)
{
	if (ret >= 0)
		return;
	print_error("unexpected %s: %s\n", strerror(-ret), snt_err_text());
	_fail(file, line);
}

#define assert_success(ret) test_expect_success(ret, __FILE__, __LINE__)

/*
 * Ends a test function that cannot run here, with the reason, which `make check` repeats:
 * what is missing. cmocka's own counts as a failure.
 */
#define skip_because(...)               \
	do {                            \
		test_skip(__VA_ARGS__); \
		return;                 \
	} while (0)
#undef skip

void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Runs tests as cmocka does, and reports those that were skipped. */
int test_run_group(const char *name, const struct CMUnitTest *tests, size_t count,
		   CMFixtureFunction setup, CMFixtureFunction teardown);

#undef cmocka_run_group_tests
#undef cmocka_run_group_tests_name
#define cmocka_run_group_tests(tests, setup, teardown) \
	test_run_group(#tests, tests, ARRAY_SIZE(tests), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown) \
	test_run_group(name, tests, ARRAY_SIZE(tests), setup, teardown)

#endif
