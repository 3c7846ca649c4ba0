/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_PATH_H
#define SENNIT_TOOL_PATH_H

#include <stddef.h>
#include <sennit/device.h>

/* Names for what carries packets, shown with figures. */

/* "shm", "udp", "port"; "unknown". */
const char *path_name(enum snt_path path);

/* Several of them: bit 1 << path of each. "shm", "shm+udp"; "unknown" if there is none. */
#define PATH_NAMES 32
const char *path_names(unsigned paths, char buffer[PATH_NAMES]);

/* "soft0 (lo 127.0.0.1)": a device, its interface and the address it sends from. */
#define PATH_DEVICE 128
const char *path_device(const struct snt_device *device, char buffer[PATH_DEVICE]);

#endif
