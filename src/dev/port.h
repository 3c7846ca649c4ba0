/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_PORT_H
#define SNT_DEV_PORT_H

#include "dev/device.h"

/*
 * Queries the device's limits, its port and the port's GIDs, and chooses a GID. Without
 * a control table nothing is known, which is not a failure. On success the caller frees
 * port_out->gid.
 */
int snt__port_probe(const struct snt_device *device, struct snt__port *port_out);

/* 0; -ENETDOWN or -EADDRNOTAVAIL, with a sentence why it cannot carry traffic. */
int snt__port_usable(const struct snt_device *device, const struct snt__port *port);

#endif
