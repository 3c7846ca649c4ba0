/* SPDX-License-Identifier: MIT */
/* The devices that libibverbs knows: hardware, and software ones of the kernel. */
#include "dev/provider.h"

#include <infiniband/verbs.h>

#include "dev/verbs/err.h"

static int list(struct snt__listing *listing_out)
{
	struct ibv_device **devices = NULL;
	int count = 0;
	int ret = FROM_POINTER(&devices, ibv_get_device_list(&count));

	/* ENOSYS: the kernel has no RDMA support loaded, so there are none. */
	if (ret && ret != -ENOSYS)
		return ret;
	listing_out->handle = devices;
	listing_out->count = count;
	return 0;
}

static void unlist(struct snt__listing *listing)
{
	if (listing->handle)
		ibv_free_device_list(listing->handle);
}

static struct ibv_device *at(const struct snt__listing *listing, unsigned position)
{
	return ((struct ibv_device **)listing->handle)[position];
}

static const char *name(const struct snt__listing *listing, unsigned position)
{
	return ibv_get_device_name(at(listing, position));
}

static int open_device(const struct snt__listing *listing, unsigned position,
		       struct ibv_context **context_out)
{
	return FROM_POINTER(context_out, ibv_open_device(at(listing, position)));
}

static int close_device(struct ibv_context *context)
{
	return FROM_INT(ibv_close_device(context));
}

const struct snt__provider snt__provider_verbs = {
	.kind = SNT_DEVICE_VERBS,
	.control = snt_control_verbs,
	.list = list,
	.unlist = unlist,
	.name = name,
	.open = open_device,
	.close = close_device,
};
