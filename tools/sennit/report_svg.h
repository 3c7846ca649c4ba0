/* SPDX-License-Identifier: MIT */
#ifndef TOOL_REPORT_SVG_H
#define TOOL_REPORT_SVG_H

#include <stdbool.h>
#include <stdio.h>

/*
 * One plot as inline SVG, with a legend in HTML below it. Colours are classes of the
 * page's style; every line also has a mark of its own shape, for readers without
 * colours, and each mark shows its values.
 */

enum svg_scale {
	SVG_LINEAR,
	SVG_LOG,
	SVG_WORDS, /* 1, 2, ...: each has a label */
	SVG_NINES, /* of shares below 1: as much room for 99 to 99.9 % as for 90 to 99 % */
};

#define SVG_LABEL 24

struct svg_axis {
	const char *title;
	enum svg_scale scale;
	double min, max; /* grown by svg_axis_take() */
	/* A value in a few characters. */
	void (*text)(char *buffer, size_t size, double value);
	double base;			/* of SVG_LOG: ticks are its powers */
	const char (*label)[SVG_LABEL]; /* of SVG_WORDS, from 1 to max */
};

void svg_axis_take(struct svg_axis *axis, double value);

struct svg_plot {
	FILE *file;
	struct svg_axis x, y;
	unsigned series; /* drawn so far */
};

/* @id: unique in the page; @description: for screen readers. */
void svg_begin(struct svg_plot *plot, const char *id, const char *title,
	       const char *description);
/* The next series: a line with marks; without @marks a curve. */
void svg_line(struct svg_plot *plot, const double *x, const double *y, unsigned count,
	      bool marks);
/* The same series once more, thin: its worse side. */
void svg_shadow(struct svg_plot *plot, const double *x, const double *y,
		unsigned count);
/* The range of the middle half of the runs; of a series, or of a bar. */
#define SVG_BAR (-1)
void svg_range(struct svg_plot *plot, int series, double x, double low, double high);
/* A bar of a series, about @x; @width: its share of the room for one label. */
void svg_bar(struct svg_plot *plot, unsigned series, double x, double width, double low,
	     double high, const char *label);
/* The next series: the area between two lines of steps. */
void svg_area(struct svg_plot *plot, const double *x, const double *low,
	      const double *high, unsigned count);
void svg_end(struct svg_plot *plot);

void svg_legend_begin(FILE *file);
void svg_legend(FILE *file, unsigned series, const char *label);
void svg_legend_end(FILE *file);

/* Text from outside, escaped for HTML. */
void svg_escape(FILE *file, const char *text);

#endif
