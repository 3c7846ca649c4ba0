/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sennit/fault.h>

#include "dev/device.h"
#include "util/err.h"
#include "util/opts.h"

static int cannot_fail(const struct snt_device *device)
{
	char text[SNT__DEVICE_TEXT];

	return snt__fail(
		EOPNOTSUPP,
		"%s: only soft devices fail on purpose; SENNIT_SOFT=only opens "
		"them",
		snt__device_text(device, text));
}

static int already_dead(const struct snt_device *device)
{
	char text[SNT__DEVICE_TEXT];

	return snt__fail(EIO,
			 "%s is dead and stays so; close it in all contexts of this "
			 "process, and open it again",
			 snt__device_text(device, text));
}

int snt_device_fail(struct snt_device *device, const struct snt_fault_opts *user)
{
	const struct snt__provider *provider = device->provider;
	struct snt_fault_opts opts;
	int ret = snt__opts_import(&opts, sizeof(opts), user, "struct snt_fault_opts");
	char text[SNT__DEVICE_TEXT];

	if (ret)
		return ret;
	if ((unsigned)opts.kind > SNT_FAULT_DEVICE_FATAL)
		return snt__fail(EINVAL,
				 "%s: fault %u is unknown; the kinds are 0 to %u",
				 snt__device_text(device, text), (unsigned)opts.kind,
				 SNT_FAULT_DEVICE_FATAL);
	if (!provider || !provider->fail)
		return cannot_fail(device);
	ret = provider->fail(device->context, opts.kind, opts.after_sent);
	return ret ? already_dead(device) : 0;
}

int snt_device_heal(struct snt_device *device)
{
	const struct snt__provider *provider = device->provider;

	if (!provider || !provider->heal)
		return cannot_fail(device);
	return provider->heal(device->context) ? already_dead(device) : 0;
}
