/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_PROVIDER_H
#define SNT_DEV_PROVIDER_H

#include <sennit/device.h>
#include <stdbool.h>

#include "util/setting.h"

/*
 * A provider is where a context finds devices by name. Adopted devices have
 * none: nobody needs to find or open them.
 */

/* What is there, from list() until unlist(). */
struct snt__listing {
	void *handle;
	unsigned count;
};

struct snt__provider {
	enum snt_device_kind kind;
	const struct snt_control *(*control)(void);
	/* No devices, or no RDMA support at all, is success with count 0. Which
	 * addresses is a question for those who make devices of them. */
	int (*list)(struct snt__value addresses, struct snt__listing *listing_out);
	void (*unlist)(struct snt__listing *listing);
	const char *(*name)(const struct snt__listing *listing, unsigned position);
	int (*open)(const struct snt__listing *listing, unsigned position,
		    struct ibv_context **context_out);
	int (*close)(struct ibv_context *context);
	/* What carries the packets of a QP; with NULL, of any, at best. NULL: the port. */
	enum snt_path (*path)(struct ibv_context *context, struct ibv_qp *qp);
	/* Somebody is about to sleep until the device has something for him. Returns an fd
	 * that he is to watch as well: packets of his do not move unless he says, in
	 * leave(), that it was readable. Whoever gets one leaves soon after he woke up. -1:
	 * none, and nothing to leave. NULL: the same. */
	int (*attend)(struct ibv_context *context);
	void (*leave)(struct ibv_context *context, bool readable);
};

extern const struct snt__provider snt__provider_verbs;
extern const struct snt__provider snt__provider_soft;

#endif
