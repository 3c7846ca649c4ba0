/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_LOCAL_H
#define TOOL_PERF_LOCAL_H

#include <stdbool.h>
#include <stdint.h>

#include "context.h"

/* What two ends on one host share: addresses of soft devices, and processors. */
struct perf_shares {
	struct context_opts client, server;
	char *addresses[2]; /* of the client, of the server; NULL: none were named */
};

/* Both ends get @all, but each its own half of the soft devices' addresses, the client
 * the first, whether they are given by option or by environment. Returns an enum
 * status, having reported any error. */
int perf_shares_make(const struct context_opts *all, struct perf_shares *shares_out);
void perf_shares_free(struct perf_shares *shares);

/* The timeout of QPs unless one is given, as in struct perf_case. */
uint8_t perf_local_timeout(const struct context_opts *all);

/* Restricts the calling thread to its half of the processors: two ends that spin on the
 * same processor, while another is idle, would measure the scheduler. */
void perf_take_half(bool second);

#endif
