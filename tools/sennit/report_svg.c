/* SPDX-License-Identifier: MIT */
#include "report_svg.h"

#include <math.h>
#include <string.h>

#define WIDTH  480.0
#define HEIGHT 300.0
#define LEFT   70.0
#define RIGHT  14.0
#define TOP    14.0
#define BOTTOM 48.0
#define LETTER 7.0 /* about as wide as one of 13 px */

/* As many as the page has colours, and shapes of marks. */
#define COLOURS 8
#define SHAPES	4

void svg_escape(FILE *file, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '<':
			fputs("&lt;", file);
			break;
		case '>':
			fputs("&gt;", file);
			break;
		case '&':
			fputs("&amp;", file);
			break;
		case '"':
			fputs("&quot;", file);
			break;
		default:
			fputc(*text, file);
		}
	}
}

/*
 * Axes
 */

void svg_axis_take(struct svg_axis *axis, double value)
{
	if (axis->min == axis->max && !axis->min)
		axis->min = axis->max = value;
	if (value < axis->min)
		axis->min = value;
	if (value > axis->max)
		axis->max = value;
}

static double scale_value(const struct svg_axis *axis, double value)
{
	switch (axis->scale) {
	case SVG_LOG:
		return log(value > 0 ? value : axis->min) / log(axis->base);
	case SVG_NINES:
		return -log10(1 - value);
	case SVG_WORDS:
	default:
		return value;
	}
}

/* From 0 to 1. */
static double axis_position(const struct svg_axis *axis, double value)
{
	double low = scale_value(axis, axis->min), high = scale_value(axis, axis->max);

	if (axis->scale == SVG_WORDS)
		return (value - 0.5) / axis->max;
	return high > low ? (scale_value(axis, value) - low) / (high - low) : 0.5;
}

static double at_x(const struct svg_plot *plot, double value)
{
	return LEFT + axis_position(&plot->x, value) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const struct svg_plot *plot, double value)
{
	return HEIGHT - BOTTOM -
	       axis_position(&plot->y, value) * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten, so that there are about five of them. */
static double linear_step(const struct svg_axis *axis)
{
	double rough = (axis->max - axis->min) / 5,
	       power = pow(10, floor(log10(rough)));
	double times = rough / power;

	return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

/* It ends with a tick, just beyond the values. */
static void round_axis(struct svg_axis *axis)
{
	if (axis->scale == SVG_LINEAR) {
		double step;

		if (axis->max <= axis->min)
			axis->max = axis->min + 1;
		step = linear_step(axis);
		axis->min = floor(axis->min / step) * step;
		axis->max = ceil(axis->max / step) * step;
	} else if (axis->scale == SVG_LOG) {
		double low = floor(scale_value(axis, axis->min) + 1e-9),
		       high = ceil(scale_value(axis, axis->max) - 1e-9);

		/* A value that is alone is in the middle. */
		if (high <= low) {
			low -= 1;
			high += 1;
		}
		axis->min = pow(axis->base, low);
		axis->max = pow(axis->base, high);
	}
}

/* The tick after @value, or the first one if it is below the axis. */
static double next_tick(const struct svg_axis *axis, double value)
{
	if (axis->scale == SVG_NINES)
		return value < 0 ? 0 : 1 - (1 - value) / 10;
	if (value < axis->min)
		return axis->min;
	if (axis->scale == SVG_LOG) {
		double powers =
			scale_value(axis, axis->max) - scale_value(axis, axis->min);

		return value * pow(axis->base, ceil(powers / 6));
	}
	return value + linear_step(axis);
}

/* Many labels take turns on two lines, so that they do not run into each other. */
static void draw_word_labels(const struct svg_plot *plot)
{
	unsigned count = (unsigned)plot->x.max, lines = count > 5 ? 2 : 1;

	for (unsigned i = 0; i < count; i++)
		fprintf(plot->file, "<text class='m' x='%.1f' y='%.1f'>%s</text>\n",
			at_x(plot, i + 1), HEIGHT - BOTTOM + 14 + i % lines * 13,
			plot->x.label[i]);
}

/* Below its tick, unless its last letters would be outside of the plot. */
static void draw_label(const struct svg_plot *plot, double x, const char *text)
{
	bool is_last = x + (double)strlen(text) * LETTER / 2 > WIDTH;

	fprintf(plot->file, "<text class='%c' x='%.1f' y='%.1f'>%s</text>\n",
		is_last ? 'e' : 'm', is_last ? WIDTH : x, HEIGHT - BOTTOM + 16, text);
}

static void draw_ticks(const struct svg_plot *plot, bool vertical)
{
	const struct svg_axis *axis = vertical ? &plot->y : &plot->x;
	double value = next_tick(axis, axis->min > 0 ? 0 : axis->min - 1);

	/* A little beyond, because of rounding. */
	for (; axis_position(axis, value) < 1.001; value = next_tick(axis, value)) {
		double x = at_x(plot, value), y = at_y(plot, value);
		char text[32];

		axis->text(text, sizeof(text), value);
		if (vertical)
			fprintf(plot->file,
				"<path class='g' d='M%.1f %.1fH%.1f'/><text class='e' "
				"x='%.1f' y='%.1f'>%s</text>\n",
				LEFT, y, WIDTH - RIGHT, LEFT - 6, y + 4, text);
		else
			fprintf(plot->file, "<path class='g' d='M%.1f %.1fV%.1f'/>", x,
				TOP, HEIGHT - BOTTOM);
		if (!vertical)
			draw_label(plot, x, text);
	}
}

/*
 * The plot
 */

void svg_begin(struct svg_plot *plot, const char *id, const char *title,
	       const char *description)
{
	if (plot->x.scale == SVG_LOG)
		round_axis(&plot->x);
	round_axis(&plot->y);
	plot->series = 0;
	fprintf(plot->file,
		"<svg viewBox='0 0 %.0f %.0f' role='img' aria-labelledby='%s-t %s-d'>"
		"<title id='%s-t'>%s</title><desc id='%s-d'>",
		WIDTH, HEIGHT, id, id, id, title, id);
	svg_escape(plot->file, description);
	fputs("</desc>\n", plot->file);
	if (plot->x.scale == SVG_WORDS)
		draw_word_labels(plot);
	else
		draw_ticks(plot, false);
	draw_ticks(plot, true);
	fprintf(plot->file,
		"<text class='m t' x='%.1f' y='%.1f'>%s</text>"
		"<text class='m t' transform='translate(12 %.1f) rotate(-90)'>%s</text>\n",
		(LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, plot->x.title,
		(TOP + HEIGHT - BOTTOM) / 2, plot->y.title);
}

/* A circle, a square, a diamond, a triangle, about (0, 0). */
static const char *const shape[SHAPES] = {
	"M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0",
	"M-3.2 -3.2h6.4v6.4h-6.4z",
	"M0 -4.5L4.5 0L0 4.5L-4.5 0z",
	"M0 -4.4L4.2 3.4H-4.2z",
};

static void draw_mark(const struct svg_plot *plot, unsigned series, double x, double y)
{
	char x_text[32], y_text[32];

	plot->x.text(x_text, sizeof(x_text), x);
	plot->y.text(y_text, sizeof(y_text), y);
	fprintf(plot->file,
		"<path class='f%u' transform='translate(%.1f %.1f)' d='%s'>"
		"<title>%s: %s</title></path>\n",
		series % COLOURS, at_x(plot, x), at_y(plot, y), shape[series % SHAPES],
		x_text, y_text);
}

static void draw_path(const struct svg_plot *plot, const char *class, unsigned series,
		      const double *x, const double *y, unsigned count)
{
	fprintf(plot->file, "<path class='%s%u' d='", class, series % COLOURS);
	for (unsigned i = 0; i < count; i++)
		fprintf(plot->file, "%c%.1f %.1f", i ? 'L' : 'M', at_x(plot, x[i]),
			at_y(plot, y[i]));
	fputs("'/>\n", plot->file);
}

void svg_line(struct svg_plot *plot, const double *x, const double *y, unsigned count,
	      bool marks)
{
	unsigned series = plot->series++;

	draw_path(plot, "l", series, x, y, count);
	for (unsigned i = 0; marks && i < count; i++)
		draw_mark(plot, series, x[i], y[i]);
}

void svg_shadow(struct svg_plot *plot, const double *x, const double *y, unsigned count)
{
	draw_path(plot, "s l", plot->series - 1, x, y, count);
}

void svg_range(struct svg_plot *plot, int series, double x, double low, double high)
{
	double middle = at_x(plot, x), top = at_y(plot, high), bottom = at_y(plot, low);
	char class[16] = "w";

	if (series != SVG_BAR)
		snprintf(class, sizeof(class), "w l%u", (unsigned)series % COLOURS);

	fprintf(plot->file,
		"<path class='%s' d='M%.1f %.1fV%.1fM%.1f %.1fh8M%.1f %.1fh8'/>\n",
		class, middle, top, bottom, middle - 4, top, middle - 4, bottom);
}

void svg_bar(struct svg_plot *plot, unsigned series, double x, double width, double low,
	     double high, const char *label)
{
	char text[32];

	plot->y.text(text, sizeof(text), high - low);
	fprintf(plot->file,
		"<path class='b f%u' d='M%.1f %.1fH%.1fV%.1fH%.1fz'><title>",
		series % COLOURS, at_x(plot, x - width / 2), at_y(plot, high),
		at_x(plot, x + width / 2), at_y(plot, low), at_x(plot, x - width / 2));
	svg_escape(plot->file, label);
	fprintf(plot->file, ": %s</title></path>\n", text);
}

/* Steps: each value holds from the place before to its own. */
void svg_area(struct svg_plot *plot, const double *x, const double *low,
	      const double *high, unsigned count)
{
	fprintf(plot->file, "<path class='a f%u' d='", plot->series++ % COLOURS);
	for (unsigned i = 1; i < count; i++)
		fprintf(plot->file, "%c%.1f %.1fH%.1f", i > 1 ? 'L' : 'M',
			at_x(plot, x[i - 1]), at_y(plot, high[i]), at_x(plot, x[i]));
	for (unsigned i = count - 1; i > 0; i--)
		fprintf(plot->file, "L%.1f %.1fH%.1f", at_x(plot, x[i]),
			at_y(plot, low[i]), at_x(plot, x[i - 1]));
	fputs("z'/>\n", plot->file);
}

void svg_end(struct svg_plot *plot)
{
	fputs("</svg>\n", plot->file);
}

void svg_legend_begin(FILE *file)
{
	fputs("<ul class='legend'>\n", file);
}

void svg_legend(FILE *file, unsigned series, const char *label)
{
	fprintf(file,
		"<li><svg class='key' viewBox='-6 -6 12 12' aria-hidden='true'>"
		"<path class='f%u' d='%s'/></svg>",
		series % COLOURS, shape[series % SHAPES]);
	svg_escape(file, label);
	fputs("</li>\n", file);
}

void svg_legend_end(FILE *file)
{
	fputs("</ul>\n", file);
}
