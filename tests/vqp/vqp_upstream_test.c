/* SPDX-License-Identifier: MIT */
/*
 * The grid of ibverbx's distributed tests, every cell of it: lengths, lanes, depths and
 * fragments as there, for each kind of work. What there is a dimension of element types is
 * none here, where data are bytes. As there, each end gets exactly one completion, with its
 * wr_id, and all bytes are compared.
 */
#include "lib/vqp_kit.h"

#include <stdlib.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define GIB (KIB * MIB)

struct shape {
	uint64_t length;
	uint32_t lanes, depth, fragment;
};

/* Two values of each. */
struct grid {
	uint64_t length[2];
	uint32_t lanes[2], depth[2], fragment[2];
};

static const struct grid small = {
	{ KIB, 8 * KIB }, { 1, 4 }, { 64, 128 }, { 128, 256 }
};
static const struct grid medium = {
	{ MIB, 8 * MIB }, { 16, 128 }, { 128, 1024 }, { 1024, 16384 }
};
static const struct grid large = {
	{ GIB, GIB }, { 16, 128 }, { 128, 1024 }, { 16384, 1048576 }
};

static struct shape shape_of(const struct grid *grid, unsigned cell)
{
	return (struct shape){
		.length = grid->length[cell & 1],
		.lanes = grid->lanes[cell >> 1 & 1],
		.depth = grid->depth[cell >> 2 & 1],
		.fragment = grid->fragment[cell >> 3 & 1],
	};
}

/* So that a fragment in a wrong place is found out. */
static void fill(unsigned char *at, uint64_t length, uint64_t salt)
{
	for (uint64_t i = 0; i < length; i += sizeof(uint64_t)) {
		uint64_t word = (i + salt) * UINT64_C(0x9e3779b97f4a7c15);

		memcpy(at + i, &word, sizeof(word));
	}
}

static void register_end(struct vqp_end *end, unsigned char *memory, uint64_t length)
{
	const unsigned access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE |
				SNT_ACCESS_REMOTE_READ;

	assert_success(snt_mem_release(end->mem));
	assert_success(snt_mem_register(end->ctx, memory, length, access, &end->mem));
	assert_success(snt_mem_token(end->mem, &end->token));
}

static struct vqp_pair *open_cell(const struct shape *shape, enum snt_scheme scheme,
				  unsigned char *const memory[2])
{
	struct snt_cq_opts cq_opts = SNT_INIT(cq_opts, .depth = 65536);
	struct snt_qp_opts opts =
		SNT_INIT(opts, .lanes = shape->lanes, .scheme = scheme,
			 .lane_depth = shape->depth, .recv_depth = shape->depth,
			 .fragment_size = shape->fragment);
	struct vqp_pair *pair;

	vqp_pair_cq(&cq_opts);
	pair = vqp_pair_open(1, &opts);
	vqp_pair_cq(NULL);
	for (unsigned i = 0; i < 2; i++)
		register_end(&pair->end[i], memory[i], shape->length);
	return pair;
}

static void play_cell(const struct shape *shape, enum snt_scheme scheme,
		      unsigned opcode, unsigned char *const memory[2])
{
	struct vqp_pair *pair = open_cell(shape, scheme, memory);
	struct vqp_end *end = pair->end;
	struct snt_sge sge = { end[0].mem, memory[0], shape->length };
	struct snt_send_wr wr = { .wr_id = 7,
				  .opcode = opcode,
				  .flags = SNT_SEND_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1,
				  .remote = &end[1].token,
				  .remote_addr = end[1].token.addr };
	struct snt_sge into = { end[1].mem, memory[1], shape->length };
	struct snt_recv_wr recv = { .wr_id = 8, .sge = &into, .sge_count = 1 };
	struct snt_wc wc;

	fill(memory[0], shape->length, opcode);
	fill(memory[1], shape->length, opcode + 1);
	recv.sge_count = opcode == SNT_OP_SEND;
	if (opcode != SNT_OP_READ)
		assert_int_equal(snt_qp_post_recv(end[1].qp, &recv, 1), 1);
	assert_int_equal(snt_qp_post_send(end[0].qp, &wr, 1), 1);
	expect(pair, 0, 7, opcode, SNT_WC_SUCCESS);
	if (opcode != SNT_OP_READ) {
		wc = expect(pair, 1, 8,
			    opcode == SNT_OP_SEND ? SNT_OP_RECV : SNT_OP_RECV_NOTIFY,
			    SNT_WC_SUCCESS);
		if (opcode == SNT_OP_SEND)
			assert_int_equal(wc.length, shape->length);
	}
	assert_memory_equal(memory[0], memory[1], shape->length);
	vqp_expect_none(pair, 0);
	vqp_expect_none(pair, 1);
	vqp_pair_close(pair);
}

static void play_grid(const struct grid *grid)
{
	static const unsigned works[] = { SNT_OP_READ, SNT_OP_WRITE_IMM, SNT_OP_SEND };
	static const enum snt_scheme schemes[] = { SNT_SCHEME_SPRAY, SNT_SCHEME_DQPLB };
	unsigned char *memory[2] = { malloc(grid->length[1]), malloc(grid->length[1]) };

	assert_true(memory[0] && memory[1]);
	for (unsigned cell = 0; cell < 16; cell++) {
		struct shape shape = shape_of(grid, cell);

		if (grid->length[0] == grid->length[1] && (cell & 1))
			continue;
		for (unsigned i = 0; i < 6; i++)
			play_cell(&shape, schemes[i % 2], works[i / 2], memory);
	}
	free(memory[0]);
	free(memory[1]);
}

static void small_messages(void **state)
{
	(void)state;
	play_grid(&small);
}

static void medium_messages(void **state)
{
	(void)state;
	play_grid(&medium);
}

/* 48 GiB, which take their time. */
static void large_messages(void **state)
{
	(void)state;
	play_grid(&large);
}

/* With an argument, only what takes long. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_messages),
		cmocka_unit_test(medium_messages),
	};
	const struct CMUnitTest tests_long[] = {
		cmocka_unit_test(large_messages),
	};

	(void)argv;
	return argc > 1 ? cmocka_run_group_tests(tests_long, NULL, NULL)
			: cmocka_run_group_tests(tests, NULL, NULL);
}
