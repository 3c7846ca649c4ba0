/* SPDX-License-Identifier: MIT */
/*
 * WRs and receives that must be refused, by each kind of QP, and with what. A WR that
 * was refused has had no effect: nothing is with the device, nothing is reported, and
 * the next good one goes through.
 */
#include "lib/test.h"

#include <stdbool.h>
#include <sys/mman.h>

#include "lib/vqp_kit.h"

static const struct snt_qp_opts shapes[] = {
	{ .flags = SNT_QP_PASS_THROUGH },
	{ .lanes = 1 },
	{ .lanes = 4 },
	{ .lanes = 4, .scheme = SNT_SCHEME_DQPLB },
};

static struct vqp_pair *open_shape(unsigned shape, uint64_t fragment_size)
{
	struct snt_qp_opts opts = shapes[shape];

	opts.size = sizeof(opts);
	opts.fragment_size = fragment_size;
	opts.send_sge_max = opts.recv_sge_max = 2;
	opts.inline_max = 64;
	return vqp_pair_open(2, &opts);
}

/* One WR that would be good, and its parts, for a case to spoil. */
struct draft {
	struct vqp_pair *pair;
	struct snt_send_wr wr;
	struct snt_sge sge[3];
	struct snt_token token;
	struct snt_mem *read_only;
};

typedef void (*spoil_fn)(struct draft *draft);

static void no_opcode(struct draft *d)
{
	d->wr.opcode = 0;
}

static void a_receives_opcode(struct draft *d)
{
	d->wr.opcode = SNT_OP_RECV;
}

static void an_unknown_flag(struct draft *d)
{
	d->wr.flags |= 0x20;
}

static void too_many_sges(struct draft *d)
{
	d->sge[1] = d->sge[2] = d->sge[0];
	d->wr.sge_count = 3;
}

static void no_memory(struct draft *d)
{
	d->sge[0].mem = NULL;
}

static void no_memory_in_the_second(struct draft *d)
{
	d->sge[1] = d->sge[0];
	d->sge[1].mem = NULL;
	d->wr.sge_count = 2;
}

/* Where the bytes lie, too, so that nothing else is wrong. */
static void another_contexts_memory(struct draft *d)
{
	d->sge[0].mem = d->pair->end[1].mem;
	d->sge[0].addr = d->pair->end[1].buffer;
}

static void another_contexts_memory_in_the_second(struct draft *d)
{
	d->sge[1] = d->sge[0];
	d->sge[1].mem = d->pair->end[1].mem;
	d->sge[1].addr = d->pair->end[1].buffer;
	d->wr.sge_count = 2;
}

static void beyond_the_memory(struct draft *d)
{
	d->sge[0].addr = d->pair->end[0].buffer + VQP_BUFFER - d->sge[0].length + 1;
}

static void before_the_memory(struct draft *d)
{
	d->sge[0].addr = d->pair->end[0].buffer - 1;
}

static void around_the_address_space(struct draft *d)
{
	d->sge[0].length = UINT64_MAX;
}

static void into_read_only_memory(struct draft *d)
{
	d->wr.opcode = SNT_OP_READ;
	d->sge[0].mem = d->read_only;
}

static void into_read_only_memory_in_pieces(struct draft *d)
{
	into_read_only_memory(d);
	d->sge[1] = d->sge[0];
	d->wr.sge_count = 2;
}

static void no_token(struct draft *d)
{
	d->wr.remote = NULL;
}

static void a_token_without_keys(struct draft *d)
{
	d->token.key_count = 0;
}

static void beyond_the_token(struct draft *d)
{
	d->wr.remote_addr = d->token.addr + VQP_BUFFER - d->sge[0].length + 1;
}

static void before_the_token(struct draft *d)
{
	d->wr.remote_addr = d->token.addr - 1;
}

static void at_the_end_of_the_address_space(struct draft *d)
{
	d->wr.remote_addr = UINT64_MAX - 10;
}

static void longer_than_the_token(struct draft *d)
{
	d->token.length = d->sge[0].length - 1;
}

static void a_token_that_grants_no_write(struct draft *d)
{
	d->token.access = SNT_ACCESS_REMOTE_READ | SNT_ACCESS_REMOTE_ATOMIC;
}

static void a_token_that_grants_no_read(struct draft *d)
{
	d->wr.opcode = SNT_OP_READ;
	d->token.access = SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_ATOMIC;
}

static void a_token_that_grants_no_atomics(struct draft *d)
{
	d->wr.opcode = SNT_OP_CMP_SWAP;
	d->sge[0].length = 8;
	d->token.access = SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_READ;
}

static void a_misaligned_atomic(struct draft *d)
{
	d->wr.opcode = SNT_OP_FETCH_ADD;
	d->sge[0].length = 8;
	d->wr.remote_addr += 4;
}

static void a_short_atomic(struct draft *d)
{
	d->wr.opcode = SNT_OP_FETCH_ADD;
	d->sge[0].length = 4;
}

static void an_atomic_of_nothing(struct draft *d)
{
	d->wr.opcode = SNT_OP_CMP_SWAP;
	d->wr.sge_count = 0;
}

static void more_inline_than_there_is(struct draft *d)
{
	d->wr.flags |= SNT_SEND_INLINE;
	d->sge[0].length = 65;
}

static void an_inline_read(struct draft *d)
{
	d->wr.opcode = SNT_OP_READ;
	d->wr.flags |= SNT_SEND_INLINE;
	d->sge[0].length = 8;
}

static void inline_lengths_that_wrap(struct draft *d)
{
	d->wr.flags |= SNT_SEND_INLINE;
	d->sge[0].length = UINT64_C(1) << 63;
	d->sge[1] = d->sge[0];
	d->sge[1].length += 8;
	d->wr.sge_count = 2;
}

static const struct {
	spoil_fn spoil;
	int error;
} sends[] = {
	{ no_opcode, EINVAL },
	{ a_receives_opcode, EINVAL },
	{ an_unknown_flag, EINVAL },
	{ too_many_sges, EINVAL },
	{ no_memory, EINVAL },
	{ no_memory_in_the_second, EINVAL },
	{ another_contexts_memory, EINVAL },
	{ another_contexts_memory_in_the_second, EINVAL },
	{ beyond_the_memory, ERANGE },
	{ before_the_memory, ERANGE },
	{ around_the_address_space, ERANGE },
	{ into_read_only_memory, EACCES },
	{ into_read_only_memory_in_pieces, EACCES },
	{ no_token, EINVAL },
	{ a_token_without_keys, EINVAL },
	{ beyond_the_token, ERANGE },
	{ before_the_token, ERANGE },
	{ at_the_end_of_the_address_space, ERANGE },
	{ longer_than_the_token, ERANGE },
	{ a_token_that_grants_no_write, EACCES },
	{ a_token_that_grants_no_read, EACCES },
	{ a_token_that_grants_no_atomics, EACCES },
	{ a_misaligned_atomic, EINVAL },
	{ a_short_atomic, EINVAL },
	{ an_atomic_of_nothing, EINVAL },
	{ more_inline_than_there_is, EINVAL },
	{ an_inline_read, EINVAL },
	{ inline_lengths_that_wrap, EINVAL },
};

static void draft_send(struct draft *d, struct vqp_pair *pair)
{
	d->pair = pair;
	d->wr = vqp_wr(pair, 0, &d->sge[0], SNT_OP_WRITE, 64, 1000);
	d->token = pair->end[1].token;
	d->wr.remote = &d->token;
}

static uint64_t wrs_posted(struct vqp_pair *pair)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < 2; i++)
		count += scripted_counters(pair->end[0].device[i]).send_wrs;
	return count;
}

/* Alone, and as the second of three, where the first goes and the third does not. */
static void bad_sends_are_refused(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(shapes) * ARRAY_SIZE(sends); i++) {
		struct vqp_pair *pair = open_shape(i / ARRAY_SIZE(sends), FRAGMENT);
		unsigned which = i % ARRAY_SIZE(sends);
		struct draft good = { 0 }, bad = { 0 };
		struct snt_send_wr wr[3];
		int ret;

		assert_success(snt_mem_register(pair->end[0].ctx, pair->end[0].buffer,
						VQP_BUFFER, 0, &bad.read_only));
		draft_send(&good, pair);
		draft_send(&bad, pair);
		sends[which].spoil(&bad);
		ret = snt_qp_post_send(pair->end[0].qp, &bad.wr, 1);
		if (ret != -sends[which].error)
			fail_msg("shape %u, case %u: %d",
				 i / (unsigned)ARRAY_SIZE(sends), which, ret);
		assert_int_equal(wrs_posted(pair), 0);
		wr[0] = wr[2] = good.wr;
		wr[1] = bad.wr;
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, wr, 3), 1);
		assert_int_equal(vqp_poll(pair, 0).status, SNT_WC_SUCCESS);
		vqp_expect_none(pair, 0);
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, &good.wr, 1), 1);
		assert_int_equal(vqp_poll(pair, 0).status, SNT_WC_SUCCESS);
		assert_success(snt_mem_release(bad.read_only));
		vqp_pair_close(pair);
	}
}

/* Memory that is only named. */
static struct snt_mem *name_memory(struct vqp_end *end, uint64_t length, void **at)
{
	const unsigned access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE;
	struct snt_mem *mem;

	*at = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		   -1, 0);
	assert_ptr_not_equal(*at, MAP_FAILED);
	assert_success(snt_mem_register(end->ctx, *at, length, access, &mem));
	return mem;
}

/* More fragments than can be counted, though the lengths fit. */
static void more_fragments_than_there_are_numbers(void **state)
{
	const uint64_t length = UINT64_C(256) << 30;

	(void)state;
	for (unsigned shape = 1; shape < ARRAY_SIZE(shapes); shape++) {
		struct vqp_pair *pair = open_shape(shape, 256);
		struct snt_sge sge = { .length = length };
		struct snt_send_wr wr = vqp_wr(pair, 0, &sge, SNT_OP_WRITE, 0, 8);
		struct snt_token token;
		struct snt_mem *mem[2];
		void *at[2];

		for (unsigned i = 0; i < 2; i++)
			mem[i] = name_memory(&pair->end[i], length, &at[i]);
		assert_success(snt_mem_token(mem[1], &token));
		sge = (struct snt_sge){ mem[0], at[0], length };
		wr.remote = &token;
		wr.remote_addr = token.addr;
		assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), -EINVAL);
		assert_int_equal(wrs_posted(pair), 0);
		for (unsigned i = 0; i < 2; i++) {
			assert_success(snt_mem_release(mem[i]));
			munmap(at[i], length);
		}
		vqp_pair_close(pair);
	}
}

static void bad_receives_are_refused(void **state)
{
	(void)state;
	for (unsigned shape = 0; shape < ARRAY_SIZE(shapes); shape++) {
		struct vqp_pair *pair = open_shape(shape, FRAGMENT);
		struct vqp_end *end = &pair->end[1];
		struct snt_mem *read_only, *huge_mem;
		void *huge;
		struct snt_sge good = { end->mem, end->buffer, FRAGMENT };
		struct snt_sge sge[3];
		struct snt_recv_wr wr = { .wr_id = 1, .sge = sge, .sge_count = 1 };
		const struct {
			struct snt_sge sge;
			int error;
		} cases[] = {
			{ { NULL, end->buffer, 8 }, EINVAL },
			{ { pair->end[0].mem, pair->end[0].buffer, 8 }, EINVAL },
			{ { end->mem, end->buffer + VQP_BUFFER - 7, 8 }, ERANGE },
			{ { end->mem, end->buffer - 1, 8 }, ERANGE },
		};

		assert_success(snt_mem_register(end->ctx, end->buffer, VQP_BUFFER, 0,
						&read_only));
		for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
			sge[0] = cases[i].sge;
			wr.sge_count = 1;
			assert_int_equal(snt_qp_post_recv(end->qp, &wr, 1),
					 -cases[i].error);
			sge[1] = sge[0];
			sge[0] = good;
			wr.sge_count = 2;
			assert_int_equal(snt_qp_post_recv(end->qp, &wr, 1),
					 -cases[i].error);
		}
		sge[0] = (struct snt_sge){ read_only, end->buffer, 8 };
		wr.sge_count = 1;
		assert_int_equal(snt_qp_post_recv(end->qp, &wr, 1), -EACCES);
		sge[0] = sge[1] = sge[2] = good;
		wr.sge_count = 3;
		assert_int_equal(snt_qp_post_recv(end->qp, &wr, 1), -EINVAL);
		huge_mem = name_memory(end, UINT64_C(5) << 30, &huge);
		sge[0] = (struct snt_sge){ huge_mem, huge, UINT64_C(1) << 32 };
		wr.sge_count = 1;
		assert_int_equal(snt_qp_post_recv(end->qp, &wr, 1), -EMSGSIZE);
		for (unsigned lane = 0; shape < 3 && lane < snt_qp_lane_count(end->qp);
		     lane++)
			assert_int_equal(scripted_recv_pending(lane_qp(pair, 1, lane)),
					 0);
		post_data(pair, 1, 7, 0, FRAGMENT);
		send_wr(pair, SNT_OP_SEND, 1, 1);
		expect(pair, 1, 7, SNT_OP_RECV, SNT_WC_SUCCESS);
		assert_success(snt_mem_release(read_only));
		assert_success(snt_mem_release(huge_mem));
		munmap(huge, UINT64_C(5) << 30);
		vqp_pair_close(pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_sends_are_refused),
		cmocka_unit_test(more_fragments_than_there_are_numbers),
		cmocka_unit_test(bad_receives_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
