/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_LOOKUP_H
#define SNT_CONN_LOOKUP_H

#include "conn/carrier.h"

/*
 * Finding the addresses of a host by name, in a thread of its own, since that may take
 * long and cannot be interrupted. Whoever asked hears of it by an fd, or lets go of it at
 * any time: then the thread frees what is left when it is done.
 */

/* Threads that look at once, in the whole process, abandoned ones included. */
#define SNT__LOOKUPS_MAX 64

struct snt__lookup;

/* The fd becomes readable when it is done. -EAGAIN: too many already. */
int snt__lookup_start(const char *host, uint16_t port, struct snt__lookup **lookup_out);
int snt__lookup_fd(const struct snt__lookup *lookup);

/* Of one that is done: as snt__address_find(). */
int snt__lookup_result(const struct snt__lookup *lookup, struct sockaddr_storage *out,
		       unsigned max);

void snt__lookup_drop(struct snt__lookup *lookup);

/* For who cannot go on without, but not for longer than that: as snt__address_find();
 * -ETIMEDOUT; -EAGAIN. */
int snt__lookup_within(const struct snt__hub *hub, const char *host, uint16_t port,
		       uint64_t timeout_ns, struct sockaddr_storage *out, unsigned max);

/* How many are under way. */
unsigned snt__lookup_count(void);

#endif
