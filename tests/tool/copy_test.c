/* SPDX-License-Identifier: MIT */
/* What a peer says, and what becomes of it: frames, paths, digests. */
#include "lib/test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "copy_digest.h"
#include "copy_frame.h"
#include "copy_path.h"
#include "lib/seeds.h"

static const struct copy_frame samples[] = {
	{ .type = COPY_OPEN, .version = 1, .flags = 3, .digests = 2, .text = "a/b" },
	{ .type = COPY_READY, .digests = 1 },
	{ .type = COPY_DIRECTORY, .mode = 0755, .text = "d" },
	{ .type = COPY_FILE,
	  .mode = 0644,
	  .size = 1ull << 40,
	  .mtime_ns = 7,
	  .text = "f" },
	{ .type = COPY_HAVE, .offset = 12345678901, .digest = { 1, 2, 3 } },
	{ .type = COPY_START, .entry = 3, .offset = 5 },
	{ .type = COPY_DATA, .length = COPY_DATA_MAX },
	{ .type = COPY_DONE, .done = COPY_CHANGED, .digest = { 9 } },
	{ .type = COPY_RESULT, .error = 28, .text = "no room" },
	{ .type = COPY_PROBLEM, .error = 13, .text = "" },
	{ .type = COPY_END },
	{ .type = COPY_PROBE },
	{ .type = COPY_ALIVE },
	{ .type = COPY_JUDGED, .entry = 700, .error = 28, .text = "no room" },
};
#define SAMPLES (sizeof(samples) / sizeof(*samples))

static void frames_come_back(void **state)
{
	uint8_t buffer[COPY_HEADER + COPY_CONTROL_MAX];

	(void)state;
	for (size_t i = 0; i < SAMPLES; i++) {
		struct copy_frame frame;
		ssize_t length = copy_frame_pack(&samples[i], buffer, sizeof(buffer));

		assert_true(length >= COPY_HEADER);
		assert_int_equal(copy_frame_unpack(buffer, (size_t)length, &frame), 0);
		assert_memory_equal(&frame, &samples[i], sizeof(frame));
		assert_int_equal(copy_frame_pack(&samples[i], buffer,
						 (size_t)length - 1),
				 -ENOSPC);
	}
}

/* Cut short, or with something behind it, nothing is a frame but DATA, whose length is of
 * what follows. */
static void no_frame_is_part_of_another(void **state)
{
	uint8_t buffer[COPY_HEADER + COPY_CONTROL_MAX + 1] = { 0 };

	(void)state;
	for (size_t i = 0; i < SAMPLES; i++) {
		struct copy_frame frame;
		ssize_t length = copy_frame_pack(&samples[i], buffer, sizeof(buffer));

		if (samples[i].type == COPY_DATA)
			continue;
		for (ssize_t cut = 0; cut < length; cut++)
			assert_int_equal(copy_frame_unpack(buffer, (size_t)cut, &frame),
					 -EBADMSG);
		assert_int_equal(copy_frame_unpack(buffer, (size_t)length + 1, &frame),
				 -EBADMSG);
	}
}

/* Whatever the bytes are: a frame that would be said with the same bytes, or none. */
static void random_bytes_are_safe(void **state)
{
	uint8_t buffer[COPY_HEADER + 64], again[sizeof(buffer)];
	uint64_t random = 1;
	unsigned good = 0;

	(void)state;
	for (unsigned i = 0; i < 200000; i++) {
		size_t length = random_below(&random, sizeof(buffer) + 1);
		struct copy_frame frame;

		for (size_t j = 0; j < length; j++)
			buffer[j] = random_below(&random, 4)
					    ? 0
					    : (uint8_t)random_next(&random);
		if (length >= COPY_HEADER) {
			buffer[3] = (uint8_t)random_below(&random, COPY_TYPES + 1);
			buffer[6] = 0;
			buffer[7] = (uint8_t)(length - COPY_HEADER);
		}
		if (copy_frame_unpack(buffer, length, &frame) ||
		    frame.type == COPY_DATA)
			continue;
		good++;
		assert_int_equal(copy_frame_pack(&frame, again, sizeof(again)), length);
		assert_memory_equal(buffer, again, length);
	}
	assert_true(good > 100);
}

static void paths_that_lead_out_are_unsound(void **state)
{
	static const char *const bad[] = {
		"/",
		"/a",
		"a/",
		"a//b",
		".",
		"..",
		"a/..",
		"../a",
		"a/../b",
		"./a",
		"a/.",
		".x.sennit-part",
		"a/.x.sennit-part/b",
		"a/./b",
		"//",
	};
	static const char *const good[] = {
		"",   "a",	 "a/b",		  "...",	 "a/..b",
		".a", "a b/c:d", "x.sennit-part", ".sennit-part"
	};
	char name[NAME_MAX + 2];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (!copy_path_check(bad[i]))
			fail_msg("\"%s\" is sound", bad[i]);
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		if (copy_path_check(good[i]))
			fail_msg("\"%s\" is not sound", good[i]);
	memset(name, 'x', sizeof(name));
	name[NAME_MAX + 1] = '\0';
	assert_int_equal(copy_path_check(name), -EINVAL);
	name[NAME_MAX] = '\0';
	assert_int_equal(copy_path_check(name), 0);
}

static void long_names_have_parts_of_their_own(void **state)
{
	char name[NAME_MAX + 1], part[NAME_MAX + 1], other[NAME_MAX + 1];

	(void)state;
	for (size_t length = 1; length <= NAME_MAX; length++) {
		memset(name, 'x', length);
		name[length] = '\0';
		copy_path_part(name, part);
		assert_true(copy_path_is_part(part));
		assert_true(strlen(part) <= NAME_MAX);
		name[length - 1] = 'y';
		copy_path_part(name, other);
		assert_string_not_equal(part, other);
	}
}

static void folders_are_not_left_by_links(void **state)
{
	char folder[] = "/tmp/copy-test-XXXXXX";
	const char *name;
	int root, fd;

	(void)state;
	assert_non_null(mkdtemp(folder));
	root = open(folder, O_RDONLY | O_DIRECTORY);
	assert_true(root >= 0);
	assert_int_equal(mkdirat(root, "real", 0755), 0);
	assert_int_equal(symlinkat("/", root, "link"), 0);
	fd = copy_path_folder(root, "real");
	assert_true(fd >= 0);
	close(fd);
	assert_true(copy_path_folder(root, "link") < 0);
	assert_true(copy_path_folder(root, "link/tmp") < 0);
	assert_true(copy_path_parent(root, "link/x", &name) < 0);
	assert_int_equal(copy_path_folder(root, "none"), -ENOENT);
	fd = copy_path_parent(root, "real/x", &name);
	assert_true(fd >= 0);
	assert_string_equal(name, "x");
	close(fd);
	assert_int_equal(unlinkat(root, "link", 0), 0);
	assert_int_equal(unlinkat(root, "real", AT_REMOVEDIR), 0);
	close(root);
	assert_int_equal(rmdir(folder), 0);
}

static void digests_of_parts_are_those_of_the_whole(void **state)
{
	static const uint32_t kinds[] = { COPY_CRC64, COPY_SHA256 };
	static const uint8_t first[2][4] = { { 0x99, 0x5d, 0xc9, 0xbb },
					     { 0x15, 0xe2, 0xb0, 0xd3 } };

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct copy_digest digest = { 0 };
		uint8_t value[COPY_DIGEST], half[COPY_DIGEST];

		if (!(copy_digest_known() & kinds[i]))
			continue;
		assert_int_equal(copy_digest_begin(&digest, kinds[i]), 0);
		copy_digest_add(&digest, "1234", 4);
		assert_int_equal(copy_digest_value(&digest, half), 0);
		copy_digest_add(&digest, "56789", 5);
		assert_int_equal(copy_digest_value(&digest, value), 0);
		assert_memory_equal(value, first[i], sizeof(first[i]));
		assert_memory_not_equal(value, half, sizeof(value));
		copy_digest_end(&digest);
	}
	assert_int_equal(copy_digest_best(COPY_CRC64), COPY_CRC64);
	assert_int_equal(copy_digest_best(0x80), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_come_back),
		cmocka_unit_test(no_frame_is_part_of_another),
		cmocka_unit_test(random_bytes_are_safe),
		cmocka_unit_test(paths_that_lead_out_are_unsound),
		cmocka_unit_test(long_names_have_parts_of_their_own),
		cmocka_unit_test(folders_are_not_left_by_links),
		cmocka_unit_test(digests_of_parts_are_those_of_the_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
