/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_LOCAL_H
#define TOOL_PERF_LOCAL_H

#include <stdbool.h>

#include "context.h"

/* What two ends on one host share: addresses of soft devices, and processors. */
struct perf_shares {
	struct context_opts client, server;
	char *addresses[2]; /* of the client, of the server; NULL: none were named */
};

/* Both ends get @all, but each its own half of the soft devices' addresses, the client the
 * first, whether they are named by option or by environment. Returns an enum status, having
 * said what is wrong. */
int perf_shares_make(const struct context_opts *all, struct perf_shares *shares_out);
void perf_shares_free(struct perf_shares *shares);

/* Two ends that spin on the same processor, while another is idle, would measure the
 * scheduler: restricts the calling thread to its half. */
void perf_take_half(bool second);

#endif
