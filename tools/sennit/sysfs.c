/* SPDX-License-Identifier: MIT */
#include "sysfs.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOT "/sys/class/infiniband"

/* The first line of a file. */
static bool read_line(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");
	bool got = file && fgets(text, (int)size, file);

	if (file)
		fclose(file);
	if (!got)
		*text = '\0';
	text[strcspn(text, "\n")] = '\0';
	return got;
}

void sysfs_device(const char *name, struct sysfs_device *device)
{
	char path[PATH_MAX], target[PATH_MAX], speed[40], width[16];
	ssize_t length;

	memset(device, 0, sizeof(*device));
	if (!*name)
		return;
	snprintf(path, sizeof(path), ROOT "/%s/fw_ver", name);
	read_line(path, device->firmware, sizeof(device->firmware));
	snprintf(path, sizeof(path), ROOT "/%s/device", name);
	length = readlink(path, target, sizeof(target) - 1);
	if (length < 0)
		return;
	target[length] = '\0';
	/* A device that is not on PCI, such as rxe, is elsewhere in the tree. */
	snprintf(path, sizeof(path), ROOT "/%s/device/current_link_speed", name);
	if (!read_line(path, speed, sizeof(speed)))
		return;
	snprintf(device->pci, sizeof(device->pci), "%.31s",
		 strrchr(target, '/') ? strrchr(target, '/') + 1 : target);
	snprintf(path, sizeof(path), ROOT "/%s/device/current_link_width", name);
	if (read_line(path, width, sizeof(width)))
		snprintf(device->link, sizeof(device->link), "%s x%s", speed, width);
}

static void each_port_of(const char *name,
			 void (*each)(void *arg, const char *name, unsigned port,
				      const char *state),
			 void *arg)
{
	char path[PATH_MAX], state[64];

	for (unsigned port = 1; port <= 255; port++) {
		snprintf(path, sizeof(path), ROOT "/%s/ports/%u/state", name, port);
		if (!read_line(path, state, sizeof(state)))
			return;
		each(arg, name, port, state);
	}
}

void sysfs_each_port(void (*each)(void *arg, const char *name, unsigned port,
				  const char *state),
		     void *arg)
{
	struct dirent **entry;
	int count = scandir(ROOT, &entry, NULL, alphasort);

	for (int i = 0; i < count; i++) {
		if (entry[i]->d_name[0] != '.')
			each_port_of(entry[i]->d_name, each, arg);
		free(entry[i]);
	}
	if (count >= 0)
		free(entry);
}

bool sysfs_sysctl(const char *path, char *text, size_t size)
{
	char whole[PATH_MAX];

	snprintf(whole, sizeof(whole), "/proc/sys/%s", path);
	return read_line(whole, text, size);
}
