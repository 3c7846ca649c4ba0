/* SPDX-License-Identifier: MIT */
/* The scripted device: which mistakes it finds, and what errors do to both ends. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "lib/devices/scripted_pair.h"

static void error_flushes_everything(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_qp *qp = here->qp[0];

	pair_post_recv(here, qp, 100, 4);
	pair_post_write(p, 0, 1);
	pair_post_simple(p, qp, 2, IBV_WR_RDMA_WRITE, 0);
	pair_post_write(p, 0, 3);
	assert_int_equal(scripted_complete(qp, IBV_WC_RETRY_EXC_ERR), 0);
	assert_int_equal(p->side[1].buffer[0], 0);
	assert_int_equal(qp->state, IBV_QPS_ERR);
	pair_expect_wc(here, 1, IBV_WC_RETRY_EXC_ERR);
	pair_expect_wc(here, 2, IBV_WC_WR_FLUSH_ERR);
	pair_expect_wc(here, 3, IBV_WC_WR_FLUSH_ERR);
	pair_expect_wc(here, 100, IBV_WC_WR_FLUSH_ERR);
	pair_expect_empty(here);
	/* What comes later is flushed as well. */
	assert_int_equal(pair_post_simple(p, qp, 4, IBV_WR_RDMA_WRITE, 0), 0);
	pair_expect_wc(here, 4, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(pair_post_recv(here, qp, 101, 4), 0);
	pair_expect_wc(here, 101, IBV_WC_WR_FLUSH_ERR);
}

static void lost_ack_landed_all_the_same(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *qp = p->side[0].qp[0];

	pair_post_write(p, 0, 1);
	assert_int_equal(scripted_land(qp), 0);
	assert_int_equal(scripted_complete(qp, IBV_WC_RETRY_EXC_ERR), 0);
	assert_memory_equal(p->side[1].buffer, p->side[0].buffer, 16);
	pair_expect_wc(&p->side[0], 1, IBV_WC_RETRY_EXC_ERR);
}

/* Zero, valid but wrong, and noise all come up, and never the same twice over. */
static void error_opcodes_are_garbage(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	unsigned zero = 0, recv = 0, noise = 0, i;
	uint32_t byte_len = 0, byte_len_changes = 0;

	assert_int_equal(pair_to_state(p, here->qp[0], IBV_QPS_ERR), 0);
	for (i = 0; i < 200; i++) {
		struct ibv_wc wc;

		assert_int_equal(pair_post_write(p, 0, i), 0);
		wc = pair_poll_one(here);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc.qp_num, here->qp[0]->qp_num);
		assert_int_equal(wc.vendor_err, 0xf9);
		zero += wc.opcode == 0;
		recv += wc.opcode == IBV_WC_RECV;
		noise += wc.opcode > IBV_WC_DRIVER3;
		byte_len_changes += wc.byte_len != byte_len;
		byte_len = wc.byte_len;
	}
	assert_true(zero > 20 && recv > 0 && noise > 20);
	assert_true(byte_len_changes > 190);
}

static uint32_t first_garbage(uint64_t seed)
{
	struct pair *p = calloc(1, sizeof(*p));
	struct side *side = &p->side[0];
	struct ibv_wc wc;
	int i;

	p->fabric = scripted_fabric_create(seed);
	pair_open_side(p, side, NULL);
	assert_int_equal(pair_to_state(p, side->qp[0], IBV_QPS_ERR), 0);
	assert_int_equal(pair_post_recv(side, side->qp[0], 1, 0), 0);
	wc = pair_poll_one(side);
	for (i = 0; i < PAIR_LANES; i++)
		p->control->destroy_qp(side->qp[i]);
	/* CQ, channel and MR are left over, and counted. */
	assert_int_equal(scripted_fabric_destroy(p->fabric), 3);
	free(p);
	return wc.byte_len;
}

static void garbage_follows_the_seed(void **state)
{
	(void)state;
	assert_int_equal(first_garbage(3), first_garbage(3));
	assert_int_not_equal(first_garbage(3), first_garbage(4));
}

static void local_range_is_exact(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge = pair_sge(&p->side[0], PAIR_BUFFER_SIZE - 8, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);

	pair_post(p->side[0].qp[0], &wr);
	assert_int_equal(scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS), 0);
	pair_expect_wc(&p->side[0], 1, IBV_WC_SUCCESS);
	sge.length = 9;
	pair_expect_failure(p, &wr, IBV_WC_LOC_PROT_ERR);
	/* The peer never heard of it. */
	assert_int_equal(p->side[1].qp[0]->state, IBV_QPS_RTS);
}

static void read_needs_local_write(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_sge sge = pair_sge(here, 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_RDMA_READ);
	struct ibv_mr *mr;

	p->control->reg_mr(here->pd, here->buffer, PAIR_BUFFER_SIZE, 0, &mr);
	sge.lkey = mr->lkey;
	pair_expect_failure(p, &wr, IBV_WC_LOC_PROT_ERR);
	p->control->dereg_mr(mr);
}

static void remote_range_is_exact(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);

	pair_post_recv(there, there->qp[0], 50, 4);
	wr.wr.rdma.remote_addr += PAIR_BUFFER_SIZE - 8;
	pair_post(p->side[0].qp[0], &wr);
	assert_int_equal(scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS), 0);
	pair_expect_wc(&p->side[0], 1, IBV_WC_SUCCESS);
	wr.wr.rdma.remote_addr++;
	pair_expect_failure(p, &wr, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(there->qp[0]->state, IBV_QPS_ERR);
	pair_expect_wc(there, 50, IBV_WC_WR_FLUSH_ERR);
	pair_expect_async(p, there, IBV_EVENT_QP_ACCESS_ERR);
}

static void access_rights_are_checked(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);
	struct ibv_mr *mr;

	p->control->reg_mr(there->pd, there->buffer, PAIR_BUFFER_SIZE,
			   IBV_ACCESS_REMOTE_READ, &mr);
	wr.wr.rdma.rkey = mr->rkey;
	pair_expect_failure(p, &wr, IBV_WC_REM_ACCESS_ERR);
	p->control->dereg_mr(mr);
}

static void qp_rights_are_checked(void **state)
{
	struct pair *p = *state;
	struct ibv_qp *there = p->side[1].qp[0];
	struct ibv_qp_attr attr = { .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_RDMA_READ);

	assert_int_equal(p->control->modify_qp(there, &attr, IBV_QP_ACCESS_FLAGS), 0);
	pair_expect_failure(p, &wr, IBV_WC_REM_ACCESS_ERR);
}

static void memory_of_another_pd_is_refused(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_sge sge = pair_sge(here, 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	p->control->alloc_pd(here->context, &pd);
	p->control->reg_mr(pd, here->buffer, PAIR_BUFFER_SIZE, PAIR_ACCESS, &mr);
	sge.lkey = mr->lkey;
	pair_expect_failure(p, &wr, IBV_WC_LOC_PROT_ERR);
	p->control->dereg_mr(mr);
	p->control->dealloc_pd(pd);
}

static void stale_rkey_fails_though_its_slot_is_reused(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);

	p->control->dereg_mr(there->mr);
	p->control->reg_mr(there->pd, there->buffer, PAIR_BUFFER_SIZE, PAIR_ACCESS,
			   &there->mr);
	assert_int_not_equal(there->mr->rkey, wr.wr.rdma.rkey);
	pair_expect_failure(p, &wr, IBV_WC_REM_ACCESS_ERR);
}

static void lkey_is_no_rkey(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);

	assert_int_not_equal(p->side[0].mr->lkey, p->side[1].mr->lkey);
	wr.wr.rdma.rkey = p->side[1].mr->lkey;
	pair_expect_failure(p, &wr, IBV_WC_REM_ACCESS_ERR);
}

static void short_receive_fails_both_ends(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_SEND);

	pair_post_recv(there, there->qp[0], 60, 7);
	pair_post_recv(there, there->qp[0], 61, 7);
	pair_expect_failure(p, &wr, IBV_WC_REM_INV_REQ_ERR);
	pair_expect_wc(there, 60, IBV_WC_LOC_LEN_ERR);
	pair_expect_wc(there, 61, IBV_WC_WR_FLUSH_ERR);
	pair_expect_async(p, there, IBV_EVENT_QP_REQ_ERR);
}

static void bad_receive_key_fails_both_ends(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_SEND);
	uint32_t lkey = there->mr->lkey;

	there->mr->lkey ^= 1;
	pair_post_recv(there, there->qp[0], 60, 8);
	there->mr->lkey = lkey;
	pair_expect_failure(p, &wr, IBV_WC_REM_OP_ERR);
	pair_expect_wc(there, 60, IBV_WC_LOC_PROT_ERR);
}

static void misaligned_atomic_fails(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_ATOMIC_FETCH_AND_ADD);

	wr.wr.atomic.remote_addr += 4;
	pair_expect_failure(p, &wr, IBV_WC_REM_INV_REQ_ERR);
}

static void atomic_needs_eight_local_bytes(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 16);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_ATOMIC_CMP_AND_SWP);

	pair_expect_failure(p, &wr, IBV_WC_LOC_LEN_ERR);
}

/* Takes away what one end said of READs, keeping the connection. */
static void reconnect_without_reads(struct pair *p, struct ibv_qp *qp,
				    struct ibv_qp *peer, bool out)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			IBV_QP_MIN_RNR_TIMER;
	const int rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

	assert_int_equal(p->control->query_qp(qp, &attr, rtr | rts, &init), 0);
	assert_int_equal(attr.dest_qp_num, peer->qp_num);
	assert_int_equal(pair_to_state(p, qp, IBV_QPS_RESET), 0);
	assert_int_equal(pair_to_init(p, qp), 0);
	if (out)
		attr.max_rd_atomic = 0;
	else
		attr.max_dest_rd_atomic = 0;
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(p->control->modify_qp(qp, &attr, rtr), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(p->control->modify_qp(qp, &attr, rts), 0);
}

static void reads_need_resources_here(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_RDMA_READ);

	reconnect_without_reads(p, p->side[0].qp[0], p->side[1].qp[0], true);
	pair_expect_failure(p, &wr, IBV_WC_LOC_QP_OP_ERR);
}

static void reads_need_resources_there(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_RDMA_READ);

	reconnect_without_reads(p, p->side[1].qp[0], p->side[0].qp[0], false);
	pair_expect_failure(p, &wr, IBV_WC_REM_INV_REQ_ERR);
}

static void huge_lengths_are_seen_and_limited(void **state)
{
	struct scripted_device_opts opts = { .move_no_bytes = true };
	struct pair *p = pair_open(&opts);
	struct ibv_qp *qp = p->side[0].qp[0];
	size_t length = (size_t)3 << 30;
	void *huge = mmap(NULL, length, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct ibv_mr *mr[2];
	struct ibv_sge sge = { .addr = (uintptr_t)huge, .length = 1u << 30 };
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);
	struct scripted_send seen;
	int i;

	(void)state;
	assert_ptr_not_equal(huge, MAP_FAILED);
	for (i = 0; i < 2; i++)
		assert_int_equal(p->control->reg_mr(p->side[i].pd, huge, length,
						    PAIR_ACCESS, &mr[i]),
				 0);
	sge.lkey = mr[0]->lkey;
	wr.wr.rdma.rkey = mr[1]->rkey;
	wr.wr.rdma.remote_addr = sge.addr;
	assert_int_equal(pair_post(qp, &wr), 0);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), 0);
	assert_int_equal(pair_poll_one(&p->side[0]).byte_len, 1u << 30);
	sge.length = 3u << 30;
	assert_int_equal(pair_post(qp, &wr), 0);
	assert_int_equal(scripted_peek(qp, 0, &seen), 0);
	assert_int_equal(seen.sge[0].length, 3u << 30);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), IBV_WC_LOC_LEN_ERR);
	for (i = 0; i < 2; i++)
		p->control->dereg_mr(mr[i]);
	munmap(huge, length);
	pair_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_PAIR(error_flushes_everything),
		WITH_PAIR(lost_ack_landed_all_the_same),
		WITH_PAIR(error_opcodes_are_garbage),
		cmocka_unit_test(garbage_follows_the_seed),
		WITH_PAIR(local_range_is_exact),
		WITH_PAIR(read_needs_local_write),
		WITH_PAIR(remote_range_is_exact),
		WITH_PAIR(access_rights_are_checked),
		WITH_PAIR(qp_rights_are_checked),
		WITH_PAIR(memory_of_another_pd_is_refused),
		WITH_PAIR(stale_rkey_fails_though_its_slot_is_reused),
		WITH_PAIR(lkey_is_no_rkey),
		WITH_PAIR(short_receive_fails_both_ends),
		WITH_PAIR(bad_receive_key_fails_both_ends),
		WITH_PAIR(misaligned_atomic_fails),
		WITH_PAIR(atomic_needs_eight_local_bytes),
		WITH_PAIR(reads_need_resources_here),
		WITH_PAIR(reads_need_resources_there),
		cmocka_unit_test(huge_lengths_are_seen_and_limited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
