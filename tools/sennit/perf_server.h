/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_SERVER_H
#define TOOL_PERF_SERVER_H

#include <sennit/loop.h>

/* Serves one client until it closes the socket. Returns 0, or a negative errno with a
 * text (perf_error.h) if it broke the protocol, or vanished. */
int perf_serve_client(struct snt_loop *loop, int control);

#endif
