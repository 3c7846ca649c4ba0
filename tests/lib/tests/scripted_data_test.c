/* SPDX-License-Identifier: MIT */
/* The scripted device: what landing and completing do to bytes and queues. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "lib/devices/scripted_pair.h"

static void write_lands_then_completes(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];
	struct ibv_wc wc;

	assert_int_equal(pair_post_write(p, 0, 5), 0);
	assert_int_equal(p->side[1].buffer[0], 0);
	assert_int_equal(scripted_land(qp), 0);
	assert_memory_equal(p->side[1].buffer, p->side[0].buffer, 16);
	assert_int_equal(p->side[1].buffer[16], 0);
	pair_expect_empty(&p->side[0]);
	assert_int_equal(scripted_land(qp), -ENOENT);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), 0);
	wc = pair_poll_one(&p->side[0]);
	assert_int_equal(wc.wr_id, 5);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
	assert_int_equal(wc.qp_num, qp->qp_num);
	assert_int_equal(wc.byte_len, 16);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), -ENOENT);
}

static void complete_lands_first(void **state)
{
	struct pair *p = *state;

	pair_post_write(p, 0, 1);
	assert_int_equal(scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS), 0);
	assert_memory_equal(p->side[1].buffer, p->side[0].buffer, 16);
}

static void unsignalled_success_is_silent(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];

	pair_post_simple(p, qp, 1, IBV_WR_RDMA_WRITE, 0);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), 0);
	pair_expect_empty(&p->side[0]);
}

static void send_consumes_a_receive(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_qp *qp = p->side[0].qp[0];
	struct ibv_wc wc;

	pair_post_simple(p, qp, 1, IBV_WR_SEND_WITH_IMM, 0);
	assert_int_equal(scripted_land(qp), -EAGAIN);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), -EAGAIN);
	assert_int_equal(scripted_pending(qp), 1);
	assert_int_equal(pair_post_recv(there, there->qp[0], 77, 32), 0);
	assert_int_equal(scripted_land(qp), 0);
	wc = pair_poll_one(there);
	assert_int_equal(wc.wr_id, 77);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 16);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
	assert_int_equal(be32toh(wc.imm_data), 0xabc);
	assert_memory_equal(there->buffer + 2048, p->side[0].buffer, 16);
}

static void write_imm_consumes_a_receive(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_qp *qp = p->side[0].qp[0];
	struct ibv_wc wc;

	pair_post_simple(p, qp, 1, IBV_WR_RDMA_WRITE_WITH_IMM, 0);
	assert_int_equal(scripted_land(qp), -EAGAIN);
	assert_int_equal(there->buffer[0], 0);
	pair_post_recv(there, there->qp[0], 78, 0);
	assert_int_equal(scripted_land(qp), 0);
	wc = pair_poll_one(there);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.byte_len, 16);
	assert_memory_equal(there->buffer, p->side[0].buffer, 16);
}

static void zero_length_needs_no_key(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_send_wr wr = pair_wr(p, NULL, 1, IBV_WR_RDMA_WRITE_WITH_IMM);

	wr.num_sge = 0;
	wr.wr.rdma.rkey = 0;
	pair_post_recv(there, there->qp[0], 2, 0);
	assert_int_equal(pair_post(p->side[0].qp[0], &wr), 0);
	assert_int_equal(scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS), 0);
	assert_int_equal(pair_poll_one(there).byte_len, 0);
}

static void read_copies_back(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];

	memset(p->side[1].buffer, 0x5a, 16);
	pair_post_simple(p, qp, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), 0);
	assert_memory_equal(p->side[0].buffer, p->side[1].buffer, 16);
	assert_int_equal(pair_poll_one(&p->side[0]).opcode, IBV_WC_RDMA_READ);
}

static void atomics_execute(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 8);
	uint64_t *here = (uint64_t *)p->side[0].buffer;
	uint64_t *there = (uint64_t *)p->side[1].buffer;
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_ATOMIC_FETCH_AND_ADD);

	*there = 40;
	wr.wr.atomic.compare_add = 2;
	pair_post(p->side[0].qp[0], &wr);
	scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS);
	assert_int_equal(*here, 40);
	assert_int_equal(*there, 42);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 9;
	pair_post(p->side[0].qp[0], &wr);
	pair_post(p->side[0].qp[0], &wr);
	scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS);
	assert_int_equal(*here, 42);
	assert_int_equal(*there, 9);
	scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS);
	assert_int_equal(*here, 9);
	assert_int_equal(*there, 9);
}

static void scatter_gather_is_in_order(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge[2] = { pair_sge(&p->side[0], 100, 3),
				  pair_sge(&p->side[0], 200, 5) };
	struct ibv_send_wr wr = pair_wr(p, sge, 1, IBV_WR_RDMA_WRITE);

	wr.num_sge = 2;
	assert_int_equal(pair_post(p->side[0].qp[0], &wr), 0);
	scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS);
	assert_memory_equal(p->side[1].buffer, p->side[0].buffer + 100, 3);
	assert_memory_equal(p->side[1].buffer + 3, p->side[0].buffer + 200, 5);
}

static void inline_is_copied_at_post(void **state)
{
	struct pair *p = *state;
	char text[] = "inline";
	struct ibv_sge sge = { .addr = (uintptr_t)text, .length = sizeof(text) };
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);
	struct scripted_send seen;

	wr.send_flags |= IBV_SEND_INLINE;
	assert_int_equal(pair_post(p->side[0].qp[0], &wr), 0);
	memset(text, 0, sizeof(text));
	assert_int_equal(scripted_peek(p->side[0].qp[0], 0, &seen), 0);
	assert_int_equal(seen.inline_length, sizeof(text));
	assert_memory_equal(seen.inline_bytes, "inline", sizeof(text));
	scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS);
	assert_string_equal((char *)p->side[1].buffer, "inline");
	sge.length = 65;
	assert_int_equal(pair_post(p->side[0].qp[0], &wr), EINVAL);
}

static void order_across_qps_is_the_tests(void **state)
{
	struct pair *p = *state;

	pair_post_write(p, 0, 1);
	pair_post_write(p, 1, 2);
	scripted_complete(p->side[0].qp[1], IBV_WC_SUCCESS);
	scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS);
	pair_expect_wc(&p->side[0], 2, IBV_WC_SUCCESS);
	pair_expect_wc(&p->side[0], 1, IBV_WC_SUCCESS);
}

static void peek_shows_what_was_posted(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];
	struct scripted_send seen;
	struct scripted_recv seen_recv;

	pair_post_write(p, 0, 1);
	pair_post_simple(p, qp, 2, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_FENCE);
	scripted_land(qp);
	assert_int_equal(scripted_pending(qp), 2);
	assert_int_equal(scripted_peek(qp, 0, &seen), 0);
	assert_true(seen.landed);
	assert_int_equal(scripted_peek(qp, 1, &seen), 0);
	assert_false(seen.landed);
	assert_int_equal(seen.wr.wr_id, 2);
	assert_int_equal(seen.wr.send_flags, IBV_SEND_FENCE);
	assert_int_equal(be32toh(seen.wr.imm_data), 0xabc);
	assert_int_equal(seen.wr.wr.rdma.rkey, p->side[1].mr->rkey);
	assert_int_equal(seen.wr.sg_list[0].length, 16);
	assert_int_equal(scripted_peek(qp, 2, &seen), -ENOENT);

	pair_post_recv(&p->side[0], qp, 9, 4);
	assert_int_equal(scripted_recv_pending(qp), 1);
	assert_int_equal(scripted_peek_recv(qp, 0, &seen_recv), 0);
	assert_int_equal(seen_recv.wr.wr_id, 9);
	assert_int_equal(seen_recv.wr.sg_list[0].length, 4);
	assert_int_equal(scripted_peek_recv(qp, 1, &seen_recv), -ENOENT);
}

static void counters_count(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 1);
	struct ibv_send_wr second = pair_wr(p, &sge, 2, IBV_WR_RDMA_WRITE);
	struct ibv_send_wr first = second;
	struct scripted_counters qp_counters, device_counters;

	first.next = &second;
	assert_int_equal(pair_post(qp, &first), 0);
	pair_post_write(p, 1, 3);
	pair_post_recv(&p->side[0], qp, 9, 4);
	scripted_complete(qp, IBV_WC_SUCCESS);
	qp_counters = scripted_qp_counters(qp);
	assert_int_equal(qp_counters.send_calls, 1);
	assert_int_equal(qp_counters.send_wrs, 2);
	assert_int_equal(qp_counters.recv_calls, 1);
	assert_int_equal(qp_counters.recv_wrs, 1);
	assert_int_equal(qp_counters.cqes, 1);
	device_counters = scripted_counters(p->side[0].device);
	assert_int_equal(device_counters.send_calls, 2);
	assert_int_equal(device_counters.send_wrs, 3);
	assert_int_equal(device_counters.polls, 0);
	assert_ptr_equal(scripted_qp_at(p->side[0].device, 1), p->side[0].qp[1]);
	assert_null(scripted_qp_at(p->side[0].device, PAIR_LANES));
	assert_ptr_equal(scripted_cq_at(p->side[0].device, 0), p->side[0].cq);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_PAIR(write_lands_then_completes),
		WITH_PAIR(complete_lands_first),
		WITH_PAIR(unsignalled_success_is_silent),
		WITH_PAIR(send_consumes_a_receive),
		WITH_PAIR(write_imm_consumes_a_receive),
		WITH_PAIR(zero_length_needs_no_key),
		WITH_PAIR(read_copies_back),
		WITH_PAIR(atomics_execute),
		WITH_PAIR(scatter_gather_is_in_order),
		WITH_PAIR(inline_is_copied_at_post),
		WITH_PAIR(order_across_qps_is_the_tests),
		WITH_PAIR(peek_shows_what_was_posted),
		WITH_PAIR(counters_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
