/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_SCRIPTED_PAIR_H
#define SENNIT_TESTS_SCRIPTED_PAIR_H

#include "scripted.h"

/*
 * Two scripted devices, for cmocka tests that drive plain QPs: each with a CQ on a
 * non-blocking channel, a registered buffer, and QPs of which number i on one side
 * is connected to number i on the other. Whatever fails here fails the test.
 */

#define PAIR_LANES	 2
#define PAIR_DEPTH	 8 /* of send and receive queues */
#define PAIR_BUFFER_SIZE 4096
#define PAIR_ACCESS                                                                  \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

struct side {
	struct scripted_device *device;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq; /* its cq_context is the side */
	struct ibv_mr *mr; /* of the buffer, with PAIR_ACCESS */
	struct ibv_qp *qp[PAIR_LANES];
	unsigned char buffer[PAIR_BUFFER_SIZE] __attribute__((aligned(8)));
};

struct pair {
	struct scripted_fabric *fabric;
	const struct snt_control *control;
	struct side side[2];
};

/* Both sides with the same options. The buffer of side 0 has a pattern, that of
 * side 1 is zero. */
struct pair *pair_open(const struct scripted_device_opts *opts);

/* Destroys all; QPs that a test destroyed by itself must be NULL. Always 0. */
int pair_close(struct pair *p);

/* One side alone, its QPs in RESET. */
void pair_open_side(struct pair *p, struct side *side,
		    const struct scripted_device_opts *opts);

struct ibv_qp_init_attr pair_init_attr(struct side *side);
struct ibv_qp *pair_make_qp(struct pair *p, struct side *side);

/* modify_qp(), and what it returned. */
int pair_to_init(struct pair *p, struct ibv_qp *qp);
int pair_to_rtr(struct pair *p, struct ibv_qp *qp, struct ibv_qp *peer);
int pair_to_rts(struct pair *p, struct ibv_qp *qp);
int pair_to_state(struct pair *p, struct ibv_qp *qp, enum ibv_qp_state state);

/* From RESET to RTS, one end only. */
void pair_connect(struct pair *p, struct ibv_qp *qp, struct ibv_qp *peer);

/* Part of a side's buffer. */
struct ibv_sge pair_sge(struct side *side, size_t offset, uint32_t length);

/* A signalled WR from side 0 to the beginning of side 1's buffer. */
struct ibv_send_wr pair_wr(struct pair *p, struct ibv_sge *sge, uint64_t wr_id,
			   enum ibv_wr_opcode opcode);

/* What the post returned. The simple ones are 16 bytes long, and have immediate
 * 0xabc where the opcode has one; a receive is into the second half of the buffer. */
int pair_post(struct ibv_qp *qp, struct ibv_send_wr *wr);
int pair_post_simple(struct pair *p, struct ibv_qp *qp, uint64_t wr_id,
		     enum ibv_wr_opcode opcode, unsigned flags);
int pair_post_write(struct pair *p, int lane, uint64_t wr_id);
int pair_post_recv(struct side *side, struct ibv_qp *qp, uint64_t wr_id,
		   uint32_t length);

/* The next completion or event must be there, or must not. */
struct ibv_wc pair_poll_one(struct side *side);
void pair_expect_wc(struct side *side, uint64_t wr_id, enum ibv_wc_status status);
void pair_expect_empty(struct side *side);
void pair_expect_async(struct pair *p, struct side *side, enum ibv_event_type type);

bool pair_readable(int fd);

/* Posts one WR that ends with @status and checks that the QP died of it. */
void pair_expect_failure(struct pair *p, struct ibv_send_wr *wr,
			 enum ibv_wc_status status);

/* For tables of tests: a pair of its own for each. */
static inline int pair_set_up(void **state)
{
	*state = pair_open(NULL);
	return 0;
}

static inline int pair_tear_down(void **state)
{
	return pair_close(*state);
}

#define WITH_PAIR(test) \
	cmocka_unit_test_setup_teardown(test, pair_set_up, pair_tear_down)

#endif
