/* SPDX-License-Identifier: MIT */
/* The device list: what it accepts, what it selects, what it refuses. */
#include "lib/test.h"

#include "dev/select.h"

static struct snt__select selection;

static int parse(const char *text)
{
	return snt__select_parse(&selection, (struct snt__value){ text, "LIST" });
}

/* Which of mlx5_0, mlx5_1, mlx5_10, rxe0 have port 1 selected, as bits. */
static int selected(const char *text)
{
	static const char *const names[] = { "mlx5_0", "mlx5_1", "mlx5_10", "rxe0" };
	int bits = 0;

	assert_success(parse(text));
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		struct snt__entry *entry;
		int ret;

		if (!snt__select_name(&selection, names[i]))
			continue;
		ret = snt__select_port(&selection, names[i], 1, &entry);
		assert_true(ret >= 0);
		bits |= ret << i;
	}
	return bits;
}

static void empty_list_selects_all(void **state)
{
	(void)state;
	assert_int_equal(selected(""), 0xf);
}

static void prefix_selects_all_that_begin_so(void **state)
{
	(void)state;
	assert_int_equal(selected("mlx5"), 0x7);
	assert_int_equal(selected("mlx5_1"), 0x6);
	assert_int_equal(selected("mlx5_0,rxe"), 0x9);
}

static void exact_selects_one(void **state)
{
	(void)state;
	assert_int_equal(selected("=mlx5_1"), 0x2);
	assert_int_equal(selected("=mlx5"), 0x0);
}

static void exclusion_excludes(void **state)
{
	(void)state;
	assert_int_equal(selected("^mlx5_0"), 0xe);
	assert_int_equal(selected("^mlx5_1"), 0x9);
	assert_int_equal(selected("^=mlx5_1"), 0xd);
	assert_int_equal(selected("^mlx5,^rxe"), 0x0);
}

/* Named after the upstream hazard: there, ^a,b opened exactly a and b. */
static void h14_excluded_devices_stay_closed(void **state)
{
	(void)state;
	assert_int_equal(selected("^mlx5_0,mlx5_1"), 0x8);
}

static void exclusion_wins_wherever_it_stands(void **state)
{
	(void)state;
	assert_int_equal(selected("mlx5,^=mlx5_1"), 0x5);
	assert_int_equal(selected("^=mlx5_1,=mlx5_1,=rxe0"), 0x8);
}

static void mark_holds_until_the_next(void **state)
{
	(void)state;
	assert_int_equal(selected("=mlx5_0,mlx5_1"), 0x3);
	assert_int_equal(selected("rxe,=mlx5_0,mlx5_1,^mlx5_1"), 0x9);
}

/* "^mlx5_0, mlx5_1" opened mlx5_1: " mlx5_1" is the beginning of no device's name. */
static void spaces_around_entries_do_not_count(void **state)
{
	(void)state;
	assert_int_equal(selected("^mlx5_0, mlx5_1"), 0x8);
	assert_int_equal(selected(" =mlx5_0 ,\t=rxe0:1 "), 0x9);
	assert_int_equal(selected("mlx5 , ^=mlx5_1\n"), 0x5);
}

static void spaces_inside_entries_are_refused(void **state)
{
	(void)state;
	assert_error(parse("mlx5_0 mlx5_1"), EINVAL, "space inside");
	assert_error(parse("^ mlx5_0"), EINVAL, "space inside");
	assert_error(parse("mlx5_0 :1"), EINVAL, "space inside");
	assert_error(parse("mlx5_0: 1"), EINVAL, "no port from 1 to 255");
	assert_error(parse("mlx5_0, ,mlx5_1"), EINVAL, "has no name");
	assert_error(parse(" "), EINVAL, "has no name");
}

static void port_narrows_an_entry(void **state)
{
	struct snt__entry *entry;

	(void)state;
	assert_int_equal(selected("mlx5_0:2,rxe0:1"), 0x8);
	assert_int_equal(snt__select_port(&selection, "mlx5_0", 2, &entry), 1);
	assert_int_equal(selected("^mlx5_0:1"), 0xe);
	assert_int_equal(snt__select_port(&selection, "mlx5_0", 2, &entry), 1);
}

static void selecting_twice_is_refused(void **state)
{
	struct snt__entry *entry;

	(void)state;
	assert_success(parse("mlx5,mlx5_0:1"));
	assert_error(
		snt__select_port(&selection, "mlx5_0", 1, &entry), EEXIST,
		"port 1 of mlx5_0 is selected twice, by \"mlx5\" and by \"mlx5_0:1\"");
	assert_int_equal(snt__select_port(&selection, "mlx5_0", 2, &entry), 1);
}

static void only_exact_or_numbered_entries_are_strict(void **state)
{
	(void)state;
	assert_success(parse("a,=b,^c,d:1"));
	assert_false(snt__select_is_strict(&selection.entry[0]));
	assert_true(snt__select_is_strict(&selection.entry[1]));
	assert_true(snt__select_is_strict(&selection.entry[3]));
}

static void malformed_lists_are_refused(void **state)
{
	static const struct {
		const char *text, *phrase;
	} bad[] = {
		{ ",", "has no name" },
		{ "a,", "has no name" },
		{ "a,,b", "has no name" },
		{ "^", "has no name" },
		{ "^=", "has no name" },
		{ "=:1", "has no name" },
		{ "a:", "no port from 1 to 255" },
		{ "a:0", "no port from 1 to 255" },
		{ "a:256", "no port from 1 to 255" },
		{ "a:1x", "no port from 1 to 255" },
		{ "a:-1", "no port from 1 to 255" },
		{ "a:1:2", "no port from 1 to 255" },
		{ "a:4294967297", "no port from 1 to 255" },
		{ "=^a", "mark inside its name" },
		{ "^^a", "mark inside its name" },
		{ "a=b", "mark inside its name" },
		{ "0123456789012345678901234567890123456789012345678901234567890123",
		  "too long" },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		assert_error(parse(bad[i].text), EINVAL, bad[i].phrase);
}

static void too_many_entries_are_refused(void **state)
{
	char text[3 * SNT_DEVICE_LIST_MAX + 3] = "";

	(void)state;
	for (int i = 0; i < SNT_DEVICE_LIST_MAX; i++)
		strcat(text, i ? ",^a" : "^a");
	assert_success(parse(text));
	strcat(text, ",^");
	text[strlen(text) - 1] = 'a';
	assert_error(parse(text), EINVAL, "more than 64 entries");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(empty_list_selects_all),
		cmocka_unit_test(prefix_selects_all_that_begin_so),
		cmocka_unit_test(exact_selects_one),
		cmocka_unit_test(exclusion_excludes),
		cmocka_unit_test(h14_excluded_devices_stay_closed),
		cmocka_unit_test(exclusion_wins_wherever_it_stands),
		cmocka_unit_test(mark_holds_until_the_next),
		cmocka_unit_test(spaces_around_entries_do_not_count),
		cmocka_unit_test(spaces_inside_entries_are_refused),
		cmocka_unit_test(port_narrows_an_entry),
		cmocka_unit_test(selecting_twice_is_refused),
		cmocka_unit_test(only_exact_or_numbered_entries_are_strict),
		cmocka_unit_test(malformed_lists_are_refused),
		cmocka_unit_test(too_many_entries_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
