/* SPDX-License-Identifier: MIT */
#include "path.h"

#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>

const char *path_name(enum snt_path path)
{
	static const char *const name[] = { [SNT_PATH_UNKNOWN] = "unknown",
					    [SNT_PATH_PORT] = "port",
					    [SNT_PATH_UDP] = "udp",
					    [SNT_PATH_SHM] = "shm" };

	return name[path <= SNT_PATH_SHM ? path : SNT_PATH_UNKNOWN];
}

const char *path_names(unsigned paths, char buffer[PATH_NAMES])
{
	size_t used = 0;

	/* The fastest first. */
	for (unsigned path = SNT_PATH_SHM; path > SNT_PATH_UNKNOWN; path--)
		if (paths & 1u << path)
			used += (size_t)snprintf(buffer + used, PATH_NAMES - used,
						 "%s%s", used ? "+" : "",
						 path_name((enum snt_path)path));
	if (!used)
		snprintf(buffer, PATH_NAMES, "unknown");
	return buffer;
}

/* The chosen GID; false: there is none. */
static bool chosen_gid(const struct snt_device *device,
		       const struct snt_device_info *info, struct snt_gid_info *gid)
{
	for (uint32_t i = 0; !snt_device_query_gid(device, i, gid); i++)
		if ((int32_t)gid->index == info->gid_index)
			return true;
	return false;
}

const char *path_device(const struct snt_device *device, char buffer[PATH_DEVICE])
{
	struct snt_device_info info = { .size = sizeof(info) };
	struct snt_gid_info gid = { .size = sizeof(gid) };
	char netdev[IF_NAMESIZE] = "";

	if (snt_device_query(device, &info)) {
		snprintf(buffer, PATH_DEVICE, "?");
		return buffer;
	}
	if (!chosen_gid(device, &info, &gid)) {
		snprintf(buffer, PATH_DEVICE, "%s", info.name);
		return buffer;
	}
	if (gid.netdev && !if_indextoname(gid.netdev, netdev))
		*netdev = '\0';
	snprintf(buffer, PATH_DEVICE, "%s (%s%s%s)", info.name, netdev,
		 *netdev ? " " : "", gid.text);
	return buffer;
}
