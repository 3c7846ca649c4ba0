/* SPDX-License-Identifier: MIT */
/* The order in which GIDs are preferred. */
#include "lib/test.h"

#include <arpa/inet.h>

#include "dev/gid.h"

static struct snt_gid_info judge(unsigned type, const char *address)
{
	struct ibv_gid_entry entry = { .gid_index = 3,
				       .gid_type = type,
				       .ndev_ifindex = 9 };
	struct snt_gid_info gid;

	assert_int_equal(inet_pton(AF_INET6, address, entry.gid.raw), 1);
	snt__gid_judge(&entry, &gid);
	return gid;
}

static void better_ones_score_higher(void **state)
{
	static const struct {
		unsigned type;
		const char *address, *reason;
	} falling[] = {
		{ IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.1", "RoCE v2, IPv4" },
		{ IBV_GID_TYPE_ROCE_V2, "2001:db8::1", "RoCE v2, IPv6 global" },
		{ IBV_GID_TYPE_ROCE_V2, "fd00::1", "RoCE v2, IPv6 unique local" },
		{ IBV_GID_TYPE_ROCE_V2, "::ffff:127.0.0.1", "RoCE v2, IPv4 loopback" },
		{ IBV_GID_TYPE_ROCE_V2, "fe80::1",
		  "RoCE v2, IPv6 link-local, not routed" },
		{ IBV_GID_TYPE_ROCE_V1, "::ffff:10.0.0.1",
		  "RoCE v1, not routed, IPv4" },
		{ IBV_GID_TYPE_ROCE_V1, "fe80::1",
		  "RoCE v1, not routed, IPv6 link-local, not routed" },
		{ IBV_GID_TYPE_ROCE_V2, "::", "RoCE v2, no address" },
	};
	int above = INT32_MAX;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(falling); i++) {
		struct snt_gid_info gid = judge(falling[i].type, falling[i].address);

		assert_true(gid.score < above);
		assert_string_equal(gid.reason, falling[i].reason);
		above = gid.score;
	}
	assert_true(above < 0);
}

static void addresses_are_readable(void **state)
{
	struct snt_gid_info gid = judge(IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.1");

	(void)state;
	assert_string_equal(gid.text, "10.0.0.1");
	assert_int_equal(gid.index, 3);
	assert_int_equal(gid.netdev, 9);
	assert_int_equal(gid.type, SNT_GID_ROCE_V2);
	assert_string_equal(judge(IBV_GID_TYPE_IB, "fe80::2:c903:1").text,
			    "fe80::2:c903:1");
	assert_string_equal(judge(IBV_GID_TYPE_IB, "fe80::1").reason, "InfiniBand");
	assert_string_equal(judge(IBV_GID_TYPE_ROCE_V2, "::ffff:169.254.1.1").reason,
			    "RoCE v2, IPv4 link-local, not routed");
	assert_string_equal(judge(IBV_GID_TYPE_ROCE_V2, "::1").reason,
			    "RoCE v2, IPv6 loopback");
}

static void first_among_equals_is_chosen(void **state)
{
	struct snt_gid_info gid[] = {
		judge(IBV_GID_TYPE_ROCE_V2, "::"),
		judge(IBV_GID_TYPE_ROCE_V1, "::ffff:10.0.0.1"),
		judge(IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.1"),
		judge(IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.2"),
	};

	(void)state;
	assert_int_equal(snt__gid_best(gid, 4), 2);
	assert_int_equal(snt__gid_best(gid, 2), 1);
	assert_int_equal(snt__gid_best(gid, 1), -1);
	assert_int_equal(snt__gid_best(gid, 0), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(better_ones_score_higher),
		cmocka_unit_test(addresses_are_readable),
		cmocka_unit_test(first_among_equals_is_chosen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
