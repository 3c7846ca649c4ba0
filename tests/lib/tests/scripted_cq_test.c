/* SPDX-License-Identifier: MIT */
/* The scripted device: completion queues, channels and events. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>

#include "lib/devices/scripted_pair.h"

static void held_cqs_show_nothing(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];

	ibv_req_notify_cq(here->cq, 0);
	scripted_hold_cq(here->cq, true);
	pair_post_write(p, 0, 1);
	scripted_complete(here->qp[0], IBV_WC_SUCCESS);
	pair_expect_empty(here);
	assert_false(pair_readable(here->channel->fd));
	scripted_hold_cq(here->cq, false);
	assert_true(pair_readable(here->channel->fd));
	pair_expect_wc(here, 1, IBV_WC_SUCCESS);
}

static void polls_can_be_limited_and_fail(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_wc wc[4];
	int i;

	for (i = 0; i < 4; i++) {
		pair_post_write(p, 0, i);
		scripted_complete(here->qp[0], IBV_WC_SUCCESS);
	}
	scripted_poll_limit(here->cq, 1);
	assert_int_equal(ibv_poll_cq(here->cq, 4, wc), 1);
	scripted_fail_poll(here->cq, 2);
	assert_int_equal(ibv_poll_cq(here->cq, 4, wc), 1);
	assert_true(ibv_poll_cq(here->cq, 4, wc) < 0);
	scripted_poll_limit(here->cq, 0);
	assert_int_equal(ibv_poll_cq(here->cq, 4, wc), 2);
}

static void overrun_is_sticky_and_raises_an_event(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_qp_init_attr attr = pair_init_attr(here);
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int i;

	p->control->create_cq(here->context, 2, NULL, NULL, 0, &cq);
	attr.send_cq = attr.recv_cq = cq;
	p->control->create_qp(here->pd, &attr, &qp);
	pair_to_state(p, qp, IBV_QPS_ERR);
	for (i = 0; i < 4; i++)
		pair_post_recv(here, qp, i, 4);
	assert_int_equal(scripted_cq_overruns(cq), 2);
	assert_int_equal(scripted_faults(here->device), SCRIPTED_FAULT_CQ_OVERRUN);
	pair_expect_async(p, here, IBV_EVENT_CQ_ERR);
	assert_false(pair_readable(here->context->async_fd));
	p->control->destroy_qp(qp);
	p->control->destroy_cq(cq);
}

static void notification_is_one_shot(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_cq *cq;
	void *cq_context;
	int i;

	ibv_req_notify_cq(here->cq, 0);
	for (i = 0; i < 2; i++) {
		pair_post_write(p, 0, i);
		scripted_complete(here->qp[0], IBV_WC_SUCCESS);
	}
	assert_true(pair_readable(here->channel->fd));
	assert_int_equal(p->control->get_cq_event(here->channel, &cq, &cq_context), 0);
	assert_ptr_equal(cq, here->cq);
	assert_ptr_equal(cq_context, here);
	assert_int_equal(p->control->get_cq_event(here->channel, &cq, &cq_context),
			 -EAGAIN);
	/* Arming does not look back. */
	ibv_req_notify_cq(here->cq, 0);
	assert_false(pair_readable(here->channel->fd));
	p->control->ack_cq_events(here->cq, 1);
	p->control->ack_cq_events(here->cq, 1);
	assert_int_equal(scripted_faults(here->device), SCRIPTED_FAULT_ACK_EXCESS);
}

static void blocking_for_ever_is_an_error(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *cq_context;

	fcntl(here->channel->fd, F_SETFL, 0);
	fcntl(here->context->async_fd, F_SETFL, 0);
	assert_int_equal(p->control->get_cq_event(here->channel, &cq, &cq_context),
			 -EDEADLK);
	assert_int_equal(p->control->get_async_event(here->context, &event), -EDEADLK);
}

static void solicited_only_waits_for_it(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_qp *qp = p->side[0].qp[0];

	pair_post_recv(there, there->qp[0], 1, 16);
	pair_post_recv(there, there->qp[0], 2, 16);
	ibv_req_notify_cq(there->cq, 1);
	pair_post_simple(p, qp, 1, IBV_WR_SEND, 0);
	pair_post_simple(p, qp, 2, IBV_WR_SEND, IBV_SEND_SOLICITED);
	scripted_land(qp);
	assert_false(pair_readable(there->channel->fd));
	scripted_land(qp);
	assert_true(pair_readable(there->channel->fd));
}

static void errors_count_as_solicited(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];

	ibv_req_notify_cq(here->cq, 1);
	pair_post_write(p, 0, 1);
	pair_post_write(p, 0, 2);
	scripted_complete(here->qp[0], IBV_WC_SUCCESS);
	assert_false(pair_readable(here->channel->fd));
	scripted_complete(here->qp[0], IBV_WC_GENERAL_ERR);
	assert_true(pair_readable(here->channel->fd));
}

static void unacknowledged_events_hold_up_destruction(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_async_event event = {
		.element.qp = here->qp[0],
		.event_type = IBV_EVENT_QP_FATAL,
	};
	struct ibv_cq *cq;
	void *cq_context;

	ibv_req_notify_cq(here->cq, 0);
	pair_to_state(p, here->qp[1], IBV_QPS_ERR);
	pair_post_recv(here, here->qp[1], 1, 4);
	p->control->get_cq_event(here->channel, &cq, &cq_context);
	p->control->destroy_qp(here->qp[1]);
	here->qp[1] = NULL;

	scripted_raise(here->device, event);
	assert_int_equal(p->control->get_async_event(here->context, &event), 0);
	assert_int_equal(p->control->destroy_qp(here->qp[0]), -EBUSY);
	p->control->ack_async_event(&event);
	/* An event that was not taken goes with its object. */
	scripted_raise(here->device, event);
	assert_int_equal(p->control->destroy_qp(here->qp[0]), 0);
	here->qp[0] = NULL;
	assert_false(pair_readable(here->context->async_fd));

	assert_int_equal(p->control->destroy_cq(here->cq), -EBUSY);
	p->control->ack_cq_events(here->cq, 1);
	assert_int_equal(scripted_faults(here->device), SCRIPTED_FAULT_DESTROY_BUSY);
}

/* Two CQs on one channel: the events of the other stay. */
static void events_of_a_dead_cq_vanish(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_qp_init_attr attr = pair_init_attr(here);
	struct ibv_cq *cq, *seen;
	struct ibv_qp *qp;
	void *cq_context;

	p->control->create_cq(here->context, 8, NULL, here->channel, 0, &cq);
	attr.recv_cq = cq;
	p->control->create_qp(here->pd, &attr, &qp);
	pair_to_state(p, qp, IBV_QPS_ERR);
	ibv_req_notify_cq(cq, 0);
	pair_post_recv(here, qp, 1, 4);
	ibv_req_notify_cq(here->cq, 0);
	pair_post_simple(p, qp, 2, IBV_WR_RDMA_WRITE, 0);
	p->control->destroy_qp(qp);
	assert_int_equal(p->control->destroy_cq(cq), 0);
	assert_int_equal(p->control->get_cq_event(here->channel, &seen, &cq_context),
			 0);
	assert_ptr_equal(seen, here->cq);
	assert_false(pair_readable(here->channel->fd));
	p->control->ack_cq_events(here->cq, 1);
}

static void unread_events_are_not_without_end(void **state)
{
	struct pair *p = *state;
	struct ibv_async_event event = { .event_type = IBV_EVENT_DEVICE_FATAL };
	int i;

	for (i = 0; i < 5000; i++)
		scripted_raise(p->side[0].device, event);
	assert_int_equal(scripted_faults(p->side[0].device), SCRIPTED_FAULT_EVENT_LOST);
	pair_expect_async(p, &p->side[0], IBV_EVENT_DEVICE_FATAL);
}

static void used_objects_are_not_destroyed(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	assert_int_equal(p->control->destroy_cq(here->cq), -EBUSY);
	assert_int_equal(p->control->destroy_channel(here->channel), -EBUSY);
	assert_int_equal(p->control->alloc_pd(here->context, &pd), 0);
	assert_int_equal(p->control->reg_mr(pd, here->buffer, 8, 0, &mr), 0);
	assert_int_equal(scripted_live(here->device, SCRIPTED_PD), 1);
	assert_int_equal(scripted_live(here->device, SCRIPTED_MR), 2);
	assert_int_equal(scripted_live(here->device, SCRIPTED_QP), PAIR_LANES);
	assert_int_equal(p->control->dealloc_pd(pd), -EBUSY);
	assert_int_equal(p->control->dereg_mr(mr), 0);
	assert_int_equal(p->control->dealloc_pd(pd), 0);
	assert_int_equal(scripted_live(here->device, SCRIPTED_PD), 0);
	assert_int_equal(scripted_faults(here->device), SCRIPTED_FAULT_DESTROY_BUSY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_PAIR(held_cqs_show_nothing),
		WITH_PAIR(polls_can_be_limited_and_fail),
		WITH_PAIR(overrun_is_sticky_and_raises_an_event),
		WITH_PAIR(notification_is_one_shot),
		WITH_PAIR(blocking_for_ever_is_an_error),
		WITH_PAIR(solicited_only_waits_for_it),
		WITH_PAIR(errors_count_as_solicited),
		WITH_PAIR(unacknowledged_events_hold_up_destruction),
		WITH_PAIR(events_of_a_dead_cq_vanish),
		WITH_PAIR(unread_events_are_not_without_end),
		WITH_PAIR(used_objects_are_not_destroyed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
