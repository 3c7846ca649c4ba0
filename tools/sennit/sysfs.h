/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_SYSFS_H
#define SENNIT_TOOL_SYSFS_H

#include <stdbool.h>
#include <stddef.h>

/* What the kernel reports of RDMA devices besides verbs; "" if unknown. */
struct sysfs_device {
	char pci[32];	   /* "0000:3b:00.0" */
	char link[64];	   /* "16.0 GT/s PCIe x16" */
	char firmware[64]; /* "16.35.2000" */
};

void sysfs_device(const char *name, struct sysfs_device *device);

/* Calls back for each port of each RDMA device. The state is the kernel's: "4: ACTIVE". */
void sysfs_each_port(void (*each)(void *arg, const char *name, unsigned port,
				  const char *state),
		     void *arg);

/* A value below /proc/sys. Returns false if there is none. */
bool sysfs_sysctl(const char *path, char *text, size_t size);

#endif
