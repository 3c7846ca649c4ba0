/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_CM_HUB_H
#define SNT_CONN_CM_HUB_H

#include "conn/hub.h"
#include "dev/cm.h"

/* The connection managers of a context: one for each kind of device that has one. */

#define SNT__CM_KINDS_MAX 4

struct snt__cm_manager {
	struct snt__cm *cm;
	struct snt__hub *hub;
	struct snt__watch watch;
	unsigned device_count;
	unsigned device
		[SNT_DEVICES_MAX]; /* the context's index of each of the manager's devices */
};

struct snt__cm_hub {
	unsigned count;
	struct snt__cm_manager manager[SNT__CM_KINDS_MAX];
};

/* Opens them if they are not open. -EOPNOTSUPP: no device has one. */
int snt__cm_hub_open(struct snt__hub *hub);

/* The addresses that can be connected from and listened on, as text for people. */
const char *snt__cm_hub_addresses(const struct snt__hub *hub, char *text, size_t size);

/* cm.c: the manager has events. */
void snt__cm_ready(struct snt__cm_manager *manager);

#endif
