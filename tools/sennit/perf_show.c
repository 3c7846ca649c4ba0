/* SPDX-License-Identifier: MIT */
#include "perf_show.h"

#include <stdio.h>

#include "output.h"
#include "path.h"

bool perf_same_series(const struct perf_case *a, const struct perf_case *b)
{
	return a->kind == b->kind && a->op == b->op && a->scheme == b->scheme &&
	       a->lanes == b->lanes && a->depth == b->depth && a->batch == b->batch &&
	       a->fragment == b->fragment;
}

const char *perf_size_text(char *buffer, uint64_t size)
{
	static const char unit[] = { 0, 'k', 'm', 'g' };
	unsigned i = 0;

	for (; size && !(size % 1024) && i < sizeof(unit) - 1; i++)
		size /= 1024;
	snprintf(buffer, PERF_SIZE_TEXT, "%llu%.1s", (unsigned long long)size,
		 (const char[]){ unit[i], 0 });
	return buffer;
}

static const char *describe_case(char *buffer, const struct perf_case *c,
				 const char *kind)
{
	char fragment[PERF_SIZE_TEXT];
	int used =
		snprintf(buffer, PERF_TITLE, "%s%s%s, %u lane%s", perf_op_name(c->op),
			 kind, c->bidirectional ? ", both directions" : "", c->lanes,
			 c->lanes > 1 ? "s" : "");

	if (c->lanes > 1)
		used += snprintf(buffer + used, PERF_TITLE - (size_t)used, ", %s",
				 perf_scheme_name(c->scheme));
	if (c->kind != PERF_LATENCY)
		used += snprintf(buffer + used, PERF_TITLE - (size_t)used, ", depth %u",
				 c->depth);
	if (c->batch > 1)
		used += snprintf(buffer + used, PERF_TITLE - (size_t)used, ", batch %u",
				 c->batch);
	if (c->fragment)
		snprintf(buffer + used, PERF_TITLE - (size_t)used, ", fragments of %s",
			 perf_size_text(fragment, c->fragment));
	return buffer;
}

const char *perf_title(char *buffer, const struct perf_case *c)
{
	static const char *const kind[] = { "", " bandwidth", " latency",
					    " message rate" };

	return describe_case(buffer, c, kind[c->kind]);
}

const char *perf_series(char *buffer, const struct perf_case *c)
{
	return describe_case(buffer, c, "");
}

const char *perf_heading(char *buffer, const struct perf_result *result)
{
	char title[PERF_TITLE], path[PATH_NAMES];
	unsigned paths = perf_result_paths(result);

	perf_title(title, &result->c);
	snprintf(buffer, PERF_HEADING, "%s%s%s", title, paths ? ", by " : "",
		 paths ? path_names(paths, path) : "");
	return buffer;
}

bool perf_same_heading(const struct perf_result *a, const struct perf_result *b)
{
	return perf_same_series(&a->c, &b->c) &&
	       perf_result_paths(a) == perf_result_paths(b);
}

const char *perf_path_note(const struct perf_result *results, int count)
{
	unsigned paths = 0;

	for (int i = 0; i < count; i++)
		paths |= perf_result_paths(&results[i]);
	if (!(paths & 1u << SNT_PATH_SHM))
		return NULL;
	return "shm: shared memory of two processes on this host, not a network; "
	       "with SENNIT_SOFT_SHM=off soft devices use UDP";
}

static struct loss sum_losses(const struct perf_result *results, int count, bool server)
{
	struct loss loss = { 0 };

	for (int i = 0; i < count; i++) {
		struct loss one = perf_result_loss(&results[i], server);

		if (results[i].run_count)
			loss_add(&loss, &one);
	}
	return loss;
}

const char *perf_loss_note(const struct perf_result *results, int count,
			   char buffer[LOSS_NOTE])
{
	struct loss client = sum_losses(results, count, false);
	struct loss server = sum_losses(results, count, true);

	return loss_note(&client, &server, buffer);
}

const char *perf_buffer_note(const struct perf_result *results, int count, bool server,
			     char buffer[LOSS_TEXT])
{
	struct loss loss = sum_losses(results, count, server);

	return loss_advice(&loss, server ? "server" : "client", buffer);
}

static void show_heading(const struct perf_result *result, bool first)
{
	const struct perf_case *c = &result->c;
	char heading[PERF_HEADING];

	output_text("%s%s\n", first ? "" : "\n", perf_heading(heading, result));
	if (c->kind == PERF_LATENCY)
		output_text("%8s %9s %9s %9s %9s %9s %7s   %-9s\n", "size", "p50 us",
			    "p90", "p99", "p99.9", "max", "spread", "CPU c/s");
	else
		output_text("%8s %9s %7s %12s   %-9s %-13s\n", "size", "Gb/s", "spread",
			    "messages/s", "CPU c/s", "wake-ups c/s");
}

/* How far the middle half of the runs is from the median. */
static double spread_percent(const struct spread *spread)
{
	return spread->median > 0 ? 50 * (spread->high - spread->low) / spread->median
				  : 0;
}

/* A single run has no spread. */
const char *perf_spread_text(char *buffer, const struct perf_result *result)
{
	struct spread spread = result->c.kind == PERF_LATENCY
				       ? perf_result_p50(result)
				       : perf_result_rate(result);

	if (result->run_count > 1)
		snprintf(buffer, PERF_SPREAD_TEXT, "%.1f%%", spread_percent(&spread));
	else
		snprintf(buffer, PERF_SPREAD_TEXT, "-");
	return buffer;
}

static void show_spread(const struct perf_result *result)
{
	char text[PERF_SPREAD_TEXT];

	output_text(" %7s", perf_spread_text(text, result));
}

static const char *verify_verdict(const struct perf_result *result)
{
	if (!result->c.verify)
		return "";
	return perf_result_wrong(result) ? "  WRONG BYTES" : "  verified";
}

static void show_cpu(const struct perf_result *result)
{
	output_text("   %3.0f/%-3.0f%% ", 100 * perf_result_cpu(result, false),
		    100 * perf_result_cpu(result, true));
}

static void show_latency(const struct perf_result *result)
{
	static const double share[] = { 0.5, 0.9, 0.99, 0.999, 1 };

	for (unsigned i = 0; i < sizeof(share) / sizeof(*share); i++)
		output_text(" %9.2f",
			    (double)histogram_at(result->latency, share[i]) / 1000);
	show_spread(result);
	show_cpu(result);
}

static void show_bandwidth(const struct perf_result *result)
{
	struct spread rate = perf_result_rate(result),
		      messages = perf_result_messages(result);

	output_text(" %9.3f", rate.median * 8 / 1e9);
	show_spread(result);
	output_text(" %12.0f", messages.median);
	show_cpu(result);
	output_text(" %5.3f/%-6.3f", perf_result_wakeups(result, false),
		    perf_result_wakeups(result, true));
}

void perf_show_row(const struct perf_result *result, const struct perf_result *before)
{
	char size[PERF_SIZE_TEXT];

	if (!before || !perf_same_heading(before, result))
		show_heading(result, !before);
	output_text("%8s", perf_size_text(size, result->c.size));
	if (*result->failure)
		output_text("  failed: %s", result->failure);
	else if (result->c.kind == PERF_LATENCY)
		show_latency(result);
	else
		show_bandwidth(result);
	output_text("%s\n", *result->failure ? "" : verify_verdict(result));
}

#define LANE_LOSS_TEXT 96

static const char *lane_loss_text(const struct perf_lane_row *lane,
				  char buffer[LANE_LOSS_TEXT])
{
	int length;

	if (!lane->round_trip_ns || !lane->data)
		return "";
	length = snprintf(buffer, LANE_LOSS_TEXT, "  %.0f us",
			  (double)lane->round_trip_ns / 1e3);
	if (lane->resends)
		snprintf(buffer + length, LANE_LOSS_TEXT - (size_t)length,
			 ", %llu sent again", (unsigned long long)lane->resends);
	return buffer;
}

void perf_show_lanes(const struct perf_result *result)
{
	uint64_t all = 0;

	for (unsigned i = 0; i < result->lane_count; i++)
		all += result->lane[i].bytes;
	for (unsigned i = 0; i < result->lane_count; i++) {
		const struct perf_lane_row *lane = &result->lane[i];
		char bytes[OUTPUT_QUANTITY], loss[LANE_LOSS_TEXT];

		output_text(
			"    lane %-3u %-10s %-4s %10llu fragments %11s %5.1f%%%s%s%s\n",
			i, lane->device, path_name(lane->path),
			(unsigned long long)lane->fragments,
			output_bytes(bytes, lane->bytes),
			all ? 100.0 * (double)lane->bytes / (double)all : 0,
			lane->data ? "" : "  (notifications, messages)",
			lane_loss_text(lane, loss), lane->alive ? "" : "  DEAD");
	}
}
