/* SPDX-License-Identifier: MIT */
/* Soft devices: memory windows, and peers that use them in other ways than allowed. */
#include "lib/test.h"
#include "lib/soft_kit.h"

#include <errno.h>

#define AT     (256u << 10) /* of a window in B's memory */
#define SIZE   4096u
#define MTU    1024u
#define RIGHTS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* B's window, in an MR without remote rights. */
struct scene {
	struct kit *kit;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
};

static struct ibv_mr *register_at(struct kit *kit, unsigned access)
{
	struct ibv_mr *mr;

	assert_int_equal(kit->control->reg_mr(kit->end[B].pd, kit->end[B].bytes + AT,
					      SIZE, access, &mr),
			 0);
	return mr;
}

static struct scene open_scene(const struct kit_opts *opts)
{
	struct scene scene = { .kit = kit_open(opts) };

	scene.mr = register_at(scene.kit, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	scene.mw = ibv_alloc_mw(scene.kit->end[B].pd, IBV_MW_TYPE_2);
	assert_non_null(scene.mw);
	return scene;
}

static void close_scene(struct scene *scene)
{
	if (scene->mw)
		assert_int_equal(ibv_dealloc_mw(scene->mw), 0);
	if (scene->mr)
		assert_int_equal(scene->kit->control->dereg_mr(scene->mr), 0);
	kit_close(scene->kit);
}

static struct ibv_send_wr bind_wr(const struct scene *scene, uint64_t id, uint32_t at,
				  uint64_t length, unsigned access)
{
	return (struct ibv_send_wr){
		.wr_id = id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = scene->mw,
			     .rkey = ibv_inc_rkey(scene->mw->rkey),
			     .bind_info = { .mr = scene->mr,
					    .addr = (uintptr_t)scene->kit->end[B]
							    .bytes +
						    at,
					    .length = length,
					    .mw_access_flags = access } },
	};
}

static struct ibv_send_wr invalidate_wr(uint64_t id, uint32_t rkey)
{
	return (struct ibv_send_wr){ .wr_id = id,
				     .opcode = IBV_WR_LOCAL_INV,
				     .send_flags = IBV_SEND_SIGNALED,
				     .invalidate_rkey = rkey };
}

static void post_at_b(struct scene *scene, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(scene->kit->end[B].qp, wr, &bad), 0);
	if (wr->opcode == IBV_WR_BIND_MW)
		scene->mw->rkey = wr->bind_mw.rkey;
}

/* The status of B's WR. */
static void expect_bind(struct scene *scene, uint32_t at, uint64_t length,
			unsigned access, enum ibv_wc_status status)
{
	struct ibv_send_wr wr = bind_wr(scene, 31, at, length, access);
	struct ibv_wc wc;

	post_at_b(scene, &wr);
	kit_run(scene->kit);
	wc = kit_expect(scene->kit, B, 31, status);
	if (status == IBV_WC_SUCCESS)
		assert_int_equal(wc.opcode, IBV_WC_BIND_MW);
}

static void bind_all(struct scene *scene)
{
	expect_bind(scene, AT, SIZE, RIGHTS, IBV_WC_SUCCESS);
}

static void expect_invalidated(struct scene *scene, enum ibv_wc_status status)
{
	struct ibv_send_wr wr = invalidate_wr(32, scene->mw->rkey);
	struct ibv_wc wc;

	post_at_b(scene, &wr);
	kit_run(scene->kit);
	wc = kit_expect(scene->kit, B, 32, status);
	if (status == IBV_WC_SUCCESS)
		assert_int_equal(wc.opcode, IBV_WC_LOCAL_INV);
}

/* A's request for so many bytes at a place in B's memory. */
static void post_request(struct scene *scene, enum ibv_wr_opcode opcode, uint32_t far,
			 uint32_t length)
{
	struct kit *kit = scene->kit;
	struct ibv_send_wr *bad, wr;
	struct ibv_sge sge;

	wr = kit_wr(kit, A,
		    &(struct kit_send){
			    .id = 1, .opcode = opcode, .far = far, .length = length },
		    &sge);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.rkey = scene->mw->rkey;
	else
		wr.wr.rdma.rkey = scene->mw->rkey;
	assert_int_equal(ibv_post_send(kit->end[A].qp, &wr, &bad), 0);
}

static void expect_request(struct scene *scene, enum ibv_wr_opcode opcode, uint32_t far,
			   uint32_t length, enum ibv_wc_status status)
{
	post_request(scene, opcode, far, length);
	kit_run(scene->kit);
	kit_expect(scene->kit, A, 1, status);
}

static void expect_write(struct scene *scene, uint32_t far, uint32_t length,
			 enum ibv_wc_status status)
{
	expect_request(scene, IBV_WR_RDMA_WRITE, far, length, status);
}

static struct ibv_send_wr send_inv_wr(struct scene *scene, uint32_t rkey,
				      uint32_t length, struct ibv_sge *sge)
{
	struct ibv_send_wr wr =
		kit_wr(scene->kit, A,
		       &(struct kit_send){
			       .id = 2, .opcode = IBV_WR_SEND, .length = length },
		       sge);

	wr.opcode = IBV_WR_SEND_WITH_INV;
	wr.invalidate_rkey = rkey;
	return wr;
}

/*
 * What a window is for
 */

static void a_window_opens_and_closes(void **state)
{
	struct scene scene = open_scene(NULL);
	struct kit *kit = scene.kit;
	uint32_t first;

	(void)state;
	bind_all(&scene);
	first = scene.mw->rkey;
	kit_fill(kit, A, 0, 3000, 7);
	expect_write(&scene, AT + 5, 3000, IBV_WC_SUCCESS);
	assert_memory_equal(kit->end[B].bytes + AT + 5, kit->end[A].bytes, 3000);
	memset(kit->end[A].bytes, 0, 3000);
	expect_request(&scene, IBV_WR_RDMA_READ, AT + 5, 3000, IBV_WC_SUCCESS);
	assert_memory_equal(kit->end[B].bytes + AT + 5, kit->end[A].bytes, 3000);
	expect_invalidated(&scene, IBV_WC_SUCCESS);
	bind_all(&scene);
	assert_int_not_equal(scene.mw->rkey, first);
	expect_write(&scene, AT, SIZE, IBV_WC_SUCCESS);
	close_scene(&scene);
}

/* Binding, a message with the key and invalidating, all posted at once: they take effect in
 * this order, and complete in it. */
static void local_work_keeps_its_place(void **state)
{
	struct scene scene = open_scene(NULL);
	struct kit *kit = scene.kit;
	struct ibv_send_wr wr[4];

	(void)state;
	kit_recv(kit, A, 70, AT, SIZE);
	kit_send(kit, B,
		 &(struct kit_send){ .id = 10,
				     .opcode = IBV_WR_RDMA_WRITE,
				     .length = 5000,
				     .far = AT });
	wr[0] = bind_wr(&scene, 11, AT, SIZE, RIGHTS);
	post_at_b(&scene, &wr[0]);
	kit_send(kit, B,
		 &(struct kit_send){ .id = 12, .opcode = IBV_WR_SEND, .length = 64 });
	wr[1] = invalidate_wr(13, scene.mw->rkey);
	wr[2] = bind_wr(&scene, 14, AT, 64, RIGHTS);
	wr[3] = invalidate_wr(15, wr[2].bind_mw.rkey);
	for (unsigned i = 1; i < 4; i++)
		post_at_b(&scene, &wr[i]);
	kit_run(kit);
	kit_expect(kit, A, 70, IBV_WC_SUCCESS);
	for (uint64_t id = 10; id <= 15; id++)
		kit_expect(kit, B, id, IBV_WC_SUCCESS);
	kit_expect_none(kit, B);
	close_scene(&scene);
}

static enum kit_fate drop_chosen(struct kit *kit, const struct kit_frame *frame)
{
	if (frame->to != A || frame->index < kit->chosen || kit->chosen == UINT32_MAX)
		return KIT_PASS;
	kit->chosen = UINT32_MAX;
	return KIT_DROP;
}

/* What was executed stays executed when what is around it is sent again: a second bind
 * would find the window bound. */
static void nothing_local_is_done_twice(void **state)
{
	(void)state;
	for (unsigned lost = 0; lost < 6; lost++) {
		struct scene scene = open_scene(NULL);
		struct kit *kit = scene.kit;
		struct ibv_send_wr wr;

		kit->fate = drop_chosen;
		kit->chosen = lost;
		for (uint64_t id = 10; id < 16; id += 2) {
			kit_send(kit, B,
				 &(struct kit_send){ .id = id,
						     .opcode = IBV_WR_RDMA_WRITE,
						     .length = 1500,
						     .far = AT });
			wr = id % 4 == 2 ? bind_wr(&scene, id + 1, AT, SIZE, RIGHTS)
					 : invalidate_wr(id + 1, scene.mw->rkey);
			post_at_b(&scene, &wr);
		}
		kit_run(kit);
		for (uint64_t id = 10; id < 16; id++)
			kit_expect(kit, B, id, IBV_WC_SUCCESS);
		assert_true(kit_stats(kit, B)->resent +
				    kit_stats(kit, B)->probe_packets >
			    0);
		close_scene(&scene);
	}
}

/* More local WRs than the queue has room for, over and over. */
static void local_work_leaves_the_queue(void **state)
{
	struct scene scene = open_scene(NULL);

	(void)state;
	for (unsigned i = 0; i < 3 * KIT_DEPTH; i++) {
		bind_all(&scene);
		expect_invalidated(&scene, IBV_WC_SUCCESS);
	}
	close_scene(&scene);
}

/* What was in their slots of the queue before, with keys that are no longer valid. */
static void local_work_has_no_keys(void **state)
{
	struct scene scene = open_scene(NULL);
	struct kit *kit = scene.kit;
	struct ibv_mr *mr = register_at(kit, 0), *own = kit->end[B].mr;

	(void)state;
	kit->end[B].mr = mr;
	for (unsigned i = 0; i < KIT_DEPTH; i++)
		kit_send(kit, B,
			 &(struct kit_send){ .id = 10,
					     .opcode = IBV_WR_RDMA_WRITE,
					     .at = AT,
					     .length = 2 * MTU,
					     .far = AT });
	kit_run(kit);
	for (unsigned i = 0; i < KIT_DEPTH; i++)
		kit_expect(kit, B, 10, IBV_WC_SUCCESS);
	kit->end[B].mr = own;
	assert_int_equal(kit->control->dereg_mr(mr), 0);
	for (unsigned i = 0; i < KIT_DEPTH; i++) {
		bind_all(&scene);
		expect_invalidated(&scene, IBV_WC_SUCCESS);
	}
	close_scene(&scene);
}

static void the_peer_invalidates(void **state)
{
	static const uint32_t lengths[] = { 0, 64, MTU, 3 * MTU + 5 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct scene scene = open_scene(NULL);
		struct kit *kit = scene.kit;
		struct ibv_send_wr *bad, wr;
		struct ibv_sge sge;
		struct ibv_wc wc;

		bind_all(&scene);
		kit_fill(kit, A, 0, SIZE, 3);
		kit_recv(kit, B, 70, 0, SIZE);
		wr = send_inv_wr(&scene, scene.mw->rkey, lengths[i], &sge);
		assert_int_equal(ibv_post_send(kit->end[A].qp, &wr, &bad), 0);
		kit_run(kit);
		kit_expect(kit, A, 2, IBV_WC_SUCCESS);
		wc = kit_expect(kit, B, 70, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.byte_len, lengths[i]);
		assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV);
		assert_int_equal(wc.invalidated_rkey, scene.mw->rkey);
		assert_memory_equal(kit->end[B].bytes, kit->end[A].bytes, lengths[i]);
		expect_write(&scene, AT, 8, IBV_WC_REM_ACCESS_ERR);
		close_scene(&scene);
	}
}

/*
 * What it is not for
 */

static void ranges_have_edges(void **state)
{
	static const struct {
		int32_t at;
		uint32_t length;
		enum ibv_wc_status status;
	} cases[] = {
		{ 0, 200, IBV_WC_SUCCESS },	   { 0, 201, IBV_WC_REM_ACCESS_ERR },
		{ -1, 1, IBV_WC_REM_ACCESS_ERR },  { -1, 202, IBV_WC_REM_ACCESS_ERR },
		{ 199, 1, IBV_WC_SUCCESS },	   { 199, 2, IBV_WC_REM_ACCESS_ERR },
		{ 200, 1, IBV_WC_REM_ACCESS_ERR }, { 200, 0, IBV_WC_SUCCESS },
	};

	(void)state;
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
		unsigned n = i / 2;
		struct scene scene = open_scene(NULL);

		expect_bind(&scene, AT + 100, 200, RIGHTS, IBV_WC_SUCCESS);
		kit_fill(scene.kit, A, 0, 512, 9);
		expect_request(&scene, i & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
			       AT + 100 + (uint32_t)cases[n].at, cases[n].length,
			       cases[n].status);
		if (cases[n].status != IBV_WC_SUCCESS)
			kit_check_zero(scene.kit, B, AT, SIZE);
		close_scene(&scene);
	}
}

static void rights_are_those_of_the_bind(void **state)
{
	static const struct {
		unsigned access;
		enum ibv_wr_opcode opcode;
		enum ibv_wc_status status;
	} cases[] = {
		{ IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS },
		{ IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR },
		{ IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ, IBV_WC_SUCCESS },
		{ IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR },
		{ RIGHTS, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_REM_ACCESS_ERR },
		{ IBV_ACCESS_REMOTE_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD,
		  IBV_WC_SUCCESS },
		{ 0, IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct scene scene = open_scene(NULL);

		expect_bind(&scene, AT, SIZE, cases[i].access, IBV_WC_SUCCESS);
		expect_request(&scene, cases[i].opcode, AT, 8, cases[i].status);
		close_scene(&scene);
	}
}

/* None of these changes the window. */
static void binds_that_fail(void **state)
{
	static const struct {
		unsigned mr_access;
		uint32_t at;
		uint64_t length;
		unsigned access;
	} cases[] = {
		{ IBV_ACCESS_LOCAL_WRITE, AT, 8, RIGHTS }, /* not for windows */
		{ IBV_ACCESS_MW_BIND, AT, 8, IBV_ACCESS_REMOTE_WRITE },
		{ IBV_ACCESS_MW_BIND, AT, 8, IBV_ACCESS_REMOTE_ATOMIC },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, AT, 0, RIGHTS },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, AT, SIZE + 1, RIGHTS },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, AT - 1, 8, RIGHTS },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, AT + 1, SIZE, RIGHTS },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, AT, UINT64_MAX, RIGHTS },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct scene scene = open_scene(NULL);

		scene.kit->control->dereg_mr(scene.mr);
		scene.mr = register_at(scene.kit, cases[i].mr_access);
		expect_bind(&scene, cases[i].at, cases[i].length, cases[i].access,
			    IBV_WC_MW_BIND_ERR);
		assert_int_equal(kit_state(scene.kit, B), IBV_QPS_ERR);
		/* A window that is not bound does not keep its MR. */
		assert_int_equal(scene.kit->control->dereg_mr(scene.mr), 0);
		scene.mr = NULL;
		close_scene(&scene);
	}
}

static void bound_twice(void **state)
{
	struct scene scene = open_scene(NULL);

	(void)state;
	bind_all(&scene);
	expect_bind(&scene, AT, 8, RIGHTS, IBV_WC_MW_BIND_ERR);
	close_scene(&scene);
}

/* A key that the peer may remember. */
static void bound_by_the_last_key(void **state)
{
	struct scene scene = open_scene(NULL);
	struct ibv_send_wr wr;

	(void)state;
	bind_all(&scene);
	expect_invalidated(&scene, IBV_WC_SUCCESS);
	wr = bind_wr(&scene, 31, AT, 8, RIGHTS);
	wr.bind_mw.rkey = scene.mw->rkey;
	post_at_b(&scene, &wr);
	kit_run(scene.kit);
	kit_expect(scene.kit, B, 31, IBV_WC_MW_BIND_ERR);
	close_scene(&scene);
}

static void invalidated_twice(void **state)
{
	struct scene scene = open_scene(NULL);

	(void)state;
	bind_all(&scene);
	expect_invalidated(&scene, IBV_WC_SUCCESS);
	expect_invalidated(&scene, IBV_WC_MW_BIND_ERR);
	close_scene(&scene);
}

/* The MR goes between post and execution, by a request that waits for an answer. */
static void bound_to_what_was_deregistered(void **state)
{
	struct scene scene = open_scene(NULL);
	struct kit *kit = scene.kit;
	struct ibv_send_wr wr = bind_wr(&scene, 31, AT, 8, RIGHTS);

	(void)state;
	kit_send(kit, B,
		 &(struct kit_send){
			 .id = 30, .opcode = IBV_WR_RDMA_READ, .length = 64 });
	wr.send_flags |= IBV_SEND_FENCE;
	post_at_b(&scene, &wr);
	kit_exchange(kit);
	assert_int_equal(kit->control->dereg_mr(scene.mr), 0);
	scene.mr = NULL;
	kit_run(kit);
	kit_expect(kit, B, 30, IBV_WC_SUCCESS);
	kit_expect(kit, B, 31, IBV_WC_MW_BIND_ERR);
	close_scene(&scene);
}

static void malformed_wrs(void **state)
{
	struct scene scene = open_scene(NULL);
	struct ibv_send_wr *bad, wr;

	(void)state;
#define REFUSED(change)                                                          \
	do {                                                                     \
		wr = bind_wr(&scene, 31, AT, 8, RIGHTS);                         \
		change;                                                          \
		assert_int_equal(ibv_post_send(scene.kit->end[B].qp, &wr, &bad), \
				 EINVAL);                                        \
	} while (0)
	REFUSED(wr.bind_mw.mw = NULL);
	REFUSED(wr.bind_mw.bind_info.mr = NULL);
	REFUSED(wr.bind_mw.rkey ^= 0x100); /* of another window */
	REFUSED(wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_LOCAL_WRITE);
	REFUSED(wr.bind_mw.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED);
	REFUSED(wr.send_flags |= IBV_SEND_INLINE);
#undef REFUSED
	errno = 0;
	assert_null(ibv_alloc_mw(scene.kit->end[B].pd, IBV_MW_TYPE_1));
	assert_int_equal(errno, EOPNOTSUPP);
	close_scene(&scene);
}

/* Nothing that can be used is taken away from under it. */
static void what_is_in_use_stays(void **state)
{
	struct scene scene = open_scene(NULL);
	struct kit *kit = scene.kit;

	(void)state;
	bind_all(&scene);
	assert_int_equal(kit->control->dereg_mr(scene.mr), -EBUSY);
	expect_write(&scene, AT, 8, IBV_WC_SUCCESS);
	assert_int_equal(kit->control->dealloc_pd(kit->end[B].pd), -EBUSY);
	expect_invalidated(&scene, IBV_WC_SUCCESS);
	assert_int_equal(kit->control->dereg_mr(scene.mr), 0);
	scene.mr = NULL;
	close_scene(&scene);
}

static void a_freed_window_is_closed(void **state)
{
	struct scene scene = open_scene(NULL);
	struct ibv_mw copy;

	(void)state;
	bind_all(&scene);
	copy = *scene.mw;
	assert_int_equal(ibv_dealloc_mw(scene.mw), 0);
	assert_int_equal(scene.kit->control->dereg_mr(scene.mr), 0);
	scene.mr = NULL;
	scene.mw = &copy;
	expect_write(&scene, AT, 8, IBV_WC_REM_ACCESS_ERR);
	scene.mw = NULL;
	close_scene(&scene);
}

/* Another bind than the last one: its key is of no use, and its WR, late, neither. */
static void stale_keys(void **state)
{
	struct scene scene = open_scene(NULL);
	uint32_t old, now;

	(void)state;
	bind_all(&scene);
	old = scene.mw->rkey;
	expect_invalidated(&scene, IBV_WC_SUCCESS);
	bind_all(&scene);
	now = scene.mw->rkey;
	scene.mw->rkey = old;
	expect_write(&scene, AT, 8, IBV_WC_REM_ACCESS_ERR);
	scene.mw->rkey = now;
	close_scene(&scene);
}

/*
 * QPs
 */

/* B's window, bound to a second QP of B's that has no part in this. */
static struct ibv_qp *bind_to_other_qp(struct scene *scene)
{
	struct kit *kit = scene->kit;
	struct ibv_qp *own = kit->end[B].qp, *other;

	kit_make_qp(kit, B);
	kit_connect(kit, B);
	bind_all(scene);
	other = kit->end[B].qp;
	kit->end[B].qp = own;
	return other;
}

static void a_window_is_for_one_qp(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(opcodes); i++) {
		struct scene scene = open_scene(NULL);
		struct ibv_qp *other = bind_to_other_qp(&scene);

		expect_request(&scene, opcodes[i], AT, 8, IBV_WC_REM_ACCESS_ERR);
		kit_check_zero(scene.kit, B, AT, SIZE);
		kit_expect_event(scene.kit, B, IBV_EVENT_QP_ACCESS_ERR);
		assert_int_equal(scene.kit->control->destroy_qp(other), 0);
		close_scene(&scene);
	}
}

static void only_its_qp_invalidates(void **state)
{
	struct scene scene = open_scene(NULL);
	struct ibv_qp *other = bind_to_other_qp(&scene);

	(void)state;
	expect_invalidated(&scene, IBV_WC_MW_BIND_ERR);
	assert_int_equal(scene.kit->control->destroy_qp(other), 0);
	close_scene(&scene);
}

/* The next connection of a QP, or of its number, may be with another peer. */
static void windows_end_with_the_connection(void **state)
{
	struct scene scene = open_scene(NULL);
	struct kit *kit = scene.kit;
	struct ibv_qp *other;

	(void)state;
	bind_all(&scene);
	for (unsigned end = A; end <= B; end++)
		assert_int_equal(kit_modify(kit, end, IBV_QPS_RESET), 0);
	kit_connect(kit, A);
	kit_connect(kit, B);
	assert_int_equal(kit->control->dereg_mr(scene.mr), 0);
	scene.mr = register_at(kit, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	expect_write(&scene, AT, 8, IBV_WC_REM_ACCESS_ERR);

	other = bind_to_other_qp(&scene);
	assert_int_equal(kit->control->dereg_mr(scene.mr), -EBUSY);
	assert_int_equal(kit->control->destroy_qp(other), 0);
	assert_int_equal(kit->control->dereg_mr(scene.mr), 0);
	scene.mr = NULL;
	close_scene(&scene);
}

static void windows_of_a_dead_device(void **state)
{
	struct scene scene = open_scene(NULL);
	struct kit *kit = scene.kit;

	(void)state;
	bind_all(&scene);
	snt__soft_device_kill(kit->end[B].device);
	errno = 0;
	assert_null(ibv_alloc_mw(kit->end[B].pd, IBV_MW_TYPE_2));
	assert_int_equal(errno, EIO);
	assert_int_equal(kit->control->dereg_mr(scene.mr), -EBUSY);
	close_scene(&scene);
}

/*
 * Messages that invalidate what they must not
 */

static void expect_refused_inv(struct scene *scene, uint32_t rkey)
{
	struct kit *kit = scene->kit;
	struct ibv_send_wr *bad, wr;
	struct ibv_sge sge;

	kit_recv(kit, B, 70, 0, SIZE);
	wr = send_inv_wr(scene, rkey, 64, &sge);
	assert_int_equal(ibv_post_send(kit->end[A].qp, &wr, &bad), 0);
	kit_run(kit);
	kit_expect(kit, A, 2, IBV_WC_REM_ACCESS_ERR);
	kit_expect(kit, B, 70, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(kit_state(kit, B), IBV_QPS_ERR);
	kit_check_zero(kit, B, 0, 64);
}

static void a_peer_invalidates_what_it_must_not(void **state)
{
	struct scene scene;
	struct ibv_qp *other;

	(void)state;
	scene = open_scene(NULL); /* an MR */
	kit_fill(scene.kit, A, 0, 64, 1);
	expect_refused_inv(&scene, scene.kit->end[B].mr->rkey);
	close_scene(&scene);

	scene = open_scene(NULL); /* a window that is not bound */
	expect_refused_inv(&scene, scene.mw->rkey);
	close_scene(&scene);

	scene = open_scene(NULL); /* the key before */
	bind_all(&scene);
	expect_refused_inv(&scene, scene.mw->rkey - 1);
	close_scene(&scene);

	scene = open_scene(NULL); /* another QP's: it stays */
	other = bind_to_other_qp(&scene);
	expect_refused_inv(&scene, scene.mw->rkey);
	assert_int_equal(scene.kit->control->dereg_mr(scene.mr), -EBUSY);
	assert_int_equal(scene.kit->control->destroy_qp(other), 0);
	close_scene(&scene);
}

/* It arrives twice: the window may be bound again by then. */
static void a_repeated_invalidation_does_nothing(void **state)
{
	struct scene scene = open_scene(NULL);
	struct kit *kit = scene.kit;
	struct snt__wire_packet packet = {
		.opcode = SNT__WIRE_SEND_ONLY_INVALIDATE,
		.flags = SNT__WIRE_ACK_REQUEST,
		.pkey = 0xffff,
		.qpn = kit->end[B].qp->qp_num,
	};

	(void)state;
	bind_all(&scene);
	kit_recv(kit, B, 70, 0, SIZE);
	packet.invalidate.key = scene.mw->rkey;
	kit_inject(kit, B, &packet, NULL);
	kit_expect(kit, B, 70, IBV_WC_SUCCESS);
	kit_swallow(kit, B);
	bind_all(&scene);
	kit_inject(kit, B, &packet, NULL);
	kit_swallow(kit, B);
	assert_int_equal(kit->control->dereg_mr(scene.mr), -EBUSY);
	assert_int_equal(kit_state(kit, B), IBV_QPS_RTS);
	close_scene(&scene);
}

/* A window closes while a message is on its way through it, in either direction. */
static void closed_in_the_middle(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(opcodes); i++) {
		struct kit_opts opts = {
			.mtu = IBV_MTU_256,
			.config = { .request_window = 1024, .response_window = 1024 },
		};
		struct scene scene = open_scene(&opts);

		bind_all(&scene);
		post_request(&scene, opcodes[i], AT, SIZE);
		kit_exchange(scene.kit);
		assert_int_equal(ibv_dealloc_mw(scene.mw), 0);
		scene.mw = NULL;
		kit_run(scene.kit);
		kit_expect(scene.kit, A, 1, IBV_WC_REM_ACCESS_ERR);
		close_scene(&scene);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_window_opens_and_closes),
		cmocka_unit_test(local_work_keeps_its_place),
		cmocka_unit_test(nothing_local_is_done_twice),
		cmocka_unit_test(local_work_leaves_the_queue),
		cmocka_unit_test(local_work_has_no_keys),
		cmocka_unit_test(the_peer_invalidates),
		cmocka_unit_test(ranges_have_edges),
		cmocka_unit_test(rights_are_those_of_the_bind),
		cmocka_unit_test(binds_that_fail),
		cmocka_unit_test(bound_twice),
		cmocka_unit_test(bound_by_the_last_key),
		cmocka_unit_test(invalidated_twice),
		cmocka_unit_test(bound_to_what_was_deregistered),
		cmocka_unit_test(malformed_wrs),
		cmocka_unit_test(what_is_in_use_stays),
		cmocka_unit_test(a_freed_window_is_closed),
		cmocka_unit_test(stale_keys),
		cmocka_unit_test(a_window_is_for_one_qp),
		cmocka_unit_test(only_its_qp_invalidates),
		cmocka_unit_test(windows_end_with_the_connection),
		cmocka_unit_test(windows_of_a_dead_device),
		cmocka_unit_test(a_peer_invalidates_what_it_must_not),
		cmocka_unit_test(a_repeated_invalidation_does_nothing),
		cmocka_unit_test(closed_in_the_middle),
	};

	return cmocka_run_group_tests_name("soft_window", tests, NULL, NULL);
}
