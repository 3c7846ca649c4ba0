/* SPDX-License-Identifier: MIT */
#include "perf_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "perf_control.h"
#include "perf_error.h"
#include "perf_stream.h"

int perf_client_greet(struct perf_client *client)
{
	struct perf_message message = { .type = PERF_HELLO };
	int ret;

	perf_end_hello(&client->end, &message.hello);
	client->here = message.hello;
	ret = perf_send(client->end.control, &message);
	if (!ret)
		ret = perf_expect(client->end.control, PERF_HELLO, &message);
	if (ret)
		return ret;
	client->there = message.hello;
	client->end.peer_devices = message.hello.device_count;
	return 0;
}

static int set_up_client_case(struct perf_client *client, const struct perf_case *c)
{
	struct perf_message message = { .type = PERF_CASE, .c = *c };
	struct perf_end *end = &client->end;
	struct perf_address peer;
	int ret = perf_end_make(end, c, false);

	if (ret)
		return ret;
	client->under_way = true;
	ret = perf_send(end->control, &message);
	if (!ret)
		ret = perf_expect(end->control, PERF_READY, &message);
	if (ret)
		return ret;
	peer = message.address;
	message = (struct perf_message){ .type = PERF_CONNECT };
	ret = perf_end_address(end, &message.address);
	if (!ret)
		ret = perf_end_connect(end, &peer);
	if (!ret)
		ret = perf_send(end->control, &message);
	if (!ret)
		ret = perf_expect(end->control, PERF_CONNECTED, &message);
	return ret || !end->stream ? ret : perf_stream_start(end);
}

static int move_messages(struct perf_end *end, const struct perf_goal *goal,
			 struct perf_clock *clock)
{
	if (end->stream)
		return perf_stream_send(end, goal, clock);
	if (end->c.kind == PERF_LATENCY)
		return perf_echo_send(end, goal, clock);
	return perf_flow_send(end, goal, clock);
}

/* The server reports how many messages it has sent, of which some may not have been
 * received yet. How long it still sends does not matter. */
static int receive_rest(struct perf_end *end, struct perf_message *result)
{
	bool takes = perf_case_takes(&end->c, false);
	int ret = 0;

	end->expected = UINT64_MAX;
	while (!ret && (end->expected == UINT64_MAX ||
			(takes && end->received < end->expected))) {
		int count = takes ? perf_take_some(end) : 0;

		ret = count < 0 ? count : takes ? perf_end_idle(end, count) : 1;
		if (ret != 1)
			continue;
		ret = perf_expect(end->control, PERF_RESULT, result);
		if (!ret)
			end->expected = result->use.sent;
	}
	if (!ret)
		perf_end_verify_counter(end, end->expected);
	return ret;
}

/* What a lane has carried since it was made. */
static void count_lane(struct perf_lane_row *row, const struct perf_end *end,
		       const struct snt_lane_info *lane, bool pass_through)
{
	row->fragments = lane->fragments;
	row->bytes = pass_through ? end->done * end->c.size : lane->bytes;
	row->doorbells = lane->doorbells;
	row->completions = lane->completions;
	row->errors = lane->errors;
}

/* Lanes as they are after the warm-up, which does not count: take_lanes() subtracts it. */
static void note_lanes(const struct perf_client *client, struct perf_result *result)
{
	struct snt_lane_info lane = { .size = sizeof(lane) };
	struct snt_qp_info qp = { .size = sizeof(qp) };
	const struct perf_end *end = &client->end;

	snt_qp_query(end->qp, &qp);
	for (unsigned i = 0;
	     i < PERF_LANE_ROWS_MAX && !snt_qp_query_lane(end->qp, i, &lane); i++)
		count_lane(&result->lane[i], end, &lane, qp.pass_through);
}

/* One run, of which the server is told the end. */
static int run_on_client(struct perf_client *client, const struct perf_goal *goal,
			 struct perf_run *result)
{
	struct perf_end *end = &client->end;
	struct perf_message message;
	struct perf_clock clock;
	uint64_t back_first = end->expected;
	int ret;

	message =
		(struct perf_message){ .type = PERF_RUN,
				       .limit = { goal->messages, goal->duration_ns } };
	ret = perf_send(end->control, &message);
	if (!ret)
		ret = perf_expect(end->control, PERF_RUNNING, &message);
	if (!ret)
		ret = move_messages(end, goal, &clock);
	if (ret)
		return ret;
	message = (struct perf_message){ .type = PERF_STOP, .messages = end->posted };
	ret = perf_send(end->control, &message);
	if (!ret)
		ret = end->c.bidirectional
			      ? receive_rest(end, &message)
			      : perf_expect(end->control, PERF_RESULT, &message);
	if (ret)
		return ret;
	result->back_messages = end->expected - back_first;
	result->back_elapsed_ns = message.use.elapsed_ns;
	result->messages = end->posted - clock.first;
	result->elapsed_ns = clock.end_ns - clock.begin_ns;
	result->client = end->use;
	result->server = message.use;
	return 0;
}

struct watcher {
	const struct perf_client *client;
	unsigned run;
};

static void report_run_progress(void *arg, uint64_t messages, uint64_t elapsed_ns)
{
	const struct watcher *watcher = arg;

	watcher->client->progress(&watcher->client->end.c, watcher->run,
				  watcher->client->plan.runs, messages, elapsed_ns);
}

static int run_all(struct perf_client *client, struct perf_result *result)
{
	const struct perf_plan *plan = &client->plan;
	struct histogram *latency = calloc(1, sizeof(*latency));
	struct watcher watcher = { client, 0 };
	struct perf_goal goal = { .duration_ns = plan->warmup_ns,
				  .progress =
					  client->progress ? report_run_progress : NULL,
				  .arg = &watcher };
	int ret = latency ? 0 : perf_fail(ENOMEM, "out of memory");

	/* At first the lanes' shares have not settled, and nothing is cached. */
	if (!ret && plan->warmup_ns)
		ret = run_on_client(client, &goal, &result->run[0]);
	if (!ret)
		note_lanes(client, result);
	goal.messages = plan->messages;
	goal.duration_ns = plan->duration_ns;
	goal.timeline = &result->timeline;
	goal.latency = result->latency ? latency : NULL;
	for (unsigned i = 0; i < plan->runs && !ret; i++) {
		watcher.run = i + 1;
		histogram_clear(latency);
		ret = run_on_client(client, &goal, &result->run[i]);
		if (ret)
			break;
		result->run_count++;
		result->run[i].p50_ns = histogram_at(latency, 0.5);
		if (result->latency)
			histogram_add(result->latency, latency);
	}
	free(latency);
	return ret;
}

static void take_lanes(struct perf_client *client, struct perf_result *result)
{
	struct snt_lane_info lane = { .size = sizeof(lane) };
	struct snt_qp_info qp = { .size = sizeof(qp) };
	struct perf_end *end = &client->end;

	if (!snt_qp_query(end->qp, &qp)) {
		result->fragment_size = qp.fragment_size;
		result->mtu = qp.mtu;
	}
	for (unsigned i = 0;
	     i < PERF_LANE_ROWS_MAX && !snt_qp_query_lane(end->qp, i, &lane); i++) {
		struct perf_lane_row *row = &result->lane[result->lane_count++];
		struct perf_lane_row before = *row;
		struct snt_device_info device = { .size = sizeof(device) };

		snt_device_query(snt_ctx_device(end->ctx, lane.device), &device);
		snprintf(row->device, sizeof(row->device), "%s",
			 device.name ? device.name : "?");
		row->remote_device = lane.remote_device;
		row->path = lane.path;
		row->data = i < snt_qp_lane_count(end->qp);
		row->alive = lane.alive;
		count_lane(row, end, &lane, qp.pass_through);
		row->resends = lane.resends;
		row->timeouts = lane.timeouts;
		row->round_trip_ns = lane.round_trip_ns;
		row->window = lane.window;
		row->fragments -= before.fragments;
		row->bytes -= before.bytes;
		row->doorbells -= before.doorbells;
		row->completions -= before.completions;
		row->errors -= before.errors;
	}
}

int perf_client_measure(struct perf_client *client, const struct perf_case *c,
			struct perf_result *result)
{
	struct perf_message message;
	int ret;

	*result = (struct perf_result){ .c = *c };
	if (c->kind == PERF_LATENCY) {
		result->latency = calloc(1, sizeof(*result->latency));
		if (!result->latency)
			return perf_fail(ENOMEM, "out of memory");
		histogram_clear(result->latency);
	}
	ret = set_up_client_case(client, c);
	if (!ret)
		ret = run_all(client, result);
	if (!ret) {
		take_lanes(client, result);
		ret = perf_send_word(client->end.control, PERF_DONE);
	}
	if (!ret && client->end.stream)
		ret = perf_stream_end(&client->end);
	perf_end_unmake(&client->end);
	if (!ret)
		ret = perf_expect(client->end.control, PERF_DONE, &message);
	/* A server that reported an error has given up the case as well. */
	if (!ret || ret == -EREMOTEIO)
		client->under_way = false;
	if (ret)
		snprintf(result->failure, sizeof(result->failure), "%s",
			 perf_error_text());
	return ret;
}
