/* SPDX-License-Identifier: MIT */
#include "util/lines.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <sennit/sennit.h>

#include "lib/devices/null.h"
#include "lib/test.h"
#include "vqp/cq.h"
#include "vqp/qp.h"

#define COUNT 16

static void assert_on_own_lines(void *memory)
{
	assert_int_equal((uintptr_t)memory % SNT__LINES, 0);
}

static void no_line_is_shared(void **state)
{
	unsigned char *memory[COUNT];

	(void)state;
	for (size_t i = 0; i < COUNT; i++) {
		memory[i] = snt__lines_alloc(i + 1, 9);
		assert_non_null(memory[i]);
		assert_on_own_lines(memory[i]);
	}
	for (size_t i = 0; i < COUNT; i++)
		assert_true(malloc_usable_size(memory[i]) >=
			    ((i + 1) * 9 + SNT__LINES - 1) / SNT__LINES * SNT__LINES);
	for (size_t i = 0; i < COUNT; i++)
		free(memory[i]);
}

static void memory_is_zeroed(void **state)
{
	static const unsigned char zero[1000];
	unsigned char *memory;

	(void)state;
	for (unsigned i = 0; i < COUNT; i++) {
		memory = snt__lines_alloc(10, 100);
		assert_memory_equal(memory, zero, sizeof(zero));
		memset(memory, 1, sizeof(zero));
		free(memory);
	}
}

static void too_much_is_refused(void **state)
{
	(void)state;
	assert_null(snt__lines_alloc(SIZE_MAX / 2, 3));
	assert_null(snt__lines_alloc(1, SIZE_MAX));
	assert_null(snt__lines_alloc(1, SIZE_MAX / 2));
}

/* One thread makes what others use. */
static void what_threads_use_shares_no_line(void **state)
{
	struct null_device *null = null_device_create("null0");
	struct snt_adopted adopted = null_adopted(null);
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = &adopted,
				     .adopted_count = 1 };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts), .lanes = 2 };
	struct snt_loop *loop[COUNT];
	struct snt_mem *mem[COUNT];
	struct snt_qp *qp[COUNT];
	struct snt_cq *cq[COUNT];
	struct snt_ctx *ctx;
	static char byte;

	(void)state;
	assert_success(snt_ctx_create(&opts, &ctx));
	for (unsigned i = 0; i < COUNT; i++) {
		assert_success(snt_loop_create(ctx, NULL, &loop[i]));
		assert_success(snt_mem_register(ctx, &byte, 1, SNT_ACCESS_LOCAL_WRITE,
						&mem[i]));
		assert_success(
			snt_qp_create_with_cq(ctx, NULL, &qp_opts, &cq[i], &qp[i]));
		assert_on_own_lines(loop[i]);
		assert_on_own_lines(mem[i]);
		assert_on_own_lines(cq[i]);
		assert_on_own_lines(cq[i]->physical);
		assert_on_own_lines(cq[i]->route.entry);
		assert_on_own_lines(qp[i]);
		assert_on_own_lines(qp[i]->memory);
	}
	for (unsigned i = 0; i < COUNT; i++) {
		assert_success(snt_qp_destroy(qp[i]));
		assert_success(snt_cq_destroy(cq[i]));
		assert_success(snt_mem_release(mem[i]));
		assert_success(snt_loop_destroy(loop[i]));
	}
	assert_success(snt_ctx_destroy(ctx));
	null_device_destroy(null);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_line_is_shared),
		cmocka_unit_test(memory_is_zeroed),
		cmocka_unit_test(too_much_is_refused),
		cmocka_unit_test(what_threads_use_shares_no_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
