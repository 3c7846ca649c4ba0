/* SPDX-License-Identifier: MIT */
/* The plots of a report: which results are in each, and what they say in words. */
#include <math.h>

#include "perf_show.h"
#include "report.h"
#include "report_svg.h"

/* More curves than this cannot be told apart. */
#define SERIES_MAX 8
#define POINTS_MAX 128

/*
 * Numbers in few characters
 */

static void size_text(char *buffer, size_t size, double value)
{
	char text[PERF_SIZE_TEXT];

	snprintf(buffer, size, "%s", perf_size_text(text, (uint64_t)llround(value)));
}

static void plain_text(char *buffer, size_t size, double value)
{
	snprintf(buffer, size, "%.3g", value);
}

static void count_text(char *buffer, size_t size, double value)
{
	if (value >= 1e6)
		snprintf(buffer, size, "%.3g M", value / 1e6);
	else if (value >= 1e3)
		snprintf(buffer, size, "%.3g k", value / 1e3);
	else
		snprintf(buffer, size, "%.3g", value);
}

static void time_text(char *buffer, size_t size, double us)
{
	if (us >= 1e6)
		snprintf(buffer, size, "%.3g s", us / 1e6);
	else if (us >= 1e3)
		snprintf(buffer, size, "%.3g ms", us / 1e3);
	else
		snprintf(buffer, size, "%.3g us", us);
}

static void percent_text(char *buffer, size_t size, double value)
{
	snprintf(buffer, size, "%.0f%%", value);
}

static void share_text(char *buffer, size_t size, double share)
{
	snprintf(buffer, size, "%.6g%%", 100 * share);
}

/*
 * Something against size
 */

static double gigabits(const struct perf_result *result)
{
	return perf_result_rate(result).median * 8 / 1e9;
}

static double messages(const struct perf_result *result)
{
	return perf_result_messages(result).median;
}

static double p50_us(const struct perf_result *result)
{
	return (double)histogram_at(result->latency, 0.5) / 1000;
}

static double p99_us(const struct perf_result *result)
{
	return (double)histogram_at(result->latency, 0.99) / 1000;
}

struct against_size {
	unsigned kind; /* of results */
	const char *id, *title, *words;
	struct svg_axis y;
	double (*value)(const struct perf_result *);
	double (*worse)(const struct perf_result *); /* NULL: not shown */
};

static bool is_shown(const struct perf_result *result, unsigned kind)
{
	return result->c.kind == kind && !*result->failure;
}

/* The first result of a series stands for it. */
static bool begins_series(const struct report *report, int i)
{
	for (int j = 0; j < i; j++)
		if (perf_same_series(&report->result[j].c, &report->result[i].c) &&
		    !*report->result[j].failure)
			return false;
	return true;
}

static void draw_series(const struct report *report, const struct against_size *what,
			struct svg_plot *plot, int first)
{
	double x[POINTS_MAX], y[POINTS_MAX], worse[POINTS_MAX];
	unsigned count = 0;

	for (int i = first; i < report->count && count < POINTS_MAX; i++) {
		const struct perf_result *result = &report->result[i];

		if (!is_shown(result, what->kind) ||
		    !perf_same_series(&result->c, &report->result[first].c))
			continue;
		x[count] = (double)result->c.size;
		y[count] = what->value(result);
		worse[count++] = what->worse ? what->worse(result) : 0;
	}
	svg_line(plot, x, y, count, true);
	if (what->worse)
		svg_shadow(plot, x, worse, count);
}

static void draw_against_size(const struct report *report,
			      const struct against_size *what)
{
	struct svg_plot plot = { .file = report->file,
				 .x = { "message size, bytes", SVG_LOG,
					.text = size_text, .base = 2 },
				 .y = what->y };
	char title[PERF_TITLE];
	unsigned series = 0;
	int shown = 0;

	for (int i = 0; i < report->count; i++) {
		const struct perf_result *result = &report->result[i];

		if (!is_shown(result, what->kind))
			continue;
		shown++;
		svg_axis_take(&plot.x, (double)result->c.size);
		svg_axis_take(&plot.y, what->value(result));
		if (what->worse)
			svg_axis_take(&plot.y, what->worse(result));
	}
	if (!shown)
		return;
	fprintf(report->file, "<section><h2>%s</h2>\n", what->title);
	svg_begin(&plot, what->id, what->title, what->words);
	for (int i = 0; i < report->count; i++)
		if (is_shown(&report->result[i], what->kind) &&
		    begins_series(report, i) && plot.series < SERIES_MAX)
			draw_series(report, what, &plot, i);
	svg_end(&plot);
	svg_legend_begin(report->file);
	for (int i = 0; i < report->count && series < SERIES_MAX; i++)
		if (is_shown(&report->result[i], what->kind) &&
		    begins_series(report, i))
			svg_legend(report->file, series++,
				   perf_series(title, &report->result[i].c));
	svg_legend_end(report->file);
	fprintf(report->file, "<p class='dim'>%s</p></section>\n", what->words);
}

/*
 * Percentiles
 */

static unsigned curve(const struct histogram *latency, double *x, double *y)
{
	unsigned count = 0;

	/* Beyond the last value there is none. */
	for (; count < POINTS_MAX; count++) {
		double nines = 0.05 * count, rest = pow(10, -nines);

		if (rest * (double)latency->count < 1 && count > 20)
			break;
		if (nines > 5)
			break;
		x[count] = 1 - rest;
		y[count] = (double)histogram_at(latency, x[count]) / 1000;
	}
	return count;
}

/* Of each series the first and the last size: more lines cannot be told apart. */
static bool has_curve(const struct report *report, int i)
{
	const struct perf_result *result = &report->result[i];

	if (!is_shown(result, PERF_LATENCY) || !result->latency->count)
		return false;
	return !i || i + 1 == report->count ||
	       !perf_same_series(&result[-1].c, &result->c) ||
	       !perf_same_series(&result[1].c, &result->c);
}

static void label_curve(const struct report *report, unsigned series,
			const struct perf_case *c)
{
	char label[PERF_TITLE + PERF_SIZE_TEXT + 2], title[PERF_TITLE],
		size[PERF_SIZE_TEXT];

	snprintf(label, sizeof(label), "%s, %s", perf_series(title, c),
		 perf_size_text(size, c->size));
	svg_legend(report->file, series, label);
}

static void draw_percentiles(const struct report *report)
{
	static const char words[] =
		"How many of all messages took at most how long. Every message was counted; "
		"each line ends where one message is all that is left.";
	struct svg_plot plot = {
		.file = report->file,
		.x = { "share of messages", SVG_NINES, .text = share_text },
		.y = { "latency", SVG_LOG, .text = time_text, .base = 10 }
	};
	double x[POINTS_MAX], y[POINTS_MAX];
	unsigned series = 0;

	for (int i = 0; i < report->count && series < SERIES_MAX; i++) {
		unsigned count;

		if (!has_curve(report, i))
			continue;
		series++;
		count = curve(report->result[i].latency, x, y);
		svg_axis_take(&plot.x, x[count - 1]);
		svg_axis_take(&plot.y, y[0]);
		svg_axis_take(&plot.y, y[count - 1]);
	}
	if (!series)
		return;
	plot.x.min = 0;
	fputs("<section><h2>Percentiles of latency</h2>\n", report->file);
	svg_begin(&plot, "percentiles", "Percentiles of latency", words);
	for (int i = 0; i < report->count && plot.series < SERIES_MAX; i++)
		if (has_curve(report, i))
			svg_line(&plot, x, y, curve(report->result[i].latency, x, y),
				 false);
	svg_end(&plot);
	svg_legend_begin(report->file);
	series = 0;
	for (int i = 0; i < report->count && series < SERIES_MAX; i++)
		if (has_curve(report, i))
			label_curve(report, series++, &report->result[i].c);
	svg_legend_end(report->file);
	fprintf(report->file, "<p class='dim'>%s</p></section>\n", words);
}

/*
 * Lanes
 */

/* The result with the most lanes, and of these the most bytes. */
static const struct perf_result *best_for_lanes(const struct report *report)
{
	const struct perf_result *best = NULL;

	for (int i = 0; i < report->count; i++) {
		const struct perf_result *result = &report->result[i];

		if (*result->failure || result->c.kind == PERF_LATENCY ||
		    result->timeline.lanes < 2 || result->timeline.count < 3)
			continue;
		if (!best || result->timeline.lanes > best->timeline.lanes ||
		    (result->timeline.lanes == best->timeline.lanes &&
		     result->c.size > best->c.size))
			best = result;
	}
	return best;
}

/* What lanes up to @lane sent between a sample and the one before, in percent of all. */
static double share_up_to(const struct perf_timeline *line, unsigned sample,
			  unsigned lane)
{
	const struct perf_sample *now = &line->sample[sample], *before = now - 1;
	uint64_t part = 0, all = 0;

	for (unsigned i = 0; i < line->lanes; i++) {
		uint64_t sent = now->bytes[i] - before->bytes[i];

		all += sent;
		if (i < lane)
			part += sent;
	}
	if (!all && sample > 1)
		return share_up_to(line, sample - 1, lane);
	return all ? 100.0 * (double)part / (double)all : 0;
}

static void draw_lanes(const struct report *report)
{
	static const char words[] =
		"Each lane's share of the bytes that were sent, from the beginning of the last "
		"run to its end.";
	const struct perf_result *result = best_for_lanes(report);
	struct svg_plot plot = { .file = report->file,
				 .x = { "time, ms", SVG_LINEAR, .text = plain_text },
				 .y = { "share of bytes", SVG_LINEAR, 0, 100,
					.text = percent_text } };
	const struct perf_timeline *line;
	char title[PERF_TITLE], size[PERF_SIZE_TEXT];

	if (!result)
		return;
	line = &result->timeline;
	svg_axis_take(&plot.x, (double)line->sample[line->count - 1].at_ns / 1e6);
	plot.x.min = 0;
	fputs("<section><h2>Share of each lane over time</h2>\n", report->file);
	svg_begin(&plot, "lanes", "Share of each lane over time", words);
	for (unsigned lane = 0; lane < line->lanes; lane++) {
		double x[PERF_SAMPLES], low[PERF_SAMPLES], high[PERF_SAMPLES];

		for (unsigned i = 0; i < line->count; i++) {
			x[i] = (double)line->sample[i].at_ns / 1e6;
			low[i] = i ? share_up_to(line, i, lane) : 0;
			high[i] = i ? share_up_to(line, i, lane + 1) : 0;
		}
		svg_area(&plot, x, low, high, line->count);
	}
	svg_end(&plot);
	svg_legend_begin(report->file);
	for (unsigned lane = 0; lane < line->lanes; lane++) {
		char label[64];

		snprintf(label, sizeof(label), "lane %u, %s", lane,
			 result->lane[lane].device);
		svg_legend(report->file, lane, label);
	}
	svg_legend_end(report->file);
	fprintf(report->file, "<p class='dim'>%s %s, %s.</p></section>\n", words,
		perf_title(title, &result->c), perf_size_text(size, result->c.size));
}

void report_plots(const struct report *report)
{
	static const struct against_size all[] = {
		{ PERF_BANDWIDTH,
		  "bandwidth",
		  "Bandwidth against message size",
		  "Payload, in 10^9 bits per second; the median of all runs.",
		  { "Gb/s", SVG_LINEAR, .text = plain_text },
		  gigabits,
		  NULL },
		{ PERF_RATE,
		  "rate",
		  "Message rate against message size",
		  "Messages per second, posted in batches; the median of all runs.",
		  { "messages/s", SVG_LINEAR, .text = count_text },
		  messages,
		  NULL },
		{ PERF_LATENCY,
		  "latency",
		  "Latency against message size",
		  "The median of all messages; dashed: 99 percent took at most so long.",
		  { "latency", SVG_LOG, .text = time_text, .base = 10 },
		  p50_us,
		  p99_us },
	};

	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
		draw_against_size(report, &all[i]);
	draw_percentiles(report);
	draw_lanes(report);
}
