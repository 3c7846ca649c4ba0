/* SPDX-License-Identifier: MIT */
/*
 * Between connecting and closing nothing is allocated or freed, and no system call
 * is made, beyond what the device does: with traffic of every kind, and more WRs
 * than the ring holds.
 */
#include "lib/test.h"

#include <stdbool.h>

#include "lib/devices/vqp_pair.h"
#include "lib/count_calls.h"
#include "lib/no_system_calls.h"

static struct vqp_pair *open_pair(enum snt_scheme scheme)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = 4,
				    .scheme = scheme,
				    .fragment_size = 256,
				    .lane_depth = 8,
				    .send_depth = 16,
				    .inline_max = 64 };

	return vqp_pair_open(2, &opts);
}

/* Polls both ends and lets the devices move; false on any failure. */
static bool turn(struct vqp_pair *pair, unsigned round, int *left)
{
	struct snt_wc wc[8];

	for (int end = 0; end < 2; end++) {
		int count = snt_cq_poll(pair->end[end].cq, wc, 8);

		if (count < 0)
			return false;
		for (int i = 0; i < count && end == 0; i++)
			*left -= 1;
	}
	scripted_run(pair->fabric, round);
	return true;
}

static bool traffic(void *arg)
{
	static const uint8_t opcodes[] = { SNT_OP_WRITE,     SNT_OP_WRITE_IMM,
					   SNT_OP_READ,	     SNT_OP_SEND,
					   SNT_OP_FETCH_ADD, SNT_OP_WRITE_IMM };
	struct vqp_pair *pair = arg;
	struct snt_sge sge, into = { pair->end[1].mem, pair->end[1].buffer, 4096 };
	struct snt_recv_wr data = { .sge = &into, .sge_count = 1 }, notify = { 0 };
	int left = 0;

	for (unsigned i = 0; i < 200; i++) {
		unsigned opcode = opcodes[i % 6];
		uint64_t length = opcode == SNT_OP_FETCH_ADD ? 8
				  : opcode == SNT_OP_SEND    ? 200
							     : 3000;
		struct snt_send_wr wr = vqp_wr(pair, 0, &sge, opcode, 64, length);

		wr.imm = i;
		if (opcode == SNT_OP_SEND)
			snt_qp_post_recv(pair->end[1].qp, &data, 1);
		if (opcode == SNT_OP_WRITE_IMM)
			snt_qp_post_recv(pair->end[1].qp, &notify, 1);
		while (snt_qp_post_send(pair->end[0].qp, &wr, 1) != 1)
			if (!turn(pair, i, &left))
				return false;
		left++;
	}
	for (unsigned i = 0; left && i < 1000; i++)
		if (!turn(pair, i, &left))
			return false;
	return !left;
}

static void nothing_is_allocated(void **state)
{
	(void)state;
	for (int scheme = SNT_SCHEME_SPRAY; scheme <= SNT_SCHEME_DQPLB; scheme++) {
		struct vqp_pair *pair = open_pair(scheme);

		allocations = 0;
		counting = true;
		assert_true(traffic(pair));
		counting = false;
		assert_int_equal(allocations, 0);
		vqp_pair_close(pair);
	}
}

static void no_system_call_is_made(void **state)
{
	(void)state;
	for (int scheme = SNT_SCHEME_SPRAY; scheme <= SNT_SCHEME_DQPLB; scheme++) {
		struct vqp_pair *pair = open_pair(scheme);

		assert_no_system_calls(NULL, traffic, pair);
		vqp_pair_close(pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_allocated),
		cmocka_unit_test(no_system_call_is_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
