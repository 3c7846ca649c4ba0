/* SPDX-License-Identifier: MIT */
#include "perf_result.h"

#include <stdlib.h>

void perf_result_free(struct perf_result *result)
{
	free(result->latency);
	result->latency = NULL;
}

static struct spread over_runs(const struct perf_result *result,
			       double (*value)(const struct perf_result *,
					       const struct perf_run *))
{
	double values[PERF_RUNS_MAX] = { 0 };

	for (unsigned i = 0; i < result->run_count; i++)
		values[i] = value(result, &result->run[i]);
	return spread_of(values, result->run_count ? result->run_count : 1);
}

static double messages_per_second(const struct perf_result *result,
				  const struct perf_run *run)
{
	uint64_t messages = run->messages, elapsed_ns = run->elapsed_ns;

	/* What both have sent, in the time of the one that took longer. */
	if (result->c.bidirectional) {
		messages += run->back_messages;
		if (run->back_elapsed_ns > elapsed_ns)
			elapsed_ns = run->back_elapsed_ns;
	}
	return elapsed_ns ? (double)messages * 1e9 / (double)elapsed_ns : 0;
}

static double bytes_per_second(const struct perf_result *result,
			       const struct perf_run *run)
{
	return messages_per_second(result, run) * (double)result->c.size;
}

static double run_p50(const struct perf_result *result, const struct perf_run *run)
{
	(void)result;
	return (double)run->p50_ns;
}

struct spread perf_result_rate(const struct perf_result *result)
{
	return over_runs(result, bytes_per_second);
}

struct spread perf_result_messages(const struct perf_result *result)
{
	return over_runs(result, messages_per_second);
}

struct spread perf_result_p50(const struct perf_result *result)
{
	return over_runs(result, run_p50);
}

unsigned perf_result_paths(const struct perf_result *result)
{
	unsigned paths = 0;

	for (unsigned i = 0; i < result->run_count; i++)
		paths |= result->run[i].client.paths | result->run[i].server.paths;
	return paths;
}

struct loss perf_result_loss(const struct perf_result *result, bool server)
{
	struct loss loss = { 0 };

	for (unsigned i = 0; i < result->run_count; i++)
		loss_add(&loss, server ? &result->run[i].server.loss
				       : &result->run[i].client.loss);
	return loss;
}

double perf_result_cpu(const struct perf_result *result, bool server)
{
	double cpu_ns = 0, elapsed_ns = 0;

	for (unsigned i = 0; i < result->run_count; i++) {
		const struct perf_run *run = &result->run[i];
		const struct perf_use *use = server ? &run->server : &run->client;

		cpu_ns += (double)use->cpu_ns;
		elapsed_ns += (double)use->elapsed_ns;
	}
	return elapsed_ns > 0 ? cpu_ns / elapsed_ns : 0;
}

double perf_result_wakeups(const struct perf_result *result, bool server)
{
	double wakeups = 0, messages = 0;

	for (unsigned i = 0; i < result->run_count; i++) {
		const struct perf_run *run = &result->run[i];

		wakeups += (double)(server ? &run->server : &run->client)->wakeups;
		messages += (double)(run->messages + run->back_messages);
	}
	return messages > 0 ? wakeups / messages : 0;
}

uint64_t perf_result_checked(const struct perf_result *result)
{
	uint64_t checked = 0;

	for (unsigned i = 0; i < result->run_count; i++)
		checked += result->run[i].client.checked_bytes +
			   result->run[i].server.checked_bytes;
	return checked;
}

uint64_t perf_result_wrong(const struct perf_result *result)
{
	uint64_t wrong = 0;

	for (unsigned i = 0; i < result->run_count; i++)
		wrong += result->run[i].client.wrong_bytes +
			 result->run[i].server.wrong_bytes;
	return wrong;
}
