/* SPDX-License-Identifier: MIT */
/* Soft devices: CQs, channels, async events, SRQs. */
#include "lib/test.h"
#include "lib/soft_kit.h"

#include <fcntl.h>
#include <poll.h>

#define FAR (256u << 10)

static void write_one(struct kit *kit, uint64_t id)
{
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = id, .opcode = IBV_WR_RDMA_WRITE, .length = 8 });
	kit_run(kit);
}

static bool readable(int fd)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };

	return poll(&wait, 1, 0) == 1;
}

/* Takes and acknowledges an event of the end's CQ, if there is one. */
static bool event_of(struct kit *kit, unsigned end)
{
	struct kit_end *e = &kit->end[end];
	struct ibv_cq *cq = NULL;
	void *context;
	int ret;

	ret = kit->control->get_cq_event(e->channel, &cq, &context);
	if (ret) {
		assert_int_equal(ret, -EAGAIN);
		assert_false(readable(e->channel->fd));
		return false;
	}
	assert_ptr_equal(cq, e->cq);
	kit->control->ack_cq_events(cq, 1);
	return true;
}

static void arm(struct kit *kit, unsigned end, int solicited)
{
	assert_int_equal(ibv_req_notify_cq(kit->end[end].cq, solicited), 0);
}

static void armed_once(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	write_one(kit, 1);
	assert_false(event_of(kit, A));
	arm(kit, A, 0);
	/* What was there before does not count. */
	assert_false(event_of(kit, A));
	write_one(kit, 2);
	write_one(kit, 3);
	assert_true(readable(kit->end[A].channel->fd));
	assert_true(event_of(kit, A));
	assert_false(event_of(kit, A));
	arm(kit, A, 0);
	arm(kit, A, 0);
	write_one(kit, 4);
	write_one(kit, 5);
	assert_true(event_of(kit, A));
	assert_false(event_of(kit, A));
	kit_close(kit);
}

static void send_solicited(struct kit *kit, enum ibv_wr_opcode opcode, unsigned flags)
{
	kit_recv(kit, B, 70, FAR, 3000);
	kit_send(kit, A,
		 &(struct kit_send){
			 .id = 1, .opcode = opcode, .length = 3000, .flags = flags });
	kit_run(kit);
}

static void armed_for_solicited(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
						      IBV_WR_RDMA_WRITE_WITH_IMM };
	struct kit *kit = kit_open(NULL);

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(opcodes); i++) {
		arm(kit, A, 1);
		arm(kit, B, 1);
		send_solicited(kit, opcodes[i], 0);
		assert_false(event_of(kit, B));
		send_solicited(kit, opcodes[i], IBV_SEND_SOLICITED);
		assert_true(event_of(kit, B));
		assert_false(event_of(kit, A)); /* the sender is not told */
	}
	/* The wider of two wishes holds. */
	arm(kit, A, 0);
	arm(kit, A, 1);
	write_one(kit, 1);
	assert_true(event_of(kit, A));
	arm(kit, A, 1);
	arm(kit, A, 0);
	write_one(kit, 1);
	assert_true(event_of(kit, A));
	kit_close(kit);
}

static void errors_are_solicited(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	arm(kit, B, 1);
	kit_recv(kit, B, 70, FAR, 10);
	arm(kit, A, 1);
	kit_send(kit, A,
		 &(struct kit_send){ .id = 1, .opcode = IBV_WR_SEND, .length = 11 });
	kit_run(kit);
	assert_true(event_of(kit, A));
	assert_true(event_of(kit, B));
	kit_close(kit);
}

/* One channel, two CQs: events come in turn, each as often as it was raised. */
static void two_cqs(void **state)
{
	struct kit *kit = kit_open(NULL);
	const struct snt_control *control = kit->control;
	struct kit_end *a = &kit->end[A];
	struct ibv_cq *first = a->cq, *second, *got;
	struct ibv_qp *qp = a->qp;
	void *context;

	(void)state;
	assert_int_equal(control->create_cq(a->context, 16, &second, a->channel, 0,
					    &second),
			 0);
	arm(kit, A, 0);
	write_one(kit, 1);
	a->cq = second;
	kit_make_qp(kit, A);
	kit_connect(kit, A);
	assert_int_equal(kit_modify(kit, B, IBV_QPS_RESET), 0);
	kit_connect(kit, B);
	arm(kit, A, 0);
	write_one(kit, 2);
	arm(kit, A, 0);
	write_one(kit, 3);
	assert_int_equal(control->get_cq_event(a->channel, &got, &context), 0);
	assert_ptr_equal(got, first);
	assert_null(context);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(control->get_cq_event(a->channel, &got, &context), 0);
		assert_ptr_equal(got, second);
		assert_ptr_equal(context, &second);
	}
	assert_int_equal(control->get_cq_event(a->channel, &got, &context), -EAGAIN);
	/* Nothing goes before it is acknowledged. */
	assert_int_equal(control->destroy_qp(a->qp), 0);
	assert_int_equal(control->destroy_cq(second), -EBUSY);
	control->ack_cq_events(second, 1);
	assert_int_equal(control->destroy_cq(second), -EBUSY);
	control->ack_cq_events(second, 1);
	assert_int_equal(control->destroy_cq(second), 0);
	assert_int_equal(control->destroy_channel(a->channel), -EBUSY);
	control->ack_cq_events(first, 1);
	a->cq = first;
	a->qp = qp;
	kit_close(kit);
}

static void event_of_a_dead_cq(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct kit_end *a = &kit->end[A];

	(void)state;
	arm(kit, A, 0);
	write_one(kit, 1);
	assert_true(readable(a->channel->fd));
	assert_int_equal(kit->control->destroy_cq(a->cq), -EBUSY);
	assert_int_equal(kit->control->destroy_qp(a->qp), 0);
	assert_int_equal(kit->control->destroy_cq(a->cq), 0);
	a->qp = NULL;
	a->cq = NULL;
	assert_false(readable(a->channel->fd));
	kit_close(kit);
}

/* A channel that blocks asks its driver to wait, which here knows that it is in
 * vain. */
static void blocking_channel(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct kit_end *a = &kit->end[A];
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;

	(void)state;
	fcntl(a->channel->fd, F_SETFL, 0);
	fcntl(a->context->async_fd, F_SETFL, 0);
	assert_int_equal(kit->control->get_cq_event(a->channel, &cq, &context),
			 -EDEADLK);
	assert_int_equal(kit->control->get_async_event(a->context, &event), -EDEADLK);
	arm(kit, A, 0);
	write_one(kit, 1);
	assert_int_equal(kit->control->get_cq_event(a->channel, &cq, &context), 0);
	kit->control->ack_cq_events(cq, 1);
	kit_close(kit);
}

static void cq_overruns(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .cqe = 3 });

	(void)state;
	for (unsigned i = 0; i < 5; i++)
		write_one(kit, i);
	kit_expect_event(kit, A, IBV_EVENT_CQ_ERR);
	kit_expect_no_event(kit, A);
	for (unsigned i = 0; i < 3; i++)
		kit_expect(kit, A, i, IBV_WC_SUCCESS);
	kit_expect_none(kit, A);
	assert_int_equal(kit_stats(kit, A)->cq_overruns, 2);
	assert_int_equal(kit_state(kit, A), IBV_QPS_RTS);
	kit_close(kit);
}

static void poll_in_pieces(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .cqe = 5 });
	struct ibv_wc wc[8];

	(void)state;
	/* Often enough for the ring to go round. */
	for (unsigned round = 0; round < 5; round++) {
		for (unsigned i = 0; i < 5; i++)
			write_one(kit, i);
		assert_int_equal(ibv_poll_cq(kit->end[A].cq, 0, wc), 0);
		assert_int_equal(ibv_poll_cq(kit->end[A].cq, 2, wc), 2);
		assert_int_equal(wc[1].wr_id, 1);
		assert_int_equal(ibv_poll_cq(kit->end[A].cq, 8, wc), 3);
		assert_int_equal(wc[0].wr_id, 2);
		assert_int_equal(ibv_poll_cq(kit->end[A].cq, 8, wc), 0);
	}
	kit_close(kit);
}

/*
 * Async events
 */

static void events_are_acknowledged(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct kit_end *b = &kit->end[B];
	struct ibv_async_event event;

	(void)state;
	kit_recv(kit, B, 70, FAR, 1);
	kit_send(kit, A,
		 &(struct kit_send){ .id = 1, .opcode = IBV_WR_SEND, .length = 2 });
	kit_run(kit);
	assert_int_equal(kit->control->get_async_event(b->context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_QP_REQ_ERR);
	assert_ptr_equal(event.element.qp, b->qp);
	assert_int_equal(kit->control->destroy_qp(b->qp), -EBUSY);
	kit->control->ack_async_event(&event);
	assert_int_equal(kit->control->destroy_qp(b->qp), 0);
	b->qp = NULL;
	kit_close(kit);
}

static void event_of_a_dead_qp(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct kit_end *b = &kit->end[B];

	(void)state;
	kit_recv(kit, B, 70, FAR, 1);
	kit_send(kit, A,
		 &(struct kit_send){ .id = 1, .opcode = IBV_WR_SEND, .length = 2 });
	kit_run(kit);
	assert_int_equal(kit->control->destroy_qp(b->qp), 0);
	b->qp = NULL;
	kit_expect_no_event(kit, B);
	kit_close(kit);
}

static void port_and_gid_events(void **state)
{
	static const uint8_t gid[16] = { 0xfd, 9 };
	struct kit *kit = kit_open(NULL);
	struct kit_end *a = &kit->end[A];
	struct ibv_gid_entry entry;
	struct ibv_port_attr port;

	(void)state;
	snt__soft_device_set_port(a->device, true);
	kit_expect_no_event(kit, A);
	snt__soft_device_set_port(a->device, false);
	kit_expect_event(kit, A, IBV_EVENT_PORT_ERR);
	assert_int_equal(kit->control->query_port(a->context, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_DOWN);
	snt__soft_device_set_port(a->device, true);
	kit_expect_event(kit, A, IBV_EVENT_PORT_ACTIVE);
	/* Of events that were not taken only the outcome is reported. */
	snt__soft_device_set_port(a->device, false);
	snt__soft_device_set_port(a->device, true);
	snt__soft_device_set_port(a->device, false);
	kit_expect_event(kit, A, IBV_EVENT_PORT_ERR);
	kit_expect_no_event(kit, A);

	assert_int_equal(kit->control->query_gid(a->context, 1, 3, &entry), -ENODATA);
	snt__soft_device_set_gid(a->device, 3, gid);
	kit_expect_event(kit, A, IBV_EVENT_GID_CHANGE);
	assert_int_equal(kit->control->query_gid(a->context, 1, 3, &entry), 0);
	assert_memory_equal(entry.gid.raw, gid, 16);
	assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	snt__soft_device_set_gid(a->device, 3, NULL);
	kit_expect_event(kit, A, IBV_EVENT_GID_CHANGE);
	assert_int_equal(kit->control->query_gid(a->context, 1, 3, &entry), -ENODATA);
	assert_int_equal(kit->control->query_gid(a->context, 1, SNT__SOFT_GID_MAX,
						 &entry),
			 -EINVAL);
	assert_int_equal(kit->control->query_gid(a->context, 2, 0, &entry), -EINVAL);
	kit_close(kit);
}

/*
 * SRQs
 */

static void set_limit(struct kit *kit, uint32_t limit, int expected)
{
	struct ibv_srq_attr attr = { .srq_limit = limit };

	assert_int_equal(kit->control->modify_srq(kit->end[B].srq, &attr,
						  IBV_SRQ_LIMIT),
			 expected);
}

static void take_one(struct kit *kit)
{
	kit_send(kit, A, &(struct kit_send){ .id = 1, .opcode = IBV_WR_SEND });
	kit_run(kit);
}

static void srq_limit(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .srq_depth = 8 });
	struct ibv_srq_attr attr;

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		kit_recv(kit, B, 70 + i, FAR, 64);
	set_limit(kit, 9, -EINVAL);
	set_limit(kit, 3, 0);
	assert_int_equal(kit->control->query_srq(kit->end[B].srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 3);
	assert_int_equal(attr.max_wr, 8);
	assert_int_equal(attr.max_sge, KIT_SGES);
	take_one(kit);
	kit_expect_no_event(kit, B);
	take_one(kit);
	kit_expect_event(kit, B, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_int_equal(kit->control->query_srq(kit->end[B].srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 0);
	take_one(kit);
	kit_expect_no_event(kit, B);
	/* A limit that is not reached even now tells with the next one. */
	set_limit(kit, 5, 0);
	kit_expect_no_event(kit, B);
	take_one(kit);
	kit_expect_event(kit, B, IBV_EVENT_SRQ_LIMIT_REACHED);
	attr.max_wr = 16;
	assert_int_equal(kit->control->modify_srq(kit->end[B].srq, &attr,
						  IBV_SRQ_MAX_WR),
			 -EINVAL);
	assert_int_equal(kit->control->destroy_srq(kit->end[B].srq), -EBUSY);
	kit_close(kit);
}

static void srq_full(void **state)
{
	struct kit *kit = kit_open(&(struct kit_opts){ .srq_depth = 7 });

	(void)state;
	for (unsigned i = 0; i < 7; i++)
		kit_recv(kit, B, 70 + i, FAR, 64);
	assert_int_equal(kit_try_recv(kit, B, 99, FAR, 64), ENOMEM);
	/* Both ends of a pair take from what they have, in order. */
	for (unsigned i = 0; i < 7; i++) {
		take_one(kit);
		kit_expect(kit, B, 70 + i, IBV_WC_SUCCESS);
	}
	kit_close(kit);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(armed_once),
		cmocka_unit_test(armed_for_solicited),
		cmocka_unit_test(errors_are_solicited),
		cmocka_unit_test(two_cqs),
		cmocka_unit_test(event_of_a_dead_cq),
		cmocka_unit_test(blocking_channel),
		cmocka_unit_test(cq_overruns),
		cmocka_unit_test(poll_in_pieces),
		cmocka_unit_test(events_are_acknowledged),
		cmocka_unit_test(event_of_a_dead_qp),
		cmocka_unit_test(port_and_gid_events),
		cmocka_unit_test(srq_limit),
		cmocka_unit_test(srq_full),
	};

	return cmocka_run_group_tests_name("soft_event", tests, NULL, NULL);
}
