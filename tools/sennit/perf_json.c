/* SPDX-License-Identifier: MIT */
/* A result as an object: one for each case, with all that is needed to repeat it. */
#include "output.h"
#include "path.h"
#include "perf_show.h"

static json_int_t json_whole(uint64_t value)
{
	return value > INT64_MAX ? INT64_MAX : (json_int_t)value;
}

static json_t *spread_json(struct spread spread)
{
	return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "median", spread.median,
			 "min", spread.min, "max", spread.max, "low", spread.low,
			 "high", spread.high, "deviation", spread.deviation);
}

static json_t *latency_json(const struct histogram *latency)
{
	static const struct {
		const char *name;
		double share;
	} at[] = { { "p50", 0.5 },
		   { "p90", 0.9 },
		   { "p99", 0.99 },
		   { "p99.9", 0.999 },
		   { "p99.99", 0.9999 } };
	json_t *object =
		json_pack("{s:I, s:f, s:I, s:I}", "count", json_whole(latency->count),
			  "mean", histogram_mean(latency), "min",
			  json_whole(latency->count ? latency->min : 0), "max",
			  json_whole(latency->max));

	for (unsigned i = 0; i < sizeof(at) / sizeof(*at); i++)
		json_object_set_new(object, at[i].name,
				    json_integer(json_whole(
					    histogram_at(latency, at[i].share))));
	return object;
}

static json_t *host_json(const struct perf_hello *hello)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:s}", "host", hello->host, "sennit",
			 hello->version, "kernel", hello->kernel, "cpu", hello->cpu,
			 "devices", hello->devices);
}

static json_t *loss_json(const struct loss *loss)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "resends",
			 json_whole(loss->resends), "probes", json_whole(loss->probes),
			 "timeouts", json_whole(loss->timeouts), "duplicates",
			 json_whole(loss->duplicates), "out_of_order",
			 json_whole(loss->out_of_order), "drops",
			 json_whole(loss->drops), "receive_buffer",
			 json_whole(loss->buffer), "receive_buffer_wanted",
			 json_whole(loss->buffer_wanted));
}

static json_t *use_json(const struct perf_use *use)
{
	return json_pack("{s:I, s:I, s:I, s:o}", "elapsed_ns",
			 json_whole(use->elapsed_ns), "cpu_ns", json_whole(use->cpu_ns),
			 "wakeups", json_whole(use->wakeups), "loss",
			 loss_json(&use->loss));
}

static json_t *runs_json(const struct perf_result *result)
{
	json_t *runs = json_array();

	for (unsigned i = 0; i < result->run_count; i++) {
		const struct perf_run *run = &result->run[i];

		json_t *object = json_pack("{s:I, s:I, s:o, s:o}", "messages",
					   json_whole(run->messages), "elapsed_ns",
					   json_whole(run->elapsed_ns), "client",
					   use_json(&run->client), "server",
					   use_json(&run->server));

		if (result->c.bidirectional)
			json_object_set_new(object, "back",
					    json_pack("{s:I, s:I}", "messages",
						      json_whole(run->back_messages),
						      "elapsed_ns",
						      json_whole(
							      run->back_elapsed_ns)));
		json_array_append_new(runs, object);
	}
	return runs;
}

static json_t *lanes_json(const struct perf_result *result)
{
	json_t *lanes = json_array();

	for (unsigned i = 0; i < result->lane_count; i++) {
		const struct perf_lane_row *lane = &result->lane[i];

		json_array_append_new(
			lanes,
			json_pack(
				"{s:i, s:s, s:s, s:i, s:b, s:b, s:I, s:I, s:I, s:I, s:I, "
				"s:I, s:I, s:I, s:I}",
				"lane", (int)i, "device", lane->device, "path",
				path_name(lane->path), "remote_device",
				(int)lane->remote_device, "data", lane->data, "alive",
				lane->alive, "fragments", json_whole(lane->fragments),
				"bytes", json_whole(lane->bytes), "doorbells",
				json_whole(lane->doorbells), "completions",
				json_whole(lane->completions), "errors",
				json_whole(lane->errors), "resends",
				json_whole(lane->resends), "timeouts",
				json_whole(lane->timeouts), "round_trip_ns",
				json_whole(lane->round_trip_ns), "window",
				json_whole(lane->window)));
	}
	return lanes;
}

static void json_add_case(json_t *object, const struct perf_case *c)
{
	json_t *options = json_pack(
		"{s:s, s:s, s:I, s:i, s:i, s:i, s:s, s:I, s:b, s:b, s:b, s:I}", "test",
		perf_kind_name(c->kind), "op", perf_op_name(c->op), "size",
		json_whole(c->size), "lanes", (int)c->lanes, "depth", (int)c->depth,
		"batch", (int)c->batch, "scheme", perf_scheme_name(c->scheme),
		"fragment", json_whole(c->fragment), "events", c->events, "verify",
		c->verify, "bidirectional", c->bidirectional, "seed",
		json_whole(c->seed));

	json_object_update(object, options);
	json_decref(options);
}

static void add_figures(json_t *object, const struct perf_result *result)
{
	char path[PATH_NAMES];
	json_t *figures = json_pack(
		"{s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:{s:f, s:f}, s:{s:f, s:f}, s:I, s:i}",
		"path", path_names(perf_result_paths(result), path), "bytes_per_second",
		spread_json(perf_result_rate(result)), "messages_per_second",
		spread_json(perf_result_messages(result)), "runs", runs_json(result),
		"lane_rows", lanes_json(result), "verified_bytes",
		json_whole(perf_result_checked(result)), "wrong_bytes",
		json_whole(perf_result_wrong(result)), "cpu", "client",
		perf_result_cpu(result, false), "server", perf_result_cpu(result, true),
		"wakeups_per_message", "client", perf_result_wakeups(result, false),
		"server", perf_result_wakeups(result, true), "fragment_size",
		json_whole(result->fragment_size), "mtu", (int)result->mtu);

	json_object_update(object, figures);
	json_decref(figures);
	if (result->latency)
		json_object_set_new(object, "latency_ns",
				    latency_json(result->latency));
}

json_t *perf_json(const struct perf_client *client, const struct perf_result *result)
{
	json_t *object = output_object();

	json_add_case(object, &result->c);
	json_object_set_new(object, "client", host_json(&client->here));
	json_object_set_new(object, "server", host_json(&client->there));
	if (*result->failure)
		json_object_set_new(object, "failure", json_string(result->failure));
	else
		add_figures(object, result);
	return object;
}
