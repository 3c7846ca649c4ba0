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

#endif
