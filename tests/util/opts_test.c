/* SPDX-License-Identifier: MIT */
/* Structures that grow from version to version. */
#include "lib/test.h"

#include "util/opts.h"

struct old {
	size_t size;
	int a;
	int b;
};

struct new
{
	size_t size;
	int a;
	int b;
	long c;
};

static void same_version(void **state)
{
	struct old ours, theirs = { sizeof(theirs), 1, 2 };

	(void)state;
	assert_success(snt__opts_import(&ours, sizeof(ours), &theirs, "opts"));
	assert_memory_equal(&ours, &theirs, sizeof(ours));
}

static void none_means_defaults(void **state)
{
	struct old ours = { 1, 2, 3 }, zero = { sizeof(ours), 0, 0 };

	(void)state;
	assert_success(snt__opts_import(&ours, sizeof(ours), NULL, "opts"));
	assert_memory_equal(&ours, &zero, sizeof(ours));
}

static void older_program(void **state)
{
	struct old theirs = { sizeof(theirs), 1, 2 };
	struct new ours = { 9, 9, 9, 9 };

	(void)state;
	assert_success(snt__opts_import(&ours, sizeof(ours), &theirs, "opts"));
	assert_int_equal(ours.size, sizeof(ours));
	assert_int_equal(ours.b, 2);
	assert_int_equal(ours.c, 0);
}

static void newer_program(void **state)
{
	struct new theirs = { sizeof(theirs), 1, 2, 0 };
	struct old ours = { 9, 9, 9 };

	(void)state;
	assert_success(snt__opts_import(&ours, sizeof(ours), &theirs, "opts"));
	assert_int_equal(ours.b, 2);
	theirs.c = 1;
	assert_error(snt__opts_import(&ours, sizeof(ours), &theirs, "opts"), E2BIG,
		     "opts has a field set at byte 16");
}

static void size_is_required(void **state)
{
	struct old ours, theirs = { 0, 1, 2 };

	(void)state;
	assert_error(snt__opts_import(&ours, sizeof(ours), &theirs, "opts"), EINVAL,
		     "opts: set .size");
	theirs.size = 7;
	assert_error(snt__opts_import(&ours, sizeof(ours), &theirs, "opts"), EINVAL,
		     "opts: set .size");
}

static void results_stay_within_the_callers_size(void **state)
{
	struct new ours = { sizeof(ours), 1, 2, 3 },
		   theirs = { sizeof(struct old), 9, 9, 9 };

	(void)state;
	assert_success(snt__info_export(&theirs, &ours, sizeof(ours), "info"));
	assert_int_equal(theirs.size, sizeof(struct old));
	assert_int_equal(theirs.b, 2);
	assert_int_equal(theirs.c, 9);
	theirs.size = sizeof(struct new) + 100;
	assert_success(snt__info_export(&theirs, &ours, sizeof(ours), "info"));
	assert_int_equal(theirs.c, 3);
	theirs.size = sizeof(size_t);
	assert_error(snt__info_export(&theirs, &ours, sizeof(ours), "info"), EINVAL,
		     "info: set .size");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_version),
		cmocka_unit_test(none_means_defaults),
		cmocka_unit_test(older_program),
		cmocka_unit_test(newer_program),
		cmocka_unit_test(size_is_required),
		cmocka_unit_test(results_stay_within_the_callers_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
