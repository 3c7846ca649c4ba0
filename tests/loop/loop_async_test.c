/* SPDX-License-Identifier: MIT */
/*
 * Events of devices: typed, named, acknowledged.
 */
#include "lib/test.h"

#include <fcntl.h>

#include "lib/loop_kit.h"

static struct snt_event got[16];
static char texts[16][160];
static unsigned got_count;
static struct loop_pair *pair;

static void note(void *arg, const struct snt_event *event)
{
	assert_ptr_equal(arg, &pair);
	assert_true(got_count < ARRAY_SIZE(got));
	snprintf(texts[got_count], sizeof(texts[0]), "%s", event->text);
	got[got_count++] = *event;
}

static void open_pair(void)
{
	pair = loop_pair_lanes(SNT_SCHEME_SPRAY, SNT_CQ_OPS_EVENTS);
	got_count = 0;
}

static void raise_for(enum ibv_event_type type, struct ibv_qp *qp)
{
	struct ibv_async_event event = { .event_type = type };

	if (qp)
		event.element.qp = qp;
	else
		event.element.port_num = 1;
	scripted_raise(pair->end[0].device[1], event);
}

static void events_are_typed_and_named(void **state)
{
	static const struct {
		enum ibv_event_type verbs;
		enum snt_event_type type;
		bool of_port;
	} cases[] = {
		{ IBV_EVENT_PORT_ERR, SNT_EVENT_PORT_DOWN, true },
		{ IBV_EVENT_PORT_ACTIVE, SNT_EVENT_PORT_ACTIVE, true },
		{ IBV_EVENT_GID_CHANGE, SNT_EVENT_GID_CHANGE, true },
		{ IBV_EVENT_LID_CHANGE, SNT_EVENT_LID_CHANGE, true },
		{ IBV_EVENT_DEVICE_FATAL, SNT_EVENT_DEVICE_FATAL, false },
		{ IBV_EVENT_CLIENT_REREGISTER, SNT_EVENT_OTHER, true },
	};
	struct snt_loop *loop;

	(void)state;
	open_pair();
	loop = pair->end[0].loop;
	assert_success(snt_loop_set_event_handler(loop, note, &pair));
	assert_success(snt_loop_fd(loop));
	assert_success(snt_loop_dispatch(loop, 0));
	assert_false(loop_readable(loop));
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		raise_for(cases[i].verbs, NULL);
		assert_true(loop_readable(loop));
		assert_int_equal(snt_loop_dispatch(loop, 0), 1);
		assert_int_equal(got[i].type, cases[i].type);
		assert_int_equal(got[i].verbs_type, cases[i].verbs);
		assert_int_equal(got[i].device, 1);
		assert_int_equal(got[i].port, cases[i].of_port ? 1 : 0);
		assert_non_null(strstr(texts[i], got[i].device_name));
		assert_false(loop_readable(loop));
	}
	loop_pair_close(pair);
}

static void a_lane_is_known_by_its_qp(void **state)
{
	struct loop_end *end;
	struct ibv_qp *lane;

	(void)state;
	open_pair();
	end = &pair->end[0];
	lane = scripted_qp_at(end->device[1], 0);
	assert_success(snt_loop_set_event_handler(end->loop, note, &pair));
	raise_for(IBV_EVENT_QP_FATAL, lane);
	/* Without an fd as well. */
	assert_int_equal(snt_loop_dispatch(end->loop, 0), 1);
	assert_int_equal(got[0].type, SNT_EVENT_QP_FATAL);
	assert_int_equal(got[0].qp_num, lane->qp_num);
	assert_ptr_equal(got[0].qp, end->qp);
	assert_non_null(strstr(texts[0], "a lane of QP"));
	loop_pair_close(pair);
}

/* Also on a CQ that the loop polls without events. */
static void a_polled_lane_is_known_by_its_qp(void **state)
{
	struct loop_end *end;
	struct ibv_qp *lane;

	(void)state;
	pair = loop_pair_lanes(SNT_SCHEME_SPRAY, SNT_CQ_OPS_POLLED);
	got_count = 0;
	end = &pair->end[0];
	lane = scripted_qp_at(end->device[1], 0);
	assert_success(snt_loop_set_event_handler(end->loop, note, &pair));
	raise_for(IBV_EVENT_QP_FATAL, lane);
	assert_int_equal(snt_loop_dispatch(end->loop, 0), 1);
	assert_int_equal(got[0].qp_num, lane->qp_num);
	assert_ptr_equal(got[0].qp, end->qp);
	loop_pair_close(pair);
}

/* Whichever of them reads it; only the loop that a QP is in knows the QP. */
static void every_loop_gets_every_event(void **state)
{
	struct snt_loop *loop[2];
	struct loop_end *end;
	struct ibv_qp *lane;

	(void)state;
	open_pair();
	end = &pair->end[0];
	loop[0] = end->loop;
	lane = scripted_qp_at(end->device[1], 0);
	assert_success(snt_loop_create(end->ctx, NULL, &loop[1]));
	for (unsigned i = 0; i < 2; i++) {
		assert_success(snt_loop_set_event_handler(loop[i], note, &pair));
		assert_success(snt_loop_fd(loop[i]));
		assert_success(snt_loop_dispatch(loop[i], 0));
	}
	for (unsigned first = 0; first < 2; first++) {
		got_count = 0;
		raise_for(IBV_EVENT_QP_FATAL, lane);
		for (unsigned i = 0; i < 2; i++) {
			struct snt_loop *next = loop[first ^ i];

			assert_true(loop_readable(next));
			assert_int_equal(snt_loop_dispatch(next, 0), 1);
			assert_int_equal(got[i].type, SNT_EVENT_QP_FATAL);
			assert_int_equal(got[i].qp_num, lane->qp_num);
			assert_ptr_equal(got[i].qp, first ^ i ? NULL : end->qp);
		}
		assert_int_equal(got_count, 2);
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(snt_loop_dispatch(loop[i], 0), 0);
			assert_false(loop_readable(loop[i]));
		}
	}
	/* One that is passed on to a loop which closes is dropped. */
	raise_for(IBV_EVENT_PORT_ERR, NULL);
	assert_int_equal(snt_loop_dispatch(loop[0], 0), 1);
	assert_success(snt_loop_destroy(loop[1]));
	assert_int_equal(got_count, 3);
	loop_pair_close(pair);
}

static void untouched_before_and_after(void **state)
{
	struct ibv_async_event event;
	struct ibv_context *context;
	const struct snt_control *control;
	struct snt_loop *loop;

	(void)state;
	open_pair();
	loop = pair->end[0].loop;
	context = snt_device_context(snt_ctx_device(pair->end[0].ctx, 1));
	control = snt_device_control(snt_ctx_device(pair->end[0].ctx, 1));
	assert_success(snt_loop_fd(loop));
	assert_success(snt_loop_dispatch(loop, 0));
	assert_false(fcntl(context->async_fd, F_GETFL) & O_NONBLOCK);
	raise_for(IBV_EVENT_PORT_ERR, NULL);
	assert_false(loop_readable(loop));
	assert_int_equal(snt_loop_dispatch(loop, 0), 0);
	assert_success(snt_loop_set_event_handler(loop, note, &pair));
	assert_true(loop_readable(loop));
	assert_int_equal(snt_loop_dispatch(loop, 0), 1);
	assert_success(snt_loop_set_event_handler(loop, NULL, NULL));
	raise_for(IBV_EVENT_PORT_ERR, NULL);
	assert_false(loop_readable(loop));
	assert_int_equal(snt_loop_dispatch(loop, 0), 0);
	assert_int_equal(got_count, 1);
	assert_success(control->get_async_event(context, &event));
	control->ack_async_event(&event);
	loop_pair_close(pair);
}

static void budgets_hold(void **state)
{
	struct snt_loop *loop;

	(void)state;
	open_pair();
	loop = pair->end[0].loop;
	assert_success(snt_loop_set_event_handler(loop, note, &pair));
	assert_success(snt_loop_fd(loop));
	assert_success(snt_loop_dispatch(loop, 0));
	for (int i = 0; i < 5; i++)
		raise_for(IBV_EVENT_GID_CHANGE, NULL);
	assert_int_equal(snt_loop_dispatch(loop, 2), 2);
	assert_true(loop_readable(loop));
	assert_int_equal(snt_loop_dispatch(loop, 0), 3);
	while (loop_readable(loop))
		assert_int_equal(snt_loop_dispatch(loop, 0), 0);
	assert_int_equal(got_count, 5);
	loop_pair_close(pair);
}

static void destroy_it(void *arg, const struct snt_event *event)
{
	(void)arg;
	got_count++;
	assert_ptr_equal(event->qp, pair->end[0].qp);
	assert_success(snt_qp_destroy(event->qp));
	pair->end[0].qp = NULL;
	assert_success(snt_loop_set_event_handler(pair->end[0].loop, NULL, NULL));
}

/* A device waits with destroying for the acknowledgement. */
static void the_function_may_destroy_what_it_is_about(void **state)
{
	struct loop_opts opts = { .ops = SNT_CQ_OPS_EVENTS,
				  .unconnected = true,
				  .devices = 2 };

	(void)state;
	pair = loop_pair_open(&opts);
	got_count = 0;
	assert_success(snt_loop_set_event_handler(pair->end[0].loop, destroy_it, NULL));
	raise_for(IBV_EVENT_QP_ACCESS_ERR, scripted_qp_at(pair->end[0].device[1], 0));
	raise_for(IBV_EVENT_PORT_ERR, NULL);
	assert_int_equal(snt_loop_dispatch(pair->end[0].loop, 0), 1);
	assert_int_equal(got_count, 1);
	loop_pair_close(pair);
}

static void close_end(void *arg, const struct snt_event *event)
{
	struct loop_end *end = arg;

	(void)event;
	got_count++;
	assert_success(snt_qp_destroy(end->qp));
	assert_success(snt_cq_destroy(end->cq));
	assert_success(snt_mem_release(end->mem));
	assert_success(snt_loop_destroy(end->loop));
	assert_success(snt_ctx_destroy(end->ctx));
	free(end->buffer);
}

static void the_function_may_close_the_loop(void **state)
{
	struct loop_opts opts = { .ops = SNT_CQ_OPS_EVENTS,
				  .unconnected = true,
				  .devices = 2 };

	(void)state;
	pair = loop_pair_open(&opts);
	got_count = 0;
	assert_success(snt_loop_set_event_handler(pair->end[0].loop, close_end,
						  &pair->end[0]));
	assert_success(snt_loop_fd(pair->end[0].loop));
	raise_for(IBV_EVENT_PORT_ERR, NULL);
	raise_for(IBV_EVENT_PORT_ACTIVE, NULL);
	assert_int_equal(snt_loop_dispatch(pair->end[0].loop, 0), 1);
	assert_int_equal(got_count, 1);
	close_end(&pair->end[1], NULL);
	assert_int_equal(scripted_fabric_destroy(pair->fabric), 0);
	free(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_are_typed_and_named),
		cmocka_unit_test(a_lane_is_known_by_its_qp),
		cmocka_unit_test(a_polled_lane_is_known_by_its_qp),
		cmocka_unit_test(every_loop_gets_every_event),
		cmocka_unit_test(untouched_before_and_after),
		cmocka_unit_test(budgets_hold),
		cmocka_unit_test(the_function_may_destroy_what_it_is_about),
		cmocka_unit_test(the_function_may_close_the_loop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
