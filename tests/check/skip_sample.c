/* SPDX-License-Identifier: MIT */
/* What tests/check/skips.py looks at. */
#include "lib/test.h"

static void passes(void **state)
{
	(void)state;
}

static void lacks_something(void **state)
{
	(void)state;
	skip_because("no %d of them", 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(passes),
		cmocka_unit_test(lacks_something),
		cmocka_unit_test(passes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
