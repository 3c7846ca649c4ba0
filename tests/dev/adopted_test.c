/* SPDX-License-Identifier: MIT */
/* A context on scripted devices, each of whose control calls fails in turn. */
#include "lib/test.h"

#include <infiniband/verbs.h>
#include <sennit/sennit.h>

#include "lib/devices/scripted.h"

#define DEVICES 3

static struct scripted_fabric *fabric;
static struct scripted_device *device[DEVICES];
static char buffer[4096];

static int set_up(void **state)
{
	(void)state;
	fabric = scripted_fabric_create(1);
	for (int i = 0; i < DEVICES; i++)
		device[i] = scripted_device_create(fabric, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	return scripted_fabric_destroy(fabric);
}

static int open_all(struct snt_ctx **ctx)
{
	struct snt_adopted adopted[DEVICES];
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = adopted,
				     .adopted_count = DEVICES };

	for (int i = 0; i < DEVICES; i++)
		adopted[i] = scripted_adopted(device[i]);
	return snt_ctx_create(&opts, ctx);
}

static unsigned regions(void)
{
	unsigned count = 0;

	for (int i = 0; i < DEVICES; i++)
		count += scripted_live(device[i], SCRIPTED_MR);
	return count;
}

/* What opening and registering do, until one call of device `which` fails. */
static int open_and_register(int which, unsigned nth)
{
	struct snt_ctx *ctx = NULL;
	struct snt_mem *mem = NULL;
	int ret;

	scripted_fail_control(device[which], nth, ENOSPC);
	ret = open_all(&ctx);
	if (ret) {
		assert_null(ctx);
		return ret;
	}
	ret = snt_mem_register(ctx, buffer, sizeof(buffer), SNT_ACCESS_LOCAL_WRITE,
			       &mem);
	if (ret)
		assert_null(mem);
	assert_int_equal(regions(), ret ? 0 : DEVICES);
	if (snt_mem_release(mem))
		assert_success(snt_mem_release(mem));
	assert_success(snt_ctx_destroy(ctx));
	return ret;
}

/* Which calls may fail without harm: an unreadable GID slot is skipped, a node
 * that is not known is none, and a release is repeated. */
static int is_harmless(const char *call)
{
	return strstr(call, "gid") || strstr(call, "numa") || strstr(call, "dereg");
}

static void every_failing_control_call_is_undone(void **state)
{
	(void)state;
	for (int which = 0; which < DEVICES; which++) {
		unsigned nth = 0, failures = 0;

		for (;;) {
			int ret = open_and_register(which, ++nth);
			const char *call = scripted_failed_control(device[which]);

			if (!call)
				break;
			assert_int_equal(regions(), 0);
			if (is_harmless(call))
				continue;
			failures++;
			assert_error(ret, ENOSPC, scripted_adopted(device[which]).name);
		}
		assert_true(failures >= 3);
		scripted_fail_control(device[which], 0, 0);
	}
}

/* The second failure must not hide the first, nor lose what it concerns. */
static void failure_while_undoing(void **state)
{
	struct snt_ctx *ctx;
	struct snt_mem *mem = NULL;

	(void)state;
	assert_success(open_all(&ctx));
	scripted_fail_control(device[2], 1, EIO);
	scripted_fail_control(device[0], 2, EBUSY);
	assert_error(snt_mem_register(ctx, buffer, sizeof(buffer), 0, &mem), EIO,
		     scripted_adopted(device[2]).name);
	assert_null(mem);
	assert_int_equal(regions(), 1);
	scripted_fail_control(device[0], 1, EBUSY);
	assert_error(snt_ctx_destroy(ctx), EBUSY, scripted_adopted(device[0]).name);
	assert_success(snt_ctx_destroy(ctx));
	assert_int_equal(regions(), 0);
}

static void devices_are_kept_in_order(void **state)
{
	struct snt_ctx *ctx;

	(void)state;
	assert_success(open_all(&ctx));
	assert_int_equal(snt_ctx_device_count(ctx), DEVICES);
	for (int i = 0; i < DEVICES; i++) {
		struct snt_device_info info = { .size = sizeof(info) };

		assert_success(snt_device_query(snt_ctx_device(ctx, i), &info));
		assert_string_equal(info.name, scripted_adopted(device[i]).name);
		assert_int_equal(info.kind, SNT_DEVICE_ADOPTED);
		assert_int_equal(info.state, SNT_PORT_ACTIVE);
	}
	assert_success(snt_ctx_destroy(ctx));
}

static void keys_are_those_of_the_device(void **state)
{
	struct snt_ctx *ctx;
	struct snt_mem *mem;
	struct ibv_sge sge[DEVICES];

	(void)state;
	assert_success(open_all(&ctx));
	assert_success(snt_mem_register(ctx, buffer, sizeof(buffer), 0, &mem));
	for (unsigned i = 0; i < DEVICES; i++)
		assert_success(snt_mem_sge(mem, i, 0, 1, &sge[i]));
	assert_int_not_equal(sge[0].lkey, sge[1].lkey);
	assert_int_not_equal(sge[1].lkey, sge[2].lkey);
	assert_success(snt_mem_release(mem));
	assert_success(snt_ctx_destroy(ctx));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(every_failing_control_call_is_undone),
		TEST(failure_while_undoing),
		TEST(devices_are_kept_in_order),
		TEST(keys_are_those_of_the_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
