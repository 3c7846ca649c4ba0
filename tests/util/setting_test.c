/* SPDX-License-Identifier: MIT */
/* SENNIT_* variables: one table, one order of precedence. */
#include "lib/test.h"

#include "util/setting.h"

static void table_is_complete(void **state)
{
	const struct snt_setting *setting;
	size_t count = 0;

	(void)state;
	setting = snt_setting_list(&count);
	assert_int_equal(count, SNT__SETTING_COUNT);
	for (size_t i = 0; i < count; i++) {
		assert_int_equal(strncmp(setting[i].name, "SENNIT_", 7), 0);
		assert_non_null(setting[i].default_value);
		assert_true(strlen(setting[i].help) > 10);
	}
	assert_ptr_equal(snt_setting_list(NULL), setting);
}

static void option_then_environment_then_default(void **state)
{
	struct snt__value value;

	(void)state;
	setenv("SENNIT_GID", "4", 1);
	value = snt__setting_get(SNT__SETTING_GID, "5", "the option");
	assert_string_equal(value.text, "5");
	assert_string_equal(value.origin, "the option");
	value = snt__setting_get(SNT__SETTING_GID, NULL, "the option");
	assert_string_equal(value.text, "4");
	assert_string_equal(value.origin, "SENNIT_GID");
	unsetenv("SENNIT_GID");
	value = snt__setting_get(SNT__SETTING_GID, NULL, "the option");
	assert_string_equal(value.text, "auto");
}

static void words_are_a_closed_list(void **state)
{
	static const char *const words[] = { "red", "green", NULL };

	(void)state;
	assert_int_equal(snt__setting_word((struct snt__value){ "green", "X" }, words),
			 1);
	assert_error(snt__setting_word((struct snt__value){ "gree", "X" }, words),
		     EINVAL, "X is \"gree\"; it must be one of: red, green");
	assert_error(snt__setting_word((struct snt__value){ "", "X" }, words), EINVAL,
		     "X");
}

static void count_name(void *arg, const char *name)
{
	assert_string_equal(name, "SENNIT_DEVICE");
	(*(int *)arg)++;
}

static void unknown_names_are_found(void **state)
{
	int found = 0;

	(void)state;
	setenv("SENNIT_DEVICE", "1", 1);
	setenv("SENNIT_DEVICES", "1", 1);
	setenv("XSENNIT_DEVICE", "1", 1);
	snt__setting_unknown(count_name, &found);
	assert_int_equal(found, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(table_is_complete),
		cmocka_unit_test(option_then_environment_then_default),
		cmocka_unit_test(words_are_a_closed_list),
		cmocka_unit_test(unknown_names_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
