/* SPDX-License-Identifier: MIT */
/* Memory on all devices or on none, and its ranges. */
#include "lib/fds.h"
#include "lib/test.h"

#include <infiniband/verbs.h>
#include <sennit/sennit.h>

#include "lib/devices/verbs_fake.h"
#include "lib/fault.h"

int __real_posix_memalign(void **out, size_t align, size_t size);
int __wrap_posix_memalign(void **out, size_t align, size_t size);

int __wrap_posix_memalign(void **out, size_t align, size_t size)
{
	return fault_now("posix_memalign") ? ENOMEM
					   : __real_posix_memalign(out, align, size);
}

#define ALL                                                                          \
	(SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_READ | \
	 SNT_ACCESS_REMOTE_ATOMIC)

static struct snt_ctx *ctx;
static struct fake_device *fake[3];
static unsigned idle; /* objects that exist while nothing is registered */
static char buffer[4096];

static int set_up(void **state)
{
	char name[] = "mlx5_0";

	(void)state;
	fake_reset();
	for (unsigned i = 0; i < 3; i++, name[5]++)
		fake[i] = fake_add(name, 1);
	assert_success(snt_ctx_create(NULL, &ctx));
	idle = fake_live();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fault_arm(0);
	assert_success(snt_ctx_destroy(ctx));
	assert_int_equal(fake_live(), 0);
	return 0;
}

static void one_key_per_device(void **state)
{
	struct snt_token token;
	struct snt_mem *mem;

	(void)state;
	assert_success(snt_mem_register(ctx, buffer, sizeof(buffer), ALL, &mem));
	assert_int_equal(fake_live(), idle + 3);
	assert_int_equal(snt_mem_addr(mem), (uintptr_t)buffer);
	assert_int_equal(snt_mem_length(mem), sizeof(buffer));
	assert_success(snt_mem_token(mem, &token));
	assert_int_equal(token.key_count, 3);
	assert_int_equal(token.access, ALL & ~SNT_ACCESS_LOCAL_WRITE);
	for (unsigned i = 0; i < 3; i++) {
		struct ibv_sge sge;

		assert_int_equal(token.key[i], 0x200 + i);
		assert_success(snt_mem_sge(mem, i, 10, 20, &sge));
		assert_int_equal(sge.lkey, 0x100 + i);
		assert_int_equal(sge.addr, (uintptr_t)buffer + 10);
		assert_int_equal(sge.length, 20);
	}
	assert_success(snt_mem_release(mem));
	assert_int_equal(fake_live(), idle);
	assert_success(snt_mem_release(NULL));
}

static void ranges_are_checked(void **state)
{
	struct snt_mem *mem;
	struct ibv_sge sge;

	(void)state;
	assert_success(snt_mem_register(ctx, buffer, 100, 0, &mem));
	assert_success(snt_mem_sge(mem, 0, 0, 100, &sge));
	assert_success(snt_mem_sge(mem, 0, 100, 0, &sge));
	assert_error(snt_mem_sge(mem, 0, 0, 101, &sge), ERANGE, "memory of 100");
	assert_error(snt_mem_sge(mem, 0, 101, 0, &sge), ERANGE, "outside");
	assert_error(snt_mem_sge(mem, 0, SIZE_MAX, 2, &sge), ERANGE, "outside");
	assert_error(snt_mem_sge(mem, 0, 2, SIZE_MAX, &sge), ERANGE, "outside");
	assert_error(snt_mem_sge(mem, 3, 0, 1, &sge), EINVAL, "device 3");
	assert_success(snt_mem_release(mem));
	assert_success(snt_mem_register(ctx, buffer, UINT64_C(5) << 30, 0, &mem));
	assert_error(snt_mem_sge(mem, 0, 0, UINT64_C(1) << 32, &sge), EINVAL,
		     "are too many for one SGE");
	assert_success(snt_mem_sge(mem, 0, UINT64_C(4) << 30, UINT64_C(1) << 30, &sge));
	assert_success(snt_mem_release(mem));
}

static void nonsense_is_refused(void **state)
{
	struct snt_mem *mem = NULL;

	(void)state;
	assert_error(snt_mem_register(ctx, NULL, 1, 0, &mem), EINVAL, "NULL");
	assert_error(snt_mem_register(ctx, buffer, 0, 0, &mem), EINVAL, "no bytes");
	assert_error(snt_mem_register(ctx, buffer, SIZE_MAX, 0, &mem), EINVAL,
		     "beyond");
	assert_error(snt_mem_register(ctx, buffer, 1, 1 << 9, &mem), EINVAL,
		     "no SNT_ACCESS_*");
	assert_error(snt_mem_register(ctx, buffer, 1, SNT_ACCESS_REMOTE_WRITE, &mem),
		     EINVAL, "need SNT_ACCESS_LOCAL_WRITE");
	assert_error(snt_mem_register(ctx, buffer, 1, SNT_ACCESS_REMOTE_ATOMIC, &mem),
		     EINVAL, "need SNT_ACCESS_LOCAL_WRITE");
	assert_null(mem);
	assert_success(snt_mem_register(ctx, buffer, 1, SNT_ACCESS_REMOTE_READ, &mem));
	assert_success(snt_mem_release(mem));
}

static void no_token_without_remote_access(void **state)
{
	struct snt_token token;
	struct snt_mem *mem;

	(void)state;
	assert_success(snt_mem_register(ctx, buffer, 1, SNT_ACCESS_LOCAL_WRITE, &mem));
	assert_error(snt_mem_token(mem, &token), EACCES, "without SNT_ACCESS_REMOTE_*");
	assert_success(snt_mem_release(mem));
}

static void every_failing_call_is_undone(void **state)
{
	unsigned nth = 0;

	(void)state;
	for (;;) {
		struct snt_mem *mem = NULL;
		char phrase[48];
		int ret;

		fault_arm(++nth);
		ret = snt_mem_register(ctx, buffer, sizeof(buffer), ALL, &mem);
		if (!fault_was_hit()) {
			fault_arm(0);
			assert_success(ret);
			assert_success(snt_mem_release(mem));
			break;
		}
		snprintf(phrase, sizeof(phrase), "mlx5_%u port 1: cannot register",
			 nth - 2);
		if (nth == 1)
			assert_error(ret, ENOMEM, "no memory");
		else
			assert_error(ret, FAKE_ERRNO, phrase);
		assert_null(mem);
		assert_int_equal(fake_live(), idle);
	}
	assert_int_equal(nth, 5); /* memory, three devices, and a run without fault */
}

static void failed_release_can_be_repeated(void **state)
{
	struct snt_mem *mem;
	struct snt_token token;
	struct ibv_sge sge;

	(void)state;
	assert_success(snt_mem_register(ctx, buffer, sizeof(buffer), ALL, &mem));
	fault_arm(2);
	assert_error(snt_mem_release(mem), FAKE_ERRNO,
		     "mlx5_1 port 1: cannot deregister");
	assert_int_equal(fake_live(), idle + 1);
	assert_error(snt_mem_sge(mem, 0, 0, 0, &sge), EINVAL, "half released");
	assert_error(snt_mem_token(mem, &token), EINVAL, "half released");
	assert_error(snt_ctx_destroy(ctx), EBUSY, "1 memory");
	assert_success(snt_mem_release(mem));
	assert_int_equal(fake_live(), idle);
}

/* Its structure is kept for a while. */
static void released_memory_is_refused(void **state)
{
	struct snt_token token;
	struct snt_mem *mem, *next;
	struct ibv_sge sge;

	(void)state;
	assert_success(snt_mem_register(ctx, buffer, sizeof(buffer), ALL, &mem));
	assert_success(snt_mem_release(mem));
	for (unsigned i = 0; i < 63; i++) {
		assert_success(snt_mem_alloc(ctx, 4096, ALL, &next));
		assert_ptr_not_equal(next, mem);
		assert_success(snt_mem_release(next));
		assert_error(snt_mem_sge(mem, 0, 0, 1, &sge), EINVAL, "released");
		assert_error(snt_mem_token(mem, &token), EINVAL, "released");
		assert_int_equal(snt_mem_length(mem), 0);
	}
	assert_error(snt_mem_release(mem), EINVAL, "memory has been released");
	assert_int_equal(fake_live(), idle);
}

static void context_with_memory_stays_open(void **state)
{
	struct snt_mem *mem;

	(void)state;
	assert_success(snt_mem_register(ctx, buffer, sizeof(buffer), ALL, &mem));
	assert_error(snt_ctx_destroy(ctx), EBUSY, "1 memory registrations left");
	assert_int_equal(snt_ctx_device_count(ctx), 3);
	assert_success(snt_mem_release(mem));
}

static void dmabuf_needs_all_devices(void **state)
{
	struct snt_mem *mem = NULL;
	struct snt_token token;

	(void)state;
	fake[0]->has_dmabuf = 1;
	fake[1]->has_dmabuf = 1;
	assert_error(snt_mem_register_dmabuf(ctx, 5, 0, 4096, 0x10000, ALL, &mem),
		     EOPNOTSUPP, "mlx5_2: the device has no support for dma-buf");
	assert_null(mem);
	assert_int_equal(fake_live(), idle);
	fake[2]->has_dmabuf = 1;
	assert_success(snt_mem_register_dmabuf(ctx, 5, 0, 4096, 0x10000, ALL, &mem));
	assert_success(snt_mem_token(mem, &token));
	assert_int_equal(token.addr, 0x10000);
	assert_int_equal(token.length, 4096);
	assert_success(snt_mem_release(mem));
	assert_error(snt_mem_register_dmabuf(ctx, 5, 0, 2, UINT64_MAX, ALL, &mem),
		     EINVAL, "beyond");
}

static void regions_can_be_adopted(void **state)
{
	struct ibv_mr *mr[3], *second, elsewhere;
	struct snt_mem *mem = NULL;
	struct ibv_sge sge;

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		mr[i] = ibv_reg_mr(snt_device_pd(snt_ctx_device(ctx, i)), buffer, 64,
				   0);
	assert_success(
		snt_mem_adopt(ctx, mr, 3, 0x10000, SNT_ACCESS_LOCAL_WRITE, &mem));
	assert_success(snt_mem_sge(mem, 2, 0, 64, &sge));
	assert_int_equal(sge.addr, 0x10000);
	assert_int_equal(sge.lkey, mr[2]->lkey);
	assert_success(snt_mem_release(mem));
	assert_int_equal(fake_live(), idle + 3);

	assert_error(snt_mem_adopt(ctx, mr, 2, 0, 0, &mem), EINVAL,
		     "2 memory regions for 3");
	second = mr[1];
	elsewhere = *second;
	elsewhere.pd = mr[0]->pd;
	mr[1] = &elsewhere;
	assert_error(snt_mem_adopt(ctx, mr, 3, 0, 0, &mem), EINVAL, "not of its PD");
	elsewhere.pd = snt_device_pd(snt_ctx_device(ctx, 1));
	elsewhere.length = 65;
	assert_error(snt_mem_adopt(ctx, mr, 3, 0, 0, &mem), EINVAL, "another length");
	ibv_dereg_mr(mr[0]);
	ibv_dereg_mr(second);
	ibv_dereg_mr(mr[2]);
}

static void memory_can_be_made(void **state)
{
	struct snt_mem *mem[2];
	struct snt_token token;
	unsigned fds = count_fds();

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		unsigned char *bytes;

		assert_success(snt_mem_alloc(ctx, 10000 + i, ALL, &mem[i]));
		bytes = (unsigned char *)(uintptr_t)snt_mem_addr(mem[i]);
		assert_int_equal((uintptr_t)bytes % 4096, 0);
		assert_int_equal(snt_mem_length(mem[i]), 10000 + i);
		for (unsigned at = 0; at < 10000 + i; at++)
			assert_int_equal(bytes[at]++, 0);
		assert_success(snt_mem_token(mem[i], &token));
		assert_int_equal(token.key_count, 3);
	}
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_mem_release(mem[i]));
	assert_int_equal(count_fds(), fds);
	assert_error(snt_mem_alloc(ctx, 0, ALL, mem), EINVAL, "no bytes");
	assert_error(snt_mem_alloc(ctx, 1, 1 << 9, mem), EINVAL, "no SNT_ACCESS");
	assert_error(snt_mem_alloc(ctx, SIZE_MAX - 1, ALL, mem), ENOMEM,
		     "cannot make memory of");
	assert_int_equal(count_fds(), fds);
}

static void every_failing_call_of_making_is_undone(void **state)
{
	unsigned nth = 0, fds = count_fds();

	(void)state;
	for (;;) {
		struct snt_mem *mem = NULL;
		int ret;

		fault_arm(++nth);
		ret = snt_mem_alloc(ctx, sizeof(buffer), ALL, &mem);
		if (!fault_was_hit()) {
			fault_arm(0);
			assert_success(ret);
			assert_success(snt_mem_release(mem));
			break;
		}
		assert_true(ret < 0);
		assert_null(mem);
		assert_int_equal(fake_live(), idle);
		assert_int_equal(count_fds(), fds);
	}
	assert_int_equal(nth, 6); /* memory twice, three devices, and none */
}

static void what_a_device_holds_on_to_is_not_unmapped(void **state)
{
	struct snt_mem *mem;
	unsigned fds = count_fds();
	volatile char *bytes;

	(void)state;
	assert_success(snt_mem_alloc(ctx, 4096, ALL, &mem));
	bytes = (volatile char *)(uintptr_t)snt_mem_addr(mem);
	fault_arm(2);
	assert_error(snt_mem_release(mem), FAKE_ERRNO, "cannot deregister");
	bytes[4095] = 1;
	assert_int_equal(count_fds(), fds + 1);
	assert_success(snt_mem_release(mem));
	assert_int_equal(count_fds(), fds);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(one_key_per_device),
		TEST(ranges_are_checked),
		TEST(nonsense_is_refused),
		TEST(no_token_without_remote_access),
		TEST(every_failing_call_is_undone),
		TEST(failed_release_can_be_repeated),
		TEST(released_memory_is_refused),
		TEST(context_with_memory_stays_open),
		TEST(dmabuf_needs_all_devices),
		TEST(regions_can_be_adopted),
		TEST(memory_can_be_made),
		TEST(every_failing_call_of_making_is_undone),
		TEST(what_a_device_holds_on_to_is_not_unmapped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
