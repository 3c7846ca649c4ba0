/* SPDX-License-Identifier: MIT */
/* The version in the headers is that of the build, and of the library. */
#include "lib/test.h"

#include <sennit/sennit.h>
#include <stdio.h>

static void headers_and_project_have_the_same_version(void **state)
{
	char text[64];

	(void)state;
	snprintf(text, sizeof(text), "%d.%d.%d", SNT_VERSION_MAJOR, SNT_VERSION_MINOR,
		 SNT_VERSION_PATCH);
	assert_string_equal(text, PROJECT_VERSION);
	assert_string_equal(SNT_VERSION_TEXT, PROJECT_VERSION);
}

static void the_number_orders_versions(void **state)
{
	(void)state;
#if SNT_VERSION < 0x000100 || SNT_VERSION >= 0x01000000
#error "SNT_VERSION cannot be compared by the preprocessor"
#endif
	assert_int_equal(SNT_VERSION >> 16, SNT_VERSION_MAJOR);
	assert_int_equal(SNT_VERSION >> 8 & 0xff, SNT_VERSION_MINOR);
	assert_int_equal(SNT_VERSION & 0xff, SNT_VERSION_PATCH);
}

static void the_library_tells_its_version(void **state)
{
	(void)state;
	assert_int_equal(snt_version(), SNT_VERSION);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(headers_and_project_have_the_same_version),
		cmocka_unit_test(the_number_orders_versions),
		cmocka_unit_test(the_library_tells_its_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
