/* SPDX-License-Identifier: MIT */
/* Opening contexts on a made-up libibverbs: which devices, and what if not. */
#include "lib/test.h"

#include <infiniband/verbs.h>
#include <sennit/sennit.h>

#include "dev/ctx.h"
#include "lib/devices/verbs_fake.h"
#include "lib/fault.h"
#include "lib/loopback.h"

static struct snt_ctx *ctx;
static char log_text[4096];

static void remember(void *arg, enum snt_log_level level, const char *text)
{
	(void)arg;
	(void)level;
	strncat(log_text, text, sizeof(log_text) - strlen(log_text) - 2);
	strcat(log_text, "\n");
}

static int open_with(struct snt_ctx_opts opts)
{
	opts.size = sizeof(opts);
	opts.log = remember;
	if (!opts.log_level)
		opts.log_level = SNT_LOG_DEBUG;
	log_text[0] = '\0';
	return snt_ctx_create(&opts, &ctx);
}

static int open_list(const char *devices)
{
	return open_with((struct snt_ctx_opts){ .devices = devices });
}

static struct snt_device_info info_of(unsigned index)
{
	struct snt_device_info info = { .size = sizeof(info) };

	assert_success(snt_device_query(snt_ctx_device(ctx, index), &info));
	return info;
}

static void assert_closes_clean(void)
{
	assert_success(snt_ctx_destroy(ctx));
	assert_int_equal(fake_live(), 0);
	ctx = NULL;
}

static int set_up(void **state)
{
	(void)state;
	unsetenv("SENNIT_DEVICES");
	unsetenv("SENNIT_SOFT");
	unsetenv("SENNIT_LOG");
	unsetenv("SENNIT_GID");
	fake_reset();
	ctx = NULL;
	return 0;
}

static void all_devices_by_default(void **state)
{
	(void)state;
	fake_add("mlx5_0", 1);
	fake_add("mlx5_1", 2);
	assert_success(snt_ctx_create(NULL, &ctx));
	assert_int_equal(snt_ctx_device_count(ctx), 3);
	assert_string_equal(info_of(0).name, "mlx5_0");
	assert_string_equal(info_of(2).name, "mlx5_1");
	assert_int_equal(info_of(2).port, 2);
	assert_int_equal(info_of(2).index, 2);
	assert_null(snt_ctx_device(ctx, 3));
	assert_closes_clean();
}

static void info_is_what_the_device_says(void **state)
{
	struct snt_device_info info;

	(void)state;
	fake_add("mlx5_0", 1);
	assert_success(open_list(NULL));
	info = info_of(0);
	assert_int_equal(info.kind, SNT_DEVICE_VERBS);
	assert_int_equal(info.link, SNT_LINK_ETHERNET);
	assert_int_equal(info.state, SNT_PORT_ACTIVE);
	assert_int_equal(info.mtu, 1024);
	assert_int_equal(info.mtu_max, 4096);
	assert_int_equal(info.speed_mbps, 200000);
	assert_int_equal(info.numa_node, -1);
	assert_int_equal(info.lid, 7);
	assert_int_equal(info.gid_count, 1);
	assert_int_equal(info.gid_index, 0);
	assert_int_equal(info.message_size_max, 1u << 30);
	assert_int_equal(info.qp_depth_max, 16384);
	assert_int_equal(info.read_in_max, 16);
	assert_int_equal(info.read_out_max, 8);
	assert_true(info.atomics);
	assert_non_null(snt_device_context(snt_ctx_device(ctx, 0)));
	assert_non_null(snt_device_pd(snt_ctx_device(ctx, 0)));
	assert_non_null(snt_device_control(snt_ctx_device(ctx, 0))->create_qp);
	assert_closes_clean();
}

/* A program that was built against an older, shorter structure. */
static void info_fits_the_callers_size(void **state)
{
	struct snt_device_info info;

	(void)state;
	fake_add("mlx5_0", 1);
	assert_success(open_list(NULL));
	memset(&info, 0x55, sizeof(info));
	info.size = offsetof(struct snt_device_info, port);
	assert_success(snt_device_query(snt_ctx_device(ctx, 0), &info));
	assert_string_equal(info.name, "mlx5_0");
	assert_int_equal(info.port, 0x55);
	info.size = 0;
	assert_error(snt_device_query(snt_ctx_device(ctx, 0), &info), EINVAL,
		     "set .size");
	assert_closes_clean();
}

static void option_wins_over_environment(void **state)
{
	(void)state;
	fake_add("mlx5_0", 1);
	fake_add("rxe0", 1);
	setenv("SENNIT_DEVICES", "rxe", 1);
	assert_success(open_list(NULL));
	assert_int_equal(snt_ctx_device_count(ctx), 1);
	assert_string_equal(info_of(0).name, "rxe0");
	assert_closes_clean();
	assert_success(open_list("mlx5"));
	assert_string_equal(info_of(0).name, "mlx5_0");
	assert_closes_clean();
	assert_success(open_list(""));
	assert_int_equal(snt_ctx_device_count(ctx), 2);
	assert_closes_clean();
}

static void excluded_devices_are_not_even_opened(void **state)
{
	(void)state;
	fake_add("mlx5_0", 1);
	fake_add("mlx5_1", 1);
	fake_add("mlx5_2", 1);
	assert_success(open_list("^mlx5_0,mlx5_1"));
	assert_int_equal(snt_ctx_device_count(ctx), 1);
	assert_string_equal(info_of(0).name, "mlx5_2");
	assert_int_equal(fake_opens(), 2); /* to count its ports, and to use it */
	assert_closes_clean();
}

static void second_port_can_be_the_only_one(void **state)
{
	(void)state;
	fake_add("mlx4_0", 2);
	assert_success(open_list("mlx4_0:2"));
	assert_int_equal(snt_ctx_device_count(ctx), 1);
	assert_int_equal(info_of(0).port, 2);
	assert_closes_clean();
}

static void wrong_names_are_errors(void **state)
{
	(void)state;
	fake_add("mlx5_0", 1);
	fake_add("mlx5_1", 1);
	assert_error(open_list("mlx5,bnxt"), ENODEV,
		     "\"bnxt\" matches no device; present: mlx5_0, mlx5_1");
	assert_error(open_list("=mlx5"), ENODEV, "\"=mlx5\" matches no device");
	assert_error(open_list("mlx5_0:3"), ENODEV, "\"mlx5_0:3\": there is no port 3");
	assert_error(open_list("^mlx5"), ENODEV, "no device is left");
	assert_error(open_list("mlx5_1,^mlx5_1"), ENODEV, "no device is left");
	assert_error(open_list("mlx5_0,=mlx5_0"), EEXIST, "selected twice");
	assert_error(open_list("mlx5:x"), EINVAL, "in snt_ctx_opts.devices=\"mlx5:x\"");
	assert_int_equal(fake_live(), 0);
}

static void idle_exclusion_is_a_warning(void **state)
{
	(void)state;
	fake_add("mlx5_0", 1);
	assert_success(open_list("^bnxt"));
	assert_non_null(
		strstr(log_text, "\"^bnxt\" excludes nothing; present: mlx5_0"));
	assert_closes_clean();
	assert_success(open_list("^mlx5_0:9"));
	assert_non_null(strstr(log_text, "\"^mlx5_0:9\" excludes nothing"));
	assert_closes_clean();
}

/* Its QPs cannot be lanes. */
static void iwarp_devices(void **state)
{
	(void)state;
	fake_add("mlx5_0", 1);
	fake_add("siw0", 1)->device.transport_type = IBV_TRANSPORT_IWARP;

	/* Not named: left out, and the log says so. */
	assert_success(open_list(""));
	assert_int_equal(snt_ctx_device_count(ctx), 1);
	assert_non_null(strstr(log_text, "left out: siw0 is an iWARP device"));
	assert_closes_clean();

	/* Named, or alone: an error. */
	assert_error(open_list("=siw0"), EOPNOTSUPP, "siw0 is an iWARP device");
	assert_error(open_list("^mlx5_0"), EOPNOTSUPP,
		     "no usable port: siw0 is an iWARP device");
	assert_int_equal(fake_live(), 0);
}

static void port_that_is_down(void **state)
{
	struct fake_device *down;

	(void)state;
	fake_add("mlx5_0", 1);
	down = fake_add("mlx5_1", 1);
	down->port[0].state = IBV_PORT_DOWN;

	/* Not named: left out, and the log says so. */
	assert_success(open_list("mlx5"));
	assert_int_equal(snt_ctx_device_count(ctx), 1);
	assert_non_null(strstr(log_text, "left out: mlx5_1 port 1 is down"));
	assert_closes_clean();

	/* Named: an error. */
	assert_error(open_list("=mlx5_1"), ENETDOWN, "mlx5_1 port 1 is down");
	assert_error(open_list("mlx5_0,mlx5_1:1"), ENETDOWN, "mlx5_1 port 1 is down");
	assert_error(open_list("mlx5_1"), ENETDOWN,
		     "no usable port matches mlx5_1: mlx5_1 port 1 is down");

	/* Nothing else: an error too. */
	assert_error(open_list("^mlx5_0"), ENETDOWN,
		     "no usable port: mlx5_1 port 1 is down");
	assert_int_equal(fake_live(), 0);
}

static void port_without_address(void **state)
{
	struct fake_device *bare;

	(void)state;
	fake_add("rxe0", 1);
	bare = fake_add("rxe1", 1);
	bare->port[0].gid_count = 0;
	assert_success(open_list(NULL));
	assert_int_equal(snt_ctx_device_count(ctx), 1);
	assert_closes_clean();
	assert_error(open_list("=rxe1"), EADDRNOTAVAIL, "rxe1 port 1 has no GID");
	fault_arm(12); /* the only GID there is cannot be read */
	assert_error(open_list("=rxe0"), FAKE_ERRNO,
		     "rxe0 port 1: cannot query the GID");
	assert_string_equal(fault_name(), "ibv_query_gid");
	fault_arm(0);
	bare->port[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
	assert_success(open_list("=rxe1"));
	assert_int_equal(info_of(0).gid_index, -1);
	assert_closes_clean();
}

static void best_gid_is_chosen_and_explained(void **state)
{
	struct snt_gid_info gid = { .size = sizeof(gid) };
	struct fake_device *fake;

	(void)state;
	fake = fake_add("mlx5_0", 1);
	fake_set_gid(&fake->port[0], 0, IBV_GID_TYPE_ROCE_V1, "fe80::1");
	fake_set_gid(&fake->port[0], 1, IBV_GID_TYPE_ROCE_V2, "fe80::1");
	fake_set_gid(&fake->port[0], 4, IBV_GID_TYPE_ROCE_V1, "10.1.2.3");
	fake_set_gid(&fake->port[0], 5, IBV_GID_TYPE_ROCE_V2, "10.1.2.3");
	assert_success(open_list(NULL));
	assert_int_equal(info_of(0).gid_count, 4);
	assert_int_equal(info_of(0).gid_index, 5);
	assert_string_equal(info_of(0).gid_reason,
			    "10.1.2.3 (RoCE v2, IPv4), the best of 4");
	assert_success(snt_device_query_gid(snt_ctx_device(ctx, 0), 0, &gid));
	assert_string_equal(gid.reason,
			    "RoCE v1, not routed, IPv6 link-local, not routed");
	assert_success(snt_device_query_gid(snt_ctx_device(ctx, 0), 3, &gid));
	assert_int_equal(gid.index, 5);
	assert_string_equal(gid.text, "10.1.2.3");
	assert_error(snt_device_query_gid(snt_ctx_device(ctx, 0), 4, &gid), ENOENT,
		     "mlx5_0 port 1 has 4 GIDs");
	assert_closes_clean();
}

static void gid_index_can_be_asked_for(void **state)
{
	struct fake_device *fake;

	(void)state;
	fake = fake_add("mlx5_0", 1);
	fake_set_gid(&fake->port[0], 1, IBV_GID_TYPE_ROCE_V2, "fe80::1");
	setenv("SENNIT_GID", "1", 1);
	assert_success(open_list(NULL));
	assert_int_equal(info_of(0).gid_index, 1);
	assert_non_null(strstr(info_of(0).gid_reason, "as SENNIT_GID asks"));
	assert_closes_clean();
	assert_error(
		open_with((struct snt_ctx_opts){ .gid = "7" }), EADDRNOTAVAIL,
		"mlx5_0 port 1 has no GID at index 7, which snt_ctx_opts.gid asks for");
	setenv("SENNIT_GID", "-1", 1);
	assert_error(open_list(NULL), EINVAL, "SENNIT_GID is \"-1\"");
	setenv("SENNIT_GID", "12345678901234567", 1);
	assert_error(open_list(NULL), EINVAL, "SENNIT_GID");
	assert_int_equal(fake_live(), 0);
}

static void refresh_sees_changes(void **state)
{
	struct fake_device *fake;

	(void)state;
	fake = fake_add("mlx5_0", 1);
	assert_success(open_list(NULL));
	fake->port[0].state = IBV_PORT_DOWN;
	fake_set_gid(&fake->port[0], 0, IBV_GID_TYPE_ROCE_V2, "10.9.9.9");
	assert_int_equal(info_of(0).state, SNT_PORT_ACTIVE);
	assert_success(snt_device_refresh(snt_ctx_device(ctx, 0)));
	assert_int_equal(info_of(0).state, SNT_PORT_DOWN);
	assert_non_null(strstr(info_of(0).gid_reason, "10.9.9.9"));
	fault_arm(1);
	assert_error(snt_device_refresh(snt_ctx_device(ctx, 0)), ENOMEM,
		     "mlx5_0: no memory for its port");
	fault_arm(2);
	assert_error(snt_device_refresh(snt_ctx_device(ctx, 0)), FAKE_ERRNO,
		     "mlx5_0 port 1: cannot query");
	assert_non_null(strstr(info_of(0).gid_reason, "10.9.9.9"));
	assert_closes_clean();
}

static void soft_devices_where_there_is_no_other(void **state)
{
	(void)state;
	assert_success(open_list(NULL));
	assert_int_equal(snt_ctx_device_count(ctx), 2);
	assert_int_equal(info_of(1).kind, SNT_DEVICE_SOFT);
	assert_string_equal(info_of(1).name, "soft1");
	assert_non_null(strstr(log_text, "no RDMA device; using 2 soft devices"));
	assert_closes_clean();
	fake_no_support();
	assert_success(open_list("soft1"));
	assert_int_equal(snt_ctx_device_count(ctx), 1);
	assert_closes_clean();
	assert_error(open_list("mlx5"), ENODEV,
		     "\"mlx5\" matches no device; present: soft0, soft1");
	assert_error(open_with((struct snt_ctx_opts){ .soft = SNT_SOFT_NEVER }), ENODEV,
		     "snt_ctx_opts.soft excludes soft ones");
	assert_error(open_with((struct snt_ctx_opts){ .soft_addresses = "192.0.2.77" }),
		     EADDRNOTAVAIL, "soft ones cannot be opened: no interface");
}

static void soft_devices_by_address_are_expected(void **state)
{
	const char *address = loopback_text(0);

	(void)state;
	assert_success(open_with((struct snt_ctx_opts){ .soft_addresses = address,
							.log_level = SNT_LOG_WARN }));
	assert_string_equal(log_text, "");
	assert_closes_clean();
	assert_success(open_with((struct snt_ctx_opts){ .soft_addresses = address }));
	assert_non_null(strstr(log_text, "no RDMA device; using 1 soft device\n"));
	assert_closes_clean();
	setenv("SENNIT_SOFT_ADDRESSES", address, 1);
	assert_success(open_with((struct snt_ctx_opts){ .log_level = SNT_LOG_WARN }));
	unsetenv("SENNIT_SOFT_ADDRESSES");
	assert_string_equal(log_text, "");
	assert_closes_clean();
}

static void no_soft_device_in_place_of_another(void **state)
{
	(void)state;
	fake_add("mlx5_0", 0);
	assert_error(open_list(NULL), ENODEV, "no device is left");
	assert_non_null(strstr(log_text, "left out: mlx5_0 has no port"));
}

static void soft_modes(void **state)
{
	(void)state;
	fake_add("mlx5_0", 1);
	setenv("SENNIT_SOFT", "only", 1);
	assert_success(open_list(NULL));
	assert_string_equal(info_of(0).name, "soft0");
	assert_null(strstr(log_text, "using 2 soft devices"));
	assert_closes_clean();
	assert_success(open_with((struct snt_ctx_opts){ .soft = SNT_SOFT_NEVER }));
	assert_string_equal(info_of(0).name, "mlx5_0");
	assert_closes_clean();
	setenv("SENNIT_SOFT", "sometimes", 1);
	assert_error(
		open_list(NULL), EINVAL,
		"SENNIT_SOFT is \"sometimes\"; it must be one of: auto, never, only");
	assert_error(open_with((struct snt_ctx_opts){ .soft = 9 }), EINVAL, "soft 9");
}

/* Each call that opening soft devices needs fails once. */
static void soft_devices_fail_clean(void **state)
{
	unsigned nth = 0;
	int ret;

	(void)state;
	do {
		fault_arm(++nth);
		ret = open_with((struct snt_ctx_opts){ .soft = SNT_SOFT_ONLY });
		if (ret && ret != -ENOMEM)
			fail_msg("call %u: %s", nth, snt_err_text());
		if (!ret)
			assert_success(snt_ctx_destroy(ctx));
	} while (fault_was_hit());
	fault_arm(0);
	assert_true(nth > 10);
	ctx = NULL;
}

static void log_settings(void **state)
{
	(void)state;
	fake_add("mlx5_0", 1);
	setenv("SENNIT_LOG", "loud", 1);
	assert_error(
		snt_ctx_create(NULL, &ctx), EINVAL,
		"SENNIT_LOG is \"loud\"; it must be one of: error, warn, info, debug");
	setenv("SENNIT_LOG", "", 1);
	assert_success(snt_ctx_create(NULL, &ctx));
	assert_closes_clean();
	setenv("SENNIT_LOG", "error", 1);
	setenv("SENNIT_DEVICE", "typo", 1);
	assert_success(open_with((struct snt_ctx_opts){ .log_level = SNT_LOG_WARN }));
	unsetenv("SENNIT_DEVICE");
	assert_string_equal(log_text,
			    "SENNIT_DEVICE is set, but sennit has no such setting; "
			    "check its spelling\n");
	assert_closes_clean();
	assert_error(open_with((struct snt_ctx_opts){ .log_level = 99 }), EINVAL,
		     "log_level 99");
}

static void too_many_devices(void **state)
{
	(void)state;
	for (unsigned i = 0; i <= SNT_DEVICES_MAX; i++) {
		char name[16];

		snprintf(name, sizeof(name), "mlx5_%u", i);
		fake_add(name, 1);
	}
	assert_error(open_list(NULL), E2BIG,
		     "mlx5_32 port 1 does not fit into the context");
	assert_int_equal(fake_live(), 0);
	assert_success(open_list("^=mlx5_7"));
	assert_int_equal(snt_ctx_device_count(ctx), SNT_DEVICES_MAX);
	assert_closes_clean();
}

/* Each call that opening makes fails once: right error, nothing left behind. */
static void every_failing_call_is_undone(void **state)
{
	unsigned nth = 0, failures = 0;

	(void)state;
	fake_add("mlx5_0", 2);
	fake_add("mlx5_1", 1);
	for (;;) {
		int ret;

		fault_arm(++nth);
		ret = open_list(NULL);
		if (!fault_was_hit())
			break;
		if (!ret) {
			/* Closing after a probe may fail, and a port without its
			 * only GID is left out while there are others. */
			assert_true(!strcmp(fault_name(), "ibv_close_device") ||
				    !strcmp(fault_name(), "ibv_query_gid"));
			fault_arm(0);
			assert_closes_clean();
			continue;
		}
		failures++;
		if (!strcmp(fault_name(), "calloc"))
			assert_error(ret, ENOMEM, "no memory");
		else if (!strcmp(fault_name(), "ibv_get_device_list"))
			assert_error(ret, FAKE_ERRNO, "cannot list RDMA devices");
		else
			assert_error(ret, FAKE_ERRNO, "mlx5_");
		assert_null(ctx);
		assert_int_equal(fake_live(), 0);
	}
	assert_true(failures > 15);
	fault_arm(0);
	assert_closes_clean();
}

/* A device in use refuses to give up its PD: then nothing at all is closed. */
static void refused_close_can_be_repeated(void **state)
{
	(void)state;
	fake_add("mlx5_0", 1);
	fake_add("mlx5_1", 1);
	for (unsigned nth = 1; nth <= 2; nth++) {
		assert_success(open_list(NULL));
		fault_arm(nth);
		assert_error(snt_ctx_destroy(ctx), FAKE_ERRNO,
			     nth == 1 ? "mlx5_0 port 1" : "mlx5_1 port 1");
		assert_int_equal(snt_ctx_device_count(ctx), 2);
		assert_non_null(snt_device_context(snt_ctx_device(ctx, 0)));
		fault_arm(0);
		assert_closes_clean();
	}
	assert_success(snt_ctx_destroy(NULL));
}

static void options_must_state_their_size(void **state)
{
	struct {
		struct snt_ctx_opts opts;
		unsigned char newer[8];
	} future = { .opts = { .size = sizeof(future) } };

	(void)state;
	fake_add("mlx5_0", 1);
	assert_success(snt_ctx_create(&future.opts, &ctx));
	assert_closes_clean();
	future.newer[3] = 1;
	assert_error(snt_ctx_create(&future.opts, &ctx), E2BIG, "struct snt_ctx_opts");
	future.opts.size = 0;
	assert_error(snt_ctx_create(&future.opts, &ctx), EINVAL, "set .size");
	future.opts.size = offsetof(struct snt_ctx_opts, adopted);
	future.opts.adopted_count = 3; /* beyond the stated size: not looked at */
	assert_success(snt_ctx_create(&future.opts, &ctx));
	assert_closes_clean();
}

static uint64_t fixed_clock(void *arg)
{
	return *(uint64_t *)arg;
}

static int counting_random(void *arg, void *buffer, size_t length)
{
	memset(buffer, (*(int *)arg)++, length);
	return 0;
}

static void clock_and_chance_come_from_the_context(void **state)
{
	uint64_t now = 42;
	uint8_t bytes[4];
	int seed = 7;

	(void)state;
	fake_add("mlx5_0", 1);
	assert_success(open_with((struct snt_ctx_opts){ .clock = fixed_clock,
							.clock_arg = &now,
							.random = counting_random,
							.random_arg = &seed }));
	assert_int_equal(snt__ctx_now_ns(ctx), 42);
	now = 43;
	assert_int_equal(snt__ctx_now_ns(ctx), 43);
	assert_success(snt__ctx_random(ctx, bytes, sizeof(bytes)));
	assert_int_equal(bytes[3], 7);
	assert_closes_clean();

	assert_success(open_list(NULL));
	assert_true(snt__ctx_now_ns(ctx) > 0);
	assert_success(snt__ctx_random(ctx, bytes, sizeof(bytes)));
	assert_closes_clean();
}

static struct snt_adopted adoptable(const char *name, struct ibv_context *context,
				    struct ibv_pd *pd)
{
	pd->context = context;
	return (struct snt_adopted){ .size = sizeof(struct snt_adopted),
				     .name = name,
				     .context = context,
				     .pd = pd };
}

static void adopted_devices_need_no_table(void **state)
{
	struct ibv_context context = { 0 };
	struct ibv_pd pd;
	struct snt_adopted adopted = adoptable("mine", &context, &pd);

	(void)state;
	fake_add("mlx5_0", 1);
	setenv("SENNIT_DEVICES", "mlx5", 1);
	assert_success(open_with(
		(struct snt_ctx_opts){ .adopted = &adopted, .adopted_count = 1 }));
	assert_int_equal(snt_ctx_device_count(ctx), 1);
	assert_int_equal(fake_opens(), 0);
	assert_int_equal(info_of(0).kind, SNT_DEVICE_ADOPTED);
	assert_int_equal(info_of(0).state, SNT_PORT_UNKNOWN);
	assert_int_equal(info_of(0).port, 1);
	assert_null(snt_device_control(snt_ctx_device(ctx, 0)));
	assert_ptr_equal(snt_device_pd(snt_ctx_device(ctx, 0)), &pd);
	assert_error(snt_device_query_stats(snt_ctx_device(ctx, 0),
					    &(struct snt_device_stats){
						    .size = sizeof(
							    struct snt_device_stats) }),
		     EOPNOTSUPP, "only soft devices count what they lose");
	assert_error(snt_device_refresh(snt_ctx_device(ctx, 0)), EOPNOTSUPP,
		     "mine port 1");
	assert_closes_clean();

	assert_success(open_with((struct snt_ctx_opts){
		.adopted = &adopted, .adopted_count = 1, .devices = "mlx5" }));
	assert_int_equal(snt_ctx_device_count(ctx), 2);
	assert_string_equal(info_of(0).name, "mine");
	assert_closes_clean();
}

static void adopting_nonsense_is_refused(void **state)
{
	struct ibv_context context = { 0 }, other = { 0 };
	struct ibv_pd pd[2];
	struct snt_adopted adopted[2] = { adoptable("a", &context, &pd[0]),
					  adoptable("b", &other, &pd[1]) };
	struct snt_ctx_opts opts = { .adopted = adopted, .adopted_count = 2 };

	(void)state;
	assert_success(open_with(opts));
	assert_closes_clean();
	adopted[1].name = "a";
	assert_error(open_with(opts), EEXIST,
		     "a port 1 is in the context already, as a");
	adopted[1] = adopted[0];
	adopted[1].name = "b";
	assert_error(open_with(opts), EEXIST,
		     "b port 1 is in the context already, as a");
	adopted[1].port = 2;
	assert_success(open_with(opts));
	assert_closes_clean();
	adopted[1].name = "";
	assert_error(open_with(opts), EINVAL, "needs a name");
	adopted[1].name = "b";
	adopted[1].pd = &pd[1];
	assert_error(open_with(opts), EINVAL, "b: the adopted PD belongs to another");
	adopted[1].pd = NULL;
	assert_error(open_with(opts), EINVAL,
		     "b: an adopted device needs a context and a PD");
	adopted[1] = adopted[0];
	adopted[1].size--;
	assert_error(open_with(opts), EINVAL, "adopted[1] states another size");
	opts.adopted = NULL;
	assert_error(open_with(opts), EINVAL, "adopted is NULL");
}

/* Named after what was wrong: a name that both an adopted and a found device
 * have, and "never" opening more than the default. */
static void adopted_and_found_devices_do_not_clash(void **state)
{
	struct ibv_context context = { 0 };
	struct ibv_pd pd;
	struct snt_adopted adopted = adoptable("mlx5_0", &context, &pd);
	struct snt_ctx_opts opts = { .adopted = &adopted, .adopted_count = 1 };

	(void)state;
	fake_add("mlx5_0", 1);
	opts.devices = "mlx5_0";
	assert_error(open_with(opts), EEXIST,
		     "mlx5_0 port 1 is in the context already");
	assert_int_equal(fake_live(), 0);
	opts.devices = NULL;
	opts.soft = SNT_SOFT_NEVER;
	assert_success(open_with(opts));
	assert_int_equal(snt_ctx_device_count(ctx), 1);
	assert_closes_clean();
}

static int positive_errno(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	(void)attr;
	return EIO;
}

static void tables_that_misread_their_manual(void **state)
{
	struct snt_control control = { .size = sizeof(control),
				       .query_device = positive_errno,
				       .query_port = snt_control_verbs()->query_port,
				       .query_gid = snt_control_verbs()->query_gid };
	struct ibv_context context = { 0 };
	struct ibv_pd pd;
	struct snt_adopted adopted = adoptable("mine", &context, &pd);

	(void)state;
	adopted.control = &control;
	assert_error(open_with((struct snt_ctx_opts){ .adopted = &adopted,
						      .adopted_count = 1 }),
		     EPROTO, "mine port 1: cannot query the device");
	control.size = offsetof(struct snt_control, query_gid);
	assert_error(open_with((struct snt_ctx_opts){ .adopted = &adopted,
						      .adopted_count = 1 }),
		     EOPNOTSUPP, "mine: its control table lacks");
}

static void adopting_from_libibverbs(void **state)
{
	struct snt_control partial;
	struct snt_adopted adopted;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_device **list;
	int count;

	(void)state;
	fake_add("mlx5_0", 2)->port[1].state = IBV_PORT_DOWN;
	list = ibv_get_device_list(&count);
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	adopted = adoptable("mine", context, pd);
	adopted.control = snt_control_verbs();
	assert_success(open_with(
		(struct snt_ctx_opts){ .adopted = &adopted, .adopted_count = 1 }));
	assert_int_equal(info_of(0).mtu, 1024);
	assert_success(snt_ctx_destroy(ctx));
	assert_int_equal(fake_live(), 2); /* ours, and still open */

	adopted.port = 2;
	assert_error(open_with((struct snt_ctx_opts){ .adopted = &adopted,
						      .adopted_count = 1 }),
		     ENETDOWN, "mine port 2 is down");
	partial = *snt_control_verbs();
	partial.query_gid = NULL;
	adopted.control = &partial;
	assert_error(open_with((struct snt_ctx_opts){ .adopted = &adopted,
						      .adopted_count = 1 }),
		     EOPNOTSUPP, "mine: its control table lacks");
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, set_up)
	const struct CMUnitTest tests[] = {
		TEST(all_devices_by_default),
		TEST(info_is_what_the_device_says),
		TEST(info_fits_the_callers_size),
		TEST(option_wins_over_environment),
		TEST(excluded_devices_are_not_even_opened),
		TEST(second_port_can_be_the_only_one),
		TEST(wrong_names_are_errors),
		TEST(idle_exclusion_is_a_warning),
		TEST(port_that_is_down),
		TEST(iwarp_devices),
		TEST(port_without_address),
		TEST(best_gid_is_chosen_and_explained),
		TEST(gid_index_can_be_asked_for),
		TEST(refresh_sees_changes),
		TEST(soft_devices_where_there_is_no_other),
		TEST(soft_devices_by_address_are_expected),
		TEST(no_soft_device_in_place_of_another),
		TEST(soft_devices_fail_clean),
		TEST(soft_modes),
		TEST(log_settings),
		TEST(too_many_devices),
		TEST(every_failing_call_is_undone),
		TEST(refused_close_can_be_repeated),
		TEST(options_must_state_their_size),
		TEST(clock_and_chance_come_from_the_context),
		TEST(adopted_devices_need_no_table),
		TEST(adopting_nonsense_is_refused),
		TEST(adopted_and_found_devices_do_not_clash),
		TEST(tables_that_misread_their_manual),
		TEST(adopting_from_libibverbs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
