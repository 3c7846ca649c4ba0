/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_LOOKUP_H
#define SNT_CONN_LOOKUP_H

#include "conn/carrier.h"

/*
 * Resolves a host's name to addresses, in a thread of its own, since that may take long
 * and cannot be interrupted. The caller is told by an fd, or abandons the lookup at any
 * time: then the thread frees the rest when it is done.
 */

/* Concurrent lookups in the whole process, abandoned ones included. */
#define SNT__LOOKUPS_MAX 64

struct snt__lookup;

/* The fd becomes readable when it is done. -EAGAIN: too many already. */
int snt__lookup_start(const char *host, uint16_t port, struct snt__lookup **lookup_out);
int snt__lookup_fd(const struct snt__lookup *lookup);

/* The result of a finished lookup: as snt__address_find(). */
int snt__lookup_result(const struct snt__lookup *lookup, struct sockaddr_storage *out,
		       unsigned max);

void snt__lookup_drop(struct snt__lookup *lookup);

/* For callers that need the result, with a timeout: as snt__address_find(); -ETIMEDOUT;
 * -EAGAIN. */
int snt__lookup_within(const struct snt__conn_loop *conn_loop, const char *host,
		       uint16_t port, uint64_t timeout_ns, struct sockaddr_storage *out,
		       unsigned max);

/* The number of lookups in progress. */
unsigned snt__lookup_count(void);

#endif
