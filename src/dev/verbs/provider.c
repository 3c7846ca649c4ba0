/* SPDX-License-Identifier: MIT */
/* The devices that libibverbs knows: hardware, and software ones of the kernel. */
#include "dev/provider.h"

#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "dev/verbs/err.h"
#include "util/err.h"

/* A device that the kernel has, even if libibverbs does not list it. */
static int kernel_device(char *name_out, size_t size)
{
	DIR *folder = opendir("/sys/class/infiniband");
	struct dirent *entry;
	int found = 0;

	if (!folder)
		return 0;
	while (!found && (entry = readdir(folder))) {
		found = entry->d_name[0] != '.';
		snprintf(name_out, size, "%s", entry->d_name);
	}
	closedir(folder);
	return found;
}

/*
 * libibverbs lists devices with a lock of its own, which a child forked meanwhile would
 * find locked for ever. Forks wait until no thread is listing.
 */
static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;

static void lock_listing(void)
{
	pthread_mutex_lock(&listing);
}

static void unlock_listing(void)
{
	pthread_mutex_unlock(&listing);
}

static void watch_forks_of_listing(void)
{
	pthread_atfork(lock_listing, unlock_listing, unlock_listing);
}

static struct ibv_device **get_device_list(int *count_out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct ibv_device **devices;
	int error;

	pthread_once(&once, watch_forks_of_listing);
	pthread_mutex_lock(&listing);
	devices = ibv_get_device_list(count_out);
	error = errno;
	pthread_mutex_unlock(&listing);
	errno = error;
	return devices;
}

static int verbs_list(struct snt__value addresses, struct snt__listing *listing_out)
{
	struct ibv_device **devices = NULL;
	int count = 0;
	int ret = FROM_POINTER(&devices, get_device_list(&count));
	char name[256];

	(void)addresses;
	/* ENOSYS: the kernel has no RDMA support loaded, so there are none. */
	if (ret && ret != -ENOSYS)
		return snt__fail(-ret, "cannot list RDMA devices: %s", strerror(-ret));
	/* A device that cannot be used must not look like no device. */
	if (!count && kernel_device(name, sizeof(name))) {
		if (devices)
			ibv_free_device_list(devices);
		return snt__fail(
			ENODEV,
			"the kernel has %s, but libibverbs finds no device: is "
			"/dev/infiniband missing here (a container?), or the "
			"provider's library (package ibverbs-providers)?",
			name);
	}
	listing_out->handle = devices;
	listing_out->count = count;
	return 0;
}

static void verbs_unlist(struct snt__listing *listing)
{
	if (listing->handle)
		ibv_free_device_list(listing->handle);
}

static struct ibv_device *listed_device(const struct snt__listing *listing,
					unsigned position)
{
	return ((struct ibv_device **)listing->handle)[position];
}

static const char *verbs_name(const struct snt__listing *listing, unsigned position)
{
	return ibv_get_device_name(listed_device(listing, position));
}

static int verbs_open_device(const struct snt__listing *listing, unsigned position,
			     struct ibv_context **context_out)
{
	return FROM_POINTER(context_out,
			    ibv_open_device(listed_device(listing, position)));
}

static int verbs_close_device(struct ibv_context *context)
{
	return FROM_INT(ibv_close_device(context));
}

const struct snt__provider snt__provider_verbs = {
	.kind = SNT_DEVICE_VERBS,
	.control = snt_control_verbs,
	.list = verbs_list,
	.unlist = verbs_unlist,
	.name = verbs_name,
	.open = verbs_open_device,
	.close = verbs_close_device,
};
