/* SPDX-License-Identifier: MIT */
/* Each verbs call's way of failing, seen through the control table. */
#include "lib/test.h"

#include <infiniband/verbs.h>
#include <sennit/control.h>

#include "dev/verbs/err.h"
#include "lib/devices/verbs_fake.h"
#include "lib/fault.h"

static const struct snt_control *control;
static struct ibv_context *context;

static int set_up(void **state)
{
	struct ibv_device **list;
	int count;

	(void)state;
	fake_reset();
	fake_add("mlx5_0", 1)->has_dmabuf = 1;
	list = ibv_get_device_list(&count);
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	control = snt_control_verbs();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	ibv_close_device(context);
	assert_int_equal(fake_live(), 0);
	return 0;
}

/* Fails the next call and expects the errno, and an untouched out pointer. */
#define assert_fails(call)                           \
	do {                                         \
		fault_arm(1);                        \
		assert_int_equal(call, -FAKE_ERRNO); \
		assert_true(fault_was_hit());        \
		fault_arm(0);                        \
	} while (0)

static void constructors(void **state)
{
	struct ibv_qp_init_attr qp_attr = { .cap.max_send_wr = 9 };
	struct ibv_srq_init_attr srq_attr = { 0 };
	struct ibv_comp_channel *channel = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_mr *mr = NULL, *dmabuf_mr = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_qp *qp = NULL;
	struct ibv_srq *srq = NULL;
	char byte;

	(void)state;
	assert_fails(control->alloc_pd(context, &pd));
	assert_null(pd);
	assert_int_equal(control->alloc_pd(context, &pd), 0);
	assert_fails(control->reg_mr(pd, &byte, 1, 0, &mr));
	assert_null(mr);
	assert_int_equal(control->reg_mr(pd, &byte, 1, 0, &mr), 0);
	assert_fails(control->reg_dmabuf_mr(pd, 3, 0, 1, 0, 0, &dmabuf_mr));
	assert_null(dmabuf_mr);
	assert_fails(control->create_channel(context, &channel));
	assert_null(channel);
	assert_int_equal(control->create_channel(context, &channel), 0);
	assert_fails(control->create_cq(context, 5, NULL, channel, 0, &cq));
	assert_null(cq);
	assert_int_equal(control->create_cq(context, 5, &byte, channel, 0, &cq), 0);
	assert_ptr_equal(cq->cq_context, &byte);
	assert_fails(control->create_qp(pd, &qp_attr, &qp));
	assert_null(qp);
	assert_int_equal(control->create_qp(pd, &qp_attr, &qp), 0);
	assert_int_equal(qp_attr.cap.max_send_wr, 10);
	assert_fails(control->create_srq(pd, &srq_attr, &srq));
	assert_null(srq);
	assert_int_equal(control->create_srq(pd, &srq_attr, &srq), 0);

	assert_int_equal(control->destroy_srq(srq), 0);
	assert_int_equal(control->destroy_qp(qp), 0);
	assert_int_equal(control->destroy_cq(cq), 0);
	assert_int_equal(control->destroy_channel(channel), 0);
	assert_int_equal(control->dereg_mr(mr), 0);
	assert_fails(control->dealloc_pd(pd));
	assert_int_equal(control->dealloc_pd(pd), 0);
}

static void queries_and_changes(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct ibv_qp_init_attr init = { 0 };
	struct ibv_device_attr device_attr;
	struct ibv_port_attr port_attr;
	struct ibv_gid_entry gid;
	struct ibv_srq_attr srq_attr = { 0 };
	struct ibv_qp qp = { 0 };
	struct ibv_srq srq;
	int node = 5;

	(void)state;
	assert_fails(control->query_device(context, &device_attr));
	assert_fails(control->query_port(context, 1, &port_attr));
	assert_int_equal(control->query_port(context, 9, &port_attr), -EINVAL);
	assert_int_equal(control->query_gid(context, 1, 0, &gid), 0);
	assert_int_equal(control->query_gid(context, 1, 5, &gid), -EINVAL);
	assert_int_equal(control->query_numa_node(context, &node), 0);
	assert_int_equal(node, -1);
	assert_fails(control->modify_qp(&qp, &attr, 0));
	assert_int_equal(control->modify_qp(&qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_ERR;
	assert_fails(control->query_qp(&qp, &attr, 0, &init));
	assert_int_equal(control->query_qp(&qp, &attr, 0, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_INIT);
	assert_fails(control->modify_srq(&srq, &srq_attr, 0));
	assert_fails(control->query_srq(&srq, &srq_attr));
}

static void events_that_do_not_wait(void **state)
{
	struct ibv_async_event event = { 0 };
	struct ibv_comp_channel channel;
	struct ibv_cq cq = { 0 }, *which;
	void *arg;

	(void)state;
	assert_int_equal(control->get_cq_event(&channel, &which, &arg), -EAGAIN);
	assert_int_equal(control->get_async_event(context, &event), -EAGAIN);
	control->ack_cq_events(&cq, 3);
	assert_int_equal(cq.comp_events_completed, 3);
	control->ack_async_event(&event);
	assert_int_equal(event.event_type, IBV_EVENT_COMM_EST);
}

static void all_four_conventions(void **state)
{
	int *made = NULL, here;

	(void)state;
	assert_int_equal(FROM_INT(0), 0);
	assert_int_equal(FROM_INT(ENOMEM), -ENOMEM);
	assert_int_equal(FROM_INT(-ENOMEM), -ENOMEM);
	assert_int_equal(FROM_INT((errno = EAGAIN, -1)), -EAGAIN);
	assert_int_equal(FROM_INT(-1), -EIO);
	assert_int_equal(FROM_POINTER(&made, (errno = EPERM, (int *)NULL)), -EPERM);
	assert_int_equal(FROM_POINTER(&made, (int *)NULL), -EIO);
	assert_null(made);
	assert_int_equal(FROM_POINTER(&made, &here), 0);
	assert_ptr_equal(made, &here);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(constructors),
		TEST(queries_and_changes),
		TEST(events_that_do_not_wait),
		TEST(all_four_conventions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
