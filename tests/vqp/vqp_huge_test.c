/* SPDX-License-Identifier: MIT */
/*
 * Transfers beyond 2^31 and 2^32 bytes, with their bytes: small files that are mapped
 * again and again stand for gigabytes. The two periods differ and no fragment is as
 * long as one, so that bytes from or to a wrong place do not go unseen.
 */
#include "lib/test.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/vqp_kit.h"

#define GIB	     (UINT64_C(1) << 30)
#define PIECE	     (UINT64_C(1) << 20)
#define PAGE	     4096
#define LENGTH_MAX   (5 * GIB + 4097)
#define MAPPED	     (LENGTH_MAX + PAGE - LENGTH_MAX % PAGE)
#define LANES	     4
#define PIECES_MAX   (LENGTH_MAX / PIECE + 1)
#define PERIOD_LOCAL (257 * PAGE)
#define PERIOD_PEER  (263 * PAGE)

static unsigned char *memory[2];

static unsigned char *map_again_and_again(size_t period)
{
	unsigned char *at = mmap(NULL, MAPPED, PROT_NONE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int fd = memfd_create("vqp_huge_test", MFD_CLOEXEC);

	assert_ptr_not_equal(at, MAP_FAILED);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, period), 0);
	for (size_t offset = 0; offset < MAPPED; offset += period) {
		size_t part = MAPPED - offset < period ? MAPPED - offset : period;

		assert_ptr_not_equal(mmap(at + offset, part, PROT_READ | PROT_WRITE,
					  MAP_SHARED | MAP_FIXED, fd, 0),
				     MAP_FAILED);
	}
	close(fd);
	return at;
}

static void fill(unsigned char *at, size_t length, uint64_t salt)
{
	for (size_t i = 0; i < length; i += sizeof(uint64_t)) {
		uint64_t word = (i + salt) * UINT64_C(0x9e3779b97f4a7c15);

		memcpy(at + i, &word, sizeof(word));
	}
}

static struct vqp_pair *open_huge(enum snt_scheme scheme)
{
	const unsigned access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE |
				SNT_ACCESS_REMOTE_READ;
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = LANES,
				    .scheme = scheme,
				    .fragment_size = PIECE };
	struct vqp_pair *pair = vqp_pair_open(2, &opts);

	for (unsigned i = 0; i < 2; i++) {
		struct vqp_end *end = &pair->end[i];

		assert_success(snt_mem_release(end->mem));
		assert_success(snt_mem_register(end->ctx, memory[i], MAPPED, access,
						&end->mem));
		assert_success(snt_mem_token(end->mem, &end->token));
	}
	return pair;
}

typedef uint64_t words __attribute__((vector_size(16)));

/* memcmp(), where sanitizers would take their time over gigabytes. */
static __attribute__((no_sanitize("address"), no_sanitize("undefined"))) bool same(
	const unsigned char *a, const unsigned char *b, uint64_t length)
{
	words difference = { 0 };
	uint64_t at = 0;

	for (; at + sizeof(words) <= length; at += sizeof(words)) {
		words here, there;

		__builtin_memcpy(&here, a + at, sizeof(here));
		__builtin_memcpy(&there, b + at, sizeof(there));
		difference |= here ^ there;
	}
	for (; at < length; at++)
		difference[0] |= a[at] ^ b[at];
	return !(difference[0] | difference[1]);
}

/* The oldest WR of a lane goes through: the right piece, once, with its bytes. */
static void move_piece(struct vqp_pair *pair, unsigned lane, uint64_t length,
		       unsigned char *moved)
{
	struct ibv_qp *qp = lane_qp(pair, 0, lane);
	struct scripted_send sent;
	uint64_t offset = 0, part = 0;

	assert_int_equal(scripted_peek(qp, 0, &sent), 0);
	if (sent.wr.num_sge) {
		offset = sent.sge[0].addr - (uintptr_t)memory[0];
		part = length - offset < PIECE ? length - offset : PIECE;
		assert_true(offset < length && offset % PIECE == 0);
		assert_int_equal(moved[offset / PIECE]++, 0);
		assert_true(sent.wr.wr.rdma.remote_addr - (uintptr_t)memory[1] ==
			    offset);
		assert_int_equal(sent.sge[0].length, part);
	}
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), 0);
	if (!same(memory[0] + offset, memory[1] + offset, part))
		fail_msg("bytes differ in the piece at %llu",
			 (unsigned long long)offset);
}

/* Polls both ends until the sender has its completion. */
static struct snt_wc transfer(struct vqp_pair *pair, uint64_t length,
			      unsigned char *moved, struct snt_wc *notified_out)
{
	struct snt_wc wc;
	uint64_t idle = 0;

	for (;;) {
		bool any = false;

		for (unsigned lane = 0; lane < LANES + 2; lane++) {
			struct snt_lane_info info = { .size = sizeof(info) };

			if (snt_qp_query_lane(pair->end[0].qp, lane, &info) ||
			    !scripted_pending(info.qp))
				continue;
			move_piece(pair, lane, length, moved);
			any = true;
		}
		if (snt_cq_poll(pair->end[1].cq, notified_out, 1))
			any = true;
		if (snt_cq_poll(pair->end[0].cq, &wc, 1) == 1)
			return wc;
		idle = any ? 0 : idle + 1;
		assert_true(idle < 1000);
	}
}

static void move_huge(enum snt_scheme scheme, unsigned opcode, uint64_t length)
{
	unsigned char *moved = calloc(PIECES_MAX, 1);
	struct vqp_pair *pair = open_huge(scheme);
	struct snt_sge sge = { pair->end[0].mem, memory[0], length };
	struct snt_send_wr wr = { .wr_id = 42,
				  .opcode = opcode,
				  .flags = SNT_SEND_SIGNALED,
				  .sge_count = 1,
				  .sge = &sge,
				  .imm = 7,
				  .remote = &pair->end[1].token,
				  .remote_addr = (uintptr_t)memory[1] };
	struct snt_wc wc, notified = { 0 };
	uint64_t bytes = 0;

	if (opcode == SNT_OP_READ)
		fill(memory[1], PERIOD_PEER, scheme);
	else
		fill(memory[0], PERIOD_LOCAL, scheme);
	post_notify(pair, 1, 5);
	assert_int_equal(snt_qp_post_send(pair->end[0].qp, &wr, 1), 1);
	wc = transfer(pair, length, moved, &notified);
	assert_int_equal(wc.wr_id, 42);
	assert_int_equal(wc.status, SNT_WC_SUCCESS);
	assert_true(wc.length == length);
	for (uint64_t i = 0; i < (length + PIECE - 1) / PIECE; i++)
		assert_int_equal(moved[i], 1);
	for (unsigned lane = 0; lane < LANES; lane++)
		bytes += lane_info(pair, 0, lane).bytes;
	assert_true(bytes == length);
	if (opcode == SNT_OP_WRITE_IMM && !notified.wr_id)
		notified = vqp_poll(pair, 1);
	if (opcode == SNT_OP_WRITE_IMM) {
		assert_int_equal(notified.wr_id, 5);
		assert_int_equal(notified.imm, 7);
		assert_true(scheme == SNT_SCHEME_SPRAY || notified.length == length);
	}
	vqp_pair_close(pair);
	free(moved);
}

#define MOVES(name, scheme, opcode, length)        \
	static void name(void **state)             \
	{                                          \
		(void)state;                       \
		move_huge(scheme, opcode, length); \
	}

MOVES(h8_3_gib_are_written_by_spray, SNT_SCHEME_SPRAY, SNT_OP_WRITE_IMM, 3 * GIB)
MOVES(h9_5_gib_are_written_by_dqplb, SNT_SCHEME_DQPLB, SNT_OP_WRITE_IMM, LENGTH_MAX)
MOVES(h8_3_gib_are_read_by_dqplb, SNT_SCHEME_DQPLB, SNT_OP_READ, 3 * GIB)
MOVES(h9_5_gib_are_read_by_spray, SNT_SCHEME_SPRAY, SNT_OP_READ, LENGTH_MAX)
/* A sanitizer copies byte by byte, and has seen enough. */
#ifndef __SANITIZE_ADDRESS__
MOVES(h8_3_gib_are_written_by_dqplb, SNT_SCHEME_DQPLB, SNT_OP_WRITE_IMM, 3 * GIB)
MOVES(h9_5_gib_are_written_by_spray, SNT_SCHEME_SPRAY, SNT_OP_WRITE_IMM, LENGTH_MAX)
MOVES(h8_3_gib_are_read_by_spray, SNT_SCHEME_SPRAY, SNT_OP_READ, 3 * GIB)
MOVES(h9_5_gib_are_read_by_dqplb, SNT_SCHEME_DQPLB, SNT_OP_READ, LENGTH_MAX)
#endif

static int map_all(void **state)
{
	(void)state;
	memory[0] = map_again_and_again(PERIOD_LOCAL);
	memory[1] = map_again_and_again(PERIOD_PEER);
	return 0;
}

static int unmap_all(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++)
		munmap(memory[i], MAPPED);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(h8_3_gib_are_written_by_spray),
		cmocka_unit_test(h9_5_gib_are_written_by_dqplb),
		cmocka_unit_test(h8_3_gib_are_read_by_dqplb),
		cmocka_unit_test(h9_5_gib_are_read_by_spray),
#ifndef __SANITIZE_ADDRESS__
		cmocka_unit_test(h8_3_gib_are_written_by_dqplb),
		cmocka_unit_test(h9_5_gib_are_written_by_spray),
		cmocka_unit_test(h8_3_gib_are_read_by_spray),
		cmocka_unit_test(h9_5_gib_are_read_by_dqplb),
#endif
	};

	return cmocka_run_group_tests(tests, map_all, unmap_all);
}
