/* SPDX-License-Identifier: MIT */
/* Cards as JSON: the text that is written, and all that must not be read. */
#include "lib/card_kit.h"

#include <jansson.h>

static void a_json_mailbox_is_fixed(void **state)
{
	static const char expected[] =
		"{\"version\": 1, \"generation\": \"0xfedcba9876543210\", "
		"\"scheme\": \"spray\", \"flags\": ["
		"\"notify_length\"], \"qp_num\": 658188, "
		"\"epoch\": 16909060, \"read_depth\": 16, \"mtu\": 4096, "
		"\"lane_depth\": 128, \"recv_depth\": 256, \"window\": 0, "
		"\"fragment_size\": 1048576, \"data_lanes\": 1, "
		"\"mailbox_addr\": \"0x00007f1234567890\", \"mailbox_slots\": 512, "
		"\"devices\": "
		"[{\"gid\": \"::ffff:10.0.0.1\", \"link\": \"ethernet\", "
		"\"gid_type\": \"roce v2\", \"lid\": 0, "
		"\"mailbox_key\": 3237998080}], \"lanes\": [{\"qp_num\": "
		"1192960, \"psn\": 11259136, \"device\": 0}, {\"qp_num\": "
		"1192961, \"psn\": 11259137, \"device\": 0}]}";
	struct snt_card card = sample_with_mailbox(1, 2);
	char text[sizeof(expected)];

	(void)state;
	assert_success(snt_card_to_json(&card, text, sizeof(text)));
	assert_string_equal(text, expected);
}

static void json_text_is_fixed(void **state)
{
	static const char expected[] =
		"{\"version\": 1, \"generation\": \"0xfedcba9876543210\", "
		"\"scheme\": \"spray\", \"flags\": [\"pass_through\"], "
		"\"qp_num\": 658188, "
		"\"epoch\": 16909060, \"read_depth\": 16, \"mtu\": 4096, "
		"\"lane_depth\": 128, \"recv_depth\": 256, \"window\": 0, "
		"\"fragment_size\": 1048576, \"data_lanes\": 1, \"devices\": "
		"[{\"gid\": \"::ffff:10.0.0.1\", \"link\": \"ethernet\", "
		"\"gid_type\": \"roce v2\", \"lid\": 0}], \"lanes\": [{\"qp_num\": "
		"1192960, \"psn\": 11259136, \"device\": 0}]}";
	struct snt_card card = sample(1, 1);
	char text[sizeof(expected)];

	(void)state;
	assert_int_equal(snt_card_to_json(&card, text, sizeof(text)),
			 sizeof(expected) - 1);
	assert_string_equal(text, expected);
	assert_error(snt_card_to_json(&card, text, sizeof(text) - 1), ENOSPC,
		     "needs 415 bytes as JSON with its NUL, not 414");
	assert_error(snt_card_to_json(&card, NULL, 0), ENOSPC, "not 0");
}

/* What src/vqp/card.h says of its limit. */
static void the_longest_json_is_far_from_its_limit(void **state)
{
	struct snt_card card = longest();
	static char text[SNT__CARD_JSON_MAX];

	(void)state;
	assert_in_range(snt_card_to_json(&card, text, sizeof(text)), 1,
			SNT__CARD_JSON_MAX / 3);
}

/* An exact copy without a NUL, as text comes off a wire. */
static int read_copy(const char *text, size_t length, struct snt_card *card_out)
{
	char *copy = malloc(length ? length : 1);
	int ret;

	assert_non_null(copy);
	memcpy(copy, text, length);
	ret = snt_card_from_json(copy, length, card_out);
	free(copy);
	return ret;
}

/* The sample's text with one phrase, which must occur, replaced by another. */
static int read_edited(const char *old, const char *new, struct snt_card *card_out)
{
	struct snt_card card = sample(2, 2);
	char text[2048], edited[sizeof(text) + 1024];
	char *at;

	assert_success(snt_card_to_json(&card, text, sizeof(text)));
	at = strstr(text, old);
	assert_non_null(at);
	*at = '\0';
	snprintf(edited, sizeof(edited), "%s%s%s", text, new, at + strlen(old));
	return read_copy(edited, strlen(edited), card_out);
}

static void edited_refuses(const char *old, const char *new, const char *phrase)
{
	struct snt_card back = { .qp_num = 99 };

	assert_error(read_edited(old, new, &back), EBADMSG, phrase);
	assert_int_equal(back.qp_num, 99);
}

/* Reads the whole again with one member replaced, or left out for NULL. */
static void member_refused(json_t *root, json_t *object, const char *name,
			   const char *value)
{
	json_t *before = json_incref(json_object_get(object, name));
	json_t *now = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
	struct snt_card back;
	char *text;

	if (now)
		assert_int_equal(json_object_set_new(object, name, now), 0);
	else
		assert_int_equal(json_object_del(object, name), 0);
	text = json_dumps(root, 0);
	assert_non_null(text);
	assert_error(read_copy(text, strlen(text), &back), EBADMSG, name);
	if (!value)
		assert_non_null(strstr(snt_err_text(), "is missing"));
	free(text);
	json_object_set_new(object, name, before);
}

static void members_refused(json_t *root, json_t *object)
{
	static const char *const wrong[] = {
		NULL,	 "null",  "true",    "{}",    "[[]]",  "[null]",    "[{}]",
		"[1]",	 "-1",	  "1.0",     "0.5",   "1e99",  "\"\"",	    "\"0\"",
		"\"1\"", "\"x\"", "[\"x\"]", "-1e99", "false", "\"12abc\"", "1e-9",
	};
	const char *name[32];
	unsigned count = 0;
	void *iter;

	for (iter = json_object_iter(object); iter;
	     iter = json_object_iter_next(object, iter)) {
		assert_true(count < ARRAY_SIZE(name));
		name[count++] = json_object_iter_key(iter);
	}
	for (unsigned i = 0; i < count; i++) {
		/* Taking a member out frees its name. */
		char *copy = strdup(name[i]);

		assert_non_null(copy);
		for (unsigned j = 0; j < ARRAY_SIZE(wrong); j++)
			member_refused(root, object, copy, wrong[j]);
		free(copy);
	}
}

static void every_member_is_needed_and_typed(void **state)
{
	struct snt_card card = sample_with_mailbox(2, 2);
	char text[2048];
	json_t *root;

	(void)state;
	assert_success(snt_card_to_json(&card, text, sizeof(text)));
	root = json_loads(text, 0, NULL);
	assert_non_null(root);
	members_refused(root, root);
	members_refused(root, json_array_get(json_object_get(root, "devices"), 1));
	members_refused(root, json_array_get(json_object_get(root, "lanes"), 1));
	json_decref(root);
}

/* Once a list with a number among its strings was read as if it were a string. */
static void h24_non_string_element_is_refused(void **state)
{
	(void)state;
	edited_refuses("\"flags\": []", "\"flags\": [7]",
		       "flags[0] must be a known flag");
	edited_refuses("\"flags\": []", "\"flags\": [\"notify_length\", null]",
		       "flags[1]");
	edited_refuses("\"flags\": []",
		       "\"flags\": [\"notify_length\", \"notify_length\"]",
		       "not \"notify_length\"");
	edited_refuses("\"flags\": []", "\"flags\": [[\"notify_length\"]]",
		       "not an array");
	edited_refuses("\"flags\": []", "\"flags\": \"notify_length\"",
		       "flags must be an array of words, not \"notify_length\"");
	edited_refuses("\"devices\": [", "\"devices\": [3, ",
		       "devices[0] must be an object, not 3");
	edited_refuses("\"lanes\": [", "\"lanes\": [\"x\", ",
		       "lanes[0] must be an object, not \"x\"");
	edited_refuses("\"::ffff:10.0.0.2\"", "10", "devices[1].gid must be");
}

/* Once "12abc" was 12, and 2^32 + 1 was 1. */
static void h25_numbers_are_not_truncated(void **state)
{
	static const char *const mtu[] = {
		"\"12abc\"", "\"4096\"", "4096.0",     "4.096e3",
		"1e99",	     "-4096",	 "4294971392", "18446744073709555712",
	};
	struct snt_card back;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(mtu); i++) {
		char member[64];

		snprintf(member, sizeof(member), "\"mtu\": %s", mtu[i]);
		edited_refuses("\"mtu\": 4096", member, "");
	}
	edited_refuses(
		"\"version\": 1", "\"version\": 4294967297",
		"version must be an integer from 0 to 4294967295, not 4294967297");
	edited_refuses("\"psn\": 11259137", "\"psn\": 4294967297",
		       "lanes[1].psn must be an integer from 0 to 4294967295");
	edited_refuses(
		"\"psn\": 11259137", "\"psn\": \"12abc\"",
		"lanes[1].psn must be an integer from 0 to 4294967295, not \"12abc\"");
	edited_refuses("\"device\": 1", "\"device\": 257",
		       "lanes[1].device must be an integer from 0 to 255, not 257");
	edited_refuses("\"read_depth\": 16", "\"read_depth\": 272", "read_depth");
	edited_refuses("\"fragment_size\": 1", "\"fragment_size\": -1",
		       "fragment_size must be an integer");
	edited_refuses("\"lid\": 0", "\"lid\": 65536", "devices[0].lid");
	edited_refuses("0xfedcba9876543210", "12abc", "generation must be a string of");
	edited_refuses("0xfedcba9876543210", "0xfedcba987654321", "generation");
	edited_refuses("0xfedcba9876543210", "0x1fedcba9876543210", "generation");
	edited_refuses("0xfedcba9876543210", "0xfedcba987654321g", "generation");
	edited_refuses("0xfedcba9876543210", "0xfedcba9876543210g", "generation");
	edited_refuses("0xfedcba9876543210", "0x-edcba9876543210", "generation");
	edited_refuses("0xfedcba9876543210", "0x0000000000000000", "generation is 0");
	assert_success(read_edited("0xfedcba9876543210", "0xFEDCBA9876543210", &back));
	assert_true(back.generation == 0xfedcba9876543210);
}

/* Members of a mailbox are not looked at where there is none. */
static void a_mailbox_needs_its_flag(void **state)
{
	struct snt_card card = sample(2, 2), back;

	(void)state;
	edited_refuses("\"flags\": []", "\"flags\": [\"notify_length\"]",
		       "mailbox_addr is missing");
	assert_success(read_edited("\"epoch\"",
				   "\"mailbox_addr\": 7, \"mailbox_slots\": [], "
				   "\"epoch\"",
				   &back));
	assert_same(&card, &back);
}

static void json_out_of_range_is_refused(void **state)
{
	(void)state;
	edited_refuses("\"psn\": 11259137", "\"psn\": 16777216", "lane 1: psn is");
	edited_refuses("\"device\": 1", "\"device\": 2", "lane 1: device is 2");
	edited_refuses("\"data_lanes\": 1", "\"data_lanes\": 3", "data_lanes is 3");
	edited_refuses("{\"qp_num\": 1192961, \"psn\": 11259137, \"device\": 1}",
		       "{\"qp_num\": 1192960, \"psn\": 1, \"device\": 0}",
		       "lane 1: qp_num 1192960 of device 0 is that of lane 0, too");
	edited_refuses("\"spray\"", "\"default\"",
		       "scheme must be \"spray\" or \"dqplb\", not \"default\"");
	edited_refuses("\"spray\"", "\"dqplb\"", "window is 0, not 1 to 8388608");
	edited_refuses("\"flags\": []", "\"flags\": [\"passes\"]", "flags[0]");
	edited_refuses("\"ethernet\"", "\"Ethernet\"", "devices[0].link must be");
	edited_refuses("\"roce v2\"", "\"roce v3\"", "devices[0].gid_type must be");
	edited_refuses("::ffff:10.0.0.1", "::", "device 0: gid is zero");
	edited_refuses("::ffff:10.0.0.1", "10.0.0.1", "devices[0].gid must be");
	edited_refuses("::ffff:10.0.0.1", "fe80::1%eth0", "devices[0].gid must be");
	edited_refuses("::ffff:10.0.0.1", "::ffff:10.0.0.1 ", "devices[0].gid must be");
	edited_refuses("[{\"qp_num\"", "[], \"more\": [{\"qp_num\"",
		       "lanes has 0 elements, not 1 to 160");
}

static void other_versions_are_told_apart(void **state)
{
	static const char later[] = "{\"version\": 3, \"strands\": []}";
	struct snt_card back;

	(void)state;
	assert_error(read_copy(later, strlen(later), &back), EPROTONOSUPPORT,
		     "version 3; this library reads 1 and 2");
	assert_error(read_edited("\"version\": 1", "\"version\": 0", &back),
		     EPROTONOSUPPORT, "version 0");
}

/* So that versions can grow; and people indent. */
static void unknown_members_are_ignored(void **state)
{
	struct snt_card card = sample(2, 2), back;
	json_t *root;
	char text[2048];
	char *indented;

	(void)state;
	assert_success(read_edited("{\"version\"",
				   "{\"x\": [{\"y\": [1.5, null]}], \"version\"",
				   &back));
	assert_same(&card, &back);
	assert_success(
		read_edited("{\"gid\"", "{\"name\": \"mlx5_0\", \"gid\"", &back));
	assert_same(&card, &back);
	assert_success(read_edited("\"psn\"", "\"rate\": 1e9, \"psn\"", &back));
	assert_same(&card, &back);

	assert_success(snt_card_to_json(&card, text, sizeof(text)));
	root = json_loads(text, 0, NULL);
	indented = json_dumps(root, JSON_INDENT(8) | JSON_SORT_KEYS);
	json_decref(root);
	assert_non_null(indented);
	assert_success(read_copy(indented, strlen(indented), &back));
	assert_same(&card, &back);
	free(indented);
}

static void malformed_json_is_refused(void **state)
{
	struct snt_card card = sample(1, 1), back = { .qp_num = 99 };
	char text[1024] = "";
	ssize_t length = snt_card_to_json(&card, text, sizeof(text));

	(void)state;
	assert_error(snt_card_from_json(NULL, 0, &back), EBADMSG, "is empty");
	for (ssize_t cut = 0; cut < length; cut++)
		assert_error(read_copy(text, cut, &back), EBADMSG, "JSON card is");
	assert_int_equal(back.qp_num, 99);
	assert_success(read_copy(text, length, &back));
	/* The NUL is not part of the text. */
	assert_error(read_copy(text, length + 1, &back), EBADMSG,
		     "malformed in line 1");
	text[length] = '}';
	assert_error(read_copy(text, length + 1, &back), EBADMSG,
		     "end of file expected");
	text[length] = '\n';
	assert_success(read_copy(text, length + 1, &back));
	text[20] = '\0';
	assert_error(read_copy(text, length, &back), EBADMSG, "line 1, column");
	assert_error(read_copy("[]", 2, &back), EBADMSG,
		     "must be an object, not an array");
	assert_error(read_copy("7", 1, &back), EBADMSG, "malformed");
	assert_error(read_copy("{}", 2, &back), EBADMSG, "version is missing");
	edited_refuses("\"spray\"", "\"spray\\u0000\"", "malformed");
	edited_refuses("\"spray\"", "\"spr\xff\"", "malformed");
	edited_refuses("\"epoch\"", "\"mtu\": 4096, \"epoch\"", "duplicate object key");
	edited_refuses("\"mtu\": 4096", "\"mtu\": 1e999", "malformed");
}

/* What a peer wrote may end up in a log. */
static void sentences_show_foreign_text_short_and_printable(void **state)
{
	(void)state;
	edited_refuses("\"spray\"", "\"\\u001b[2J\\n\xc3\xa9\"", "not \"?[2J???\"");
	edited_refuses("\"spray\"", "\"a string that is much longer\"",
		       "not \"a string that is...\"");
	edited_refuses("\"spray\"", "hello", "malformed");
	assert_null(strstr(snt_err_text(), "hello"));
	edited_refuses("\"spray\"", "\"\033[2J\"", "control character 0x1b");
	assert_null(strstr(snt_err_text(), "\033"));
}

static void depth_and_length_are_limited(void **state)
{
	static char deep[SNT__CARD_JSON_MAX + 1];
	char brackets[128];
	struct snt_card back;

	(void)state;
	memset(deep, '[', sizeof(deep));
	assert_error(read_copy(deep, sizeof(deep) - 1, &back), EBADMSG,
		     "deeper than 32 levels");
	assert_error(read_copy(deep, sizeof(deep), &back), EBADMSG,
		     "65537 bytes is longer than 65536");
	/* Inside of the card, at the limit and past it; a string has no depth. */
	snprintf(brackets, sizeof(brackets), "{\"x\": %.31s%.31s, \"version\"", deep,
		 "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
	assert_success(read_edited("{\"version\"", brackets, &back));
	snprintf(brackets, sizeof(brackets), "{\"x\": %.32s%.32s, \"version\"", deep,
		 "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
	edited_refuses("{\"version\"", brackets, "deeper");
	snprintf(brackets, sizeof(brackets), "{\"x\": \"\\\"%.50s\", \"version\"",
		 deep);
	assert_success(read_edited("{\"version\"", brackets, &back));
}

static void long_arrays_are_refused(void **state)
{
	static char text[SNT__CARD_JSON_MAX], edited[SNT__CARD_JSON_MAX];
	struct snt_card card = sample(SNT_DEVICES_MAX, SNT_LANES_MAX), back;
	char *at;

	(void)state;
	assert_success(snt_card_to_json(&card, text, sizeof(text)));
	at = strstr(text, "\"lanes\": [") + strlen("\"lanes\": [");
	snprintf(edited, sizeof(edited), "%.*s{}, %s", (int)(at - text), text, at);
	assert_error(read_copy(edited, strlen(edited), &back), EBADMSG,
		     "lanes has 161 elements, not 1 to 160");
	at = strstr(text, "\"devices\": [") + strlen("\"devices\": [");
	snprintf(edited, sizeof(edited), "%.*s{}, %s", (int)(at - text), text, at);
	assert_error(read_copy(edited, strlen(edited), &back), EBADMSG,
		     "devices has 33 elements, not 1 to 32");
}

static unsigned allocations_left;

/* As malloc() fails: with errno. */
static void *failing_malloc(size_t size)
{
	if (allocations_left--)
		return malloc(size);
	errno = ENOMEM;
	return NULL;
}

static void every_allocation_can_fail(void **state)
{
	struct snt_card card = sample_with_mailbox(2, 3), back = { .qp_num = 99 };
	char text[2048], again[sizeof(text)];
	ssize_t length = snt_card_to_json(&card, text, sizeof(text));
	ssize_t ret = -ENOMEM;
	unsigned failures;

	(void)state;
	json_set_alloc_funcs(failing_malloc, free);
	for (failures = 0; ret < 0; failures++) {
		allocations_left = failures;
		ret = snt_card_to_json(&card, again, sizeof(again));
		if (ret < 0)
			assert_error(ret, ENOMEM, "out of memory");
	}
	assert_int_equal(ret, length);
	assert_string_equal(again, text);
	assert_true(failures > 30);

	ret = -ENOMEM;
	for (failures = 0; ret < 0; failures++) {
		allocations_left = failures;
		ret = snt_card_from_json(text, length, &back);
		/* Without memory jansson loses letters and whole strings, and then
		 * blames the text. */
		if (ret < 0) {
			assert_error(ret, ENOMEM, "out of memory");
			assert_int_equal(back.qp_num, 99);
		}
	}
	assert_same(&card, &back);
	assert_true(failures > 30);
	json_set_alloc_funcs(malloc, free);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(json_text_is_fixed),
		cmocka_unit_test(a_json_mailbox_is_fixed),
		cmocka_unit_test(the_longest_json_is_far_from_its_limit),
		cmocka_unit_test(a_mailbox_needs_its_flag),
		cmocka_unit_test(every_member_is_needed_and_typed),
		cmocka_unit_test(h24_non_string_element_is_refused),
		cmocka_unit_test(h25_numbers_are_not_truncated),
		cmocka_unit_test(json_out_of_range_is_refused),
		cmocka_unit_test(other_versions_are_told_apart),
		cmocka_unit_test(unknown_members_are_ignored),
		cmocka_unit_test(malformed_json_is_refused),
		cmocka_unit_test(sentences_show_foreign_text_short_and_printable),
		cmocka_unit_test(depth_and_length_are_limited),
		cmocka_unit_test(long_arrays_are_refused),
		cmocka_unit_test(every_allocation_can_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
