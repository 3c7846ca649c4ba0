/* SPDX-License-Identifier: MIT */
#ifndef TOOL_REPORT_H
#define TOOL_REPORT_H

#include <stdio.h>

#include "perf_client.h"
#include "perf_result.h"

/* Writes results as one self-contained HTML page: no script, no font, no network.
 * Returns 0 or a negative errno. */
int report_write(const char *path, const struct perf_client *client,
		 const struct perf_result *results, int count);

/* Can a report be written there? Nothing is changed. 0, or -1 with errno. */
int report_check(const char *path);

/* Its parts (report_plots.c). */
struct report {
	FILE *file;
	const struct perf_client *client;
	const struct perf_result *result;
	int count;
};

void report_plots(const struct report *report);

#endif
