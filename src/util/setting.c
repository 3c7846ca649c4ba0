/* SPDX-License-Identifier: MIT */
#include "util/setting.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "util/err.h"

#define PREFIX "SENNIT_"

static const struct snt_setting settings[SNT__SETTING_COUNT] = {
	[SNT__SETTING_DEVICES] = {
		.name = "SENNIT_DEVICES",
		.default_value = "",
		.help = "devices to open: NAME (prefix), =NAME (exact), ^NAME (not), "
			"NAME:PORT, separated by commas; empty means all",
	},
	[SNT__SETTING_GID] = {
		.name = "SENNIT_GID",
		.default_value = "auto",
		.help = "GID table index to use on every port, or auto: the best by score",
	},
	[SNT__SETTING_LOG] = {
		.name = "SENNIT_LOG",
		.default_value = "warn",
		.help = "error, warn, info or debug; to stderr if the program has no log",
	},
	[SNT__SETTING_NCCL_ADDRESS] = {
		.name = "SENNIT_NCCL_ADDRESS",
		.default_value = "",
		.help = "plugin for NCCL: IP address or interface by which peers reach this "
			"host; empty means a device's own address",
	},
	[SNT__SETTING_NCCL_FUSE] = {
		.name = "SENNIT_NCCL_FUSE",
		.default_value = "on",
		.help = "plugin for NCCL: show all devices to NCCL as one: on, off",
	},
	[SNT__SETTING_SOFT] = {
		.name = "SENNIT_SOFT",
		.default_value = "auto",
		.help = "soft devices: auto (if the host has no RDMA device), never, only",
	},
	[SNT__SETTING_SOFT_ADDRESSES] = {
		.name = "SENNIT_SOFT_ADDRESSES",
		.default_value = "",
		.help = "what soft devices are on: IP addresses and network interfaces, "
			"separated by commas; empty means two free addresses of loopback",
	},
	[SNT__SETTING_SOFT_SHM] = {
		.name = "SENNIT_SOFT_SHM",
		.default_value = "on",
		.help = "soft devices of one user on one host meet in shared memory: on; "
			"pull (the kernel copies long payload, once); off (they use UDP)",
	},
	[SNT__SETTING_SPIN] = {
		.name = "SENNIT_SPIN",
		.default_value = "0",
		.help = "how long waits look at CQs before they sleep: nanoseconds, or auto",
	},
};

const struct snt_setting *snt_setting_list(size_t *count_out)
{
	if (count_out)
		*count_out = SNT__SETTING_COUNT;
	return settings;
}

const char *snt__setting_env(enum snt__setting_id id)
{
	const char *value = secure_getenv(settings[id].name);

	return value && *value ? value : NULL;
}

struct snt__value snt__setting_get(enum snt__setting_id id, const char *option,
				   const char *option_name)
{
	const char *env = snt__setting_env(id);

	if (option)
		return (struct snt__value){ option, option_name };
	if (env)
		return (struct snt__value){ env, settings[id].name };
	return (struct snt__value){ settings[id].default_value, settings[id].name };
}

int snt__setting_word(struct snt__value value, const char *const *words)
{
	char list[128] = "";
	size_t used = 0;

	for (int i = 0; words[i]; i++) {
		if (!strcmp(words[i], value.text))
			return i;
		used += snprintf(list + used, sizeof(list) - used, "%s%s",
				 i ? ", " : "", words[i]);
	}
	return snt__fail(EINVAL, "%s is \"%s\"; it must be one of: %s", value.origin,
			 value.text, list);
}

static bool is_known_setting(const char *name, size_t length)
{
	for (int i = 0; i < SNT__SETTING_COUNT; i++)
		if (strlen(settings[i].name) == length &&
		    !memcmp(settings[i].name, name, length))
			return true;
	return false;
}

void snt__setting_unknown(void (*unknown)(void *arg, const char *name), void *arg)
{
	if (getauxval(AT_SECURE))
		return;
	for (char **entry = environ; entry && *entry; entry++) {
		size_t length = strcspn(*entry, "=");
		char name[64];

		if (strncmp(*entry, PREFIX, strlen(PREFIX)) ||
		    is_known_setting(*entry, length))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)length, *entry);
		unknown(arg, name);
	}
}
