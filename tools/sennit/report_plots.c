/* SPDX-License-Identifier: MIT */
/* The plots of a report: which results are in each, and what they say in words. */
#include <math.h>

#include "perf_show.h"
#include "report.h"
#include "report_svg.h"
#include "report_vary.h"

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

static void share_text(char *buffer, size_t size, double share)
{
	snprintf(buffer, size, "%.6g%%", 100 * share);
}

/*
 * Something against what varies
 */

static double plotted_gigabits(const struct perf_result *result)
{
	return perf_result_rate(result).median * 8 / 1e9;
}

static struct spread gigabits_spread(const struct perf_result *result)
{
	struct spread spread = perf_result_rate(result);

	spread.low *= 8 / 1e9;
	spread.high *= 8 / 1e9;
	return spread;
}

static double plotted_messages(const struct perf_result *result)
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

static struct spread p50_spread(const struct perf_result *result)
{
	struct spread spread = perf_result_p50(result);

	spread.low /= 1000;
	spread.high /= 1000;
	return spread;
}

struct figure {
	unsigned kind; /* of results */
	const char *id, *title, *words;
	struct svg_axis y;
	double (*value)(const struct perf_result *);
	struct spread (*spread)(const struct perf_result *);
	double (*worse)(const struct perf_result *); /* NULL: not shown */
};

/* One of them, as it is drawn. */
struct drawing {
	const struct report *report;
	const struct figure *figure;
	enum vary vary;
	struct vary_values values;
	struct svg_plot plot;
	char label[VARY_VALUES][SVG_LABEL];
};

static bool is_shown(const struct drawing *drawing, int i)
{
	return vary_is_shown(&drawing->report->result[i], drawing->figure->kind);
}

/* The first result of a series stands for it. */
static bool begins_series(const struct drawing *drawing, int i)
{
	const struct perf_result *result = drawing->report->result;

	if (!is_shown(drawing, i))
		return false;
	for (int j = 0; j < i; j++)
		if (is_shown(drawing, j) &&
		    vary_same_series(&result[j].c, &result[i].c, drawing->vary))
			return false;
	return true;
}

static unsigned count_series(const struct drawing *drawing)
{
	unsigned count = 0;

	for (int i = 0; i < drawing->report->count; i++)
		count += begins_series(drawing, i);
	return count < SERIES_MAX ? count : SERIES_MAX;
}

/* Where words are: the number of a value, from 1. */
static double value_position(const struct drawing *drawing,
			     const struct perf_result *result)
{
	uint64_t value = vary_value(&result->c, drawing->vary);
	unsigned at = 0;

	while (at < drawing->values.count && drawing->values.value[at] != value)
		at++;
	return at + 1;
}

/* Bars have no worse side. */
static bool has_worse(const struct drawing *drawing)
{
	return drawing->figure->worse && !vary_is_word(drawing->vary);
}

static void draw_spread(struct drawing *drawing, int series,
			const struct perf_result *result, double x)
{
	struct spread spread = drawing->figure->spread(result);

	if (result->run_count > 1)
		svg_range(&drawing->plot, series, x, spread.low, spread.high);
}

/*
 * Lines
 */

static void draw_series(struct drawing *drawing, int first)
{
	double x[POINTS_MAX], y[POINTS_MAX], worse[POINTS_MAX];
	const struct report *report = drawing->report;
	const struct figure *figure = drawing->figure;
	unsigned count = 0;

	for (int i = first; i < report->count && count < POINTS_MAX; i++) {
		const struct perf_result *result = &report->result[i];

		if (!is_shown(drawing, i) ||
		    !vary_same_series(&result->c, &report->result[first].c,
				      drawing->vary))
			continue;
		x[count] = (double)vary_value(&result->c, drawing->vary);
		y[count] = figure->value(result);
		draw_spread(drawing, (int)drawing->plot.series, result, x[count]);
		worse[count++] = figure->worse ? figure->worse(result) : 0;
	}
	svg_line(&drawing->plot, x, y, count, true);
	if (has_worse(drawing))
		svg_shadow(&drawing->plot, x, worse, count);
}

static void draw_lines(struct drawing *drawing)
{
	for (int i = 0; i < drawing->report->count; i++)
		if (begins_series(drawing, i) && drawing->plot.series < SERIES_MAX)
			draw_series(drawing, i);
}

/*
 * Bars
 */

/* All of them stand on the axis, side by side where there are several series. */
static void draw_bars(struct drawing *drawing)
{
	const struct report *report = drawing->report;
	unsigned series = 0, count = count_series(drawing);
	double width = 0.7 / count;

	for (int first = 0; first < report->count && series < count; first++) {
		if (!begins_series(drawing, first))
			continue;
		for (int i = first; i < report->count; i++) {
			const struct perf_result *result = &report->result[i];
			double x = value_position(drawing, result) - 0.35 +
				   (series + 0.5) * width;
			char label[VARY_LABEL];

			if (!is_shown(drawing, i) ||
			    !vary_same_series(&result->c, &report->result[first].c,
					      drawing->vary))
				continue;
			svg_bar(&drawing->plot, series, x, width, drawing->plot.y.min,
				drawing->figure->value(result),
				vary_label(label, &result->c, VARY_COUNT));
			draw_spread(drawing, SVG_BAR, result, x);
		}
		series++;
	}
}

/* The part of all bytes that data lanes below this one have carried. */
static double carried_below(const struct perf_result *result, unsigned lane)
{
	uint64_t part = 0, all = 0;

	for (unsigned i = 0; i < result->lane_count; i++) {
		if (!result->lane[i].data)
			continue;
		all += result->lane[i].bytes;
		if (i < lane)
			part += result->lane[i].bytes;
	}
	return all ? (double)part / (double)all : lane > 0;
}

/* What each lane has carried, on top of the one before it. */
static void draw_stack(struct drawing *drawing, const struct perf_result *result)
{
	double x = value_position(drawing, result),
	       value = drawing->figure->value(result);

	for (unsigned lane = 0; lane < result->lane_count; lane++) {
		char label[64];

		if (!result->lane[lane].data)
			continue;
		snprintf(label, sizeof(label), "lane %u, %s", lane,
			 result->lane[lane].device);
		svg_bar(&drawing->plot, lane, x, 0.6,
			value * carried_below(result, lane),
			value * carried_below(result, lane + 1), label);
	}
	draw_spread(drawing, SVG_BAR, result, x);
}

static void draw_stacks(struct drawing *drawing)
{
	for (int i = 0; i < drawing->report->count; i++)
		if (is_shown(drawing, i))
			draw_stack(drawing, &drawing->report->result[i]);
}

/*
 * Both
 */

/* Stacks show how lanes add up, if there is nothing else to show. */
static bool has_stacks(const struct drawing *drawing)
{
	return drawing->vary == VARY_LANES && drawing->figure->kind != PERF_LATENCY &&
	       count_series(drawing) == 1;
}

static void set_axes(struct drawing *drawing)
{
	const struct figure *figure = drawing->figure;
	struct svg_axis *x = &drawing->plot.x, *y = &drawing->plot.y;

	*x = (struct svg_axis){ vary_axis(drawing->vary), SVG_LOG, .text = size_text,
				.base = 2 };
	*y = figure->y;
	for (int i = 0; i < drawing->report->count; i++) {
		const struct perf_result *result = &drawing->report->result[i];

		if (!is_shown(drawing, i))
			continue;
		svg_axis_take(x, (double)vary_value(&result->c, drawing->vary));
		svg_axis_take(y, figure->value(result));
		svg_axis_take(y, figure->spread(result).high);
		if (has_worse(drawing))
			svg_axis_take(y, figure->worse(result));
	}
	/* Values within a factor of ten or so can be compared by height. */
	if (y->scale == SVG_LOG && y->max < 20 * y->min)
		y->scale = SVG_LINEAR;
	if (y->scale == SVG_LINEAR)
		y->min = 0;
}

static void label_values(struct drawing *drawing)
{
	for (unsigned i = 0; i < drawing->values.count; i++)
		vary_text(drawing->label[i], SVG_LABEL, drawing->vary,
			  drawing->values.value[i]);
	drawing->plot.x.scale = SVG_WORDS;
	drawing->plot.x.max = drawing->values.count;
	drawing->plot.x.label = drawing->label;
}

/* Of the result that has the most lanes. */
static void label_lanes(FILE *file, const struct perf_result *result, unsigned count)
{
	for (unsigned lane = 0; lane < count; lane++) {
		char label[64];

		snprintf(label, sizeof(label), "lane %u, %s", lane,
			 result->lane[lane].device);
		svg_legend(file, lane, label);
	}
}

static void draw_legend(const struct drawing *drawing)
{
	const struct report *report = drawing->report;
	const struct perf_result *most = NULL;
	char label[VARY_LABEL];
	unsigned series = 0;

	svg_legend_begin(report->file);
	for (int i = 0; i < report->count; i++)
		if (is_shown(drawing, i) &&
		    (!most || report->result[i].c.lanes > most->c.lanes))
			most = &report->result[i];
	if (has_stacks(drawing))
		label_lanes(report->file, most,
			    most->c.lanes < SERIES_MAX ? most->c.lanes : SERIES_MAX);
	for (int i = 0; i < report->count && series < SERIES_MAX; i++)
		if (!has_stacks(drawing) && begins_series(drawing, i))
			svg_legend(report->file, series++,
				   vary_label(label, &report->result[i].c,
					      drawing->vary));
	svg_legend_end(report->file);
}

static void draw_caption(const struct drawing *drawing)
{
	const struct report *report = drawing->report;
	char label[VARY_LABEL];
	int first = 0;

	while (!is_shown(drawing, first))
		first++;
	fprintf(report->file, "<p class='dim'>%s%s%s", drawing->figure->words,
		has_worse(drawing) ? " Dashed: the 99th percentile." : "",
		has_stacks(drawing) ? " Each part of a bar is what one lane carried: "
				    : "");
	if (has_stacks(drawing))
		fprintf(report->file, "%s.",
			vary_label(label, &report->result[first].c, VARY_LANES));
	fputs("</p></section>\n", report->file);
}

static void draw_figure(const struct report *report, const struct figure *figure)
{
	struct drawing drawing = { report, figure, .plot = { .file = report->file } };
	bool bandwidth = figure->kind != PERF_LATENCY;
	char title[96];

	drawing.vary = vary_choose(report, figure->kind, bandwidth);
	drawing.values = vary_values_of(report, figure->kind, drawing.vary);
	if (!drawing.values.count)
		return;
	set_axes(&drawing);
	if (has_stacks(&drawing) || vary_is_word(drawing.vary))
		label_values(&drawing);
	snprintf(title, sizeof(title), "%s against %s", figure->title,
		 vary_noun(drawing.vary));
	fprintf(report->file, "<section><h2>%s</h2>\n", title);
	svg_begin(&drawing.plot, figure->id, title, figure->words);
	if (has_stacks(&drawing))
		draw_stacks(&drawing);
	else if (vary_is_word(drawing.vary))
		draw_bars(&drawing);
	else
		draw_lines(&drawing);
	svg_end(&drawing.plot);
	draw_legend(&drawing);
	draw_caption(&drawing);
}

/*
 * Percentiles
 */

static unsigned latency_curve(const struct histogram *latency, double *x, double *y)
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

	if (!vary_is_shown(result, PERF_LATENCY) || !result->latency->count)
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
		count = latency_curve(report->result[i].latency, x, y);
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
			svg_line(&plot, x, y,
				 latency_curve(report->result[i].latency, x, y), false);
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

/* Completions come in bursts, which are not typical of a lane: so many steps are
 * enough. */
#define STEPS 16

/* Sample number @step of so many; the last one is the last. */
static const struct perf_sample *sample_of(const struct perf_timeline *line,
					   unsigned step, unsigned steps)
{
	return &line->sample[(line->count - 1) * step / steps];
}

/* What lanes up to @lane carried between a step and the one before, in Gb/s. */
static double rate_up_to(const struct perf_timeline *line, unsigned step,
			 unsigned steps, unsigned lane)
{
	const struct perf_sample *now = sample_of(line, step, steps),
				 *before = sample_of(line, step - 1, steps);
	double bytes = 0;

	for (unsigned i = 0; i < lane; i++)
		if (now->bytes[i] > before->bytes[i])
			bytes += (double)(now->bytes[i] - before->bytes[i]);
	return now->at_ns > before->at_ns
		       ? bytes * 8 / (double)(now->at_ns - before->at_ns)
		       : 0;
}

static void draw_lanes(const struct report *report)
{
	static const char words[] =
		"What each lane carried during the last run, stacked.";
	const struct perf_result *result = best_for_lanes(report);
	struct svg_plot plot = { .file = report->file,
				 .x = { "time, ms", SVG_LINEAR, .text = plain_text },
				 .y = { "Gb/s", SVG_LINEAR, .text = plain_text } };
	const struct perf_timeline *line;
	char heading[PERF_HEADING], size[PERF_SIZE_TEXT];
	unsigned steps;

	if (!result)
		return;
	line = &result->timeline;
	svg_axis_take(&plot.x, (double)line->sample[line->count - 1].at_ns / 1e6);
	steps = line->count - 1 < STEPS ? line->count - 1 : STEPS;
	for (unsigned i = 1; i <= steps; i++)
		svg_axis_take(&plot.y, rate_up_to(line, i, steps, line->lanes));
	if (plot.y.max <= 0) /* everything was in flight at every sample */
		return;
	plot.x.min = plot.y.min = 0;
	fputs("<section><h2>Bandwidth of each lane over time</h2>\n", report->file);
	svg_begin(&plot, "lanes", "Bandwidth of each lane over time", words);
	for (unsigned lane = 0; lane < line->lanes; lane++) {
		double x[STEPS + 1], low[STEPS + 1], high[STEPS + 1];

		for (unsigned i = 0; i <= steps; i++) {
			x[i] = (double)sample_of(line, i, steps)->at_ns / 1e6;
			low[i] = i ? rate_up_to(line, i, steps, lane) : 0;
			high[i] = i ? rate_up_to(line, i, steps, lane + 1) : 0;
		}
		svg_area(&plot, x, low, high, steps + 1);
	}
	svg_end(&plot);
	svg_legend_begin(report->file);
	label_lanes(report->file, result, line->lanes);
	svg_legend_end(report->file);
	fprintf(report->file, "<p class='dim'>%s %s, %s.</p></section>\n", words,
		perf_heading(heading, result), perf_size_text(size, result->c.size));
}

void report_plots(const struct report *report)
{
	static const struct figure all[] = {
		{ PERF_BANDWIDTH,
		  "bandwidth",
		  "Bandwidth",
		  "Payload, in 10^9 bits per second; the median of all runs.",
		  { "Gb/s", SVG_LINEAR, .text = plain_text },
		  plotted_gigabits,
		  gigabits_spread,
		  NULL },
		{ PERF_RATE,
		  "rate",
		  "Message rate",
		  "Messages per second, posted in batches; the median of all runs.",
		  { "messages/s", SVG_LINEAR, .text = count_text },
		  plotted_messages,
		  perf_result_messages,
		  NULL },
		{ PERF_LATENCY,
		  "latency",
		  "Latency",
		  "The median of all messages.",
		  { "latency", SVG_LOG, .text = time_text, .base = 10 },
		  p50_us,
		  p50_spread,
		  p99_us },
	};

	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
		draw_figure(report, &all[i]);
	draw_percentiles(report);
	draw_lanes(report);
}
