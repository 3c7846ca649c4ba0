/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_STREAM_H
#define TOOL_PERF_STREAM_H

#include "perf_end.h"
#include "perf_move.h"

/*
 * Messages as pieces of a byte stream, which has no boundaries: the client writes them
 * one after the other, the server reads them and, in latency tests, writes each back.
 */

/* The stream of an end whose QP is made; its beginning, once both are connected; its end,
 * which both wait for, since a QP that went earlier would leave the other's last message
 * without an answer; the end of the QP's traffic. */
int perf_stream_make(struct perf_end *end);
int perf_stream_start(struct perf_end *end);
int perf_stream_end(struct perf_end *end);
void perf_stream_unmake(struct perf_end *end);

/* The client's run. */
int perf_stream_send(struct perf_end *end, const struct perf_goal *goal,
		     struct perf_clock *clock);
/* The server's: what can be done now. Returns how much that was; 0: nothing. */
int perf_stream_take(struct perf_end *end);

#endif
