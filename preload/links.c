/* SPDX-License-Identifier: MIT */
/*
 * Where soft devices are in /sys. Programs that arrange devices by their place in the machine,
 * such as NCCL and Mooncake, want the real path of a device, and fail without one:
 *
 *	/sys/class/infiniband/soft0          links to BUS/infiniband/soft0
 *	/sys/class/infiniband/soft0/device   links to BUS
 *	BUS/subsystem                        links to /sys/bus/pci
 *
 * BUS is /sys/devices/virtual/sennit/ffff:00:00.0 for soft0, ffff:01:00.0 for soft1: programs
 * take its last part for a PCI address, sort devices by it, and replace the digits of
 * functions. NCCL must take them for PCI devices, each with an address of its own: it fuses
 * those that it does not, and then finds none of them. There is nothing else, so that they are
 * near no processor.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "preload.h"

#define CLASS	"/sys/class/infiniband/"
#define VIRTUAL "/sys/devices/virtual/sennit"
#define PCI	"/sys/bus/pci"

/* Enough for BUS/infiniband/NAME. */
#define PLACE_MAX 128

typedef char *realpath_function(const char *path, char *resolved);
typedef char *realpath_chk_function(const char *path, char *resolved, size_t size);
typedef ssize_t readlink_function(const char *path, char *target, size_t size);
typedef ssize_t readlink_chk_function(const char *path, char *target, size_t size,
				      size_t buffer_size);

realpath_function snt__preload_realpath __asm__("realpath");
realpath_chk_function snt__preload_realpath_chk __asm__("__realpath_chk");
readlink_function snt__preload_readlink __asm__("readlink");
readlink_chk_function snt__preload_readlink_chk __asm__("__readlink_chk");

static struct {
	realpath_function *realpath;
	realpath_chk_function *__realpath_chk;
	readlink_function *readlink;
	readlink_chk_function *__readlink_chk;
} next;

#define NEXT(name) SNT__PRELOAD_NEXT(next.name, #name)

__attribute__((constructor)) static void look_up_links(void)
{
	NEXT(realpath);
	NEXT(__realpath_chk);
	NEXT(readlink);
	NEXT(__readlink_chk);
}

/* The place of a device; its number is that of its name. Returns the length of BUS. */
static size_t write_place(char place[PLACE_MAX], const struct ibv_device *device)
{
	const char *digits = device->name + strcspn(device->name, "0123456789");
	unsigned number = (unsigned)strtoul(digits, NULL, 10) & 0xff;
	int length = snprintf(place, PLACE_MAX, VIRTUAL "/ffff:%02x:00.0", number);

	snprintf(place + length, PLACE_MAX - (size_t)length, "/infiniband/%.32s",
		 device->name);
	return (size_t)length;
}

/* The name of a soft device is "soft" and its number. */
static const char *behind_bus(const char *path, const struct ibv_device **device_out)
{
	const size_t length = strlen(VIRTUAL "/ffff:00:00.0");
	char bus[PLACE_MAX], name[16];
	unsigned number;

	if (!path || sscanf(path, VIRTUAL "/ffff:%2x:", &number) != 1)
		return NULL;
	snprintf(bus, sizeof(bus), VIRTUAL "/ffff:%02x:00.0", number);
	if (strncmp(path, bus, length) != 0 || (path[length] && path[length] != '/'))
		return NULL;
	snprintf(name, sizeof(name), "soft%u", number);
	*device_out = snt__preload_find(name, strlen(name));
	return *device_out ? path + length : NULL;
}

static bool is_part(const char *part, size_t length, const char *name)
{
	return length == strlen(name) && memcmp(part, name, length) == 0;
}

/* Follows one part of a path. The full length of the place stands for the device's folder, and
 * the other one for BUS: these have links. False: there is no such file. */
static bool follow_part(char *place, size_t full, size_t bus, const char *part,
			size_t length)
{
	char *slash;

	if (!length || is_part(part, length, "."))
		return true;
	if (is_part(part, length, "..")) {
		slash = strrchr(place, '/');
		slash[slash == place] = '\0';
		return true;
	}
	if (strlen(place) == full && is_part(part, length, "device")) {
		place[bus] = '\0';
		return true;
	}
	if (strlen(place) == bus && is_part(part, length, "subsystem")) {
		memcpy(place, PCI, sizeof(PCI));
		return true;
	}
	return false;
}

enum found {
	NOT_SOFT,
	MISSING,
	FOUND,
};

static enum found find_place(const char *path, char place[PLACE_MAX])
{
	const struct ibv_device *device;
	const char *rest = snt__preload_behind_name(path, CLASS, &device);
	const bool in_class = rest;
	size_t bus, full, length;

	if (!rest)
		rest = behind_bus(path, &device);
	if (!rest)
		return NOT_SOFT;
	bus = write_place(place, device);
	full = strlen(place);
	if (!in_class)
		place[bus] = '\0';
	for (; *rest; rest += length + (rest[length] == '/')) {
		length = strcspn(rest, "/");
		if (!follow_part(place, full, bus, rest, length))
			return MISSING;
	}
	return FOUND;
}

static char *copy_place(const char *place, char *resolved)
{
	return resolved ? memcpy(resolved, place, strlen(place) + 1) : strdup(place);
}

char *snt__preload_realpath(const char *path, char *resolved)
{
	char place[PLACE_MAX];

	if (find_place(path, place) == FOUND)
		return copy_place(place, resolved);
	return NEXT(realpath)(path, resolved);
}

/* For programs built with _FORTIFY_SOURCE. */
char *snt__preload_realpath_chk(const char *path, char *resolved, size_t size)
{
	char place[PLACE_MAX];

	if (size >= PATH_MAX && find_place(path, place) == FOUND)
		return copy_place(place, resolved);
	return NEXT(__realpath_chk)(path, resolved, size);
}

/* Is the path one of the links? Then this writes where it leads, as in /sys, and returns the
 * length; else 0. */
static size_t find_target(const char *path, char target[PLACE_MAX])
{
	static const char to_pci[] = "../../../../bus/pci";
	const struct ibv_device *device;
	const char *rest = snt__preload_behind_name(path, CLASS, &device);
	const char *on_bus = rest ? NULL : behind_bus(path, &device);
	char place[PLACE_MAX];
	size_t bus;
	int length;

	if ((rest && !strcmp(rest, "/device/subsystem")) ||
	    (on_bus && !strcmp(on_bus, "/subsystem"))) {
		memcpy(target, to_pci, sizeof(to_pci));
		return strlen(to_pci);
	}
	if (!rest)
		return 0;
	bus = write_place(place, device);
	if (!*rest) {
		length = snprintf(target, PLACE_MAX, "../..%s", place + strlen("/sys"));
		return (size_t)length;
	}
	if (strcmp(rest, "/device") != 0)
		return 0;
	place[bus] = '\0';
	length = snprintf(target, PLACE_MAX, "../../..%s", place + strlen(VIRTUAL));
	return (size_t)length;
}

static ssize_t copy_target(const char *from, size_t length, char *target, size_t size)
{
	if (length > size)
		length = size;
	memcpy(target, from, length);
	return (ssize_t)length;
}

ssize_t snt__preload_readlink(const char *path, char *target, size_t size)
{
	char found[PLACE_MAX];
	size_t length = find_target(path, found);

	if (length && size)
		return copy_target(found, length, target, size);
	return NEXT(readlink)(path, target, size);
}

ssize_t snt__preload_readlink_chk(const char *path, char *target, size_t size,
				  size_t buffer_size)
{
	char found[PLACE_MAX];
	size_t length = find_target(path, found);

	if (length && size && size <= buffer_size)
		return copy_target(found, length, target, size);
	return NEXT(__readlink_chk)(path, target, size, buffer_size);
}
