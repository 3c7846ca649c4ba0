/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_PORT_H
#define SNT_DEV_PORT_H

#include "dev/device.h"

/*
 * Asks the device for its limits, its port and the port's GIDs, and chooses a
 * GID. Knows nothing if the device has no control table, which is no failure.
 * On success the caller frees port_out->gid.
 */
int snt__port_probe(const struct snt_device *device, struct snt__port *port_out);

/* 0; -ENETDOWN, -EADDRNOTAVAIL with a sentence why it can carry no traffic. */
int snt__port_usable(const struct snt_device *device, const struct snt__port *port);

#endif
