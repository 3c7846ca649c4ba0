/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

/* What is announced for a device that has no speed of its own, as NCCL's own transports do. */
#define SPEED_UNKNOWN_MBPS 10000
#define DEVICES_MAX	   128

/*
 * Devices are kept until the process ends, since NCCL keeps their names: when the context is
 * opened again the list is made again, and names that have not changed keep their place.
 */
static struct {
	pthread_mutex_t lock;
	struct snt_ctx *ctx;
	unsigned users;
	bool fused;
	int count;
	struct virtual_device device[DEVICES_MAX];
} process = { .lock = PTHREAD_MUTEX_INITIALIZER };

const char *process_setting(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

static void log_line(void *arg, enum snt_log_level level, const char *text)
{
	(void)arg;
	plugin_log(level <= SNT_LOG_WARN ? NCCL_WARN : NCCL_INFO, "%s", text);
}

/* A number that no other device of this host has. */
static uint64_t guid_of(const struct snt_device *device,
			const struct snt_device_info *info)
{
	struct snt_gid_info gid = SNT_INIT(gid);
	uint64_t guid = 0;

	for (uint32_t i = 0; !snt_device_query_gid(device, i, &gid); i++) {
		if ((int32_t)gid.index == info->gid_index)
			memcpy(&guid, gid.raw + 8, sizeof(guid));
	}
	return guid ? guid : info->index + 1;
}

/* The device's folder in /sys, by which NCCL finds out how near it is to each GPU. */
static char *pci_path_of(const struct snt_device_info *info)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", info->name);
	return realpath(path, NULL);
}

static void append_name(struct virtual_device *made, const char *name)
{
	const size_t used = strlen(made->name);

	snprintf(made->name + used, sizeof(made->name) - used, "%s%s", used ? "+" : "",
		 name);
}

/* The virtual device over these devices of the context. */
static struct virtual_device describe_device(uint32_t mask)
{
	struct virtual_device made = { .mask = mask, .port = 1 };

	for (unsigned i = 0; i < snt_ctx_device_count(process.ctx); i++) {
		const struct snt_device *device = snt_ctx_device(process.ctx, i);
		struct snt_device_info info = SNT_INIT(info);

		if (!(mask & UINT32_C(1) << i) || snt_device_query(device, &info))
			continue;
		append_name(&made, info.name);
		made.speed_mbps +=
			info.speed_mbps ? info.speed_mbps : SPEED_UNKNOWN_MBPS;
		made.guid ^= guid_of(device, &info);
		made.port = info.port;
		if (!(mask & (mask - 1)))
			made.pci_path = pci_path_of(&info);
	}
	return made;
}

static bool same_device(const struct virtual_device *a, const struct virtual_device *b)
{
	return a->mask == b->mask && !strcmp(a->name, b->name);
}

/* Puts it at @index, or leaves the one that is there if it is the same. */
static void keep_device(int index, struct virtual_device made,
			const struct nccl_vdevice_v12 *parts)
{
	struct virtual_device *kept = &process.device[index];

	if (parts)
		made.parts = *parts;
	else
		made.parts =
			(struct nccl_vdevice_v12){ .count = 1, .device = { index } };
	if (same_device(kept, &made))
		free(made.pci_path);
	else
		*kept = made;
	process.count = index + 1;
}

static int read_fuse(bool *fused_out)
{
	const char *value = process_setting("SENNIT_NCCL_FUSE");

	if (value && strcmp(value, "on") && strcmp(value, "off"))
		return plugin_fail(NCCL_INVALID_USAGE,
				   "SENNIT_NCCL_FUSE is '%s': use on or off", value);
	*fused_out = !value || !strcmp(value, "on");
	return NCCL_SUCCESS;
}

static void list_devices(void)
{
	const unsigned count = snt_ctx_device_count(process.ctx);

	process.count = 0;
	if (process.fused) {
		keep_device(0, describe_device(UINT32_MAX >> (32 - count)), NULL);
	} else {
		for (unsigned i = 0; i < count; i++)
			keep_device(i, describe_device(UINT32_C(1) << i), NULL);
	}
	for (int i = 0; i < process.count; i++)
		plugin_log(NCCL_INFO, "device %d is %s, %u Mbit/s", i,
			   process.device[i].name, process.device[i].speed_mbps);
}

static int open_locked(void)
{
	struct snt_ctx_opts opts = SNT_INIT(opts, .log = log_line);
	int ret;

	if (process.ctx)
		return NCCL_SUCCESS;
	ret = read_fuse(&process.fused);
	if (ret)
		return ret;
	if (snt_ctx_create(&opts, &process.ctx))
		return plugin_fail(NCCL_SYSTEM_ERROR, "no devices: %s", snt_err_text());
	list_devices();
	return NCCL_SUCCESS;
}

int process_open(nccl_log_fn log)
{
	int ret;

	plugin_set_log(log);
	pthread_mutex_lock(&process.lock);
	ret = open_locked();
	if (!ret)
		process.users++;
	pthread_mutex_unlock(&process.lock);
	return ret;
}

void process_close(void)
{
	pthread_mutex_lock(&process.lock);
	if (!--process.users) {
		net_forget_attempts();
		/* With comms that NCCL has not closed, it stays for the next user. */
		if (!snt_ctx_destroy(process.ctx))
			process.ctx = NULL;
	}
	pthread_mutex_unlock(&process.lock);
}

struct snt_ctx *process_ctx(void)
{
	struct snt_ctx *ctx;

	pthread_mutex_lock(&process.lock);
	ctx = process.ctx;
	pthread_mutex_unlock(&process.lock);
	return ctx;
}

int process_device_count(void)
{
	int count;

	pthread_mutex_lock(&process.lock);
	count = process.ctx ? process.count : 0;
	pthread_mutex_unlock(&process.lock);
	return count;
}

const struct virtual_device *process_device(int index)
{
	const struct virtual_device *found = NULL;
	const int count = process_device_count();

	if (index >= 0 && index < count)
		found = &process.device[index];
	else
		plugin_fail(NCCL_INVALID_USAGE, "no device %d: there are %d", index,
			    count);
	return found;
}

/* 0, with a sentence, if one of the parts cannot be fused. */
static uint32_t mask_of(const struct nccl_vdevice_v12 *parts)
{
	uint32_t mask = 0;

	if (parts->count < 1 || parts->count > NCCL_VDEVICE_MAX_V12) {
		plugin_fail(NCCL_INVALID_USAGE, "%d devices cannot be fused",
			    parts->count);
		return 0;
	}
	for (int i = 0; i < parts->count; i++) {
		const int index = parts->device[i];

		if (index < 0 || index >= process.count ||
		    process.device[index].mask & mask) {
			plugin_fail(NCCL_INVALID_USAGE,
				    "device %d cannot be fused: it does not exist, or "
				    "is named twice",
				    index);
			return 0;
		}
		mask |= process.device[index].mask;
	}
	return mask;
}

/* NCCL attaches devices without a PCI address to its first processor, would fuse all that are
 * there, and does not find again what was made of them: their fusion must fail, so that it uses
 * each. */
static bool have_places(const struct nccl_vdevice_v12 *parts)
{
	for (int i = 0; i < parts->count; i++) {
		const struct virtual_device *part = &process.device[parts->device[i]];

		if (!part->pci_path) {
			plugin_log(NCCL_WARN,
				   "%s has no PCI address, and NCCL cannot use such "
				   "devices fused; SENNIT_NCCL_FUSE=on can",
				   part->name);
			return false;
		}
	}
	return true;
}

static int make_device_locked(const struct nccl_vdevice_v12 *parts, int *index_out)
{
	const uint32_t mask = mask_of(parts);

	if (!mask)
		return NCCL_INVALID_USAGE;
	for (int i = 0; i < process.count; i++) {
		if (process.device[i].mask == mask) {
			*index_out = i;
			return NCCL_SUCCESS;
		}
	}
	if (!have_places(parts))
		return NCCL_INVALID_USAGE;
	if (process.count == DEVICES_MAX)
		return plugin_fail(NCCL_INVALID_USAGE, "more than %d devices",
				   DEVICES_MAX);
	*index_out = process.count;
	keep_device(process.count, describe_device(mask), parts);
	plugin_log(NCCL_INFO, "device %d is made of %s", *index_out,
		   process.device[*index_out].name);
	return NCCL_SUCCESS;
}

int process_make_device(const struct nccl_vdevice_v12 *parts, int *index_out)
{
	int ret;

	pthread_mutex_lock(&process.lock);
	ret = make_device_locked(parts, index_out);
	pthread_mutex_unlock(&process.lock);
	return ret;
}
