/* SPDX-License-Identifier: MIT */
#ifndef TOOL_PERF_CONTROL_H
#define TOOL_PERF_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "perf_wire.h"

/*
 * The socket between the two ends, for messages of perf_wire.h. All calls return 0 or a
 * negative errno with a text (perf_error.h).
 */

/* How long an end waits for the rest of a message, or for an answer. */
#define PERF_PATIENCE_NS (UINT64_C(30) * 1000000000)

/* Listens on all addresses, or on one. */
int perf_listen(const char *host, const char *port, int *fd_out);
int perf_dial(const char *host, const char *port, int *fd_out);

int perf_send(int fd, const struct perf_message *message);
/* A message without a body. */
int perf_send_word(int fd, enum perf_type type);
int perf_send_failed(int fd);

/* Waits so long for a message to begin, and at most PERF_PATIENCE_NS for its end.
 * -ECONNRESET: the other end has closed the socket. */
int perf_receive(int fd, uint64_t patience_ns, struct perf_message *message_out);
/* Receives a message of this type only; FAILED is -EREMOTEIO with its text. */
int perf_expect(int fd, enum perf_type type, struct perf_message *message_out);

/* Is there something to receive, or the end of the connection? */
bool perf_told(int fd);

uint64_t perf_now_ns(void);

#endif
