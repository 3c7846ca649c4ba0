/* SPDX-License-Identifier: MIT */
/* Soft devices, adopted by a context as any other. */
#include "lib/test.h"
#include "lib/soft_kit.h"

#include <sennit/sennit.h>

static struct snt_adopted adopted(struct kit *kit, unsigned end)
{
	return (struct snt_adopted){
		.size = sizeof(struct snt_adopted),
		.name = end == A ? "soft0" : "soft1",
		.context = kit->end[end].context,
		.pd = kit->end[end].pd,
		.control = snt__soft_control(),
	};
}

static void adopt(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct snt_adopted both[] = { adopted(kit, A), adopted(kit, B) };
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = both,
				     .adopted_count = 2 };
	struct snt_device_info info = { .size = sizeof(info) };
	static uint8_t bytes[4096];
	struct snt_token token;
	struct snt_mem *mem;
	struct snt_ctx *ctx;

	(void)state;
	assert_success(snt_ctx_create(&opts, &ctx));
	assert_int_equal(snt_ctx_device_count(ctx), 2);
	assert_success(snt_device_query(snt_ctx_device(ctx, 0), &info));
	assert_string_equal(info.name, "soft0");
	assert_int_equal(info.mtu, 4096);
	assert_success(
		snt_mem_register(ctx, bytes, sizeof(bytes),
				 SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE,
				 &mem));
	assert_success(snt_mem_token(mem, &token));
	assert_int_not_equal(token.key[0], token.key[1]);
	assert_error(snt_ctx_destroy(ctx), EBUSY, "");
	assert_success(snt_mem_release(mem));
	assert_success(snt_ctx_destroy(ctx));
	kit_close(kit);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(adopt) };

	return cmocka_run_group_tests_name("soft_adopted", tests, NULL, NULL);
}
