/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_SHOW_H
#define TOOL_PERF_SHOW_H

#include <jansson.h>

#include "perf_client.h"
#include "perf_result.h"

/* Results as tables for people, and as JSON (perf_json.c). */

/* The next row, with a heading if it is the first of its series (@before: the row before
 * it; NULL: none). */
void perf_show_row(const struct perf_result *result, const struct perf_result *before);
/* Which lanes carried the last row. */
void perf_show_lanes(const struct perf_result *result);

/* Do they differ only in size? */
bool perf_same_series(const struct perf_case *a, const struct perf_case *b);
/* "write bandwidth, 4 lanes, spray, depth 128" */
#define PERF_TITLE 128
const char *perf_title(char *buffer, const struct perf_case *c);
/* The same with the path that messages took: "..., by shm". */
#define PERF_HEADING (PERF_TITLE + 48)
const char *perf_heading(char *buffer, const struct perf_result *result);
bool perf_same_heading(const struct perf_result *a, const struct perf_result *b);
/* What was lost and sent again in these cases; NULL: nothing. */
const char *perf_loss_note(const struct perf_result *results, int count,
			   char buffer[LOSS_NOTE]);
/* What to do about the receive buffers of an end; NULL: nothing. */
const char *perf_buffer_note(const struct perf_result *results, int count, bool server,
			     char buffer[LOSS_TEXT]);
/* A note on the paths of these figures; NULL: none. */
const char *perf_path_note(const struct perf_result *results, int count);
/* The title without its kind. */
const char *perf_series(char *buffer, const struct perf_case *c);
/* "2.5%": half of the distance between the quartiles of its runs; "-" of one run. */
#define PERF_SPREAD_TEXT 16
const char *perf_spread_text(char *buffer, const struct perf_result *result);
/* "64", "4k", "1m", as typed. */
#define PERF_SIZE_TEXT 24
const char *perf_size_text(char *buffer, uint64_t size);

json_t *perf_json(const struct perf_client *client, const struct perf_result *result);

#endif
